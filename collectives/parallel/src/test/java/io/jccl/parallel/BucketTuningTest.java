package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Trials of bucket sizes, with times that the test makes. */
@Timeout(60)
class BucketTuningTest {
    /**
     * Two ranks whose steps take other times: the slowest decides, and the first step is not
     * counted.
     */
    @Test
    void theShortestMedianOfTheSlowestRankWins() {
        BucketTuning tuning = new BucketTuning(List.of(10L, 20L, 30L), 3);
        assertEquals(24, tuning.trialSteps());
        // Milliseconds of a step, by rank and candidate.
        long[][] each = {{5, 4, 2}, {5, 3, 6}};
        Communicator.runLocal(
                2,
                c -> {
                    BucketTrials trials = new BucketTrials(tuning);
                    long now = 17;
                    for (int step = 0; step < tuning.trialSteps(); step++) {
                        int candidate = step / 4 % 3;
                        assertEquals(
                                step % 4 == 0 ? BucketTrials.Next.SWITCH : BucketTrials.Next.STAY,
                                trials.begin());
                        assertEquals(tuning.bytes().get(candidate), trials.bytes());
                        // The first step after a switch, and one of six others, are slow.
                        boolean slow = step % 4 == 0 || step % 12 == 3;
                        now += slow ? 1_000_000_000 : each[c.rank()][candidate] * 1_000_000;
                        trials.end(now);
                    }
                    assertEquals(BucketTrials.Next.DECIDE, trials.begin());
                    BucketTuning.Result result = trials.agree(c, c.device().defaultStream());
                    assertEquals(List.of(0.005, 0.004, 0.006), result.seconds());
                    assertEquals(20, result.chosenBytes());
                    assertEquals(BucketTrials.Next.STAY, trials.begin());
                    trials.end(now);
                });
    }

    /** Buckets are divided anew between steps; gradients stay where they are, with their values. */
    @Test
    void gradientsKeepTheirPlaces() {
        List<Parameter> parameters =
                List.of(
                        new Parameter("a", 1000, DataType.FLOAT32),
                        new Parameter("b", 1000, DataType.BFLOAT16),
                        new Parameter("c", 1000, DataType.FLOAT32));
        ReducerOptions options =
                ReducerOptions.DEFAULT
                        .withBuckets(1 << 20, 1)
                        .withTuning(new BucketTuning(List.of(4096L, 1L << 20), 1));
        Communicator.runLocal(
                1,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        List<Buffer> views = List.of(r.gradient(0), r.gradient(1), r.gradient(2));
                        r.gradient(2).set(5, 42);
                        StringBuilder counts = new StringBuilder();
                        for (int step = 0; step < options.tuning().trialSteps(); step++) {
                            r.begin(true);
                            counts.append(r.bucketCount());
                            for (int p = 2; p >= 0; p--) {
                                r.ready(p);
                            }
                            r.finish();
                        }
                        assertEquals("33223322", counts.toString());
                        assertEquals(42, r.gradient(2).get(5));
                        for (int p = 0; p < 3; p++) {
                            assertTrue(views.get(p) == r.gradient(p));
                        }
                    }
                });
    }

    /** New buckets wait for what was computed into the old ones. */
    @Test
    void gradientsOfAPassThatOnlyAccumulatedAreWaitedFor() {
        List<Parameter> parameters =
                List.of(
                        new Parameter("a", 4, DataType.FLOAT32),
                        new Parameter("b", 4, DataType.FLOAT32));
        ReducerOptions options = ReducerOptions.DEFAULT.withTuning(BucketTuning.DEFAULT);
        Communicator.runLocal(
                2,
                c -> {
                    try (Stream slow = c.device().newStream();
                            GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        r.begin(false);
                        slow.launchHostFunction(() -> {
                            LockSupport.parkNanos(50_000_000);
                            r.gradient(0).set(3, c.rank() + 1);
                        });
                        r.ready(0, slow);
                        r.finish();
                        r.begin(true);
                        r.ready(1);
                        r.finish();
                        slow.synchronize();
                        assertEquals(1.5, r.gradient(0).get(3));
                    }
                });
    }

    @Test
    void whatCannotBeTunedIsRefused() {
        assertEquals(
                "the candidates for the size of a bucket are [5, 5], expected ascending numbers of"
                        + " bytes, 1 or more",
                message(() -> new BucketTuning(List.of(5L, 5L), 1)));
        assertEquals(
                "steps of a trial is 0, expected 1 or more",
                message(() -> new BucketTuning(List.of(5L), 0)));
        ReducerOptions sparse = ReducerOptions.DEFAULT.withCompression(new Compression.TopK(0.01));
        assertTrue(
                message(() -> sparse.withTuning(BucketTuning.DEFAULT))
                        .contains("TopK[density=0.01], whose state belongs to a bucket"));
    }

    private static String message(Runnable r) {
        return String.valueOf(assertThrows(IllegalArgumentException.class, r::run).getMessage());
    }
}
