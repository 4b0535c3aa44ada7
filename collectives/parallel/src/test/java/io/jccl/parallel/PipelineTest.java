package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testkit.AllocationRounds;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Pipelines of ranks that are threads. */
@Timeout(180)
class PipelineTest {
    private static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));

    @ParameterizedTest
    @ValueSource(ints = 3)
    void equalsDoubleLoops(int ranks) {
        long seed = System.nanoTime();
        System.out.println("PipelineTest seed " + seed + ", " + ranks + " ranks");
        Communicator.runLocal(
                ranks,
                OPTIONS,
                comm -> {
                    for (PipelineSchedule schedule : PipelineSchedule.values()) {
                        for (int m : new int[] {1, 2, 3, 7}) {
                            PipelineReport report = PipelineRanks.check(comm, schedule, m, seed);
                            assertEquals(ranks, report.stages().size());
                            assertEquals(m, report.microBatches());
                            assertEquals((ranks - 1.0) / (m + ranks - 1), report.computed(), 1e-12);
                        }
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4})
    void equalsDoubleLoopsOnMoreRanks(int ranks) {
        equalsDoubleLoops(ranks);
    }

    /** Gradients are added up in the order of micro-batches, wherever the layers are. */
    @ParameterizedTest
    @EnumSource
    void gradientsHaveTheBitsOfOneRank(PipelineSchedule schedule) {
        float[][] single = new float[PipelineRanks.LAYERS][];
        Communicator.runLocal(
                1, OPTIONS, c -> put(PipelineRanks.gradients(c, schedule, 5, 3, true), single));
        for (int ranks = 2; ranks <= 4; ranks++) {
            for (boolean overlap : new boolean[] {false, true}) {
                float[][] split = new float[PipelineRanks.LAYERS][];
                Communicator.runLocal(
                        ranks,
                        OPTIONS,
                        c -> put(PipelineRanks.gradients(c, schedule, 5, 3, overlap), split));
                String what = " on " + ranks + " ranks, overlap " + overlap;
                for (int l = 0; l < PipelineRanks.LAYERS; l++) {
                    assertArrayEquals(single[l], split[l], "layer " + l + what);
                }
            }
        }
    }

    private static void put(float[][] some, float[][] all) {
        for (int l = 0; l < some.length; l++) {
            if (some[l] != null) {
                all[l] = some[l];
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource
    void runsAllocateNothing(PipelineSchedule schedule) {
        for (boolean overlap : new boolean[] {false, true}) {
            AllocationRounds rounds = new AllocationRounds(3);
            Communicator.runLocal(
                    3, OPTIONS, comm -> PipelineRanks.repeat(comm, schedule, overlap, rounds));
            rounds.assertNone("a run, overlap " + overlap + ",");
        }
    }

    /**
     * The neighbour goes two micro-batches ahead while a stage computes one: messages that are too
     * large for any buffer but the receiver's do not wait for the computation.
     */
    @Test
    void messagesTravelWhileAStageComputes() {
        CountDownLatch forward = new CountDownLatch(1);
        CountDownLatch backward = new CountDownLatch(1);
        Communicator.runLocal(
                2,
                OPTIONS,
                comm -> {
                    PipelineStage stage =
                            comm.rank() == 0
                                    ? new Meeting(forward, false, backward, true)
                                    : new Meeting(forward, true, backward, false);
                    var options =
                            PipelineOptions.of(4, DataType.FLOAT32, 1 << 20)
                                    .withSchedule(PipelineSchedule.GPIPE);
                    try (Pipeline p = Pipeline.create(comm, stage, options)) {
                        p.run();
                        assertTrue(p.waitedNanos() > 0);
                        assertEquals(2, p.communicators().size());
                    }
                });
    }

    /** In its first computation of a kind waits for the other rank's third, or lets that one go. */
    private record Meeting(
            CountDownLatch forward, boolean waits, CountDownLatch backward, boolean waitsBack)
            implements PipelineStage {
        @Override
        public void forward(int i, @Nullable Buffer in, @Nullable Buffer out, Stream stream) {
            meet(i, forward, waits);
        }

        @Override
        public void backward(int i, @Nullable Buffer dy, @Nullable Buffer dx, Stream stream) {
            meet(i, backward, waitsBack);
        }

        private static void meet(int i, CountDownLatch latch, boolean waits) {
            try {
                if (waits && i == 0) {
                    assertTrue(latch.await(50, TimeUnit.SECONDS), "the other rank is held up");
                } else if (!waits && i == 2) {
                    latch.countDown();
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    /** A stage that sleeps: its share of the time is what the schedule says, or more. */
    private static final class Sleeper implements PipelineStage {
        @Override
        public void forward(int i, @Nullable Buffer in, @Nullable Buffer out, Stream stream) {
            sleep();
        }

        @Override
        public void backward(int i, @Nullable Buffer dy, @Nullable Buffer dx, Stream stream) {
            sleep();
        }

        private static void sleep() {
            long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(5);
            while (System.nanoTime() < until) {
                LockSupport.parkNanos(until - System.nanoTime());
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void bubbleIsMeasured(PipelineSchedule schedule) {
        PipelineReport[] reports = new PipelineReport[3];
        Communicator.runLocal(
                3,
                OPTIONS,
                comm -> {
                    var options =
                            PipelineOptions.of(4, DataType.FLOAT32, 10).withSchedule(schedule);
                    try (Pipeline p = Pipeline.create(comm, new Sleeper(), options)) {
                        assertThrows(IllegalStateException.class, p::report);
                        // What holds up the machine may hide a bubble now and then, not for ever.
                        PipelineReport r;
                        int runs = 0;
                        do {
                            p.run();
                            r = p.report();
                        } while (r.measured() < r.computed() / 2 && runs++ < 50);
                        reports[comm.rank()] = r;
                    }
                });
        PipelineReport report = reports[0];
        assertEquals(report, reports[1]);
        assertEquals(report, reports[2]);
        assertEquals(2.0 / 6, report.computed(), 1e-12);
        assertTrue(report.measured() > report.computed() / 2, report::toString);
        assertTrue(report.measured() < 1, report::toString);
        for (PipelineReport.Stage s : report.stages()) {
            assertTrue(s.compute().toMillis() >= 40, report::toString);
            assertTrue(s.idle() >= 0 && s.idle() < 1, report::toString);
        }
    }

    /** What a stage throws ends all ranks. */
    @ParameterizedTest
    @CsvSource({"0, false", "1, false", "2, false", "0, true", "1, true", "2, true"})
    void errorOfAStageEndsAll(int culprit, boolean overlap) {
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () ->
                                Communicator.runLocal(
                                        3,
                                        OPTIONS,
                                        comm -> {
                                            PipelineStage stage =
                                                    comm.rank() == culprit
                                                            ? new Failing()
                                                            : new Sleeper();
                                            var options =
                                                    PipelineOptions.of(6, DataType.FLOAT32, 10)
                                                            .withOverlap(overlap);
                                            try (Pipeline p =
                                                    Pipeline.create(comm, stage, options)) {
                                                p.run();
                                            }
                                        }));
        assertTrue(String.valueOf(e.getMessage()).contains("no more"), e::toString);
    }

    private static final class Failing implements PipelineStage {
        @Override
        public void forward(int i, @Nullable Buffer in, @Nullable Buffer out, Stream stream) {
            if (i == 2) {
                throw new IllegalStateException("no more");
            }
        }

        @Override
        public void backward(int i, @Nullable Buffer dy, @Nullable Buffer dx, Stream stream) {
            // nothing: the third forward fails
        }
    }

    /** With overlap a stage's error reaches the others, whatever becomes of the communicator. */
    @Test
    void othersHearOfAnErrorByThePipeline() {
        String[] heard = new String[3];
        Communicator.runLocal(
                3,
                OPTIONS,
                comm -> {
                    PipelineStage stage = comm.rank() == 1 ? new Failing() : new Sleeper();
                    var options = PipelineOptions.of(6, DataType.FLOAT32, 10);
                    try (Pipeline p = Pipeline.create(comm, stage, options)) {
                        RuntimeException e = assertThrows(RuntimeException.class, p::run);
                        heard[comm.rank()] = String.valueOf(e.getMessage());
                        assertThrows(RuntimeException.class, p::run);
                    }
                });
        assertEquals("no more", heard[1]);
        for (int r : new int[] {0, 2}) {
            assertTrue(heard[r].contains("stage 1 of the pipeline failed: no more"), heard[r]);
        }
    }

    /** Or messages of one run would be taken for those of another. */
    @Test
    void ranksThatDisagreeAreToldSo() {
        PipelineOptions options = PipelineOptions.of(4, DataType.FLOAT32, 10);
        List<PipelineOptions> others =
                List.of(
                        PipelineOptions.of(3, DataType.FLOAT32, 10),
                        PipelineOptions.of(4, DataType.INT32, 10),
                        options.withSchedule(PipelineSchedule.GPIPE),
                        options.withOverlap(false));
        List<String> differences =
                List.of("3 micro-batches", "int32", "schedule gpipe", "overlap false");
        Communicator.runLocal(
                2,
                OPTIONS,
                comm -> {
                    for (int i = 0; i < others.size(); i++) {
                        PipelineOptions mine = comm.rank() == 0 ? options : others.get(i);
                        CollectiveMismatchException e =
                                assertThrows(
                                        CollectiveMismatchException.class,
                                        () -> Pipeline.create(comm, new Sleeper(), mine));
                        String m = String.valueOf(e.getMessage());
                        assertTrue(m.contains(differences.get(i)), m);
                    }
                });
    }

    @Test
    void faultyOptionsAreRefused() {
        assertThrows(
                IllegalArgumentException.class, () -> PipelineOptions.of(0, DataType.FLOAT32, 1));
        assertThrows(
                IllegalArgumentException.class, () -> PipelineOptions.of(1, DataType.FLOAT32, 0));
    }
}
