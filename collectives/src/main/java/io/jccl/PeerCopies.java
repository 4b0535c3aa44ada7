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
 * Collectives of several GPUs of one process by copies between them: the copy engines do the work,
 * and all multiprocessors stay free for kernels. Copies follow the channels of a {@link Plan}.
 *
 * {@snippet class="snippets.Collectives" region="peerCopies"}
 *
 * <p>One call is the whole operation, for all ranks: it takes the buffers of all of them, in rank
 * order, and a stream for each. A rank's part starts behind what is in its stream, and in that of
 * the rank it gets data from, by then; the stream goes on when nothing of the operation uses the
 * rank's buffers any more. No host thread waits. Sizes in elements are as in {@link Communicator}:
 * a <i>block</i> is what one rank gives to or gets from another, <i>n</i> the number of ranks. In
 * place means what it means there; out of place the two buffers of a rank must not overlap.
 *
 * <p><b>How:</b> each channel carries a share of every block in proportion to its bandwidth, at
 * least 64 KiB if there is as much. What goes over several hops is cut into chunks, so that all
 * hops work at once. For broadcast their number is sqrt((hops - 1) * time of the share on one hop /
 * 10 us), the optimum of a pipeline whose steps cost 10 us beside their bytes, at least 64 KiB each
 * and 64 at most; the others, where every rank's blocks follow each other anyway, make 4 at most.
 * {@link Settings#withChunkBytes} sets another size. Every hop of a channel has a stream of its
 * own. Devices that can are given access to each other's memory; between others CUDA stages copies
 * in host memory. The first call of a size makes its schedule, streams and events; the last 32 are
 * kept, and calls of these sizes allocate nothing. allToAll in place keeps a copy of the buffer in
 * device memory, and a GPU that passes on blocks that are not its own keeps these.
 *
 * <p><b>Errors:</b> faulty arguments throw {@link IllegalArgumentException}, {@link
 * NullPointerException} or, on closed objects and streams that are being captured, {@link
 * IllegalStateException}, and nothing is copied. A copy that CUDA refuses throws {@link
 * io.jccl.bindings.CudaException} with operation, hop and devices; what was enqueued before it
 * runs, the streams wait for that, and what the receive buffers hold then is not defined. Errors of
 * running copies surface where somebody waits for a stream.
 *
 * <p><b>Threads:</b> any platform thread; one call at a time runs, others wait. Operations on the
 * same streams run in the order of the calls.
 *
 * <p>Not yet run on a GPU.
 */
public final class PeerCopies implements AutoCloseable {
    private final CopyEngine engine;

    private PeerCopies(CopyEngine engine) {
        this.engine = engine;
    }

    /**
     * What can be set.
     *
     * @param chunkBytes bytes of a chunk; 0 to choose them by size and hops
     */
    public record Settings(long chunkBytes) {
        /** Everything is chosen. */
        public static final Settings DEFAULT = new Settings(0);

        /** Checks the number. */
        public Settings {
            if (chunkBytes < 0) {
                throw new IllegalArgumentException(
                        "chunkBytes is " + chunkBytes + ", expected 0 (to choose it) or more");
            }
        }

        /**
         * These settings with another size of chunks.
         *
         * @param chunkBytes bytes of a chunk; 0 to choose them
         * @return new settings
         */
        public Settings withChunkBytes(long chunkBytes) {
            return new Settings(chunkBytes);
        }
    }

    /**
     * Copies along the best plans for a machine, made when an operation is first called.
     *
     * @param topology the machine
     * @param gpus by rank: places in {@link Topology#gpus()}
     * @param devices the same GPUs as CUDA devices, by rank. CUDA may number them otherwise than
     *     the machine does; {@link io.jccl.device.Cuda#info} tells the PCI address
     * @param settings what is not to be chosen
     * @return an object that the caller closes
     * @throws IllegalArgumentException if devices are not CUDA's, or the same, or not as many as
     *     there are {@code gpus}, or no link joins them
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
                    "there are "
                            + places.size()
                            + " gpus and "
                            + devices.size()
                            + " devices, expected the same number, one for each rank");
        }
        BiFunction<Operation, Integer, Plan> planner =
                (op, root) -> Planner.plan(topology, op, places, root);
        // What is wrong with the GPUs shows here, not in the first call.
        List<Plan> first =
                places.size() > 1 ? List.of(planner.apply(Operation.ALL_GATHER, 0)) : List.of();
        return new PeerCopies(new CopyEngine(devices, first, planner, settings.chunkBytes()));
    }

    /**
     * Copies along given plans.
     *
     * @param devices a CUDA device for each rank, all different; rank <i>r</i> stands for place
     *     <i>r</i> of {@link Plan#gpus()}
     * @param plans at least one for each operation that will be called; for operations with a root
     *     and plans of trees, one for each root
     * @param settings what is not to be chosen
     * @return an object that the caller closes
     * @throws IllegalArgumentException if devices are not CUDA's, or the same, or a plan is for
     *     another number of GPUs
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
     * How many ordered pairs of devices may use each other's memory; copies between others are
     * staged by CUDA.
     *
     * @return 0 to n * (n - 1)
     */
    public int peers() {
        return engine.peers();
    }

    /**
     * Gives every rank the root's elements.
     *
     * @param send the root's elements
     * @param recv where they go, by rank, also on the root; there the same memory as send for in
     *     place
     * @param root the rank that has them
     * @param streams one of each rank's device
     */
    public void broadcast(
            Buffer send, List<Buffer> recv, int root, List<? extends Stream> streams) {
        engine.broadcast(send, recv, root, streams);
    }

    /**
     * Gives rank i the root's block i.
     *
     * @param send the root's n blocks in rank order
     * @param recv one block of each rank; in place if the root's is send's block root
     * @param root the rank that has the blocks
     * @param streams one of each rank's device
     */
    public void scatter(Buffer send, List<Buffer> recv, int root, List<? extends Stream> streams) {
        engine.scatter(send, recv, root, streams);
    }

    /**
     * Gives the root the blocks of all ranks.
     *
     * @param send one block of each rank; in place if the root's is recv's block root
     * @param recv the root's, n blocks in rank order
     * @param root the rank that gets them
     * @param streams one of each rank's device
     */
    public void gather(List<Buffer> send, Buffer recv, int root, List<? extends Stream> streams) {
        engine.gather(send, recv, root, streams);
    }

    /**
     * Gives every rank the blocks of all ranks.
     *
     * @param send one block of each rank; in place if it is the block of its rank in recv
     * @param recv n blocks in rank order, of each rank
     * @param streams one of each rank's device
     */
    public void allGather(List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        engine.allGather(send, recv, streams);
    }

    /**
     * Gives rank j each rank's block j.
     *
     * @param send n blocks of each rank, block j for rank j
     * @param recv n blocks of each rank, block i from rank i; the same memory as send for in place,
     *     on all ranks
     * @param streams one of each rank's device
     */
    public void allToAll(List<Buffer> send, List<Buffer> recv, List<? extends Stream> streams) {
        engine.allToAll(send, recv, streams);
    }

    /**
     * Waits for the copies under way, for ten seconds at most, and frees streams, events and
     * memory. Copies that take longer go on; the memory that they use is not freed. Closing twice
     * does nothing.
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
