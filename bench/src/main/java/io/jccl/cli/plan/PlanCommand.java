package io.jccl.cli.plan;

import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Version;
import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Batch;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.OptimizerKind;
import io.jccl.offload.memplan.Overheads;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.memplan.Presets;
import io.jccl.offload.memplan.Recomputation;
import io.jccl.offload.memplan.ScalingRule;
import io.jccl.offload.memplan.Techniques;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;
import picocli.CommandLine.TypeConversionException;

/**
 * Plans memory: what training a model needs per tier, whether it fits, and the largest model that
 * does.
 */
@Command(
        mixinStandardHelpOptions = true,
        sortOptions = false,
        usageHelpAutoWidth = true,
        versionProvider = Version.class,
        footer = {
            "",
            "Memory: 16G and 16GiB are powers of 1024, 16GB of 1000.",
            "Try: jccl plan --params 13B --gpus 1 --device-memory 32G --host-memory 1.5TB --auto",
            "Exit status: 0; 2 for a mistake in the arguments; 4 if --require is given and the model"
                    + " does not fit.",
        })
public final class PlanCommand implements Callable<Integer> {
    /** Number of suggestions shown. */
    private static final int NEXT = 5;

    /** Larger numbers of machines are not considered. */
    private static final int MACHINES = 1 << 14;

    @Spec private @Nullable CommandSpec spec;

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

    @Option(
            names = "--micro-batch",
            paramLabel = "<samples>",
            description = "Samples per GPU and micro-batch (default: 1).")
    private int micro = 1;

    @Option(
            names = "--accumulate",
            paramLabel = "<count>",
            description = "Micro-batches per step (default: 1).")
    private int accumulation = 1;

    @Option(
            names = "--precision",
            paramLabel = "<name>",
            converter = PrecisionOf.class,
            description =
                    "fp32; fp16 or bf16: mixed, with float32 master parameters; bf16-states: with"
                            + " moments in bfloat16; bf16-pure: all in bfloat16 (default: bf16).")
    private Precision precision = Precision.BF16;

    @Option(
            names = "--optimizer",
            paramLabel = "<name>",
            converter = OptimizerOf.class,
            description = "adam, adamw, sgd-momentum or sgd (default: adam).")
    private OptimizerKind optimizer = OptimizerKind.ADAM;

    @Option(
            names = {"-g", "--gpus"},
            paramLabel = "<count>",
            description = "GPUs per machine (default: 8).")
    private int gpus = 8;

    @Option(
            names = "--device-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Memory of each GPU (default: 80G).")
    private long deviceMemory = 80L << 30;

    @Option(
            names = "--host-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Memory of each machine (default: 1T).")
    private long hostMemory = 1L << 40;

    @Option(
            names = "--nvme-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "NVMe drives of each machine (default: 0).")
    private long nvme;

    @Option(
            names = "--machines",
            paramLabel = "<count>",
            description = "Identical machines (default: 1).")
    private int machines = 1;

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
            converter = RecomputationOf.class,
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
            names = "--auto",
            description = "Use the fewest and cheapest techniques under which the model fits.")
    private boolean auto;

    @Option(
            names = "--search",
            description =
                    "Show the largest model under every combination of techniques that allows a"
                            + " larger one than all cheaper ones.")
    private boolean search;

    @Option(names = "--all", description = "With --search: show every combination.")
    private boolean all;

    @Option(names = "--model-parallel", description = "Also try tensor and pipeline parallelism.")
    private boolean modelParallel;

    @Option(names = "--explain", description = "Also print the formulas with their sources.")
    private boolean explain;

    @Mixin private JsonOption json = new JsonOption();

    @Option(names = "--require", description = "Fail with status 4 unless the model fits.")
    private boolean require;

    @Option(
            names = "--prefetch",
            paramLabel = "<layers>",
            description = "Layers prefetched (default: 1).")
    private int prefetch = Overheads.DEFAULT.prefetch();

    @Option(
            names = "--runtime-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Memory of each GPU for the runtime and its kernels (default: 1343M).")
    private long runtime = Overheads.DEFAULT.runtime();

    @Option(
            names = "--fragmentation",
            paramLabel = "<part>",
            description =
                    "Fraction of device and host memory lost to fragmentation (default: 0.05).")
    private double fragmentation = Overheads.POOL_WASTE;

