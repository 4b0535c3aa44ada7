package io.jccl.cli.launch;

import io.jccl.cli.shell.StandardWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.LocalTime;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Forwards a rank's standard output or error, and copies it to a log: its bytes as they are, a line
 * at a time, so that the lines of ranks do not mix.
 */
final class Forwarder extends Thread {
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("HH:mm:ss.SSS");

    /** The line that the JVM prints first because of a flag set by the launcher. */
    private static final String INCUBATING =
            "WARNING: Using incubator modules: jdk.incubator.vector";

    /** What is longer is forwarded in parts. */
    private static final int LONGEST_LINE = 1 << 20;

    /** How often to look whether it waits. */
    private static final Duration LOOK = Duration.ofMillis(50);

    /**
     * Where lines go.
     *
     * @param out standard output or error
     * @param isErr whether it is standard error, where the JVM's warnings appear
     * @param log the log file for a copy; null for none
     * @param mark at the beginning of each line, but not in the log
     * @param timestamps whether lines begin with the time
     */
    record Target(
            PrintWriter out,
            boolean isErr,
            @Nullable OutputStream log,
            String mark,
            boolean timestamps) {}

    private final InputStream from;
    private final Target to;
    private final Runnable unwritable;
    private final Consumer<IOException> unlogged;
    private final ByteArrayOutputStream line = new ByteArrayOutputStream();
    private @Nullable OutputStream log;

    /** Whether what follows begins a line. */
    private boolean begins = true;

    private boolean first = true;

    /** Whether it waits for output. */
    private volatile boolean reading;

    /** When it began to, or had written the last line. */
    private volatile long movedNanos;

    /**
     * Creates the thread.
     *
     * @param name that of the thread
     * @param unwritable called when standard output could not be written and there is no log
     * @param unlogged called once, when the log could not be written
     */
    Forwarder(
            String name,
            InputStream from,
            Target to,
            Runnable unwritable,
            Consumer<IOException> unlogged) {
        super("jccl-run-" + name);
        setDaemon(true);
        this.from = from;
        this.to = to;
        this.log = to.log;
        this.unwritable = unwritable;
        this.unlogged = unlogged;
    }

    /**
     * Waits a moment for the rest to be forwarded, however slowly it is read; but not for what
     * still has the pipe open and prints nothing, such as a process that the rank has left behind.
     *
     * @param endedNanos when the ranks had ended
     * @param silence how long to wait for further output
     * @param patient whether to wait longer than that for who reads what is forwarded
     * @return whether there is nothing to wait for any more
     */
    boolean awaitRest(long endedNanos, Duration silence, boolean patient)
            throws InterruptedException {
        if (join(LOOK)) {
            return true;
        }
        long now = System.nanoTime();
        return (reading || !patient)
                && Math.min(now - movedNanos, now - endedNanos) >= silence.toNanos();
    }

    @Override
    public void run() {
        try (from;
                to.log) {
            forwardAll();
        } catch (IOException e) {
            // Closing them; everything has been written.
        }
    }

    private void forwardAll() {
        byte[] bytes = new byte[1 << 16];
        for (int n = read(bytes); n >= 0; n = read(bytes)) {
            int start = 0;
            for (int i = 0; i < n; i++) {
                if (bytes[i] == '\n') {
                    line.write(bytes, start, i + 1 - start);
                    start = i + 1;
                    forward(true);
                }
            }
            line.write(bytes, start, n - start);
            if (line.size() >= LONGEST_LINE) {
                forward(false);
            }
        }
        if (line.size() > 0 || !begins) {
            forward(true);
        }
    }

    private int read(byte[] bytes) {
        movedNanos = System.nanoTime();
        reading = true;
        try {
            return from.read(bytes);
        } catch (IOException e) {
            return -1; // The process was killed.
        } finally {
            reading = false;
        }
    }

    /** Forwards a line or a part of one; other ranks' lines follow, so each has an end there. */
    private void forward(boolean ends) {
        byte[] text = line.toByteArray();
        line.reset();
        if (to.isErr && first && isWarning(text)) {
            first = false;
            return;
        }
        first = false;
        String time =
                begins && to.timestamps
                        ? LocalTime.now(ZoneId.systemDefault()).format(TIME) + " "
                        : "";
        String end = ends && (text.length == 0 || text[text.length - 1] != '\n') ? "\n" : "";
        StandardWriter.writeBytes(to.out, joined(begins ? time + to.mark : "", text, end));
        movedNanos = System.nanoTime();
        begins = ends;
        OutputStream copy = log;
        if (copy != null) {
            try {
                copy.write(joined(time, text, ""));
            } catch (IOException e) {
                log = null;
                unlogged.accept(e);
            }
        }
        if (log == null && !to.isErr && to.out.checkError()) {
            unwritable.run();
        }
    }

    private static boolean isWarning(byte[] text) {
        return new String(text, StandardCharsets.ISO_8859_1).strip().equals(INCUBATING);
    }

    private static byte[] joined(String prefix, byte[] text, String suffix) {
        ByteArrayOutputStream all = new ByteArrayOutputStream(prefix.length() + text.length + 1);
        all.writeBytes(prefix.getBytes(StandardCharsets.US_ASCII));
        all.writeBytes(text);
        all.writeBytes(suffix.getBytes(StandardCharsets.US_ASCII));
        return all.toByteArray();
    }
}
