package io.jccl.offload.memplan;

import java.util.ArrayList;
import java.util.List;

/**
 * How a model is split over GPUs, in addition to data parallelism.
 *
 * @param tensor tensor-parallel degree: every matrix is split (arXiv 1909.08053)
 * @param sequenceParallel whether what tensor parallelism leaves whole is split along the sequence
 *     (arXiv 2205.05198)
 * @param pipeline pipeline-parallel degree, scheduled 1F1B (arXiv 2104.04473)
 * @param chunks parts of a stage's layers that take turns (interleaved schedule, arXiv 2104.04473,
 *     section 2.2); 1 is one part
 * @param context context-parallel degree: a sample's tokens are split, and keys and values
 *     circulate (arXiv 2310.01889)
 * @param expert expert-parallel degree: the experts are distributed over the data-parallel ranks
 *     (arXiv 2101.03961)
 */
public record ModelParallel(
        int tensor, boolean sequenceParallel, int pipeline, int chunks, int context, int expert) {
    /** The whole model on every GPU. */
    public static final ModelParallel NONE = new ModelParallel(1, true, 1, 1, 1, 1);

    /** Checks the arguments. */
    public ModelParallel {
        Checks.range("the tensor-parallel degree", tensor, 1, 65_536, "1 is none");
        Checks.range("the pipeline-parallel degree", pipeline, 1, 65_536, "1 is none");
        Checks.range("chunks of a pipeline stage", chunks, 1, 65_536, "1 is not interleaved");
        Checks.range("the context-parallel degree", context, 1, 65_536, "1 is none");
        Checks.range("the expert-parallel degree", expert, 1, 65_536, "1 is none");
        if (chunks > 1 && pipeline == 1) {
            throw new IllegalArgumentException(
                    "layers are interleaved in "
                            + chunks
                            + " chunks without a pipeline; give a pipeline-parallel degree, or leave"
                            + " chunks at 1");
        }
    }

    /**
     * Split into tensors, with sequence parallelism, and pipeline stages.
     *
     * @param tensor tensor-parallel degree
     * @param pipeline pipeline-parallel degree
     * @return the split
     */
    public static ModelParallel of(int tensor, int pipeline) {
        return new ModelParallel(tensor, true, pipeline, 1, 1, 1);
    }

    /**
     * GPUs that hold one sample's work: data-parallel ranks are all GPUs divided by it.
     *
     * @return tensor x pipeline x context
     */
    public long ways() {
        return (long) tensor * pipeline * context;
    }

    /**
     * Micro-batches that the first stage holds, as a factor of its activations.
     *
     * @param microBatches of a step
     * @return p with 1F1B, p (1 + (p - 1) / (p v)) with v chunks (arXiv 2205.05198, section 4.2.3),
     *     and no more than there are
     */
    double inFlight(double microBatches) {
        double p = pipeline;
        return Math.min(microBatches, chunks == 1 ? p : p + (p - 1) / chunks);
    }

    /** The names of what is in use. */
    List<String> names() {
        List<String> names = new ArrayList<>();
        add(names, "tensor parallel ", tensor);
        if (tensor > 1 && !sequenceParallel) {
            names.add("whole sequences");
        }
        add(names, "pipeline parallel ", pipeline);
        if (chunks > 1) {
            names.add(chunks + " chunks per stage");
        }
        add(names, "context parallel ", context);
        add(names, "expert parallel ", expert);
        return names;
    }

    private static void add(List<String> names, String what, int degree) {
        if (degree > 1) {
            names.add(what + degree);
        }
    }
}
