package io.jccl.bench.probe;

import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.DeviceOptimizer;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.Workers;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Elementwise operations of a trainer by size: a sum on one thread, the others on all threads; on a
 * GPU by the kernels of {@link Compute}.
 */
final class ElementwiseProbe {
    private static final long SMALLEST = 4 << 10;
    private static final int FACTOR = 16;
    private static final double RATE = 1e-3;

    /** A third as bfloat16. */
    private static final double THIRD = 0x1.56p-2;

    /** Share of the time for compilation, per operation. */
    private static final double COMPILE_SHARE = 0.15;

    /** An operation, with bytes and floating-point operations per element. */
    private enum Operation {
        /** {@code c = a + b}. */
        ADD(3 * Float.BYTES, 1),
        /** float32 to bfloat16: reads four bytes, writes two. */
        CAST(Float.BYTES + Short.BYTES, 0),
        /** {@code y = y + alpha x}. */
        AXPY(3 * Float.BYTES, 2),
        /**
         * An Adam step: reads gradient, parameter and two moments, writes the last three.
         * Floating-point operations by its formula: 3 per moment, 5 for the parameter.
         */
        ADAM(7 * Float.BYTES, 11);

        private final int bytes;
        private final int flops;

        Operation(int bytes, int flops) {
            this.bytes = bytes;
            this.flops = flops;
        }

        @Override
        public String toString() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    private final ProbeConfig config;
    private final long room;
    private final Consumer<String> progress;

    ElementwiseProbe(ProbeConfig config, long room, Consumer<String> progress) {
        this.config = config;
        this.room = room;
        this.progress = progress;
    }

    List<ProbeResult.Elementwise> run(Budget budget) {
        List<ProbeResult.Elementwise> rows = new ArrayList<>();
        List<Long> counts = new ArrayList<>();
        long most = Math.max(1, Math.min(config.maxBytes(), room / 4) / Float.BYTES);
        for (long c = Math.min(SMALLEST, most); c <= most; c *= FACTOR) {
            counts.add(c);
        }
        int rest = Operation.values().length * counts.size();
        for (Operation o : Operation.values()) {
            for (long count : counts) {
                progress.accept(o + " of " + count + " elements");
                // The first one includes compilation.
                boolean first = count == counts.getFirst() && !config.cuda();
                double compile = first ? budget.left() * COMPILE_SHARE : 0;
                double share = budget.share(rest--);
                int threads = o == Operation.ADD || config.cuda() ? 1 : config.threads();
                Outcome outcome =
                        measure(
                                o,
                                count,
                                work -> {
                                    Meter.compile(work, compile);
                                    return Meter.measure(work, share);
                                });
                rows.add(row(o, count, threads, outcome));
            }
        }
        return rows;
    }

    private static ProbeResult.Elementwise row(Operation o, long count, int threads, Outcome out) {
        return new ProbeResult.Elementwise(
                o.toString(),
                DataType.FLOAT32.label(),
                count,
                o.bytes,
                o.flops,
                threads,
                out,
                out.rate(o.bytes * count / 1e9));
    }

    private Outcome measure(Operation o, long count, Function<Meter.Work, Timing> meter) {
        try {
            return switch (o) {
                case ADD -> add(count, meter);
                case CAST -> cast(count, meter);
                case AXPY -> axpy(count, meter);
                case ADAM -> config.cuda() ? adamOnDevice(count, meter) : adam(count, meter);
            };
        } catch (UnsupportedOperationException e) {
            // The CUDA runtime cannot load kernels.
            return Outcome.lacking(String.valueOf(e.getMessage()));
        }
    }

    private Compute compute() {
        return config.cuda() ? Compute.of(config.device()) : Compute.host(config.threads());
    }

    private Outcome cast(long count, Function<Meter.Work, Timing> meter) {
        Device device = config.device();
        try (Compute compute = compute();
                Stream stream = device.newStream();
                Buffer from = device.allocate(DataType.FLOAT32, count);
                Buffer to = device.allocate(DataType.BFLOAT16, count)) {
            compute.fill(from, 1.0 / 3, stream);
            Timing timing =
                    meter.apply(Meter.Work.enqueued(() -> compute.cast(from, to, stream), stream));
            return outcome(timing, wrong(to, count - 1, THIRD, 0));
        }
    }

