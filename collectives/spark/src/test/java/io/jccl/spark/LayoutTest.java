package io.jccl.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.DataType;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIf;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import snippets.OnSpark;

/** Several tasks in one JVM: they are ranks of their own as any others are. */
@Timeout(value = 5, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
@DisabledIf(value = Cluster.CANNOT_START, disabledReason = "Spark does not start on this JDK")
class LayoutTest {
    @ParameterizedTest
    @CsvSource({"local[3], 3, 1"})
    void tasksOfOneJvm(String master, int ranks, int processes) {
        try (Cluster cluster = new Cluster(master)) {
            if (processes > 1) {
                Cluster.await(
                        () -> cluster.spark.sc().getExecutorMemoryStatus().size() > processes,
                        "the executors");
            }
            List<String> said = cluster.run(ranks, (context, rows) -> exchange(context));
            assertEquals(processes, said.stream().distinct().count(), said::toString);

            SparkException e =
                    assertThrows(
                            SparkException.class,
                            () ->
                                    cluster.run(
                                            ranks,
                                            (context, rows) -> {
                                                Communicator comm = SparkCommunicator.join(context);
                                                if (comm.rank() == ranks - 1) {
                                                    throw new IllegalStateException("on purpose");
                                                }
                                                return "" + LocalClusterTest.sum(comm, 1);
                                            }));
            assertTrue(String.valueOf(e.getMessage()).contains("on purpose"), e::getMessage);

            // And again, in the same JVMs.
            cluster.run(ranks, (context, rows) -> exchange(context));
            assertEquals(Collections.nCopies(ranks, "[]"), cluster.threads(ranks));
        }
        assertEquals(List.of(), Cluster.leftovers());
    }

    @Test
    void theExampleOfTheJavadoc() {
        try (Cluster cluster = new Cluster("local[2]")) {
            assertEquals(List.of(1.5, 1.5), OnSpark.average(cluster.spark));
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"'local-cluster[2,2,1024]', 4, 2"})
    void tasksOfTwoJvms(String master, int ranks, int processes) {
        tasksOfOneJvm(master, ranks, processes);
    }

    /** Sums, a message round the ring, and communicators of odd and even ranks. */
    private static String exchange(BarrierTaskContext context) {
        Communicator comm = SparkCommunicator.join(context);
        int n = comm.size();
        assertEquals(n * (n + 1) / 2.0, LocalClusterTest.sum(comm, comm.rank() + 1));
        var stream = comm.device().defaultStream();
        int count = 300_000;
        try (var all = comm.device().allocate(DataType.INT32, (long) n * count);
                var mine = comm.device().allocate(DataType.INT32, count)) {
            for (int i = 0; i < count; i++) {
                mine.set(i, comm.rank() * count + i);
            }
            comm.allGather(mine, all, stream);
            for (int i = 0; i < n * count; i++) {
                assertEquals(i, all.get(i));
            }
        }
        Communicator half = comm.split(comm.rank() % 2, 0);
        if (half == null) {
            throw new AssertionError("no communicator of colour " + comm.rank() % 2);
        }
        SparkCommunicator.tie(context, half);
        assertEquals(half.size(), LocalClusterTest.sum(half, 1));
        return Long.toString(ProcessHandle.current().pid());
    }
}
