package io.jccl.bench.probe;

import io.jccl.bench.BandwidthCase;
import io.jccl.cli.doctor.Hardware;
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
        for (WorkingSets.Loop loop : WorkingSets.Loop.values()) {
            Outcome none = Outcome.lacking("no kernels on this device yet");
            rows.add(row(loop.toString(), sizes.getLast(), 1, "device", none, 0));
        }
        int rest = sizes.size();
        CopyProbe copies = new CopyProbe(List.of(config.device()));
        for (long size : sizes) {
            progress.accept("device memory, copy of " + size + " bytes");
            // One half is copied to the other: each byte is read or written once.
            long half = Math.max(1, size / 2);
            for (ProbeResult.Copy c :
                    copies.measure(BandwidthCase.LOCAL, half, budget.share(rest--))) {
                rows.add(
                        new ProbeResult.Access(
                                "copy", size, 1, "device", c.outcome(), c.gigabytesPerSecond()));
            }
        }
        return rows;
    }
}
