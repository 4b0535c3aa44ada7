package io.jccl.cli.plan;

import io.jccl.bench.probe.ProbeJson;
import io.jccl.bench.probe.ProbeResult;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.timeplan.GpuType;
import io.jccl.offload.timeplan.Hardware;
import io.jccl.offload.timeplan.Links;
import io.jccl.offload.timeplan.Rates;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A machine by what jccl probe measured. A rank on the host computes with as many threads as the
 * probe did; where all ranks have more of them than there are CPUs, each has its part. Nothing runs
 * beside compute.
 */
final class ProbedMachine {
    private static final double TERA = 1e12;

    private static final int MOST_RANKS = 1024;

    private final Path file;
    private final ProbeResult probe;
    private final Hardware.Given given;

    private ProbedMachine(Path file, ProbeResult probe, Hardware.Given given) {
        this.file = file;
        this.probe = probe;
        this.given = given;
    }

    /**
     * Reads a probe's JSON.
     *
     * @param file for messages
     * @param text its text
     * @param given overrides of the shipped figures
     * @param type of its GPUs; null for what the probe says
     * @param ranks that share a CPU's memory; 0 for as many as have their own CPUs
     */
    static Hardware read(
            Path file, String text, Hardware.Given given, @Nullable GpuType type, int ranks)
            throws IOException {
        ProbeResult probe = ProbeJson.read(file, text);
        // Fields missing in the JSON are null whatever the record declares.
        if (Stream.of(
                        probe.device(),
                        probe.machine(),
                        probe.gpus(),
                        probe.elementwise(),
                        probe.allReduce(),
                        probe.layers(),
                        probe.roofline())
                .anyMatch(Objects::isNull)) {
            throw new IllegalArgumentException(
                    file
                            + " is JSON, and has not all of device, machine, gpus, elementwise, all_reduce,"
                            + " layers and roofline; give what jccl probe -J wrote");
        }
        ProbedMachine machine = new ProbedMachine(file, probe, given);
        if (probe.device().kind().equals("cuda")) {
            return machine.cuda(type);
        }
        if (type != null) {
            throw new IllegalArgumentException(
                    "--gpu-type is for GPUs, and " + file + " is of a CPU; leave it out");
        }
        return machine.host(ranks);
    }

    private Hardware host(int asked) {
        if (probe.layers().stream().noneMatch(l -> rate(l) > 0)) {
            throw lacks("a layer", "layer");
        }
        double adam =
                probe.elementwise().stream()
                        .filter(e -> e.operation().equals("adam"))
                        .filter(e -> e.gigabytesPerSecond() != null)
                        .max(Comparator.comparingLong(ProbeResult.Elementwise::elements))
                        .map(e -> value(e.gigabytesPerSecond()))
                        .orElseThrow(() -> lacks("a step of Adam", "elementwise"));
        double read = given.nvmeReadGbps() > 0 ? given.nvmeReadGbps() : 1;
        double write = given.nvmeWriteGbps() > 0 ? given.nvmeWriteGbps() : 1;
        int threads = Math.max(1, probe.device().threads());
        int cpus = Math.max(threads, probe.machine().availableCpus());
        int most = asked > 0 ? MOST_RANKS : cpus / threads;
        Long memory = probe.machine().memoryBytes();
        if (memory == null) {
            throw new IllegalArgumentException(
                    file + " has no memory_bytes of its machine; add the field");
        }
        Function<Job, Rates> rates =
                job -> {
                    if (job.precision() == Precision.FP8) {
                        throw new IllegalArgumentException(
                                file + " is of a CPU, which has no fp8; give --precision fp32");
                    }
                    int ranks = job.machine().gpus();
                    // What the probe's threads reached, as long as each rank's have their own CPUs.
                    double share = Math.min(1, (double) cpus / threads / ranks);
                    double layer = layer(job.model().hidden()) * share;
                    return new Rates(
                            layer,
                            layer,
                            layer,
                            layer,
                            Double.POSITIVE_INFINITY,
                            adam * share,
                            adam * share,
                            adam * share,
                            read / ranks,
                            write / ranks);
                };
        return new Hardware(
                file.getFileName().toString(),
                most,
                Math.max(1, memory / (asked > 0 ? asked : most)),
                rates,
                links("host"),
                false,
                List.of(
                        "each rank computes as the probe did, with "
                                + threads
                                + (threads == 1 ? " thread" : " threads")
                                + ", and shares the machine's memory and "
                                + cpus
                                + " CPUs; utilisation is stated against the probe's layer"));
    }

