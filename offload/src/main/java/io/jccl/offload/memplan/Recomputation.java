package io.jccl.offload.memplan;

import java.util.List;

/** Which activations are recomputed in the backward pass (arXiv 2205.05198). */
public enum Recomputation {
    /** Nothing: {@code s b h (34 + 5 a s / h)} bytes per layer in 16 bits. */
    NONE("none"),
    /** The attention's inner part: {@code 34 s b h}. What flash attention keeps is the same. */
    SELECTIVE("selective"),
    /**
     * All but each layer's input: {@code 2 s b h}, and one layer whole while it is computed again.
     */
    FULL("full");

    private final String label;

    Recomputation(String label) {
        this.label = label;
    }

    /**
     * The name on a command line.
     *
     * @return such as {@code full}
     */
    public String label() {
        return label;
    }

    /**
     * Finds a recomputation by name.
     *
     * @param label as {@link #label}
     * @return the recomputation
     * @throws IllegalArgumentException if there is none; the message lists them
     */
    public static Recomputation of(String label) {
        return Checks.named(
                "recomputation '" + label + "' is", label, List.of(values()), Recomputation::label);
    }

    @Override
    public String toString() {
        return label;
    }
}
