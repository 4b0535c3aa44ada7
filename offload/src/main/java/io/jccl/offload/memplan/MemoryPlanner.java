package io.jccl.offload.memplan;

import io.jccl.offload.Tier;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
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
    private static final int[] PIECES = {1, 2, 4, 8, 16, 32};

    private static final List<Integer> CHUNKS = List.of(1, 2, 4);

    /** Tokens of a rank with context parallelism; with fewer, messages cost more than products. */
    private static final int LEAST_CONTEXT = 1024;

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
     * @return its plan, or that of the smallest model if none fits; models with fewer layers than
     *     the techniques split them into are left out
     * @throws IllegalArgumentException if the techniques cannot be used on the machine, or for any
     *     of the models
     */
    public static Plan largest(Job job, Techniques techniques, List<Model> models) {
        List<Model> deep = models.stream().filter(m -> deepEnough(m, techniques)).toList();
        check(job.with(deep.isEmpty() ? models.getLast() : deep.getFirst()), techniques);
        // Needs rise with the depth of the models of one width, and from the shallowest model of a
        // width to that of the next, but not from the deepest of a width to the next, wider model.
        IntPredicate fits = i -> Needs.of(job.with(deep.get(i)), techniques).fit();
        int[] widths =
                IntStream.range(0, deep.size())
                        .filter(i -> i == 0 || deep.get(i).hidden() != deep.get(i - 1).hidden())
                        .toArray();
        int width = last(0, widths.length, i -> fits.test(widths[i]));
        int next = width + 1 < widths.length ? widths[width + 1] : deep.size();
        return plan(job.with(deep.get(last(widths[width], next, fits))), techniques);
    }

    /** The last number of a range for which a condition holds that then holds for all before. */
    private static int last(int from, int to, IntPredicate holds) {
        int low = from; // it holds, or does for none
        int high = to; // it does not hold
        while (high - low > 1) {
            int middle = (low + high) >>> 1;
            if (holds.test(middle)) {
                low = middle;
            } else {
                high = middle;
            }
        }
        return low;
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
            if (t.split().chunks() > 1) {
                continue; // they shorten the bubble, and save no memory
            }
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
        for (ModelParallel split : splits(job, space)) {
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

    /**
     * Ways to split a job's model: powers of two, tensors within a machine, experts over ranks that
     * divide them, contexts of {@value #LEAST_CONTEXT} tokens or more, chunks that the layers fill.
     */
    private static List<ModelParallel> splits(Job job, Space space) {
        if (!space.modelParallel()) {
            return List.of(ModelParallel.NONE);
        }
        List<ModelParallel> all = new ArrayList<>();
        long ranks = job.machine().ranks();
        int gpus = job.machine().gpus();
        Model model = job.model();
        for (int tensor : powers(gpus, gpus)) {
            for (int pipeline : powers(ranks / tensor, 64)) {
                for (int context :
                        powers(ranks / tensor / pipeline, model.sequence() / LEAST_CONTEXT)) {
                    long shards = ranks / tensor / pipeline;
                    int experts = model.experts() == null ? 1 : model.experts().count();
                    for (int expert : powers(shards, experts)) {
                        if (experts % expert != 0) {
                            continue;
                        }
                        for (int chunks : pipeline == 1 ? List.of(1) : CHUNKS) {
                            if (pipeline * chunks <= model.layers()) {
                                all.add(
                                        new ModelParallel(
                                                tensor, true, pipeline, chunks, context, expert));
                            }
                        }
                    }
                }
            }
        }
        return all;
    }

    /** Powers of two that divide a number, from 1, which is there whatever the limit. */
    private static List<Integer> powers(long of, long most) {
        List<Integer> all = new ArrayList<>(List.of(1));
        for (int n = 2; n <= most && of % n == 0; n *= 2) {
            all.add(n);
        }
        return all;
    }

    /** Every chunk of every stage of a pipeline has a layer. */
    private static boolean deepEnough(Model model, Techniques t) {
        return model.layers() >= (long) t.pipeline() * t.split().chunks();
    }

    /** Data-parallel ranks: each has its own samples. */
    static int dataParallel(Job job, Techniques t) {
        return (int) (job.machine().ranks() / t.split().ways());
    }

    private static void check(Job job, Techniques t) {
        Machine machine = job.machine();
        Model model = job.model();
        ModelParallel split = t.split();
        if (machine.ranks() % split.ways() != 0) {
            throw new IllegalArgumentException(
                    "tensor parallel "
                            + split.tensor()
                            + " x pipeline parallel "
                            + split.pipeline()
                            + (split.context() > 1 ? " x context parallel " + split.context() : "")
                            + " takes "
                            + split.ways()
                            + " GPUs per copy of the model, which does not divide the "
                            + machine.ranks()
                            + " GPUs available; give degrees whose product does");
        }
        Experts experts = model.experts();
        if (split.expert() > 1 && experts == null) {
            throw new IllegalArgumentException(
                    "expert parallel "
                            + split.expert()
                            + " is given for a model without experts; leave it out, or give a model"
                            + " with experts");
        }
        if (experts != null && experts.count() % split.expert() != 0) {
            throw new IllegalArgumentException(
                    "expert parallel %s does not divide the %s experts; give a degree that does"
                            .formatted(split.expert(), experts.count()));
        }
        long shards = machine.ranks() / split.ways() * split.context();
        if (shards % split.expert() != 0) {
            throw new IllegalArgumentException(
                    ("expert parallel %s does not divide the %s ranks that hold the same part of the"
                                    + " model; give a degree that does, or more machines")
                            .formatted(split.expert(), shards));
        }
        if (model.layers() < split.pipeline()) {
            throw new IllegalArgumentException(
                    "pipeline parallel %s has more stages than the model has layers, %s; give fewer"
                            .formatted(split.pipeline(), model.layers()));
        }
        if (!deepEnough(model, t)) {
            throw new IllegalArgumentException(
                    "%s stages of %s chunks are more than the %s layers; give fewer chunks"
                            .formatted(split.pipeline(), split.chunks(), model.layers()));
        }
    }
}
