package io.jccl.cli.shell;

import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;

/** Standard output or error: for text in the system's charset, and for bytes as they are. */
public final class StandardWriter extends PrintWriter {
    private final PrintStream stream;

    public StandardWriter(PrintStream stream) {
        super(stream, true, stream.charset());
        this.stream = stream;
    }

    /**
     * Writes bytes and flushes them; to another writer as UTF-8 text.
     *
     * @param to what to write to, whose {@code checkError} tells whether it could be
     * @param bytes written at once
     */
    public static void writeBytes(PrintWriter to, byte[] bytes) {
        if (to instanceof StandardWriter standard) {
            standard.stream.write(bytes, 0, bytes.length);
        } else {
            to.print(new String(bytes, StandardCharsets.UTF_8));
        }
        to.flush();
    }
}
