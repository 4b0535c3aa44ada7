package io.jccl.bench;

import static io.jccl.cli.shell.Text.format;

import io.jccl.bench.Report.RankInfo;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Collects, on rank 0 while a table is measured, reasons why its times may be wrong: ranks that
 * share cores, other programs, a hypervisor, batches that differ.
 */
final class Doubts {
    /** Cores that others may keep busy in addition to those that the ranks leave free. */
    private static final double OTHERS = 0.2;

    private static final double STOLEN = 0.05;

    /** Part of the measurements that may have such a spread. */
    private static final double SPREAD_ROWS = 0.25;

    /** Shorter runs cannot be judged in hundredths of a second. */
    private static final double SECONDS = 0.2;

    private final MachineLoad load;
    private final BitSet cpus = new BitSet();
    private final int ranks;
    private final int cores;
    private final boolean host;
    private final MachineLoad.Use before;
    private final double averageBefore;
    private int measured;
    private int spread;

    /**
     * Starts to observe.
     *
     * @param infos all ranks, that of this machine first
     * @param host whether CPUs move the data
     */
    Doubts(MachineLoad load, List<RankInfo> infos, boolean host) {
        this.load = load;
        this.host = host;
        List<RankInfo> here =
                infos.stream().filter(r -> r.host().equals(infos.getFirst().host())).toList();
        ranks = here.size();
        boolean known = true;
        int quota = Integer.MAX_VALUE;
        for (RankInfo r : here) {
            BitSet own = MachineLoad.cpus(r.cpus());
            known &= !own.isEmpty();
            cpus.or(own);
            // A quota shows as fewer processors than are in the mask, and limits all ranks
            // together.
            if (own.isEmpty() || r.processors() < own.cardinality()) {
                quota = Math.min(quota, r.processors());
            }
        }
        if (!known) {
            cpus.clear();
        }
        cores = known ? Math.min(quota, cpus.cardinality()) : quota;
        before = load.use(cpus);
        averageBefore = load.average();
    }

    void add(Report.Spread batches) {
        measured++;
        if (batches.isWide()) {
            spread++;
        }
    }

    /**
     * Summarizes.
     *
     * @param own CPU seconds of the ranks' processes on this machine since the start
     * @return why times may be wrong, and what to do; null if there is no such reason
     */
    @Nullable String warning(double own) {
        List<String> reasons = new ArrayList<>();
        List<String> remedies = new ArrayList<>();
        if (host && ranks > cores) {
            reasons.add(ranks + " ranks share " + cores + (cores == 1 ? " core" : " cores"));
            remedies.add("start no more ranks than cores");
        }
        String busy = host ? othersBusy(own) : "";
        if (!busy.isEmpty()) {
            reasons.add(busy);
            remedies.add("repeat it when the machine is idle");
        }
        if (spread > SPREAD_ROWS * measured) {
            reasons.add(
                    format(
                            "batches of %d of %d times differ by more than %.0f %%",
                            spread, measured, 100 * Report.Spread.WIDE));
            remedies.add("raise -n");
        }
        return reasons.isEmpty()
                ? null
                : format(
                        "times may be wrong: %s. To be sure, %s",
                        String.join("; ", reasons), String.join(", ", remedies));
    }

    private String othersBusy(double own) {
        MachineLoad.Use use = load.use(cpus).minus(before);
        int all = Math.max(1, cpus.isEmpty() ? cores : cpus.cardinality());
        double seconds = use.all() / all;
        int free = Math.max(0, all - ranks);
        if (seconds < SECONDS) {
            return averageBefore > free + 1
                    ? format("the load average was %.1f before the start", averageBefore)
                    : "";
        }
        if (use.stolen() > STOLEN * use.all()) {
            return format(
                    "the hypervisor took %.0f %% of the CPU time", 100 * use.stolen() / use.all());
        }
        double others = (use.busy() - own) / seconds;
        return others > free + OTHERS
                ? format(
                        "other programs kept %.1f of %d cores busy (load average %.1f)",
                        others, all, load.average())
                : "";
    }
}
