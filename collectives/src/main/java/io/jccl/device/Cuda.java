package io.jccl.device;

/**
 * Features specific to CUDA devices: enumeration, stream-ordered and pinned memory, peer access,
 * and wrappers for memory and streams of other libraries.
 *
 * {@snippet class="snippets.Collectives" region="environment"}
 *
 * <p><b>Threads:</b> any platform thread. The calling thread's current CUDA device is restored,
 * unless it has no context yet: the thread then keeps the device that was used.
 */
public final class Cuda {
    private static final DeviceProvider.CudaProvider CUDA = DeviceProvider.Holder.DEVICES.cuda();

    private Cuda() {}

    /**
     * Number of CUDA devices visible to this process.
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
     * @param index its number in this process, which depends on {@code CUDA_VISIBLE_DEVICES}
     * @return the device, the same object for every call
     * @throws IllegalArgumentException if there is no device of that number
     * @throws io.jccl.bindings.NativeLibraryUnavailableException if there is no CUDA runtime
     */
    public static Device device(int index) {
        return CUDA.device(index);
    }

    /**
     * Another view of a CUDA device, with its own default stream, for several ranks on one GPU:
     * operations of two ranks in the same stream would deadlock. A rank accepts only buffers and
     * streams of its own view.
     *
     * @param index its number in this process
     * @return a new view, which lives as long as the process
     */
    public static Device view(int index) {
        return CUDA.view(index);
    }

    /**
     * Properties of a CUDA device.
     *
     * @param device a CUDA device
     * @return its model, PCI address and compute capability
     */
    public static DeviceInfo info(Device device) {
        return CUDA.info(device);
    }

    /**
     * Free memory of a CUDA device, as reported by {@code cudaMemGetInfo}.
     *
     * @param device a CUDA device
     * @return bytes
     */
    public static long freeMemory(Device device) {
        return CUDA.freeMemory(device);
    }

    /**
     * Properties of a CUDA device.
     *
     * @param model such as {@code NVIDIA H200}
     * @param pciBusId such as {@code 0000:3b:00.0}
     * @param computeMajor compute capability, first number
     * @param computeMinor compute capability, second number
     * @param memoryBytes its total memory, in bytes
     * @param l2Bytes its level 2 cache, in bytes
     */
    public record DeviceInfo(
            String model,
            String pciBusId,
            int computeMajor,
            int computeMinor,
            long memoryBytes,
            long l2Bytes) {}

    /** Host memory that is pinned until this is closed. */
    public interface Pin extends AutoCloseable {
        /** Waits for the work of the GPU, however long. Closing twice has no effect. */
        @Override
        void close();
    }

    /**
     * Allocates uninitialized memory from the device's memory pool in stream order: work enqueued
     * on the stream from now on may use it, and closing the buffer frees it after the work enqueued
     * by then. Much faster than {@link Device#allocate}, which synchronizes.
     *
     * @param stream a stream of a CUDA device; it must outlive the buffer
     * @param type element type
     * @param count number of elements
     * @return a buffer that the caller closes
     * @throws io.jccl.error.JcclException if the memory cannot be allocated
     */
    public static Buffer allocateAsync(Stream stream, DataType type, long count) {
        return CUDA.allocateAsync(stream, type, count);
    }

    /**
     * Allocates uninitialized device memory by {@code ncclMemAlloc}, so that it can be registered
     * with a communicator or as a window.
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
     * Allocates pinned (page-locked) host memory: copies between it and a device are asynchronous
     * and run at the speed of the link. CUDA frees it when the GPU is idle: {@code close} returns
     * after 5 seconds if that takes longer.
     *
     * @param type element type
     * @param count number of elements
     * @return a buffer of the host device, filled with zeros
     * @throws io.jccl.error.JcclException if the memory cannot be allocated
     */
    public static Buffer pinned(DataType type, long count) {
        return CUDA.pinned(type, count);
    }

    /**
     * Pins existing host memory.
     *
     * @param host a buffer outside the Java heap
     * @return the pin, which unpins the memory when closed. Close it before the buffer
     * @throws IllegalArgumentException if the buffer is an array or device memory
     */
    public static Pin pin(Buffer host) {
        return CUDA.pin(host);
    }

    /**
     * Whether host memory is pinned, so that a device can copy from and to it directly and
     * asynchronously.
     *
     * @param host a buffer of host memory; one on the Java heap is not pinned
     * @return true for memory of {@link #pinned} or under a {@link #pin}
     * @throws IllegalArgumentException if the buffer is device memory
     */
    public static boolean isPinned(Buffer host) {
        return CUDA.isPinned(host);
    }

    /**
     * Whether a device can access another's memory directly.
     *
     * @param device the device that reads and writes
     * @param peer the device that owns the memory
     * @return true if {@link #enablePeerAccess} can succeed
     */
    public static boolean canAccessPeer(Device device, Device peer) {
        return CUDA.canAccessPeer(device, peer);
    }

    /**
     * Enables a device's direct access to another's memory; a second call has no effect.
     *
     * @param device the device that reads and writes
     * @param peer the device that owns the memory
     * @throws io.jccl.bindings.CudaException if the pair does not support it
     */
    public static void enablePeerAccess(Device device, Device peer) {
        CUDA.enablePeerAccess(device, peer);
    }

    /**
     * Wraps device memory of another owner, such as a tensor's data pointer.
     *
     * @param device the CUDA device whose memory it is
     * @param address first byte
     * @param type element type
     * @param count number of elements
     * @return a buffer; closing it only ends the view
     * @throws IllegalArgumentException if the address is not memory of that device according to
     *     CUDA
     */
    public static Buffer wrapAddress(Device device, long address, DataType type, long count) {
        return CUDA.wrapAddress(device, address, type, count);
    }

    /**
     * Wraps a stream of another owner. Wrap a stream once and keep the view: communicators keep
     * track of the streams that they have used.
     *
     * @param device its CUDA device
     * @param handle the {@code cudaStream_t}; 0 is the null stream of that device
     * @return a stream; closing it has no effect
     * @throws IllegalArgumentException for {@code cudaStreamPerThread}, which denotes a different
     *     stream on every thread
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
