package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.error.JcclException;
import io.jccl.train.CharModel;
import io.jccl.train.Trainer;
import io.jccl.train.Trainer.Result;
import io.jccl.train.Trainer.Settings;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** {@code jccl train-demo}: trains a small model data-parallel, as a user of the library would. */
@Command(
        name = "train-demo",
        mixinStandardHelpOptions = true,
        sortOptions = false,
        description = {
            "Trains a tiny character model data-parallel: each rank computes the gradient of its"
                    + " share of every batch, one allReduce averages them.",
            "Ranks are threads with -g, else the processes that a launcher started."
        })
public final class TrainDemo implements Callable<Integer> {
    private static final String CLEAR_LINE = "\r\033[K";

    /** How gradients are joined. */
    enum Op {
        avg(ReduceOp.AVG),
        sum(ReduceOp.SUM);

        private final ReduceOp reduceOp;

        Op(ReduceOp reduceOp) {
            this.reduceOp = reduceOp;
        }
    }

    @Option(
            names = {"-g", "--ranks"},
            paramLabel = "N",
            description = "ranks as threads of this process")
    private @Nullable Integer ranks;

    @Option(
            names = "--steps",
            defaultValue = "500",
            paramLabel = "N",
            description = "optimizer steps (default ${DEFAULT-VALUE})")
    private int steps;

    @Option(
            names = "--batch",
            defaultValue = "64",
            paramLabel = "N",
            description = "predictions a batch, shared among the ranks (default ${DEFAULT-VALUE})")
    private int batch;

    @Option(
            names = "--accumulate",
            defaultValue = "1",
            paramLabel = "K",
            description = "batches between two allReduces (default ${DEFAULT-VALUE})")
    private int accumulate;

    @Option(
            names = "--hidden",
            defaultValue = "64",
            paramLabel = "N",
            description = "width of the hidden layer (default ${DEFAULT-VALUE})")
    private int hidden;

    @Option(
            names = "--lr",
            defaultValue = "0.1",
            paramLabel = "X",
            description = "learning rate (default ${DEFAULT-VALUE})")
    private float learningRate;

    @Option(
            names = "--seed",
            defaultValue = "1",
            paramLabel = "S",
            description = "of text, parameters and batches (default ${DEFAULT-VALUE})")
    private long seed;

    @Option(
            names = "--op",
            defaultValue = "avg",
            paramLabel = "avg|sum",
            description = "how gradients are joined (default ${DEFAULT-VALUE})")
    private Op op = Op.avg;

    @Spec private CommandSpec spec = CommandSpec.create();

    private final Map<String, String> environment;

    /** The command, for picocli. */
    public TrainDemo() {
        this(System.getenv());
    }

    public TrainDemo(Map<String, String> environment) {
        this.environment = environment;
    }

    @Override
    public Integer call() {
        atLeast("--steps", steps, 1);
        atLeast("--batch", batch, 1);
        atLeast("--accumulate", accumulate, 1);
        atLeast("--hidden", hidden, 1);
        atMost("--hidden", hidden, 1 << 14);
        atMost("--batch", batch, 1 << 20);
        atMost("--accumulate", accumulate, 1 << 10);
        if (!(learningRate > 0 && learningRate < Float.POSITIVE_INFINITY)) {
            throw bad("--lr is " + learningRate + ", expected a number above 0");
        }
        Settings settings =
                new Settings(
                        steps,
                        batch,
                        accumulate,
                        hidden,
                        learningRate,
                        seed,
                        op.reduceOp,
                        Math.max(1, steps / 10));
        AtomicInteger exit = new AtomicInteger();
        try {
            if (ranks != null) {
                atLeast("-g", ranks, 1);
                atMost("-g", ranks, 256);
                String world = environment.get("WORLD_SIZE");
                if (environment.containsKey("RANK") && world != null && !world.equals("1")) {
                    throw bad(
                            "-g starts threads, but RANK and WORLD_SIZE="
                                    + world
                                    + " say that a launcher started processes: leave out one");
                }
                checkBatch(ranks);
                Communicator.runLocal(
                        ranks, comm -> exit.accumulateAndGet(run(comm, settings), Math::max));
            } else {
                try (Communicator comm = Communicator.fromEnvironment()) {
                    checkBatch(comm.size());
                    exit.set(run(comm, settings));
                }
            }
        } catch (JcclException e) {
            PrintWriter err = spec.commandLine().getErr();
            err.println("train-demo: " + e.getMessage());
            err.flush();
            return 1;
        }
        return exit.get();
    }

