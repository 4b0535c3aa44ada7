package io.jccl.cli.train;

import static io.jccl.cli.shell.Text.format;

import io.jccl.cli.shell.CsvOption;
import io.jccl.internal.AtomicFile;
import io.jccl.train.RunSettings;
import io.jccl.train.TrainRun;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;
import jdk.jfr.FlightRecorder;
import org.jspecify.annotations.Nullable;

/**
 * Metrics of each step in files that are read during a run: a table of comma-separated values, and
 * event files of TensorBoard; and in Java's flight recorder. What is written is complete after each
 * step. A run resumed from a checkpoint appends to both; steps that were repeated are there twice,
 * the later one last.
 *
 * <p>An error of writing ends the file, not the run: it is reported as a warning.
 *
 * <p><b>Threads:</b> that of rank 0.
 */
final class MetricsLog implements TrainRun.Report, AutoCloseable {
    /** Columns of the table. */
    static final String COLUMNS =
            "step,loss,learning_rate,samples_per_second,seconds,validation_loss\n";

    /** Of a step: samples a second are its own. */
    private record Metrics(TrainRun.Step step, double rate, double speed) {}

    /** What is written after a step, or at the beginning. */
    private interface Sink {
        /** Prepares a file that is there, and returns whether it goes on. */
        default boolean resumes(Path file) throws IOException {
            return true;
        }

        ByteBuffer step(Metrics m);

        ByteBuffer start(boolean resumed);
    }

    /** A file and what goes there. */
    private static final class Log {
        final String option;
        final Path file;
        final Sink sink;
        @Nullable FileChannel channel;
        boolean failed;

        Log(String option, Path file, Sink sink) {
            this.option = option;
            this.file = file;
            this.sink = sink;
        }
    }

    private final RunSettings settings;
    private final TrainRun.Report next;
    private final Log[] logs;
    private double last;

    /**
     * Opens nothing before the first step.
     *
     * @param csv table; null for none
     * @param events a new file of TensorBoard; null for none
     * @param next also receives everything, and is notified of files that cannot be written
     */
    MetricsLog(
            RunSettings settings, @Nullable Path csv, @Nullable Path events, TrainRun.Report next) {
        this.settings = settings;
        this.next = next;
        List<Log> all = new ArrayList<>();
        if (csv != null) {
            all.add(new Log(CsvOption.NAME, csv, new Table()));
        }
        if (events != null) {
            all.add(new Log(MetricsOptions.EVENTS, events, new Events()));
        }
        logs = all.toArray(Log[]::new);
    }

    /**
     * The name of a new file of events in a folder: TensorBoard reads all whose names have this
     * form, in the order of their names.
     */
    static Path eventFile(Path folder) {
        String name =
                format(
                        "events.out.tfevents.%010d.jccl.%d",
                        System.currentTimeMillis() / 1000, ProcessHandle.current().pid());
        return folder.resolve(name);
    }

    @Override
    public void warn(String text) {
        next.warn(text);
    }

    @Override
    public void step(TrainRun.Step step) {
        double rate =
                settings.learningRate()
                        * settings.recipe().schedule().factor(step.number() - 1, settings.steps());
        double speed = settings.batch() / (step.seconds() - last);
        last = step.seconds();
        Metrics metrics = new Metrics(step, rate, speed);
        record(metrics);
        for (Log log : logs) {
            if (!log.failed) {
                try {
                    FileChannel to =
                            log.channel == null ? open(log, step.number() > 1) : log.channel;
                    AtomicFile.writeAll(to, log.sink.step(metrics));
                } catch (IOException e) {
                    log.failed = true;
                    next.warn(
                            format(
                                    "%s '%s' is not written any more: %s",
                                    log.option, log.file, e.getMessage()));
                }
            }
        }
        next.step(step);
    }

    private static void record(Metrics m) {
        if (!FlightRecorder.isInitialized()) {
            return; // without loading the class, which would initialize it
        }
        StepEvent event = new StepEvent();
        if (event.isEnabled()) {
            event.step = m.step.number();
            event.loss = m.step.loss();
            event.learningRate = m.rate;
            event.samplesPerSecond = m.speed;
            event.validationLoss = m.step.validation();
            event.commit();
        }
    }

    private static FileChannel open(Log log, boolean resumed) throws IOException {
        boolean adds = resumed && Files.exists(log.file) && log.sink.resumes(log.file);
        OpenOption[] how =
                adds
                        ? new OpenOption[] {StandardOpenOption.APPEND}
                        : new OpenOption[] {
                            StandardOpenOption.CREATE,
                            StandardOpenOption.WRITE,
                            StandardOpenOption.TRUNCATE_EXISTING
                        };
        FileChannel channel = FileChannel.open(log.file, how);
        log.channel = channel;
        AtomicFile.writeAll(channel, log.sink.start(adds));
        return channel;
    }

    @Override
    public void close() {
        for (Log log : logs) {
            try {
                if (log.channel != null) {
                    log.channel.close();
                }
            } catch (IOException e) {
                next.warn(log.option + " '" + log.file + "': " + e.getMessage());
            }
        }
    }

