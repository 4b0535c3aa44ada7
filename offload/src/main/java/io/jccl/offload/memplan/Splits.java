package io.jccl.offload.memplan;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The ways to split a model over GPUs that the search tries, and those that are impossible. */
final class Splits {
    private static final List<Integer> CHUNKS = List.of(1, 2, 4);

    /** Tokens of a rank with context parallelism; with fewer, messages cost more than products. */
    private static final int LEAST_CONTEXT = 1024;

    private Splits() {}

    /**
     * Those worth trying for models like a job's: powers of two, tensors within a machine, experts
     * over ranks that divide them, contexts of {@value #LEAST_CONTEXT} tokens or more.
     */
    static List<ModelParallel> of(Job job, MemoryPlanner.Space space) {
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
                            all.add(
                                    new ModelParallel(
                                            tensor, true, pipeline, chunks, context, expert));
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

    /** Throws if a job's model cannot be split so on its machine. */
    static void check(Job job, ModelParallel split) {
        whole(job.machine(), split);
        String refusal = refusal(job.model(), split);
        if (refusal != null) {
            throw new IllegalArgumentException(refusal);
        }
        shared(job.machine(), split);
    }

    /** Throws if no model can be split so on a machine. */
    static void check(Machine machine, ModelParallel split) {
        whole(machine, split);
        shared(machine, split);
    }

    private static void whole(Machine machine, ModelParallel split) {
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
    }

    private static void shared(Machine machine, ModelParallel split) {
        long shards = machine.ranks() / split.ways() * split.context();
        if (shards % split.expert() != 0) {
            throw new IllegalArgumentException(
                    ("expert parallel %s does not divide the %s ranks that hold the same part of the"
                                    + " model; give a degree that does, or more machines")
                            .formatted(split.expert(), shards));
        }
    }

    /** Why a model cannot be split so on any machine; null if it can. */
    static @Nullable String refusal(Model model, ModelParallel split) {
        Experts experts = model.experts();
        if (split.expert() > 1 && experts == null) {
            return "expert parallel "
                    + split.expert()
                    + " is given for a model without experts; leave it out, or give a model"
                    + " with experts";
        }
        if (experts != null && experts.count() % split.expert() != 0) {
            return "expert parallel %s does not divide the %s experts; give a degree that does"
                    .formatted(split.expert(), experts.count());
        }
        if (model.layers() < split.pipeline()) {
            return "pipeline parallel %s has more stages than the model has layers, %s; give fewer"
                    .formatted(split.pipeline(), model.layers());
        }
        // Every chunk of every stage has a layer.
        if (model.layers() < (long) split.pipeline() * split.chunks()) {
            return "%s stages of %s chunks are more than the %s layers; give fewer chunks"
                    .formatted(split.pipeline(), split.chunks(), model.layers());
        }
        // Ranks may hold copies of key and value heads that are fewer.
        if (model.heads() % split.tensor() != 0) {
            return "tensor parallel %s does not divide the %s heads; give a degree that does"
                    .formatted(split.tensor(), model.heads());
        }
        if (model.sequence() < split.context()) {
            return "context parallel %s has more ranks than a sample has tokens, %s; give fewer"
                    .formatted(split.context(), model.sequence());
        }
        return null;
    }
}
