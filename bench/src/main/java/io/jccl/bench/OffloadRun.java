package io.jccl.bench;

import io.jccl.cli.shell.Drives;
import io.jccl.cli.shell.Progress;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.internal.Statistics;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.ChromeTrace;
import io.jccl.offload.Layer;
import io.jccl.offload.LayerBuffers;
import io.jccl.offload.LayerSchedule;
import io.jccl.offload.LayerTensor;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.ScheduleOptions;
import io.jccl.offload.Tier;
import io.jccl.offload.TierStore;
import io.jccl.offload.Tiers;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import io.jccl.train.Owned;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Runs layers of synthetic parameters through a {@link LayerSchedule}, measures times and checks
 * the results.
 */
public final class OffloadRun implements AutoCloseable {
    private static final Duration TIMEOUT = Duration.ofMinutes(10);
    private static final int WARM_PASSES = 6;

    /** Nanoseconds of one kernel. */
    private static final long LONGEST_SPIN = 10_000_000_000L;

    private static final int PROBES = 5;
    private static final long SEED = 0x9E3779B97F4A7C15L;

    private final OffloadConfig config;
    private final Budgets budgets;
    private final BusyWork busy = new BusyWork();
    private final Owned open = new Owned();
    private final Tiers tiers;
    private final List<Layer> layers = new ArrayList<>();
    private final List<Buffer> homes = new ArrayList<>();
    private final List<Buffer> gradientHomes = new ArrayList<>();
    private final long[] sums;
    private final AtomicReference<@Nullable String> wrong = new AtomicReference<>();
    private final @Nullable Buffer back;
    private final Runnable work;

    /** Enqueues a matrix product as a layer's work on a GPU; null if the work is another. */
    private final @Nullable Consumer<Stream> product;

    /** Runs a kernel as a layer's work on a GPU, unless that is a product. */
    private final @Nullable Compute kernels;

    /** Durations of one layer's kernels, each within the range of Compute. */
    private final List<Duration> spins = new ArrayList<>();

    private long steps;
    private double workMicros;

    /**
     * Times of a sample, in milliseconds.
     *
     * @param copy passes without work
     * @param compute work without copies
     * @param unrelated passes without work and work without copies, running concurrently and
     *     independently: the machine's limit
     * @param overlapped passes with the work
     */
    public record Sample(double copy, double compute, double unrelated, double overlapped) {
        double ideal() {
            return Math.max(copy, compute);
        }

        public double efficiency() {
            return ideal() / overlapped;
        }
    }

    /**
     * The result.
     *
     * @param samples each taken in a row: copy, compute, unrelated, overlapped
     * @param workMicros compute time per layer in microseconds, as requested or derived from the
     *     ratio; 0 for a matrix product
     * @param depth layers prefetched
     * @param peak peak device memory in bytes
     * @param stats statistics of the passes after the samples, which are timed layer by layer
     * @param stalls stalls of those passes
     * @param stallMillis milliseconds of those stalls
     * @param checked layers whose checksum was compared
     * @param wrong the error found; null if none
     */
    public record Result(
            List<Sample> samples,
            double workMicros,
            int depth,
            long peak,
            LayerSchedule.Stats stats,
            long stalls,
            double stallMillis,
            int checked,
            @Nullable String wrong) {
        public double median(java.util.function.ToDoubleFunction<Sample> of) {
            return Statistics.median(samples.stream().mapToDouble(of).toArray());
        }

        public double copy() {
            return median(Sample::copy);
        }

        public double compute() {
            return median(Sample::compute);
        }

        public double unrelated() {
            return median(Sample::unrelated);
        }

        public double overlapped() {
            return median(Sample::overlapped);
        }

        public double ideal() {
            return Math.max(copy(), compute());
        }

        public double efficiency() {
            return ideal() / overlapped();
        }

        /** Computed from the shortest of each time, for a machine with other load. */
        public double fastest() {
            double copy = samples.stream().mapToDouble(Sample::copy).min().orElse(0);
            double compute = samples.stream().mapToDouble(Sample::compute).min().orElse(0);
            double both = samples.stream().mapToDouble(Sample::overlapped).min().orElse(1);
            return Math.max(copy, compute) / both;
        }

        public double best() {
            return samples.stream().mapToDouble(Sample::efficiency).max().orElse(0);
        }

        public double worst() {
            return samples.stream().mapToDouble(Sample::efficiency).min().orElse(0);
        }
    }

