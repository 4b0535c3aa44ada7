package io.jccl.bench.probe;

import io.jccl.cli.doctor.Hardware;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The result of a probe. Component names, in snake case, are the field names of its JSON, which
 * {@code docs/probe.md} explains.
 *
 * @param schema version of this structure; it increases when a field is removed or changes its
 *     meaning
 * @param jcclVersion version of JCCL
 * @param startTime start, as ISO-8601 in UTC
 * @param arguments the command line
 * @param seconds how long the probe took
 * @param loadBefore mean number of running threads in the minute before; null if it is not known
 * @param loadAfter the same at the end, including the probe's own threads
 * @param warnings why figures may be too low
 * @param machine the machine
 * @param device the measured device
 * @param gpus GPUs visible to this process
 * @param matmul products of square matrices
 * @param elementwise operations that read and write each element once
 * @param memory bandwidth by working set
 * @param latency between cores and devices
 * @param copies between host and devices
 * @param allReduce sums over ranks
 * @param layers a Transformer layer
 * @param roofline ceilings and measured operations
 */
public record ProbeResult(
        int schema,
        String jcclVersion,
        String startTime,
        List<String> arguments,
        double seconds,
        @Nullable Double loadBefore,
        @Nullable Double loadAfter,
        List<String> warnings,
        Hardware machine,
        Measured device,
        List<Gpu> gpus,
        List<Product> matmul,
        List<Elementwise> elementwise,
        List<Access> memory,
        List<Latency> latency,
        List<Copy> copies,
        List<AllReduce> allReduce,
        List<Layer> layers,
        Roofline roofline) {
    /** The structure's version. */
    public static final int SCHEMA = 1;

    /**
     * The measured device.
     *
     * @param kind host or cuda
     * @param index its number among those of its kind
     * @param threads that computed, on the host
     */
    public record Measured(String kind, int index, int threads) {}

    /**
     * A GPU.
     *
     * @param index its number in this process
     * @param model such as {@code NVIDIA H200}
     * @param pci its address
     * @param computeCapability such as {@code 9.0}
     * @param memoryBytes all of its memory
     */
    public record Gpu(
            int index, String model, String pci, String computeCapability, long memoryBytes) {}

    /**
     * The product of two n x n matrices: 2 n^3 floating-point operations.
     *
     * @param type type of the factors
     * @param size n
     * @param teraflops 10^12 operations per second
     */
    public record Product(String type, int size, Outcome outcome, @Nullable Double teraflops) {}

    /**
     * An operation on whole tensors.
     *
     * @param operation its name
     * @param type of the elements
     * @param elements of a tensor
     * @param bytesPerElement read and written
     * @param flopsPerElement additions and multiplications
     * @param threads that computed
     * @param gigabytesPerSecond 10^9 bytes per second
     */
    public record Elementwise(
            String operation,
            String type,
            long elements,
            int bytesPerElement,
            int flopsPerElement,
            int threads,
            Outcome outcome,
            @Nullable Double gigabytesPerSecond) {}

    /**
     * Memory bandwidth.
     *
     * @param access read, write, triad or copy
     * @param bytes size of the working set, over all threads
     * @param threads number of threads, each with its own part
     * @param level the nearest memory that holds a thread's share: L1, L2, L3, RAM or device
     * @param gigabytesPerSecond read and written, 10^9 bytes per second
     */
    public record Access(
            String access,
            long bytes,
            int threads,
            String level,
            Outcome outcome,
            @Nullable Double gigabytesPerSecond) {}

    /**
     * Latency.
     *
     * @param from source
     * @param to destination
     * @param how what is transferred
     * @param nanoseconds one-way latency between cores; from call to completion for devices
     */
    public record Latency(
            String from, String to, String how, Outcome outcome, @Nullable Double nanoseconds) {}

    /**
     * A copy.
     *
     * @param name the case of {@code jccl bandwidth}
     * @param from {@code host}, or such as {@code cuda:0}
     * @param to the same of the target
     * @param bytes of a copy
     * @param gigabytesPerSecond 10^9 bytes per second
     */
    public record Copy(
            String name,
            String from,
            String to,
            long bytes,
            Outcome outcome,
            @Nullable Double gigabytesPerSecond) {}

    /**
     * A sum over ranks, as {@code jccl all_reduce} measures it.
     *
     * @param engine host or nccl
     * @param ranks number of ranks
     * @param bytes of a rank's buffer
     * @param algorithm what the engine used
     * @param busGigabytesPerSecond bus bandwidth as nccl-tests defines it
     */
    public record AllReduce(
            String engine,
            int ranks,
            long bytes,
            @Nullable String algorithm,
            Outcome outcome,
            @Nullable Double busGigabytesPerSecond) {}

    /**
     * A layer of a Transformer: causal self-attention, then a feed-forward part of four times the
     * width.
     *
     * @param hidden width
     * @param heads attention heads
     * @param context tokens of a sequence
     * @param sequences in a batch
     * @param type of elements
     * @param part {@code layer}
     * @param forwardFlops operations of a forward pass
     * @param forward the pass
     * @param backward the pass that computes the gradients of inputs and weights
     * @param forwardTeraflops 10^12 operations per second
     * @param backwardTeraflops the same of the backward pass, which has twice as many
     */
    public record Layer(
            int hidden,
            int heads,
            int context,
            int sequences,
            String type,
            String part,
            double forwardFlops,
            Outcome forward,
            Outcome backward,
            @Nullable Double forwardTeraflops,
            @Nullable Double backwardTeraflops) {}

    /**
     * Ceilings, and measured operations by their arithmetic intensity.
     *
     * @param compute best products, by type
     * @param bandwidth best accesses, by level
     * @param points operations
     */
    public record Roofline(List<Compute> compute, List<Bandwidth> bandwidth, List<Point> points) {
        /**
         * A horizontal ceiling.
         *
         * @param type of the elements
         * @param teraflops 10^12 operations per second
         */
        public record Compute(String type, double teraflops) {}

        /**
         * A slanted ceiling.
         *
         * @param level L1, L2, L3, RAM or device
         * @param gigabytesPerSecond 10^9 bytes per second
         */
        public record Bandwidth(String level, double gigabytesPerSecond) {}

        /**
         * An operation.
         *
         * @param name what it is
         * @param flopsPerByte operations per byte that must be read or written once
         * @param teraflops 10^12 operations per second
         */
        public record Point(String name, double flopsPerByte, double teraflops) {}
    }

    /**
     * Wrong results and failures.
     *
     * @return one line each; empty if none
     */
    public List<String> faults() {
        List<String> all = new ArrayList<>();
        matmul.forEach(r -> add(all, "matmul " + r.type + " " + r.size, r.outcome));
        elementwise.forEach(r -> add(all, r.operation + " " + r.elements, r.outcome));
        memory.forEach(r -> add(all, "memory " + r.access + " " + r.bytes, r.outcome));
        latency.forEach(r -> add(all, "latency " + r.from + " to " + r.to, r.outcome));
        copies.forEach(r -> add(all, "copy " + r.name, r.outcome));
        allReduce.forEach(r -> add(all, "allReduce " + r.bytes, r.outcome));
        layers.forEach(r -> add(all, r.part + " " + r.hidden + " forward", r.forward));
        layers.forEach(r -> add(all, r.part + " " + r.hidden + " backward", r.backward));
        return all;
    }

    private static void add(List<String> to, String what, Outcome outcome) {
        if (outcome.isBad()) {
            to.add(what + ": " + outcome.status() + ": " + outcome.note());
        }
    }

    List<Timing> timings() {
        List<Outcome> all = new ArrayList<>();
        matmul.forEach(r -> all.add(r.outcome));
        elementwise.forEach(r -> all.add(r.outcome));
        memory.forEach(r -> all.add(r.outcome));
        latency.forEach(r -> all.add(r.outcome));
        layers.forEach(r -> all.add(r.forward));
        layers.forEach(r -> all.add(r.backward));
        return all.stream().flatMap(o -> Stream.ofNullable(o.timing())).toList();
    }
}
