package io.jccl;

import io.jccl.bindings.NcclConfig;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.rendezvous.Store;
import java.util.List;

/**
 * What a communicator over NCCL can do beyond {@link Communicator}. Each method names the version
 * of NCCL that it needs; on an older one it throws {@link UnsupportedOperationException} with both
 * versions. {@link #shrink}, {@link #grow}, {@link #revoke}, {@link #suspend}, {@link #resume} and
 * {@link #window} act at once, so within {@link Group#run} they throw {@link
 * IllegalStateException}.
 */
public interface NcclCommunicator extends Communicator {
    /** Memory of a communicator, in bytes. */
    enum MemoryStatistic {
        /** Device memory that {@link #suspend} would free. */
        SUSPENDABLE,
        /** 1 while suspended, else 0. */
        SUSPENDED,
        /** Device memory that stays. */
        PERSISTENT,
        /** All device memory that NCCL holds for it. */
        TOTAL
    }

    /** Device memory that NCCL knows for this communicator. Close it before the communicator. */
    interface Registration extends AutoCloseable {
        @Override
        void close();
    }

    /** Memory that other ranks can write to, registered by all ranks together. */
    interface Window extends Registration {}

    /**
     * The version of NCCL.
     *
     * @return such as {@code 2.30.7}
     */
    String ncclVersion();

    /**
     * Makes a communicator without some ranks; all that remain call it. The new ranks are the old
     * ones without gaps. Needs NCCL 2.27.
     *
     * @param excluded ranks to leave out, not this one
     * @param abort whether operations under way are ended first, as after a failure
     * @return the new communicator
     */
    @Override
    NcclCommunicator shrink(List<Integer> excluded, boolean abort);

    /**
     * Makes a communicator with this one's ranks and new ones, which call {@link #joinGrown}. All
     * ranks of this one call it. Needs NCCL 2.29.
     *
     * @param name names the new communicator in the store
     * @param size number of ranks afterwards, more than now
     * @return the new communicator, in which this rank keeps its number
     */
    NcclCommunicator grow(String name, int size);

    /**
     * Stops operations under way, keeps the communicator for {@link #split}, {@link #shrink} and
     * closing. Needs NCCL 2.28.7.
     */
    void revoke();

    /** Frees device memory until {@link #resume}; nothing may be under way. Needs NCCL 2.29.7. */
    void suspend();

    /** Takes back what {@link #suspend} freed. Needs NCCL 2.29.7. */
    void resume();

    /**
     * How much memory the communicator uses. Needs NCCL 2.29.7.
     *
     * @param statistic which memory
     * @return bytes
     */
    long memory(MemoryStatistic statistic);

    /**
     * Registers a buffer so that NCCL need not copy through its own. Needs NCCL 2.19.
     *
     * @param buffer device memory of this rank, best of {@link io.jccl.device.Cuda#allocateForNccl}
     * @return the registration
     */
    Registration register(Buffer buffer);

    /**
     * Makes a buffer a window. All ranks call it together. Needs NCCL 2.27.
     *
     * @param buffer memory of {@link io.jccl.device.Cuda#allocateForNccl}, a multiple of 4096 bytes
     * @param symmetric whether all ranks' buffers have the same size and offset, which NCCL can use
     * @return the window
     */
    Window window(Buffer buffer, boolean symmetric);

    /**
     * Writes into a peer's window and signals it. Needs NCCL 2.29.
     *
     * @param source elements to write, which lie in a window of this rank
     * @param peer the rank that gets them
     * @param window the window, as this rank registered it
     * @param offsetBytes where they go in the peer's window
     * @param stream where to enqueue
     */
    void putSignal(Buffer source, int peer, Window window, long offsetBytes, Stream stream);

    /**
     * Signals a peer. Needs NCCL 2.29.
     *
     * @param peer the rank to signal
     * @param stream where to enqueue
     */
    void signal(int peer, Stream stream);

    /**
     * Lets the stream wait for signals of a peer. Needs NCCL 2.29.
     *
     * @param peer the rank that signals
     * @param count how many
     * @param stream where to enqueue
     */
    void waitSignal(int peer, int count, Stream stream);

    /**
     * Joins a communicator as one of the ranks that {@link #grow} adds. Needs NCCL 2.29.
     *
     * @param store the store of the communicator that grows
     * @param name the name that grow was given
     * @param rank this rank in the new communicator, one of those that the old one does not have
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
        NcclSteering.beforeNccl(options);
        return EngineProvider.Holder.ENGINES.ncclGrown(store, name, rank, size, device, options);
    }

    /**
     * What NCCL was told when this communicator was made.
     *
     * @return its settings
     */
    NcclConfig config();
}
