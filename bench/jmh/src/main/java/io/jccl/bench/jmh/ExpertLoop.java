package io.jccl.bench.jmh;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.internal.Statistics;
import io.jccl.parallel.ExpertDispatch;
import io.jccl.parallel.ExpertOptions;
import io.jccl.parallel.RouterOptions;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import java.io.PrintWriter;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

/**
 * {@code jccl expert-loop}: tokens to experts and back, alternating with two plain allToAll of the
 * same bytes, so that both see the same load. Prints the median and the fastest of each, and
 * tokens/s. The figures of docs/parallel-experts.md.
 */
@Command(
        name = "expert-loop",
        mixinStandardHelpOptions = true,
        description = "Times dispatch and combine of a mixture of experts against allToAll.")
final class ExpertLoop implements Callable<Integer> {
    /** Iterations until the loops over rows are compiled. */
    private static final int WARM_UP = 8;

    @Option(names = "-g", paramLabel = "N", description = "ranks as threads, else processes")
    private @Nullable Integer ranks;

    @Option(
            names = "--tokens",
            split = ",",
            defaultValue = "1024,4096,16384",
            description = "of each rank (default: ${DEFAULT-VALUE})")
    private List<Integer> tokens = List.of();

    @Option(
            names = "--features",
            split = ",",
            defaultValue = "256,1024",
            description = "of a token (default: ${DEFAULT-VALUE})")
    private List<Integer> features = List.of();

    @Option(
            names = "--experts",
            defaultValue = "8",
            description = "of all ranks (default: ${DEFAULT-VALUE})")
    private int experts;

    @Option(
            names = "--choices",
            defaultValue = "1",
            description = "experts of a token (default: ${DEFAULT-VALUE})")
    private int choices;

    @Option(
            names = "--datatype",
            defaultValue = "float",
            description = "float or bfloat16 (default: ${DEFAULT-VALUE})")
    private String type = "float";

    @Option(
            names = "--repetitions",
            defaultValue = "15",
            description = "the median counts (default: ${DEFAULT-VALUE})")
    private int repetitions;

    @Spec private CommandSpec spec = CommandSpec.create();

    @Override
    public Integer call() {
        if (ranks != null) {
            Communicator.runLocal(ranks, this::measure);
        } else {
            try (Communicator comm = Communicator.fromEnvironment()) {
                measure(comm);
            }
        }
        return 0;
    }

    private void measure(Communicator comm) {
        print(
                comm,
                String.format(
                        Locale.ROOT,
                        "%8s %8s %7s %8s %9s %10s %10s %6s %10s %10s %6s %10s",
                        "tokens",
                        "features",
                        "routing",
                        "max/mean",
                        "route us",
                        "there+back",
                        "2 allToAll",
                        "ratio",
                        "best t+b",
                        "best 2 a",
                        "ratio",
                        "tokens/s"));
        for (int n : tokens) {
            for (int f : features) {
                measure(comm, n, f, false);
                measure(comm, n, f, true);
            }
        }
    }

    private void measure(Communicator comm, int n, int f, boolean skewed) {
        DataType element = DataType.ofLabel(type);
        RouterOptions router =
                new RouterOptions(
                        experts, n, new TokenChoice(choices, choices > 1), 1, Overflow.NONE, false);
        ExpertOptions options = ExpertOptions.of(router, f).withType(element).withBackward(false);
        long sent = (long) n * choices * f;
        Stream stream = comm.device().defaultStream();
        try (ExpertDispatch layer = ExpertDispatch.create(comm, options);
                Buffer logits = comm.device().allocate(DataType.FLOAT32, (long) n * experts);
                Buffer x = comm.device().allocate(element, (long) n * f);
                Buffer send = comm.device().allocate(element, sent);
                Buffer recv = comm.device().allocate(element, sent)) {
            Random random = new Random(comm.rank());
            for (long i = 0; i < logits.count(); i++) {
                logits.set(i, random.nextGaussian() - (skewed ? i % experts : 0));
            }
            for (Buffer b : List.of(x, send, recv)) {
                for (long i = 0; i < b.count(); i++) {
                    b.set(i, (double) (i % 100 - 50));
                }
            }
            double[][] micros = new double[3][repetitions];
            for (int r = -WARM_UP; r < repetitions; r++) {
                comm.barrier(stream);
                long a = System.nanoTime();
                layer.route(logits, n);
                comm.barrier(stream);
                long b = System.nanoTime();
                layer.dispatch(x);
                layer.combine(x);
                comm.barrier(stream);
                long c = System.nanoTime();
                comm.allToAll(send, recv, stream);
                comm.allToAll(recv, send, stream);
                comm.barrier(stream);
                long d = System.nanoTime();
                if (r >= 0) {
                    micros[0][r] = (b - a) * 1e-3;
                    micros[1][r] = (c - b) * 1e-3;
                    micros[2][r] = (d - c) * 1e-3;
                }
            }
            // The fastest first.
            Arrays.sort(micros[1]);
            Arrays.sort(micros[2]);
            double route = Statistics.median(micros[0]);
            double moe = Statistics.median(micros[1]);
            double plain = Statistics.median(micros[2]);
            print(
                    comm,
                    String.format(
                            Locale.ROOT,
                            "%8d %8d %7s %8.2f %9.0f %10.0f %10.0f %6.2f %10.0f %10.0f %6.2f"
                                    + " %10.0f",
                            n,
                            f,
                            skewed ? "skewed" : "even",
                            layer.statistics().maxOverMean(),
                            route,
                            moe,
                            plain,
                            moe / plain,
                            micros[1][0],
                            micros[2][0],
                            micros[1][0] / micros[2][0],
                            n * comm.size() / micros[1][0] * 1e6));
        }
    }

    private void print(Communicator comm, String line) {
        if (comm.rank() == 0) {
            PrintWriter out = spec.commandLine().getOut();
            out.println(line);
            out.flush();
        }
    }
}
