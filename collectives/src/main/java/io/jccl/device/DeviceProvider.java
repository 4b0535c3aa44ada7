package io.jccl.device;

import io.jccl.internal.Provided;
import java.lang.foreign.MemorySegment;

/**
 * Where the factory methods of {@link Device}, {@link Buffer}, {@link Graph} and {@link Cuda} find
 * the kinds of device, which are not exported and which this package does not know. Programs call
 * those factory methods, never this; each method here is the one of the same name there.
 *
 * <p><b>Threads:</b> any.
 */
public interface DeviceProvider {
    /** The one implementation. */
    final class Holder {
        static final DeviceProvider DEVICES = Provided.by(DeviceProvider.class);

        private Holder() {}
    }

    /**
     * The host device.
     *
     * @return the one there is
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
     * What only CUDA has.
     *
     * @return the one implementation
     */
    CudaProvider cuda();

    /** What {@link Cuda} calls, method by method. */
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
         * @return what it is
         */
        Cuda.DeviceInfo info(Device device);

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
         * @param device the one that reads and writes
         * @param peer the one with the memory
         * @return whether it can
         */
        boolean canAccessPeer(Device device, Device peer);

        /**
         * See {@link Cuda#enablePeerAccess}.
         *
         * @param device the one that reads and writes
         * @param peer the one with the memory
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
