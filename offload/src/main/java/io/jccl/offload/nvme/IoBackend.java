package io.jccl.offload.nvme;

import io.jccl.device.Device;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/**
 * How a store reaches its drive. This is the seam for GPUDirect Storage, whose backend would
 * {@linkplain #reaches reach} the memory of a CUDA device and move blocks between it and the file
 * by {@link MemoryView#address address}; and for tests, which put faults between a store and its
 * files.
 */
interface IoBackend {
    /** Whether blocks can move between the drive and the memory of this device. */
    boolean reaches(Device device);

    /**
     * Opens a file for reads and writes in parallel.
     *
     * @param file created if it is not there
     * @param directIo whether to go past the page cache
     * @param unnamed whether to take its name away at once, so that it ends with this process
     */
    IoFile open(Path file, NvmeOptions.DirectIo directIo, boolean unnamed) throws IOException;

    /**
     * Replaces a small file in one step: after a crash it has either the old or the new content.
     *
     * @throws NotReplacedException if it has the old content still
     * @throws IOException if it may have either
     */
    void replace(Path file, ByteBuffer content) throws IOException;

    /** Bytes that could be written to the file system that holds the folder. */
    long freeSpace(Path folder) throws IOException;

    /** The file has its old content. */
    final class NotReplacedException extends IOException {
        private static final long serialVersionUID = 1;

        NotReplacedException(IOException cause) {
            super(cause.getMessage(), cause);
        }
    }

    /** An open file. All positions and lengths are multiples of {@link #alignment}. */
    interface IoFile extends AutoCloseable {
        /**
         * Reads a block.
         *
         * @return bytes read; fewer than asked for only at the end of the file
         */
        int read(MemoryView memory, int worker, long at, int length, long position)
                throws IOException;

        /** Writes a block. */
        void write(MemoryView memory, int worker, long at, int length, long position)
                throws IOException;

        /** Returns once all that was written is on the drive. */
        void force() throws IOException;

        /** Makes the file this long, and keeps room for it on the drive if that can be had. */
        void grow(long size) throws IOException;

        /** Cuts the file off. */
        void cut(long size) throws IOException;

        /** What addresses and positions have to be multiples of, a power of two. */
        int alignment();

        /** Null if reads and writes go past the page cache, or why not. */
        @org.jspecify.annotations.Nullable
        String bufferedBecause();

        @Override
        void close() throws IOException;
    }
}
