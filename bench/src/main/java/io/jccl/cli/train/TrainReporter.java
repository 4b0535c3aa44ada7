package io.jccl.cli.train;

import static io.jccl.cli.shell.Text.format;

import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Version;
import io.jccl.train.RunSettings;
import io.jccl.train.TrainRun;
import java.io.PrintWriter;
import org.jspecify.annotations.Nullable;

/** Prints the loss of a run now and then, and its progress on a terminal. */
final class TrainReporter implements TrainRun.Report {
    private static final int REPORTS = 10;
    private static final int BAR = 30;
    private static final double PACE_SECONDS = 0.1;

    /**
     * The position of a run among all runs of the command, all of which take the same number of
     * steps.
     *
     * @param before runs that have ended
     * @param runs all runs
     * @param steps steps of one run, without its warm-up
     * @param isWarmUp whether this is a warm-up, whose steps do not count
     */
    record Part(int before, int runs, int steps, boolean isWarmUp) {
        static Part only(RunSettings s) {
            return new Part(0, 1, s.steps(), false);
        }

        Part warmUp() {
            return new Part(before, runs, steps, true);
        }

        String prefix() {
            return runs == 1 ? "" : "run " + (before + 1) + " of " + runs + ", ";
        }

        long done(int step) {
            return (long) before * steps + (isWarmUp ? 0 : step);
        }

        long all() {
            return (long) runs * steps;
        }
    }

    private final RunSettings settings;
    private final Part part;
    private final @Nullable PrintWriter out;
    private final PrintWriter err;
    private final Progress progress;
    private int first = -1;
    private double shown;

    /**
     * A reporter.
     *
     * @param out receives the losses; null if they are not printed
     * @param err receives warnings
     */
    TrainReporter(
            RunSettings settings,
            Part part,
            @Nullable PrintWriter out,
            PrintWriter err,
            Progress progress) {
        this.settings = settings;
        this.part = part;
        this.out = out;
        this.err = err;
        this.progress = progress;
    }

    /** Prints the heading of the losses. */
    void start(String source) {
        if (out != null) {
            out.println(
                    format(
                            "# jccl %s train %s: %s ranks",
                            Version.TEXT, settings.techniques(), settings.techniques().ranks()));
            out.println("# " + TrainReport.model(settings, source, true));
            boolean evaluated = settings.evaluation().every() > 0;
            out.println(
                    "#   step    loss " + (evaluated ? " held-out text " : "") + "(nats a token)");
            out.flush();
        }
    }

    @Override
    public void warn(String text) {
        progress.erase();
        err.println("jccl train: warning: " + Output.oneLine(text));
        err.flush();
    }

    @Override
    public void step(TrainRun.Step s) {
        int step = s.number();
        if (first < 0) {
            first = step - 1;
        }
        int pace = Math.max(1, settings.steps() / REPORTS);
        if (out != null && (step % pace == 0 || step == settings.steps() || s.validated())) {
            progress.erase();
            String held = s.validated() ? format("  %8.4f", s.validation()) : "";
            out.print(format("%8d  %8.4f%s%n", step, s.loss(), held));
            out.flush();
        }
        if (s.seconds() - shown > PACE_SECONDS) {
            shown = s.seconds();
            int done = BAR * step / settings.steps();
            progress.at(
                    format(
                            "%s%s [%s%s] loss %.3f, %.0f samples/s",
                            part.prefix(),
                            settings.techniques(),
                            "#".repeat(done),
                            "-".repeat(BAR - done),
                            s.loss(),
                            (step - first) * settings.batch() / s.seconds()),
                    part.done(step),
                    part.all(),
                    "steps");
        }
    }
}
