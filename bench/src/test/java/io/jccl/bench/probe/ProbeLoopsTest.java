package io.jccl.bench.probe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** The loops of a probe do what they say, and their checks see it. */
@Timeout(value = 60, unit = TimeUnit.SECONDS)
class ProbeLoopsTest {
    @ParameterizedTest
    @CsvSource({
        "READ, 8, 1",
        "READ, 4096, 1",
        "READ, 100001, 3",
        "WRITE, 4, 1",
        "WRITE, 70000, 2",
        "TRIAD, 12, 1",
        "TRIAD, 100001, 2"
    })
    void loopsGoThroughAllOfTheMemory(WorkingSets.Loop loop, long bytes, int threads) {
        try (WorkingSets sets = new WorkingSets(loop, bytes, threads)) {
            assertTrue(sets.bytes() <= bytes, () -> "" + sets.bytes());
            assertTrue(sets.bytes() > bytes - 12L * threads, () -> "" + sets.bytes());
            sets.run(1);
            assertNull(sets.wrong());
            sets.run(7);
            assertNull(sets.wrong());
        }
    }

    /** Memory that was never gone through holds something else. */
    @ParameterizedTest
    @EnumSource(
            value = WorkingSets.Loop.class,
            names = {"WRITE", "TRIAD"})
    void aLoopThatDidNotRunIsSeen(WorkingSets.Loop loop) {
        try (WorkingSets sets = new WorkingSets(loop, 1000, 1)) {
            assertNotNull(sets.wrong());
        }
    }

    @Test
    void timesAreOfTheOperationsThatRan() {
        List<Integer> batches = new ArrayList<>();
        Timing t =
                Meter.measure(
                        times -> {
                            batches.add(times);
                            spin(times * 100_000L);
                        },
                        10);
        assertEquals(1, batches.getFirst());
        assertTrue(t.batches() < batches.size(), batches::toString);
        assertEquals(
                t.operations(),
                batches.getLast(),
                "the last batches are those that count: " + batches);
        assertTrue(t.operations() > 1, t::toString);
    }

    /** One to warm, one to measure. */
    @Test
    void anOperationLongerThanItsShareRunsTwice() {
        List<Integer> batches = new ArrayList<>();
        Timing t =
                Meter.measure(
                        times -> {
                            batches.add(times);
                            spin(20_000_000);
                        },
                        0.001);
        assertEquals(List.of(1, 1), batches);
        assertEquals(1, t.batches());
    }

    private static void spin(long nanos) {
        long start = System.nanoTime();
        while (System.nanoTime() - start < nanos) {
            Thread.onSpinWait();
        }
    }

    @Test
    void medians() {
        Timing odd = Timing.of(new double[] {3, 1, 2}, 4, true);
        assertEquals(new Timing(2, 1, 3, 3, 4, true), odd);
        assertEquals(2.5, Timing.of(new double[] {4, 1, 2, 3}, 1, false).medianSeconds());
    }

    /** n^3 over 3 n^2 elements of 4 bytes, or of 2 and 4. */
    @Test
    void intensitiesAreOperationsByBytes() {
        Outcome second = Outcome.measured(new Timing(1, 1, 1, 1, 1, true));
        ProbeResult.Roofline r =
                Rooflines.of(
                        List.of(
                                new ProbeResult.Product("float32", 600, second, 1.0),
                                new ProbeResult.Product("bfloat16", 600, second, 2.0),
                                new ProbeResult.Product("float32", 300, second, 3.0),
                                new ProbeResult.Product("tf32", 300, Outcome.lacking("no"), null)),
                        List.of(
                                new ProbeResult.Elementwise(
                                        "adam", "float", 10, 28, 7, 1, second, 100.0)),
                        List.of(
                                new ProbeResult.Access("read", 1, 1, "L1", second, 50.0),
                                new ProbeResult.Access("write", 1, 1, "L1", second, 70.0),
                                new ProbeResult.Access("read", 9, 1, "RAM", second, 5.0)),
                        List.of());
        assertEquals(
                List.of(
                        new ProbeResult.Roofline.Compute("float32", 3),
                        new ProbeResult.Roofline.Compute("bfloat16", 2)),
                r.compute());
        assertEquals(
                List.of(
                        new ProbeResult.Roofline.Bandwidth("L1", 70),
                        new ProbeResult.Roofline.Bandwidth("RAM", 5)),
                r.bandwidth());
        assertEquals(
                List.of(
                        new ProbeResult.Roofline.Point("matmul float32 600", 100, 1),
                        new ProbeResult.Roofline.Point("matmul bfloat16 600", 150, 2),
                        new ProbeResult.Roofline.Point("matmul float32 300", 50, 3),
                        new ProbeResult.Roofline.Point("adam 10", 0.25, 0.025)),
                r.points());
    }
}
