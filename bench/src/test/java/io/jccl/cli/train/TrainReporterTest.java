package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.cli.shell.Progress;
import io.jccl.cli.train.TrainReporter.Part;
import io.jccl.offload.optim.Adam;
import io.jccl.train.Evaluation;
import io.jccl.train.GptShape;
import io.jccl.train.Recipe;
import io.jccl.train.Routing;
import io.jccl.train.RunSettings;
import io.jccl.train.Techniques;
import io.jccl.train.TrainRun;
import java.io.PrintWriter;
import java.io.StringWriter;
import org.junit.jupiter.api.Test;

/** The progress of a training run, alone and as one of several. */
class TrainReporterTest {
    private static final int STEPS = 20;

    private final StringWriter terminal = new StringWriter();
    private long now;
    private final Progress progress =
            new Progress(new PrintWriter(terminal), () -> true, "", () -> now);

    private TrainReporter reporter(Part part, int steps) {
        RunSettings s =
                new RunSettings(
                        new GptShape(1, 8, 2, 8, 20, 0, Routing.SWITCH, 1, false),
                        Techniques.NONE,
                        4,
                        steps,
                        1e-3,
                        Adam.defaults(),
                        Recipe.NONE,
                        Evaluation.NONE,
                        1,
                        1,
                        null,
                        null,
                        100,
                        RunSettings.START,
                        null,
                        null);
        return new TrainReporter(s, part, null, new PrintWriter(new StringWriter()), progress);
    }

    private String last() {
        String text = terminal.toString();
        return text.substring(text.lastIndexOf('\r') + 1);
    }

    private void step(TrainReporter reporter, int step, double began) {
        reporter.step(new TrainRun.Step(step, 2.5, Double.NaN, now / 1e9 - began));
    }

    @Test
    void aComparisonShowsTheTimeLeftOfAllItsRuns() {
        Part first = new Part(0, 4, STEPS, false);
        TrainReporter warm = reporter(first.warmUp(), 10);
        now = 1_000_000_000L;
        step(warm, 1, 0);
        now = 2_000_000_000L;
        step(warm, 5, 0);
        assertTrue(last().contains("run 1 of 4, "), last());
        assertTrue(last().endsWith(": 0 of 80 steps"), last());

        TrainReporter run = reporter(first, STEPS);
        now = 11_000_000_000L;
        step(run, 10, 2);
        assertTrue(last().endsWith(": 10 of 80 steps, 1.00/s, 1:10 left"), last());

        // Neither the second run nor its warm-up starts the count again.
        Part second = new Part(1, 4, STEPS, false);
        now = 21_000_000_000L;
        step(reporter(second.warmUp(), 10), 10, 20);
        assertTrue(last().contains("run 2 of 4, "), last());
        assertTrue(last().endsWith(": 20 of 80 steps, 1.00/s, 1:00 left"), last());
        now = 31_000_000_000L;
        step(reporter(second, STEPS), STEPS, 25);
        assertTrue(last().endsWith(": 40 of 80 steps, 1.33/s, 0:30 left"), last());
    }

    @Test
    void aSingleRunIsNotNumbered() {
        TrainReporter run = reporter(new Part(0, 1, STEPS, false), STEPS);
        now = 2_000_000_000L;
        step(run, 10, 0);
        assertEquals(-1, last().indexOf("run 1"), last());
        assertTrue(last().endsWith(": 10 of 20 steps"), last());
    }
}
