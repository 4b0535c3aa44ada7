package io.jccl.offload.memplan;

/**
 * Floating-point operations of a step over all GPUs.
 *
 * @param batch samples of a step over all GPUs, B
 * @param flops with the plan's recomputation
 * @param withoutRecomputation of the model alone: {@code 72 B s l h^2 (1 + s/(6h) + V/(12 l h))}
 * @param withFullRecomputation {@code 96 B s l h^2 (1 + s/(6h) + V/(16 l h))}, equation 3 of arXiv
 *     2104.04473
 */
public record Compute(
        long batch, double flops, double withoutRecomputation, double withFullRecomputation) {
    /**
     * Counts for a model. A layer's forward pass is {@code B s h^2 (8 + 4f) + 4 B s^2 h}, the
     * backward pass twice that, plus what is recomputed; the output matrix is {@code 2 B s h V}
     * forward and never recomputed.
     *
     * @param model the model
     * @param batch samples of a step over all GPUs
     * @param recomputation what is recomputed
     * @return the operations
     */
    public static Compute of(Model model, long batch, Recomputation recomputation) {
        double s = model.sequence();
        double h = model.hidden();
        double bs = batch * s;
        double attention = 4 * bs * s * h * model.layers();
        double layers = bs * h * h * (8 + 4 * model.ffn()) * model.layers() + attention;
        double output = 2 * bs * h * model.vocabulary();
        double none = 3 * (layers + output);
        double again =
                switch (recomputation) {
                    case NONE -> 0;
                    case SELECTIVE -> attention;
                    case FULL -> layers;
                };
        return new Compute(batch, none + again, none, none + layers);
    }
}
