package io.jccl.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.ExecutorLostFailure;
import org.apache.spark.SparkException;
import org.apache.spark.TaskKilled;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaRDD;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIf;
import org.junit.jupiter.api.io.TempDir;

/** A real cluster of this machine: two workers, each with an executor of its own with one core. */
@Tag("exhaustive")
@Timeout(value = 5, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
@DisabledIf(value = Cluster.CANNOT_START, disabledReason = "Spark does not start on this JDK")
class LocalClusterTest {
    private static final int RANKS = 2;
    private static Cluster cluster;

    @BeforeAll
    static void start() {
        cluster = new Cluster("local-cluster[2,1,1024]");
        // Spark starts a barrier stage only when there are slots for all its tasks.
        Cluster.await(
                () -> cluster.spark.sc().getExecutorMemoryStatus().size() > RANKS, "two executors");
    }

    @AfterAll
    static void stop() {
        try (Cluster last = cluster) {
            assertEquals(List.of("[]", "[]"), last.threads(RANKS));
        }
        assertEquals(List.of(), Cluster.leftovers());
    }

    @Test
    void sumsOfRealSizes() {
        List<String> said = cluster.run(RANKS, (context, rows) -> sums(context));
        assertEquals(RANKS, Set.copyOf(said).size(), () -> said + " are not of two processes");
        assertTrue(said.stream().allMatch(s -> s.startsWith("host/processes ")), said::toString);
    }

    /** Sums and averages of patterns that are exact in float32; returns engine and process. */
    private static String sums(BarrierTaskContext context) {
        Communicator comm = SparkCommunicator.join(context);
        assertEquals(context.partitionId(), comm.rank());
        assertEquals(RANKS, comm.size());
        var stream = comm.device().defaultStream();
        for (int count : new int[] {1, 1023, 1 << 16, (1 << 20) + 1, 4 << 20}) {
            try (var send = comm.device().allocate(DataType.FLOAT32, count);
                    var recv = comm.device().allocate(DataType.FLOAT32, count)) {
                for (int i = 0; i < count; i++) {
                    send.set(i, (i % 1000) * (comm.rank() + 1));
                }
                comm.allReduce(send, recv, ReduceOp.SUM, stream);
                for (int i = 0; i < count; i++) {
                    assertEquals(3.0 * (i % 1000), recv.get(i));
                }
                comm.allReduce(send, recv, ReduceOp.AVG, stream);
                for (int i = 0; i < count; i++) {
                    assertEquals(1.5 * (i % 1000), recv.get(i));
                }
            }
        }
        // Left open: the task's end closes it.
        return comm.engine() + " " + ProcessHandle.current().pid();
    }

    @Test
    void trainsAsOneProcessDoes() {
        int examples = 20_000;
        JavaRDD<Integer> rows = cluster.rows(examples, RANKS).cache();
        List<String> weights =
                cluster.run(rows, (context, mine) -> LinearModel.train(context, mine));
        // Both partitions in turn, added in the order in which ranks are: the same sums, bit by
        // bit.
        double[] alone = LinearModel.trainAlone(rows.glom().collect());
        for (String w : weights) {
            assertArrayEquals(alone, Cluster.doubles(w));
        }
        assertArrayEquals(LinearModel.TRUTH, alone, 1e-2);
        rows.unpersist();
    }

    @Test
    void whenATaskFailsTheOthersEndAndTheStageIsTriedAgain() {
        cluster.ends(0);
        List<String> said =
                cluster.runWithRetries(
                        RANKS,
                        (context, rows) -> {
                            // Ten minutes: if rank 0 waited for it, so would this test.
                            Communicator comm = SparkCommunicator.join(context);
                            for (int step = 0; step < 10; step++) {
                                if (step == 5
                                        && comm.rank() == 1
                                        && context.stageAttemptNumber() == 0) {
                                    throw new IllegalStateException("no such example");
                                }
                                sum(comm, 1);
                            }
                            return "attempt " + context.stageAttemptNumber() + ": " + sum(comm, 4);
                        });
        assertEquals(List.of("attempt 1: 8.0", "attempt 1: 8.0"), said);
        List<Cluster.TaskEnd> first =
                cluster.ends(5).stream().filter(end -> end.stageAttempt() == 0).toList();
        String failed = reasonOf(first, 1);
        assertTrue(failed.contains("no such example"), failed);
        String other = reasonOf(first, 0);
        // Whichever is faster: rank 1's abort, or Spark, which kills the rest of the stage.
        assertTrue(
                (other.contains("RankFailedException") && other.contains("no such example"))
                        || other.startsWith("TaskKilled"),
                other);
    }

    @Test
    void whenAWorkerIsKilledTheOthersEndAndTheStageIsTriedAgain() {
        cluster.ends(0);
        List<String> said =
                cluster.runWithRetries(
                        RANKS,
                        (context, rows) -> {
                            Communicator comm = SparkCommunicator.join(context);
                            sum(comm, 1);
                            if (comm.rank() == 1 && context.stageAttemptNumber() == 0) {
                                long pid = ProcessHandle.current().pid();
                                new ProcessBuilder("kill", "-9", Long.toString(pid))
                                        .start()
                                        .waitFor();
                                Thread.sleep(Duration.ofMinutes(1)); // until it arrives
                            }
                            return "attempt "
                                    + (context.stageAttemptNumber() > 0 ? "later" : "first")
                                    + ": "
                                    + sum(comm, 4);
                        });
        assertEquals(List.of("attempt later: 8.0", "attempt later: 8.0"), said);
        List<Cluster.TaskEnd> first =
                cluster.ends(5).stream().filter(end -> end.stageAttempt() == 0).toList();
        assertTrue(
                first.stream()
                        .anyMatch(e ->
                                e.partition() == 1 && e.reason() instanceof ExecutorLostFailure),
                first::toString);
        String other = reasonOf(first, 0);
        assertTrue(
                (other.contains("RankFailedException") && other.contains("died"))
                        || other.startsWith("TaskKilled"),
                other);
    }

    @Test
    void whenTheJobIsCancelledNoTaskStays(@TempDir Path waiting) throws Exception {
        String folder = waiting.toString();
        cluster.ends(0);
        JavaFutureAction<List<String>> job =
                SparkCommunicator.mapPartitions(
                                cluster.rows(RANKS, RANKS),
                                (context, rows) -> {
                                    Communicator comm = SparkCommunicator.join(context);
                                    sum(comm, 1);
                                    Communicator pair = Objects.requireNonNull(comm.split(0, 0));
                                    Files.createFile(Path.of(folder, "" + comm.rank()));
                                    // Rank 1 waits for a message, rank 0 for rank 1: for ever.
                                    if (comm.rank() == 1) {
                                        try (var none = comm.device().allocate(DataType.INT8, 1)) {
                                            comm.recv(none, 0, comm.device().defaultStream());
                                        }
                                    }
                                    return List.of("" + sum(pair, 1)).iterator();
                                })
                        .collectAsync();
        Cluster.await(
                () -> Files.exists(waiting.resolve("0")) && Files.exists(waiting.resolve("1")),
                "both tasks to wait");
        job.cancel(true);
        assertThrows(CancellationException.class, () -> job.get(1, TimeUnit.MINUTES));
        // An executor has one core, so these run when the tasks have ended, not before.
        assertEquals(RANKS, cluster.run(RANKS, (context, rows) -> "").size());
        for (Cluster.TaskEnd end : cluster.ends(2 * RANKS)) {
            assertTrue(!(end.reason() instanceof ExceptionFailure), end::toString);
        }
    }

    /** What is left open would keep its memory and a thread. */
    @Test
    void whatWasMadeFromACommunicatorEndsWithTheTaskToo() {
        List<String> said =
                cluster.run(
                        RANKS,
                        (context, rows) -> {
                            Communicator comm = SparkCommunicator.join(context);
                            try (Communicator pair = Objects.requireNonNull(comm.split(0, 0))) {
                                return "" + sum(pair.shrink(List.of(), false), 1);
                            }
                        });
        assertEquals(List.of("2.0", "2.0"), said);
        assertEquals(List.of("[]", "[]"), cluster.threads(RANKS));
    }

    /** Spark kills it, since that ends its wait, for the same reason. */
    @Test
    void aTaskThatCatchesTheTimeoutOfItsJoinEndsForThatReason() {
        SparkException e =
                assertThrows(
                        SparkException.class,
                        () ->
                                cluster.run(
                                        RANKS,
                                        (context, rows) -> {
                                            try {
                                                joinAlone(context);
                                            } catch (CollectiveTimeoutException late) {
                                                return "without";
                                            }
                                            return "";
                                        }));
        String message = String.valueOf(e.getMessage());
        assertTrue(message.contains("TaskKilled (rank 0 of 2 (task 0 of stage "), message);
        assertTrue(message.contains("waited PT3S for the other tasks to join"), message);
    }

    /** Rank 1 does not join; Spark itself needs a second for a join. */
    private static void joinAlone(BarrierTaskContext context) throws InterruptedException {
        if (context.partitionId() == 0) {
            join(context, Duration.ofSeconds(1));
        } else {
            Thread.sleep(Duration.ofSeconds(5));
        }
    }

    @Test
    void whoWaitsForATaskThatDoesNotJoinGivesUp() {
        SparkException e =
                assertThrows(
                        SparkException.class,
                        () ->
                                cluster.run(
                                        RANKS,
                                        (context, rows) -> {
                                            joinAlone(context);
                                            return "";
                                        }));
        assertTrue(
                String.valueOf(e.getMessage())
                        .contains("CollectiveTimeoutException: rank 0 of 2 (task 0 of stage "),
                e::getMessage);
        assertTrue(
                String.valueOf(e.getMessage()).contains("waited PT3S for the other tasks to join"),
                e::getMessage);
    }

    @Test
    void tasksThatShareNoMemoryAreRefused() {
        SparkException e =
                assertThrows(
                        SparkException.class,
                        () ->
                                cluster.run(
                                        RANKS,
                                        (context, rows) -> {
                                            String folder =
                                                    context.partitionId() == 0
                                                            ? "/dev/shm"
                                                            : "/tmp";
                                            System.setProperty("jccl.shm.dir", folder);
                                            try {
                                                join(context, Duration.ofMinutes(1));
                                            } finally {
                                                System.clearProperty("jccl.shm.dir");
                                            }
                                            return "";
                                        }));
        assertTrue(
                String.valueOf(e.getMessage())
                        .contains(
                                "the tasks run in 2 places without common shared memory, by rank [[0], [1]]"),
                e::getMessage);
    }

    @Test
    void aTaskJoinsAsOftenAsItLikes() {
        List<String> said =
                cluster.run(
                        RANKS,
                        (context, rows) -> {
                            StringBuilder sums = new StringBuilder();
                            for (int i = 1; i <= 3; i++) {
                                try (Communicator comm = join(context, Duration.ofMinutes(1))) {
                                    sums.append(sum(comm, i)).append(' ');
                                }
                            }
                            return sums.toString();
                        });
        assertEquals(List.of("2.0 4.0 6.0 ", "2.0 4.0 6.0 "), said);
    }

    private static Communicator join(BarrierTaskContext context, Duration timeout) {
        return SparkCommunicator.join(context, CommunicatorOptions.DEFAULT.withTimeout(timeout));
    }

    /** The sum over ranks of one value. */
    static double sum(Communicator comm, double value) {
        try (var buffer = comm.device().allocate(DataType.FLOAT64, 100_000)) {
            for (int i = 0; i < buffer.count(); i++) {
                buffer.set(i, value);
            }
            comm.allReduce(buffer, ReduceOp.SUM, comm.device().defaultStream());
            return buffer.get(buffer.count() - 1);
        }
    }

    private static String reasonOf(List<Cluster.TaskEnd> ends, int partition) {
        return ends.stream()
                .filter(end -> end.partition() == partition)
                .map(end ->
                        end.reason() instanceof TaskKilled k
                                ? "TaskKilled: " + k.reason()
                                : end.reason().toString())
                .collect(Collectors.joining("; "));
    }
}
