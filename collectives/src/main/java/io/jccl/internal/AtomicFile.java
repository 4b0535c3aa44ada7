package io.jccl.internal;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import org.jspecify.annotations.Nullable;

/**
 * Atomic file replacement: a file is written under another name in the same folder, and renamed
 * once its content is on the disk. A process that ends before that leaves the old file unchanged.
 */
public final class AtomicFile {
    /** What is added to the name of a file while it is written. */
    public static final String PART = ".part";

    private AtomicFile() {}

    /**
     * The file that takes the place of another one: where links lead to.
     *
     * @param file a name that someone gave
     * @return null if it names no file, but a pipe, a device, or what this process has open, such
     *     as {@code /dev/stdout}: that is written to, and not replaced
     * @throws IOException if a link cannot be followed, or may not: the kernel refuses those that
     *     another user left in a folder like {@code /tmp}
     */
    public static @Nullable Path replaceable(Path file) throws IOException {
        Path at = file.toAbsolutePath();
        for (; ; ) {
            Path folder = at.getParent();
            if (folder != null
                    && Files.isDirectory(folder)
                    && folder.toRealPath().startsWith("/proc")) {
                return null;
            }
            if (!Files.isSymbolicLink(at)) {
                return Files.exists(at) && !Files.isRegularFile(at) ? null : at;
            }
            try {
                Files.readAttributes(at, BasicFileAttributes.class);
            } catch (NoSuchFileException e) {
                // It leads to a file that is to be made.
            }
            at = at.resolveSibling(Files.readSymbolicLink(at));
        }
    }

    /** Writes the content of a file. */
    @FunctionalInterface
    public interface Body {
        /**
         * Writes the whole content.
         *
         * @param channel an empty file
         * @throws IOException if writing fails
         */
        void writeTo(FileChannel channel) throws IOException;
    }

    /**
     * Writes a file, first with {@code .part} added to its name. Afterwards its content is on the
     * disk; its name is, after {@link #force} was called for the folder.
     *
     * @param file an existing file is replaced
     * @param body writes the content
     * @throws IOException if writing fails; the message names a file, which is then unchanged
     */
    public static void write(Path file, Body body) throws IOException {
        write(file.resolveSibling(file.getFileName() + PART), file, body);
    }

    /**
     * The same, with a name of the caller's while it is written.
     *
     * @param part in the same folder as the final file
     * @param file an existing file is replaced
     * @param body writes the content
     * @throws IOException as for {@link #write(Path, Body)}
     */
    public static void write(Path part, Path file, Body body) throws IOException {
        try {
            try (FileChannel c =
                    FileChannel.open(
                            part,
                            StandardOpenOption.CREATE,
                            StandardOpenOption.TRUNCATE_EXISTING,
                            StandardOpenOption.WRITE)) {
                body.writeTo(c);
                c.force(true);
                rename(part, file); // before a lock that the body took on it ends
            }
        } catch (IOException e) {
            discard(part, e);
            throw named(file, e);
        } catch (RuntimeException | Error e) {
            discard(part, e);
            throw e;
        }
    }

    /**
     * An error of writing whose message names the file, as that of a channel does not.
     *
     * @param file the file that was written
     * @param e the error
     * @return the same if it is that of a file system, which has a name and a kind
     */
    public static IOException named(Path file, IOException e) {
        return named("cannot write " + file, e);
    }

    /** The error with what failed before its message, unless it is that of a file system. */
    static IOException named(String what, IOException e) {
        return e instanceof FileSystemException
                ? e
                : new IOException(what + ": " + (e.getMessage() == null ? e : e.getMessage()), e);
    }

    /**
     * Renames a complete file.
     *
     * @param part in the same folder as the final file
     * @param file the final file; an existing one is replaced
     * @throws IOException if it cannot be renamed
     */
    public static void rename(Path part, Path file) throws IOException {
        Files.move(part, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    }

    /**
     * Deletes an incomplete file.
     *
     * @param part the file; it need not exist
     * @param why receives the error as suppressed if it cannot be deleted
     */
    public static void discard(Path part, Throwable why) {
        try {
            Files.deleteIfExists(part);
        } catch (IOException e) {
            why.addSuppressed(e);
        }
    }

    /**
     * Writes all bytes, however many calls that takes.
     *
     * @param to a file
     * @param bytes what to write; none remains
     * @throws IOException if writing fails
     */
    public static void writeAll(FileChannel to, ByteBuffer bytes) throws IOException {
        while (bytes.hasRemaining()) {
            to.write(bytes);
        }
    }

    /**
     * Waits until the names in a folder are on the disk.
     *
     * @param folder the folder
     * @throws IOException if that fails
     */
    public static void force(Path folder) throws IOException {
        try (FileChannel c = FileChannel.open(folder, StandardOpenOption.READ)) {
            c.force(true);
        } catch (IOException e) {
            throw named(folder, e);
        }
    }
}
