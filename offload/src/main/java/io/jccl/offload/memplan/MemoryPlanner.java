package io.jccl.offload.memplan;

import io.jccl.offload.Tier;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.IntPredicate;
import java.util.stream.IntStream;

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
    private static final List<Integer> PIECES = List.of(1, 2, 4, 8, 16, 32);

    /** Most samples of a step: far more than any has, and few enough to be counted exactly. */
    private static final double MOST_SAMPLES = 1e15;

    private MemoryPlanner() {}

    /**
     * What the search may try.
     *
     * @param host whether host memory may be used
     * @param nvme whether drives may be used
     * @param modelParallel whether to try tensor, pipeline, context and expert parallelism
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
        int d = dataParallel(job, t);
        Needs needs = Needs.of(job, t);
        Batch batch = job.batch();
        return new Plan(
                job,
                t,
                needs.device(),
                needs.host(),
                needs.nvme(),
                Volumes.of(job, t, needs),
                Compute.of(
                        model,
                        (long) batch.micro() * batch.accumulation() * d,
                        t.recomputation(),
                        job.adapters()));
    }

    /**
     * What the fullest rank computes.
     *
     * @param job the job
     * @param t the techniques
     * @return the work of one micro-batch, and of the update
     * @throws IllegalArgumentException if the techniques cannot be used for the job
     */
    public static Work work(Job job, Techniques t) {
        check(job, t);
        return Work.of(job, t);
    }

    /**
     * The largest model of a rule that fits.
     *
     * @param job the job; its model is ignored
     * @param techniques the techniques
     * @param models the models to try, smallest first, from {@link ScalingRule#ladder}
     * @return its plan, or that of the smallest model if none fits; models that the techniques
     *     cannot split, for want of layers or of heads that divide, are left out
     * @throws IllegalArgumentException if the techniques cannot be used on the machine, or for any
     *     of the models
     */
    public static Plan largest(Job job, Techniques techniques, List<Model> models) {
        return largest(job, techniques, Ladder.of(models));
    }

    /**
     * A ladder's models; for each one with no more heads than any after it, since heads of a whole
     * size do not always get more with the width, and without their norms, whose parameters get
     * fewer with more heads; and where each hidden size begins.
     */
    private record Ladder(List<Model> models, List<Model> least, List<Integer> widths) {
        static Ladder of(List<Model> models) {
            List<Model> least = new ArrayList<>(models);
            for (int i = models.size() - 2; i >= 0; i--) {
                if (models.get(i).attention() instanceof Attention.Grouped a
                        && least.get(i + 1).attention() instanceof Attention.Grouped next) {
                    int groups = Math.min(a.groups(), next.groups());
                    int heads = groups * (a.heads() / a.groups());
                    double size = Math.min(a.queries(), next.queries()) / heads;
                    least.set(
                            i,
                            models.get(i)
                                    .with(
                                            new Attention.Grouped(
                                                    heads,
                                                    groups,
                                                    size,
                                                    a.inputBias(),
                                                    a.outputBias(),
                                                    false)));
                }
            }
            List<Integer> widths =
                    IntStream.range(0, models.size())
                            .filter(i ->
                                    i == 0 || models.get(i).hidden() != models.get(i - 1).hidden())
                            .boxed()
                            .toList();
            return new Ladder(models, least, widths);
        }
    }

    /**
     * A wider model may need less than a deeper one before it, so needs do not rise with every step
     * of the ladder. What a model needs at least does rise with its depth and from the first, which
     * is the shallowest, of one width to that of the next: a binary search for the last width, and
     * one for the last depth, find the model beyond which none fits.
     */
    private static Plan largest(Job job, Techniques techniques, Ladder ladder) {
        ModelParallel split = techniques.split();
        Splits.check(job.machine(), split);
        List<Model> models = ladder.models;
        List<Integer> widths = ladder.widths;
        IntPredicate leastFits = i -> Needs.least(job.with(ladder.least.get(i)), techniques).fit();
        int width = last(0, widths.size(), i -> leastFits.test(widths.get(i)));
        int end = width + 1 < widths.size() ? widths.get(width + 1) : models.size();
        int top = last(widths.get(width), end, leastFits);
        for (Model model : models.subList(0, top + 1).reversed()) {
            if (Splits.refusal(model, split) == null
                    && Needs.of(job.with(model), techniques).fit()) {
                return plan(job.with(model), techniques);
            }
        }
        Model smallest =
                models.stream()
                        .filter(m -> Splits.refusal(m, split) == null)
                        .findFirst()
                        .orElse(models.getLast());
        return plan(job.with(smallest), techniques);
    }

    /** The last number of a range that passes a test which no number beyond it passes. */
    private static int last(int low, int end, IntPredicate passes) {
        int last = low;
        int high = end;
        while (high - last > 1) {
            int middle = (last + high) >>> 1;
            if (passes.test(middle)) {
                last = middle;
            } else {
                high = middle;
            }
        }
        return last;
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
        return search(job, Techniques.PLAIN, space);
    }

    /**
     * The largest model under every combination of techniques, among them those with the split and
     * the pieces in use.
     *
     * @param job the job; of its model only the proportions are used
     * @param now the techniques in use
     * @param space what to try
     * @return one plan for each combination under which anything fits, fewest and cheapest
     *     techniques first
     */
    public static List<Plan> search(Job job, Techniques now, Space space) {
        Ladder ladder = Ladder.of(ScalingRule.like(job.model()).ladder(Model.MAX_PARAMETERS));
        List<Plan> found = new ArrayList<>();
        for (Techniques t : combinations(job, now, space, Splits.of(job, space))) {
            if (saves(t, now)) {
                Plan plan = largest(job, t, ladder);
                if (plan.fits()) {
                    found.add(plan);
                }
            }
        }
        return found;
    }

    /** Chunks, unless they are in use, shorten the bubble and save no memory. */
    private static boolean saves(Techniques t, Techniques now) {
        return t.split().chunks() == 1 || t.split().equals(now.split());
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
        return next(job, Techniques.PLAIN, space);
    }

    /**
     * Plans that fit with additional techniques.
     *
     * @param job the job
     * @param now the techniques in use; without model parallelism to try, their split stays
     * @param space what to try
     * @return plans that fit and save at least as much everywhere, fewest and cheapest techniques
     *     first
     */
    public static List<Plan> next(Job job, Techniques now, Space space) {
        return combinations(job, now, space, splits(job, space)).stream()
                .filter(t -> saves(t, now) && t.includes(now) && Needs.of(job, t).fit())
                .map(t -> plan(job, t))
                .toList();
    }

    /**
     * All combinations of techniques that make sense for a job: no stages with one data-parallel
     * rank, no gradients further away than their optimizer, no pieces of layers that stay whole, no
     * selective recomputation where attention keeps no scores, no splits that the model's layers,
     * heads, experts or tokens do not allow.
     *
     * @param job the job
     * @param space what to try
     * @return the combinations, fewest and cheapest techniques first
     */
    public static List<Techniques> combinations(Job job, Space space) {
        return combinations(job, Techniques.PLAIN, space, splits(job, space));
    }

    /** Those with the split, the pieces and the recomputation in use are among them. */
    private static List<Techniques> combinations(
            Job job, Techniques now, Space space, List<ModelParallel> splits) {
        List<Tier> tiers = new ArrayList<>(List.of(Tier.DEVICE));
        if (space.host()) {
            tiers.add(Tier.PINNED);
        }
        if (space.nvme()) {
            tiers.add(Tier.NVME);
        }
        Set<ModelParallel> ways = new LinkedHashSet<>(splits);
        ways.add(now.split());
        Set<Integer> parts = new TreeSet<>(PIECES);
        parts.add(now.pieces());
        boolean selective =
                job.kernel().keepsScores() || now.recomputation() == Recomputation.SELECTIVE;
        List<Techniques> all = new ArrayList<>();
        for (ModelParallel split : ways) {
            long shards = job.machine().ranks() / split.ways() * split.context();
            for (int stage = 0; stage <= (shards > 1 ? 3 : 0); stage++) {
                for (Tier optimizer : tiers) {
                    for (Tier gradients : tiers) {
                        if (gradients.compareTo(optimizer) > 0) {
                            continue;
                        }
                        for (Tier parameters : tiers) {
                            for (Tier activations : tiers) {
                                for (Recomputation again : Recomputation.values()) {
                                    if (again == Recomputation.SELECTIVE && !selective) {
                                        continue;
                                    }
                                    for (int pieces : parts) {
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
                                                        split));
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

    /** Ways to split a job's own model. */
    private static List<ModelParallel> splits(Job job, Space space) {
        return Splits.of(job, space).stream()
                .filter(s -> Splits.refusal(job.model(), s) == null)
                .toList();
    }

    /** Data-parallel ranks: each has its own samples. */
    static int dataParallel(Job job, Techniques t) {
        return (int) (job.machine().ranks() / t.split().ways());
    }

    private static void check(Job job, Techniques t) {
        Splits.check(job, t.split());
        Batch batch = job.batch();
        Checks.range(
                "the number of samples of a step",
                (double) batch.micro() * batch.accumulation() * dataParallel(job, t),
                1,
                MOST_SAMPLES,
                "give a smaller micro-batch, fewer micro-batches or fewer machines");
    }
}
