package io.jccl.parallel;

import java.util.Objects;

/**
 * Settings of a {@link GradientReducer}. All ranks pass the same ones.
 *
 * @param bucketBytes how large a bucket may grow, in bytes; a larger parameter has one of its own.
 *     Default 25 MiB, as in PyTorch (Li et al., <a href="https://arxiv.org/abs/2006.15704">arXiv
 *     2006.15704</a>, section 4.2)
 * @param firstBucketBytes the same for the first bucket of each type, which holds the last layers
 *     and is ready first; small, so that communication starts early. Default 1 MiB
 * @param findUnused whether a pass may leave parameters out. It costs one small allReduce a step
 * @param compression in which form gradients travel; default {@link Compression#NONE}
 */
public record ReducerOptions(
        long bucketBytes, long firstBucketBytes, boolean findUnused, Compression compression) {
    /** 25 MiB, 1 MiB, every parameter used, no compression. */
    public static final ReducerOptions DEFAULT =
            new ReducerOptions(25L << 20, 1L << 20, false, Compression.NONE);

    /** Checks the settings. */
    public ReducerOptions {
        Objects.requireNonNull(compression, "compression");
        check("bucketBytes", bucketBytes);
        check("firstBucketBytes", firstBucketBytes);
    }

    private static void check(String name, long bytes) {
        if (bytes < 1) {
            throw new IllegalArgumentException(name + " is " + bytes + ", expected 1 or more");
        }
    }

    /**
     * These settings with buckets of another size.
     *
     * @param first bytes of the first bucket
     * @param others bytes of the others
     * @return new settings
     */
    public ReducerOptions withBuckets(long first, long others) {
        return new ReducerOptions(others, first, findUnused, compression);
    }

    /**
     * These settings, but passes may leave parameters out or not.
     *
     * @param find whether they may
     * @return new settings
     */
    public ReducerOptions withFindUnused(boolean find) {
        return new ReducerOptions(bucketBytes, firstBucketBytes, find, compression);
    }

    /**
     * These settings with another form in which gradients travel.
     *
     * @param form the form
     * @return new settings
     */
    public ReducerOptions withCompression(Compression form) {
        return new ReducerOptions(bucketBytes, firstBucketBytes, findUnused, form);
    }
}
