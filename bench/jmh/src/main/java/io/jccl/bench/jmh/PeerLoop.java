package io.jccl.bench.jmh;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.internal.Statistics;
import java.io.PrintWriter;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/**
 * {@code jccl peer-loop}: the counterpart of {@code peers/mpi_allreduce.c}, with the same sizes,
 * iteration counts and statistics. Used by {@code bench/peers/run}.
 */
@Command(
        name = "peer-loop",
        mixinStandardHelpOptions = true,
        description = "Times allReduce as bench/peers/mpi_allreduce.c does.")
final class PeerLoop implements Callable<Integer> {
    private static final long BYTES_A_REPETITION = 256L << 20;
    private static final int JIT_WARM_UP = 50_000;

    @Option(names = "-g", paramLabel = "N", description = "ranks as threads, else processes")
    private @Nullable Integer ranks;

    @Option(
            names = "--max-iterations",
            defaultValue = "50000",
            description = "a repetition (default: ${DEFAULT-VALUE})")
    private int maxIterations;

    @Option(
            names = "--repetitions",
            defaultValue = "7",
            description = "the median counts (default: ${DEFAULT-VALUE})")
    private int repetitions;

    @Parameters(paramLabel = "BYTES", arity = "1..*", description = "message sizes")
    private List<Long> sizes = List.of();

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
        // The C programs are already compiled; this one is called until it is.
        warmUp(comm, 2, JIT_WARM_UP);
        warmUp(comm, 1 << 14, JIT_WARM_UP / 10);
        for (long bytes : sizes) {
            long count = bytes / DataType.FLOAT32.size();
            try (Buffer send = comm.device().allocate(DataType.FLOAT32, count);
                    Buffer recv = comm.device().allocate(DataType.FLOAT32, count)) {
                for (long i = 0; i < count; i++) {
                    send.set(i, (double) (comm.rank() + i % 1000));
                    recv.set(i, -1); // touches every page
                }
                double micros = measure(comm, send, recv);
                check(comm, recv);
                if (comm.rank() == 0) {
                    PrintWriter out = spec.commandLine().getOut();
                    out.printf(Locale.ROOT, "%d %.4f%n", bytes, micros);
                    out.flush();
                }
            }
        }
    }

    private static void warmUp(Communicator comm, long count, int times) {
        try (Buffer send = comm.device().allocate(DataType.FLOAT32, count);
                Buffer recv = comm.device().allocate(DataType.FLOAT32, count)) {
            repeat(comm, send, recv, times);
        }
    }

    /** Median over the repetitions of the mean time of one operation, in microseconds. */
    private double measure(Communicator comm, Buffer send, Buffer recv) {
        Stream stream = comm.device().defaultStream();
        int iterations = Math.clamp(BYTES_A_REPETITION / send.byteSize(), 4, maxIterations);
        repeat(comm, send, recv, iterations);
        double[] micros = new double[repetitions];
        for (int i = 0; i < repetitions; i++) {
            comm.barrier(stream);
            long start = System.nanoTime();
            repeat(comm, send, recv, iterations);
            micros[i] = (System.nanoTime() - start) * 1e-3 / iterations;
        }
        return Statistics.median(micros);
    }

    private static void repeat(Communicator comm, Buffer send, Buffer recv, int times) {
        Stream stream = comm.device().defaultStream();
        for (int i = 0; i < times; i++) {
            comm.allReduce(send, recv, ReduceOp.SUM, stream);
        }
    }

    private static void check(Communicator comm, Buffer recv) {
        int n = comm.size();
        for (long i = 0; i < recv.count(); i++) {
            double expected = n * (n - 1) / 2.0 + n * (i % 1000);
            if (recv.get(i) != expected) {
                throw new IllegalStateException(
                        "element " + i + " is " + recv.get(i) + ", expected " + expected);
            }
        }
    }
}
