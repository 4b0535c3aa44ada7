package io.jccl.bench.probe;

import static io.jccl.cli.shell.Text.format;

import io.jccl.cli.doctor.Hardware;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Version;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import java.lang.management.ManagementFactory;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Runs the parts of a probe sequentially, each within its share of the time. */
public final class ProbeRun {
    /** Larger copies give the same bandwidth. */
    private static final long COPY_BYTES = 256L << 20;

    /** Load, in threads per CPU, above which the results get a warning. */
    private static final double IDLE = 0.25;

    /** Measures sums over ranks. */
    @FunctionalInterface
    public interface Sums {
        /**
         * Runs.
         *
         * @param config what to measure
         * @param seconds the time that is left for it
         * @return one row per size, or a single row with the reason why there is none
         */
        List<ProbeResult.AllReduce> run(ProbeConfig config, double seconds);
    }

    private final ProbeConfig config;
    private final Hardware machine;
    private final Sums sums;
    private final Consumer<Buffer> afterProduct;
    private final Progress progress;

    /**
     * Creates a probe.
     *
     * @param config what to measure
     * @param machine the machine
     * @param sums measures allReduce
     * @param afterProduct called with each matrix product before it is checked; for tests that
     *     corrupt it
     * @param progress receives progress messages
     */
    public ProbeRun(
            ProbeConfig config,
            Hardware machine,
            Sums sums,
            Consumer<Buffer> afterProduct,
            Progress progress) {
        this.config = config;
        this.machine = machine;
        this.sums = sums;
        this.afterProduct = afterProduct;
        this.progress = progress;
    }

    /**
     * Measures.
     *
     * @return the result; errors of single measurements are in their rows
     */
    public ProbeResult run() {
        long start = System.nanoTime();
        String startTime = Instant.now().truncatedTo(ChronoUnit.SECONDS).toString();
        Double before = load();
        Budget whole = new Budget(config.seconds());
        Consumer<String> show =
                text -> progress.at("probe, " + text, 1 - whole.left() / config.seconds());
        long room = room();
        List<? extends Device> devices = List.of(config.device());
        List<ProbeResult.Access> memory = new ArrayList<>();
        List<ProbeResult.Elementwise> elementwise = new ArrayList<>();
        List<ProbeResult.Product> products = new ArrayList<>();
        List<ProbeResult.Latency> latency = new ArrayList<>();
        List<ProbeResult.Copy> copies = new ArrayList<>();
        List<ProbeResult.AllReduce> allReduce = new ArrayList<>();
        List<ProbeResult.Layer> layers = new ArrayList<>();
        Set<ProbeSection> left = EnumSet.copyOf(config.sections());
        for (ProbeSection section : ProbeSection.values()) {
            if (!left.contains(section)) {
                continue;
            }
            int weights = left.stream().mapToInt(ProbeSection::weight).sum();
            Budget budget = new Budget(whole.left() * section.weight() / weights);
            left.remove(section);
            switch (section) {
                case MEMORY ->
                        memory.addAll(new WorkingSetProbe(config, machine, room, show).run(budget));
                case ELEMENTWISE ->
                        elementwise.addAll(new ElementwiseProbe(config, room, show).run(budget));
                case MATMUL ->
                        products.addAll(
                                new MatmulProbe(config, room, afterProduct, show).run(budget));
                case LATENCY -> {
                    show.accept("latency");
                    LatencyProbe probe = new LatencyProbe();
                    latency.addAll(probe.cores(budget.share(config.cuda() ? 2 : 1)));
                    if (config.cuda()) {
                        latency.addAll(probe.devices(peers(), budget));
                    }
                }
                case COPY ->
                        copies.addAll(
                                new CopyProbe(config.cuda() ? peers() : devices)
                                        .run(
                                                Math.min(COPY_BYTES, config.maxBytes()),
                                                budget,
                                                show));
                case ALLREDUCE -> {
                    show.accept("allReduce");
                    allReduce.addAll(sums.run(config, budget.left()));
                }
                case LAYER -> layers.addAll(new LayerProbe(config, room, show).run(budget));
            }
        }
        progress.erase();
        List<String> warnings = new ArrayList<>();
        ProbeResult result =
                new ProbeResult(
                        ProbeResult.SCHEMA,
                        Version.TEXT,
                        startTime,
                        config.arguments(),
                        (System.nanoTime() - start) / 1e9,
                        before,
                        load(),
                        warnings,
                        machine,
                        new ProbeResult.Measured(
                                config.cuda() ? "cuda" : "host",
                                config.device().index(),
                                config.cuda() ? 0 : config.threads()),
                        gpus(),
                        products,
                        elementwise,
                        memory,
                        latency,
                        copies,
                        allReduce,
                        layers,
                        Rooflines.of(products, elementwise, memory, layers));
        // By the measurements, which the result collects.
        warnings.addAll(warnings(result.timings(), before));
        return result;
    }

    /** The measured device first, then the others of its kind. */
    private List<Device> peers() {
        List<Device> all = new ArrayList<>(List.of(config.device()));
        for (int i = 0; i < Cuda.deviceCount(); i++) {
            if (i != config.device().index()) {
                all.add(Cuda.device(i));
            }
        }
        return all;
    }

    /** Half of the free memory, leaving the rest to other programs. */
    private long room() {
        if (config.cuda()) {
            return Cuda.info(config.device()).memoryBytes() / 2;
        }
        Long available = machine.availableMemoryBytes();
        return available == null ? Runtime.getRuntime().maxMemory() / 2 : available / 2;
    }

    private static List<ProbeResult.Gpu> gpus() {
        int count;
        try {
            count = Cuda.deviceCount();
        } catch (RuntimeException e) {
            return List.of(); // no CUDA runtime
        }
        List<ProbeResult.Gpu> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Cuda.DeviceInfo info = Cuda.info(Cuda.device(i));
            all.add(
                    new ProbeResult.Gpu(
                            i,
                            info.model(),
                            info.pciBusId(),
                            info.computeMajor() + "." + info.computeMinor(),
                            info.memoryBytes()));
        }
        return all;
    }

    private static @Nullable Double load() {
        double load = ManagementFactory.getOperatingSystemMXBean().getSystemLoadAverage();
        return load < 0 ? null : Double.valueOf(load);
    }

    private List<String> warnings(List<Timing> timings, @Nullable Double before) {
        List<String> all = new ArrayList<>();
        if (before != null && before > IDLE * machine.availableCpus()) {
            all.add(
                    format(
                            "the load was %.2f on %d CPUs before the probe began: other work slowed"
                                    + " what was measured; run it again on an idle machine",
                            before, machine.availableCpus()));
        }
        long unsteady = timings.stream().filter(t -> !t.steady()).count();
        if (all.isEmpty() && unsteady > timings.size() / 2) {
            all.add(
                    format(
                            "%s of %s measurements were not steady when their time was over; run"
                                    + " it again on an idle machine, or raise --time-budget",
                            unsteady, timings.size()));
        }
        return all;
    }
}
