package io.jccl.train;

import io.jccl.parallel.Compression;

/** Conditions under which techniques are compatible with each other and with a model. */
final class TechniqueCheck {
    private TechniqueCheck() {}

    static void check(Techniques t, GptShape shape, int batch) {
        range("--dp", t.data(), 1, 256);
        range("--tp", t.tensor(), 1, 256);
        range("--pp", t.pipeline(), 1, 256);
        range("--ep", t.expert(), 1, 256);
        if (t.zero() != Techniques.NONE.zero()) {
            range("--zero", t.zero(), 0, 3);
        }
        range("--accumulate", t.accumulate(), 1, 1 << 16);
        range("world size --dp x --tp x --pp", t.ranks(), 1, 256);
        require(
                shape.hidden() % shape.heads() == 0,
                "--heads is %s, expected a divisor of --hidden %s"
                        .formatted(shape.heads(), shape.hidden()));
        require(
                shape.heads() % t.tensor() == 0,
                "--tp is %s, expected a divisor of --heads %s: each rank computes whole heads"
                        .formatted(t.tensor(), shape.heads()));
        Architecture a = shape.architecture();
        require(
                shape.heads() % a.keyHeads() == 0 && a.keyHeads() % t.tensor() == 0,
                "--key-heads is %s, expected a divisor of --heads %s and a multiple of --tp %s"
                        .formatted(a.keyHeads(), shape.heads(), t.tensor()));
        require(
                shape.context() <= shape.positions(),
                "--context is %s, but the model has %s positions; give at most as many"
                        .formatted(shape.context(), shape.positions()));
        require(
                a.wide() % t.tensor() == 0,
                "--tp is %s, expected a divisor of the feed-forward part's width %s"
                        .formatted(t.tensor(), a.wide()));
        require(
                !a.rotary() || shape.headSize() % 2 == 0,
                ("--hidden %s of --heads %s is %s for each head, but positions turn pairs of"
                                + " elements; expected an even number")
                        .formatted(shape.hidden(), shape.heads(), shape.headSize()));
        require(
                !a.tied() || t.pipeline() == 1,
                ("--pp is %s, but the model's logits use its token embedding, which is on the"
                                + " first stage; leave out --pp, or use --model jccl or llama")
                        .formatted(t.pipeline()));
        require(
                a.kind() == Architecture.Kind.JCCL || shape.experts() == 0,
                "--experts is %s, but --model %s has none; leave out one"
                        .formatted(shape.experts(), a.kind().label()));
        require(
                t.pipeline() <= shape.layers(),
                "--pp is %s, expected at most --layers %s: each stage has a block or more"
                        .formatted(t.pipeline(), shape.layers()));
        require(
                batch % t.microBatches() == 0,
                ("--batch is %s, expected a multiple of %s micro-batches, --dp %s x --accumulate"
                                + " %s")
                        .formatted(batch, t.microBatches(), t.data(), t.accumulate()));
        int rows = batch / t.microBatches() * shape.context();
        require(
                !t.sequenceParallel() || t.tensor() > 1,
                "--sequence-parallel shares rows among tensor ranks, but --tp is "
                        + t.tensor()
                        + "; give --tp 2 or more");
        require(
                !t.sequenceParallel() || rows % t.tensor() == 0,
                ("--sequence-parallel needs a multiple of --tp %s rows in a micro-batch, but it"
                                + " has %s")
                        .formatted(t.tensor(), rows));
        require(
                t.expert() == 1 || shape.experts() > 0,
                "--ep is " + t.expert() + ", but the model has no experts; give --experts");
        require(
                t.data() % t.expert() == 0,
                ("--ep is %s, expected a divisor of --dp %s: experts are spread over ranks that"
                                + " see different samples")
                        .formatted(t.expert(), t.data()));
        boolean plain = t.compress() instanceof Compression.None;
        require(
                plain || t.data() > 1,
                "--compress is "
                        + t.compressLabel()
                        + ", but --dp is 1: no rank sends gradients; give --dp 2 or more");
        require(
                plain || !t.sharded(),
                "--compress is "
                        + t.compressLabel()
                        + ", which the gradient reducer does; with --zero, --offload or --bf16 or --fp16"
                        + " gradients are ZeRO's, which sends them in their own type; leave out one");
        require(
                shape.experts() % t.expert() == 0,
                "--ep is " + t.expert() + ", expected a divisor of --experts " + shape.experts());
        require(
                shape.experts() == 0 || shape.routing().choices() <= shape.experts(),
                "--router %s needs %s experts, but --experts is %s"
                        .formatted(
                                shape.routing().label(),
                                shape.routing().choices(),
                                shape.experts()));
        require(
                !shape.sharedExpert() || shape.experts() > 0,
                "--shared-expert needs experts, but the model has none; give --experts");
        MixtureSettings m = shape.mixture();
        require(
                !m.ofExperts() || shape.experts() > 0,
                m.expertFlags() + " is for experts, but the model has none; give --experts");
        require(
                !m.residual() || !shape.sharedExpert(),
                "--residual-expert and --shared-expert are both given; they are one expert in"
                        + " addition to the others, with and without learned weights, so leave out"
                        + " one");
        require(
                !m.sample() || shape.routing().samples(),
                "--router-sample draws a token's last expert, but with --router "
                        + shape.routing().label()
                        + (shape.routing().adapts()
                                ? " the second is used by chance; leave out one"
                                : " experts choose tokens; leave it out"));
        require(
                shape.experts() == 0 || shape.capacityFactor() > 0 || shape.routing().adapts(),
                ("--capacity-factor is %s, but with --router %s it determines how many tokens an"
                                + " expert takes and cannot adapt; expected more than 0")
                        .formatted(shape.capacityFactor(), shape.routing().label()));
    }

    private static void range(String name, int value, int least, int most) {
        require(
                value >= least && value <= most,
                name + " is " + value + ", expected " + least + " to " + most);
    }

    private static void require(boolean holds, String message) {
        if (!holds) {
            throw new IllegalArgumentException(message);
        }
    }
}
