package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.rendezvous.Store;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One rank's handle to a fixed set of ranks that run collective operations together.
 *
 * {@snippet class="snippets.Collectives" region="average"}
 *
 * <p>Every rank calls the same operations in the same order. An operation is enqueued on a stream;
 * once it has completed there, this rank's buffers may be reused. On the {@linkplain
 * Device#defaultStream() default stream} of the host device it completes before the call returns,
 * after this rank's earlier operations on other streams.
 *
 * <p>Counts are taken from the buffers. Below, <i>n</i> is {@link #size()} and a <i>block</i> is
 * the data that one rank sends to or receives from another. The send and receive buffers of an
 * out-of-place operation must not overlap; an in-place operation uses the same memory for both as
 * documented per operation, which is what the overloads with one buffer do. Arguments are checked
 * locally before any data moves, and on the host engine across ranks too: if ranks disagree, each
 * throws {@link CollectiveMismatchException}. The ranks of NCCL and MPI are compared only when an
 * operation does not complete: NCCL's at the timeout, MPI's after some seconds.
 *
 * <p><b>Errors:</b> invalid arguments throw {@link IllegalArgumentException}, {@link
 * NullPointerException} or, on closed objects, {@link IllegalStateException}, and what the device
 * or the native library lacks throws {@link UnsupportedOperationException}; neither has an effect.
 * After a {@link JcclException} of an operation the communicator is unusable: the other ranks are
 * notified, further operations throw the same error, and only {@link #abort}, {@link #history},
 * {@link #shrink(List, boolean) shrink} after an error, and {@link #close()} remain valid. The same
 * holds after an {@link Error} in an operation, such as a stack overflow, and if a host stream
 * drops an operation because of an earlier error of any of its work. The communicator stays usable
 * if {@link Stream#synchronize(java.time.Duration)} reaches its timeout, and if NCCL refuses an
 * argument of a blocking communicator.
 *
 * <p><b>Interrupts:</b> an operation that can complete does so and leaves the thread's interrupt
 * flag set; a loop should check the flag to end. If an interrupted thread still waits after one
 * second, the operation throws a {@link JcclException} that reports the interrupt, with the flag
 * set. The communicator has then failed on all ranks. Two kinds of wait ignore interrupts: blocking
 * MPI calls, and operations on a stream with its own thread, where only {@link
 * Stream#synchronize()} reacts.
 *
 * <p><b>Threads:</b> a communicator may be used by one thread at a time. {@link #abort}, {@link
 * #close} and {@link #history} may be called from any thread.
 */
public interface Communicator extends AutoCloseable {
    /**
     * Creates ranks that are threads of this JVM.
     *
     * @param size number of ranks, 1 to 256
     * @return one communicator per rank, in rank order; use each on its own thread, or drive all
     *     from one thread with {@link Group#run(List, Runnable)}
     */
    static List<Communicator> local(int size) {
        return local(size, CommunicatorOptions.DEFAULT);
    }

    /**
     * Creates ranks that are threads of this JVM.
     *
     * @param size number of ranks, 1 to 256
     * @param options settings of all ranks
     * @return one communicator per rank, in rank order
     */
    static List<Communicator> local(int size, CommunicatorOptions options) {
        return EngineProvider.Holder.ENGINES.host(size, options);
    }

    /**
     * Creates one rank of this process per device: over NCCL on GPUs, on the host device as by
     * {@link #local(int, CommunicatorOptions)}.
     *
     * @param devices one for each rank, in rank order; distinct GPUs, or the host device once per
     *     rank
     * @param options settings of all ranks
     * @return one communicator per rank, in rank order; use each on its own thread, or drive all
     *     from one thread with {@link Group#run(List, Runnable)}
     * @throws IllegalArgumentException if host and GPUs are mixed, or a GPU appears twice
     * @throws JcclException if NCCL or a device fails, or the timeout passes
     */
    static List<Communicator> local(List<? extends Device> devices, CommunicatorOptions options) {
        boolean host = devices.stream().allMatch(d -> d.kind() == Device.Kind.HOST);
        if (host) {
            return local(devices.size(), options);
        }
        return NcclSteering.begin(
                options, () -> EngineProvider.Holder.ENGINES.nccl(devices, options));
    }

    /**
     * Creates a communicator over NCCL with ranks in other threads or processes. Every rank calls
     * it, and it waits for all of them: first in the store, where versions of NCCL are compared,
     * then in NCCL.
     *
     * @param store the store that all ranks use; it must outlive the communicator, which reports
     *     failed ranks in it
     * @param name name of the communicator, the same on all ranks, used only once per store
     * @param rank this rank
     * @param size number of ranks
     * @param device this rank's CUDA device
     * @param options settings, the same on all ranks
     * @return this rank's communicator
     * @throws CollectiveTimeoutException if ranks are missing when the timeout passes; the message
     *     names them
     * @throws JcclException if the ranks' versions differ, or NCCL or the device fails
     */
    static Communicator join(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options) {
        return NcclSteering.begin(
                options,
                () -> EngineProvider.Holder.ENGINES.nccl(store, name, rank, size, device, options));
    }

    /**
     * Runs a function on every rank of a new local communicator, each on its own thread, and waits
     * for all. If one rank throws, the others are aborted.
     *
     * @param size number of ranks, 1 to 256
     * @param options settings of all ranks
     * @param body what each rank runs; its communicator is closed afterwards
     * @throws JcclException if a rank failed; the cause is the first error, later ones are
     *     suppressed
     */
    static void runLocal(int size, CommunicatorOptions options, RankBody body) {
        Objects.requireNonNull(body, "body");
        List<BitSet> shares = RankBinding.shares(options, System.getenv(), size);
        Ranks.run(local(size, options), shares, body);
    }

    /**
     * Runs a function on every rank of a new communicator over this process's devices, each on its
     * own thread, and waits for all, as {@link #runLocal(int, CommunicatorOptions, RankBody)} does.
     *
     * @param devices one for each rank, in rank order
     * @param options settings of all ranks
     * @param body what each rank runs; its communicator is closed afterwards
     * @throws JcclException if a rank failed
     * @see #local(List, CommunicatorOptions)
     */
    static void runLocal(
            List<? extends Device> devices, CommunicatorOptions options, RankBody body) {
        Objects.requireNonNull(body, "body");
        boolean host = devices.stream().allMatch(d -> d.kind() == Device.Kind.HOST);
        List<BitSet> shares =
                host ? RankBinding.shares(options, System.getenv(), devices.size()) : List.of();
        Ranks.run(local(devices, options), shares, body);
    }

    /**
     * Runs a function on every rank with default options.
     *
     * @param size number of ranks, 1 to 256
     * @param body what each rank runs
     * @see #runLocal(int, CommunicatorOptions, RankBody)
     */
    static void runLocal(int size, RankBody body) {
        runLocal(size, CommunicatorOptions.DEFAULT, body);
    }

    /**
     * Joins the ranks that a launcher started as processes of this machine, according to its
     * environment variables: {@code RANK} and {@code WORLD_SIZE} as set by torchrun and {@code jccl
     * run}, or those of Open MPI, MPICH, Slurm and Kubernetes' indexed jobs ({@link
     * io.jccl.rendezvous.LaunchEnvironment}). If none of them is set, this process is the only
     * rank.
     *
     * <p>MPI is the communication backend, and its ranks are used, if {@code JCCL_ENGINE} is {@code
     * mpi}, or if it is not set and an MPI launcher has placed the processes on several machines.
     *
     * @return this process's rank
     * @throws IllegalArgumentException if the variables contradict each other; the message names
     *     them
     * @throws JcclException if the other ranks do not join within the timeout, or shared memory is
     *     too small
     */
    static Communicator fromEnvironment() {
        return fromEnvironment(CommunicatorOptions.DEFAULT);
    }

    /**
     * Joins the ranks that a launcher started, with the given options.
     *
     * @param options settings, the same on all ranks
     * @return this process's rank
     * @see #fromEnvironment()
     */
    static Communicator fromEnvironment(CommunicatorOptions options) {
        Map<String, String> env = System.getenv();
        EngineProvider engines = EngineProvider.Holder.ENGINES;
        return engines.isMpiChosen(env) ? engines.mpi(options) : LocalJob.join(env, options);
    }

    /**
     * Joins the ranks that a launcher started on this machine, each with its device: over NCCL on
     * GPUs, on the host device as by {@link #fromEnvironment(CommunicatorOptions)}.
     *
     * @param device this rank's device, of the same kind on all ranks
     * @param options settings, the same on all ranks
     * @return this process's rank
     * @throws JcclException if the other ranks do not join within the timeout, or NCCL fails
     */
    static Communicator fromEnvironment(Device device, CommunicatorOptions options) {
        if (device.kind() == Device.Kind.HOST) {
            return fromEnvironment(options);
        }
        return NcclSteering.begin(
                options,
                () -> EngineProvider.Holder.ENGINES.nccl(System.getenv(), device, options));
    }

    /**
     * Joins all processes of the MPI job that {@code mpirun}, {@code srun} or another MPI launcher
     * started, over the MPI library of the host and regardless of {@code JCCL_ENGINE}. All of them
     * call it. A process started without a launcher is a job of size 1.
     *
     * @param options settings, the same on all ranks
     * @return this process's rank, the same as in {@code MPI_COMM_WORLD}
     * @throws CollectiveTimeoutException if the other ranks do not join within the timeout
     * @throws JcclException if there is no MPI library, or it is not the launcher's
     */
    static Communicator mpi(CommunicatorOptions options) {
        return EngineProvider.Holder.ENGINES.mpi(options);
    }

    /** The function that a rank runs. */
    @FunctionalInterface
    interface RankBody {
        /**
         * Runs one rank.
         *
         * @param communicator this rank's communicator
         * @throws Exception any error; the other ranks are aborted
         */
        void run(Communicator communicator) throws Exception;
    }

    /**
     * This rank's number.
     *
     * @return 0 to size - 1
     */
    int rank();

    /**
     * Number of ranks, also called world size.
     *
     * @return 1 or more
     */
    int size();

    /**
     * The device this rank computes on. Other ranks access buffers allocated from it without a
     * staging copy.
     *
     * @return the device
     */
    Device device();

    /**
     * The communication backend.
     *
     * @return {@code "host/threads"}, {@code "host/processes"}, {@code "mpi"} or {@code "nccl"}
     */
    String engine();

    /**
     * The most recent operations of this rank, which the flight recorder always keeps: what was
     * called, when, and whether it has completed. It keeps 1,024 operations unless {@code
     * JCCL_FLIGHT_CAPACITY} sets another number.
     *
     * <p><b>Threads:</b> any, at any time, including after the communicator has failed.
     *
     * @return a copy
     */
    FlightHistory history();

    /**
     * The algorithm that an operation of this size would use.
     *
     * @param operation name of a method of this interface, such as {@code "allReduce"}
     * @param blockBytes bytes in one block
     * @return an algorithm of the host engine; {@link Algorithm#AUTO} if a native library chooses
     * @throws IllegalArgumentException if there is no such operation
     */
    Algorithm algorithmFor(String operation, long blockBytes);

    /**
     * Broadcasts the root's elements to all ranks.
     *
     * @param send on the root, the elements; ignored and may be null elsewhere
     * @param recv destination, on the root too; same memory as send for in place
     * @param root the rank to send from
     * @param stream where to enqueue
     */
    void broadcast(@Nullable Buffer send, Buffer recv, int root, Stream stream);

    /**
     * Broadcasts the root's elements to all ranks, in place.
     *
     * @param buffer the elements on the root, the destination elsewhere
     * @param root the rank to send from
     * @param stream where to enqueue
     */
    default void broadcast(Buffer buffer, int root, Stream stream) {
        broadcast(buffer, buffer, root, stream);
    }

    /**
     * Scatters the root's block i to rank i.
     *
     * @param send on the root, n blocks in rank order; ignored and may be null elsewhere
     * @param recv one block; in place on the root if it is send's block root
     * @param root the rank to send from
     * @param stream where to enqueue
     */
    void scatter(@Nullable Buffer send, Buffer recv, int root, Stream stream);

    /**
     * Scatters the root's block i to rank i, in place.
     *
     * @param buffer n blocks on every rank; afterwards block {@link #rank()} holds this rank's
     * @param root the rank to send from
     * @param stream where to enqueue
     */
    void scatter(Buffer buffer, int root, Stream stream);

    /**
     * Gathers the blocks of all ranks on the root.
     *
     * @param send one block; in place on the root if it is recv's block root
     * @param recv on the root, n blocks in rank order; ignored and may be null elsewhere
     * @param root the rank to receive
     * @param stream where to enqueue
     */
    void gather(Buffer send, @Nullable Buffer recv, int root, Stream stream);

    /**
     * Gathers the blocks of all ranks on the root, in place.
     *
     * @param buffer n blocks on every rank; block {@link #rank()} is this rank's
     * @param root the rank to receive
     * @param stream where to enqueue
     */
    void gather(Buffer buffer, int root, Stream stream);

    /**
     * Reduces element by element over all ranks; the root receives the result.
     *
     * @param send this rank's elements
     * @param recv on the root, the result; same memory as send for in place; ignored and may be
     *     null elsewhere
     * @param op reduction to apply
     * @param root the rank to receive the result
     * @param stream where to enqueue
     */
    void reduce(Buffer send, @Nullable Buffer recv, ReduceOp op, int root, Stream stream);

    /**
     * Reduces over all ranks in place; the root receives the result.
     *
     * @param buffer this rank's elements, on the root also the result
     * @param op reduction to apply
     * @param root the rank to receive the result
     * @param stream where to enqueue
     */
    default void reduce(Buffer buffer, ReduceOp op, int root, Stream stream) {
        reduce(buffer, rank() == root ? buffer : null, op, root, stream);
    }

    /**
     * Reduces element by element over all ranks; every rank receives the result.
     *
     * @param send this rank's elements
     * @param recv the result; same memory as send for in place
     * @param op reduction to apply
     * @param stream where to enqueue
     */
    void allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream);

    /**
     * Reduces over all ranks in place; every rank receives the result.
     *
     * @param buffer this rank's elements, then the result
     * @param op reduction to apply
     * @param stream where to enqueue
     */
    default void allReduce(Buffer buffer, ReduceOp op, Stream stream) {
        allReduce(buffer, buffer, op, stream);
    }

    /**
     * Gathers the blocks of all ranks on every rank.
     *
     * @param send one block; in place if it is recv's block {@link #rank()}
     * @param recv n blocks in rank order
     * @param stream where to enqueue
     */
    void allGather(Buffer send, Buffer recv, Stream stream);

    /**
     * Gathers the blocks of all ranks on every rank, in place.
     *
     * @param buffer n blocks; block {@link #rank()} is this rank's
     * @param stream where to enqueue
     */
    void allGather(Buffer buffer, Stream stream);

    /**
     * Reduces n blocks over all ranks and scatters the result: rank i receives block i.
     *
     * @param send n blocks in rank order
     * @param recv one block; in place if it is send's block {@link #rank()}
     * @param op reduction to apply
     * @param stream where to enqueue
     */
    void reduceScatter(Buffer send, Buffer recv, ReduceOp op, Stream stream);

    /**
     * Reduces n blocks over all ranks and scatters the result, in place.
     *
     * @param buffer n blocks; afterwards block {@link #rank()} holds this rank's result
     * @param op reduction to apply
     * @param stream where to enqueue
     */
    void reduceScatter(Buffer buffer, ReduceOp op, Stream stream);

    /**
     * Exchanges blocks between all pairs of ranks: rank j receives this rank's block j.
     *
     * @param send n blocks, block j for rank j
     * @param recv n blocks, block i from rank i; same memory as send for in place
     * @param stream where to enqueue
     */
    void allToAll(Buffer send, Buffer recv, Stream stream);

    /**
     * Exchanges blocks between all pairs of ranks, in place: rank j receives this rank's block j.
     *
     * @param buffer n blocks
     * @param stream where to enqueue
     */
    default void allToAll(Buffer buffer, Stream stream) {
        allToAll(buffer, buffer, stream);
    }

    /**
     * {@link #gather gather} with blocks of unequal counts.
     *
     * @param send this rank's block
     * @param recv on the root, destination of all blocks; may be null elsewhere
     * @param recvCounts on the root, elements from each rank; null elsewhere is allowed
     * @param recvDispls on the root, where each block starts in recv, in elements
     * @param root the rank to receive
     * @param stream where to enqueue
     */
    void gatherv(
            Buffer send,
            @Nullable Buffer recv,
            long @Nullable [] recvCounts,
            long @Nullable [] recvDispls,
            int root,
            Stream stream);

    /**
     * {@link #scatter scatter} with blocks of unequal counts.
     *
     * @param send on the root, all blocks; may be null elsewhere
     * @param sendCounts on the root, elements for each rank; null elsewhere is allowed
     * @param sendDispls on the root, where each block starts in send, in elements
     * @param recv this rank's block
     * @param root the rank to send from
     * @param stream where to enqueue
     */
    void scatterv(
            @Nullable Buffer send,
            long @Nullable [] sendCounts,
            long @Nullable [] sendDispls,
            Buffer recv,
            int root,
            Stream stream);

    /**
     * {@link #allGather allGather} with blocks of unequal counts.
     *
     * @param send this rank's block
     * @param recv destination of all blocks
     * @param recvCounts elements from each rank, the same on all ranks
     * @param recvDispls where each block starts in recv, in elements
     * @param stream where to enqueue
     */
    void allGatherv(Buffer send, Buffer recv, long[] recvCounts, long[] recvDispls, Stream stream);

    /**
     * {@link #reduceScatter reduceScatter} with blocks of unequal counts, contiguous in rank order.
     *
     * @param send all blocks; elements after the last block are ignored
     * @param recv this rank's block
     * @param counts elements of each rank's block, the same on all ranks
     * @param op reduction to apply
     * @param stream where to enqueue
     */
    void reduceScatterv(Buffer send, Buffer recv, long[] counts, ReduceOp op, Stream stream);

    /**
     * {@link #allToAll allToAll} with blocks of unequal counts. In place requires equal counts and
     * displacements for sending and receiving.
     *
     * @param send all blocks to send
     * @param sendCounts elements for each rank
     * @param sendDispls where each block starts in send, in elements
     * @param recv destination of all received blocks
     * @param recvCounts elements from each rank, equal to what that rank sends
     * @param recvDispls where each block starts in recv, in elements
     * @param stream where to enqueue
     */
    void allToAllv(
            Buffer send,
            long[] sendCounts,
            long[] sendDispls,
            Buffer recv,
            long[] recvCounts,
            long[] recvDispls,
            Stream stream);

    /**
     * Sends elements to one rank, which must {@link #recv} the same count and type. Messages from
     * one rank to another arrive in order. A send completes when its buffer may be reused, which
     * may be before or after the peer has received; a large send waits for the receiver. Two ranks
     * that both send first can therefore deadlock: put a rank's sends and receives into one {@link
     * Group}.
     *
     * @param buffer the elements
     * @param peer the rank to send to; this rank itself only within a {@link Group}
     * @param stream where to enqueue
     */
    void send(Buffer buffer, int peer, Stream stream);

    /**
     * Receives elements from one rank.
     *
     * @param buffer destination
     * @param peer the rank to receive from; this rank itself only within a {@link Group}
     * @param stream where to enqueue
     */
    void recv(Buffer buffer, int peer, Stream stream);

    /**
     * Completes once every rank has reached it in its stream.
     *
     * @param stream where to enqueue
     */
    void barrier(Stream stream);

    /**
     * Splits the ranks into new communicators: ranks with the same colour form one, ordered by key,
     * then by rank. All ranks call it; the calling thread waits for them.
     *
     * @param colour selects the communicator, 0 or more; negative to join none
     * @param key order within the new communicator
     * @return the new communicator, or null if the colour is negative
     * @throws IllegalStateException within {@link Group#run}, which only records; no state is
     *     changed
     */
    @Nullable Communicator split(int colour, int key);

    /**
     * Creates a communicator without some ranks. All remaining ranks call it with the same list;
     * the calling thread waits for them up to the timeout. They are renumbered without gaps, in the
     * old order. The caller still closes this communicator; buffers of its device can be used with
     * the new one.
     *
     * <p>With {@code abort} it also works after a failure, so that the survivors of a rank that
     * died can continue; docs/launching.md shows how they agree on the remaining ranks. It then
     * returns on all remaining ranks that are alive, or throws on all; the host engine does so
     * without {@code abort} too. On NCCL they join again through the store of this communicator;
     * without {@code abort} it needs NCCL 2.27.
     *
     * @param excluded ranks to leave out, not this one; none for a communicator of all
     * @param abort whether to end operations in flight first, as after a failure; this communicator
     *     is unusable afterwards
     * @return the new communicator
     * @throws IllegalArgumentException if the list contains this rank, or one that does not exist
     * @throws IllegalStateException within {@link Group#run}, or without abort while operations are
     *     enqueued; nothing changes
     * @throws RankFailedException if a remaining rank ends, has left or gives up; exclude it too,
     *     and call again
     * @throws CollectiveTimeoutException if a remaining rank does not call it in time
     * @throws UnsupportedOperationException if the engine does not support it, such as MPI
     */
    default Communicator shrink(List<Integer> excluded, boolean abort) {
        throw new UnsupportedOperationException(
                "engine "
                        + engine()
                        + " cannot exclude ranks; restart the run from its checkpoint");
    }

    /**
     * Aborts all operations in flight and makes this communicator unusable on every rank.
     *
     * @param reason included in the error messages of the other ranks
     */
    void abort(String reason);

    /**
     * Leaves the communicator. Waits for enqueued work until the timeout or, if the thread is
     * interrupted, for one second, and aborts what has not completed. Ranks that still wait for
     * this one throw {@link RankFailedException}. Closing twice has no effect.
     *
     * @throws IllegalStateException if a {@linkplain io.jccl.device.Graph graph} with operations of
     *     this communicator is open: close that first
     */
    @Override
    void close();
}
