package io.jccl.cli.train;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.report.Page;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Scratch;
import io.jccl.cli.shell.Version;
import io.jccl.train.fit.Experiment;
import io.jccl.train.fit.Network;
import io.jccl.train.fit.Settings;
import io.jccl.train.fit.TechniqueSet;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/**
 * {@code jccl fit-demo}: the largest model that trains, with each technique switched off in turn.
 */
@Command(
        mixinStandardHelpOptions = true,
        sortOptions = false,
        usageHelpAutoWidth = true,
        versionProvider = Version.class,
        footer = {
            "",
            "Runs on the CPU: a rank is a thread, its device a capped arena of host memory.",
            "Exit status: 0; 1 if training failed; 2 for a mistake in the arguments, or budgets too"
                    + " small for one block.",
        })
public final class FitDemo implements Callable<Integer> {
    /** Defaults with {@code --quick}. */
    private static final long QUICK_DEVICE = 512L << 10;

    private static final int QUICK_HIDDEN = 32;
    private static final int QUICK_BATCH = 192;
    private static final int QUICK_STEPS = 2;

    private static final long DEVICE = 4L << 20;
    private static final int HIDDEN = 64;
    private static final int BATCH = 256;
    private static final int STEPS = 3;

    /** 330 GB for 8 GPUs of 16 GiB is 2.4 times as much, for two ranks 4.8. */
    private static final double HOST_PER_DEVICES = 2.5;

    /** So that ZeRO's stages differ on the drive too: 24 bytes per parameter. */
    private static final double NVME_PER_HOST = 5;

    @Option(
            names = {"-g", "--ranks"},
            defaultValue = "2",
            paramLabel = "<n>",
            description = "Ranks, as threads of this process (default: ${DEFAULT-VALUE}).")
    private int ranks;

    @Option(
            names = "--device-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Memory of each rank's device (default: 4M; 512K with --quick).")
    private @Nullable Long deviceMemory;

    @Option(
            names = "--host-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Pinned memory of all ranks (default: 2.5 times all devices).")
    private @Nullable Long hostMemory;

