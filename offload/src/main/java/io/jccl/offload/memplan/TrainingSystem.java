package io.jccl.offload.memplan;

import java.util.List;

/**
 * The system that trains a model, described by the bytes it holds per parameter.
 *
 * @param name as on a command line
 * @param one whether the stored parameter is the master, which is cast to narrower types when a
 *     layer is gathered
 * @param gradient bytes of an accumulated gradient; 0 to use the precision's
 * @param copiesGradients whether an optimizer off the device holds the gradients in float32 too
 * @param exchangesBehind whether exchanges of tensor and expert parallelism and of a pipeline
 *     overlap with compute, and a token is sent to a machine once for all its experts there
 */
public record TrainingSystem(
        String name, boolean one, int gradient, boolean copiesGradients, boolean exchangesBehind) {
    /**
     * This library's {@link io.jccl.offload.zero.ZeroOptimizer}: parameter, accumulator in a chosen
     * type, master and moments; an offloaded step reads the accumulator itself.
     */
    public static final TrainingSystem JCCL = new TrainingSystem("jccl", false, 0, false, false);

    /**
     * DeepSpeed: 16 bytes with Adam in mixed precision (arXiv 1910.02054, section 3.1), 20 if the
     * optimizer is offloaded, which holds the gradient in float32 too (arXiv 2104.07857, section
     * 3).
     */
    public static final TrainingSystem DEEPSPEED =
            new TrainingSystem("deepspeed", false, 0, true, false);

    /**
     * PyTorch's fully sharded data parallelism: parameters, gradients and moments of the
     * parameter's own type, float32; gathered parameters are cast (arXiv 2304.11277, section 4.4).
     */
    public static final TrainingSystem FSDP = new TrainingSystem("fsdp", true, 0, false, false);

    /**
     * Megatron-LM: gradients are accumulated in float32, 18 bytes with Adam in mixed precision (its
     * documentation of the distributed optimizer). Exchanges overlap as in Megatron Core: products
     * with user buffers, expert dispatch by DeepEP, interleaved pipelines.
     */
    public static final TrainingSystem MEGATRON =
            new TrainingSystem("megatron", false, 4, false, true);

    /** All of them. */
    public static final List<TrainingSystem> ALL = List.of(JCCL, DEEPSPEED, FSDP, MEGATRON);

    /** Checks the arguments. */
    public TrainingSystem {
        Checks.range("bytes of a gradient", gradient, 0, 4, "0 uses the precision's");
    }

    /**
     * Finds a system by name.
     *
     * @param name as {@link #name}
     * @return the system
     * @throws IllegalArgumentException if there is none; the message lists them
     */
    public static TrainingSystem of(String name) {
        return Checks.named("system '" + name + "' is", name, ALL, TrainingSystem::name);
    }

    /**
     * With gradients accumulated in another type.
     *
     * @param bytes of a gradient; 0 to use the precision's
     * @return the system
     */
    public TrainingSystem withGradient(int bytes) {
        return new TrainingSystem(name, one, bytes, copiesGradients, exchangesBehind);
    }

    /** Bytes of a stored parameter. */
    int parameter(Precision precision) {
        return one && precision.master() > 0 ? precision.master() : precision.parameter();
    }

    /**
     * Bytes of a parameter's narrowed copies, by rows and by columns, in addition to the stored
     * one. Megatron stores them in its place ({@code --fp8-param-gather}).
     */
    int narrowed(Precision precision) {
        boolean narrows = precision.operand() < precision.parameter();
        return narrows && !name.equals(MEGATRON.name) ? 2 * precision.operand() : 0;
    }

    /** Bytes of an accumulated gradient. */
    int gradient(Precision precision) {
        return gradient > 0 ? gradient : one ? parameter(precision) : precision.gradient();
    }

    /** Bytes of master parameter and moments. */
    int state(Precision precision, OptimizerKind optimizer) {
        return optimizer.bytes(precision) - (one ? precision.master() : 0);
    }

    /** Bytes of the additional gradient that an optimizer off the device holds. */
    int heldGradient(Precision precision) {
        return copiesGradients ? precision.offloadedGradient() : 0;
    }

    @Override
    public String toString() {
        return name;
    }
}
