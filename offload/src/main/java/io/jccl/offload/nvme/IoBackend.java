package io.jccl.offload.nvme;

import io.jccl.device.Device;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/**
 * A store's access to its drive. This is the extension point for GPUDirect Storage, whose backend
 * would {@linkplain #reaches reach} the memory of a CUDA device and move blocks between it and the
 * file by {@link MemoryView#address address}, and for tests, which inject faults.
 */
interface IoBackend {
    /** Whether blocks can move between the drive and the memory of this device. */
    boolean reaches(Device device);

    /**
     * Opens a file for reads and writes in parallel.
     *
     * @param file created if it is not there
     * @param directIo whether to bypass the page cache
     * @param unnamed whether to unlink it at once, so that it disappears with this process
     */
    IoFile open(Path file, NvmeOptions.DirectIo directIo, boolean unnamed) throws IOException;

    /**
     * Atomically replaces a small file: after a crash it has either the old or the new content.
     *
     * @throws NotReplacedException if it still has the old content
     * @throws IOException if it may have either
     */
    void replace(Path file, ByteBuffer content) throws IOException;

    /** Free bytes of the folder's file system. */
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
         * @return bytes read; fewer than requested only at the end of the file
         */
        int read(MemoryView memory, int worker, long at, int length, long position)
                throws IOException;

        /** Writes a block. */
        void write(MemoryView memory, int worker, long at, int length, long position)
                throws IOException;

        /** Returns once everything written is on the drive. */
        void force() throws IOException;

        /** Extends the file to this length, and reserves the room on the drive if possible. */
        void grow(long size) throws IOException;

        /** Truncates the file. */
        void cut(long size) throws IOException;

        /** Addresses and positions must be multiples of this power of two. */
        int alignment();

        /** Why reads and writes go through the page cache; null if they bypass it. */
        @org.jspecify.annotations.Nullable
        String bufferedBecause();

        @Override
        void close() throws IOException;
    }
}