    /**
     * Fills the layers.
     *
     * @param config settings
     * @param store store of the layers if not in pinned memory
     * @param afterFill called with the parameters once their checksums are known; for tests that
     *     corrupt them
     */
    public OffloadRun(
            OffloadConfig config, @Nullable TierStore store, Consumer<List<Buffer>> afterFill) {
        this.config = config;
        this.budgets = new Budgets(Map.of(Tier.DEVICE, config.deviceBudget()));
        this.sums = new long[config.layers()];
        boolean made = false;
        try {
            TransferEngine engine =
                    open.add(
                            TransferEngine.create(
                                    config.device(),
                                    TransferOptions.DEFAULT.withChunkBytes(config.chunkBytes())));
            // One slab per slot, so that the pool allocates exactly what the schedule uses.
            BufferPool device =
                    open.add(
                            BufferPool.device(
                                    config.device(),
                                    budgets,
                                    PoolOptions.DEFAULT.withSlabBytes(config.slotBytes())));
            BufferPool pinned =
                    open.add(
                            BufferPool.pinned(
                                    config.device(),
                                    budgets,
                                    store == null
                                            ? PoolOptions.DEFAULT
                                            : PoolOptions.DEFAULT.withAlignment(Drives.ALIGNMENT)));
            tiers = new Tiers(engine, device, pinned, store);
            fill(store);
            afterFill.accept(homes);
            back =
                    config.isCuda()
                            ? open.add(pinned.allocate(DataType.INT64, config.layerBytes() / 8))
                            : null;
            boolean onGpu = config.gemm() > 0 && config.isCuda();
            product = onGpu ? product(config.gemm()) : null;
            kernels = config.isCuda() && !onGpu ? open.add(Compute.of(config.device())) : null;
            if (config.gemm() > 0 && !onGpu) {
                busy.prepareGemm(config.gemm());
            }
            work = config.gemm() > 0 ? () -> busy.gemm(config.gemm()) : () -> busy.spin(steps);
            made = true;
        } finally {
            if (!made) {
                open.close();
            }
        }
    }

    private Consumer<Stream> product(int n) {
        long count = (long) n * n;
        Matmul matmul = open.add(Matmul.of(config.device(), 1));
        Buffer all = open.add(config.device().allocate(DataType.FLOAT32, 3 * count));
        Matrix a = Matrix.of(all, 0, n, n, n);
        Matrix b = Matrix.of(all, count, n, n, n);
        Matrix c = Matrix.of(all, 2 * count, n, n, n);
        return stream -> matmul.multiply(a, b, c, stream);
    }

    private void fill(@Nullable TierStore store) {
        long count = config.layerBytes() / 8;
        try (@Nullable Buffer through =
                store == null ? null : tiers.pinned().allocate(DataType.INT64, count)) {
            fill(store, count, through);
        }
    }

    private void fill(@Nullable TierStore store, long count, @Nullable Buffer through) {
        for (int i = 0; i < config.layers(); i++) {
            Buffer home = through;
            if (home == null) {
                home = open.add(tiers.pinned().allocate(DataType.INT64, count));
                homes.add(home);
            }
            MemorySegment memory = home.asSegment();
            long x = SEED * (i + 1);
            for (long at = 0; at < count; at++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                memory.setAtIndex(ValueLayout.JAVA_LONG, at, x);
            }
            sums[i] = checksum(home);
            LayerTensor parameters;
            if (store == null) {
                parameters = LayerTensor.pinned("parameters", home);
            } else {
                TierStore.Place place = open.add(store.place("layer" + i, DataType.INT64, count));
                place.write(home).await(TIMEOUT);
                parameters = LayerTensor.nvme("parameters", DataType.INT64, count, place);
            }
            Layer layer = Layer.of("layer" + i, parameters);
            if (config.backward()) {
                Buffer g = open.add(tiers.pinned().allocate(DataType.INT64, count));
                gradientHomes.add(g.zero());
                layer = layer.withGradients(LayerTensor.pinned("gradients", g));
            }
            layers.add(layer);
        }
    }

    /** Depends on every element and its position. */
    static long checksum(Buffer b) {
        MemorySegment memory = b.asSegment();
        long sum = 0;
        for (long i = 0; i < b.count(); i++) {
            sum = sum * 31 + memory.getAtIndex(ValueLayout.JAVA_LONG, i);
        }
        return sum;
    }

    /**
     * Measures and checks.
     *
     * @param progress shows which sample is taken
     */
    public Result run(Progress progress) throws IOException {
        ScheduleOptions options =
                ScheduleOptions.DEFAULT
                        .withDepth(config.depth() < 0 ? ScheduleOptions.AUTOMATIC : config.depth())
                        .withCyclic(true)
                        .withTimeout(TIMEOUT);
        List<Sample> samples = new ArrayList<>();
        int depth;
        try (LayerSchedule s = LayerSchedule.create(layers, tiers, options);
                Stream beside = config.device().newStream()) {
            check(s);
            setWork(s);
            // These determine the depth, and compile all code.
            for (int i = 0; i < WARM_PASSES; i++) {
                progress.show("offload: warming up");
                pass(s, this::enqueue);
            }
            for (int i = 0; i < config.samples(); i++) {
                progress.at("offload", i, config.samples(), "samples");
                samples.add(
                        new Sample(
                                passes(s, OffloadRun::nothing),
                                compute(s.compute()),
                                unrelated(s, beside),
                                passes(s, this::enqueue)));
            }
            progress.erase();
            check(s);
            depth = s.depth();
        }
        LayerSchedule.Stats stats;
        try (ChromeTrace trace = config.trace() == null ? null : ChromeTrace.open(config.trace())) {
            ScheduleOptions timed = options.withDepth(depth).withTiming(true).withTrace(trace);
            try (LayerSchedule s = LayerSchedule.create(layers, tiers, timed)) {
                passes(s, this::enqueue);
                stats = s.stats();
            }
        }
        return new Result(
                samples,
                workMicros,
                depth,
                budgets.peak(Tier.DEVICE),
                stats,
                stats.stalls(),
                stats.stallNanos() / 1e6,
                2 * layers.size(),
                wrong.get());
    }

