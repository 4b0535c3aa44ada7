package io.jccl.offload.memplan;

import java.util.List;

/** Number formats of the model state, in bytes per element. */
public enum Precision {
    /** All in float32. */
    FP32("fp32", 4, 4, 4, 0, 4, 0),
    /**
     * Parameters, gradients and activations in float16; master parameters and moments in float32
     * (arXiv 1710.03740). With Adam 2 + 2 + 12 = 16 bytes per parameter (arXiv 1910.02054, section
     * 3.1). DeepSpeed's optimizer off the device also holds the gradients in float32, 20 bytes in
     * total (arXiv 2104.07857, section 3).
     */
    FP16("fp16", 2, 2, 2, 4, 4, 4),
    /** As FP16, in bfloat16. */
    BF16("bf16", 2, 2, 2, 4, 4, 4),
    /**
     * As BF16, with the products of the layers' matrices in 8-bit floats: their operands are
     * narrowed before each product, weights in two copies, as the tensor cores read one operand by
     * rows and one by columns. Embeddings, norms, routers, the output matrix and the attention stay
     * in bfloat16 (arXiv 2412.19437, section 3.3; NVIDIA Transformer Engine).
     */
    FP8("fp8", 2, 1, 2, 4, 4, 4),
    /** As BF16, with moments and the optimizer's gradients in bfloat16. */
    BF16_STATES("bf16-states", 2, 2, 2, 4, 2, 0),
    /** All in bfloat16, without master parameters. */
    BF16_PURE("bf16-pure", 2, 2, 2, 0, 2, 0);

    private final String label;
    private final int parameter;
    private final int operand;
    private final int gradient;
    private final int master;
    private final int moment;
    private final int offloadedGradient;

    Precision(
            String label,
            int parameter,
            int operand,
            int gradient,
            int master,
            int moment,
            int offloadedGradient) {
        this.label = label;
        this.parameter = parameter;
        this.operand = operand;
        this.gradient = gradient;
        this.master = master;
        this.moment = moment;
        this.offloadedGradient = offloadedGradient;
    }

    /**
     * The name on a command line.
     *
     * @return such as {@code bf16-states}
     */
    public String label() {
        return label;
    }

    /**
     * Finds a precision by name.
     *
     * @param label as {@link #label}
     * @return the precision
     * @throws IllegalArgumentException if there is none; the message lists them
     */
    public static Precision of(String label) {
        return Checks.named(
                "precision '" + label + "' is", label, List.of(values()), Precision::label);
    }

    /**
     * A parameter, and an activation.
     *
     * @return bytes
     */
    public int parameter() {
        return parameter;
    }

    /**
     * An operand of a product with a layer's matrix.
     *
     * @return bytes; fewer than those of a parameter if operands are narrowed before a product
     */
    public int operand() {
        return operand;
    }

    /**
     * Number formats of the products that are not narrowed: the output matrix, and attention.
     *
     * @return this, or {@link #BF16} for {@link #FP8}
     */
    public Precision wide() {
        return this == FP8 ? BF16 : this;
    }

    /**
     * A gradient.
     *
     * @return bytes
     */
    public int gradient() {
        return gradient;
    }

    /**
     * A master parameter.
     *
     * @return bytes; 0 if there are none
     */
    public int master() {
        return master;
    }

    /**
     * One moment of the optimizer.
     *
     * @return bytes
     */
    public int moment() {
        return moment;
    }

    /**
     * The additional gradient that an optimizer off the device holds.
     *
     * @return bytes; 0 if it uses that one
     */
    public int offloadedGradient() {
        return offloadedGradient;
    }

    @Override
    public String toString() {
        return label;
    }
}
