package io.jccl.offload.memplan;

/**
 * What is to be trained, and on what.
 *
 * @param model the model
 * @param batch what a step works on
 * @param precision number formats
 * @param optimizer the optimizer
 * @param machine what there is
 * @param overheads what is used besides
 */
public record Job(
        Model model,
        Batch batch,
        Precision precision,
        OptimizerKind optimizer,
        Machine machine,
        Overheads overheads) {
    /**
     * A job in mixed precision with Adam and the usual overheads, one sample a GPU and step.
     *
     * @param model the model
     * @param machine what there is
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
