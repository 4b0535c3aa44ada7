package io.jccl.bench.jmh;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.internal.Statistics;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.Workers;
import java.io.PrintWriter;
import java.util.Locale;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/**
 * {@code jccl adam-loop}: the counterpart of {@code peers/adam_ceiling.c}, with the same sizes,
 * threads and statistics. Used by {@code bench/peers/adam}.
 */
@Command(
        name = "adam-loop",
        mixinStandardHelpOptions = true,
        description = "Times a step of Adam on the CPU as bench/peers/adam_ceiling.c does.")
final class AdamLoop implements Callable<Integer> {
    /** Steps until the code is compiled, which works on chunks of 65536 elements. */
    private static final int WARM_UP_CHUNKS = 20_000;

    private static final int CHUNK = 1 << 16;

    @Option(names = "--threads", defaultValue = "2", description = "(default: ${DEFAULT-VALUE})")
    private int threads;

    @Option(
            names = "--repetitions",
            defaultValue = "21",
            description = "the median counts (default: ${DEFAULT-VALUE})")
    private int repetitions;

    @Option(
            names = "--target",
            paramLabel = "TYPE",
            description = "write the parameters in this type as well, such as bfloat16")
    private @Nullable String target;

    @Option(
            names = "--gradients",
            paramLabel = "TYPE",
            defaultValue = "float",
            description = "(default: ${DEFAULT-VALUE})")
    private String gradients = "float";

    @Parameters(paramLabel = "COUNT", description = "number of parameters")
    private long count;

    @Spec private CommandSpec spec = CommandSpec.create();

    @Override
    public Integer call() {
        Adam adam = Adam.defaults();
        Device host = Device.host();
        DataType type = DataType.ofLabel(gradients);
        DataType narrow = target == null ? DataType.BFLOAT16 : DataType.ofLabel(target);
        try (Workers workers = Workers.of(threads);
                OptimizerState state = OptimizerState.allocate(adam, host, count);
                Buffer g = host.allocate(type, count);
                Buffer t = host.allocate(narrow, target == null ? 0 : count).zero()) {
            for (long i = 0; i < count; i++) {
                state.parameters().set(i, (double) (i % 1000) * 1e-3);
                g.set(i, (double) (i % 999 - 499) * 1e-3);
            }
            Buffer to = target == null ? null : t;
            // The C program is compiled already; this one is called until it is.
            long few = Math.min(count, (long) threads * CHUNK);
            Buffer some = g.slice(0, few);
            Buffer toSome = to == null ? null : to.slice(0, few);
            for (long i = 1; i <= WARM_UP_CHUNKS / threads; i++) {
                adam.step(workers, state, 0, some, toSome, i, 1e-3, 1);
            }
            double[] millis = new double[repetitions];
            for (int i = -2; i < repetitions; i++) {
                long start = System.nanoTime();
                adam.step(workers, state, 0, g, to, i + 3, 1e-3, 1);
                if (i >= 0) {
                    millis[i] = (System.nanoTime() - start) * 1e-6;
                }
            }
            PrintWriter out = spec.commandLine().getOut();
            out.printf(Locale.ROOT, "%.3f%n", Statistics.median(millis));
            out.flush();
        }
        return 0;
    }
}
