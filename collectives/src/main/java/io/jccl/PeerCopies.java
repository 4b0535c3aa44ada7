package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.engine.copy.CopyEngine;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import java.util.List;
import java.util.Objects;
import java.util.function.BiFunction;

/**
 * Collectives among GPUs of one process by peer-to-peer copies: the copy engines move the data, and
 * all multiprocessors remain available to kernels. Copies follow the channels of a {@link Plan}.
 *
 * {@snippet class="snippets.Collectives" region="peerCopies"}
 *
 * <p>One call runs the operation for all ranks: it takes the buffers of all ranks in rank order,
 * and one stream per rank. A rank's part starts after the work enqueued so far in its stream and in
 * the stream of the rank it receives from; later work in its stream starts once the operation no
 * longer uses the rank's buffers. No host thread waits. Counts are as in {@link Communicator}: a
 * <i>block</i> is the data that one rank sends to or receives from another, <i>n</i> the number of
 * ranks. In-place operations are as defined there; out of place, the two buffers of a rank must not
 * overlap.
 *
 * <p><b>How:</b> each channel carries a share of every block in proportion to its bandwidth, at
 * least 64 KiB if the block is that large. Data that takes several hops is split into chunks, so
 * that all hops are busy at once. For broadcast the number of chunks is sqrt((hops - 1) * time of
 * the share on one hop / 10 us), the optimum of a pipeline with a latency of 10 us per step, but at
 * most 64 and at least 64 KiB each; other operations, which pipeline the ranks' blocks anyway, use
 * at most 4. {@link Settings#withChunkBytes} sets another size. Every hop of a channel has its own
 * stream. Peer access is enabled between devices that support it; between others CUDA stages copies
 * in host memory. The first call with a size creates its schedule, streams and events; the last 32
 * are cached, and calls with these sizes allocate nothing. An in-place allToAll keeps a copy of the
 * buffer in device memory, as does a GPU that forwards blocks of other ranks.
 *
 * <p><b>Errors:</b> invalid arguments throw {@link IllegalArgumentException}, {@link
 * NullPointerException} or, on closed objects and streams that are being captured, {@link
 * IllegalStateException}, and nothing is copied. A copy that CUDA rejects throws {@link
 * io.jccl.bindings.CudaException} with operation, hop and devices; copies enqueued before it still
 * run, the streams wait for them, and the contents of the receive buffers are undefined. Errors of
 * running copies are reported by the next wait for a stream.
 *
 * <p><b>Threads:</b> any platform thread; concurrent calls are serialized. Operations on the same
 * streams run in the order of the calls.
 *
 * <p>Not yet run on a GPU.
 */
public final class PeerCopies implements AutoCloseable {
    private final CopyEngine engine;

    private PeerCopies(CopyEngine engine) {
        this.engine = engine;
    }

    /**
     * Settings.
     *
     * @param chunkBytes bytes per chunk; 0 to derive it from size and number of hops
     */
    public record Settings(long chunkBytes) {
        /** The defaults: chunks are chosen by size. */
        public static final Settings DEFAULT = new Settings(0);

        /** Checks the number. */
        public Settings {
            if (chunkBytes < 0) {
                throw new IllegalArgumentException(
                        "chunkBytes is " + chunkBytes + ", expected 0 (to choose it) or more");
            }
        }

        /**
         * These settings with another chunk size.
         *
         * @param chunkBytes bytes per chunk; 0 to choose it
         * @return new settings
         */
        public Settings withChunkBytes(long chunkBytes) {
            return new Settings(chunkBytes);
        }
    }

