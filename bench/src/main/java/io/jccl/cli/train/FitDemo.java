package io.jccl.cli.train;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.report.Page;
import io.jccl.cli.doctor.Hardware;
import io.jccl.cli.doctor.Machine;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Scratch;
import io.jccl.cli.shell.Subcommand;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.train.fit.Experiment;
import io.jccl.train.fit.Settings;
import io.jccl.train.fit.TechniqueSet;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/**
 * {@code jccl fit-demo}: the largest model that trains, with each technique switched off in turn.
 */
@Command(
        footer = {
            "",
            "On the CPU a rank's device is a capped part of host memory; with --device cuda it is a"
                    + " GPU.",
            "Exit status: 0; 1 if training failed or did not learn; 2 for a mistake in the"
                    + " arguments, or budgets too small for one block.",
        })
public final class FitDemo extends Subcommand {
    /** Defaults with {@code --quick}. */
    private static final long QUICK_DEVICE = 640L << 10;

    private static final int QUICK_HIDDEN = 32;
    private static final int QUICK_BATCH = 16;
    private static final int QUICK_STEPS = 2;

    private static final long DEVICE = 4L << 20;
    private static final int HIDDEN = 64;
    private static final int BATCH = 32;
    private static final int CONTEXT = 8;
    private static final int STEPS = 3;
    private static final int RANKS = 2;
    private static final double RATE = 0.003;

    /** From this width on the loss grows at that rate. */
    private static final int WIDE = 256;

    private static final double WIDE_RATE = 0.0003;

    // Of a model that keeps a GPU busy; samples are those of a rank's micro-batch.
    private static final int GPU_HIDDEN = 1024;
    private static final int GPU_SAMPLES = 8;
    private static final int GPU_CONTEXT = 256;

    /** Of what is free; the rest is for the libraries, the drive's other files and the JVM. */
    private static final double USABLE = 0.9;

    /** 330 GB for 8 GPUs of 16 GiB is 2.4 times as much, for two ranks 4.8. */
    private static final double HOST_PER_DEVICES = 2.5;

    /** So that ZeRO's stages differ on the drive too: 24 bytes per parameter. */
    private static final double NVME_PER_HOST = 5;

    @Option(
            names = "--device",
            defaultValue = "host",
            paramLabel = "<host|cuda>",
            description =
                    "What the models compute on; with cuda each rank has a GPU (default:"
                            + " ${DEFAULT-VALUE}).")
    private TrainOptions.Where where = TrainOptions.Where.host;

    @Option(
            names = {"-g", "--ranks"},
            paramLabel = "<n>",
            description =
                    "Ranks, as threads of this process (default: 2; with --device cuda the number"
                            + " of GPUs).")
    private @Nullable Integer givenRanks;

    @Option(
            names = "--device-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description =
                    "Memory of each rank's device (default: 4M; 640K with --quick; with --device"
                            + " cuda nine tenths of what is free on each).")
    private @Nullable Long deviceMemory;

    @Option(
            names = "--host-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description =
                    "Pinned memory of all ranks (default: 2.5 times all devices, but at most nine"
                            + " tenths of what is free).")
    private @Nullable Long hostMemory;

    @Option(
            names = "--nvme-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description =
                    "Storage on the drive, for all ranks (default: 5 times the host memory, but at"
                            + " most nine tenths of what is free).")
    private @Nullable Long nvmeMemory;

    @Option(
            names = "--nvme",
            paramLabel = "<folder>",
            description =
                    "A folder on the drive; files written there are removed (default: the"
                            + " folder for temporary files).")
    private @Nullable Path nvme;

    @Option(
            names = "--hidden",
            paramLabel = "<n>",
            description =
                    "Width of the model, a multiple of 32; it grows in blocks (default: 64;"
                            + " 32 with --quick; 1024 with --device cuda).")
    private @Nullable Integer hidden;

    @Option(
            names = "--context",
            paramLabel = "<n>",
            description = "Tokens of a sample (default: 8; 256 with --device cuda).")
    private @Nullable Integer context;

