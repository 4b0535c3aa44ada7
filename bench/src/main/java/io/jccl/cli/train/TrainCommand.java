package io.jccl.cli.train;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.BindOption;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Scratch;
import io.jccl.cli.shell.Version;
import io.jccl.error.JcclException;
import io.jccl.rendezvous.LaunchEnvironment;
import io.jccl.train.Corpus;
import io.jccl.train.GptShape;
import io.jccl.train.Recipe;
import io.jccl.train.Routing;
import io.jccl.train.RunSettings;
import io.jccl.train.Techniques;
import io.jccl.train.TrainResult;
import io.jccl.train.TrainRun;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** {@code jccl train}: trains a character-level GPT, with an option for each technique. */
@Command(
        mixinStandardHelpOptions = true,
        sortOptions = false,
        usageHelpAutoWidth = true,
        versionProvider = Version.class,
        footer = {
            "",
            "Ranks are threads of this process, --dp x --tp x --pp of them, or the processes that"
                    + " jccl run -n or mpirun started.",
            "Computes on the CPU, or on GPUs with --device cuda.",
            "Exit status: 0; 1 if a rank failed, or losses differ with --compare; 2 for a mistake in"
                    + " the arguments.",
        })
public final class TrainCommand implements Callable<Integer> {
    /** What {@code --compare} runs if the model has no experts. */
    private static final List<String> DENSE =
            List.of(
                    "accumulate=4",
                    "recompute",
                    "bf16",
                    "dp=2",
                    "dp=4",
                    "dp=2 compress=bf16",
                    "dp=2 compress=fp16",
                    "dp=2 compress=topk:0.1",
                    "dp=2 compress=powersgd:4",
                    "dp=2 zero=0",
                    "dp=2 zero=1",
                    "dp=2 zero=2 accumulate=2",
                    "dp=2 zero=3",
                    "dp=2 zero=3 offload=host",
                    "dp=2 zero=3 offload=nvme bf16 recompute",
                    "tp=2",
                    "tp=2 sequence-parallel",
                    "pp=2 schedule=gpipe accumulate=4",
                    "pp=2 schedule=1f1b accumulate=4",
                    "dp=2 tp=2 zero=2",
                    "tp=2 pp=2 sequence-parallel accumulate=4");

    /** What it runs in addition, with {@code --experts} experts, or 4. */
    private static final List<String> EXPERT =
            List.of(
                    "dp=2 ep=2",
                    "dp=4 ep=2 zero=1",
                    "dp=2 ep=2 pp=2 accumulate=2",
                    "dp=2 ep=2 tp=2 sequence-parallel");

    private static final int COMPARED_EXPERTS = 4;

    /** What {@code --compare} takes instead of sets of techniques. */
    private static final String ROUTERS = "routers";

    /** Warm-up steps with {@code --compare}, in short runs, and their maximum time. */
    private static final int WARM_STEPS = 100;

    private static final int WARM_RUN = 10;
    private static final long WARM_NANOS = 2_000_000_000L;

    @Option(
            names = {"-g", "--ranks"},
            paramLabel = "<n>",
            description = "Ranks as threads (default: --dp x --tp x --pp).")
    private @Nullable Integer ranks;

    @Option(
            names = "--engine",
            paramLabel = "<host|nccl|mpi>",
            converter = Engine.Converter.class,
            description =
                    "What carries the data; mpi under mpirun (default: host, or JCCL_ENGINE; nccl with"
                            + " --device cuda).")
    private @Nullable Engine engine;

    @Mixin private BindOption bind = new BindOption();

    @Mixin private TrainOptions model = new TrainOptions();

    @Mixin private RecipeOptions update = new RecipeOptions();

    @Option(
            names = DeepSpeedFile.NAME,
            paramLabel = "<file>",
            description =
                    "A configuration of DeepSpeed, for what the flags leave open: batch, optimizer,"
                            + " stage of ZeRO, offload, bfloat16.")
    private @Nullable Path deepSpeed;

    @Option(
            names = "--text",
            paramLabel = "<file>",
            description = "Text to train on (default: sentences of a small grammar).")
    private @Nullable Path text;

    @Option(
            names = "--threads",
            defaultValue = "1",
            paramLabel = "<n>",
            description = "Threads that compute, for each rank (default: ${DEFAULT-VALUE}).")
    private int threads;

