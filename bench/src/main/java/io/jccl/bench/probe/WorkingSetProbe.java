package io.jccl.bench.probe;

import io.jccl.bench.BandwidthCase;
import io.jccl.cli.doctor.Hardware;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** Memory bandwidth by working set. */
final class WorkingSetProbe {
    private static final long SMALLEST = 16 << 10;
    private static final int FACTOR = 4;

    /** Share of the time for compilation, per loop, with one thread and with all. */
    private static final double COMPILE_SHARE = 0.04;

    private final ProbeConfig config;
    private final Hardware machine;
    private final long room;
    private final Consumer<String> progress;

    WorkingSetProbe(ProbeConfig config, Hardware machine, long room, Consumer<String> progress) {
        this.config = config;
        this.machine = machine;
        this.room = room;
        this.progress = progress;
    }

    List<ProbeResult.Access> run(Budget budget) {
        List<Long> sizes = new ArrayList<>();
        for (long s = Math.min(SMALLEST, config.maxBytes()); s <= largest(); s *= FACTOR) {
            sizes.add(s);
        }
        return config.cuda() ? device(sizes, budget) : host(sizes, budget);
    }

    /** Arrays are on the heap, since the JIT vectorizes loops over these. */
    private long largest() {
        long heap = config.cuda() ? Long.MAX_VALUE : Runtime.getRuntime().maxMemory() / 2;
        return Math.min(config.maxBytes(), Math.min(room, heap));
    }

    private List<ProbeResult.Access> host(List<Long> sizes, Budget budget) {
        List<ProbeResult.Access> rows = new ArrayList<>();
        List<Integer> teams = config.threads() == 1 ? List.of(1) : List.of(1, config.threads());
        int rest = teams.size() * sizes.size() * WorkingSets.Loop.values().length;
        for (int threads : teams) {
            for (WorkingSets.Loop loop : WorkingSets.Loop.values()) {
                progress.accept("memory " + loop + ", compiling");
                try (WorkingSets small = new WorkingSets(loop, sizes.getFirst(), threads)) {
                    Meter.compile(small::run, budget.left() * COMPILE_SHARE);
                }
                for (long size : sizes) {
                    progress.accept("memory " + loop + " of " + size + " bytes");
                    try (WorkingSets sets = new WorkingSets(loop, size, threads)) {
                        Timing timing = Meter.measure(sets::run, budget.share(rest--));
                        String wrong = sets.wrong();
                        rows.add(
                                row(
                                        loop.toString(),
                                        size,
                                        threads,
                                        level(size, threads),
                                        wrong == null
                                                ? Outcome.measured(timing)
                                                : Outcome.wrong(wrong),
                                        sets.bytes()));
                    }
                }
            }
        }
        return rows;
    }

    private static ProbeResult.Access row(
            String access, long size, int threads, String level, Outcome outcome, long moved) {
        return new ProbeResult.Access(
                access, size, threads, level, outcome, outcome.rate(moved / 1e9));
    }

    /** The nearest level of memory that holds one thread's share. */
    private String level(long bytes, int threads) {
        if (config.cuda()) {
            return bytes <= Cuda.info(config.device()).l2Bytes() ? "L2" : "device";
        }
        for (Hardware.Cache cache : machine.caches()) {
            // The last level is shared by all threads of its list; others belong to a core.
            long share = cache.level() < 3 ? bytes / threads : bytes;
            if (cache.holdsData() && share <= cache.bytes()) {
                return "L" + cache.level();
            }
        }
        return "RAM";
    }

    private List<ProbeResult.Access> device(List<Long> sizes, Budget budget) {
        List<ProbeResult.Access> rows = new ArrayList<>();
        int rest = (WorkingSets.Loop.values().length + 1) * sizes.size();
        for (WorkingSets.Loop loop : WorkingSets.Loop.values()) {
            for (long size : sizes) {
                progress.accept("device memory, " + loop + " of " + size + " bytes");
                rows.add(kernel(loop, size, budget.share(rest--)));
            }
        }
        CopyProbe copies = new CopyProbe(List.of(config.device()));
        for (long size : sizes) {
            progress.accept("device memory, copy of " + size + " bytes");
            // One half is copied to the other: each byte is read or written once.
            long half = Math.max(1, size / 2);
            for (ProbeResult.Copy c :
                    copies.measure(BandwidthCase.LOCAL, half, budget.share(rest--))) {
                rows.add(
                        new ProbeResult.Access(
                                "copy",
                                size,
                                1,
                                level(size, 1),
                                c.outcome(),
                                c.gigabytesPerSecond()));
            }
        }
        return rows;
    }

    /**
     * Measures an operation of {@link Compute} that moves each byte of the working set once: a sum
     * of squares reads, a fill writes, and {@code c = a + b} has the accesses of a triad.
     */
    private ProbeResult.Access kernel(WorkingSets.Loop loop, long size, double share) {
        Device gpu = config.device();
        int buffers = loop == WorkingSets.Loop.TRIAD ? 3 : 1;
        long count = Math.max(1, size / buffers / Float.BYTES);
        long others = buffers == 1 ? 0 : count;
        Outcome outcome;
        try (Compute compute = Compute.of(gpu);
                Stream stream = gpu.newStream();
                Buffer a = gpu.allocate(DataType.FLOAT32, count);
                Buffer b = gpu.allocate(DataType.FLOAT32, others);
                Buffer c = gpu.allocate(DataType.FLOAT32, others);
                Buffer norm = gpu.allocate(DataType.FLOAT64, Compute.NORM_COUNT)) {
            compute.fill(a, 1, stream);
            compute.fill(b, 2, stream);
            Runnable once =
                    switch (loop) {
                        case READ -> () -> compute.sumOfSquares(a, norm, false, stream);
                        case WRITE -> () -> compute.fill(a, 4, stream);
                        case TRIAD -> () -> compute.add(a, b, c, stream);
                    };
            Timing timing = Meter.measure(Meter.Work.enqueued(once, stream), share);
            double found =
                    switch (loop) {
                        case READ -> norm.get(0);
                        case WRITE -> a.get(count - 1);
                        case TRIAD -> c.get(count - 1);
                    };
            double expected =
                    switch (loop) {
                        case READ -> count;
                        case WRITE -> 4;
                        case TRIAD -> 3;
                    };
            outcome =
                    found == expected
                            ? Outcome.measured(timing)
                            : Outcome.wrong(loop + " gave " + found + ", expected " + expected);
        } catch (UnsupportedOperationException e) {
            outcome = Outcome.lacking(e); // the CUDA runtime cannot load kernels
        }
        long moved = buffers * count * Float.BYTES;
        return row(loop.toString(), size, 1, level(size, 1), outcome, moved);
    }
}
