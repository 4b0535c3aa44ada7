package io.jccl.cli.train;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.BindOption;
import io.jccl.cli.shell.CsvOption;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Scratch;
import io.jccl.cli.shell.Subcommand;
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
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** {@code jccl train}: trains a GPT, with an option for each technique. */
@Command(
        footer = {
            "",
            "Ranks are threads of this process, --dp x --tp x --pp of them, or the processes that"
                    + " jccl run -n or mpirun started.",
            "Computes on the CPU, or on GPUs with --device cuda.",
            "Exit status: 0; 1 if a rank failed, or losses differ with --compare; 2 for a mistake in"
                    + " the arguments.",
        })
public final class TrainCommand extends Subcommand {
    @Option(
            names = {"-g", "--ranks"},
            paramLabel = "<n>",
            description = "Ranks as threads (default: --dp x --tp x --pp).")
    private @Nullable Integer ranks;

    @Option(
            names = "--engine",
            paramLabel = "<host|nccl|mpi>",
            description =
                    "Communication backend; mpi under mpirun (default: host, or JCCL_ENGINE; nccl"
                            + " with --device cuda).")
    private @Nullable Engine engine;

    @Mixin private BindOption bind = new BindOption();

    @Mixin private TrainOptions model = new TrainOptions();

    @Mixin private RecipeOptions update = new RecipeOptions();

    @Mixin private EvaluationOptions evaluation = new EvaluationOptions();

    @Option(
            names = DeepSpeedFile.NAME,
            paramLabel = "<file>",
            description =
                    "A DeepSpeed configuration, for whatever the flags do not set: batch,"
                            + " optimizer, ZeRO stage, offload, bfloat16.")
    private @Nullable Path deepSpeed;

    @Mixin private CorpusOptions text = new CorpusOptions();

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

    @Option(
            names = "--timeout",
            defaultValue = "60",
            paramLabel = "<seconds>",
            description = "How long to wait for a missing rank (default: ${DEFAULT-VALUE}).")
    private int timeout;

    @Option(
            names = "--compare",
            arity = "0..1",
            fallbackValue = "",
            paramLabel = "<sets>",
            description =
                    "Train with one set of techniques after another, and once on a single rank;"
                            + " losses have to agree. Sets are separated by ';', such as 'dp=2"
                            + " zero=3; tp=2 bf16'; 'routers' trains once with each router"
                            + " (default: every technique).")
    private @Nullable String compare;

    @Mixin private JsonOption json = new JsonOption();

    @Option(names = "--svg", paramLabel = "<file>", description = "Write the loss curves as SVG.")
    private @Nullable Path svg;

