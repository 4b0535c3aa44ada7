package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.contract.Messages;
import io.jccl.contract.MpiLauncher;
import io.jccl.contract.Workers;
import io.jccl.contract.Workers.Worker;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import io.jccl.testdouble.TestDouble;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 5, unit = TimeUnit.MINUTES)
class ExpertDispatchTest {
    private static final Duration PATIENCE = Duration.ofSeconds(150);
    private static final ThreadMXBean THREADS =
            (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final long seed = Long.getLong("jccl.seed", System.nanoTime());

    @TempDir Path folder = Path.of("");

    private void seeded(String what, int ranks) {
        System.out.println(
                "ExpertDispatchTest." + what + ": " + ranks + " ranks, -Djccl.seed=" + seed);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4})
    void threads(int ranks) {
        seeded("threads", ranks);
        Communicator.runLocal(ranks, c -> ExpertBodies.layers(c, seed, 6));
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 4})
    void processes(int ranks) {
        seeded("processes", ranks);
        String job = Workers.newJobId();
        try (Workers workers = new Workers(ranks, job, List.of(), Map.of())) {
            workers.startAll(
                    ParallelWorker.class, "experts", Long.toString(seed), "100", "host");
            for (Worker worker : workers.all()) {
                worker.await("OK", PATIENCE);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }

    @ParameterizedTest
    @CsvSource({"OPEN_MPI, 2", "MPICH, 3"})
    void mpi(MpiLauncher launcher, int ranks) throws IOException {
        launcher.assume();
        seeded(launcher.name(), ranks);
        String out = folder.resolve("out").toString();
        Worker job =
                launcher.start(
                        ranks,
                        List.of(),
                        ParallelWorker.class,
                        "experts",
                        Long.toString(seed),
                        "100",
                        "mpi",
                        out);
        int exit;
        try {
            exit = job.join(PATIENCE);
        } finally {
            job.kill();
        }
        for (int rank = 0; rank < ranks; rank++) {
            List<String> lines = Files.readAllLines(Path.of(out + "." + rank));
            assertTrue(
                    lines.contains("OK") && lines.getLast().equals("CLOSED"),
                    () -> lines + "\n" + job.lines());
        }
        assertEquals(0, exit, () -> String.join("\n", job.lines()));
    }

    /** Without a capacity no token is in another's way, so the spread over ranks does not matter. */
    @Test
    void droplessResultsAreTheSameBitByBitOnAnyNumberOfRanks() {
        seeded("dropless", 4);
        int tokens = 96;
        RouterOptions router =
                new RouterOptions(
                        8, tokens, new TokenChoice(2, true), 1, Overflow.NONE, false);
        ExpertOptions options = ExpertOptions.of(router, 33);
        float[][] found = new float[5][];
        for (int ranks : new int[] {1, 2, 4}) {
            float[] all = new float[2 * tokens * 33];
            found[ranks] = all;
            Communicator.runLocal(
                    ranks,
                    c -> {
                        Random random = new Random(seed);
                        int share = tokens / ranks;
                        try (Buffer logits = floats(tokens * 8, random);
                                Buffer x = floats(tokens * 33, random);
                                Buffer g = floats(tokens * 33, random);
                                Buffer y = floats(share * 33, random);
                                ExpertDispatch layer = ExpertDispatch.create(c, options)) {
                            int from = c.rank() * share;
                            layer.route(logits.slice(from * 8L, share * 8L), share);
                            layer.dispatch(x.slice(from * 33L, share * 33L));
                            pass(c, layer, layer.inputs(), layer.outputs());
                            layer.combine(y);
                            for (int i = 0; i < share * 33; i++) {
                                all[from * 33 + i] = (float) y.get(i);
                            }
                            layer.combineBackward(g.slice(from * 33L, share * 33L));
                            pass(c, layer, layer.outputGradients(), layer.inputGradients());
                            layer.dispatchBackward(y);
                            for (int i = 0; i < share * 33; i++) {
                                all[(tokens + from) * 33 + i] = (float) y.get(i);
                            }
                        }
                    });
        }
        org.junit.jupiter.api.Assertions.assertArrayEquals(found[1], found[2]);
        org.junit.jupiter.api.Assertions.assertArrayEquals(found[1], found[4]);
    }

    private static Buffer floats(int count, Random random) {
        Buffer b = Device.host().allocate(DataType.FLOAT32, count);
        for (int i = 0; i < count; i++) {
            b.set(i, random.nextGaussian());
        }
        return b;
    }

    private static void pass(Communicator c, ExpertDispatch layer, Buffer from, Buffer to) {
        long features = from.count() / layer.maxRows();
        for (int l = 0; l < layer.localExperts(); l++) {
            int e = c.rank() * layer.localExperts() + l;
            long end = (layer.firstRow(l) + layer.rowCount(l)) * features;
            for (long i = layer.firstRow(l) * features; i < end; i++) {
                to.set(i, from.get(i) * (e + 1));
            }
        }
    }

    @ParameterizedTest
    @CsvSource({"1, true", "2, false", "2, true"})
    void aStepAllocatesNothing(int ranks, boolean priority) {
        long[] least = new long[ranks];
        Communicator.runLocal(
                ranks,
                c -> {
                    RouterOptions router =
                            RouterOptions.top2(4, 64)
                                    .withBatchPriority(priority)
                                    .withOverflow(
                                            priority ? Overflow.NEXT_BEST : Overflow.NONE);
                    ExpertOptions options =
                            ExpertOptions.of(router, 48).withFixedBlocks(priority);
                    try (ExpertDispatch layer = ExpertDispatch.create(c, options);
                            Buffer logits = floats(64 * 4, new Random(c.rank()));
                            Buffer dlogits = floats(64 * 4, new Random(1));
                            Buffer x = floats(64 * 48, new Random(1));
                            Buffer y = floats(64 * 48, new Random(2))) {
                        least[c.rank()] = Long.MAX_VALUE;
                        // Until the compilers are done, in as many rounds on all ranks.
                        for (int round = 0; round < 60; round++) {
                            long before = THREADS.getCurrentThreadAllocatedBytes();
                            double sum = 0;
                            for (int i = 0; i < 50; i++) {
                                layer.route(logits, 64);
                                layer.dispatch(x);
                                layer.combine(y);
                                layer.combineBackward(x);
                                layer.dispatchBackward(y);
                                layer.routeBackward(dlogits, 0.01, 0.001);
                                sum += layer.statistics().entropy() + layer.router().zLoss();
                            }
                            long bytes = THREADS.getCurrentThreadAllocatedBytes() - before;
                            assertTrue(sum > 0);
                            least[c.rank()] = Math.min(least[c.rank()], bytes / 50);
                        }
                    }
                });
        for (long bytes : least) {
            assertEquals(0, bytes, "bytes per step");
        }
    }
}