    private static final class Table implements Sink {
        /** Cuts off a row that a killed run did not complete. */
        @Override
        public boolean resumes(Path file) throws IOException {
            if (!Files.isRegularFile(file)) {
                return true;
            }
            try (FileChannel c =
                    FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                ByteBuffer head = ByteBuffer.allocate(COLUMNS.length());
                c.read(head, 0);
                if (!COLUMNS.startsWith(StandardCharsets.UTF_8.decode(head.flip()).toString())) {
                    return true; // not such a table
                }
                ByteBuffer last = ByteBuffer.allocate(1);
                long end = c.size();
                while (end > 0 && (c.read(last.clear(), end - 1) < 1 || last.get(0) != '\n')) {
                    end--;
                }
                c.truncate(end);
                return end > 0;
            }
        }

        @Override
        public ByteBuffer start(boolean resumed) {
            return bytes(resumed ? "" : COLUMNS);
        }

        @Override
        public ByteBuffer step(Metrics m) {
            return bytes(
                    format(
                            "%d,%.6f,%.6g,%.3f,%.3f,%s\n",
                            m.step.number(),
                            m.step.loss(),
                            m.rate,
                            m.speed,
                            m.step.seconds(),
                            m.step.validated() ? format("%.6f", m.step.validation()) : ""));
        }

        private static ByteBuffer bytes(String text) {
            return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    /**
     * Records of TFRecord files (tensorflow/core/lib/io/record_writer.h): the length in 8 bytes,
     * its checksum, the message, its checksum. A message is an {@code Event} of
     * tensorflow/core/util/event.proto in the encoding of Protocol Buffers: fields 1, wall time in
     * seconds (double), 2, step (varint), 3, version of the format (string), or 5, a summary
     * ({@code Summary} of summary.proto: values in field 1, each with a tag in 1 and a float in 2).
     */
    private static final class Events implements Sink {
        private static final String VERSION = "brain.Event:2";
        private static final int ROOM = 1 << 10;

        // Keys of fields: the number times 8, and the kind of value that follows.
        private static final byte DOUBLE = 1;
        private static final byte TEXT = 2;
        private static final byte FLOAT = 5;
        private static final byte TIME_FIELD = 1 << 3 | DOUBLE;
        private static final byte STEP_FIELD = 2 << 3;
        private static final byte VERSION_FIELD = 3 << 3 | TEXT;
        private static final byte SUMMARY_FIELD = 5 << 3 | TEXT;
        private static final byte VALUE_FIELD = 1 << 3 | TEXT;
        private static final byte TAG_FIELD = 1 << 3 | TEXT;
        private static final byte NUMBER_FIELD = 2 << 3 | FLOAT;

        /** What a masked checksum is rotated by, and what is added (record_writer.h). */
        private static final int MASK_TURN = 15;

        private static final int MASK = 0xa282ead8;

        @Override
        public ByteBuffer start(boolean resumed) {
            ByteBuffer event = event(0);
            text(event, VERSION_FIELD, VERSION.getBytes(StandardCharsets.UTF_8));
            return record(event);
        }

        @Override
        public ByteBuffer step(Metrics m) {
            ByteBuffer summary = room();
            scalar(summary, "train/loss", m.step.loss());
            scalar(summary, "train/learning_rate", m.rate);
            scalar(summary, "train/samples_per_second", m.speed);
            if (m.step.validated()) {
                scalar(summary, "validation/loss", m.step.validation());
            }
            ByteBuffer event = event(m.step.number());
            text(event, SUMMARY_FIELD, taken(summary));
            return record(event);
        }

        private static void scalar(ByteBuffer summary, String tag, double value) {
            ByteBuffer one = room();
            text(one, TAG_FIELD, tag.getBytes(StandardCharsets.UTF_8));
            one.put(NUMBER_FIELD).putFloat((float) value);
            text(summary, VALUE_FIELD, taken(one));
        }

        private static ByteBuffer room() {
            return ByteBuffer.allocate(ROOM).order(ByteOrder.LITTLE_ENDIAN);
        }

        private static ByteBuffer event(int step) {
            ByteBuffer event = room();
            event.put(TIME_FIELD).putDouble(System.currentTimeMillis() * 1e-3);
            event.put(STEP_FIELD);
            varint(event, step);
            return event;
        }

        private static void text(ByteBuffer to, byte field, byte[] bytes) {
            to.put(field);
            varint(to, bytes.length);
            to.put(bytes);
        }

        /** Seven bits at a time, the low ones first; the top bit means that more follow. */
        private static void varint(ByteBuffer to, int value) {
            int left = value;
            while (left > 0x7f) {
                to.put((byte) (left | 0x80));
                left >>>= 7;
            }
            to.put((byte) left);
        }

        private static byte[] taken(ByteBuffer from) {
            byte[] bytes = new byte[from.position()];
            from.flip().get(bytes);
            return bytes;
        }

        private static ByteBuffer record(ByteBuffer event) {
            byte[] message = taken(event);
            byte[] length = taken(room().putLong(message.length));
            return room().put(length)
                    .putInt(checksum(length))
                    .put(message)
                    .putInt(checksum(message))
                    .flip();
        }

        private static int checksum(byte[] bytes) {
            CRC32C crc = new CRC32C();
            crc.update(bytes);
            return Integer.rotateRight((int) crc.getValue(), MASK_TURN) + MASK;
        }
    }
}
