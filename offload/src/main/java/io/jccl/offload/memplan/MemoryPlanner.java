package io.jccl.offload.memplan;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Traffic.Kind;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * Computes what training needs on each tier, what fits, and the largest model that fits.
 *
 * {@snippet class="snippets.Offload" region="plan"}
 *
 * <p>Symbols: P parameters of a rank, d data-parallel ranks, b micro-batch, m micro-batches per
 * step, e bytes per activation; the others as in {@link Model}. {@link Formula} lists the formulas
 * with their sources. Nothing is measured here.
 *
 * <p><b>Threads:</b> any.
 */
public final class MemoryPlanner {
    /** Numbers of pieces per layer that the search tries. */
    private static final int[] PIECES = {1, 2, 4, 8, 16, 32};

    /** How far past the first model that does not fit the search looks, per pipeline stage. */
    private static final int LOOK_AHEAD = 8;

    private MemoryPlanner() {}

    /**
     * What the search may try.
     *
     * @param host whether host memory may be used
     * @param nvme whether drives may be used
     * @param modelParallel whether to try tensor and pipeline parallelism
     */
    public record Space(boolean host, boolean nvme, boolean modelParallel) {
        /**
         * All that a machine allows, without model parallelism.
         *
         * @param machine the machine
         * @return the space
         */
        public static Space of(Machine machine) {
            return new Space(machine.host() > 0, machine.nvme() > 0, false);
        }
    }

    /**
     * Plans a job.
     *
     * @param job the job
     * @param t the techniques
     * @return its needs, whether they fit or not
     * @throws IllegalArgumentException if the techniques cannot be used for the job
     */
    public static Plan plan(Job job, Techniques t) {
        check(job, t);
        Model model = job.model();
        int d = job.machine().ranks() / (t.tensor() * t.pipeline());
        Needs needs = Needs.of(job, t);
        Batch batch = job.batch();
        return new Plan(
                job,
                t,
                needs.device(),
                needs.host(),
                needs.nvme(),
                traffic(job, t, d, needs),
                Compute.of(
                        model, (long) batch.micro() * batch.accumulation() * d, t.recomputation()));
    }

    /**
     * The largest model of a rule that fits.
     *
     * @param job the job; its model is ignored
     * @param techniques the techniques
     * @param ladder the models to try, smallest first, from {@link ScalingRule#ladder}
     * @return its plan, or that of the smallest model if none fits
     */
    public static Plan largest(Job job, Techniques techniques, List<Model> ladder) {
        check(job, techniques);
        int low = 0; // fits, or is the smallest
        int high = ladder.size(); // does not fit
        while (high - low > 1) {
            int middle = (low + high) >>> 1;
            if (Needs.of(job.with(ladder.get(middle)), techniques).fit()) {
                low = middle;
            } else {
                high = middle;
            }
        }
        // Depth and width grow alternately, and depths that a pipeline divides need less, so needs
        // do not rise with every step.
        int end = Math.min(ladder.size(), high + LOOK_AHEAD * techniques.pipeline());
        for (int i = high; i < end; i++) {
            if (Needs.of(job.with(ladder.get(i)), techniques).fit()) {
                low = i;
            }
        }
        return plan(job.with(ladder.get(low)), techniques);
    }

    /**
     * The largest model under every combination of techniques.
     *
     * @param job the job; of its model only the proportions are used
     * @param space what to try
     * @return one plan for each combination under which anything fits, fewest and cheapest
     *     techniques first
     */
    public static List<Plan> search(Job job, Space space) {
        List<Model> ladder = ScalingRule.like(job.model()).ladder(Model.MAX_PARAMETERS);
        List<Plan> found = new ArrayList<>();
        for (Techniques t : combinations(job, space)) {
            Plan plan = largest(job, t, ladder);
            if (plan.fits()) {
                found.add(plan);
            }
        }
        return found;
    }

    /**
     * The plans of a search whose techniques pay: each has a larger model than all before it.
     *
     * @param found plans in order
     * @return some of them, in order
     */
    public static List<Plan> frontier(List<Plan> found) {
        List<Plan> worth = new ArrayList<>();
        long best = 0;
        for (Plan plan : found) {
            if (plan.job().model().parameters() > best) {
                best = plan.job().model().parameters();
                worth.add(plan);
            }
        }
        return worth;
    }

