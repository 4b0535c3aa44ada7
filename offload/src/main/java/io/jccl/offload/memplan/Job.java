package io.jccl.offload.memplan;

/**
 * A model to train and the machine to train it on.
 *
 * @param model the model
 * @param batch the batch of a step
 * @param precision number formats
 * @param optimizer the optimizer
 * @param machine the machine
 * @param overheads memory used in addition to the model
 * @param system whose code trains it
 * @param kernel how attention is computed
 * @param adapters what is trained
 */
public record Job(
        Model model,
        Batch batch,
        Precision precision,
        OptimizerKind optimizer,
        Machine machine,
        Overheads overheads,
        TrainingSystem system,
        AttentionKernel kernel,
        LowRank adapters) {
    /**
     * A job as this library trains it, with the usual attention of its model.
     *
     * @param model the model
     * @param batch the batch of a step
     * @param precision number formats
     * @param optimizer the optimizer
     * @param machine the machine
     * @param overheads memory used in addition to the model
     */
    public Job(
            Model model,
            Batch batch,
            Precision precision,
            OptimizerKind optimizer,
            Machine machine,
            Overheads overheads) {
        this(
                model,
                batch,
                precision,
                optimizer,
                machine,
                overheads,
                TrainingSystem.JCCL,
                AttentionKernel.of(model),
                LowRank.NONE);
    }

    /**
     * A job in mixed precision with Adam and the usual overheads, one sample per GPU and step.
     *
     * @param model the model
     * @param machine the machine
     * @return the job
     */
    public static Job of(Model model, Machine machine) {
        return new Job(
                model, Batch.ONE, Precision.FP16, OptimizerKind.ADAM, machine, Overheads.DEFAULT);
    }

    /**
     * The same with another model.
     *
     * @param other the model
     * @return the job
     */
    public Job with(Model other) {
        return new Job(
                other, batch, precision, optimizer, machine, overheads, system, kernel, adapters);
    }

    /**
     * The same with another batch.
     *
     * @param other the batch
     * @return the job
     */
    public Job with(Batch other) {
        return new Job(
                model, other, precision, optimizer, machine, overheads, system, kernel, adapters);
    }

    /**
     * The same in other number formats.
     *
     * @param other the formats
     * @return the job
     */
    public Job with(Precision other) {
        return new Job(
                model, batch, other, optimizer, machine, overheads, system, kernel, adapters);
    }

    /**
     * The same on another machine.
     *
     * @param other the machine
     * @return the job
     */
    public Job with(Machine other) {
        return new Job(
                model, batch, precision, optimizer, other, overheads, system, kernel, adapters);
    }

    /**
     * The same by another system's code.
     *
     * @param other the system
     * @return the job
     */
    public Job with(TrainingSystem other) {
        return new Job(
                model, batch, precision, optimizer, machine, overheads, other, kernel, adapters);
    }

    /**
     * The same with attention computed in another way.
     *
     * @param other the kernel
     * @return the job
     */
    public Job with(AttentionKernel other) {
        return new Job(
                model, batch, precision, optimizer, machine, overheads, system, other, adapters);
    }

    /**
     * The same with parts of the model trained.
     *
     * @param other which
     * @return the job
     */
    public Job with(LowRank other) {
        return new Job(
                model, batch, precision, optimizer, machine, overheads, system, kernel, other);
    }

    /**
     * Bytes of model state for each trained parameter over all tiers: parameter, gradient, master
     * and moments.
     *
     * @param offloaded whether the optimizer is off the device
     * @return bytes, without the second version that NVMe may hold
     */
    public int stateBytes(boolean offloaded) {
        return system.parameter(precision)
                + system.gradient(precision)
                + system.state(precision, optimizer)
                + (offloaded ? system.heldGradient(precision) : 0);
    }
}
