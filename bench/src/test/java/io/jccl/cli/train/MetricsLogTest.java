package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.Main;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import java.util.zip.CRC32C;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

@Isolated("records all events of the JVM")
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class MetricsLogTest {
    private static final String SMALL =
            "--layers 1 --hidden 16 --heads 2 --context 8 --batch 4 --lr 0.01";

    @TempDir private Path folder;
    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int train(String more) {
        return Main.execute(
                "train",
                new TrainCommand(Map.of()),
                (SMALL + " " + more).split(" +", -1),
                new PrintWriter(out),
                new PrintWriter(err));
    }

    private static List<Double> losses(Path json) throws IOException {
        List<Double> losses = new ArrayList<>();
        JsonNode run = new ObjectMapper().readTree(json.toFile()).at("/jccl_train/runs/0/losses");
        run.forEach(n -> losses.add(n.asDouble()));
        return losses;
    }

    private static Map<Integer, Double> validation(Path json) throws IOException {
        Map<Integer, Double> losses = new TreeMap<>();
        JsonNode run = new ObjectMapper().readTree(json.toFile()).at("/jccl_train/runs/0");
        run.path("validation")
                .forEach(n -> losses.put(n.path("step").asInt(), n.path("loss").asDouble()));
        return losses;
    }

    @Test
    void aTableHasARowForEachStepAndGoesOn() throws IOException {
        Path csv = folder.resolve("a.csv");
        Path json = folder.resolve("a.json");
        Files.writeString(csv, "of an earlier run\n");
        assertEquals(
                0,
                train(
                        "--lr-schedule linear --dp 2 --steps 8 --eval-every 3 --json "
                                + json
                                + " --csv "
                                + csv),
                err::toString);
        List<String> lines = Files.readAllLines(csv);
        assertEquals(
                "step,loss,learning_rate,samples_per_second,seconds,validation_loss",
                lines.getFirst());
        assertEquals(1 + 8, lines.size());
        double before = 0;
        for (int i = 0; i < 8; i++) {
            String[] row = lines.get(1 + i).split(",", -1);
            assertEquals(i + 1, Integer.parseInt(row[0]));
            assertEquals(losses(json).get(i), Double.parseDouble(row[1]), 1e-6);
            assertEquals(0.01 * (1 - i / 8.0), Double.parseDouble(row[2]), 1e-7);
            assertTrue(Double.parseDouble(row[3]) > 0, lines.get(1 + i));
            double seconds = Double.parseDouble(row[4]);
            assertTrue(seconds >= before, lines.get(1 + i));
            before = seconds;
            if ((i + 1) % 3 == 0 || i == 7) {
                assertEquals(
                        field(validation(json), i + 1, Double.class),
                        Double.parseDouble(row[5]),
                        1e-6);
            } else {
                assertEquals("", row[5]);
            }
        }
        assertEquals(0, train("--steps 9 --csv " + csv), err::toString);
        assertEquals(1 + 9, Files.readAllLines(csv).size());
        Path more = folder.resolve("more.csv");
        String common = "--dp 2 --checkpoint " + folder.resolve("other") + " --csv " + more;
        assertEquals(0, train(common + " --steps 4"), err::toString);
        assertEquals(0, train(common + " --steps 6 --resume"), err::toString);
        assertEquals(
                List.of("step", "1", "2", "3", "4", "5", "6"),
                Files.readAllLines(more).stream().map(l -> l.split(",", -1)[0]).toList());
        // A run that is killed while it writes leaves a part of a row, or of the first line.
        String whole = Files.readString(more);
        Files.writeString(more, whole + "7,3.1");
        assertEquals(0, train(common + " --steps 7 --resume"), err::toString);
        List<String> rows = Files.readAllLines(more);
        assertEquals(whole, String.join("\n", rows.subList(0, 7)) + "\n");
        assertEquals(6, rows.get(7).split(",", -1).length, rows.get(7));
        Files.writeString(more, "step,lo");
        assertEquals(0, train(common + " --steps 8 --resume"), err::toString);
        rows = Files.readAllLines(more);
        assertEquals(MetricsLog.COLUMNS, rows.getFirst() + "\n");
        assertEquals(2, rows.size());
    }

    @Test
    void aFlightRecordingHasEachStep() throws IOException {
        Path json = folder.resolve("a.json");
        Path file = folder.resolve("a.jfr");
        try (Recording recording = new Recording()) {
            recording.enable("io.jccl.train.Step");
            recording.start();
            assertEquals(
                    0,
                    train("--lr-schedule linear --dp 2 --steps 4 --eval-every 3 --json " + json),
                    err::toString);
            recording.stop();
            recording.dump(file);
        }
        List<RecordedEvent> events =
                RecordingFile.readAllEvents(file).stream()
                        .filter(e -> e.getEventType().getName().equals("io.jccl.train.Step"))
                        .toList();
        assertEquals(4, events.size());
        for (int i = 0; i < 4; i++) {
            RecordedEvent event = events.get(i);
            assertEquals(i + 1L, event.getLong("step"));
            assertEquals(losses(json).get(i), event.getDouble("loss"), 1e-6);
            assertEquals(0.01 * (1 - i / 4.0), event.getDouble("learningRate"), 1e-9);
            assertTrue(event.getDouble("samplesPerSecond") > 0, event::toString);
            double validation = event.getDouble("validationLoss");
            assertEquals(i < 2, Double.isNaN(validation), event::toString);
            if (i >= 2) {
                assertEquals(field(validation(json), i + 1, Double.class), validation, 1e-6);
            }
        }
    }

    /** Events as read by the rules of their formats, not by the code that wrote them. */
    @Test
    void eventsAreThoseOfTensorBoard() throws IOException {
        Path events = folder.resolve("runs/a");
        Path json = folder.resolve("a.json");
        assertEquals(
                0,
                train(
                        "--lr-schedule linear --steps 200 --eval-every 100 --tensorboard "
                                + events
                                + " --json "
                                + json),
                err::toString);
        Path file;
        try (Stream<Path> files = Files.list(events)) {
            file = files.toList().getFirst();
        }
        assertTrue(
                file.getFileName().toString().startsWith("events.out.tfevents."), file::toString);
        ByteBuffer all = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
        List<Map<Integer, Object>> read = new ArrayList<>();
        while (all.hasRemaining()) {
            int start = all.position();
            int length = (int) all.getLong();
            checksum(all, start, 8);
            all.position(start + 12);
            read.add(message(all.slice(start + 12, length).order(ByteOrder.LITTLE_ENDIAN)));
            checksum(all, start + 12, length);
            all.position(start + 12 + length + 4);
        }
        assertEquals(1 + 200, read.size());
        assertEquals("brain.Event:2", text(field(read.getFirst(), 3, ByteBuffer.class)));
        double now = System.currentTimeMillis() * 1e-3;
        for (int i = 0; i < 200; i++) {
            Map<Integer, Object> event = read.get(1 + i);
            assertEquals(i + 1L, field(event, 2, Long.class));
            assertEquals(now, field(event, 1, Double.class), 120);
            Map<String, Float> metrics = new TreeMap<>();
            ByteBuffer summary = field(event, 5, ByteBuffer.class);
            while (summary.hasRemaining()) {
                assertEquals(1 << 3 | 2, summary.get());
                int length = (int) varint(summary);
                Map<Integer, Object> value =
                        message(
                                summary.slice(summary.position(), length)
                                        .order(ByteOrder.LITTLE_ENDIAN));
                summary.position(summary.position() + length);
                metrics.put(text(field(value, 1, ByteBuffer.class)), field(value, 2, Float.class));
            }
            boolean evaluated = (i + 1) % 100 == 0;
            assertEquals(evaluated ? 4 : 3, metrics.size(), metrics::toString);
            if (evaluated) {
                assertEquals(
                        field(validation(json), i + 1, Double.class),
                        field(metrics, "validation/loss", Float.class),
                        1e-6);
            }
            assertEquals(losses(json).get(i), field(metrics, "train/loss", Float.class), 1e-6);
            assertEquals(
                    0.01 * (1 - i / 200.0),
                    field(metrics, "train/learning_rate", Float.class),
                    1e-7);
        }
    }

    private static <T> T field(Map<?, ?> fields, Object key, Class<T> type) {
        return type.cast(Objects.requireNonNull(fields.get(key), () -> "no field " + key));
    }

    private static String text(ByteBuffer bytes) {
        return StandardCharsets.UTF_8.decode(bytes).toString();
    }

    /** The masked CRC of some bytes is what follows them. */
    private static void checksum(ByteBuffer all, int from, int count) {
        CRC32C crc = new CRC32C();
        crc.update(all.slice(from, count));
        long turned = crc.getValue() >>> 15 | crc.getValue() << 17;
        assertEquals((int) (turned + 0xa282ead8L), all.getInt(from + count));
    }

    /** Fields by number: a Long, Double, Float, or the bytes. */
    private static Map<Integer, Object> message(ByteBuffer from) {
        Map<Integer, Object> fields = new TreeMap<>();
        while (from.hasRemaining()) {
            int key = (int) varint(from);
            Object value =
                    switch (key & 7) {
                        case 0 -> varint(from);
                        case 1 -> from.getDouble();
                        case 5 -> from.getFloat();
                        case 2 -> {
                            int length = (int) varint(from);
                            ByteBuffer bytes = from.slice(from.position(), length);
                            from.position(from.position() + length);
                            yield bytes;
                        }
                        default -> throw new AssertionError("key " + key);
                    };
            fields.put(key >> 3, value);
        }
        return fields;
    }

    private static long varint(ByteBuffer from) {
        long value = 0;
        for (int shift = 0; ; shift += 7) {
            byte b = from.get();
            value |= (long) (b & 0x7f) << shift;
            if (b >= 0) {
                return value;
            }
        }
    }

    @Test
    void wrongPlacesAreRefusedBeforeTheFirstStep() throws IOException {
        assertEquals(2, train("--csv " + folder.resolve("none/a.csv")));
        assertTrue(
                err.toString().contains("--csv '" + folder.resolve("none/a.csv")), err::toString);
        Path both = folder.resolve("both");
        assertEquals(2, train("--json " + both + " --csv " + both));
        assertTrue(err.toString().contains("--json and --csv are both '" + both), err::toString);
        Path file = Files.writeString(folder.resolve("file"), "x");
        assertEquals(2, train("--tensorboard " + file));
        assertTrue(err.toString().contains("' is a file, expected a folder"), err::toString);
        assertEquals(2, train("--compare dp=2 --csv " + folder.resolve("a.csv")));
        assertTrue(err.toString().contains("--csv is for one run, --compare"), err::toString);
        assertEquals("x", Files.readString(file));
    }

    /** A full drive costs the table, not the training. */
    @Test
    void anErrorOfWritingIsAWarning() {
        assertEquals(0, train("--steps 3 --csv /dev/full"), err::toString);
        assertEquals(1, err.toString().lines().count(), err::toString);
        assertTrue(
                err.toString().contains("warning: --csv '/dev/full' is not written any more: "),
                err::toString);
    }
}