    private void setWork(LayerSchedule s) {
        if (config.gemm() > 0) {
            return;
        }
        workMicros = config.computeMicros();
        if (workMicros < 0) {
            double least = Double.MAX_VALUE;
            for (int i = 0; i < PROBES; i++) {
                least = Math.min(least, passes(s, OffloadRun::nothing));
            }
            double steps = (double) config.passes() * layers.size() * (config.backward() ? 2 : 1);
            workMicros = least * 1e3 / steps * config.ratio();
        }
        if (kernels == null) {
            steps = busy.steps(workMicros);
            return;
        }
        for (long left = Math.round(workMicros * 1e3); left > 0; left -= LONGEST_SPIN) {
            spins.add(Duration.ofNanos(Math.min(left, LONGEST_SPIN)));
        }
    }

    private void enqueue(int layer, LayerBuffers buffers, Stream stream) {
        enqueueWork(stream);
    }

    private void enqueueWork(Stream stream) {
        if (product != null) {
            product.accept(stream);
        } else if (kernels != null) {
            for (int i = 0; i < spins.size(); i++) {
                kernels.spin(spins.get(i), stream);
            }
        } else {
            stream.launchHostFunction(work);
        }
    }

    private static void nothing(int layer, LayerBuffers buffers, Stream stream) {}

    private void pass(LayerSchedule s, LayerSchedule.Work w) {
        if (config.backward()) {
            s.train(w, w);
        } else {
            s.forward(w);
        }
    }

    /** Milliseconds of a sample's passes, from an empty device to completion of all work. */
    private double passes(LayerSchedule s, LayerSchedule.Work w) {
        s.invalidate();
        long began = System.nanoTime();
        for (int i = 0; i < config.passes(); i++) {
            pass(s, w);
        }
        long ended = System.nanoTime();
        s.invalidate(); // prefetches must not overlap the next measurement
        return (ended - began) / 1e6;
    }

    /** Milliseconds of the same work without copies. */
    private double compute(Stream stream) {
        int each = layers.size() * (config.backward() ? 2 : 1);
        long began = System.nanoTime();
        for (int i = 0; i < config.passes(); i++) {
            for (int k = 0; k < each; k++) {
                enqueueWork(stream);
            }
            stream.synchronize(TIMEOUT);
        }
        return (System.nanoTime() - began) / 1e6;
    }

    /** Milliseconds until independent copies and work have completed. */
    private double unrelated(LayerSchedule s, Stream beside) {
        s.invalidate();
        int all = config.passes() * layers.size() * (config.backward() ? 2 : 1);
        long began = System.nanoTime();
        for (int k = 0; k < all; k++) {
            enqueueWork(beside);
        }
        for (int i = 0; i < config.passes(); i++) {
            pass(s, OffloadRun::nothing);
        }
        beside.synchronize(TIMEOUT);
        double millis = (System.nanoTime() - began) / 1e6;
        s.invalidate();
        return millis;
    }

    /**
     * A pass that computes each layer's checksum on the device and writes the layer out as
     * gradients.
     */
    private void check(LayerSchedule s) {
        s.invalidate();
        for (Buffer g : gradientHomes) {
            g.zero();
        }
        pass(s, this::enqueueCheck);
        for (int i = 0; i < gradientHomes.size(); i++) {
            compare("the gradients of layer " + i, sums[i], checksum(gradientHomes.get(i)));
        }
        s.invalidate();
    }

    private void enqueueCheck(int layer, LayerBuffers b, Stream stream) {
        Buffer parameters = b.parameters().getFirst();
        Buffer seen = parameters;
        Buffer copy = back;
        if (copy != null) {
            stream.copy(parameters, copy);
            seen = copy;
        }
        Buffer summed = seen;
        stream.launchHostFunction(
                () -> compare("layer " + layer + " on the device", sums[layer], checksum(summed)));
        if (config.backward()) {
            stream.copy(parameters, b.gradients().getFirst());
        }
    }

    private void compare(String what, long expected, long sum) {
        if (expected != sum) {
            wrong.compareAndSet(
                    null,
                    what
                            + " has checksum 0x"
                            + Long.toHexString(sum)
                            + ", expected 0x"
                            + Long.toHexString(expected));
        }
    }

    @Override
    public void close() {
        open.close();
    }
}
