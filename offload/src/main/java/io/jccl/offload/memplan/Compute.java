package io.jccl.offload.memplan;

/**
 * Floating-point operations of a step over all GPUs.
 *
 * @param batch samples of a step over all GPUs, B
 * @param flops with the plan's recomputation
 * @param withoutRecomputation of the model alone: {@code 72 B s l h^2 (1 + s/(6h) + V/(12 l h))}
 *     for GPT
 * @param withFullRecomputation {@code 96 B s l h^2 (1 + s/(6h) + V/(16 l h))} for GPT, equation 3
 *     of arXiv 2104.04473
 */
public record Compute(
        long batch, double flops, double withoutRecomputation, double withFullRecomputation) {
    /**
     * Counts for a model. A layer's forward pass is two operations for each token and each element
     * of its matrices, of those experts alone that the token goes to, and {@code 2 s} for each
     * element of a query and of a value of every head; for GPT {@code B s h^2 (8 + 4f) + 4 B s^2
     * h}. The backward pass is twice that, plus what is recomputed; the output matrix is {@code 2 B
     * s h V} forward and never recomputed. Scores that the causal mask hides are counted, as in the
     * sources of {@link Formula#FLOPS}.
     *
     * @param model the model
     * @param batch samples of a step over all GPUs
     * @param recomputation what is recomputed
     * @return the operations
     */
    public static Compute of(Model model, long batch, Recomputation recomputation) {
        return of(model, batch, recomputation, LowRank.NONE);
    }

    /**
     * Counts for a model of which possibly only adapters are trained: the backward pass of the
     * other matrices computes the gradients of their inputs, with as many operations as the forward
     * pass, but not those of their weights.
     *
     * @param model the model
     * @param batch samples of a step over all GPUs
     * @param recomputation what is recomputed
     * @param adapters what is trained
     * @return the operations
     */
    public static Compute of(
            Model model, long batch, Recomputation recomputation, LowRank adapters) {
        double s = model.sequence();
        double h = model.hidden();
        double bs = batch * s;
        Attention a = model.attention();
        Experts experts = model.experts();
        double attention = 2 * bs * s * (a.queries() + a.output()) * model.layers();
        double matrices =
                a.matrices(h) * model.layers()
                        + model.mlp().matrices(h) * (model.layers() - model.sparse())
                        + (experts == null ? 0 : experts.matrices(h) * model.sparse());
        double added = 2 * bs * adapters.active(model);
        double layers = 2 * bs * matrices + attention + added;
        double output = 2 * bs * h * model.vocabulary();
        double frozen = adapters.adapts() ? 2 * bs * matrices + output : 0;
        double none = 3 * (layers + output) - frozen;
        double again =
                switch (recomputation) {
                    case NONE -> 0;
                    case SELECTIVE -> attention;
                    case FULL -> layers;
                };
        return new Compute(batch, none + again, none, none + layers);
    }
}
