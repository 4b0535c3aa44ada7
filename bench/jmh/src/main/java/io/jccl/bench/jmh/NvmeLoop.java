package io.jccl.bench.jmh;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.nvme.IoTicket;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import io.jccl.offload.nvme.Region;
import io.jccl.train.Owned;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/**
 * {@code jccl nvme-loop}: writes a region of the NVMe tier, commits and reads it, for each depth.
 * Used by {@code bench/peers/nvme}, which runs dd and fio on the same file.
 */
@Command(
        name = "nvme-loop",
        mixinStandardHelpOptions = true,
        description = "Times writes and reads of the NVMe tier.")
final class NvmeLoop implements Callable<Integer> {
    private static final Duration PATIENCE = Duration.ofMinutes(5);
    private static final int SLOTS = 4;

    @Option(names = "--bytes", defaultValue = "536870912", description = "of the region")
    private long bytes;

    @Option(names = "--block", defaultValue = "1048576", description = "bytes of a block")
    private int block;

    @Option(names = "--depth", defaultValue = "8", description = "blocks in flight")
    private int depth;

    @Option(names = "--slot", defaultValue = "33554432", description = "bytes of a pinned slot")
    private int slot;

    @Option(names = "--rounds", defaultValue = "1", description = "writes and reads of it all")
    private int rounds;

    @Parameters(paramLabel = "FOLDER", arity = "1", description = "on the drive")
    private @Nullable Path folder;

    @Spec private CommandSpec spec = CommandSpec.create();

    @Override
    public Integer call() {
        Path where = folder;
        if (where == null) {
            throw new IllegalStateException("not run by picocli");
        }
        PrintWriter out = spec.commandLine().getOut();
        Budgets budgets = new Budgets(Map.of());
        NvmeOptions options = NvmeOptions.DEFAULT.withBlockBytes(block).withQueueDepth(depth);
        try (BufferPool pool =
                        BufferPool.pinned(
                                Device.host(), budgets, PoolOptions.DEFAULT.withAlignment(4096));
                Owned owned = new Owned();
                NvmeStore store = NvmeStore.open(where, budgets, options)) {
            if (store.bufferedBecause() != null) {
                throw new IllegalStateException("no O_DIRECT: " + store.bufferedBecause());
            }
            Region region = store.region("loop", DataType.UINT8, bytes);
            Buffer[] slots = new Buffer[SLOTS];
            for (int i = 0; i < SLOTS; i++) {
                slots[i] = owned.add(pool.allocate(DataType.UINT8, slot));
                for (int k = 0; k < slot; k++) {
                    slots[i].setLong(k, (k >>> 8) * 31 + k + i);
                }
            }
            for (int r = 0; r < rounds; r++) {
                double write = pass(store, region, slots, true);
                long began = System.nanoTime();
                store.commit(store.committedStep().orElse(0) + 1);
                double commit = (System.nanoTime() - began) / 1e9;
                double read = pass(store, region, slots, false);
                out.printf(
                        Locale.ROOT,
                        "write %.1f MB/s, commit %.4f s, read %.1f MB/s%n",
                        bytes / write / 1e6,
                        commit,
                        bytes / read / 1e6);
                out.flush();
            }
        }
        return 0;
    }

    /** Seconds for the whole region, which passes through the slots in turn. */
    private double pass(NvmeStore store, Region region, Buffer[] slots, boolean write) {
        IoTicket[] tickets = new IoTicket[SLOTS];
        long began = System.nanoTime();
        int turn = 0;
        for (long at = 0; at < bytes; at += slot, turn = (turn + 1) % SLOTS) {
            finish(tickets[turn]);
            Buffer b = slots[turn].slice(0, Math.min(slot, bytes - at));
            tickets[turn] = write ? store.write(region, at, b) : store.read(region, at, b);
        }
        for (IoTicket t : tickets) {
            finish(t);
        }
        return (System.nanoTime() - began) / 1e9;
    }

    private static void finish(@Nullable IoTicket t) {
        if (t != null) {
            t.await(PATIENCE);
            t.close();
        }
    }
}
