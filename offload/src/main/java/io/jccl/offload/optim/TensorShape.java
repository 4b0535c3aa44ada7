package io.jccl.offload.optim;

import java.util.List;

/**
 * The shape of a parameter tensor as a matrix in row-major order, for rules that keep means of its
 * rows and columns.
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param rows 1 or more
 * @param columns 1 or more
 */
public record TensorShape(long rows, long columns) {
    /** Checks the arguments. */
    public TensorShape {
        if (rows < 1 || columns < 1 || columns > Long.MAX_VALUE / 64 / rows) {
            throw new IllegalArgumentException(
                    ("a tensor has %s rows and %s columns, expected 1 or more of both, and at most"
                                    + " %s elements")
                            .formatted(rows, columns, Long.MAX_VALUE / 64));
        }
    }

    /**
     * A vector.
     *
     * @param count number of elements, 1 or more
     * @return the shape, of one row
     */
    public static TensorShape vector(long count) {
        return new TensorShape(1, count);
    }

    /**
     * Number of elements.
     *
     * @return 1 or more
     */
    public long count() {
        return rows * columns;
    }

    /**
     * Whether it has more than one row and more than one column.
     *
     * @return false for a vector
     */
    public boolean isMatrix() {
        return rows > 1 && columns > 1;
    }

    /**
     * Values of the layout {@link StateTensor.Layout#FACTORED}.
     *
     * @return one for each row and each column of a matrix, one for each element of a vector
     */
    public long factors() {
        return isMatrix() ? rows + columns : count();
    }

    /** Values of the layout for all tensors. */
    static long factors(List<TensorShape> shapes) {
        long sum = 0;
        for (TensorShape s : shapes) {
            sum += s.factors();
        }
        return sum;
    }
}
