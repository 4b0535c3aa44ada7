package io.jccl.device;

/**
 * What only CUDA devices have: their number, memory of other kinds, peer access, and the way in for
 * memory and streams that somebody else made.
 *
 * {@snippet class="snippets.Collectives" region="environment"}
 *
 * <p><b>Threads:</b> any platform thread. The calling thread's current CUDA device is put back.
 */
public final class Cuda {
    private static final DeviceProvider.CudaProvider CUDA = DeviceProvider.Holder.DEVICES.cuda();

    private Cuda() {}

    /**
     * Number of CUDA devices that this process sees.
     *
     * @return 0 without a driver or a GPU
     * @throws io.jccl.bindings.NativeLibraryUnavailableException if there is no CUDA runtime
     */
    public static int deviceCount() {
        return CUDA.deviceCount();
    }

    /**
     * A CUDA device.
     *
     * @param index its number in this process, which {@code CUDA_VISIBLE_DEVICES} may have changed
     * @return the device, the same object at every call
     * @throws IllegalArgumentException if there is none of that number
     * @throws io.jccl.bindings.NativeLibraryUnavailableException if there is no CUDA runtime
     */
    public static Device device(int index) {
        return CUDA.device(index);
    }

    /**
     * Another view of a CUDA device, with a default stream of its own, for several ranks on one
     * GPU: work of two ranks in one stream would wait for each other. Buffers and streams of one
     * view are refused by ranks of another.
     *
     * @param index its number in this process
     * @return a new view, which lives as long as the process
     */
    public static Device view(int index) {
        return CUDA.view(index);
    }

    /**
     * What a device is.
     *
     * @param device a CUDA device
     * @return its model, PCI address and compute capability
     */
    public static DeviceInfo info(Device device) {
        return CUDA.info(device);
    }

    /**
     * What a CUDA device is.
     *
     * @param model such as {@code NVIDIA H200}
     * @param pciBusId such as {@code 0000:3b:00.0}
     * @param computeMajor compute capability, first number
     * @param computeMinor compute capability, second number
     * @param memoryBytes all of its memory
     */
    public record DeviceInfo(
            String model, String pciBusId, int computeMajor, int computeMinor, long memoryBytes) {}

    /** Host memory that is pinned until this is closed. */
    public interface Pin extends AutoCloseable {
        @Override
        void close();
    }

    /**
     * Allocates from the device's memory pool in stream order, with whatever content: the memory is
     * there for work that the stream runs from now on, and closing the buffer gives it back behind
     * the work enqueued by then. Much faster than {@link Device#allocate}, which waits.
     *
     * @param stream a stream of a CUDA device; it has to outlive the buffer
     * @param type element type
     * @param count number of elements
     * @return a buffer that the caller closes
     * @throws io.jccl.error.JcclException if the memory is not to be had
     */
    public static Buffer allocateAsync(Stream stream, DataType type, long count) {
        return CUDA.allocateAsync(stream, type, count);
    }

    /**
     * Allocates device memory with NCCL, whose content is not set, in the form that NCCL needs to
     * register it with a communicator or as a window.
     *
     * @param device a CUDA device
     * @param type element type
     * @param count number of elements
     * @return a buffer that the caller closes
     * @throws UnsupportedOperationException if NCCL is older than 2.19
     */
    public static Buffer allocateForNccl(Device device, DataType type, long count) {
        return CUDA.allocateForNccl(device, type, count);
    }

    /**
     * Allocates pinned host memory: copies between it and a device run beside everything else, at
     * the speed of the link. It cannot be swapped out.
     *
     * @param type element type
     * @param count number of elements
     * @return a buffer of the host device, filled with zeros
     * @throws io.jccl.error.JcclException if the memory is not to be had
     */
    public static Buffer pinned(DataType type, long count) {
        return CUDA.pinned(type, count);
    }

    /**
     * Pins host memory that is there already.
     *
     * @param host a buffer outside the Java heap
     * @return the pin; closing it unpins. It has to be closed before the buffer
     * @throws IllegalArgumentException if the buffer is an array, or a device's
     */
    public static Pin pin(Buffer host) {
        return CUDA.pin(host);
    }

    /**
     * Whether CUDA knows host memory as pinned, so that a device copies from and to it directly and
     * beside its work.
     *
     * @param host a buffer of host memory; one on the Java heap is not pinned
     * @return true for memory of {@link #pinned} or under a {@link #pin}
     * @throws IllegalArgumentException if the buffer is a device's
     */
    public static boolean isPinned(Buffer host) {
        return CUDA.isPinned(host);
    }

    /**
     * Whether one device can use another's memory directly.
     *
     * @param device the one that reads and writes
     * @param peer the one with the memory
     * @return true if {@link #enablePeerAccess} can succeed
     */
    public static boolean canAccessPeer(Device device, Device peer) {
        return CUDA.canAccessPeer(device, peer);
    }

    /**
     * Lets one device use another's memory directly; a second call does nothing.
     *
     * @param device the one that reads and writes
     * @param peer the one with the memory
     * @throws io.jccl.bindings.CudaException if these two cannot
     */
    public static void enablePeerAccess(Device device, Device peer) {
        CUDA.enablePeerAccess(device, peer);
    }

    /**
     * Views device memory that somebody else owns, such as a tensor's data pointer.
     *
     * @param device the CUDA device whose memory it is
     * @param address first byte
     * @param type element type
     * @param count number of elements
     * @return a buffer; closing it only ends the view
     * @throws IllegalArgumentException if CUDA knows the address as something else
     */
    public static Buffer wrapAddress(Device device, long address, DataType type, long count) {
        return CUDA.wrapAddress(device, address, type, count);
    }

    /**
     * Views a stream that somebody else owns. Wrap a stream once and keep the view: communicators
     * remember the streams that they have worked on.
     *
     * @param device its CUDA device
     * @param handle the {@code cudaStream_t}; 0 is the null stream of that device
     * @return a stream; closing it does nothing
     * @throws IllegalArgumentException for {@code cudaStreamPerThread}, which is another stream on
     *     every thread
     */
    public static Stream wrapStream(Device device, long handle) {
        return CUDA.wrapStream(device, handle);
    }

    /**
     * The native handle of a stream, for other libraries.
     *
     * @param stream a stream of a CUDA device
     * @return its {@code cudaStream_t}
     */
    public static long streamHandle(Stream stream) {
        return CUDA.streamHandle(stream);
    }
}
