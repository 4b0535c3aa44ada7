package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import jdk.jfr.FlightRecorder;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/** What a recording of Java's flight recorder holds. */
@Isolated("records all events of the JVM")
@UsesFakes
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class FlightEventTest {
    private static final String COLLECTIVE = "io.jccl.Collective";
    private static final String PROGRESS = "io.jccl.Progress";

    @TempDir Path folder = Path.of("");

    private List<RecordedEvent> record(Runnable body, String... events) throws IOException {
        Path file = folder.resolve("t.jfr");
        try (Recording recording = new Recording()) {
            for (String e : events) {
                recording.enable(e).withoutStackTrace();
            }
            recording.start();
            body.run();
            recording.stop();
            recording.dump(file);
        }
        return RecordingFile.readAllEvents(file).stream()
                .filter(e -> e.getEventType().getName().startsWith("io.jccl."))
                .toList();
    }

    private static List<RecordedEvent> of(List<RecordedEvent> events, int rank) {
        return events.stream()
                .filter(e -> e.getEventType().getName().equals(COLLECTIVE))
                .filter(e -> e.getInt("rank") == rank)
                .sorted((a, b) -> Long.compare(a.getLong("number"), b.getLong("number")))
                .toList();
    }

    private static void three(Communicator c) {
        Stream s = c.device().defaultStream();
        try (Stream beside = c.device().newStream();
                Buffer a = c.device().allocate(DataType.FLOAT32, 100_000)) {
            c.allReduce(a, ReduceOp.MAX, s);
            Group.run(
                    c,
                    () -> {
                        c.send(a.slice(0, 10), (c.rank() + 1) % c.size(), s);
                        c.recv(a.slice(10, 10), (c.rank() + c.size() - 1) % c.size(), s);
                    });
            c.broadcast(a, 1, beside);
            beside.synchronize();
        }
    }

    @Test
    void everyOperationIsAnEvent() throws IOException {
        List<RecordedEvent> events =
                record(() -> Communicator.runLocal(2, FlightEventTest::three), COLLECTIVE);
        assertEquals(8, events.size(), events::toString);
        assertEquals(1, events.stream().map(e -> e.getString("communicator")).distinct().count());
        for (int r = 0; r < 2; r++) {
            List<RecordedEvent> own = of(events, r);
            assertEquals(
                    List.of(
                            "allReduce(float, max) by direct",
                            "send(float) by direct",
                            "recv(float) by direct",
                            "broadcast(float) by direct"),
                    own.stream().map(e -> e.getString("operation")).toList());
            assertEquals(
                    List.of(1L, 0L, 0L, 2L), own.stream().map(e -> e.getLong("sequence")).toList());
            assertEquals(
                    List.of(1L, 2L, 3L, 4L), own.stream().map(e -> e.getLong("number")).toList());
            RecordedEvent e = own.getFirst();
            assertTrue(e.getString("communicator").startsWith("host/threads:"), e::toString);
            assertEquals(2, e.getInt("size"));
            assertEquals(100_000, e.getLong("count"));
            assertEquals(400_000, e.getLong("bytes"));
            assertEquals(-1, e.getInt("root"));
            assertFalse(e.getBoolean("failed") || e.getBoolean("enqueued"), e::toString);
            assertTrue(e.getDuration().compareTo(Duration.ZERO) > 0, e::toString);
            assertEquals(1 - r, own.get(1).getInt("root"));
            assertEquals(1, own.get(3).getInt("root"));
            assertTrue(own.get(3).getBoolean("queued"));
        }
    }

    @Test
    void nothingIsRecordedUnlessAskedFor() throws IOException {
        assertEquals(
                List.of(),
                record(() -> Communicator.runLocal(2, FlightEventTest::three), "jdk.GCPhasePause"));
    }

    @Test
    void whatFailsIsAnEventToo() throws IOException {
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofMillis(300));
        List<RecordedEvent> events =
                record(
                        () ->
                                assertThrows(
                                        JcclException.class,
                                        () ->
                                                Communicator.runLocal(
                                                        2,
                                                        options,
                                                        c -> {
                                                            if (c.rank() == 0) {
                                                                c.barrier(
                                                                        c.device().defaultStream());
                                                            } else {
                                                                Thread.sleep(1500);
                                                            }
                                                        })),
                        COLLECTIVE);
        assertEquals(1, events.size(), events::toString);
        assertTrue(events.getFirst().getBoolean("failed"), events::toString);
        assertEquals("barrier by direct", events.getFirst().getString("operation"));
    }

    /** Its operations end beside the JVM: the watchdog says how far they are. */
    @Test
    void ncclSaysWhatIsEnqueuedAndHowFarItIs() throws IOException {
        TestFake.use();
        List<RecordedEvent> events =
                record(
                        () -> {
                            List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
                            NcclRanks.each(
                                    ranks,
                                    c -> {
                                        three(c);
                                        c.barrier(c.device().defaultStream());
                                        long deadline = System.nanoTime() + 30_000_000_000L;
                                        while (c.history().completed() < 5
                                                && System.nanoTime() < deadline) {
                                            Thread.sleep(20);
                                        }
                                    });
                            NcclRanks.close(ranks);
                        },
                        COLLECTIVE,
                        PROGRESS);
        for (int r = 0; r < 2; r++) {
            int rank = r;
            List<RecordedEvent> own = of(events, r);
            assertEquals(
                    List.of(
                            "allReduce(float, max) by auto",
                            "send(float) by auto",
                            "recv(float) by auto",
                            "broadcast(float) by auto",
                            "barrier by auto"),
                    own.stream().map(e -> e.getString("operation")).toList());
            assertTrue(own.stream().allMatch(e -> e.getBoolean("enqueued")));
            assertTrue(own.getFirst().getString("communicator").startsWith("nccl:"));
            assertEquals(
                    5,
                    events.stream()
                            .filter(e -> e.getEventType().getName().equals(PROGRESS))
                            .filter(e -> e.getInt("rank") == rank)
                            .mapToLong(e -> e.getLong("number"))
                            .max()
                            .orElse(0),
                    events::toString);
        }
        assertEquals(1, events.stream().map(e -> e.getString("communicator")).distinct().count());
        NcclRanks.reset();
    }

    /** A rank that counts events before and after it starts a recording. */
    static final class Later {
        private Later() {}

        public static void main(String[] args) throws IOException {
            try (Communicator c = Communicator.local(1).getFirst();
                    Buffer b = c.device().allocate(DataType.INT32, 10)) {
                Stream stream = c.device().defaultStream();
                c.allReduce(b, ReduceOp.SUM, stream);
                System.out.println("INITIALIZED " + FlightRecorder.isInitialized());
                Path file = Files.createTempFile("later", ".jfr");
                try (Recording recording = new Recording()) {
                    recording.enable(COLLECTIVE);
                    recording.start();
                    c.allReduce(b, ReduceOp.SUM, stream);
                    c.allReduce(b, ReduceOp.MAX, stream);
                    recording.stop();
                    recording.dump(file);
                    System.out.println("EVENTS " + RecordingFile.readAllEvents(file).size());
                } finally {
                    Files.delete(file);
                }
            }
        }
    }

    /** The recorder takes long to initialize, so programs that do not record start without. */
    @Tag("exhaustive")
    @Test
    void theRecorderIsInitializedByRecordingsAlone() {
        try (Workers workers = new Workers(1, Workers.newJobId(), List.of(), Map.of())) {
            workers.startAll(Later.class);
            Worker worker = workers.all().getFirst();
            worker.await("INITIALIZED false", Duration.ofSeconds(60));
            worker.await("EVENTS 2", Duration.ofSeconds(60));
            assertEquals(0, worker.join(Duration.ofSeconds(60)));
        }
    }

    /** An image may lack the module jdk.jfr. */
    @Test
    void worksWithoutTheModule() {
        try (Workers workers =
                new Workers(
                        1,
                        Workers.newJobId(),
                        List.of("--limit-modules=java.base,jdk.incubator.vector"),
                        Map.of())) {
            workers.startAll(FaultWorker.class, "hello", "60");
            Worker worker = workers.all().getFirst();
            worker.await("OK", Duration.ofSeconds(60));
            assertEquals(0, worker.join(Duration.ofSeconds(60)));
        }
    }
}