    private Hardware cuda(@Nullable GpuType named) {
        ProbeResult.Gpu gpu = probe.gpus().get(probe.device().index());
        GpuType type =
                named != null
                        ? named
                        : GpuType.ofModel(gpu.model())
                                .orElseThrow(() ->
                                        new IllegalArgumentException(
                                                file
                                                        + " is of a "
                                                        + gpu.model()
                                                        + ", which is not among the known types;"
                                                        + " give --gpu-type"));
        double memory =
                probe.roofline().bandwidth().stream()
                        .filter(b -> b.level().equals("device"))
                        .mapToDouble(ProbeResult.Roofline.Bandwidth::gigabytesPerSecond)
                        .findFirst()
                        .orElseThrow(() -> lacks("memory bandwidth", "memory"));
        Map<String, Double> best = new TreeMap<>();
        probe.roofline().compute().forEach(c -> best.put(c.type(), c.teraflops()));
        int gpus = probe.gpus().size();
        Function<Job, Rates> rates =
                job -> {
                    String name =
                            switch (job.precision().wide()) {
                                case FP32 -> "float32";
                                case FP16 -> "float16";
                                default -> "bfloat16";
                            };
                    Double product = best.get(name);
                    if (product == null) {
                        throw lacks("products of " + name, "matmul");
                    }
                    return Hardware.measured(type, given, product, memory, job);
                };
        return new Hardware(
                file.getFileName().toString(),
                gpus,
                gpu.memoryBytes(),
                rates,
                gpus > 1
                        ? links("nccl")
                        : (op, on, machines, bytes) -> {
                            throw lacks("an allReduce", "allreduce");
                        },
                true,
                List.of("not yet compared with a run on a GPU"));
    }

    /** TFLOP/s of the layer whose width is nearest. */
    private double layer(int hidden) {
        return probe.layers().stream()
                .filter(l -> rate(l) > 0)
                .min(
                        Comparator.comparingDouble(
                                l -> Math.abs(Math.log((double) l.hidden() / hidden))))
                .map(ProbedMachine::rate)
                .orElseThrow();
    }

    /** TFLOP/s of forward and backward pass together. */
    private static double rate(ProbeResult.Layer l) {
        var forward = l.forward().timing();
        var backward = l.backward().timing();
        return forward == null || backward == null
                ? 0
                : 3
                        * l.forwardFlops()
                        / (forward.medianSeconds() + backward.medianSeconds())
                        / TERA;
    }

    /** Collectives at the bus bandwidth that allReduce had at the nearest size. */
    private Links links(String engine) {
        TreeMap<Long, Double> measured = new TreeMap<>();
        for (ProbeResult.AllReduce a : probe.allReduce()) {
            if (a.engine().equals(engine) && a.busGigabytesPerSecond() != null) {
                measured.put(a.bytes(), a.busGigabytesPerSecond());
            }
        }
        return (op, gpus, machines, bytes) -> {
            if (machines > 1) {
                throw new IllegalArgumentException(
                        file
                                + " is one machine's probe, which has no network; leave --nodes"
                                + " at 1");
            }
            if (measured.isEmpty()) {
                throw lacks("an allReduce", "allreduce");
            }
            return bytes * op.busFactor(gpus.size()) / (nearest(measured, bytes) * 1e9);
        };
    }

    private static double nearest(NavigableMap<Long, Double> measured, long bytes) {
        var below = measured.floorEntry(bytes);
        var above = measured.ceilingEntry(bytes);
        if (below == null || above == null) {
            return below == null ? measured.firstEntry().getValue() : below.getValue();
        }
        return bytes * (double) bytes < below.getKey() * (double) above.getKey()
                ? below.getValue()
                : above.getValue();
    }

    private static double value(@Nullable Double of) {
        return of == null ? 0 : of;
    }

    private IllegalArgumentException lacks(String what, String part) {
        return new IllegalArgumentException(
                file
                        + " has no measured figure for "
                        + what
                        + "; run jccl probe with --only "
                        + part
                        + " among its parts, and -J");
    }
}
