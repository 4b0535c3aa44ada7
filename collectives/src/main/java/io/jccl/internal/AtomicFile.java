package io.jccl.internal;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;

/**
 * Files that are there whole or not at all: they are written under another name in the same folder,
 * and renamed once all of it is on the disk. A process that ends before that leaves the old file.
 */
public final class AtomicFile {
    private AtomicFile() {}

    /** Writes what a file is to hold. */
    @FunctionalInterface
    public interface Body {
        /**
         * Writes all of it.
         *
         * @param channel an empty file
         * @throws IOException if writing fails
         */
        void writeTo(FileChannel channel) throws IOException;
    }

    /**
     * Writes a file, first with {@code .part} added to its name. Its content is on the disk then,
     * its name once {@link #force} was called for the folder.
     *
     * @param file what is there is replaced
     * @param body writes it
     * @throws IOException if writing fails; the file is as it was then
     */
    public static void write(Path file, Body body) throws IOException {
        Path part = file.resolveSibling(file.getFileName() + ".part");
        try {
            try (FileChannel c =
                    FileChannel.open(
                            part,
                            StandardOpenOption.CREATE,
                            StandardOpenOption.TRUNCATE_EXISTING,
                            StandardOpenOption.WRITE)) {
                body.writeTo(c);
                c.force(true);
            }
            rename(part, file);
        } catch (IOException | RuntimeException | Error e) {
            discard(part, e);
            throw e;
        }
    }

    /**
     * Gives a file that is complete its name.
     *
     * @param part in the folder of the other one
     * @param file what is there is replaced
     * @throws IOException if it cannot be renamed
     */
    public static void rename(Path part, Path file) throws IOException {
        Files.move(part, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    }

    /**
     * Deletes a file that did not get complete.
     *
     * @param part its name; it need not be there
     * @param why gets the error if it cannot be deleted
     */
    public static void discard(Path part, Throwable why) {
        try {
            Files.deleteIfExists(part);
        } catch (IOException e) {
            why.addSuppressed(e);
        }
    }

    /**
     * Waits until the names in a folder are on the disk.
     *
     * @param folder which
     * @throws IOException if that fails
     */
    public static void force(Path folder) throws IOException {
        try (FileChannel c = FileChannel.open(folder, StandardOpenOption.READ)) {
            c.force(true);
        }
    }
}
