package io.jccl.offload.memplan;

/**
 * Compute and memory traffic of the most loaded rank: its layers, and the output matrix, which in a
 * pipeline is the last stage's.
 *
 * @param layers layers of a rank
 * @param products operations of a forward pass of one micro-batch in its layers' matrices
 * @param last part of {@code products} in each layer's last matrix, the MLP's output
 * @param attention the same in attention, including scores hidden by the causal mask
 * @param output the same in the output matrix
 * @param backward matrix operations of a backward pass, in forward passes: 2, or 1 if only adapters
 *     are trained
 * @param touched bytes that the parts between the matrices write in that pass: all that a backward
 *     pass without recomputation would keep
 * @param logits bytes of the logits in float32
 * @param weights bytes of the rank's parameters in the type that products use
 * @param parameters the rank's parameters
 * @param updated parameters that the rank's optimizer updates
 */
public record Work(
        int layers,
        double products,
        double last,
        double attention,
        double output,
        int backward,
        double touched,
        double logits,
        double weights,
        double parameters,
        double updated) {
    static Work of(Job job, Techniques t) {
        Model model = job.model();
        Needs needs = Needs.of(job, t);
        int layers = needs.layers();
        double samples = job.batch().micro();
        Compute forward = Compute.of(model, job.batch().micro(), Recomputation.NONE);
        double h = model.hidden();
        double tokens = samples * model.sequence() / t.split().context();
        double output = 2 * tokens * h * model.vocabulary() / t.tensor();
        Attention a = model.attention();
        double share = (double) layers / model.layers() / t.tensor() / t.split().context();
        double scores =
                2 * samples * model.sequence() * model.sequence() * (a.queries() + a.output());
        double attention = scores * model.layers() * share;
        double all = forward.withoutRecomputation() / 3;
        double outputOfAll = 2 * samples * model.sequence() * h * model.vocabulary();
        // Tensors narrowed for products are also written in full.
        Activations kept = Activations.of(job.with(job.precision().wide()), t);
        Experts experts = model.experts();
        double inMlp = experts == null ? model.mlp().matrices(h) : experts.matrices(h);
        double last = 2 * tokens * inMlp / (model.mlp().gated() ? 3 : 2) * layers / t.tensor();
        return new Work(
                layers,
                (all - outputOfAll) * share
                        - attention
                        + 2
                                * tokens
                                * job.adapters().active(model)
                                / model.layers()
                                * layers
                                / t.tensor(),
                last,
                attention,
                output,
                job.adapters().adapts() ? 1 : 2,
                (kept.linear() + kept.attention()) * layers,
                4 * tokens * model.vocabulary() / t.tensor(),
                job.precision().parameter() * needs.parameters(),
                needs.parameters(),
                needs.held1());
    }
}
