package io.jccl.cli.plan;

import static io.jccl.cli.shell.Text.words;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.ModelParallel;
import io.jccl.offload.memplan.Recomputation;
import io.jccl.offload.memplan.Techniques;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.TypeConversionException;

/** The options that specify techniques: sharding, offload, recomputation, parallelism. */
final class TechniqueOptions {
    /** The options besides those of offload. */
    private static final List<String> OTHERS =
            words("--zero --recompute --pieces --tp --pp --cp --ep --chunks --whole-sequences");

    @Option(
            names = "--zero",
            paramLabel = "<0..3>",
            description =
                    "What is sharded over the GPUs: 1 optimizer state, 2 and gradients, 3 and"
                            + " parameters (default: 0).")
    private @Nullable Integer stage;

    @Option(
            names = "--offload",
            paramLabel = "<tier>",
            converter = TierOf.class,
            description =
                    "Where optimizer state, gradients and parameters are stored: none (on the device),"
                            + " host or nvme (default: none).")
    private @Nullable Tier offload;

    @Option(
            names = "--offload-optimizer",
            paramLabel = "<tier>",
            converter = TierOf.class,
            description = "The same for optimizer state only.")
    private @Nullable Tier offloadOptimizer;

    @Option(
            names = "--offload-gradients",
            paramLabel = "<tier>",
            converter = TierOf.class,
            description = "The same for gradients only.")
    private @Nullable Tier offloadGradients;

    @Option(
            names = "--offload-parameters",
            paramLabel = "<tier>",
            converter = TierOf.class,
            description = "The same for parameters only.")
    private @Nullable Tier offloadParameters;

    @Option(
            names = "--offload-activations",
            paramLabel = "<tier>",
            converter = TierOf.class,
            description = "The same for the activations kept for the backward pass.")
    private @Nullable Tier offloadActivations;

    @Option(
            names = "--recompute",
            paramLabel = "<what>",
            description =
                    "Recomputed activations: none, selective (the attention) or full (default:"
                            + " none).")
    private @Nullable Recomputation recomputation;

    @Option(
            names = "--pieces",
            paramLabel = "<count>",
            description = "Parts that a sharded or offloaded layer is fetched in (default: 1).")
    private @Nullable Integer pieces;

    @Option(
            names = "--tp",
            paramLabel = "<ways>",
            description = "Tensor-parallel degree (default: 1).")
    private @Nullable Integer tensor;

    @Option(
            names = "--pp",
            paramLabel = "<ways>",
            description = "Pipeline-parallel degree (default: 1).")
    private @Nullable Integer pipeline;

    @Option(
            names = "--whole-sequences",
            description = "Tensor parallelism without sequence parallelism.")
    private boolean wholeSequences;

    @Option(
            names = "--chunks",
            paramLabel = "<count>",
            description = "Parts of a pipeline stage that take turns (default: 1).")
    private @Nullable Integer chunks;

    @Option(
            names = "--cp",
            paramLabel = "<ways>",
            description = "Context-parallel degree (default: 1).")
    private @Nullable Integer context;

    @Option(
            names = "--ep",
            paramLabel = "<ways>",
            description = "Expert-parallel degree (default: 1).")
    private @Nullable Integer expert;

    /** Throws if an option is given although a search chooses the techniques. */
    void refuse(CommandLine line, String search) {
        List<String> given =
                line.getParseResult().matchedOptions().stream()
                        .map(o -> o.names()[0])
                        .filter(n -> n.startsWith("--offload") || OTHERS.contains(n))
                        .toList();
        if (!given.isEmpty()) {
            throw new ParameterException(
                    line,
                    search
                            + " chooses the techniques, and "
                            + given.getFirst()
                            + " sets one; leave out one of the two");
        }
    }

    /** The techniques that the options specify; what is offloaded must have a place to go. */
    Techniques techniques(CommandLine line, Machine machine) {
        if (wholeSequences && (tensor == null || tensor == 1)) {
            throw new ParameterException(
                    line,
                    "--whole-sequences is a kind of tensor parallelism, of which there is none; add"
                            + " --tp");
        }
        Tier state = offload == null ? Tier.DEVICE : offload;
        Tier forOptimizer = offloadOptimizer == null ? state : offloadOptimizer;
        // Gradients follow an optimizer moved to a faster tier.
        Tier near = forOptimizer.compareTo(state) < 0 ? forOptimizer : state;
        Tier forGradients = offloadGradients == null ? near : offloadGradients;
        Tier forParameters = offloadParameters == null ? state : offloadParameters;
        Tier forActivations = offloadActivations == null ? Tier.DEVICE : offloadActivations;
        for (Tier tier : List.of(forOptimizer, forGradients, forParameters, forActivations)) {
            if (machine.capacity(tier) == 0) {
                boolean host = tier == Tier.PINNED;
                throw new ParameterException(
                        line,
                        "something is offloaded to "
                                + (host ? "the host" : "NVMe")
                                + ", of which there is none; specify the amount with "
                                + (host
                                        ? "--host-memory"
                                        : "--nvme-memory, such as --nvme-memory 4TB"));
            }
        }
        return new Techniques(
                stage == null ? 0 : stage,
                forOptimizer,
                forGradients,
                forParameters,
                forActivations,
                recomputation == null ? Recomputation.NONE : recomputation,
                pieces == null ? 1 : pieces,
                new ModelParallel(
                        tensor == null ? 1 : tensor,
                        !wholeSequences,
                        pipeline == null ? 1 : pipeline,
                        chunks == null ? 1 : chunks,
                        context == null ? 1 : context,
                        expert == null ? 1 : expert));
    }

    /** A tier by its name on the command line. */
    static final class TierOf implements ITypeConverter<Tier> {
        @Override
        public Tier convert(String value) {
            return switch (value.toLowerCase(Locale.ROOT)) {
                case "none", "device" -> Tier.DEVICE;
                case "host", "cpu", "pinned" -> Tier.PINNED;
                case "nvme" -> Tier.NVME;
                default ->
                        throw new TypeConversionException(
                                "tier '" + value + "' is unknown, expected none, host or nvme");
            };
        }
    }
}
