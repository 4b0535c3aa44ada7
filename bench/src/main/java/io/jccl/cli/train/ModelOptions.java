package io.jccl.cli.train;

import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.train.TrainOptions.require;

import io.jccl.train.Architecture;
import io.jccl.train.Architecture.Kind;
import io.jccl.train.GptShape;
import io.jccl.train.ModelConfig;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Options of {@code train} for the kind and the size of the model. */
final class ModelOptions {
    private static final int LAYERS = 4;
    private static final int HIDDEN = 64;
    private static final int HEADS = 4;

    @Option(
            names = "--model",
            paramLabel = "<jccl|gpt2|llama>",
            description =
                    "Type of its blocks: JCCL's own without gains and biases, GPT-2's, or Llama's"
                            + " (default: jccl, or that of --load).")
    private @Nullable String kind;

    @Option(
            names = "--layers",
            paramLabel = "<n>",
            description = "Blocks of the model (default: 4, or that of --load).")
    private @Nullable Integer layers;

    @Option(
            names = "--hidden",
            paramLabel = "<n>",
            description = "Its width (default: 64, or that of --load).")
    private @Nullable Integer hidden;

    @Option(
            names = "--heads",
            paramLabel = "<n>",
            description =
                    "Attention heads, a divisor of the width (default: 4, or that of --load).")
    private @Nullable Integer heads;

    @Option(
            names = "--key-heads",
            paramLabel = "<n>",
            description =
                    "Heads of keys and values with --model llama, a divisor of --heads (default:"
                            + " --heads, or that of --load).")
    private @Nullable Integer keyHeads;

    @Option(
            names = "--context",
            defaultValue = "32",
            paramLabel = "<n>",
            description = "Tokens of a sequence (default: ${DEFAULT-VALUE}).")
    int context;

    /** The model whose size is taken, and where it is from. */
    private @Nullable GptShape loaded;

    private @Nullable Path from;

    /**
     * Takes the size of a model in the format of transformers, if a folder has one.
     *
     * @param path of {@code --load}; null without
     */
    void load(@Nullable Path path) throws IOException {
        if (path != null && ModelConfig.isIn(path)) {
            loaded = ModelConfig.read(path);
            from = path;
        }
    }

    /**
     * The model without experts.
     *
     * @param tokens of the text's vocabulary
     */
    GptShape shape(int tokens) {
        TrainOptions.range("--context", context, 2, 1 << 14);
        Kind given = kind == null ? null : Kind.of(kind);
        GptShape l = loaded;
        if (l != null) {
            Architecture a = l.architecture();
            agrees("--model", given == null ? null : given.label(), a.kind().label());
            agrees("--layers", layers, l.layers());
            agrees("--hidden", hidden, l.hidden());
            agrees("--heads", heads, l.heads());
            agrees("--key-heads", keyHeads, a.keyHeads());
            require(
                    tokens <= l.vocabulary(),
                    format(
                            "the text has a vocabulary of %s tokens, but the model in '%s' has"
                                    + " %s; give the model's --tokenizer",
                            tokens, from, l.vocabulary()));
            return new GptShape(l.layers(), l.hidden(), l.heads(), context, l.vocabulary(), a);
        }
        int width = Objects.requireNonNullElse(hidden, HIDDEN);
        int all = Objects.requireNonNullElse(heads, HEADS);
        int blocks = Objects.requireNonNullElse(layers, LAYERS);
        TrainOptions.range("--layers", blocks, 1, 1000);
        TrainOptions.range("--hidden", width, 4, 1 << 14);
        TrainOptions.range("--heads", all, 1, width);
        Kind chosen = given == null ? Kind.JCCL : given;
        Architecture a = Architecture.of(chosen, width, all);
        if (keyHeads != null) {
            require(
                    chosen == Kind.LLAMA,
                    format(
                            "--key-heads is %s, but --model is %s; give --model llama, or leave"
                                    + " out --key-heads",
                            keyHeads, chosen.label()));
            TrainOptions.range("--key-heads", keyHeads, 1, all);
            a = a.withKeyHeads(keyHeads);
        }
        return new GptShape(blocks, width, all, context, tokens, a);
    }

    private void agrees(String name, @Nullable Object given, Object there) {
        if (given != null && !given.equals(there)) {
            throw new IllegalArgumentException(
                    format(
                            "%s is %s, but the model in '%s' has %s; leave out %s",
                            name, given, from, there, name));
        }
    }
}
