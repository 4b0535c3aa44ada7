package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;

/**
 * Storage of tier {@link Tier#NVME}, such as files: named places that are read into pinned memory
 * and written from it.
 *
 * <p><b>Threads:</b> any.
 */
public interface TierStore {
    /**
     * Reserves room, or finds the existing place of this name.
     *
     * @param name of the data, unique in the store
     * @param type element type
     * @param count number of elements
     * @return the place
     * @throws OffloadMemoryException if there is no room
     * @throws IllegalArgumentException if the name exists with another type or count
     */
    Place place(String name, DataType type, long count);

    /** Room for the elements of one buffer. */
    interface Place extends AutoCloseable {
        /**
         * Starts to read all elements.
         *
         * @param pinned the target; it stays open until the read has ended
         * @return the read
         */
        Completion read(Buffer pinned);

        /**
         * Starts to write all elements. If it fails, the content of the place is undefined.
         *
         * @param pinned the source; it stays open and unchanged until the write has ended
         * @return the write
         */
        Completion write(Buffer pinned);

        /** Releases the place; whether the data stays is up to the store. */
        @Override
        void close();
    }
}
