package io.jccl.device;

/**
 * A device with memory for buffers and processors for streams: the host or a GPU.
 *
 * {@snippet class="snippets.Collectives" region="stream"}
 *
 * <p><b>Threads:</b> a device may be used by any thread at any time.
 */
public interface Device {
    /** Kinds of device. */
    enum Kind {
        /** Host memory and CPU cores. */
        HOST,
        /** A CUDA GPU. */
        CUDA
    }

    /**
     * The host device of this process, whose memory is private to this JVM. Ranks that are
     * processes have their own device, {@link io.jccl.Communicator#device()}, whose buffers are
     * shared with the other processes.
     *
     * @return the one host device
     */
    static Device host() {
        return DeviceProvider.Holder.DEVICES.host();
    }

    /**
     * The kind of device.
     *
     * @return the kind
     */
    Kind kind();

    /**
     * The number of the device among devices of its kind.
     *
     * @return 0 for the host
     */
    int index();

    /**
     * Allocates a buffer, filled with zeros and aligned to 64 bytes or better.
     *
     * @param type element type
     * @param count number of elements, 0 or more
     * @return a buffer that the caller closes
     * @throws IllegalArgumentException if count is negative or the size in bytes overflows
     * @throws io.jccl.error.JcclException if the memory cannot be allocated; the message gives the
     *     requested size and the memory available
     */
    Buffer allocate(DataType type, long count);

    /**
     * The stream to use when no overlap is needed. On the host it runs each operation on the
     * calling thread before the call returns.
     *
     * @return a stream that is never closed
     */
    Stream defaultStream();

    /**
     * Creates a stream that runs asynchronously to the caller and to other streams.
     *
     * @return a stream that the caller closes
     */
    Stream newStream();

    /**
     * Creates an event, not yet recorded.
     *
     * @return an event that the caller closes
     */
    Event newEvent();
}
