package io.jccl.cli.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.Communicator;
import io.jccl.bench.report.Page;
import io.jccl.cli.Main;
import io.jccl.cli.report.Browser;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import jdk.jfr.Recording;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code jccl flight} on recordings of real runs. */
@Isolated("records all events of the JVM")
@Timeout(value = 240, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FlightCommandTest {
    /** Bytes that say that a file is a recording. */
    private static final int JFR_HEADER = 4;

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    @TempDir Path folder = Path.of("");

    private int flight(Object... arguments) {
        String[] all =
                Stream.concat(Stream.of("flight"), Arrays.stream(arguments).map(Object::toString))
                        .toArray(String[]::new);
        return Main.execute(all, new PrintWriter(out), new PrintWriter(err));
    }

    private JsonNode json(Object... arguments) throws IOException {
        int before = out.getBuffer().length();
        List<Object> all = new ArrayList<>(List.of("--json"));
        all.addAll(List.of(arguments));
        flight(all.toArray());
        return new ObjectMapper()
                .readTree(out.getBuffer().substring(before))
                .get("communicators")
                .get(0);
    }

    // ---- runs

    /** Ranks as threads, in one recording. */
    private Path threads(int size, String what, int victim) throws IOException {
        Path file = folder.resolve("threads-" + what + ".jfr");
        try (Recording recording = new Recording()) {
            recording.enable("io.jccl.Collective").withoutStackTrace();
            recording.start();
            try {
                Communicator.runLocal(size, c -> FlightRank.run(c, what, victim));
            } catch (RuntimeException e) {
                assertTrue(what.equals("turn") || what.equals("skip"), e::toString);
            }
            recording.stop();
            recording.dump(file);
        }
        return file;
    }

    /** Ranks as processes, each with a recording of its own and a history if it fails. */
    private List<Path> processes(int size, String what, int victim) throws Exception {
        String id = Workers.newJobId();
        String name = what + "-" + id + "-";
        String recording =
                "-XX:StartFlightRecording:settings=none,+io.jccl.Collective#enabled=true,filename="
                        + folder.resolve(name + "%p.jfr");
        String histories = folder.resolve("histories").toString();
        List<Path> files = new ArrayList<>();
        try (Workers ranks =
                new Workers(size, id, List.of(recording), Map.of("JCCL_FLIGHT_DIR", histories))) {
            ranks.startAll(FlightRank.class, what, Integer.toString(victim));
            for (Worker rank : ranks.all()) {
                files.add(folder.resolve(name + rank.pid() + ".jfr"));
                rank.join(Duration.ofMinutes(2));
            }
        }
        for (Path file : files) {
            assertTrue(Files.exists(file), () -> "no recording " + file);
        }
        return files;
    }

    // ---- what is found

    @Tag("exhaustive")
    @Test
    void lateRankOfProcessesIsNamed() throws Exception {
        List<Path> files = processes(3, "late", 1);
        JsonNode w = json(files.toArray());
        assertTrue(w.get("divergence").isNull(), out::toString);
        assertEquals(3, w.get("ranks").size());
        // The barrier of joining, and what the ranks called.
        assertEquals(3 * (1 + 3 * FlightRank.ROUNDS), w.get("operations").asInt());
        double late = w.get("ranks").get(1).get("lateness").get("p50").asDouble();
        assertTrue(late > FlightRank.LATE_MILLIS * 1000 / 2.0, out::toString);
        assertTrue(w.get("ranks").get(1).get("lateness").get("lastShare").asDouble() > 0.5);
        for (int r : new int[] {0, 2}) {
            double p50 = w.get("ranks").get(r).get("lateness").get("p50").asDouble();
            assertTrue(p50 < late, out::toString);
        }
        assertEquals(3, w.get("slowest").size());
        assertEquals(FlightRank.ROUNDS, w.get("slowest").get(0).get("messages").asInt());
        assertEquals(FlightRank.ROUNDS * 200_000L, w.get("slowest").get(0).get("bytes").asLong());
        assertTrue(w.get("slowest").get(0).get("gbPerSecond").asDouble() > 0);
        Path page = folder.resolve("t.html");
        assertEquals(0, flight("--html", page, files.get(0), files.get(1), files.get(2)));
        String html = Files.readString(page);
        assertTrue(html.contains("\"allReduce\"") && !html.contains("/*DATA*/"), "no data");
        assertTrue(html.contains(Page.style()), "not the style of the other reports");
        assertFalse(html.contains("http://") || html.contains("https://"), "needs others");
    }

    /** Both timelines have all operations; Horovod's says whom the others waited for. */
    @Test
    void timelinesShowEachCollective() throws IOException {
        Path file = threads(2, "late", 1);
        Path trace = folder.resolve("trace.json");
        Path horovod = folder.resolve("horovod.json");
        assertEquals(2, flight("--trace", file, folder), err::toString);
        refused("--trace '" + file + "' is also a file to read");
        assertEquals(0, flight("--trace", trace, "--horovod", horovod, file), err::toString);
        JsonNode ranks = new ObjectMapper().readTree(trace.toFile());
        int operations = 0;
        Set<String> threads = new LinkedHashSet<>();
        for (JsonNode e : ranks) {
            if (e.get("ph").asText().equals("X")) {
                operations++;
                assertTrue(
                        e.get("ts").asDouble() >= 0 && e.get("dur").asDouble() >= 0, e::toString);
            } else if (e.get("name").asText().equals("thread_name")) {
                threads.add(e.at("/args/name").asText().substring(0, "rank 0".length()));
            }
        }
        assertEquals(json(file).get("operations").asInt(), operations);
        assertEquals(Set.of("rank 0", "rank 1"), threads);

        Map<Integer, List<JsonNode>> open = new HashMap<>();
        double waited = 0;
        int last = 0;
        int reduced = 0;
        for (JsonNode e : new ObjectMapper().readTree(horovod.toFile())) {
            List<JsonNode> begun =
                    open.computeIfAbsent(e.get("pid").asInt(), p -> new ArrayList<>());
            double time = e.path("ts").asDouble();
            switch (e.get("ph").asText()) {
                case "B" -> begun.add(e);
                case "X" -> begun.add(e);
                case "E" -> {
                    JsonNode mark = null;
                    while (begun.getLast().get("ph").asText().equals("X")) {
                        JsonNode x = begun.removeLast();
                        mark = x.get("ts").asDouble() == time ? x : mark;
                    }
                    JsonNode from = begun.removeLast();
                    assertTrue(from.get("ts").asDouble() <= time, e::toString);
                    if (from.get("name").asText().equals("NEGOTIATE_ALLREDUCE")) {
                        waited += time - from.get("ts").asDouble();
                        last += mark != null && mark.get("name").asText().equals("1") ? 1 : 0;
                    } else if (from.get("name").asText().equals("ALLREDUCE")) {
                        reduced++;
                        assertEquals("[50000]", e.at("/args/shape").asText());
                    }
                }
                default -> assertEquals("M", e.get("ph").asText());
            }
        }
        assertTrue(open.values().stream().allMatch(List::isEmpty), open::toString);
        assertEquals(FlightRank.ROUNDS, reduced);
        assertTrue(last > FlightRank.ROUNDS / 2, "rank 1 was last " + last + " times");
        double least = FlightRank.ROUNDS * FlightRank.LATE_MILLIS * 1000 / 2.0;
        assertTrue(waited > least, waited + " us of waiting");
    }

    @ParameterizedTest
    @CsvSource({"2, 1", "3, 0", "4, 3"})
    void wrongTurnIsTheFirstDivergence(int size, int victim) throws IOException {
        Path file = threads(size, "turn", victim);
        assertEquals(1, flight(file), err::toString);
        long sequence = FlightRank.ROUNDS / 2 + 1;
        String text = out.toString();
        assertTrue(text.contains("FIRST DIVERGENCE: collective #" + sequence + " differs"), text);
        assertTrue(
                text.contains("rank " + victim + " called reduce(float, count 50000, sum, root 0)"),
                text);
        if (size > 2) {
            assertTrue(text.contains("differs on rank(s) [" + victim + "]"), text);
        }
        JsonNode d = json(file).get("divergence");
        assertEquals(sequence, d.get("sequence").asLong());
        assertEquals("different", d.get("kind").asText());
    }

    @Tag("exhaustive")
    @Test
    void rankThatLeftIsTheFirstDivergenceInRecordingsAndHistories() throws Exception {
        List<Path> files = processes(3, "skip", 2);
        // One more for the barrier of joining.
        long sequence = FlightRank.ROUNDS / 2 + 2;
        String expected = "collective #" + sequence + " is missing on rank(s) [2]";
        assertEquals(1, flight(files.toArray()), err::toString);
        assertTrue(out.toString().contains(expected), out::toString);
        assertTrue(out.toString().contains("rank 2 has not reached it; its last is #"));
        assertTrue(out.toString().contains(", failed"), out::toString);
        // The two that failed left histories, which agree with the recordings.
        Path histories = folder.resolve("histories");
        try (Stream<Path> left = Files.list(histories)) {
            assertEquals(2, left.count());
        }
        out.getBuffer().setLength(0);
        assertEquals(1, flight(histories, files.get(2)), err::toString);
        assertTrue(out.toString().contains(expected), out::toString);
        assertTrue(out.toString().contains("; at io.jccl.cli.flight.FlightRank.run("));
    }

    @Test
    void sameRecordingTwiceIsTheSameAsOnce() throws IOException {
        Path file = threads(2, "fine", 0);
        Path twin = folder.resolve("twin.jfr");
        Files.copy(file, twin, StandardCopyOption.REPLACE_EXISTING);
        JsonNode once = json(file);
        assertEquals(once, json(file, twin));
        assertTrue(once.get("divergence").isNull());
    }

    // ---- mistakes

    private void refused(String... words) {
        String text = err.toString();
        for (String word : words) {
            assertTrue(text.contains(word), () -> "no '" + word + "' in " + text);
        }
        assertEquals("", out.toString());
    }

    @Test
    void filesThatAreNoRecordingsAreRefused() throws IOException {
        Path empty = Files.createFile(folder.resolve("empty.jfr"));
        assertEquals(2, flight(empty));
        refused("empty.jfr' is empty");
        Path text = Files.writeString(folder.resolve("a.txt"), "hello");
        assertEquals(2, flight(text));
        refused("a.txt' is neither a flight recording", "JCCL_FLIGHT_DIR");
        assertEquals(2, flight(folder.resolve("none.jfr")));
        refused("none.jfr' does not exist");
        assertEquals(2, flight(Files.createDirectory(folder.resolve("bare"))));
        refused("bare' contains no .jfr");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{",
                "{}",
                "{\"jcclFlight\":1}",
                "{\"jcclFlight\":2,\"operations\":[]}",
                "{\"jcclFlight\":1,\"operations\":[],\"size\":2,\"rank\":2}"
            })
    void jsonThatIsNoHistoryIsRefused(String text) throws IOException {
        assertEquals(2, flight(Files.writeString(folder.resolve("h.json"), text)), err::toString);
        assertFalse(err.toString().isEmpty());
        assertEquals("", out.toString());
    }

    @Test
    void recordingsOfDifferentJobsAreRefused() throws IOException {
        Path one = threads(2, "fine", 0);
        Path other = threads(2, "late", 1);
        assertEquals(2, flight(one, other));
        refused("different jobs", "threads-fine.jfr", "threads-late.jfr");
    }

    /** The history of a rank that waits in its only operation. */
    private Path history(String communicator, int rank, int size, int process, String thread)
            throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        ObjectNode h = mapper.createObjectNode();
        h.put("jcclFlight", 1).put("communicator", communicator).put("engine", "host/processes");
        h.put("rank", rank).put("size", size).put("host", "node").put("process", process);
        h.put("at", "Train.step(Train.java:6) [" + thread + "]");
        ObjectNode o = h.putArray("operations").addObject();
        o.put("number", 1).put("sequence", 1).put("name", "barrier").put("type", "int8");
        o.put("count", 0).put("root", -1).put("peer", -1).putNull("reduction");
        o.put("enqueuedNanos", 1_795_873_961_000_000_000L + rank);
        Path file = folder.resolve(communicator.replace('/', '_') + "-" + rank + ".json");
        mapper.writeValue(file.toFile(), h);
        return file;
    }

    /** As after a deadlock: each rank left what it did in the communicator in which it waited. */
    @Test
    void communicatorsOfOneJobWithoutACommonRecordingAreReadTogether() throws IOException {
        Path one = history("5f/0", 0, 2, 1, "main");
        Path two = history("5f/0.1.0", 1, 2, 2, "main");
        assertEquals(0, flight(one, two), err::toString);
        assertTrue(out.toString().contains("communicator 5f/0.1.0 (host"), out::toString);
        out.getBuffer().setLength(0);
        assertEquals(2, flight(one, two, history("60/0", 0, 2, 3, "main")));
        refused("different jobs");
    }

    /** NCCL's communicators have a number each, whatever they were split from. */
    @Test
    void communicatorsOfOneProcessAreReadTogether() throws IOException {
        Path one = history("5f/0", 0, 2, 1, "main");
        Path two = history("60/0.1", 0, 2, 1, "main");
        assertEquals(0, flight(one, two), err::toString);
        assertTrue(out.toString().contains("communicator 60/0.1 (host"), out::toString);
    }

    @Test
    void nameOfAThreadCannotSteerTheTerminal() throws IOException {
        assertEquals(0, flight(history("5f/0", 0, 1, 1, "a\u001b[31mb\nc")), err::toString);
        assertTrue(out.toString().contains("[a?[31mb?c]"), out::toString);
        assertTrue(out.toString().contains("), 1 rank, 1 operation recorded"), out::toString);
    }

    /** Browsers paint nothing of a canvas of 65,536 lines or more. */
    @Test
    void timelineOfThousandsOfRanksIsPainted() throws IOException, InterruptedException {
        int ranks = 2000;
        List<Object> arguments = new ArrayList<>();
        for (int r = 0; r < ranks; r++) {
            arguments.add(history("5f/0", r, ranks, r, "main"));
        }
        Path page = folder.resolve("t.html");
        arguments.addAll(List.of("--html", page));
        assertEquals(0, flight(arguments.toArray()), err::toString);
        String probe =
                """
                <script>
                const seen = g.getImageData(0, 0, 300, 300).data;
                document.body.dataset.painted = seen.some(v => v > 0);
                </script></body>\
                """;
        Files.writeString(page, Files.readString(page).replace("</body>", probe));
        String dom = Browser.open(page, folder);
        assertTrue(dom.contains("data-painted=\"true\""), "nothing is painted");
    }

    @Test
    void recordingWithoutCollectivesSaysHowToEnableThem() throws IOException {
        Path file = folder.resolve("other.jfr");
        try (Recording recording = new Recording()) {
            recording.enable("jdk.JVMInformation");
            recording.start();
            recording.stop();
            recording.dump(file);
        }
        assertEquals(2, flight(file));
        refused(
                "other.jfr",
                "no recording holds io.jccl.Collective events",
                "+io.jccl.Collective#enabled=true, unless no operation has run");
    }

    @Test
    void recordingThatIsCutShortIsRefusedOrRead() throws IOException {
        byte[] whole = Files.readAllBytes(threads(2, "fine", 0));
        Path cut = folder.resolve("cut.jfr");
        for (int part = 1; part < 20; part++) {
            Files.write(cut, Arrays.copyOf(whole, whole.length * part / 20));
            int status = flight(cut);
            String said = String.format(Locale.ROOT, "%d: %s%s", status, out, err);
            assertTrue(status == 0 || said.contains("cut.jfr"), said);
            out.getBuffer().setLength(0);
            err.getBuffer().setLength(0);
        }
    }

    /** Whatever is wrong with a file, it is named, in words of this command. */
    @Tag("exhaustive")
    @Test
    void damagedRecordingsAreNamedWhateverIsWrongWithThem() throws IOException {
        int rounds = 300;
        byte[] whole = Files.readAllBytes(threads(2, "fine", 0));
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("damagedRecordings: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        Path damaged = folder.resolve("damaged.jfr");
        int refused = 0;
        for (int round = 0; round < rounds; round++) {
            byte[] bytes = whole.clone();
            // A few bytes, or all of a stretch: sizes, types, constants and strings.
            int from = JFR_HEADER + random.nextInt(bytes.length - JFR_HEADER);
            int to = Math.min(bytes.length, from + (round % 3 == 0 ? 1 : random.nextInt(200)));
            for (int i = from; i < to; i++) {
                bytes[i] = round % 3 == 1 ? 0 : (byte) random.nextInt(256);
            }
            Files.write(damaged, bytes);
            int status = flight(damaged);
            // What a file names is its own.
            String text = err.toString().replaceFirst("(?s)an operation '.*', which", "");
            String said = "round " + round + ": " + status + " " + text;
            assertTrue(status >= 0 && status <= 2, said);
            if (!text.isEmpty()) {
                refused++;
                assertEquals(2, status, said);
                assertTrue(text.contains("damaged.jfr'"), said);
                assertFalse(text.contains("java.") || text.contains("Exception"), said);
                assertFalse(text.contains(" null"), said);
                assertEquals(1, text.strip().lines().count(), said);
            }
            out.getBuffer().setLength(0);
            err.getBuffer().setLength(0);
        }
        assertTrue(refused > rounds / 15, refused + " of " + rounds + " refused");
    }

    @Tag("exhaustive")
    @Test
    void foreignJsonInAFolderIsLeftOutWithAWarning() throws Exception {
        List<Path> files = processes(3, "skip", 2);
        Path histories = folder.resolve("histories");
        flight(histories, files.get(2));
        String expected = out.toString();
        assertEquals("", err.toString());
        out.getBuffer().setLength(0);
        Path package1 = Files.writeString(histories.resolve("package.json"), "{\"name\":1}");
        Files.writeString(histories.resolve("cut.json"), "{\"jcclFlight\":1,");
        Files.writeString(histories.resolve("list.json"), "[]");
        Files.createFile(histories.resolve("empty.json"));
        assertEquals(1, flight(histories, files.get(2)), err::toString);
        assertEquals(expected, out.toString());
        List<String> warnings = err.toString().lines().toList();
        assertEquals(4, warnings.size(), warnings::toString);
        for (String name : List.of("package", "cut", "list", "empty")) {
            assertTrue(
                    warnings.stream()
                            .anyMatch(w ->
                                    w.startsWith("jccl flight: warning: left out: '")
                                            && w.contains(name + ".json'")),
                    warnings::toString);
        }
        // One that is named is not left out.
        out.getBuffer().setLength(0);
        assertEquals(2, flight(histories, package1));
        refused("package.json' is neither a flight recording");
    }

    @Test
    void numbersThatCannotBeEndInAnErrorAndNotInALoop() throws IOException {
        for (String operation :
                List.of("\"number\":9223372036854775807", "\"number\":3,\"sequence\":1e18")) {
            Path file =
                    Files.writeString(
                            folder.resolve("n.json"),
                            "{\"jcclFlight\":1,\"communicator\":\"c\",\"size\":1,\"rank\":0,"
                                    + "\"operations\":[{\"name\":\"barrier\","
                                    + operation
                                    + "}]}");
            assertEquals(2, flight(file), out::toString);
            refused("n.json'", "cannot be");
        }
        // Sequences that no rank has are counted, not walked through.
        Path far =
                Files.writeString(
                        folder.resolve("far.json"),
                        "{\"jcclFlight\":1,\"communicator\":\"c\",\"size\":1,\"rank\":0,"
                                + "\"operations\":[{\"name\":\"barrier\",\"number\":1,"
                                + "\"sequence\":1},{\"name\":\"barrier\",\"number\":400000000002,"
                                + "\"sequence\":400000000002}]}");
        assertEquals(0, flight(far), err::toString);
        assertTrue(out.toString().contains("400000000000 collectives are missing"), out::toString);
    }

    @Test
    void placesThatCannotBeWrittenAreRefusedBeforeTheWork() throws IOException {
        Path recording = Files.writeString(folder.resolve("x.jfr"), "");
        assertEquals(2, flight("--trace", folder.resolve("./x.jfr"), recording));
        refused("--trace '" + recording + "' is also a file to read");
        assertEquals(2, flight("--html", folder.resolve("none/t.html"), "x.jfr"));
        refused("--html", "does not exist");
        assertEquals(2, flight("--last", "0", "x.jfr"));
        refused("--last is 0, expected 1 to");
    }
}