    @Option(
            names = "--nvme",
            paramLabel = "<folder>",
            description =
                    "A folder on the drive for --offload nvme; files written there are"
                            + " removed (default: the folder for temporary files).")
    private @Nullable Path nvme;

    @Option(
            names = "--checkpoint",
            paramLabel = "<folder>",
            description = "Folder for checkpoints of all ranks; the two newest are kept.")
    private @Nullable Path checkpoint;

    @Option(
            names = "--checkpoint-every",
            defaultValue = "100",
            paramLabel = "<steps>",
            description =
                    "Steps between checkpoints; the last step is saved too (default: ${DEFAULT-VALUE}).")
    private int every;

    @Option(
            names = "--resume",
            arity = "0..1",
            fallbackValue = "newest",
            paramLabel = "<step>",
            description =
                    "Resume from the newest complete checkpoint, or from that of a given step (after"
                            + " a restart by jccl run: from the newest one, if any).")
    private @Nullable String resume;

    @Mixin private WeightOptions weights = new WeightOptions();

    @Mixin private MetricsOptions metrics = new MetricsOptions();

    /** The run under way among all that {@code --compare} makes; null if there is only one. */
    private TrainReporter.@Nullable Part part;

    @Option(
            names = "--timeout",
            defaultValue = "60",
            paramLabel = "<seconds>",
            description =
                    "When a rank that does not come is given up (default:" + " ${DEFAULT-VALUE}).")
    private int timeout;

    @Option(
            names = "--compare",
            arity = "0..1",
            fallbackValue = "",
            paramLabel = "<sets>",
            description =
                    "Train with one set of techniques after the other, and once on a single"
                            + " rank; losses have to agree. Sets are separated by ';', such as 'dp=2"
                            + " zero=3; tp=2 bf16'; 'routers' trains once with each router"
                            + " (default: every technique).")
    private @Nullable String compare;

    @Mixin private JsonOption json = new JsonOption();

    @Option(names = "--svg", paramLabel = "<file>", description = "Write the loss curves as SVG.")
    private @Nullable Path svg;

    @Mixin private HtmlOption html = new HtmlOption();

    @Spec private @Nullable CommandSpec spec;

    private final Map<String, String> environment;

    /** The command, for picocli. */
    public TrainCommand() {
        this(System.getenv());
    }

    TrainCommand(Map<String, String> environment) {
        this.environment = environment;
    }

    @Override
    public Integer call() throws Exception {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        PrintWriter out = json.text(spec.commandLine().getOut());
        Progress progress = Progress.to(spec.commandLine().getErr());
        try {
            LaunchEnvironment launch = LaunchEnvironment.of(environment);
            if (deepSpeed != null) {
                PrintWriter first = launch.rank() == 0 ? out : new PrintWriter(Writer.nullWriter());
                DeepSpeedFile.read(deepSpeed).apply(spec.commandLine(), first);
            }
            check();
            Engine chosen = model.engine(engine, environment);
            boolean processes = launch.size() > 1 || chosen == Engine.MPI;
            Corpus corpus = text == null ? Corpus.grammar(model.seed) : Corpus.of(text);
            require(
                    corpus.tokens().length > model.context + 1,
                    "--context is "
                            + model.context
                            + ", but the text has "
                            + corpus.tokens().length
                            + " characters; give a longer text or a smaller context");
            try (Scratch scratch = scratch()) {
                if (processes) {
                    return asProcess(chosen, corpus, scratch.folder(), out, progress);
                }
                return compare == null
                        ? asThreads(chosen, corpus, scratch.folder(), out, progress)
                        : compared(chosen, corpus, scratch.folder(), out, progress);
            }
        } catch (IllegalArgumentException e) {
            throw new ParameterException(spec.commandLine(), String.valueOf(e.getMessage()), e);
        } finally {
            progress.erase();
        }
    }

    private Scratch scratch() throws IOException {
        return Scratch.in(nvme, "jccl-train-");
    }