    private Outcome axpy(long count, Function<Meter.Work, Timing> meter) {
        Device device = config.device();
        try (Compute compute = compute();
                Stream stream = device.newStream();
                Buffer x = device.allocate(DataType.FLOAT32, count);
                Buffer y = device.allocate(DataType.FLOAT32, count)) {
            compute.fill(x, 1, stream);
            compute.fill(y, 2, stream);
            // To and fro, so that the sum stays exact.
            long[] step = {0};
            Timing timing =
                    meter.apply(
                            Meter.Work.enqueued(
                                    () -> compute.axpy(step[0]++ % 2 == 0 ? 1 : -1, x, y, stream),
                                    stream));
            return outcome(timing, wrong(y, count - 1, 2.0 + step[0] % 2, 0));
        }
    }

    /** On the host by one thread. */
    private Outcome add(long count, Function<Meter.Work, Timing> meter) {
        Device device = config.device();
        Stream stream = device.defaultStream();
        try (Compute compute = Compute.of(device);
                Buffer a = device.allocate(DataType.FLOAT32, count);
                Buffer b = device.allocate(DataType.FLOAT32, count);
                Buffer c = device.allocate(DataType.FLOAT32, count)) {
            compute.fill(a, 1, stream);
            compute.fill(b, 2, stream);
            Timing timing =
                    meter.apply(Meter.Work.enqueued(() -> compute.add(a, b, c, stream), stream));
            return outcome(timing, wrong(c, count - 1, 3, 0));
        }
    }

    private Outcome adamOnDevice(long count, Function<Meter.Work, Timing> meter) {
        Device gpu = config.device();
        try (Compute compute = compute();
                Stream stream = gpu.newStream();
                DeviceOptimizer state = DeviceOptimizer.allocate(Adam.defaults(), compute, count);
                Buffer ones = gpu.allocate(DataType.FLOAT32, count)) {
            compute.fill(ones, 1, stream);
            long[] step = {0};
            Timing timing =
                    meter.apply(
                            Meter.Work.enqueued(
                                    () -> state.step(ones, null, ++step[0], RATE, 1, stream),
                                    stream));
            double expected = -RATE * step[0];
            double bound = roundingError(step[0], expected);
            return outcome(timing, wrong(state.parameters(), count - 1, expected, bound));
        }
    }

    private Outcome adam(long count, Function<Meter.Work, Timing> meter) {
        Adam adam = Adam.defaults();
        try (OptimizerState state = OptimizerState.allocate(adam, Device.host(), count);
                Buffer gradients = Device.host().allocate(DataType.FLOAT32, count);
                Workers workers = Workers.of(config.threads())) {
            for (long i = 0; i < count; i++) {
                gradients.set(i, 1);
            }
            long[] step = {0};
            Meter.Work work =
                    times -> {
                        for (int i = 0; i < times; i++) {
                            adam.step(workers, state, 0, gradients, null, ++step[0], RATE, 1);
                        }
                    };
            // With a constant gradient of 1 both bias-corrected moments are 1, so each step equals
            // the learning rate.
            Timing timing = meter.apply(work);
            double expected = -RATE * step[0];
            return outcome(
                    timing,
                    wrong(
                            state.parameters(),
                            count - 1,
                            expected,
                            roundingError(step[0], expected)));
        }
    }

    private static Outcome outcome(Timing timing, @Nullable String wrong) {
        return wrong == null ? Outcome.measured(timing) : Outcome.wrong(wrong);
    }

    /** Bound on the float32 error of a sum that ends at {@code last}: half an ulp per addition. */
    static double roundingError(long steps, double last) {
        return steps * Math.ulp((float) last) / 2.0;
    }

    private static @Nullable String wrong(Buffer b, long at, double expected, double bound) {
        double found = b.get(at);
        return Math.abs(found - expected) <= 1e-3 * Math.max(1, Math.abs(expected)) + bound
                ? null
                : "element " + at + " is " + found + ", expected " + expected;
    }
}
