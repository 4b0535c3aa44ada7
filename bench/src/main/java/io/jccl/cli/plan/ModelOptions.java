package io.jccl.cli.plan;

import io.jccl.cli.shell.Amounts;
import io.jccl.offload.memplan.Attention;
import io.jccl.offload.memplan.FeedForward;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.Norms;
import io.jccl.offload.memplan.Presets;
import io.jccl.offload.memplan.ScalingRule;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** The options that specify a model: by name, by file, by number of parameters, or by shape. */
final class ModelOptions {
    @Option(
            names = "--model",
            paramLabel = "<name>",
            description = "A known model, such as gpt3-175b; an unknown name lists them.")
    private @Nullable String model;

    @Option(
            names = "--config",
            paramLabel = "<file>",
            description = "Or the config.json of a Hugging Face checkpoint.")
    private @Nullable Path config;

    @Option(
            names = "--params",
            paramLabel = "<count>",
            converter = Amounts.Count.class,
            description =
                    "Or its number of parameters, such as 1.3B, with a shape like GPT-3's, or in"
                            + " addition to its shape.")
    private @Nullable Long parameters;

    @Option(
            names = "--layers",
            paramLabel = "<count>",
            description = "Or its shape: number of layers.")
    private @Nullable Integer layers;

    @Option(names = "--hidden", paramLabel = "<size>", description = "Hidden size.")
    private @Nullable Integer hidden;

    @Option(
            names = "--heads",
            paramLabel = "<count>",
            description = "Attention heads (default: as many as make heads of about 128).")
    private @Nullable Integer heads;

    @Option(
            names = "--kv-heads",
            paramLabel = "<count>",
            description = "Key and value heads (default: as many as heads).")
    private @Nullable Integer groups;

    @Option(
            names = "--ffn",
            paramLabel = "<factor>",
            description = "Width of the MLP divided by the hidden size (default: 4).")
    private @Nullable Double ffn;

    @Option(names = "--gated", description = "The MLP has a gate: three matrices, as in Llama.")
    private boolean gated;

    @Option(
            names = "--rotary",
            description =
                    "Positions without parameters; RMSNorm, no biases and no dropout, as in Llama.")
    private boolean rotary;

    @Option(names = "--untied", description = "The output matrix is not tied to the embedding.")
    private boolean untied;

    @Option(
            names = "--vocab",
            paramLabel = "<size>",
            description = "Vocabulary (default: the model's, or 51200).")
    private @Nullable Integer vocabulary;

    @Option(
            names = "--context",
            paramLabel = "<tokens>",
            description = "Tokens per sample (default: the model's, or 2048).")
    private @Nullable Integer sequence;

    /** Name of a known model, or its file; empty if the model was given in another way. */
    String name() {
        return model != null ? model : config != null ? config.toString() : "";
    }

    /** The files that the options name. */
    List<Path> files() {
        return config == null ? List.of() : List.of(ConfigFile.in(config));
    }

    /**
     * The model that the options specify.
     *
     * @param optional whether no option means a model like GPT-3, instead of an error
     */
    Model model(CommandLine line, boolean optional) {
        List<String> ways = new ArrayList<>();
        if (model != null) {
            ways.add("--model " + model);
        }
        if (config != null) {
            ways.add("--config " + config);
        }
        boolean shape = layers != null || hidden != null || heads != null || groups != null;
        if (shape) {
            ways.add(
                    layers != null
                            ? "--layers " + layers
                            : hidden != null
                                    ? "--hidden " + hidden
                                    : heads != null ? "--heads " + heads : "--kv-heads " + groups);
        }
        // Beside a shape it is the exact size of that.
        if (parameters != null && (ways.isEmpty() || !shape)) {
            ways.add("--params " + Amounts.parameters(parameters));
        }
        if (ways.size() > 1) {
            throw new ParameterException(
                    line,
                    ways.get(0)
                            + " and "
                            + ways.get(1)
                            + " both specify the model; give one of --model, --config, --params, or"
                            + " --layers and --hidden");
        }
        Model known =
                model != null ? Presets.of(model) : config != null ? ConfigFile.read(config) : null;
        if (known != null) {
            String unfit =
                    untied
                            ? "--untied"
                            : ffn != null
                                    ? "--ffn"
                                    : gated ? "--gated" : rotary ? "--rotary" : null;
            if (unfit != null) {
                throw new ParameterException(
                        line,
                        ways.getFirst()
                                + " already specifies "
                                + (untied
                                        ? "whether embeddings are tied"
                                        : rotary && unfit.equals("--rotary")
                                                ? "the positions"
                                                : "the MLP")
                                + "; leave out "
                                + unfit
                                + ", or give the shape with --layers and --hidden");
            }
            return known.with(
                    vocabulary == null ? known.vocabulary() : vocabulary,
                    sequence == null ? known.sequence() : sequence);
        }
        int v = vocabulary == null ? Model.GPT_VOCABULARY : vocabulary;
        int s = sequence == null ? Model.GPT_SEQUENCE : sequence;
        if (ways.isEmpty() && !optional) {
            throw new ParameterException(
                    line,
                    "no model is given, expected --model with a name such as gpt3-175b, --config with"
                            + " a model's config.json, --params with a number such as 1.3B, or"
                            + " --layers and --hidden; or --search for the largest one");
        }
        if (!shape) {
            Model unit = shaped(96, 12_288, 96, 96, v, s);
            ScalingRule rule = ScalingRule.like(unit);
            return parameters == null ? unit : rule.model(parameters);
        }
        if (layers == null || hidden == null) {
            throw new ParameterException(
                    line,
                    ways.getFirst()
                            + " is given without "
                            + (layers == null ? "--layers" : "--hidden")
                            + "; a shape takes both --layers and --hidden");
        }
        if (heads != null && heads > 0 && hidden % heads != 0) {
            throw new ParameterException(
                    line, "--heads is " + heads + ", expected a divisor of --hidden " + hidden);
        }
        int a = heads == null ? defaultHeads(Math.max(1, hidden)) : heads;
        Model found = shaped(layers, hidden, a, groups == null ? a : groups, v, s);
        return parameters == null ? found : found.withParameters(parameters);
    }

    private static int defaultHeads(int hidden) {
        Model gpt = ScalingRule.GPT.like();
        return gpt.attention().scaled(gpt.hidden(), hidden).heads();
    }

    private Model shaped(int l, int h, int a, int kv, int v, int s) {
        Attention.Grouped gpt = Attention.Grouped.gpt(a, h);
        double factor = ffn == null ? Model.GPT_FFN : ffn;
        return Model.of(
                l,
                h,
                v,
                s,
                new Attention.Grouped(a, kv, gpt.headSize(), !rotary, !rotary, false),
                new FeedForward(factor * h, gated, !rotary),
                null,
                rotary ? Norms.LLAMA : Norms.GPT,
                !rotary,
                !untied,
                !rotary);
    }
}
