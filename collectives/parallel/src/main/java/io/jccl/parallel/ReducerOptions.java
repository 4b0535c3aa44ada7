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
 * @param adasum whether each parameter's gradients are combined by their adaptive sum instead of
 *     their mean (Maleki et al., <a href="https://arxiv.org/abs/2006.02924">arXiv 2006.02924</a>):
 *     the sum of orthogonal ones, the mean of equal ones, so the learning rate of one rank can be
 *     kept. For float32 in host memory, without compression, on 2<sup>k</sup> ranks; each gradient
 *     is sent <i>k</i> times, and memory for a second copy is needed. Default off
 * @param tuning whether the first steps try sizes of buckets; default {@link BucketTuning#OFF}
 */
public record ReducerOptions(
        long bucketBytes,
        long firstBucketBytes,
        boolean findUnused,
        Compression compression,
        boolean adasum,
        BucketTuning tuning) {
    /** 25 MiB, 1 MiB, every parameter used, the mean without compression. */
    public static final ReducerOptions DEFAULT =
            new ReducerOptions(
                    25L << 20, 1L << 20, false, Compression.NONE, false, BucketTuning.OFF);

    /** Checks the settings. */
    public ReducerOptions {
        Objects.requireNonNull(compression, "compression");
        Objects.requireNonNull(tuning, "tuning");
        check("bucketBytes", bucketBytes);
        check("firstBucketBytes", firstBucketBytes);
        if (adasum && !(compression instanceof Compression.None)) {
            throw new IllegalArgumentException(
                    "the compression is "
                            + compression
                            + ", but Adasum needs whole gradients; use Compression.NONE, or the mean");
        }
        if (!tuning.bytes().isEmpty()
                && !(compression instanceof Compression.None
                        || compression instanceof Compression.Cast)) {
            throw new IllegalArgumentException(
                    "the compression is "
                            + compression
                            + ", whose state belongs to a bucket, so buckets cannot be tuned; use"
                            + " Compression.Cast or NONE, or withBuckets");
        }
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
        return new ReducerOptions(others, first, findUnused, compression, adasum, tuning);
    }

    /**
     * These settings with or without support for unused parameters.
     *
     * @param find whether a pass may leave parameters unused
     * @return new settings
     */
    public ReducerOptions withFindUnused(boolean find) {
        return new ReducerOptions(bucketBytes, firstBucketBytes, find, compression, adasum, tuning);
    }

    /**
     * These settings with another compression.
     *
     * @param form the compression
     * @return new settings
     */
    public ReducerOptions withCompression(Compression form) {
        return new ReducerOptions(bucketBytes, firstBucketBytes, findUnused, form, adasum, tuning);
    }

    /**
     * These settings with the adaptive sum or the mean.
     *
     * @param sum whether gradients become their adaptive sum
     * @return new settings
     */
    public ReducerOptions withAdasum(boolean sum) {
        return new ReducerOptions(
                bucketBytes, firstBucketBytes, findUnused, compression, sum, tuning);
    }

    /**
     * These settings with buckets whose size is found in the first steps.
     *
     * @param search the candidates; such as {@link BucketTuning#DEFAULT}, or {@link
     *     BucketTuning#OFF}
     * @return new settings
     */
    public ReducerOptions withTuning(BucketTuning search) {
        return new ReducerOptions(
                bucketBytes, firstBucketBytes, findUnused, compression, adasum, search);
    }
}
