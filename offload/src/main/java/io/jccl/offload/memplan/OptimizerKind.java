package io.jccl.offload.memplan;

import java.util.Arrays;
import java.util.List;

/** Optimizers by their state per parameter. */
public enum OptimizerKind {
    /** Adam: momentum and variance (arXiv 1412.6980). */
    ADAM("adam", 2),
    /** AdamW: momentum and variance (arXiv 1711.05101). */
    ADAMW("adamw", 2),
    /** SGD with momentum. */
    SGD_MOMENTUM("sgd-momentum", 1),
    /** SGD without. */
    SGD("sgd", 0);

    private final String label;
    private final int moments;

    OptimizerKind(String label, int moments) {
        this.label = label;
        this.moments = moments;
    }

    /**
     * The name on a command line.
     *
     * @return such as {@code adamw}
     */
    public String label() {
        return label;
    }

    /**
     * Finds an optimizer by name.
     *
     * @param label as {@link #label}
     * @return the optimizer
     * @throws IllegalArgumentException if there is none; the message lists them
     */
    public static OptimizerKind of(String label) {
        List<String> all = Arrays.stream(values()).map(OptimizerKind::label).toList();
        int at = all.indexOf(label);
        if (at < 0) {
            throw new IllegalArgumentException(
                    "optimizer '"
                            + label
                            + "' is unknown, expected one of "
                            + String.join(", ", all));
        }
        return values()[at];
    }

    /**
     * State values per parameter.
     *
     * @return the number
     */
    public int moments() {
        return moments;
    }

    /**
     * Bytes of state per parameter on the device: master parameter and moments.
     *
     * @param precision the formats
     * @return bytes
     */
    public int bytes(Precision precision) {
        return precision.master() + moments * precision.moment();
    }

    @Override
    public String toString() {
        return label;
    }
}
