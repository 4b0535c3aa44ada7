package io.jccl.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.testfake.FakeBuild;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIf;
import org.junit.jupiter.api.io.TempDir;

/** Tasks to which Spark assigns GPUs, on the C fakes of NCCL and the CUDA runtime. */
@Tag("exhaustive")
@Timeout(value = 5, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
@DisabledIf(value = Cluster.CANNOT_START, disabledReason = "Spark does not start on this JDK")
class GpuTest {
    private static final int RANKS = 2;

    @Test
    void assignedGpusTalkByNccl(@TempDir Path folder) throws Exception {
        Path fakes = FakeBuild.home();

        // Each worker asks it once: the first gets GPU 0, the second GPU 1.
        Path discovery = folder.resolve("gpus");
        Files.writeString(
                discovery,
                "#!/bin/sh\nif mkdir "
                        + folder.resolve("first")
                        + "; then n=0; else n=1; fi 2>/dev/null\n"
                        + "echo '{\"name\": \"gpu\", \"addresses\": [\"'$n'\"]}'\n");
        assertTrue(discovery.toFile().setExecutable(true));
        Map<String, String> settings =
                Map.of(
                        "spark.worker.resource.gpu.amount",
                        "1",
                        "spark.worker.resource.gpu.discoveryScript",
                        discovery.toString(),
                        "spark.executor.resource.gpu.amount",
                        "1",
                        "spark.task.resource.gpu.amount",
                        "1",
                        "spark.executorEnv.NCCL_HOME",
                        fakes.toString(),
                        "spark.executorEnv.CUDA_HOME",
                        fakes.toString());
        try (Cluster cluster = new Cluster("local-cluster[2,1,1024]", settings)) {
            Cluster.await(
                    () -> cluster.spark.sc().getExecutorMemoryStatus().size() > RANKS,
                    "two executors");
            List<String> said = cluster.run(RANKS, (context, rows) -> sum(context));
            assertEquals(List.of("cuda:0", "cuda:1"), said.stream().sorted().toList());

            SparkException e =
                    assertThrows(
                            SparkException.class,
                            () ->
                                    cluster.run(
                                            RANKS,
                                            (context, rows) -> {
                                                if (context.partitionId() == 1) {
                                                    sum(context);
                                                    throw new IllegalStateException("on purpose");
                                                }
                                                Communicator comm = SparkCommunicator.join(context);
                                                sum(comm);
                                                return sum(comm); // rank 1 is gone
                                            }));
            assertTrue(String.valueOf(e.getMessage()).contains("on purpose"), e::getMessage);
            assertEquals(2, cluster.run(RANKS, (context, rows) -> sum(context)).size());
            assertEquals(List.of("[]", "[]"), lingering(cluster));
        }
    }

    /** Threads of stores and guards; those of the engine itself may stay for a while. */
    private static List<String> lingering(Cluster cluster) {
        return cluster.threads(RANKS, "jccl-s");
    }

    private static String sum(BarrierTaskContext context) {
        return sum(SparkCommunicator.join(context));
    }

    private static String sum(Communicator comm) {
        assertEquals("nccl", comm.engine());
        int count = 1 << 20;
        try (var stream = comm.device().newStream();
                var mine = Device.host().allocate(DataType.FLOAT32, count);
                var buffer = comm.device().allocate(DataType.FLOAT32, count)) {
            for (int i = 0; i < count; i++) {
                mine.set(i, i % 777 + comm.rank());
            }
            stream.copy(mine, buffer);
            comm.allReduce(buffer, ReduceOp.SUM, stream);
            stream.copy(buffer, mine);
            stream.synchronize();
            for (int i = 0; i < count; i++) {
                assertEquals(2 * (i % 777) + 1, mine.get(i));
            }
        }
        return comm.device().toString();
    }
}
