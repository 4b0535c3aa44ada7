package io.jccl.compute;

import java.util.Objects;

/**
 * A norm of rows.
 *
 * @param kind which
 * @param width elements of a row, 1 or more
 * @param epsilon what is added to the mean square before its root is taken; 0 or more
 */
public record Norm(Kind kind, int width, float epsilon) {
    /** Which norm. */
    public enum Kind {
        /** RMSNorm: rows are divided by their root mean square. */
        RMS,
        /** LayerNorm: the mean of each row is subtracted first. */
        LAYER
    }

    /**
     * Checks the numbers.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public Norm {
        Objects.requireNonNull(kind, "kind");
        Arguments.atLeastOne("width of a row", width);
        if (!(epsilon >= 0 && epsilon <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "epsilon is " + epsilon + ", expected a finite number, 0 or more");
        }
    }

    /**
     * Elements of the statistics of a row: the reciprocal of what it is divided by, for LayerNorm
     * after the mean.
     *
     * @return 1 or 2
     */
    public int statistics() {
        return kind == Kind.LAYER ? 2 : 1;
    }
}