    private void check() throws IOException {
        require(threads >= 1 && threads <= 256, "--threads is " + threads + ", expected 1 to 256");
        require(every >= 1, "--checkpoint-every is " + every + ", expected 1 or more");
        require(timeout >= 1, "--timeout is " + timeout + " seconds, expected 1 or more");
        require(
                resume == null || checkpoint != null,
                "--resume needs --checkpoint, which names the folder");
        require(
                resume == null || resume.matches("newest|[1-9][0-9]{0,8}"),
                "--resume is '" + resume + "', expected the number of a saved step, or nothing");
        require(
                compare == null || checkpoint == null,
                "--checkpoint '"
                        + checkpoint
                        + "' is for one run, --compare makes several; leave out one");
        require(
                compare != null || model.experts > 0 || model.routing() == Routing.SWITCH,
                "--router is "
                        + model.routing().label()
                        + ", but the model has no experts; give --experts");
        weights.check(compare != null, resume != null);
        metrics.check(compare != null);
        Map<Path, String> seen = new HashMap<>();
        for (Map.Entry<String, @Nullable Path> e :
                List.<Map.Entry<String, @Nullable Path>>of(
                        entry(JsonOption.NAME, json.file()),
                        entry("--svg", svg),
                        entry(HtmlOption.NAME, html.file()))) {
            Path file = e.getValue();
            if (file != null) {
                Output.checkWritable(e.getKey(), file);
                String before = seen.putIfAbsent(file, e.getKey());
                require(
                        before == null,
                        before + " and " + e.getKey() + " are both '" + file + "'; give two files");
            }
        }
        if (checkpoint != null) {
            checkFolder(checkpoint);
        }
    }

    private static void checkFolder(Path checkpoint) {
        String name = "--checkpoint '" + checkpoint + "' ";
        require(
                !Files.exists(checkpoint) || Files.isDirectory(checkpoint),
                name + "is a file, expected a folder; name another, which is made if need be");
        try {
            Files.createDirectories(checkpoint);
        } catch (IOException e) {
            throw new IllegalArgumentException(
                    name + "cannot be made; give a folder in one where this user may write", e);
        }
        require(
                Files.isWritable(checkpoint),
                name + "is not writable for this user; give a folder that is");
    }

    private static Map.Entry<String, @Nullable Path> entry(String name, @Nullable Path file) {
        return new AbstractMap.SimpleEntry<>(name, file);
    }

    private static void require(boolean holds, String message) {
        if (!holds) {
            throw new IllegalArgumentException(message);
        }
    }

    private CommunicatorOptions options() {
        return CommunicatorOptions.DEFAULT
                .withTimeout(Duration.ofSeconds(timeout))
                .withBinding(bind.in(System.getenv(), Objects.requireNonNull(spec).commandLine()));
    }

    private RunSettings settings(Corpus corpus, Techniques t, int experts, Path folder) {
        return settings(corpus, t, experts, model.routing(), folder);
    }

    private RunSettings settings(
            Corpus corpus, Techniques t, int experts, Routing routing, Path folder) {
        GptShape shape = model.shape(corpus.alphabet().length(), experts, routing);
        t.check(shape, model.batch);
        model.checkDevice(t, shape);
        Recipe recipe = update.recipe();
        recipe.check(shape);
        update.check(t, model.where == TrainOptions.Where.cuda);
        return new RunSettings(
                shape,
                t,
                model.batch,
                model.steps,
                update.learningRate,
                update.optimizer(),
                recipe,
                model.seed,
                threads,
                folder,
                checkpoint,
                every,
                resume == null
                        ? startedAgain() ? RunSettings.NEWEST : RunSettings.START
                        : resume.equals("newest") ? RunSettings.NEWEST : Integer.parseInt(resume),
                weights.load,
                weights.save);
    }

    /** Whether a launcher has started this run before, and it has saved something. */
    private boolean startedAgain() {
        return checkpoint != null
                && environment.getOrDefault("TORCHELASTIC_RESTART_COUNT", "0").matches("[1-9]\\d*")
                && TrainRun.hasCheckpoint(checkpoint);
    }

    private int asProcess(
            Engine chosen, Corpus corpus, Path folder, PrintWriter out, Progress progress)
            throws IOException {
        require(
                compare == null,
                "--compare starts ranks as threads, but a launcher has started processes; leave out"
                        + " one");
        require(
                ranks == null,
                "-g "
                        + ranks
                        + " starts threads, but a launcher has started processes; leave out one");
        try (Communicator comm = chosen.join(environment, options())) {
            Techniques t = model.techniques(comm.size());
            RunSettings s = settings(corpus, t, model.experts, folder);
            boolean prints = comm.rank() == 0;
            TrainResult result =
                    run(new TrainRun(corpus, s, 1), comm, s, corpus, prints, out, progress);
            progress.erase();
            if (prints) {
                TrainReport report = report(List.of(new TrainReport.Run(result, null)), corpus);
                report.print(out);
                write(report);
            }
        }
        return 0;
    }

