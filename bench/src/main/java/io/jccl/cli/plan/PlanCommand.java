package io.jccl.cli.plan;

import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Subcommand;
import io.jccl.offload.memplan.AttentionKernel;
import io.jccl.offload.memplan.Batch;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.LowRank;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.OptimizerKind;
import io.jccl.offload.memplan.Overheads;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.memplan.ScalingRule;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.memplan.TrainingSystem;
import io.jccl.offload.timeplan.Hardware;
import io.jccl.offload.timeplan.StepTime;
import io.jccl.offload.timeplan.TimePlanner;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/**
 * Plans memory: what training a model needs per tier, whether it fits, and the largest model that
 * does.
 */
@Command(
        footer = {
            "",
            "Memory: 16G and 16GiB are powers of 1024, 16GB of 1000.",
            "Try: jccl plan --params 13B --gpus 1 --device-memory 32G --host-memory 1.5TB --auto",
            "Exit status: 0; 2 for a mistake in the arguments; 4 if --require is given and the model"
                    + " does not fit.",
        })
public final class PlanCommand extends Subcommand {
    /** Number of suggestions shown. */
    private static final int NEXT = 5;

    /** Larger numbers of machines are not considered. */
    private static final int MACHINES = 1 << 14;

    @Mixin private ModelOptions model = new ModelOptions();

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
            description =
                    "fp32; fp16 or bf16: mixed, with float32 master parameters; fp8: bf16 with products"
                            + " in 8-bit floats; bf16-states: with moments in bfloat16; bf16-pure:"
                            + " all in bfloat16 (default: bf16).")
    private Precision precision = Precision.BF16;

    @Option(
            names = "--optimizer",
            paramLabel = "<name>",
            description =
                    "adam, adamw, lion, lamb, adam8bit, adafactor, sgd-momentum, which jccl train"
                            + " calls sgd, or sgd without momentum (default: adam).")
    private OptimizerKind optimizer = OptimizerKind.ADAM;

    @Option(
            names = "--attention",
            paramLabel = "<math|flash|flash3>",
            description =
                    "math, which keeps the scores, flash, or flash3, the kernels for Hopper and later"
                            + " (default: math for models with dropout, flash for the others).")
    private @Nullable AttentionKernel kernel;

    @Option(
            names = "--lora",
            defaultValue = "0",
            paramLabel = "<rank>",
            description =
                    "Train adapters of this rank, not the model (LoRA); 0: the whole model (default:"
                            + " ${DEFAULT-VALUE}).")
    private int lora;

    @Option(
            names = "--lora-matrices",
            paramLabel = "<all|qv>",
            description =
                    "Matrices with adapters: all of attention, MLP and experts, or queries and values"
                            + " (default: all).")
    private LowRank.@Nullable Matrices adapted;

    @Option(
            names = "--system",
            paramLabel = "<name>",
            description =
                    "Whose code trains the model: jccl, deepspeed, fsdp or megatron (default: jccl).")
    private TrainingSystem system = TrainingSystem.JCCL;

    @Option(
            names = "--fp32-gradients",
            description = "Gradients are accumulated in float32, whatever the precision.")
    private boolean wideGradients;

    @Option(
            names = {"-g", "--gpus"},
            paramLabel = "<count>",
            description = "GPUs per machine (default: those of --machine, or 8).")
    private @Nullable Integer gpus;

    @Option(
            names = "--device-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Memory of each GPU (default: that of --machine, or 80G).")
    private @Nullable Long deviceMemory;

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
            names = {"--machines", "--nodes"},
            paramLabel = "<count>",
            description = "Identical machines (default: 1).")
    private int machines = 1;

    @Mixin private MachineOptions described = new MachineOptions();

    @Mixin private HtmlOption html = new HtmlOption();

    @Mixin private TechniqueOptions technique = new TechniqueOptions();

    @Option(
            names = "--auto",
            description = "Use the fewest and cheapest techniques under which the model fits.")
    private boolean auto;

    @Option(
            names = "--search",
            description =
                    "Show the largest model under every combination of techniques that allows a"
                            + " larger one than all cheaper ones; with --machine, rank those under"
                            + " which the model fits by predicted speed.")
    private boolean search;

    @Option(names = "--all", description = "With --search: show every combination.")
    private boolean all;

    @Option(
            names = "--model-parallel",
            description = "Also try tensor, pipeline, context and expert parallelism.")
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
        CommandLine line = line();
        OutputFiles outputs = new OutputFiles(line).add(json).add(html);
        outputs.checkNotRead();
        outputs.checkNotRead(model.files());
        Hardware hardware = described.hardware(line);
        Job job = job(hardware);
        checkCombination(hardware);
        Techniques given = technique.techniques(line, job.machine());
        MemoryPlanner.Space space =
                new MemoryPlanner.Space(
                        job.machine().host() > 0, job.machine().nvme() > 0, modelParallel);
        PrintWriter out = out();
        if (search && hardware != null) {
            return rank(job, hardware);
        }
        require(!html.isAsked(), "--html draws a search by speed; add --search and --machine");
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
        List<Plan> worth = MemoryPlanner.frontier(MemoryPlanner.search(job, techniques, space));
        List<Plan> next = plan.fits() ? List.of() : MemoryPlanner.next(job, techniques, space);
        PlanText.Answer answer =
                new PlanText.Answer(
                        model.name(),
                        plan,
                        MemoryPlanner.largest(job, techniques, ladder),
                        worth.isEmpty() ? null : worth.getLast(),
                        next.stream().limit(NEXT).toList(),
                        plan.fits() || !next.isEmpty() ? null : onMore(job, techniques, space));
        StepTime time = hardware == null ? null : predict(plan, hardware);
        json.text(out).println(PlanText.plan(answer, explain));
        if (time != null && hardware != null) {
            json.text(out).println(TimeText.step(time, hardware));
        }
        out.flush();
        json.write(out, () -> PlanJson.plan(answer, time));
        return require && !plan.fits() ? 4 : 0;
    }

    private StepTime predict(Plan plan, Hardware hardware) {
        try {
            return TimePlanner.predict(plan, hardware, described.overlap());
        } catch (IllegalArgumentException e) {
            throw mistake(e);
        }
    }

    private int rank(Job job, Hardware hardware) throws IOException {
        List<StepTime> ranked;
        try {
            ranked =
                    SpeedSearch.search(
                            job,
                            new MemoryPlanner.Space(
                                    job.machine().host() > 0, job.machine().nvme() > 0, true),
                            hardware,
                            described.overlap());
        } catch (IllegalArgumentException e) {
            throw mistake(e);
        }
        PrintWriter out = out();
        json.text(out).println(TimeText.ranking(ranked, hardware, all).strip());
        out.flush();
        json.write(out, () -> PlanJson.ranking(job, ranked));
        html.write(() -> SpeedSearch.html(job, ranked, hardware));
        return require && ranked.isEmpty() ? 4 : 0;
    }

    private void checkCombination(@Nullable Hardware hardware) {
        if (auto || search) {
            technique.refuse(line(), auto ? "--auto" : "--search");
        }
        require(
                !auto || !search,
                "--auto and --search are both given; --search looks for another model");
        require(!all || search, "--all goes with --search; add it");
        require(
                !explain || !search || hardware == null,
                "--explain prints the formulas of a memory plan, and --search with --machine ranks by"
                        + " speed; leave out one of the two");
        require(
                adapted == null || lora != 0,
                "--lora-matrices selects what has adapters, and there are none; add --lora");
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

    private Job job(@Nullable Hardware hardware) {
        Model of = model.model(line(), search && hardware == null);
        int each = gpus != null ? gpus : hardware == null ? 8 : hardware.gpus();
        if (hardware != null && each > hardware.gpus()) {
            throw mistake(hardware.tooFew(each));
        }
        long bytes =
                deviceMemory != null
                        ? deviceMemory
                        : hardware == null ? 80L << 30 : hardware.bytes();
        return new Job(
                of,
                new Batch(micro, accumulation),
                precision,
                optimizer,
                new Machine(each, bytes, hostMemory, nvme, machines),
                new Overheads(
                        runtime,
                        fragmentation,
                        hostReserve,
                        fragmentation,
                        Overheads.FILE_SYSTEM_WASTE,
                        nvmeCopies,
                        prefetch),
                system.withGradient(wideGradients ? 4 : system.gradient()),
                kernel == null ? AttentionKernel.of(of) : kernel,
                new LowRank(lora, adapted == null ? LowRank.Matrices.ALL : adapted));
    }
}