    @Mixin private HtmlOption html = new HtmlOption();

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
        PrintWriter out = json.text(out());
        Progress progress = Progress.to(err());
        try {
            LaunchEnvironment launch = LaunchEnvironment.of(environment);
            if (deepSpeed != null) {
                PrintWriter first = launch.rank() == 0 ? out : new PrintWriter(Writer.nullWriter());
                DeepSpeedFile.read(deepSpeed, line()).apply(first);
            }
            check();
            Engine chosen = model.engine(engine, environment);
            boolean processes = launch.size() > 1 || chosen == Engine.MPI;
            Corpus corpus = text.corpus(model.seed);
            evaluation.evaluation().check(corpus.length(), model.size.context);
            boolean drive =
                    nvme != null || compare != null || Techniques.Offload.of(model.offload).drive();
            try (Scratch scratch = drive ? Scratch.in(nvme, "jccl-train-") : null) {
                Path folder = scratch == null ? null : scratch.folder();
                Run run = new Run(chosen, corpus, folder, out, progress);
                return processes
                        ? asProcess(run)
                        : compare == null ? asThreads(run) : compared(run);
            }
        } catch (IllegalArgumentException e) {
            throw mistake(e);
        } finally {
            progress.erase();
        }
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
        require(
                compare != null || model.float16 || update.lossScale == null,
                "--loss-scale is "
                        + update.lossScale
                        + ", but gradients are not float16; give --fp16, or leave it out");
        weights.check(compare != null, resume != null);
        model.size.load(weights.load);
        metrics.check(compare != null);
        new OutputFiles(line())
                .add(json)
                .add("--svg", svg)
                .add(html)
                .add(CsvOption.NAME, metrics.csv)
                .checkNotRead();
        if (checkpoint != null) {
            TrainOptions.makeFolder("--checkpoint", checkpoint);
            if ("newest".equals(resume)) {
                TrainRun.checkSaved(checkpoint);
            }
        }
    }

    private CommunicatorOptions options() {
        return CommunicatorOptions.DEFAULT
                .withTimeout(Duration.ofSeconds(timeout))
                .withBinding(bind.in(System.getenv(), line()));
    }

    /** What a run of the command trains on, and where it reports. */
    private record Run(
            Engine engine,
            Corpus corpus,
            @Nullable Path folder,
            PrintWriter out,
            Progress progress) {
        TrainReport report(List<TrainReport.Run> runs) {
            return new TrainReport(runs, corpus.source(), corpus.unigramEntropy());
        }
    }

    private RunSettings settings(Run run, Techniques t, int experts, Routing routing) {
        GptShape shape = model.shape(run.corpus.vocabulary().size(), experts, routing);
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
                evaluation.evaluation(),
                model.seed,
                threads,
                run.folder,
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

    private int asProcess(Run run) throws Exception {
        require(
                compare == null,
                "--compare starts ranks as threads, but a launcher has started processes; leave out"
                        + " one");
        require(
                ranks == null,
                "-g "
                        + ranks
                        + " starts threads, but a launcher has started processes; leave out one");
        run.engine.run(
                run.engine.join(environment, options()),
                comm -> {
                    Techniques t = model.techniques(comm.size());
                    RunSettings s = settings(run, t, model.experts, model.routing());
                    PrintWriter out = comm.rank() == 0 ? run.out : null;
                    TrainRun training = new TrainRun(run.corpus, s, 1);
                    TrainResult result =
                            train(run, training, comm, s, TrainReporter.Part.only(s), out);
                    run.progress.erase();
                    if (out != null) {
                        finish(run, result);
                    }
                });
        return 0;
    }

    private int asThreads(Run run) throws IOException {
        int given = ranks == null ? 0 : ranks;
        require(given >= 0 && given <= 256, "-g is " + given + ", expected 1 to 256");
        require(ranks == null || given > 0, "-g is 0, expected 1 to 256");
        RunSettings s = settings(run, model.techniques(given), model.experts, model.routing());
        TrainResult result = onThreads(run, run.engine, s, TrainReporter.Part.only(s), run.out);
        run.progress.erase();
        finish(run, result);
        return 0;
    }

    private void finish(Run run, TrainResult result) throws IOException {
        TrainReport report = run.report(List.of(new TrainReport.Run(result, null)));
        report.print(run.out);
        write(report);
    }

    private TrainResult onThreads(
            Run run, Engine on, RunSettings s, TrainReporter.Part part, @Nullable PrintWriter out)
            throws IOException {
        int size = s.techniques().ranks();
        AtomicReference<TrainResult> result = new AtomicReference<>();
        TrainRun training = new TrainRun(run.corpus, s, size);
        Communicator.runLocal(
                on.devices(size),
                options(),
                comm -> {
                    if (comm.rank() == 0) {
                        result.set(train(run, training, comm, s, part, out));
                    } else {
                        training.run(comm, step -> {});
                    }
                });
        TrainResult r = result.get();
        if (r == null) {
            throw new IllegalStateException("rank 0 left no result; please report it");
        }
        return r;
    }

    /** Trains as a rank that prints if it has where to, and writes metrics if it is the first. */
    private TrainResult train(
            Run run,
            TrainRun training,
            Communicator comm,
            RunSettings s,
            TrainReporter.Part part,
            @Nullable PrintWriter out)
            throws IOException {
        TrainReporter reporter = new TrainReporter(s, part, out, err(), run.progress);
        reporter.start(run.corpus.source());
        if (comm.rank() > 0) {
            return training.run(comm, reporter);
        }
        try (MetricsLog log = metrics.log(s, reporter)) {
            return training.run(comm, log);
        }
    }

    private int compared(Run run) throws IOException {
        require(ranks == null, "-g is for one run; with --compare each set has its own");
        TrainComparison comparison =
                new TrainComparison(
                        run.engine,
                        model,
                        (t, experts, routing) -> settings(run, t, experts, routing),
                        (on, s, part) -> onThreads(run, on, s, part, null));
        boolean routers = TrainComparison.ROUTERS.equals(compare);
        List<TrainReport.Run> runs =
                routers
                        ? comparison.routers()
                        : comparison.techniques(compare == null ? "" : compare);
        run.progress.erase();
        TrainReport report = run.report(runs);
        if (routers) {
            report.printRouters(run.out);
        } else {
            report.printTable(run.out);
        }
        write(report);
        return runs.stream().allMatch(TrainReport.Run::agrees) ? 0 : 1;
    }

    private void write(TrainReport report) throws IOException {
        Map<Path, String> files = new LinkedHashMap<>();
        ObjectNode document = report.json();
        Reports.sign(document, line());
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
            json.write(out(), document::toPrettyString);
        }
    }
}
