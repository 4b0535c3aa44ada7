package io.jccl.cli;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.bench.TrainDemo;
import io.jccl.train.Trainer;
import io.jccl.train.Trainer.Result;
import io.jccl.train.Trainer.Settings;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import picocli.CommandLine;

class TrainDemoTest {
    private static final int STEPS = 100;

    /**
     * Ranks add the same gradients as one rank does, in another order. A sum of 32 float32 differs
     * by a few units of 6e-8 relative to its largest part, which is about 0.1 here, so a gradient
     * is off by about 1e-7 at most. A step of SGD passes that on times the learning rate over (1 -
     * momentum), 0.05 / 0.1, and 100 steps add up to 5e-6. Later gradients depend on earlier
     * parameters, which makes the differences grow; a factor of 20 is left for that. Parameters
     * move by up to 1 in that time, so a wrong average is off by thousands of this.
     */
    private static final float TOLERANCE = 1e-4f;

    @ParameterizedTest
    @CsvSource({"2, avg, 1", "4, avg, 1", "4, sum, 1", "2, avg, 3", "2, sum, 3"})
    void manyRanksTrainWhatOneDoes(int ranks, String op, int accumulate) {
        ReduceOp reduceOp = op.equals("avg") ? ReduceOp.AVG : ReduceOp.SUM;
        Settings settings = new Settings(STEPS, 32, accumulate, 24, 0.05f, 3, reduceOp, STEPS);
        Result[] one = train(1, settings);
        Result[] many = train(ranks, settings);

        for (Result r : many) {
            assertArrayEquals(one[0].parameters(), r.parameters(), TOLERANCE);
            assertEquals(one[0].loss(), r.loss(), TOLERANCE);
            assertArrayEquals(many[0].parameters(), r.parameters(), "equal on all ranks");
        }
    }

    @Test
    void learnsMoreThanLetterFrequencies() {
        Result r = train(2, new Settings(300, 64, 1, 32, 0.1f, 1, ReduceOp.AVG, 300))[0];

        assertTrue(
                r.loss() < 0.6 * r.unigramEntropy(),
                "loss " + r.loss() + ", unigram entropy " + r.unigramEntropy());
    }

    @ParameterizedTest
    @CsvSource({"2", "4"})
    void sameSeedSameBits(int ranks) {
        Settings settings = new Settings(60, 32, 2, 24, 0.1f, 5, ReduceOp.AVG, 10);
        Result first = train(ranks, settings)[0];
        Result second = train(ranks, settings)[0];

        assertArrayEquals(first.parameters(), second.parameters());
        assertArrayEquals(first.checksums(), second.checksums());
        assertEquals(first.loss(), second.loss());
        assertEquals(first.sample(), second.sample());
    }

    @Test
    void commandReportsEqualChecksums() {
        Outcome o = command(Map.of(), "-g", "2", "--steps", "20", "--hidden", "8");

        assertEquals(0, o.exit, o.err);
        assertTrue(o.out.contains(" on all 2 ranks"), o.out);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "-g 3 --batch 64 | --batch is 64, expected a multiple of the 3 ranks",
                "-g 0 | -g is 0, expected 1 or more",
                "-g 1000 | -g is 1000, expected 256 or less",
                "-g 2 --steps 0 | --steps is 0, expected 1 or more",
                "-g 2 --lr nan | --lr is NaN, expected a number above 0",
            })
    void refusesBadFlags(String flags, String message) {
        Outcome o = command(Map.of(), flags.replace("nan", "NaN").split(" "));

        assertEquals(2, o.exit);
        assertEquals(message, o.err.strip());
    }

    @Test
    void refusesThreadsUnderALauncher() {
        Outcome o = command(Map.of("RANK", "1", "WORLD_SIZE", "2"), "-g", "2");

        assertEquals(2, o.exit);
        assertTrue(o.err.contains("WORLD_SIZE=2"), o.err);
    }

    private static Result[] train(int ranks, Settings settings) {
        @Nullable Result[] results = new @Nullable Result[ranks];
        Communicator.runLocal(
                ranks,
                comm -> results[comm.rank()] = Trainer.train(comm, settings, (step, loss) -> {}));
        Result[] complete = new Result[ranks];
        for (int r = 0; r < ranks; r++) {
            complete[r] = Objects.requireNonNull(results[r]);
        }
        return complete;
    }

    private record Outcome(int exit, String out, String err) {}

    private static Outcome command(Map<String, String> environment, String... args) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int exit =
                new CommandLine(new TrainDemo(environment))
                        .setOut(new PrintWriter(out))
                        .setErr(new PrintWriter(err))
                        .setParameterExceptionHandler((e, a) -> {
                            e.getCommandLine().getErr().println(e.getMessage());
                            return 2;
                        })
                        .execute(args);
        return new Outcome(exit, out.toString(), err.toString());
    }
}