    @Option(
            names = "--host-reserve",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Host memory for the system and the programs (default: 4G).")
    private long hostReserve = Overheads.DEFAULT.hostReserve();

    @Option(
            names = "--nvme-copies",
            paramLabel = "<1|2>",
            description =
                    "Versions of parameters and state on NVMe; with 2 the last complete step survives a"
                            + " crash, which is what ZeroOptimizer keeps (default: 2).")
    private int nvmeCopies = Overheads.DEFAULT.nvmeCopies();

    @Override
    public Integer call() throws IOException {
        CommandLine line = commandLine();
        json.checkWritable(line);
        Job job = job(line);
        Techniques given = techniques(line, job.machine());
        MemoryPlanner.Space space =
                new MemoryPlanner.Space(
                        job.machine().host() > 0, job.machine().nvme() > 0, modelParallel);
        PrintWriter out = line.getOut();
        if (search) {
            List<Plan> found = MemoryPlanner.search(job, space);
            List<Plan> shown = all ? found : MemoryPlanner.frontier(found);
            json.text(out).println(PlanText.search(job, found.size(), shown, all, explain));
            out.flush();
            json.write(out, () -> PlanJson.search(job, found.size(), shown));
            return require && found.isEmpty() ? 4 : 0;
        }
        Techniques techniques = given;
        if (auto) {
            List<Plan> fitting = MemoryPlanner.fitting(job, space);
            if (!fitting.isEmpty()) {
                techniques = fitting.getFirst().techniques();
            }
        }
        Plan plan = MemoryPlanner.plan(job, techniques);
        List<Model> ladder = ScalingRule.like(job.model()).ladder(Model.MAX_PARAMETERS);
        List<Plan> worth = MemoryPlanner.frontier(MemoryPlanner.search(job, space));
        List<Plan> next = plan.fits() ? List.of() : MemoryPlanner.next(job, techniques, space);
        PlanText.Answer answer =
                new PlanText.Answer(
                        name(),
                        plan,
                        MemoryPlanner.largest(job, techniques, ladder),
                        worth.isEmpty() ? null : worth.getLast(),
                        next.stream().limit(NEXT).toList(),
                        plan.fits() || !next.isEmpty() ? null : onMore(job, techniques, space));
        json.text(out).println(PlanText.plan(answer, explain));
        out.flush();
        json.write(out, () -> PlanJson.plan(answer));
        return require && !plan.fits() ? 4 : 0;
    }

    /** The first plan that fits on 2, 4, 8, ... times as many machines; null if none does. */
    private static @Nullable Plan onMore(
            Job job, Techniques techniques, MemoryPlanner.Space space) {
        Machine m = job.machine();
        for (int n = 2 * m.machines(); n <= MACHINES; n *= 2) {
            Machine more = new Machine(m.gpus(), m.device(), m.host(), m.nvme(), n);
            List<Plan> next = MemoryPlanner.next(job.with(more), techniques, space);
            if (!next.isEmpty()) {
                return next.getFirst();
            }
        }
        return null;
    }

    private String name() {
        return model != null ? model : "";
    }

    private Job job(CommandLine line) {
        return new Job(
                model(line),
                new Batch(micro, accumulation),
                precision,
                optimizer,
                new Machine(gpus, deviceMemory, hostMemory, nvme, machines),
                new Overheads(
                        runtime,
                        fragmentation,
                        hostReserve,
                        fragmentation,
                        Overheads.FILE_SYSTEM_WASTE,
                        nvmeCopies,
                        prefetch));
    }

    private Model model(CommandLine line) {
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
        if (ways.isEmpty() && !search) {
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

    private Techniques techniques(CommandLine line, Machine machine) {
        List<String> given =
                line.getParseResult().matchedOptions().stream()
                        .map(o -> o.names()[0])
                        .filter(n ->
                                n.startsWith("--offload")
                                        || List.of(
                                                        "--zero",
                                                        "--recompute",
                                                        "--pieces",
                                                        "--tp",
                                                        "--pp")
                                                .contains(n))
                        .toList();
        if ((auto || search) && !given.isEmpty()) {
            throw new ParameterException(
                    line,
                    (auto ? "--auto" : "--search")
                            + " chooses the techniques, and "
                            + given.getFirst()
                            + " says one; leave out one of the two");
        }
        if (auto && search) {
            throw new ParameterException(
                    line, "--auto and --search are both given; --search looks for another model");
        }
        if (all && !search) {
            throw new ParameterException(line, "--all goes with --search; add it");
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
                                + ", of which there is none; say how much there is with "
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
                tensor == null ? 1 : tensor,
                pipeline == null ? 1 : pipeline);
    }

    private CommandLine commandLine() {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        return spec.commandLine();
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

    /** A precision by its name. */
    static final class PrecisionOf implements ITypeConverter<Precision> {
        @Override
        public Precision convert(String value) {
            try {
                return Precision.of(value);
            } catch (IllegalArgumentException e) {
                throw new TypeConversionException(e.getMessage());
            }
        }
    }

    /** An optimizer by its name. */
    static final class OptimizerOf implements ITypeConverter<OptimizerKind> {
        @Override
        public OptimizerKind convert(String value) {
            try {
                return OptimizerKind.of(value);
            } catch (IllegalArgumentException e) {
                throw new TypeConversionException(e.getMessage());
            }
        }
    }

    /** A recomputation by its name. */
    static final class RecomputationOf implements ITypeConverter<Recomputation> {
        @Override
        public Recomputation convert(String value) {
            try {
                return Recomputation.of(value);
            } catch (IllegalArgumentException e) {
                throw new TypeConversionException(e.getMessage());
            }
        }
    }
}
