package io.jccl.offload;

import io.jccl.internal.AtomicFile;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Objects;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * A timeline file with one track for each stream and tier. It opens in Perfetto (<a
 * href="https://ui.perfetto.dev">ui.perfetto.dev</a>) and in a browser's {@code chrome://tracing}.
 *
 * <p>The file is a JSON array of events of the Trace Event Format ("JSON Array Format" and complete
 * events, {@code "ph":"X"}; N. Duca, D. Sinclair: Trace Event Format, 2016), times in microseconds
 * since it was opened. It is written to a temporary file, which is renamed on close; events beyond
 * a limit are counted, not kept. At most 4,096 events are in memory.
 *
 * <p><b>Threads:</b> any. Recording creates objects only every 4,096th time, when it writes.
 */
public final class ChromeTrace implements AutoCloseable {
    /** A track of the timeline. */
    enum Track {
        COMPUTE("compute stream"),
        STALL("compute waits"),
        TO_DEVICE("host to device"),
        TO_HOST("device to host"),
        NVME_READ("NVMe read"),
        NVME_WRITE("NVMe write"),
        EVICT("evictions");

        final String label;

        Track(String label) {
            this.label = label;
        }
    }

    private static final int HELD = 4096;

    /** Two hours of a thousand layers a second, 100 bytes each. */
    private static final long LIMIT = 8_000_000;

    private static final Track[] TRACKS = Track.values();

    private final Path file;
    private final @Nullable Path part;
    private final long limit;
    private final long origin = System.nanoTime();

    // All below is guarded by this.
    private final Writer out;
    private final StringBuilder text = new StringBuilder();
    private final byte[] tracks = new byte[HELD];
    private final String[] names = new String[HELD];
    private final String[] details = new String[HELD];
    private final long[] starts = new long[HELD];
    private final long[] ends = new long[HELD];
    private final long[] bytes = new long[HELD];
    private final long[] lastEnd = new long[TRACKS.length];
    private int held;
    private long recorded;
    private long dropped;
    private boolean closed;
    private @Nullable IOException failure;

    private ChromeTrace(Path file, @Nullable Path part, Writer out, long limit) {
        this.file = file;
        this.part = part;
        this.out = out;
        this.limit = limit;
        for (int i = 0; i < HELD; i++) {
            names[i] = "";
            details[i] = "";
        }
    }

    /**
     * Begins a file of at most eight million events.
     *
     * @param file its name; an existing file is replaced when the trace is closed, a pipe or device
     *     is written to
     * @return the trace
     * @throws IOException if its folder does not exist or is not writable
     */
    public static ChromeTrace open(Path file) throws IOException {
        return open(file, LIMIT);
    }

    /**
     * Begins a file.
     *
     * @param file its name; an existing file is replaced when the trace is closed, a pipe or device
     *     is written to
     * @param limit most events to keep, 1 or more; about 100 bytes each
     * @return the trace
     * @throws IOException if its folder does not exist or is not writable
     */
    public static ChromeTrace open(Path file, long limit) throws IOException {
        if (limit < 1) {
            throw new IllegalArgumentException("limit is " + limit + ", expected 1 or more");
        }
        Path to = AtomicFile.replaceable(file);
        Path whole = to == null ? file.toAbsolutePath() : to;
        Path folder = Objects.requireNonNullElse(whole.getParent(), whole);
        if (Files.isDirectory(whole) || !Files.isDirectory(folder)) {
            throw new IOException(
                    "the trace '"
                            + file
                            + "' cannot be written: "
                            + (Files.isDirectory(whole)
                                    ? "it is a folder"
                                    : "folder " + folder + " does not exist")
                            + "; give a file in a folder that exists");
        }
        // Not a temporary file, which only its owner may read.
        Path part =
                to == null
                        ? null
                        : folder.resolve("." + whole.getFileName() + UUID.randomUUID() + ".part");
        Writer out =
                part == null
                        ? Files.newBufferedWriter(whole, StandardOpenOption.APPEND)
                        : Files.newBufferedWriter(part, StandardOpenOption.CREATE_NEW);
        ChromeTrace trace = new ChromeTrace(whole, part, out, limit);
        trace.header();
        return trace;
    }

    private synchronized void header() {
        text.append("[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":")
                .append("\"jccl offload\"}}");
        for (Track t : TRACKS) {
            text.append(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":")
                    .append(t.ordinal() + 1)
                    .append(",\"name\":\"thread_name\",\"args\":{\"name\":\"")
                    .append(t.label)
                    .append("\"}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":")
                    .append(t.ordinal() + 1)
                    .append(",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":")
                    .append(t.ordinal() + 1)
                    .append("}}");
        }
    }

    /**
     * Records an event. One that began before the previous event of its track ended is shown from
     * that end on: for a GPU's copy the time of enqueueing is known, not the time at which the
     * stream reached it.
     */
    synchronized void record(
            Track track, String name, String detail, long start, long end, long size) {
        if (closed) {
            return;
        }
        if (recorded == limit) {
            dropped++;
            return;
        }
        recorded++;
        int lane = track.ordinal();
        long from = Math.max(start - origin, lastEnd[lane]);
        long to = Math.max(end - origin, from);
        lastEnd[lane] = to;
        tracks[held] = (byte) lane;
        names[held] = name;
        details[held] = detail;
        starts[held] = from;
        ends[held] = to;
        bytes[held] = size;
        if (++held == HELD) {
            flush();
        }
    }

    private void flush() {
        for (int i = 0; i < held; i++) {
            text.append(",\n{\"ph\":\"X\",\"pid\":1,\"tid\":").append(tracks[i] + 1);
            text.append(",\"name\":\"");
            escape(names[i]);
            text.append("\",\"cat\":\"");
            escape(details[i]);
            text.append("\",\"ts\":");
            micros(starts[i]);
            text.append(",\"dur\":");
            micros(ends[i] - starts[i]);
            text.append(",\"args\":{\"bytes\":").append(bytes[i]).append("}}");
        }
        held = 0;
        try {
            if (failure == null) {
                out.append(text);
            }
        } catch (IOException e) {
            failure = e;
        }
        text.setLength(0);
    }

    private void micros(long nanos) {
        text.append(nanos / 1000).append('.');
        long rest = nanos % 1000;
        text.append((char) ('0' + rest / 100))
                .append((char) ('0' + rest / 10 % 10))
                .append((char) ('0' + rest % 10));
    }

    private void escape(String s) {
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
    }

    /**
     * Events that were not kept.
     *
     * @return 0 or more
     */
    public synchronized long dropped() {
        return dropped;
    }

    /**
     * Completes the file and gives it its name. Closing twice does nothing; later events are not
     * kept.
     *
     * @throws UncheckedIOException if writing failed, now or before; an existing file is then
     *     unchanged
     */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        flush();
        closed = true;
        try {
            try (out) {
                out.append("\n]\n");
            }
            if (failure != null) {
                throw failure;
            }
            if (part != null) {
                AtomicFile.rename(part, file);
            }
        } catch (IOException e) {
            if (part != null) {
                AtomicFile.discard(part, e);
            }
            throw new UncheckedIOException(
                    "the trace " + file + " could not be written: " + e.getMessage(), e);
        }
    }

    @Override
    public String toString() {
        return "trace " + file;
    }
}