    /**
     * The combinations under which a job's own model fits.
     *
     * @param job the job
     * @param space what to try
     * @return their plans, fewest and cheapest techniques first
     */
    public static List<Plan> fitting(Job job, Space space) {
        return combinations(job, space).stream()
                .filter(t -> Needs.of(job, t).fit())
                .map(t -> plan(job, t))
                .toList();
    }

    /**
     * Plans that fit with additional techniques.
     *
     * @param job the job
     * @param now the techniques in use
     * @param space what to try
     * @return plans that fit and save at least as much everywhere, fewest and cheapest techniques
     *     first
     */
    public static List<Plan> next(Job job, Techniques now, Space space) {
        return fitting(job, space).stream().filter(p -> p.techniques().includes(now)).toList();
    }

    /**
     * All combinations of techniques that make sense for a job: no stages with one data-parallel
     * rank, no gradients further away than their optimizer, no pieces of layers that stay whole.
     *
     * @param job the job
     * @param space what to try
     * @return the combinations, fewest and cheapest techniques first
     */
    public static List<Techniques> combinations(Job job, Space space) {
        List<Tier> tiers = new ArrayList<>(List.of(Tier.DEVICE));
        if (space.host()) {
            tiers.add(Tier.PINNED);
        }
        if (space.nvme()) {
            tiers.add(Tier.NVME);
        }
        List<Techniques> all = new ArrayList<>();
        for (int[] degrees : degrees(job, space)) {
            int ranks = job.machine().ranks() / degrees[0] / degrees[1];
            for (int stage = 0; stage <= (ranks > 1 ? 3 : 0); stage++) {
                for (Tier optimizer : tiers) {
                    for (Tier gradients : tiers) {
                        if (gradients.compareTo(optimizer) > 0) {
                            continue;
                        }
                        for (Tier parameters : tiers) {
                            for (Tier activations : tiers) {
                                for (Recomputation again : Recomputation.values()) {
                                    for (int pieces : PIECES) {
                                        if (pieces > 1 && stage < 3 && parameters == Tier.DEVICE) {
                                            break;
                                        }
                                        all.add(
                                                new Techniques(
                                                        stage,
                                                        optimizer,
                                                        gradients,
                                                        parameters,
                                                        activations,
                                                        again,
                                                        pieces,
                                                        degrees[0],
                                                        degrees[1]));
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        record Priced(Techniques techniques, int count, int cost) {}
        // Stable: equal costs keep the order above.
        return all.stream()
                .map(t -> new Priced(t, t.count(), t.cost()))
                .sorted(Comparator.comparingInt(Priced::count).thenComparingInt(Priced::cost))
                .map(Priced::techniques)
                .toList();
    }

    /** Pairs of tensor and pipeline degree: powers of two, tensor within a machine. */
    private static List<int[]> degrees(Job job, Space space) {
        List<int[]> pairs = new ArrayList<>();
        int ranks = job.machine().ranks();
        for (int tensor = 1; tensor <= job.machine().gpus(); tensor *= 2) {
            for (int pipeline = 1; pipeline <= Math.min(64, ranks / tensor); pipeline *= 2) {
                boolean none = tensor == 1 && pipeline == 1;
                if (none
                        || (space.modelParallel()
                                && ranks % (tensor * pipeline) == 0
                                && job.machine().gpus() % tensor == 0)) {
                    pairs.add(new int[] {tensor, pipeline});
                }
            }
        }
        return pairs;
    }

    private static void check(Job job, Techniques t) {
        Machine machine = job.machine();
        long ways = (long) t.tensor() * t.pipeline();
        if (machine.ranks() % ways != 0) {
            throw new IllegalArgumentException(
                    "tensor parallel "
                            + t.tensor()
                            + " x pipeline parallel "
                            + t.pipeline()
                            + " takes "
                            + ways
                            + " GPUs per copy of the model, which does not divide the "
                            + machine.ranks()
                            + " GPUs available; give degrees whose product does");
        }
    }

    private static List<Traffic> traffic(Job job, Techniques t, int d, Needs needs) {
        double parameters = needs.parameters();
        double kept = needs.kept() * needs.layers();
        Precision precision = job.precision();
        double m = job.batch().accumulation();
        double e = precision.parameter();
        double g = precision.gradient();
        double ring = (d - 1.0) / d;
        double shard1 = t.stage() >= 1 ? 1.0 / d : 1;
        double shard2 = t.stage() >= 2 ? 1.0 / d : 1;
        double shard3 = t.stage() >= 3 ? 1.0 / d : 1;
        List<Traffic> list = new ArrayList<>();
        switch (t.stage()) {
            case 0 -> add(list, Kind.ALL_REDUCE, "gradients", 2 * ring * g * parameters);
            case 1 -> {
                add(list, Kind.REDUCE_SCATTER, "gradients", ring * g * parameters);
                add(list, Kind.ALL_GATHER, "parameters", ring * e * parameters);
            }
            case 2 -> {
                add(list, Kind.REDUCE_SCATTER, "gradients", m * ring * g * parameters);
                add(list, Kind.ALL_GATHER, "parameters", ring * e * parameters);
            }
            default -> {
                add(list, Kind.REDUCE_SCATTER, "gradients", m * ring * g * parameters);
                add(list, Kind.ALL_GATHER, "parameters", 2 * m * ring * e * parameters);
            }
        }
        double sbh =
                (double) job.model().sequence() * job.batch().micro() * job.model().hidden() * e;
        if (t.tensor() > 1) {
            int passes = t.recomputation() == Recomputation.FULL ? 6 : 4;
            double n = t.tensor();
            add(
                    list,
                    Kind.ALL_REDUCE,
                    "activations (tensor parallel)",
                    passes * m * needs.layers() * 2 * (n - 1) / n * sbh);
        }
        if (t.pipeline() > 1) {
            add(list, Kind.SEND, "activations (pipeline)", 2 * m * sbh / t.tensor());
        }
        double state = job.optimizer().bytes(precision);
        boolean offloaded = t.optimizer() != Tier.DEVICE;
        if (t.parameters() != Tier.DEVICE) {
            add(list, Kind.TO_DEVICE, "parameters", 2 * m * e * parameters * shard3);
            if (!offloaded) {
                add(list, Kind.TO_HOST, "parameters", e * parameters * Math.min(shard1, shard3));
            }
        } else if (offloaded) {
            add(list, Kind.TO_DEVICE, "parameters", e * parameters * shard1);
        }
        if (t.gradients() != Tier.DEVICE) {
            // Gradients on the host are summed there: every micro-batch brings its own.
            add(list, Kind.TO_HOST, "gradients", m * g * parameters * shard2);
        } else if (offloaded) {
            add(list, Kind.TO_HOST, "gradients", g * parameters * shard1);
        }
        if (t.activations() != Tier.DEVICE) {
            add(list, Kind.TO_HOST, "activations", m * kept);
            add(list, Kind.TO_DEVICE, "activations", m * kept);
        }
        if (t.parameters() == Tier.NVME) {
            add(list, Kind.NVME_READ, "parameters", 2 * m * e * parameters * shard3);
            add(list, Kind.NVME_WRITE, "parameters", e * parameters * Math.min(shard1, shard3));
        }
        if (t.gradients() == Tier.NVME) {
            add(list, Kind.NVME_WRITE, "gradients", m * g * parameters * shard2);
            add(list, Kind.NVME_READ, "gradients", m * g * parameters * shard2);
        }
        if (t.optimizer() == Tier.NVME) {
            double held = precision.offloadedGradient();
            add(list, Kind.NVME_READ, "optimizer state", (state + held) * parameters * shard1);
            add(list, Kind.NVME_WRITE, "optimizer state", (state + held) * parameters * shard1);
        }
        if (t.activations() == Tier.NVME) {
            add(list, Kind.NVME_WRITE, "activations", m * kept);
            add(list, Kind.NVME_READ, "activations", m * kept);
        }
        return List.copyOf(list);
    }

    private static void add(List<Traffic> list, Kind kind, String what, double bytes) {
        if (bytes > 0) {
            list.add(new Traffic(kind, what, Needs.bytes(bytes)));
        }
    }
}
