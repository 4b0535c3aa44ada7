package io.jccl.offload.nvme;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.PoolOptions;
import io.jccl.testkit.AllocationRounds;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** No read or write allocates on the Java heap, on the caller or on the store's threads. */
class NvmeAllocationTest {
    @TempDir private Path folder;

    /** In place, and copied since the address is not a multiple of the alignment. */
    @ParameterizedTest
    @ValueSource(ints = {16})
    void allocatesNothing(int offset) {
        Budgets budgets = new Budgets(Map.of());
        NvmeOptions options =
                NvmeOptions.DEFAULT.withBlockBytes(4096).withQueueDepth(2).withScratch(true);
        try (BufferPool pool =
                        BufferPool.pinned(
                                Device.host(), budgets, PoolOptions.DEFAULT.withAlignment(4096));
                NvmeStore store = NvmeStore.open(folder, budgets, options);
                Buffer whole = pool.allocate(DataType.FLOAT32, 4096);
                Buffer buffer = whole.slice(offset, 2048)) {
            Region region = store.region("r", DataType.FLOAT32, 2048);
            // One object of 16 bytes in every 32nd step would fail; what the JVM itself allocates
            // now and then on a thread does not.
            AllocationRounds rounds =
                    new AllocationRounds(1, 0.5, t -> t.getName().startsWith("jccl-nvme-"));
            long[] steps = new long[1];
            rounds.repeat(
                    0,
                    1000,
                    () -> {
                        writeAndRead(store, region, buffer);
                        steps[0]++;
                    });
            rounds.assertNone();
            assertEquals(offset == 0 ? 0L : 4L * steps[0], store.stats().copiedBlocks());
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0})
    void allocatesNothingInMoreCases(int offset) {
        allocatesNothing(offset);
    }

    private static void writeAndRead(NvmeStore store, Region region, Buffer buffer) {
        try (IoTicket t = store.write(region, 0, buffer)) {
            t.await(NvmeStoreTest.WAIT);
        }
        try (IoTicket t = store.read(region, 0, buffer)) {
            t.await(NvmeStoreTest.WAIT);
        }
    }
}
