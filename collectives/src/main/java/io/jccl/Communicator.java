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
 * One rank's end of a fixed set of ranks that run collective operations together.
 *
 * {@snippet class="snippets.Collectives" region="average"}
 *
 * <p>Every rank calls the same operations in the same order. An operation is enqueued on a stream;
 * when it has completed there, this rank's buffers may be used again. On the {@linkplain
 * Device#defaultStream() default stream} of the host device that is before the call returns.
 *
 * <p>Counts come from the buffers: <i>n</i> below is {@link #size()}, and a <i>block</i> is what
 * one rank gives to or gets from another. Out of place the two buffers of an operation must not
 * overlap; in place they are the same memory where the operation says so, and the short overloads
 * do just that. Everything is checked before anything moves, and again across ranks: if they
 * disagree, each gets a {@link CollectiveMismatchException}. With NCCL that is only when an
 * operation hangs, after the timeout.
 *
 * <p><b>Errors:</b> faulty arguments throw {@link IllegalArgumentException}, {@link
 * NullPointerException} or, on closed objects, {@link IllegalStateException}, and change nothing.
 * After any {@link JcclException} the communicator is unusable: further operations throw the same
 * error, the other ranks are told, and {@link #close()} is all that is left.
 *
 * <p><b>Interrupts:</b> an operation that can complete does so, and the thread's interrupt flag is
 * still set afterwards; a loop ends by looking at the flag. If what an interrupted thread waits for
 * does not come within one second, the operation ends with a {@link JcclException} that names the
 * interrupt, the flag set. Since ranks run in lock-step, the communicator has then failed on all of
 * them. Two waits do not heed an interrupt: blocking calls of MPI, and an operation on a stream
 * with a thread of its own, whose caller is interrupted only in {@link Stream#synchronize()}.
 *
 * <p><b>Threads:</b> one thread at a time uses a communicator. {@link #abort}, {@link #close} and
 * {@link #history} may be called by any.
 */
public interface Communicator extends AutoCloseable {
    /**
     * Ranks as threads of this JVM.
     *
     * @param size number of ranks, 1 to 256
     * @return one communicator per rank, in rank order; give each to a thread of its own, or drive
     *     them from one with {@link Group#run(List, Runnable)}
     */
    static List<Communicator> local(int size) {
        return local(size, CommunicatorOptions.DEFAULT);
    }

    /**
     * Ranks as threads of this JVM.
     *
     * @param size number of ranks, 1 to 256
     * @param options settings of all ranks
     * @return one communicator per rank, in rank order
     */
    static List<Communicator> local(int size, CommunicatorOptions options) {
        return EngineProvider.Holder.ENGINES.host(size, options);
    }

    /**
     * Ranks of this process by their devices: on GPUs over NCCL, on the host device as {@link
     * #local(int, CommunicatorOptions)}.
     *
     * @param devices one for each rank, in rank order; GPUs that differ, or the host device as
     *     often as there are ranks
     * @param options settings of all ranks
     * @return one communicator per rank, in rank order; give each to a thread of its own, or drive
     *     them from one with {@link Group#run(List, Runnable)}
     * @throws IllegalArgumentException if host and GPUs are mixed, or a GPU is named twice
     * @throws JcclException if NCCL or a device fails, or it takes longer than the timeout
     */
    static List<Communicator> local(List<? extends Device> devices, CommunicatorOptions options) {
        boolean host = devices.stream().allMatch(d -> d.kind() == Device.Kind.HOST);
        if (host) {
            return local(devices.size(), options);
        }
        NcclSteering.beforeNccl(options);
        return EngineProvider.Holder.ENGINES.nccl(devices, options);
    }

    /**
     * Joins the ranks that other threads or processes bring, over NCCL. Every rank calls it; it
     * waits for them, first in the store, where each says which version of NCCL it has, and only
     * then in NCCL.
     *
     * @param store the same for all ranks; it has to outlive the communicator, which tells there
     *     who failed
     * @param name names the communicator; all ranks pass the same one, once per store
     * @param rank this rank
     * @param size number of ranks
     * @param device this rank's CUDA device
     * @param options settings, the same on all ranks
     * @return this rank's end
     * @throws CollectiveTimeoutException if a rank does not come within the timeout; the message
     *     names those missing
     * @throws JcclException if the ranks' versions differ, or NCCL or the device fails
     */
    static Communicator join(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options) {
        NcclSteering.beforeNccl(options);
        return EngineProvider.Holder.ENGINES.nccl(store, name, rank, size, device, options);
    }

    /**
     * Runs a function on every rank of a new local communicator, each on a thread of its own, and
     * waits. If one rank throws, the others are aborted, so that none waits for it.
     *
     * @param size number of ranks, 1 to 256
     * @param options settings of all ranks
     * @param body what each rank runs; its communicator is closed afterwards
     * @throws JcclException if a rank failed; the cause is the error that came first, the others
     *     are suppressed
     */
    static void runLocal(int size, CommunicatorOptions options, RankBody body) {
        Objects.requireNonNull(body, "body");
        List<BitSet> shares = RankBinding.shares(options, System.getenv(), size);
        Ranks.run(local(size, options), shares, body);
    }

    /**
     * Runs a function on every rank of a new communicator of this process's devices, each on a
     * thread of its own, and waits, as {@link #runLocal(int, CommunicatorOptions, RankBody)} does.
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
     * Joins the ranks that a launcher started as processes of this machine, as its environment
     * variables say: {@code RANK} and {@code WORLD_SIZE} as torchrun and {@code jccl run} set them,
     * or those of Open MPI, MPICH and Slurm. With none of them set this is the only rank.
     *
     * <p>With {@code JCCL_ENGINE=mpi}, or if a launcher of MPI has spread the processes over
     * several machines and {@code JCCL_ENGINE} is not set, MPI carries the data, and the ranks are
     * those of its job.
     *
     * @return this process's rank
     * @throws IllegalArgumentException if the variables contradict each other; the message names
     *     them
     * @throws JcclException if the other ranks do not come within the timeout, or there is too
     *     little shared memory
     */
    static Communicator fromEnvironment() {
        return fromEnvironment(CommunicatorOptions.DEFAULT);
    }

    /**
     * Joins the ranks that a launcher started, with options.
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
     * Joins the ranks that a launcher started on this machine, each with its device: GPUs over
     * NCCL, the host device as {@link #fromEnvironment(CommunicatorOptions)}.
     *
     * @param device this rank's device; all ranks have one of the same kind
     * @param options settings, the same on all ranks
     * @return this process's rank
     * @throws JcclException if the other ranks do not come within the timeout, or NCCL fails
     */
    static Communicator fromEnvironment(Device device, CommunicatorOptions options) {
        if (device.kind() == Device.Kind.HOST) {
            return fromEnvironment(options);
        }
        NcclSteering.beforeNccl(options);
        return EngineProvider.Holder.ENGINES.nccl(System.getenv(), device, options);
    }

    /**
     * Joins all processes of the MPI job that {@code mpirun}, {@code srun} or another launcher of
     * MPI started, over the host's MPI, whatever {@code JCCL_ENGINE} says. All of them call it. A
     * process that no launcher started is a job of its own.
     *
     * @param options settings, the same on all ranks
     * @return this process's rank, the same as in {@code MPI_COMM_WORLD}
     * @throws CollectiveTimeoutException if the other ranks do not come within the timeout
     * @throws JcclException if there is no MPI, or it is another one than the launcher's
     */
    static Communicator mpi(CommunicatorOptions options) {
        return EngineProvider.Holder.ENGINES.mpi(options);
    }

    /** What a rank runs. */
    @FunctionalInterface
    interface RankBody {
        /**
         * Runs one rank.
         *
         * @param communicator this rank's end
         * @throws Exception any error; it aborts the other ranks
         */
        void run(Communicator communicator) throws Exception;
    }

    /**
     * This rank.
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
     * The device this rank computes on. Buffers allocated from it are read by other ranks without a
     * staging copy.
     *
     * @return the device
     */
    Device device();

    /**
     * What carries the data.
     *
     * @return {@code "host/threads"}, {@code "host/processes"}, {@code "mpi"} or {@code "nccl"}
     */
    String engine();

    /**
     * The last operations of this rank, which are always written down: what it called, when, and
     * how far it is. 1,024 of them, or as many as {@code JCCL_FLIGHT_CAPACITY} says.
     *
     * <p><b>Threads:</b> any, at any time, also when the communicator has failed.
     *
     * @return a copy
     */
    FlightHistory history();

    /**
     * The algorithm that an operation of this size would use.
     *
     * @param operation name of a method of this interface, such as {@code "allReduce"}
     * @param blockBytes bytes in one block
     * @return one of the host engine's; {@link Algorithm#AUTO} where a native library chooses
     */
    Algorithm algorithmFor(String operation, long blockBytes);

    /**
     * Gives every rank the root's elements.
     *
     * @param send on the root, the elements; ignored and may be null elsewhere
     * @param recv where they go, also on the root; same memory as send for in place
     * @param root the rank that has them
     * @param stream where to enqueue
     */
    void broadcast(@Nullable Buffer send, Buffer recv, int root, Stream stream);

    /**
     * Gives every rank the root's elements, in place.
     *
     * @param buffer the elements on the root, room for them elsewhere
     * @param root the rank that has them
     * @param stream where to enqueue
     */
    default void broadcast(Buffer buffer, int root, Stream stream) {
        broadcast(buffer, buffer, root, stream);
    }

    /**
     * Gives rank i the root's block i.
     *
     * @param send on the root, n blocks in rank order; ignored and may be null elsewhere
     * @param recv one block; in place on the root if it is send's block root
     * @param root the rank that has the blocks
     * @param stream where to enqueue
     */
    void scatter(@Nullable Buffer send, Buffer recv, int root, Stream stream);

    /**
     * Gives rank i the root's block i, in place.
     *
     * @param buffer n blocks on every rank; afterwards block {@link #rank()} holds this rank's
     * @param root the rank that has the blocks
     * @param stream where to enqueue
     */
    void scatter(Buffer buffer, int root, Stream stream);

    /**
     * Gives the root the blocks of all ranks.
     *
     * @param send one block; in place on the root if it is recv's block root
     * @param recv on the root, n blocks in rank order; ignored and may be null elsewhere
     * @param root the rank that gets them
     * @param stream where to enqueue
     */
    void gather(Buffer send, @Nullable Buffer recv, int root, Stream stream);

    /**
     * Gives the root the blocks of all ranks, in place.
     *
     * @param buffer n blocks on every rank; block {@link #rank()} is this rank's
     * @param root the rank that gets them
     * @param stream where to enqueue
     */
    void gather(Buffer buffer, int root, Stream stream);

    /**
     * Reduces element by element over all ranks; the root gets the result.
     *
     * @param send this rank's elements
     * @param recv on the root, the result; same memory as send for in place; ignored and may be
     *     null elsewhere
     * @param op how to reduce
     * @param root the rank that gets the result
     * @param stream where to enqueue
     */
    void reduce(Buffer send, @Nullable Buffer recv, ReduceOp op, int root, Stream stream);

    /**
     * Reduces over all ranks in place; the root gets the result.
     *
     * @param buffer this rank's elements, on the root also the result
     * @param op how to reduce
     * @param root the rank that gets the result
     * @param stream where to enqueue
     */
    default void reduce(Buffer buffer, ReduceOp op, int root, Stream stream) {
        reduce(buffer, rank() == root ? buffer : null, op, root, stream);
    }

    /**
     * Reduces element by element over all ranks; every rank gets the result.
     *
     * @param send this rank's elements
     * @param recv the result; same memory as send for in place
     * @param op how to reduce
     * @param stream where to enqueue
     */
    void allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream);

    /**
     * Reduces over all ranks in place; every rank gets the result.
     *
     * @param buffer this rank's elements, then the result
     * @param op how to reduce
     * @param stream where to enqueue
     */
    default void allReduce(Buffer buffer, ReduceOp op, Stream stream) {
        allReduce(buffer, buffer, op, stream);
    }

    /**
     * Gives every rank the blocks of all ranks.
     *
     * @param send one block; in place if it is recv's block {@link #rank()}
     * @param recv n blocks in rank order
     * @param stream where to enqueue
     */
    void allGather(Buffer send, Buffer recv, Stream stream);

    /**
     * Gives every rank the blocks of all ranks, in place.
     *
     * @param buffer n blocks; block {@link #rank()} is this rank's
     * @param stream where to enqueue
     */
    void allGather(Buffer buffer, Stream stream);

    /**
     * Reduces n blocks over all ranks; rank i gets the result's block i.
     *
     * @param send n blocks in rank order
     * @param recv one block; in place if it is send's block {@link #rank()}
     * @param op how to reduce
     * @param stream where to enqueue
     */
    void reduceScatter(Buffer send, Buffer recv, ReduceOp op, Stream stream);

    /**
     * Reduces n blocks over all ranks in place.
     *
     * @param buffer n blocks; afterwards block {@link #rank()} holds this rank's result
     * @param op how to reduce
     * @param stream where to enqueue
     */
    void reduceScatter(Buffer buffer, ReduceOp op, Stream stream);

    /**
     * Gives rank j this rank's block j, for all pairs of ranks.
     *
     * @param send n blocks, block j for rank j
     * @param recv n blocks, block i from rank i; same memory as send for in place
     * @param stream where to enqueue
     */
    void allToAll(Buffer send, Buffer recv, Stream stream);

    /**
     * Gives rank j this rank's block j, in place.
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
     * @param recv on the root, room for all blocks; may be null elsewhere
     * @param recvCounts on the root, elements from each rank; null elsewhere is allowed
     * @param recvDispls on the root, where each block starts in recv, in elements
     * @param root the rank that gets them
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
     * @param root the rank that has them
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
     * @param recv room for all blocks
     * @param recvCounts elements from each rank, the same on all ranks
     * @param recvDispls where each block starts in recv, in elements
     * @param stream where to enqueue
     */
    void allGatherv(Buffer send, Buffer recv, long[] recvCounts, long[] recvDispls, Stream stream);

    /**
     * {@link #reduceScatter reduceScatter} with blocks of unequal counts, one behind the other in
     * rank order.
     *
     * @param send all blocks; elements behind the last are left alone
     * @param recv this rank's block
     * @param counts elements of each rank's block, the same on all ranks
     * @param op how to reduce
     * @param stream where to enqueue
     */
    void reduceScatterv(Buffer send, Buffer recv, long[] counts, ReduceOp op, Stream stream);

    /**
     * {@link #allToAll allToAll} with blocks of unequal counts. In place needs equal counts and
     * displacements on both sides.
     *
     * @param send all blocks to send
     * @param sendCounts elements for each rank
     * @param sendDispls where each block starts in send, in elements
     * @param recv room for all blocks to receive
     * @param recvCounts elements from each rank; what that rank sends
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
     * Sends elements to one rank, which must {@link #recv} the same count and type. Sends from one
     * rank to another arrive in order. A send completes when the memory may be used again, which
     * may be before or after the other rank has received. A large one waits until then, so two
     * ranks that both send first wait for each other: put a rank's sends and recvs into one {@link
     * Group}.
     *
     * @param buffer the elements
     * @param peer the rank that receives; this rank itself only within a {@link Group}
     * @param stream where to enqueue
     */
    void send(Buffer buffer, int peer, Stream stream);

    /**
     * Receives elements from one rank.
     *
     * @param buffer room for them
     * @param peer the rank that sends; this rank itself only within a {@link Group}
     * @param stream where to enqueue
     */
    void recv(Buffer buffer, int peer, Stream stream);

    /**
     * Completes when every rank has enqueued it and reached it.
     *
     * @param stream where to enqueue
     */
    void barrier(Stream stream);

    /**
     * Splits the ranks into new communicators: those with the same colour form one, ordered by key
     * and then by rank. All ranks call it; it waits for them on the calling thread.
     *
     * @param colour which communicator, 0 or more; a negative number joins none
     * @param key order within it
     * @return the new communicator, or null if the colour is negative
     * @throws IllegalStateException within {@link Group#run}, which only records; nothing changes
     */
    @Nullable Communicator split(int colour, int key);

    /**
     * Makes a communicator without some ranks; all that remain call it with the same list, and it
     * waits for them, up to the timeout, on the calling thread. The new ranks are the old ones
     * without gaps. This communicator is left to be closed; buffers of its device serve the new one
     * too.
     *
     * <p>On the host engine it works after a failure as well: survivors of a rank that died go on.
     * How they agree on who is left, and an example, is in docs/launching.md. NCCL needs 2.27 and a
     * communicator that has not failed yet.
     *
     * @param excluded ranks to leave out, not this one
     * @param abort whether operations under way are ended first, as after a failure; this
     *     communicator is unusable afterwards
     * @return the new communicator
     * @throws IllegalArgumentException if the list names this rank, or one that is not there
     * @throws IllegalStateException within {@link Group#run}, or without abort while operations are
     *     enqueued; nothing changes
     * @throws RankFailedException if one of those that remain ends or gives up meanwhile; leave it
     *     out as well, and call again
     * @throws CollectiveTimeoutException if one of those that remain does not call it in time
     * @throws UnsupportedOperationException if the engine has no such thing, as MPI's
     */
    default Communicator shrink(List<Integer> excluded, boolean abort) {
        throw new UnsupportedOperationException(
                "engine "
                        + engine()
                        + " cannot leave ranks out; start the run again from its checkpoint");
    }

    /**
     * Ends all operations under way and makes this communicator unusable on every rank.
     *
     * @param reason what the other ranks' errors will say
     */
    void abort(String reason);

    /**
     * Leaves the communicator. Work enqueued is awaited for up to the timeout, or, if the thread is
     * interrupted, for one second and then aborted; ranks that still wait for this one get a {@link
     * RankFailedException}. Closing twice does nothing.
     */
    @Override
    void close();
}