    /** Runs one rank; rank 0 alone prints. */
    private int run(Communicator comm, Settings s) {
        boolean prints = comm.rank() == 0;
        PrintWriter out = spec.commandLine().getOut();
        boolean progress = prints && stderrIsTerminal();
        if (prints) {
            out.printf(
                    Locale.ROOT,
                    "# %d ranks (%s), %d parameters, %d x %d predictions a step, allReduce %s of"
                            + " %d bytes by %s%n",
                    comm.size(),
                    comm.engine(),
                    CharModel.size(s.hidden()),
                    s.accumulate(),
                    s.batch(),
                    s.op(),
                    CharModel.size(s.hidden()) * 4,
                    comm.algorithmFor("allReduce", CharModel.size(s.hidden()) * 4L)
                            .name()
                            .toLowerCase(Locale.ROOT));
            out.printf("#   step    loss (nats a character)%n");
            out.flush();
        }
        Result result =
                Trainer.train(
                        comm,
                        s,
                        (step, loss) -> {
                            if (!prints) {
                                return;
                            }
                            if (progress) {
                                System.err.print(CLEAR_LINE);
                            }
                            out.printf(Locale.ROOT, "%8d  %8.4f%n", step, loss);
                            out.flush();
                            if (progress && step < s.steps()) {
                                System.err.printf("training: %d of %d steps", step, s.steps());
                            }
                        });
        boolean agree = Arrays.stream(result.checksums()).distinct().count() == 1;
        if (prints) {
            print(out, comm.size(), s, result, agree);
        }
        return agree ? 0 : 1;
    }

    private static void print(PrintWriter out, int ranks, Settings s, Result r, boolean agree) {
        double tokens = (double) s.steps() * s.batch() * s.accumulate();
        out.printf(Locale.ROOT, "loss            %.4f%n", r.loss());
        out.printf(
                Locale.ROOT,
                "without context %.4f (unigram entropy of the text)%n",
                r.unigramEntropy());
        out.printf(Locale.ROOT, "tokens/s        %.0f%n", tokens / r.seconds());
        out.printf(
                Locale.ROOT,
                "communication   %.1f %% of %.2f s on rank 0%n",
                100 * r.communicationSeconds() / r.seconds(),
                r.seconds());
        if (agree) {
            out.printf("checksum        %016x on all %d ranks%n", r.checksums()[0], ranks);
        } else {
            for (int i = 0; i < ranks; i++) {
                out.printf("checksum        %016x on rank %d: RANKS DIFFER%n", r.checksums()[i], i);
            }
        }
        out.printf("sample          %s%n", r.sample());
        out.flush();
    }

    private void checkBatch(int size) {
        if (batch % size != 0) {
            throw bad("--batch is " + batch + ", expected a multiple of the " + size + " ranks");
        }
    }

    private void atLeast(String option, int value, int least) {
        if (value < least) {
            throw bad(option + " is " + value + ", expected " + least + " or more");
        }
    }

    private void atMost(String option, int value, int most) {
        if (value > most) {
            throw bad(option + " is " + value + ", expected " + most + " or less");
        }
    }

    private ParameterException bad(String message) {
        return new ParameterException(spec.commandLine(), message);
    }

    /** Java can ask this of stdout only, and a progress line must not end up in a log. */
    private static boolean stderrIsTerminal() {
        try {
            String target = Files.readSymbolicLink(Path.of("/proc/self/fd/2")).toString();
            return target.startsWith("/dev/pts/") || target.startsWith("/dev/tty");
        } catch (IOException | UnsupportedOperationException e) {
            return false;
        }
    }
}
