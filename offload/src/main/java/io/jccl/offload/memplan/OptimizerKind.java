package io.jccl.offload.memplan;

import java.util.List;

/** Optimizers by their state per parameter. */
public enum OptimizerKind {
    /** Adam: momentum and variance (arXiv 1412.6980). */
    ADAM("adam", 2, 0),
    /** AdamW: momentum and variance (arXiv 1711.05101). */
    ADAMW("adamw", 2, 0),
    /** Lion: momentum (arXiv 2302.06675). */
    LION("lion", 1, 0),
    /** LAMB: momentum and variance (arXiv 1904.00962). */
    LAMB("lamb", 2, 0),
    /** Adam with moments of a byte each, with a scale for each block (arXiv 2110.02861). */
    ADAM_8BIT("adam8bit", 2, 1),
    /**
     * Adafactor without a first moment: means of rows and columns, which are left out, since a
     * matrix of thousands of both has less than a thousandth of its parameters (arXiv 1804.04235).
     */
    ADAFACTOR("adafactor", 0, 0),
    /** SGD with momentum. */
    SGD_MOMENTUM("sgd-momentum", 1, 0),
    /** SGD without. */
    SGD("sgd", 0, 0);

    private final String label;
    private final int moments;

    /** Bytes of a moment; 0 to use the precision's. */
    private final int moment;

    OptimizerKind(String label, int moments, int moment) {
        this.label = label;
        this.moments = moments;
        this.moment = moment;
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
        String name = label.equals("adam-8bit") ? ADAM_8BIT.label : label; // an earlier spelling
        return Checks.named(
                "optimizer '" + label + "' is", name, List.of(values()), OptimizerKind::label);
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
     * Bytes of state per parameter on the device: master parameter and moments. The scale of a
     * block of 8-bit moments is left out: 4 bytes for 256 of them in JCCL, for 2048 in the paper.
     *
     * @param precision the formats
     * @return bytes
     */
    public int bytes(Precision precision) {
        return precision.master() + moments * (moment > 0 ? moment : precision.moment());
    }

    @Override
    public String toString() {
        return label;
    }
}