    private int asThreads(
            Engine chosen, Corpus corpus, Path folder, PrintWriter out, Progress progress)
            throws IOException {
        int given = ranks == null ? 0 : ranks;
        require(given >= 0 && given <= 256, "-g is " + given + ", expected 1 to 256");
        require(ranks == null || given > 0, "-g is 0, expected 1 to 256");
        RunSettings s = settings(corpus, model.techniques(given), model.experts, folder);
        TrainResult result = train(chosen, s, corpus, true, out, progress);
        progress.erase();
        TrainReport report = report(List.of(new TrainReport.Run(result, null)), corpus);
        report.print(out);
        write(report);
        return 0;
    }

    private TrainResult train(
            Engine chosen,
            RunSettings s,
            Corpus corpus,
            boolean prints,
            PrintWriter out,
            Progress progress)
            throws IOException {
        int size = s.techniques().ranks();
        AtomicReference<TrainResult> result = new AtomicReference<>();
        TrainRun run = new TrainRun(corpus, s, size);
        try {
            Communicator.runLocal(
                    chosen.devices(size),
                    options(),
                    comm -> {
                        if (comm.rank() == 0) {
                            result.set(run(run, comm, s, corpus, prints, out, progress));
                        } else {
                            run.run(comm, (step, loss, seconds) -> {});
                        }
                    });
        } catch (JcclException e) {
            // The message names the checkpoint's file and what to do, whichever rank found the
            // error.
            if (e.getCause() instanceof IOException io && io.getClass() == IOException.class) {
                throw io;
            }
            throw e;
        }
        TrainResult r = result.get();
        if (r == null) {
            throw new IllegalStateException("rank 0 left no result; please report it");
        }
        return r;
    }

    /** Trains as a rank that may print, and writes metrics if it is the first. */
    private TrainResult run(
            TrainRun run,
            Communicator comm,
            RunSettings s,
            Corpus corpus,
            boolean prints,
            PrintWriter out,
            Progress progress)
            throws IOException {
        TrainRun.Report told = reporter(s, corpus, prints, out, progress);
        if (comm.rank() > 0) {
            return run.run(comm, told);
        }
        try (MetricsLog log = metrics.log(s, told)) {
            return run.run(comm, log);
        }
    }

    private TrainRun.Report reporter(
            RunSettings s, Corpus corpus, boolean prints, PrintWriter out, Progress progress) {
        PrintWriter err = Objects.requireNonNull(spec).commandLine().getErr();
        TrainReporter.Part of = part == null ? TrainReporter.Part.only(s) : part;
        TrainReporter reporter = new TrainReporter(s, of, prints ? out : null, err, progress);
        reporter.start(corpus.source());
        return reporter;
    }

