package io.jccl.offload.memplan;

import java.util.Locale;

/** How attention is computed. */
public enum AttentionKernel {
    /** By matrix products: the scores of all pairs of tokens are kept. */
    MATH,
    /** Block by block (arXiv 2205.14135): the scores never exist, 4 bytes a head and token do. */
    FLASH,
    /**
     * As FLASH, by the kernels that use Hopper's and Blackwell's own instructions: arXiv
     * 2407.08608, and cuDNN's. The same as FLASH on older GPUs.
     */
    FLASH3;

    /** Whether the scores are kept. */
    boolean keepsScores() {
        return this == MATH;
    }

    /**
     * The name on a command line.
     *
     * @return such as {@code flash}
     */
    public String label() {
        return name().toLowerCase(Locale.ROOT);
    }

    /**
     * Finds a kernel by name.
     *
     * @param label as {@link #label}
     * @return the kernel
     * @throws IllegalArgumentException if there is none; the message lists them
     */
    public static AttentionKernel of(String label) {
        for (AttentionKernel kernel : values()) {
            if (kernel.label().equals(label)) {
                return kernel;
            }
        }
        throw new IllegalArgumentException(
                "attention '" + label + "' is unknown, expected math, flash or flash3");
    }

    /**
     * The default kernel for a model.
     *
     * @param model the model
     * @return math for models with dropout, such as GPT-2 and 3, which older code trains; flash for
     *     the others
     */
    public static AttentionKernel of(Model model) {
        return model.dropout() ? MATH : FLASH;
    }
}