    @Option(
            names = "--nvme-memory",
            paramLabel = "<bytes>",
            converter = Amounts.Bytes.class,
            description = "Storage on the drive, for all ranks (default: 5 times the host memory).")
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
                            + " 32 with --quick).")
    private @Nullable Integer hidden;

    @Option(
            names = "--batch",
            paramLabel = "<n>",
            description = "Samples per step, of all ranks (default: 256; 192 with --quick).")
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
            defaultValue = "0.003",
            paramLabel = "<x>",
            description = "Learning rate of Adam (default: ${DEFAULT-VALUE}).")
    private double learningRate;

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

    @Spec private @Nullable CommandSpec spec;

    /** Names of all sets, for help. */
    static final class Names implements Iterable<String> {
        @Override
        public java.util.Iterator<String> iterator() {
            return TechniqueSet.SETS.stream().map(TechniqueSet::name).iterator();
        }
    }

    @Override
    public Integer call() throws IOException {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        List<TechniqueSet> sets = sets(spec);
        check(spec);
        json.checkWritable(spec.commandLine());
        PrintWriter out = spec.commandLine().getOut();
        Progress progress = Progress.to(spec.commandLine().getErr());
        try (Scratch scratch = Scratch.in(nvme, "jccl-fit-")) {
            Settings settings = settings(scratch.folder());
            Experiment experiment =
                    new Experiment(
                            settings,
                            (what, done, all) ->
                                    progress.at("fit-demo, " + what, done, all, "sets"));
            List<Experiment.Row> rows = experiment.run(sets);
            progress.erase();
            FitReport report = new FitReport(settings, rows);
            report.print(json.text(out));
            out.flush();
            ObjectNode document = report.json();
            Reports.sign(document, spec.commandLine());
            json.write(out, document::toPrettyString);
            Page page = Reports.page(document);
            if (svg != null) {
                Output.write(Map.of(svg, page.svg()));
            }
            html.write(page::html);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(spec.commandLine(), String.valueOf(e.getMessage()), e);
        } finally {
            progress.erase();
        }
        return 0;
    }

    private Settings settings(Path folder) {
        long device = or(deviceMemory, quick ? QUICK_DEVICE : DEVICE);
        long host = or(hostMemory, (long) (HOST_PER_DEVICES * ranks * device));
        return new Settings(
                ranks,
                or(hidden, quick ? QUICK_HIDDEN : HIDDEN),
                or(batch, quick ? QUICK_BATCH : BATCH),
                microBatches,
                or(steps, quick ? QUICK_STEPS : STEPS),
                maxBlocks,
                learningRate,
                seed,
                device,
                host,
                or(nvmeMemory, (long) (NVME_PER_HOST * host)),
                folder);
    }

    private static <T> T or(@Nullable T given, T otherwise) {
        return given == null ? otherwise : given;
    }

    private List<TechniqueSet> sets(CommandSpec spec) {
        if (only.isEmpty()) {
            return TechniqueSet.SETS;
        }
        for (String name : only) {
            if (TechniqueSet.SETS.stream().noneMatch(s -> s.name().equals(name))) {
                throw mistake(
                        spec,
                        "--only is '"
                                + name
                                + "', expected some of "
                                + TechniqueSet.SETS.stream()
                                        .map(TechniqueSet::name)
                                        .collect(Collectors.joining(", ")));
            }
        }
        return TechniqueSet.SETS.stream().filter(s -> only.contains(s.name())).toList();
    }

    private void check(CommandSpec spec) throws IOException {
        range(spec, "--ranks", ranks, 1, 64);
        range(spec, "--accumulate", microBatches, 1, 4096);
        range(spec, "--max-blocks", maxBlocks, 1, 100_000);
        Settings s = settings(Path.of(""));
        range(spec, "--hidden", s.hidden(), Network.MULTIPLE, 4096);
        range(spec, "--steps", s.steps(), 2, 1000);
        range(spec, "--batch", s.batch(), 1, 1 << 20);
        if (s.hidden() % Network.MULTIPLE != 0) {
            throw mistake(
                    spec,
                    "--hidden is " + s.hidden() + ", expected a multiple of " + Network.MULTIPLE);
        }
        if (s.batch() % (ranks * microBatches) != 0) {
            throw mistake(
                    spec,
                    "--batch is "
                            + s.batch()
                            + ", expected a multiple of "
                            + ranks * microBatches
                            + ", ranks times micro-batches");
        }
        if (!(learningRate > 0 && learningRate < Float.MAX_VALUE)) {
            throw mistake(spec, "--lr is " + learningRate + ", expected a number above 0");
        }
        // Each is a single slab of a pool.
        long most = 1L << 40;
        memory(spec, "--device-memory", s.deviceBytes(), most);
        memory(spec, "--host-memory", s.hostBytes(), most);
        memory(spec, "--nvme-memory", s.nvmeBytes(), Long.MAX_VALUE);
        if (svg != null) {
            Output.checkWritable("--svg", svg);
        }
        html.checkWritable(spec.commandLine());
        if (svg != null && svg.equals(html.file())) {
            throw mistake(spec, "--svg and --html are both '" + svg + "'; give two files");
        }
    }

    private void memory(CommandSpec spec, String option, long bytes, long most) {
        if (bytes < ranks || bytes > most) {
            throw mistake(
                    spec, option + " is " + bytes + " bytes, expected " + ranks + " to " + most);
        }
    }

    private static void range(CommandSpec spec, String name, long value, long least, long most) {
        if (value < least || value > most) {
            throw mistake(spec, name + " is " + value + ", expected " + least + " to " + most);
        }
    }

    private static ParameterException mistake(CommandSpec spec, String message) {
        return new ParameterException(spec.commandLine(), message);
    }
}
