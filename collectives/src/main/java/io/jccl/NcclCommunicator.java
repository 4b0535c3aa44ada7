package io.jccl;

import io.jccl.bindings.NcclConfig;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.rendezvous.Store;
import java.util.List;

/**
 * Operations that only a communicator over NCCL supports. Each method documents the version of NCCL
 * that it needs; with an older one it throws {@link UnsupportedOperationException} with both
 * versions. {@link #shrink}, {@link #grow}, {@link #revoke}, {@link #suspend}, {@link #resume} and
 * {@link #window} take effect at once, so within {@link Group#run} they throw {@link
 * IllegalStateException}.
 *
 * {@snippet class="snippets.Collectives" region="nccl"}
 *
 * <p><b>Threads:</b> as {@link Communicator}.
 */
public interface NcclCommunicator extends Communicator {
    /** Kinds of device memory that a communicator uses, in bytes except {@link #SUSPENDED}. */
    enum MemoryStatistic {
        /** Device memory that {@link #suspend} would free. */
        SUSPENDABLE,
        /** 1 while suspended, else 0. */
        SUSPENDED,
        /** Device memory that {@link #suspend} does not free. */
        PERSISTENT,
        /** All device memory that NCCL holds for the communicator. */
        TOTAL
    }

    /**
     * Device memory that is registered with NCCL for this communicator. Close it before the
     * communicator.
     */
    interface Registration extends AutoCloseable {
        @Override
        void close();
    }

    /** Memory that other ranks can write to, registered collectively by all ranks. */
    interface Window extends Registration {}

    /**
     * The version of NCCL.
     *
     * @return such as {@code 2.30.7}
     */
    String ncclVersion();

    /**
     * Creates a communicator without some of the ranks; all remaining ranks call it. They are
     * renumbered without gaps, in the old order.
     *
     * <p>Without {@code abort} it is NCCL's own operation, which needs NCCL 2.27 and a communicator
     * that has not failed. With {@code abort}, also after a failure, this communicator is aborted,
     * and the remaining ranks join again by its store, with any version of NCCL.
     */
    @Override
    NcclCommunicator shrink(List<Integer> excluded, boolean abort);

    /**
     * Creates a communicator with this one's ranks and new ones, which call {@link #joinGrown}. All
     * ranks of this communicator call it. Needs NCCL 2.29.
     *
     * @param name name of the new communicator in the store, which no other there has had
     * @param size number of ranks of the new communicator, larger than now
     * @return the new communicator, in which this rank keeps its number
     */
    NcclCommunicator grow(String name, int size);

    /**
     * Stops operations in flight; the communicator remains usable for {@link #split}, {@link
     * #shrink} and closing, and other operations throw {@link IllegalStateException}. Needs NCCL
     * 2.28.7.
     */
    void revoke();

    /**
     * Frees device memory until {@link #resume}, after the device's work is complete. All ranks
     * call it, and wait for each other. Until resume, operations, {@link #split}, {@link #grow},
     * {@link #register} and {@link #window} throw {@link IllegalStateException}. Launch no graph
     * with operations of this communicator then, since its kernels would access unmapped memory.
     * Resume before closing: NCCL may not free everything of a suspended communicator. NCCL refuses
     * this for communicators that share resources, those split with {@link
     * io.jccl.bindings.NcclConfig.Field#SPLIT_SHARE} and their parents. Needs NCCL 2.29.7.
     */
    void suspend();

    /**
     * Allocates again what {@link #suspend} freed. All ranks call it, and wait for each other.
     * Needs NCCL 2.29.7.
     */
    void resume();

    /**
     * The device memory that the communicator uses. Needs NCCL 2.29.7.
     *
     * @param statistic which memory
     * @return bytes
     */
    long memory(MemoryStatistic statistic);

    /**
     * Registers a buffer so that NCCL does not need to copy through its own buffers. Needs NCCL
     * 2.19.
     *
     * @param buffer device memory of this rank, preferably of {@link
     *     io.jccl.device.Cuda#allocateForNccl}
     * @return the registration
     */
    Registration register(Buffer buffer);

    /**
     * Registers a buffer as a window. All ranks call it together. Needs NCCL 2.27.
     *
     * @param buffer memory of {@link io.jccl.device.Cuda#allocateForNccl}, a multiple of 4096
     *     bytes; that of {@link Device#allocate} is refused
     * @param symmetric whether all ranks' buffers have the same size and offset, which lets NCCL
     *     use symmetric kernels
     * @return the window
     */
    Window window(Buffer buffer, boolean symmetric);

    /**
     * Writes into a peer's window and signals it. Needs NCCL 2.29.
     *
     * <p>The first one-sided call of a communicator, whether this one, {@link #signal} or {@link
     * #waitSignal}, waits until every rank of the communicator has made one, since NCCL then
     * creates its memory for signals on all ranks. If only some ranks exchange signals, begin with
     * one of each rank to itself: {@code signal(rank(), stream)} and {@code waitSignal(rank(), 1,
     * stream)}. A thread that drives several ranks cannot make these first calls.
     *
     * @param source elements to write, which lie in a symmetric window of this rank
     * @param peer the rank to write to
     * @param window the window, as this rank registered it
     * @param offsetBytes destination in the peer's window, in bytes
     * @param stream where to enqueue
     */
    void putSignal(Buffer source, int peer, Window window, long offsetBytes, Stream stream);

    /**
     * Signals a peer. The first one-sided call waits for all ranks: see {@link #putSignal}. Needs
     * NCCL 2.29.
     *
     * @param peer the rank to signal
     * @param stream where to enqueue
     */
    void signal(int peer, Stream stream);

    /**
     * Makes the stream wait for signals of a peer. The first one-sided call waits for all ranks:
     * see {@link #putSignal}. Needs NCCL 2.29.
     *
     * @param peer the rank that signals
     * @param count how many
     * @param stream where to enqueue
     */
    void waitSignal(int peer, int count, Stream stream);

    /**
     * Joins a communicator as a rank that {@link #grow} adds. Needs NCCL 2.29.
     *
     * @param store the store of the communicator that grows
     * @param name the name passed to grow
     * @param rank this rank in the new communicator, a number that the old one does not have
     * @param size its number of ranks
     * @param device this rank's CUDA device
     * @param options settings
     * @return the new communicator
     */
    static NcclCommunicator joinGrown(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options) {
        return NcclSteering.begin(
                options,
                () ->
                        EngineProvider.Holder.ENGINES.ncclGrown(
                                store, name, rank, size, device, options));
    }

    /**
     * The configuration with which this communicator was created.
     *
     * @return its settings
     */
    NcclConfig config();
}
