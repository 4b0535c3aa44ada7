package io.jccl.parallel;

import java.util.Objects;

/**
 * Settings of a {@link GradientReducer}. All ranks pass the same values.
 *
 * @param bucketBytes maximum size of a bucket in bytes; a larger parameter has its own bucket.
 *     Default 25 MiB, as in PyTorch (Li et al., <a href="https://arxiv.org/abs/2006.15704">arXiv
 *     2006.15704</a>, section 4.2)
 * @param firstBucketBytes the same for the first bucket of each type, which holds the last layers
 *     and becomes ready first; small, so that communication starts early. Default 1 MiB
 * @param findUnused whether a pass may leave parameters unused. It costs one small allReduce per
 *     step
 * @param compression how gradients are compressed; default {@link Compression#NONE}
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
     * These settings with other bucket sizes.
     *
     * @param first size of the first bucket in bytes
     * @param others size of the others in bytes
     * @return new settings
     */
    public ReducerOptions withBuckets(long first, long others) {
        return new ReducerOptions(others, first, findUnused, compression);
    }

    /**
     * These settings with or without support for unused parameters.
     *
     * @param find whether a pass may leave parameters unused
     * @return new settings
     */
    public ReducerOptions withFindUnused(boolean find) {
        return new ReducerOptions(bucketBytes, firstBucketBytes, find, compression);
    }

    /**
     * These settings with another compression.
     *
     * @param form the compression
     * @return new settings
     */
    public ReducerOptions withCompression(Compression form) {
        return new ReducerOptions(bucketBytes, firstBucketBytes, findUnused, form);
    }
}