    @Option(
            names = "--batch",
            paramLabel = "<n>",
            description =
                    "Samples per step, of all ranks (default: 32; 16 with --quick; with --device"
                            + " cuda 8 for each rank and micro-batch).")
    private @Nullable Integer batch;

    @Option(
            names = "--accumulate",
            defaultValue = "4",
            paramLabel = "<n>",
            description =
                    "Micro-batches per rank for gradient accumulation (default:"
                            + " ${DEFAULT-VALUE}).")
    private int microBatches;

    @Option(
            names = "--steps",
            paramLabel = "<n>",
            description =
                    "Timed steps per size; small models run more (default: 3;"
                            + " 2 with --quick).")
    private @Nullable Integer steps;

    @Option(
            names = "--max-blocks",
            defaultValue = "4096",
            paramLabel = "<n>",
            description = "Largest model to try (default: ${DEFAULT-VALUE}).")
    private int maxBlocks;

    @Option(
            names = "--lr",
            paramLabel = "<x>",
            description = "Learning rate of Adam (default: 0.003; 0.0003 from --hidden 256 on).")
    private @Nullable Double learningRate;

    @Option(
            names = "--seed",
            defaultValue = "1",
            paramLabel = "<n>",
            description = "Seed of text, parameters and batches (default: ${DEFAULT-VALUE}).")
    private long seed;

    @Option(
            names = "--only",
            split = ",",
            arity = "1..*",
            paramLabel = "<technique>",
            completionCandidates = Names.class,
            description = "Run only these sets: ${COMPLETION-CANDIDATES}.")
    private List<String> only = List.of();

    @Option(names = "--quick", description = "Small budgets and few steps, for a quick test.")
    private boolean quick;

    @Mixin private JsonOption json = new JsonOption();

    @Option(names = "--svg", paramLabel = "<file>", description = "Write the charts as SVG.")
    private @Nullable Path svg;

    @Mixin private HtmlOption html = new HtmlOption();

    /** Names of all sets, for help. */
    static final class Names implements Iterable<String> {
        @Override
        public java.util.Iterator<String> iterator() {
            return TechniqueSet.SETS.stream().map(TechniqueSet::name).iterator();
        }
    }

    @Override
    public Integer call() throws IOException {
        PrintWriter out = out();
        Progress progress = Progress.to(err());
        List<String> doubts;
        try {
            List<TechniqueSet> sets = sets();
            Engine engine = cuda() ? Engine.NCCL : Engine.HOST;
            int ranks = ranks();
            range("--ranks", ranks, 1, 64);
            List<? extends Device> devices = engine.devices(ranks);
            check(settings(devices, Path.of(System.getProperty("java.io.tmpdir"))));
            try (Scratch scratch = Scratch.in(nvme, "jccl-fit-")) {
                Settings settings = settings(devices, scratch.folder());
                Experiment experiment =
                        new Experiment(
                                settings,
                                (what, done, all) ->
                                        progress.at("fit-demo, " + what, done, all, "sets"));
                List<Experiment.Row> rows = experiment.run(sets);
                progress.erase();
                FitReport report = new FitReport(settings, engine, rows);
                report.print(json.text(out));
                out.flush();
                ObjectNode document = report.json();
                Reports.sign(document, line());
                json.write(out, document::toPrettyString);
                Page page = Reports.page(document);
                if (svg != null) {
                    Output.write(Map.of(svg, page.svg()));
                }
                html.write(page::html);
                doubts = experiment.doubts();
            }
        } catch (IllegalArgumentException e) {
            throw mistake(e);
        } finally {
            progress.erase();
        }
        doubts.forEach(d -> err().println("jccl fit-demo: " + d));
        err().flush();
        return doubts.isEmpty() ? 0 : 1;
    }

    private boolean cuda() {
        return where == TrainOptions.Where.cuda;
    }

    private int ranks() {
        if (!cuda()) {
            return or(givenRanks, RANKS);
        }
        int gpus = Cuda.deviceCount();
        if (gpus == 0) {
            throw new IllegalArgumentException(NO_GPU);
        }
        return or(givenRanks, gpus);
    }

