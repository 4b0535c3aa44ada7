package io.jccl.parallel;

import java.util.ArrayList;
import java.util.List;

/**
 * How a {@link GradientReducer} finds the size of its buckets: it times whole steps with each
 * candidate, and keeps the fastest. Small buckets start early but cost more collectives; large ones
 * leave more to do after the last gradient.
 *
 * <p>A step lasts from one {@link GradientReducer#finish} that communicates to the next, so it
 * includes the forward pass, the optimizer, and passes that accumulate. Each candidate is tried
 * twice, and its first step each time is not counted. The time of a candidate is its median, on the
 * slowest rank.
 *
 * @param bytes candidates for {@link ReducerOptions#bucketBytes()}, ascending; none for no tuning.
 *     The first bucket never gets larger than the others
 * @param steps steps counted in each of the two trials of a candidate
 */
public record BucketTuning(List<Long> bytes, int steps) {
    /** Buckets stay as they are. */
    public static final BucketTuning OFF = new BucketTuning(List.of(), 0);

    /**
     * 1, 5, 25 and 100 MiB, five steps counted in each trial: 48 steps in all. 25 is PyTorch's
     * default (Li et al., <a href="https://arxiv.org/abs/2006.15704">arXiv 2006.15704</a>, section
     * 4.2).
     */
    public static final BucketTuning DEFAULT =
            new BucketTuning(List.of(1L << 20, 5L << 20, 25L << 20, 100L << 20), 5);

    /** Trials of each candidate. */
    static final int ROUNDS = 2;

    /** Checks the candidates. */
    public BucketTuning {
        bytes = List.copyOf(bytes);
        long before = 0;
        for (long size : bytes) {
            if (size <= before) {
                throw new IllegalArgumentException(
                        "the candidates for the size of a bucket are "
                                + bytes
                                + ", expected ascending numbers of bytes, 1 or more");
            }
            before = size;
        }
        if (!bytes.isEmpty() && steps < 1) {
            throw new IllegalArgumentException(
                    "steps of a trial is " + steps + ", expected 1 or more");
        }
    }

    /**
     * Steps that communicate until the size is found.
     *
     * @return 0 without candidates
     */
    public long trialSteps() {
        return (long) ROUNDS * bytes.size() * (steps + 1);
    }

    /**
     * What was found.
     *
     * @param bytes the candidates
     * @param seconds the time of a step of each
     * @param chosen index of the shortest
     */
    public record Result(List<Long> bytes, List<Double> seconds, int chosen) {
        /** Copies the lists. */
        public Result {
            bytes = List.copyOf(bytes);
            seconds = List.copyOf(seconds);
        }

        /**
         * The size in use.
         *
         * @return bytes of a bucket
         */
        public long chosenBytes() {
            return bytes.get(chosen);
        }
    }

    /** The result, given each candidate's time on the slowest rank. */
    Result result(double[] seconds) {
        int best = 0;
        List<Double> all = new ArrayList<>();
        for (int i = 0; i < seconds.length; i++) {
            best = seconds[i] < seconds[best] ? i : best;
            all.add(seconds[i]);
        }
        return new Result(bytes, all, best);
    }
}
