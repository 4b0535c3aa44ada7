package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.format;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Protocol;
import io.jccl.topology.cost.Tuning;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * The subsets of a machine's GPUs with the highest predicted bandwidth.
 *
 * @param ties the best ones, as ids of GPUs; more than one if they are equal
 * @param gbps their predicted bus bandwidth for very large sizes
 * @param tried how many subsets there are
 * @param worst one with the lowest bandwidth
 * @param worstGbps its bandwidth; 0 if nothing joins its GPUs
 */
record BestGpus(
        List<List<Integer>> ties, double gbps, int tried, List<Integer> worst, double worstGbps) {
    /** Most subsets that are tried; each takes some milliseconds. */
    private static final int MOST = 2000;

    /**
     * Tries all subsets of a size.
     *
     * @param gpus ids of the GPUs to choose from
     * @param count how many to choose
     * @param algorithms those that may be used
     * @param protocols those that may be used
     */
    static BestGpus of(
            Topology t,
            List<Integer> gpus,
            int count,
            Operation op,
            Set<Algorithm> algorithms,
            Set<Protocol> protocols) {
        if (count < 2 || count > gpus.size()) {
            throw new IllegalArgumentException(
                    "--best is " + count + ", expected 2 to " + gpus.size() + " GPUs");
        }
        double subsets = 1;
        for (int i = 0; i < count; i++) {
            subsets = subsets * (gpus.size() - i) / (i + 1);
        }
        if (subsets > MOST) {
            throw new IllegalArgumentException(
                    format(
                            "--best %d of %d GPUs has %.0f subsets, and at most %d are tried: name"
                                    + " fewer GPUs with --gpus",
                            count, gpus.size(), subsets, MOST));
        }
        List<List<Integer>> all = new ArrayList<>();
        subsets(gpus, count, 0, new ArrayList<>(), all);
        List<List<Integer>> ties = new ArrayList<>();
        double best = -1;
        String reason = "";
        List<Integer> worst = all.getFirst();
        double least = Double.POSITIVE_INFINITY;
        for (List<Integer> subset : all) {
            double gbps = 0;
            try {
                Tuning tuning = CostModel.nccl().tune(t, subset, op).only(algorithms, protocols);
                gbps = tuning.bounds().getFirst().busbwGBps();
            } catch (IllegalArgumentException e) {
                // Nothing joins these GPUs, or none of the algorithms can use what does.
                reason = String.valueOf(e.getMessage());
            }
            if (gbps > best * (1 + 1e-6)) {
                best = gbps;
                ties.clear();
            }
            if (gbps >= best * (1 - 1e-6)) {
                ties.add(subset);
            }
            if (gbps < least) {
                least = gbps;
                worst = subset;
            }
        }
        if (best <= 0) {
            throw new IllegalArgumentException("--best finds no " + count + " GPUs: " + reason);
        }
        return new BestGpus(List.copyOf(ties), best, all.size(), worst, least);
    }

    private static void subsets(
            List<Integer> gpus,
            int count,
            int from,
            List<Integer> chosen,
            List<List<Integer>> all) {
        if (chosen.size() == count) {
            all.add(List.copyOf(chosen));
            return;
        }
        for (int i = from; i <= gpus.size() - (count - chosen.size()); i++) {
            chosen.add(gpus.get(i));
            subsets(gpus, count, i + 1, chosen, all);
            chosen.removeLast();
        }
    }
}
