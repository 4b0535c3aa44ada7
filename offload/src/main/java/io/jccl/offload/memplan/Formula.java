package io.jccl.offload.memplan;

/** The formulas of the planner and where they come from. */
public enum Formula {
    /** Parameters of a model. */
    PARAMETERS(
            "parameters",
            "part by part: attention, MLP or experts, norms, embeddings; for GPT 12 l h^2 (1 + 13/(12"
                    + " h) + (V + s)/(12 l h)) + 2 h",
            "arXiv 2104.04473, equation 2; the papers of the presets"),
    /** Bytes of model state. */
    STATE(
            "model state",
            "mixed precision with Adam: 2 + 2 + 12 = 16 bytes per parameter on the device (parameter,"
                    + " gradient; master, momentum, variance); 18 with gradients in float32; DeepSpeed 20"
                    + " if the optimizer is offloaded, which holds the gradient in float32 too",
            "arXiv 1910.02054, section 3.1; arXiv 2104.07857, section 3"),
    /** State per rank after sharding. */
    ZERO(
            "sharding over d ranks",
            "stage 1: optimizer state / d; 2: gradients / d too; 3: parameters / d too",
            "arXiv 1910.02054, section 5"),
    /** State on the device with offload. */
    OFFLOAD(
            "offload",
            "state moves to the host's or NVMe's column whole; two layers of gradients and (1 +"
                    + " prefetch) layers of parameters in flight stay on the device, a layer divided by"
                    + " its pieces",
            "arXiv 2101.06840; arXiv 2104.07857, section 5"),
    /** Activations of a layer. */
    ACTIVATIONS(
            "activations per layer",
            "GPT s b h (34 + 5 a s / h) bytes; selective recomputation 34 s b h; full 2 s b h and one"
                    + " layer whole; over t tensor-parallel ranks each / t; flash has 4 a s b in place of"
                    + " the scores 5 a s^2 b. Others: inputs of norms and matrices, queries, keys and"
                    + " values as they are grouped, MLP or the experts of a token; no masks without"
                    + " dropout",
            "arXiv 2205.05198, equations 1, 2, 4 and section 5; arXiv 2205.14135"),
    /** Activations outside the layers. */
    ENDS(
            "first and last layer",
            "s b h + 4 s b h (1 + V/h) bytes kept, 2 s b V for the gradient of the logits",
            "arXiv 2205.05198, section 4.3"),
    /** Compute of a step. */
    FLOPS(
            "FLOPs per step",
            "GPT 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) with full recomputation; 72 B s l h^2 (1 + s/(6h)"
                    + " + V/(12 l h)) without; selective adds 4 B s^2 l h",
            "arXiv 2104.04473, equation 3 and its appendix; arXiv 2205.05198, appendix A"),
    /** Volume of collectives. */
    COLLECTIVES(
            "collectives per step and GPU",
            "with P parameters, r = (d-1)/d: stage 0 allReduce 2 r 2P; 1 reduceScatter r 2P + allGather"
                    + " r 2P; 2 the former in each of m micro-batches; 3 allGather 2 m r 2P besides; tensor"
                    + " parallel 4 allReduces of 2 s b h per layer, 6 with full recomputation; experts as"
                    + " many allToAlls of the tokens' copies; context parallel 3 rounds of keys and"
                    + " values, 4",
            "arXiv 1910.02054, section 7; arXiv 1909.08053, section 3"),
    /** Memory used in addition to the model. */
    OVERHEADS(
            "overheads",
            "1343 MiB per GPU for runtime and kernels; 5% of device and host memory that pools cannot"
                    + " allocate; 4 GiB of host memory; 5% of drives; 256 MiB of NCCL buffers; 32 MiB of"
                    + " workspace; before NVMe 5 slots of 1e8 elements, and 3 of optimizer state",
            "Hugging Face, Model training anatomy; this project's pools; an assumption; mke2fs(8); NCCL:"
                    + " 2 x 32 channels x NCCL_BUFFSIZE; cuBLAS; DeepSpeed's buffer_size, buffer_count"),
    /** The search for the largest model. */
    SCALING(
            "largest model",
            "hidden size in steps of 128; layers from hidden / aspect up to where the next hidden size"
                    + " gives as many parameters; proportions of the given model, or GPT-3's 128 hidden per"
                    + " layer and per head",
            "arXiv 2005.14165, table 2.1");

    private final String title;
    private final String text;
    private final String source;

    Formula(String title, String text, String source) {
        this.title = title;
        this.text = text;
        this.source = source;
    }

    /**
     * Its result.
     *
     * @return such as {@code parameters}
     */
    public String title() {
        return title;
    }

    /**
     * The formula.
     *
     * @return in the symbols of {@link Model} and {@link MemoryPlanner}
     */
    public String text() {
        return text;
    }

    /**
     * Its source.
     *
     * @return public sources
     */
    public String source() {
        return source;
    }
}
