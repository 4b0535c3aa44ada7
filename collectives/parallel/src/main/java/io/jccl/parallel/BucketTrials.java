package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Times the steps of a {@link BucketTuning} on one rank, and agrees with the others on the result.
 */
final class BucketTrials {
    /** What the next step is for. */
    enum Next {
        /** The same buckets. */
        STAY,
        /** Buckets of {@link #bytes}. */
        SWITCH,
        /** All candidates have been tried: {@link #agree} must be called. */
        DECIDE
    }

    private final BucketTuning tuning;

    /** Nanoseconds of the counted steps, for each candidate. */
    private final double[][] times;

    /** Steps that have begun, and the end of the last one. */
    private long step;

    private long ended;
    private BucketTuning.@Nullable Result result;

    BucketTrials(BucketTuning tuning) {
        this.tuning = tuning;
        times = new double[tuning.bytes().size()][BucketTuning.ROUNDS * tuning.steps()];
    }

    /** The candidate of the step that begins: 0, 1, 2, ... and then the same again. */
    private int candidate() {
        return (int) (step / (tuning.steps() + 1) % times.length);
    }

    /** Size of a bucket in the step that begins. */
    long bytes() {
        return tuning.bytes().get(candidate());
    }

    /** Called when a step that communicates begins. */
    Next begin() {
        if (result != null) {
            return Next.STAY;
        }
        if (step == tuning.trialSteps()) {
            return Next.DECIDE;
        }
        return step % (tuning.steps() + 1) == 0 ? Next.SWITCH : Next.STAY;
    }

    /** Called when it has ended. */
    void end(long nanos) {
        if (result != null) {
            return;
        }
        int trial = tuning.steps() + 1;
        int at = (int) (step % trial);
        if (at > 0) {
            int round = (int) (step / trial / times.length);
            times[candidate()][round * tuning.steps() + at - 1] = nanos - ended;
        }
        ended = nanos;
        step++;
    }

    /** The same result on all ranks: the time of a candidate is that of its slowest rank. */
    BucketTuning.Result agree(Communicator c, Stream stream) {
        double[] seconds = new double[times.length];
        try (Buffer all = c.device().allocate(DataType.FLOAT64, seconds.length)) {
            for (int i = 0; i < seconds.length; i++) {
                Arrays.sort(times[i]);
                all.set(i, times[i][times[i].length / 2] / 1e9);
            }
            c.allReduce(all, ReduceOp.MAX, stream);
            stream.synchronize();
            for (int i = 0; i < seconds.length; i++) {
                seconds[i] = all.get(i);
            }
        }
        result = tuning.result(seconds);
        return result;
    }

    /** Null before it is known. */
    BucketTuning.@Nullable Result result() {
        return result;
    }
}
