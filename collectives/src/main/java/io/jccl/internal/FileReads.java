package io.jccl.internal;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

/** Reading files, with errors that name the file, as those of a channel or a stream do not. */
public final class FileReads {
    private FileReads() {}

    /**
     * Reads until a buffer is full, however many calls that takes.
     *
     * @param from a file
     * @param at its first byte to read
     * @param to what to fill; it is flipped afterwards
     * @param file its name, for errors
     * @throws IOException if reading fails, or the file ends before; the message names it
     */
    public static void readAll(FileChannel from, long at, ByteBuffer to, Path file)
            throws IOException {
        long next = at;
        while (to.hasRemaining()) {
            int n;
            try {
                n = from.read(to, next);
            } catch (IOException e) {
                throw named(file, e);
            }
            if (n < 0) {
                throw new EOFException(
                        file + " is damaged: it ends at byte " + next + ", too early");
            }
            next += n;
        }
        to.flip();
    }

    /**
     * An error of reading whose message names the file.
     *
     * @param file the file that was read
     * @param e the error
     * @return the same if it is that of a file system, which has a name and a kind
     */
    public static IOException named(Path file, IOException e) {
        return AtomicFile.named(file + " cannot be read", e);
    }
}
