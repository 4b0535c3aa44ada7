package io.jccl.offload.weights;

import java.util.List;

/**
 * The description of a tensor in a file.
 *
 * @param name unique in the file
 * @param type of its elements
 * @param shape elements of each dimension, row-major; empty for a scalar
 */
public record WeightTensor(String name, WeightType type, List<Long> shape) {
    /**
     * Checks the shape.
     *
     * @throws IllegalArgumentException if a dimension is negative, or the size in bytes exceeds a
     *     64-bit integer
     */
    public WeightTensor {
        shape = List.copyOf(shape);
        long bytes = type.size();
        boolean empty = shape.contains(0L);
        for (long d : shape) {
            long high = empty || d < 0 ? 0 : Math.multiplyHigh(bytes, d);
            bytes = empty ? 0 : bytes * d;
            if (d < 0 || high != 0 || bytes < 0) {
                throw new IllegalArgumentException(
                        ("tensor %s has the shape %s, expected dimensions of 0 or more whose"
                                        + " product fits memory")
                                .formatted(name, shape));
            }
        }
    }

    /**
     * Number of elements.
     *
     * @return 0 or more
     */
    public long count() {
        return shape.stream().reduce(1L, (a, b) -> a * b);
    }

    /**
     * Size of all elements.
     *
     * @return bytes
     */
    public long bytes() {
        return count() * type.size();
    }
}