    /** With GPUs too, the single rank computes on the CPU. */
    private int compared(
            Engine chosen, Corpus corpus, Path folder, PrintWriter out, Progress progress)
            throws IOException {
        require(ranks == null, "-g is for one run; with --compare each set of techniques says");
        if (ROUTERS.equals(compare)) {
            return comparedRouters(chosen, corpus, folder, out, progress);
        }
        List<RunSettings> sets = new ArrayList<>();
        String given = compare == null ? "" : compare;
        List<String> names = new ArrayList<>(List.of(given.split(";")));
        if (given.isBlank()) {
            boolean gpus = chosen == Engine.NCCL;
            names = new ArrayList<>(model.experts == 0 ? DENSE : List.of());
            names.addAll(gpus ? List.of("single") : EXPERT);
            names.removeIf(n -> gpus && (n.contains("topk") || n.contains("powersgd")));
        }
        for (String name : names) {
            Techniques t = Techniques.parse(name);
            int experts = model.experts > 0 ? model.experts : t.expert() > 1 ? COMPARED_EXPERTS : 0;
            sets.add(settings(corpus, t, experts, folder));
        }
        Map<RunSettings, TrainResult> references = new LinkedHashMap<>();
        List<RunSettings> singles = new ArrayList<>();
        for (RunSettings s : sets) {
            // Expert capacity is per micro-batch, so the reference run uses the same micro-batches.
            Techniques single =
                    s.shape().experts() == 0 ? Techniques.NONE : s.techniques().reference();
            singles.add(settings(corpus, single, s.shape().experts(), folder));
        }
        long all = singles.stream().distinct().count();
        for (int i = 0; i < sets.size(); i++) {
            all += same(chosen, sets.get(i), singles.get(i)) ? 0 : 1;
        }
        List<TrainReport.Run> runs = new ArrayList<>();
        for (int i = 0; i < sets.size(); i++) {
            RunSettings one = singles.get(i);
            TrainResult reference = references.get(one);
            if (reference == null) {
                part = new TrainReporter.Part(runs.size(), (int) all, one.steps(), false);
                reference = trainWarm(Engine.HOST, one, corpus, out, progress);
                references.put(one, reference);
                runs.add(new TrainReport.Run(reference, null));
            }
            if (!same(chosen, sets.get(i), one)) {
                part = new TrainReporter.Part(runs.size(), (int) all, one.steps(), false);
                TrainResult result = trainWarm(chosen, sets.get(i), corpus, out, progress);
                runs.add(new TrainReport.Run(result, reference));
            }
        }
        progress.erase();
        TrainReport report = report(runs, corpus);
        report.printTable(out);
        write(report);
        return runs.stream().allMatch(TrainReport.Run::agrees) ? 0 : 1;
    }

    /** One run for each router that has enough experts, with the techniques of the flags. */
    private int comparedRouters(
            Engine chosen, Corpus corpus, Path folder, PrintWriter out, Progress progress)
            throws IOException {
        int experts = model.experts > 0 ? model.experts : COMPARED_EXPERTS;
        List<Routing> routers = new ArrayList<>(List.of(Routing.values()));
        routers.removeIf(r -> r.choices() > experts);
        List<TrainReport.Run> runs = new ArrayList<>();
        for (Routing r : routers) {
            RunSettings s = settings(corpus, model.techniques(0), experts, r, folder);
            part = new TrainReporter.Part(runs.size(), routers.size(), s.steps(), false);
            runs.add(new TrainReport.Run(trainWarm(chosen, s, corpus, out, progress), null));
        }
        progress.erase();
        TrainReport report = report(runs, corpus);
        report.printRouters(out);
        write(report);
        return 0;
    }

    private static boolean same(Engine chosen, RunSettings s, RunSettings single) {
        return chosen != Engine.NCCL && s.equals(single);
    }

    /**
     * Trains after the code has been compiled, or the first sets would seem slower than the last.
     */
    private TrainResult trainWarm(
            Engine on, RunSettings s, Corpus corpus, PrintWriter out, Progress progress)
            throws IOException {
        long end = System.nanoTime() + WARM_NANOS;
        RunSettings few = s.withSteps(WARM_RUN);
        TrainReporter.Part measured = Objects.requireNonNull(part);
        part = measured.warmUp();
        for (int done = 0; done < WARM_STEPS && System.nanoTime() < end; done += WARM_RUN) {
            train(on, few, corpus, false, out, progress);
        }
        part = measured;
        return train(on, s, corpus, false, out, progress);
    }

    private static TrainReport report(List<TrainReport.Run> runs, Corpus corpus) {
        return new TrainReport(runs, corpus.source(), corpus.unigramEntropy());
    }

    private void write(TrainReport report) throws IOException {
        Map<Path, String> files = new LinkedHashMap<>();
        CommandLine line = Objects.requireNonNull(spec).commandLine();
        ObjectNode document = report.json();
        Reports.sign(document, line);
        Path data = json.file();
        if (data != null) {
            files.put(data, document.toPrettyString() + "\n");
        }
        Path page = html.file();
        if (report.hasLosses()) {
            if (svg != null) {
                files.put(svg, Reports.losses(document).svg());
            }
            if (page != null) {
                files.put(page, Reports.page(document).html());
            }
        }
        Output.write(files);
        if (json.isPrinted()) {
            json.write(line.getOut(), document::toPrettyString);
        }
    }
}
