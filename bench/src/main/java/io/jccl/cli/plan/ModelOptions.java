package io.jccl.cli.plan;

import io.jccl.cli.shell.Amounts;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.Presets;
import io.jccl.offload.memplan.ScalingRule;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** The options that specify a model: by name, by number of parameters, or by shape. */
final class ModelOptions {
    @Option(
            names = "--model",
            paramLabel = "<name>",
            description = "A known model, such as gpt3-175b; an unknown name lists them.")
    private @Nullable String model;

    @Option(
            names = "--params",
            paramLabel = "<count>",
            converter = Amounts.Count.class,
            description = "Or its number of parameters, such as 1.3B, with a shape like GPT-3's.")
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
            description = "Attention heads (default: one per 128 of the hidden size).")
    private @Nullable Integer heads;

    @Option(
            names = "--ffn",
            paramLabel = "<factor>",
            description = "Width of the MLP divided by the hidden size (default: 4).")
    private @Nullable Double ffn;

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

    /** Name of a known model; empty if the model was given in another way. */
    String name() {
        return model == null ? "" : model;
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
        if (parameters != null) {
            ways.add("--params " + Amounts.parameters(parameters));
        }
        if (layers != null || hidden != null || heads != null) {
            ways.add(
                    layers != null
                            ? "--layers " + layers
                            : hidden != null ? "--hidden " + hidden : "--heads " + heads);
        }
        if (ways.size() > 1) {
            throw new ParameterException(
                    line,
                    ways.get(0)
                            + " and "
                            + ways.get(1)
                            + " both say which model; give one of --model, --params, or --layers and"
                            + " --hidden");
        }
        if (model != null) {
            if (ffn != null || untied) {
                throw new ParameterException(
                        line,
                        "--model "
                                + model
                                + " already says "
                                + (untied ? "whether embeddings are tied" : "how wide the MLP is")
                                + "; leave out "
                                + (untied ? "--untied" : "--ffn")
                                + ", or give the shape with --layers and --hidden");
            }
            Model known = Presets.of(model);
            return Model.of(
                    known.layers(),
                    known.hidden(),
                    known.heads(),
                    vocabulary == null ? known.vocabulary() : vocabulary,
                    sequence == null ? known.sequence() : sequence,
                    known.ffn(),
                    known.tied());
        }
        int v = vocabulary == null ? Model.GPT_VOCABULARY : vocabulary;
        int s = sequence == null ? Model.GPT_SEQUENCE : sequence;
        double f = ffn == null ? Model.GPT_FFN : ffn;
        if (ways.isEmpty() && !optional) {
            throw new ParameterException(
                    line,
                    "no model is given, expected --model with a name such as gpt3-175b, --params with"
                            + " a number such as 1.3B, or --layers and --hidden; or --search for the"
                            + " largest one");
        }
        if (layers == null && hidden == null && heads == null) {
            // Checked here, since a rule accepts any number.
            Model unit = Model.of(96, 12_288, 96, v, s, f, !untied);
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
        int a = heads == null ? Math.max(1, Math.round(hidden / 128f)) : heads;
        return Model.of(layers, hidden, a, v, s, f, !untied);
    }
}
