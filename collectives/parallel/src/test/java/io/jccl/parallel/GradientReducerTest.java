package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.RankFailedException;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.testkit.Messages;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The gradient reducer on ranks that are threads. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class GradientReducerTest {
    private static List<Parameter> floats(long... counts) {
        List<Parameter> all = new ArrayList<>();
        for (long count : counts) {
            all.add(new Parameter("w" + all.size(), count, DataType.FLOAT32));
        }
        return all;
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4})
    void meansAreExact(int ranks) {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("GradientReducerTest: " + ranks + " ranks, -Djccl.seed=" + seed);
        Communicator.runLocal(ranks, c -> ParallelBodies.reducer(c, seed));
    }

    @Test
    void bucketsGoFromTheLastParameterToTheFirst() {
        // 64 KiB each: the first bucket takes one of them, the others two.
        List<Parameter> parameters = floats(16384, 16384, 16384, 16384, 16384, 100);
        ReducerOptions options = ReducerOptions.DEFAULT.withBuckets(66_000, 131_072);
        List<Bucket.Plan> plans = Bucket.plan(parameters, options);
        assertEquals(
                List.of(List.of(5, 4), List.of(3, 2), List.of(1, 0)),
                plans.stream().map(Bucket.Plan::members).toList());
        assertEquals(List.of(0L, 112L), plans.getFirst().offsets());
        // Of each type a bucket of its own; those complete first come first.
        List<Parameter> mixed =
                List.of(
                        new Parameter("a", 10, DataType.FLOAT32),
                        new Parameter("b", 10, DataType.FLOAT16),
                        new Parameter("c", 10, DataType.FLOAT32),
                        new Parameter("d", 10, DataType.FLOAT16));
        assertEquals(
                List.of(List.of(3, 1), List.of(2, 0)),
                Bucket.plan(mixed, ReducerOptions.DEFAULT).stream()
                        .map(Bucket.Plan::members)
                        .toList());
    }

    @Test
    void gradientsAreAlignedViewsOfTheirBuckets() {
        Communicator.runLocal(
                1,
                c -> {
                    List<Parameter> parameters = floats(3, 5, 7);
                    try (GradientReducer r =
                            GradientReducer.create(c, parameters, ReducerOptions.DEFAULT)) {
                        for (int p = 0; p < 3; p++) {
                            assertEquals(0, r.gradient(p).address() % 64);
                            assertSame(r.gradient(p), r.gradient(p));
                        }
                        assertEquals(64, r.gradient(1).address() - r.gradient(2).address());
                        assertEquals(1, r.bucketCount());
                    }
                });
    }

    /** Earlier buckets are out, and averaged, before the pass has ended. */
    @Test
    void communicationStartsBeforeTheLastGradient() {
        List<Parameter> parameters = floats(1000, 1000);
        ReducerOptions options = ReducerOptions.DEFAULT.withBuckets(4000, 4000);
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        r.begin(true);
                        r.gradient(1).set(17, 1 + c.rank());
                        r.ready(1);
                        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
                        while (r.gradient(1).get(17) != 1.5) {
                            assertTrue(System.nanoTime() < deadline, "nothing was communicated");
                            Thread.sleep(1);
                        }
                        r.gradient(0).set(3, 10 * c.rank());
                        r.ready(0);
                        r.finish();
                        assertEquals(5, r.gradient(0).get(3));
                        assertEquals(1.5, r.gradient(1).get(17));
                    }
                });
    }

    @Test
    void unusedParametersCountAsZero() {
        List<Parameter> parameters = floats(10, 20, 30, 40);
        ReducerOptions options = ReducerOptions.DEFAULT.withBuckets(8, 8).withFindUnused(true);
        Communicator.runLocal(
                3,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        for (int step = 0; step < 4; step++) {
                            // What earlier steps left must not count.
                            IntStream.range(0, 4).forEach(p -> fill(r.gradient(p), 99));
                            r.begin(true);
                            List<Integer> mine = c.rank() == 1 ? List.of(0, 2) : List.of(0);
                            for (int p : mine) {
                                fill(r.gradient(p), 6);
                                r.ready(p);
                            }
                            r.finish();
                            assertEquals(6, r.gradient(0).get(9));
                            assertEquals(0, r.gradient(1).get(19));
                            assertEquals(2, r.gradient(2).get(29));
                            assertEquals(0, r.gradient(3).get(0));
                            assertTrue(r.isUsed(0) && r.isUsed(2));
                            assertFalse(r.isUsed(1) || r.isUsed(3));
                        }
                    }
                });
    }

    @Test
    void usedInAnyPassSinceTheLastCommunicationIsUsed() {
        List<Parameter> parameters = floats(10, 20);
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r =
                            GradientReducer.create(c, parameters, ReducerOptions.DEFAULT)) {
                        r.begin(false);
                        fill(r.gradient(0), 2 + 2 * c.rank());
                        r.ready(0);
                        r.finish();
                        assertEquals(2 + 2 * c.rank(), r.gradient(0).get(0), "no communication");
                        r.begin(true);
                        fill(r.gradient(1), 4);
                        r.ready(1);
                        r.finish();
                        assertEquals(3, r.gradient(0).get(0));
                        assertEquals(4, r.gradient(1).get(0));
                        r.zero();
                        assertEquals(0, r.gradient(1).get(0));
                    }
                });
    }

    private static void fill(Buffer buffer, double value) {
        for (long i = 0; i < buffer.count(); i++) {
            buffer.set(i, value);
        }
    }

    @Test
    void unusedWithoutTheOptionIsNamedOnAllRanks() {
        Communicator.runLocal(3, ParallelBodies::unused);
    }

    /** The caller's own operations may come anywhere between gradients, on each rank elsewhere. */
    @Test
    void communicatorOfTheCallerIsLeftAlone() {
        List<Parameter> parameters = floats(5000, 5000, 5000, 5000);
        ReducerOptions options = ReducerOptions.DEFAULT.withBuckets(20_000, 20_000);
        Communicator.runLocal(
                3,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options);
                            Buffer sum = c.device().allocate(DataType.INT64, 1);
                            Stream other = c.device().newStream()) {
                        for (int step = 0; step < 30; step++) {
                            r.begin(true);
                            for (int p = 3; p >= 0; p--) {
                                // Enqueued, since on the caller it would wait for the others.
                                if ((c.rank() + step) % 4 == p) {
                                    sum.setLong(0, c.rank());
                                    c.allReduce(sum, ReduceOp.SUM, other);
                                }
                                fill(r.gradient(p), 3 * c.rank() + step);
                                r.ready(p);
                            }
                            r.finish();
                            other.synchronize();
                            assertEquals(3 + step, r.gradient(2).get(4999));
                            assertEquals(3, sum.getLong(0));
                        }
                    }
                });
    }

    @Test
    void timeoutOfFinishEndsThePassOfAll() {
        List<Parameter> parameters = floats(10_000, 10_000);
        ReducerOptions options = ReducerOptions.DEFAULT.withBuckets(40_000, 40_000);
        Communicator.runLocal(
                2,
                c -> {
                    GradientReducer r = GradientReducer.create(c, parameters, options);
                    r.begin(true);
                    r.ready(1);
                    if (c.rank() == 0) {
                        r.ready(0);
                        assertThrows(
                                JcclTimeoutException.class, () -> r.finish(Duration.ofMillis(300)));
                        ConsistencyCheck.gather(c, 1);
                    } else {
                        ConsistencyCheck.gather(c, 1);
                        assertThrows(
                                RankFailedException.class,
                                () -> {
                                    r.ready(0);
                                    r.finish();
                                });
                    }
                    assertThrows(JcclException.class, r::finish);
                    r.close();
                });
    }

    @Test
    void misuseIsRefusedAndChangesNothing() {
        List<Parameter> parameters = floats(10, 20);
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r =
                            GradientReducer.create(c, parameters, ReducerOptions.DEFAULT)) {
                        assertThrows(IllegalStateException.class, r::finish);
                        String early = Messages.of(IllegalStateException.class, () -> r.ready(1));
                        assertTrue(early.contains("'w1'") && early.contains("begin"), early);
                        r.begin(true);
                        assertThrows(IllegalStateException.class, () -> r.begin(true));
                        assertThrows(IllegalStateException.class, r::zero);
                        fill(r.gradient(1), c.rank());
                        r.ready(1);
                        String twice = Messages.of(IllegalStateException.class, () -> r.ready(1));
                        assertTrue(twice.contains("'w1'") && twice.contains("second"), twice);
                        String which =
                                Messages.of(IllegalArgumentException.class, () -> r.ready(2));
                        assertTrue(which.contains("0 to 1"), which);
                        r.ready(0);
                        r.finish();
                        assertEquals(0.5, r.gradient(1).get(19));
                    }
                });
    }

    /** Its event completes, but what it was to compute is not there. */
    @Test
    void errorOnTheStreamOfAGradientEndsThePassOfAll() {
        Communicator.runLocal(
                2,
                c -> {
                    try (Stream stream = c.device().newStream();
                            GradientReducer r =
                                    GradientReducer.create(
                                            c, floats(10, 20), ReducerOptions.DEFAULT)) {
                        r.begin(false);
                        if (c.rank() == 0) {
                            stream.launchHostFunction(() -> {
                                throw new IllegalArgumentException("no loss");
                            });
                        }
                        r.ready(1, stream);
                        r.finish();
                        r.begin(true);
                        String m =
                                Messages.of(
                                        c.rank() == 0
                                                ? JcclException.class
                                                : RankFailedException.class,
                                        () -> {
                                            r.ready(0, stream);
                                            r.finish();
                                        });
                        assertTrue(m.contains("no loss"), m);
                        if (c.rank() == 0) {
                            assertThrows(JcclException.class, stream::synchronize);
                        }
                    }
                });
    }

    @Test
    void afterZeroAnErrorOfAnEarlierPassDoesNotCount() {
        Communicator.runLocal(
                2,
                c -> {
                    try (Stream first = c.device().newStream();
                            GradientReducer r =
                                    GradientReducer.create(c, floats(10), ReducerOptions.DEFAULT)) {
                        r.begin(false);
                        first.launchHostFunction(() -> {
                            throw new IllegalArgumentException("no loss");
                        });
                        r.ready(0, first);
                        r.finish();
                        assertThrows(JcclException.class, first::synchronize);
                        r.zero();
                        r.begin(true);
                        fill(r.gradient(0), c.rank());
                        r.ready(0);
                        r.finish();
                        assertEquals(0.5, r.gradient(0).get(9));
                    }
                });
    }

    /** As with a stream for each micro-batch. */
    @Test
    void streamsMayBeClosedOnceTheirGradientsAreReady() {
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r =
                            GradientReducer.create(c, floats(10, 20), ReducerOptions.DEFAULT)) {
                        for (int pass = 0; pass < 4; pass++) {
                            r.begin(pass % 2 == 1);
                            for (int p = 1; p >= 0; p--) {
                                Buffer gradient = r.gradient(p);
                                double value = c.rank() + pass;
                                try (Stream stream = c.device().newStream()) {
                                    stream.launchHostFunction(() -> fill(gradient, value));
                                    r.ready(p, stream);
                                }
                            }
                            r.finish();
                        }
                        assertEquals(3.5, r.gradient(0).get(9));
                        assertEquals(3.5, r.gradient(1).get(19));
                    }
                });
    }

    @Test
    void closedStreamIsRefusedAndChangesNothing() {
        Communicator.runLocal(
                2,
                c -> {
                    Stream stream = c.device().newStream();
                    stream.close();
                    try (GradientReducer r =
                            GradientReducer.create(c, floats(10), ReducerOptions.DEFAULT)) {
                        r.begin(true);
                        String m =
                                Messages.of(IllegalStateException.class, () -> r.ready(0, stream));
                        assertTrue(m.contains("stream is closed"), m);
                        fill(r.gradient(0), c.rank());
                        r.ready(0);
                        r.finish();
                        assertEquals(0.5, r.gradient(0).get(9));
                    }
                });
    }

    @Test
    void disagreementIsNamed() {
        Communicator.runLocal(
                2,
                c -> {
                    List<Parameter> parameters = floats(10, 20 + c.rank());
                    String m =
                            Messages.of(
                                    CollectiveMismatchException.class,
                                    () ->
                                            GradientReducer.create(
                                                    c, parameters, ReducerOptions.DEFAULT));
                    assertTrue(m.contains("columns=20") && m.contains("columns=21"), m);
                    ReducerOptions options = ReducerOptions.DEFAULT.withFindUnused(c.rank() == 0);
                    String o =
                            Messages.of(
                                    CollectiveMismatchException.class,
                                    () -> GradientReducer.create(c, floats(1), options));
                    assertTrue(o.contains("findUnused=true"), o);
                });
    }

    @Test
    void onlyFloatsHaveAMean() {
        Communicator.runLocal(
                2,
                c -> {
                    List<Parameter> parameters = List.of(new Parameter("steps", 3, DataType.INT64));
                    String m =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () ->
                                            GradientReducer.create(
                                                    c, parameters, ReducerOptions.DEFAULT));
                    assertTrue(m.contains("'steps'") && m.contains("int64"), m);
                    assertThrows(
                            IllegalArgumentException.class,
                            () -> GradientReducer.create(c, List.of(), ReducerOptions.DEFAULT));
                });
    }

    /** A rank that closes in a pass, or fails, lets nobody wait. */
    @Test
    void closingInAPassEndsThePassOfAll() {
        List<Parameter> parameters = floats(10_000);
        Communicator.runLocal(
                2,
                c -> {
                    GradientReducer r =
                            GradientReducer.create(c, parameters, ReducerOptions.DEFAULT);
                    r.begin(true);
                    if (c.rank() == 0) {
                        r.close();
                    } else {
                        r.ready(0);
                        assertThrows(RankFailedException.class, r::finish);
                        r.close();
                    }
                    assertEquals(2, ConsistencyCheck.gather(c, 1).length);
                });
    }
}