    /**
     * Copies along the best plans for a machine, computed when an operation is first called.
     *
     * @param topology the machine
     * @param gpus for each rank, its index in {@link Topology#gpus()}
     * @param devices the same GPUs as CUDA devices, by rank. CUDA may number them differently;
     *     {@link io.jccl.device.Cuda#info} returns the PCI address
     * @param settings settings
     * @return an object that the caller closes
     * @throws IllegalArgumentException if a device is not a CUDA device or appears twice, the
     *     number of devices is not that of {@code gpus}, or no link connects them
     * @throws io.jccl.error.JcclException if CUDA fails
     */
    public static PeerCopies of(
            Topology topology,
            List<Integer> gpus,
            List<? extends Device> devices,
            Settings settings) {
        Objects.requireNonNull(topology, "topology");
        List<Integer> places = List.copyOf(gpus);
        if (places.size() != devices.size()) {
            throw new IllegalArgumentException(
                    ("there are %s gpus and %s devices, expected the same number, one for each"
                                    + " rank")
                            .formatted(places.size(), devices.size()));
        }
        BiFunction<Operation, Integer, Plan> planner =
                (op, root) -> Planner.plan(topology, op, places, root);
        // Reports unusable GPUs here instead of in the first call.
        List<Plan> first =
                places.size() > 1 ? List.of(planner.apply(Operation.ALL_GATHER, 0)) : List.of();
        return new PeerCopies(new CopyEngine(devices, first, planner, settings.chunkBytes()));
    }

    /**
     * Copies along given plans.
     *
     * @param devices one CUDA device per rank, all distinct; rank <i>r</i> is GPU <i>r</i> of
     *     {@link Plan#gpus()}
     * @param plans at least one for each operation that will be called; for rooted operations with
     *     plans of trees, one for each root
     * @param settings settings
     * @return an object that the caller closes
     * @throws IllegalArgumentException if a device is not a CUDA device or appears twice, or a plan
     *     is for another number of GPUs
     * @throws io.jccl.error.JcclException if CUDA fails
     */
    public static PeerCopies of(
            List<? extends Device> devices, List<Plan> plans, Settings settings) {
        return new PeerCopies(new CopyEngine(devices, plans, null, settings.chunkBytes()));
    }

    /**
     * Number of ranks.
     *
     * @return 1 or more
     */
    public int size() {
        return engine.devices().size();
    }

    /**
     * The devices.
     *
     * @return by rank
     */
    public List<Device> devices() {
        return engine.devices();
    }

    /**
     * Number of ordered pairs of devices with peer access; copies between other pairs are staged by
     * CUDA.
     *
     * @return 0 to n * (n - 1)
     */
    public int peers() {
        return engine.peers();
    }

    /**
     * Broadcasts the root's elements to all ranks.
     *
     * @param send the root's elements
     * @param recv destination of each rank, including the root, where it is the same memory as send
     *     for in place
     * @param root the rank to send from
     * @param streams one per rank, on its device
     */
    public void broadcast(
            Buffer send, List<Buffer> recv, int root, List<? extends Stream> streams) {
        engine.broadcast(send, recv, root, streams);
    }

    /**
     * Scatters the root's block i to rank i.
     *
     * @param send the root's n blocks in rank order
     * @param recv one block per rank; in place if the root's is send's block root
     * @param root the rank to send from
     * @param streams one per rank, on its device
     */
    public void scatter(Buffer send, List<Buffer> recv, int root, List<? extends Stream> streams) {
        engine.scatter(send, recv, root, streams);
    }

    /**
     * Gathers the blocks of all ranks on the root.
     *
     * @param send one block per rank; in place if the root's is recv's block root
     * @param recv the root's buffer, n blocks in rank order
     * @param root the rank to receive
     * @param streams one per rank, on its device
     */
    public void gather(List<Buffer> send, Buffer recv, int root, List<? extends Stream> streams) {
        engine.gather(send, recv, root, streams);
    }

    /**
     * Gathers the blocks of all ranks on every rank.
     *
     * @param send one block per rank; in place if it is the block of its rank in recv
     * @param recv n blocks in rank order, per rank
     * @param streams one per rank, on its device
     */
    public void allGather(List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        engine.allGather(send, recv, streams);
    }

    /**
     * Exchanges blocks between all pairs of ranks: rank j receives each rank's block j.
     *
     * @param send n blocks per rank, block j for rank j
     * @param recv n blocks per rank, block i from rank i; for in place, the same memory as send on
     *     all ranks
     * @param streams one per rank, on its device
     */
    public void allToAll(List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        engine.allToAll(send, recv, streams);
    }

    /**
     * Waits for running copies, for at most ten seconds, and frees streams, events and memory.
     * Copies that take longer continue, and the memory that they use is not freed. Closing twice
     * has no effect.
     */
    @Override
    public void close() {
        engine.close();
    }

    @Override
    public String toString() {
        return engine.toString();
    }
}
