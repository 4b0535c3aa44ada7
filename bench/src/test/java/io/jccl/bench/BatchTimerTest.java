package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.Communicator;
import io.jccl.bench.PerfConfig.Average;
import io.jccl.bench.PerfConfig.Blocking;
import io.jccl.bench.PerfConfig.Timing;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(value = 60, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class BatchTimerTest {
    private static Timing timing(int iterations, boolean automatic, Blocking blocking) {
        return new Timing(
                iterations, automatic, 1, 1, 1, blocking, false, 0, 0, Average.MEAN, false, false);
    }

    @Test
    void givenIterationsAreDividedAndNoneIsAdded() {
        for (int n = 1; n < 50; n++) {
            int[] lengths = BatchTimer.lengths(timing(n, false, Blocking.NONE), 8, 0.5);
            assertEquals(n, IntStream.of(lengths).sum());
            assertEquals(Math.min(n, 5), lengths.length);
        }
        int[] seven = BatchTimer.lengths(timing(7, false, Blocking.NONE), 8, 0.5);
        assertArrayEquals(new int[] {2, 2, 1, 1, 1}, seven);
    }

    @Test
    void shortOperationsHaveAsManyAsAMedianNeeds() {
        Timing t = timing(20, true, Blocking.NONE);
        assertArrayEquals(
                new int[] {500, 500, 500, 500, 500, 500, 500, 500, 500},
                BatchTimer.lengths(t, 8, 2));
        for (double micros : new double[] {0, 1e-9, 0.3, 46, 1e6}) {
            int[] lengths = BatchTimer.lengths(t, (8 << 20) - 1, micros);
            assertEquals(9, lengths.length);
            assertEquals(true, lengths[0] >= 4 && lengths[0] <= 4000);
        }
        // From 8 MiB on there are as many as nccl-tests has.
        assertArrayEquals(new int[] {4, 4, 4, 4, 4}, BatchTimer.lengths(t, 8 << 20, 2));
    }

    @ParameterizedTest
    @EnumSource
    void everyIterationRunsOnceInEveryMode(Blocking blocking) {
        Communicator.runLocal(
                2,
                c -> {
                    int[] runs = {0};
                    BatchTimer timer = new BatchTimer(timing(7, false, blocking), c);
                    BatchTimer.Times times = timer.time(() -> runs[0]++, new int[] {2, 2, 1, 1, 1});
                    assertEquals(7, runs[0]);
                    assertEquals(5, times.units().length);
                });
    }

    @Test
    void spreadOfBatches() {
        Report.Spread s = Report.Spread.of(new double[] {5, 1, 2, 4, 3}, new int[] {1, 1, 1, 1, 6});
        assertEquals(List.of(5.0, 1.0, 2.0, 4.0, 3.0), s.times());
        assertEquals(10, s.iterations());
        assertEquals(3, s.mean());
        assertEquals(3, s.median());
        assertEquals(1, s.min());
        assertEquals(5, s.max());
        assertEquals(2, s.q1());
        assertEquals(4, s.q3());
        assertEquals(1.5, Report.Spread.of(new double[] {2, 1}, new int[] {1, 1}).median());
        Report.Spread one = Report.Spread.of(new double[] {7}, new int[] {3});
        assertEquals(List.of(7.0, 7.0, 7.0), List.of(one.q1(), one.median(), one.q3()));
    }

    @Test
    void singleTimesAreSummedUpWithoutTheFirst() {
        Report.Iterations i = Report.Iterations.of(new double[] {100, 1, 3, 2}, 1);
        assertEquals(List.of(100.0, 1.0, 3.0, 2.0), i.times());
        assertEquals(1, i.skipped());
        assertEquals(1, i.min());
        assertEquals(3, i.max());
        assertEquals(2, i.avg());
        assertEquals(2, i.p50());
    }
}
