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
 */
public record Job(
        Model model,
        Batch batch,
        Precision precision,
        OptimizerKind optimizer,
        Machine machine,
        Overheads overheads) {
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
        return new Job(other, batch, precision, optimizer, machine, overheads);
    }

    /**
     * The same on another machine.
     *
     * @param other the machine
     * @return the job
     */
    public Job with(Machine other) {
        return new Job(model, batch, precision, optimizer, other, overheads);
    }
}
