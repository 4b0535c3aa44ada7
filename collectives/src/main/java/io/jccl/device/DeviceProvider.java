package io.jccl.device;

import io.jccl.internal.Provided;
import java.lang.foreign.MemorySegment;

/**
 * Gives the factory methods of {@link Device}, {@link Buffer}, {@link Graph} and {@link Cuda}
 * access to the implementations of devices, which are not exported and on which this package does
 * not depend. Programs use the factory methods, not this interface; methods here correspond to
 * those of the same name there.
 *
 * <p><b>Threads:</b> any.
 */
public interface DeviceProvider {
    /** Holds the only implementation. */
    final class Holder {
        static final DeviceProvider DEVICES = Provided.by(DeviceProvider.class);

        private Holder() {}
    }

    /**
     * The host device.
     *
     * @return the device
     */
    Device host();

    /**
     * See {@link Buffer#wrap}.
     *
     * @param memory the elements
     * @param type element type
     * @return a view
     */
    Buffer wrap(MemorySegment memory, DataType type);

    /**
     * See {@link Buffer#wrapAddress}.
     *
     * @param address first byte
     * @param type element type
     * @param count number of elements
     * @return a view
     */
    Buffer wrapAddress(long address, DataType type, long count);

    /**
     * See {@link Graph#capture}.
     *
     * @param stream a CUDA stream
     * @param body enqueues the work
     * @return the graph
     */
    Graph capture(Stream stream, Runnable body);

    /**
     * The features of CUDA.
     *
     * @return the only implementation
     */
    CudaProvider cuda();

    /** The methods of {@link Cuda}, one by one. */
    interface CudaProvider {
        /**
         * See {@link Cuda#deviceCount}.
         *
         * @return 0 or more
         */
        int deviceCount();

        /**
         * See {@link Cuda#device}.
         *
         * @param index number of the device
         * @return the device
         */
        Device device(int index);

        /**
         * See {@link Cuda#view}.
         *
         * @param index number of the device
         * @return a new view
         */
        Device view(int index);

        /**
         * See {@link Cuda#info}.
         *
         * @param device a CUDA device
         * @return its properties
         */
        Cuda.DeviceInfo info(Device device);

        /**
         * See {@link Cuda#freeMemory}.
         *
         * @param device a CUDA device
         * @return bytes
         */
        long freeMemory(Device device);

        /**
         * See {@link Cuda#allocateAsync}.
         *
         * @param stream of a CUDA device
         * @param type element type
         * @param count number of elements
         * @return a buffer
         */
        Buffer allocateAsync(Stream stream, DataType type, long count);

        /**
         * See {@link Cuda#allocateForNccl}.
         *
         * @param device a CUDA device
         * @param type element type
         * @param count number of elements
         * @return a buffer
         */
        Buffer allocateForNccl(Device device, DataType type, long count);

        /**
         * See {@link Cuda#pinned}.
         *
         * @param type element type
         * @param count number of elements
         * @return a buffer of the host device
         */
        Buffer pinned(DataType type, long count);

        /**
         * See {@link Cuda#pin}.
         *
         * @param host a buffer of host memory
         * @return the pin
         */
        Cuda.Pin pin(Buffer host);

        /**
         * See {@link Cuda#isPinned}.
         *
         * @param host a buffer of host memory
         * @return whether it is pinned
         */
        boolean isPinned(Buffer host);

        /**
         * See {@link Cuda#canAccessPeer}.
         *
         * @param device the device that reads and writes
         * @param peer the device that owns the memory
         * @return whether it can
         */
        boolean canAccessPeer(Device device, Device peer);

        /**
         * See {@link Cuda#enablePeerAccess}.
         *
         * @param device the device that reads and writes
         * @param peer the device that owns the memory
         */
        void enablePeerAccess(Device device, Device peer);

        /**
         * See {@link Cuda#wrapAddress}.
         *
         * @param device whose memory it is
         * @param address first byte
         * @param type element type
         * @param count number of elements
         * @return a view
         */
        Buffer wrapAddress(Device device, long address, DataType type, long count);

        /**
         * See {@link Cuda#wrapStream}.
         *
         * @param device its device
         * @param handle the native stream
         * @return a view
         */
        Stream wrapStream(Device device, long handle);

        /**
         * See {@link Cuda#streamHandle}.
         *
         * @param stream of a CUDA device
         * @return the native stream
         */
        long streamHandle(Stream stream);
    }
}
