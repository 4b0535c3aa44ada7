package io.jccl.device;

/**
 * A place where buffers live and streams run: the host's memory and cores, or a GPU.
 *
 * {@snippet class="snippets.Collectives" region="stream"}
 *
 * <p><b>Threads:</b> a device may be used by any thread at any time.
 */
public interface Device {
    /** What a device is. */
    enum Kind {
        /** Host memory, computed on by CPU cores. */
        HOST,
        /** A CUDA GPU. */
        CUDA
    }

    /**
     * The host device of this process: plain memory that threads of this JVM share. Ranks that are
     * processes get a device of their own from {@link io.jccl.Communicator#device()}, whose buffers
     * the other processes can read too.
     *
     * @return the one host device
     */
    static Device host() {
        return DeviceProvider.Holder.DEVICES.host();
    }

    /**
     * What this device is.
     *
     * @return the kind
     */
    Kind kind();

    /**
     * The number of the device among those of its kind.
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
     * @throws io.jccl.error.JcclException if the memory is not to be had; the message names the
     *     size asked for and what is left
     */
    Buffer allocate(DataType type, long count);

    /**
     * The stream that work goes to when the caller needs no overlap. On the host it runs each
     * operation on the calling thread before the call returns.
     *
     * @return a stream that lives as long as the device
     */
    Stream defaultStream();

    /**
     * Creates a stream that runs beside the caller and beside every other stream.
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