    /**
     * The settings.
     *
     * @param folder on the drive; where another is meant, what is free there decides the default
     */
    private Settings settings(List<? extends Device> devices, Path folder) throws IOException {
        int ranks = devices.size();
        boolean small = quick && !cuda();
        long device = deviceMemory != null ? deviceMemory : freeOn(devices);
        long host =
                hostMemory != null
                        ? hostMemory
                        : Math.min((long) (HOST_PER_DEVICES * ranks * device), freeOnHost());
        long drive =
                nvmeMemory != null
                        ? nvmeMemory
                        : Math.min((long) (NVME_PER_HOST * host), freeIn(folder));
        int width = or(hidden, cuda() ? GPU_HIDDEN : small ? QUICK_HIDDEN : HIDDEN);
        return new Settings(
                devices,
                width,
                or(context, cuda() ? GPU_CONTEXT : CONTEXT),
                or(
                        batch,
                        cuda() ? GPU_SAMPLES * ranks * microBatches : small ? QUICK_BATCH : BATCH),
                microBatches,
                or(steps, quick ? QUICK_STEPS : STEPS),
                maxBlocks,
                or(learningRate, width < WIDE ? RATE : WIDE_RATE),
                seed,
                device,
                host,
                drive,
                folder);
    }

    /** The same for all ranks: that of the GPU with the least. */
    private long freeOn(List<? extends Device> devices) {
        return !cuda()
                ? quick ? QUICK_DEVICE : DEVICE
                : (long) (USABLE * devices.stream().mapToLong(Cuda::freeMemory).min().orElse(0));
    }

    private static long freeOnHost() {
        Long available = Hardware.of(Machine.local(), false).availableMemoryBytes();
        return available == null ? Long.MAX_VALUE : (long) (USABLE * available);
    }

    private static long freeIn(Path folder) {
        return (long) (USABLE * folder.toFile().getUsableSpace());
    }

    private static <T> T or(@Nullable T given, T otherwise) {
        return given == null ? otherwise : given;
    }

    private List<TechniqueSet> sets() {
        if (only.isEmpty()) {
            return TechniqueSet.SETS;
        }
        for (String name : only) {
            require(
                    TechniqueSet.SETS.stream().anyMatch(s -> s.name().equals(name)),
                    "--only is '" + name + "', expected some of " + String.join(", ", new Names()));
        }
        return TechniqueSet.SETS.stream().filter(s -> only.contains(s.name())).toList();
    }

    private void check(Settings s) throws IOException {
        range("--accumulate", microBatches, 1, 4096);
        range("--max-blocks", maxBlocks, 1, 100_000);
        range("--hidden", s.hidden(), Settings.HEAD, 4096);
        range("--context", s.context(), 1, 1 << 14);
        range("--steps", s.steps(), 2, 1000);
        range("--batch", s.batch(), 1, 1 << 20);
        require(
                s.hidden() % Settings.HEAD == 0,
                "--hidden is " + s.hidden() + ", expected a multiple of " + Settings.HEAD);
        int parts = s.ranks() * microBatches;
        require(
                s.batch() % parts == 0,
                "--batch is "
                        + s.batch()
                        + ", expected a multiple of "
                        + parts
                        + ", ranks times micro-batches");
        require(
                s.learningRate() > 0 && s.learningRate() < Float.MAX_VALUE,
                "--lr is "
                        + s.learningRate()
                        + ", expected a number above 0 and below "
                        + Float.MAX_VALUE
                        + ", the largest of float32");
        long most = 1L << 40;
        memory("--device-memory", s.deviceBytes(), s.ranks(), most);
        memory("--host-memory", s.hostBytes(), s.ranks(), most);
        memory("--nvme-memory", s.nvmeBytes(), s.ranks(), Long.MAX_VALUE);
        new OutputFiles(line()).add(json).add("--svg", svg).add(html);
    }

    private void memory(String option, long bytes, int ranks, long most) {
        require(
                bytes >= ranks && bytes <= most,
                option + " is " + bytes + " bytes, expected " + ranks + " to " + most);
    }
}
