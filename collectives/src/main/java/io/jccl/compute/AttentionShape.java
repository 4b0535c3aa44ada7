package io.jccl.compute;

import io.jccl.device.Device;

/**
 * Shape of causal self-attention. A row of queries, keys and values has {@link #rowWidth} elements:
 * the queries of all heads, then the keys and then the values of all key heads. The first {@code
 * heads / keyHeads} heads share the first key head, and so on.
 *
 * @param sequences how many, 1 or more; their rows follow each other
 * @param context rows of a sequence, 1 or more
 * @param heads heads of queries, 1 or more
 * @param keyHeads heads of keys and of values, a divisor of the heads
 * @param size elements of a head, 1 or more; on a GPU at most 128
 */
public record AttentionShape(int sequences, int context, int heads, int keyHeads, int size) {
    private static final int LARGEST_ON_GPU = 128;

    /**
     * Checks the numbers.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public AttentionShape {
        Arguments.atLeastOne("sequences", sequences);
        Arguments.atLeastOne("context", context);
        Arguments.atLeastOne("heads", heads);
        Arguments.atLeastOne("key heads", keyHeads);
        if (heads % keyHeads != 0) {
            throw new IllegalArgumentException(
                    "there are %s key heads, expected a divisor of the %s heads"
                            .formatted(keyHeads, heads));
        }
        Arguments.atLeastOne("size of a head", size);
    }

    /** Checks that a kind of device has kernels for the shape. */
    void on(Device.Kind kind) {
        if (kind == Device.Kind.CUDA && size > LARGEST_ON_GPU) {
            throw new IllegalArgumentException(
                    "the size of a head is "
                            + size
                            + ", expected 1 to "
                            + LARGEST_ON_GPU
                            + " on a GPU");
        }
    }

    /**
     * Rows of all sequences.
     *
     * @return their number
     */
    public long rows() {
        return (long) sequences * context;
    }

    /**
     * Elements of a row of queries, keys and values.
     *
     * @return their number
     */
    public long rowWidth() {
        return (heads + 2L * keyHeads) * size;
    }

    /**
     * Elements of a row of outputs.
     *
     * @return their number
     */
    public long outputWidth() {
        return (long) heads * size;
    }

    /** Whether a sequence of another shape is of the same sizes. */
    boolean sameSequence(AttentionShape other) {
        return context == other.context
                && heads == other.heads
                && keyHeads == other.keyHeads
                && size == other.size;
    }

    /** Factor of the scores. */
    float scale() {
        return (float) (1 / Math.sqrt(size));
    }
}
