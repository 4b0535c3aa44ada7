package io.jccl.offload.memplan;

/**
 * Bytes of activations of one layer and micro-batch on one GPU (arXiv 2205.05198, section 4, for
 * the parts of any layer).
 *
 * @param linear kept of a layer except for its attention scores; the mean over layers
 * @param attention kept for the attention: scores, their dropout, or the statistics of flash
 * @param statistics what is kept even if the attention is recomputed
 * @param input the layer's input alone
 * @param largest all of the largest layer
 * @param gradients gradients that are alive at once in a layer's backward pass
 * @param tokenWays ranks over which a token's whole vectors are split
 */
record Activations(
        double linear,
        double attention,
        double statistics,
        double input,
        double largest,
        double gradients,
        double tokenWays) {
    static Activations of(Job job, Techniques t) {
        Model model = job.model();
        ModelParallel split = t.split();
        Attention a = model.attention();
        Experts experts = model.experts();
        double h = model.hidden();
        double e = job.precision().parameter();
        double whole = model.sequence();
        double tokens = whole / split.context() * job.batch().micro();
        double n = split.tensor();
        // Inputs of the norms and matrices and the masks after dropout are split over
        // tensor-parallel
        // ranks only with sequence parallelism.
        double ways = split.sequenceParallel() ? n : 1;

        double vectors = e * (model.norms().perLayer() + 2) * h + (model.dropout() ? 2 * h : 0);
        // Kept in narrow form: inputs of matrices. In addition, attention needs its own output.
        double narrowed = e - job.precision().operand();
        double norms =
                a instanceof Attention.Grouped g && g.norms()
                        ? a.queries() + a.keysAndValues() / 2
                        : 0;
        double heads = e * (a.queries() + a.keysAndValues() + a.output() + norms);
        double compressed = e * a.compressed();
        double inMlp = e * model.mlp().kept() - narrowed * model.mlp().width();
        double inExperts =
                experts == null ? inMlp : e * experts.kept(h) - narrowed * experts.inputs(h);
        double sparse = (double) model.sparse() / model.layers();
        double mlp = (1 - sparse) * inMlp + sparse * inExperts;
        double added = narrowed > 0 ? job.precision().operand() * a.output() : 0;

        double common =
                tokens * ((vectors - 2 * narrowed * h + compressed) / ways + (heads + added) / n);
        double adapters = tokens * e * job.adapters().kept(model);
        double linear = common + adapters + tokens * mlp / n;
        boolean math = job.kernel().keepsScores();
        double statistics = math ? 0 : 4 * tokens * a.heads() / n;
        double scores = tokens * whole * a.heads() / n * (e + (model.dropout() ? e + 1 : 0));
        double attention = math ? scores : statistics;

        double wide = gradient(model.mlp());
        if (experts != null) {
            double routed = experts.active() * (h + gradient(experts.expert()));
            wide = Math.max(experts.dense() > 0 ? wide : 0, routed + experts.shared());
        }
        return new Activations(
                linear,
                attention,
                statistics,
                tokens * h * e / ways,
                common + adapters + tokens * Math.max(inMlp, inExperts) / n + attention,
                tokens * e * (h + wide) / n,
                ways);
    }

    /** Elements of a token's widest gradients within an MLP. */
    private static double gradient(FeedForward mlp) {
        return (mlp.gated() ? 2 : 1) * mlp.width();
    }
}
