package io.jccl.cli.flight;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.Text;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.jspecify.annotations.Nullable;

/** Reads recordings of JDK Flight Recorder and histories written by failing ranks. */
final class Reader {
    private static final String COLLECTIVE = "io.jccl.Collective";
    private static final String PROGRESS = "io.jccl.Progress";
    private static final byte[] JFR = {'F', 'L', 'R', 0};

    /** Operation, type, reduction and algorithm, as an event names them. */
    private static final Pattern OPERATION =
            Pattern.compile("(\\w+)(?:\\((\\w+)(?:, (\\w+))?\\))? by ([\\w-]+)");

    /** Upper limit of operation numbers, as a damaged file may contain any. */
    private static final long MOST_OPERATIONS = 1L << 39;

    private static final int MOST_RANKS = 1 << 20;

    /** Characters of an unknown name that a message shows. */
    private static final int MOST_SHOWN = 60;

    /** An unusable file; the message names it. */
    private static final class UnfitException extends IllegalArgumentException {
        private static final long serialVersionUID = 1L;

        UnfitException(String message, @Nullable Throwable cause) {
            super(message, cause);
        }
    }

    private Reader() {}

    /**
     * Reads files and the files in folders.
     *
     * @param warn called for other files in folders, which are skipped
     * @return the communicators in them, all of one job
     */
    static List<World> read(List<Path> given, Consumer<String> warn) throws IOException {
        List<Path> files = expand(given);
        Queue<String> leftOut = new ConcurrentLinkedQueue<>();
        List<Callable<List<World>>> tasks = new ArrayList<>();
        for (Path file : files) {
            boolean mayBeForeign = !given.contains(file) && file.toString().endsWith(".json");
            tasks.add(() -> {
                try {
                    return readFile(file);
                } catch (OutOfMemoryError e) {
                    throw new UnfitException(
                            format(
                                    "'%s' does not fit into this JVM's memory: allow more, as by"
                                            + " JCCL_JAVA_OPTS=-Xmx8g, or give files of fewer"
                                            + " operations, unless it is damaged",
                                    file),
                            e);
                } catch (UnfitException e) {
                    if (!mayBeForeign) {
                        throw e;
                    }
                    leftOut.add(String.valueOf(e.getMessage()));
                    return List.of();
                }
            });
        }
        Map<String, World> merged = new LinkedHashMap<>();
        int threads = Math.min(files.size(), Runtime.getRuntime().availableProcessors());
        try (ExecutorService pool = Executors.newFixedThreadPool(threads)) {
            List<Future<List<World>>> results = tasks.stream().map(pool::submit).toList();
            for (Future<List<World>> result : results) {
                for (World w : result.get()) {
                    World known = merged.putIfAbsent(w.id, w);
                    if (known != null) {
                        known.merge(w);
                    }
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while reading", e);
        } catch (ExecutionException e) {
            switch (e.getCause()) {
                case IOException io -> throw io;
                case RuntimeException r -> throw r;
                case null, default -> throw new IOException(e);
            }
        }
        leftOut.stream().sorted().forEach(why -> warn.accept("left out: " + why));
        List<World> worlds = List.copyOf(merged.values());
        if (worlds.isEmpty()) {
            throw new IllegalArgumentException(
                    format(
                            "%s: no recording holds %s events; enable them with +%s#enabled=true,"
                                    + " unless no operation has run, as where ranks did not join",
                            files, COLLECTIVE, COLLECTIVE));
        }
        checkOneJob(files, worlds);
        worlds.forEach(w -> w.tracks.values().forEach(Track::sort));
        return worlds;
    }

    private static List<Path> expand(List<Path> given) throws IOException {
        TreeSet<Path> files = new TreeSet<>();
        for (Path p : given) {
            if (!Files.exists(p)) {
                throw new IllegalArgumentException(
                        "'"
                                + p
                                + "' does not exist; give recordings, histories, or folders of"
                                + " them");
            }
            if (!Files.isDirectory(p)) {
                files.add(p);
                continue;
            }
            int before = files.size();
            try (Stream<Path> inside = Files.list(p)) {
                inside.filter(f -> !f.getFileName().toString().startsWith("."))
                        .filter(f ->
                                f.toString().endsWith(".jfr") || f.toString().endsWith(".json"))
                        .forEach(files::add);
            } catch (IOException e) {
                throw new UnfitException("folder '" + p + "' cannot be read: " + Text.reason(e), e);
            }
            if (files.size() == before) {
                throw new IllegalArgumentException(
                        "folder '" + p + "' contains no .jfr or .json files");
            }
        }
        return List.copyOf(files);
    }

    private static List<World> readFile(Path file) throws IOException {
        byte[] head = new byte[64];
        int length;
        try (InputStream in = Files.newInputStream(file)) {
            length = in.readNBytes(head, 0, head.length);
        } catch (AccessDeniedException e) {
            throw new UnfitException(
                    "'" + file + "' cannot be read: permission denied; run as its owner", e);
        } catch (IOException e) {
            throw new UnfitException("'" + file + "' cannot be read: " + Text.reason(e), e);
        }
        if (length == 0) {
            throw new UnfitException(
                    "'" + file + "' is empty: its recording was never written, or is still open",
                    null);
        }
        boolean jfr = length >= JFR.length;
        for (int i = 0; i < JFR.length && jfr; i++) {
            jfr = head[i] == JFR[i];
        }
        if (jfr) {
            return readRecording(file);
        }
        if (new String(head, 0, length, StandardCharsets.ISO_8859_1)
                .stripLeading()
                .startsWith("{")) {
            return List.of(readHistory(file));
        }
        throw noRecording(file, "it begins with neither FLR nor {");
    }

    private static UnfitException noRecording(Path file, String why) {
        return new UnfitException(
                format(
                        "'%s' is neither a flight recording nor a history of JCCL: %s; give what"
                                + " -XX:StartFlightRecording or JCCL_FLIGHT_DIR wrote",
                        file, why),
                null);
    }

    // ---- recordings

    private static List<World> readRecording(Path file) throws IOException {
        Map<String, World> worlds = new HashMap<>();
        Map<String, Signature> known = new HashMap<>();
        Map<String, Map<Integer, Long>> progress = new HashMap<>();
        long events = 0;
        try (RecordingFile recording = new RecordingFile(file)) {
            while (recording.hasMoreEvents()) {
                RecordedEvent e = recording.readEvent();
                events++;
                String name = e.getEventType().getName();
                if (name.equals(COLLECTIVE)) {
                    add(worlds, known, file, e);
                } else if (name.equals(PROGRESS)) {
                    progress.computeIfAbsent(e.getString("communicator"), k -> new HashMap<>())
                            .merge(e.getInt("rank"), e.getLong("number"), Math::max);
                }
            }
        } catch (UnfitException | OutOfMemoryError e) {
            throw e;
        } catch (IOException | RuntimeException | VirtualMachineError e) {
            // The JDK's reader does not validate its input, so damage can cause any of these.
            throw new UnfitException(
                    format(
                            "'%s' cannot be read to its end, only up to event %s: it is damaged"
                                    + " or truncated. Take it with jcmd PID JFR.dump, or let the"
                                    + " JVM end by itself",
                            file, events),
                    e);
        }
        progress.forEach((id, byRank) -> {
            World w = worlds.get(id);
            if (w != null) {
                byRank.forEach((rank, number) -> track(file, w, rank).progress = number);
            }
        });
        return List.copyOf(worlds.values());
    }

    private static void add(
            Map<String, World> worlds, Map<String, Signature> known, Path file, RecordedEvent e) {
        String name = e.getString("communicator");
        World w = worlds.get(name);
        if (w == null) {
            int colon = name.indexOf(':');
            w =
                    world(
                            file,
                            name.substring(colon + 1),
                            name.substring(0, Math.max(0, colon)),
                            e.getInt("size"));
            worlds.put(name, w);
        }
        Signature s =
                known.computeIfAbsent(e.getString("operation"), text -> signature(file, text))
                        .withRoot(e.getInt("root"));
        byte state =
                e.getBoolean("failed")
                        ? Track.FAILED
                        : e.getBoolean("enqueued") ? Track.ENQUEUED : Track.COMPLETED;
        long start = nanos(e.getStartTime());
        track(file, w, e.getInt("rank"))
                .add(
                        number(file, e.getLong("number")),
                        number(file, e.getLong("sequence")),
                        w.index(s),
                        e.getLong("count"),
                        e.getLong("bytes"),
                        start,
                        state == Track.ENQUEUED ? Track.UNKNOWN : nanos(e.getEndTime()),
                        state);
    }

    private static World world(Path file, String id, String engine, int ranks) {
        if (ranks < 1 || ranks > MOST_RANKS) {
            throw noRecording(file, "a communicator of " + ranks + " ranks cannot be");
        }
        World w = new World(id, engine, ranks);
        w.files.add(file);
        return w;
    }

    private static Track track(Path file, World w, int rank) {
        if (rank < 0 || rank >= w.ranks) {
            throw noRecording(file, "rank " + rank + " of " + w.ranks + " ranks cannot be");
        }
        return w.track(rank);
    }

    /** Checks a number or sequence of an operation. */
    private static long number(Path file, long number) {
        if (number > MOST_OPERATIONS || number < -1) {
            throw noRecording(file, "an operation of number " + number + " cannot be");
        }
        return number;
    }

    private static Signature signature(Path file, String operation) {
        Matcher m = OPERATION.matcher(operation);
        if (!m.matches()) {
            throw new UnfitException(
                    format(
                            "'%s' has an operation '%s', which this version of jccl does not"
                                    + " know; use the jccl of the run, unless the file is damaged",
                            file, operation.substring(0, Math.min(operation.length(), MOST_SHOWN))),
                    null);
        }
        String type = m.group(2);
        String reduction = m.group(3);
        return new Signature(
                m.group(1), type == null ? "int8" : type, reduction == null ? "" : reduction, -1);
    }

    private static long nanos(Instant t) {
        return t.getEpochSecond() * 1_000_000_000L + t.getNano();
    }

    // ---- histories

    private static World readHistory(Path file) throws IOException {
        JsonNode h;
        try {
            h = new ObjectMapper().readTree(file.toFile());
        } catch (JsonProcessingException e) {
            throw noRecording(file, "it is not JSON: " + e.getOriginalMessage());
        }
        if (!h.path("jcclFlight").isInt() || !h.path("operations").isArray()) {
            throw noRecording(file, "it has no \"jcclFlight\" and \"operations\"");
        }
        if (h.path("jcclFlight").asInt() != 1) {
            throw noRecording(
                    file, "its version is " + h.path("jcclFlight") + ", this jccl reads 1");
        }
        World w = world(file, text(h, "communicator"), text(h, "engine"), h.path("size").asInt());
        Track t = track(file, w, h.path("rank").asInt());
        t.progress = h.path("completed").asLong();
        t.site = text(h, "at");
        t.process = text(h, "host") + ":" + h.path("process").asLong();
        for (JsonNode o : h.path("operations")) {
            int root = o.path("root").asInt(-1);
            Signature s =
                    new Signature(
                            text(o, "name"),
                            text(o, "type"),
                            text(o, "reduction"),
                            root >= 0 ? root : o.path("peer").asInt(-1));
            t.add(
                    number(file, o.path("number").asLong()),
                    number(file, o.path("sequence").asLong()),
                    w.index(s),
                    o.path("count").asLong(),
                    o.path("bytes").asLong(),
                    o.path("enqueuedNanos").asLong(),
                    Track.UNKNOWN,
                    o.path("completed").asBoolean() ? Track.COMPLETED : Track.PENDING);
        }
        return w;
    }

    /** A text, for a terminal; empty if there is none. */
    private static String text(JsonNode from, String field) {
        return Output.oneLine(from.path(field).asText(""));
    }

    // ---- one job

    /**
     * Files belong to the same job if shared communicators connect them, or communicators that were
     * split from the same one, or whose histories are of the same process. A file without
     * communicators, such as a launcher's, belongs to any job.
     */
    private static void checkOneJob(List<Path> files, List<World> worlds) {
        Map<Path, Integer> group = new HashMap<>();
        files.forEach(f -> group.put(f, group.size()));
        Map<String, Set<Path>> together = new HashMap<>();
        for (World w : worlds) {
            Stream<String> processes = w.tracks.values().stream().map(t -> t.process);
            Stream.concat(Stream.of(w.job()), processes.filter(p -> !p.isEmpty()))
                    .forEach(key ->
                            together.computeIfAbsent(key, k -> new TreeSet<>()).addAll(w.files));
        }
        boolean changed = true;
        while (changed) {
            changed = false;
            for (Set<Path> some : together.values()) {
                int least = some.stream().mapToInt(group::get).min().orElse(0);
                for (Path f : some) {
                    changed |= group.put(f, least) != least;
                }
            }
        }
        Map<Integer, List<Path>> jobs = new LinkedHashMap<>();
        files.stream()
                .filter(f -> worlds.stream().anyMatch(w -> w.files.contains(f)))
                .forEach(f -> jobs.computeIfAbsent(group.get(f), g -> new ArrayList<>()).add(f));
        if (jobs.size() > 1) {
            throw new IllegalArgumentException(
                    "the files are from different jobs, without a common communicator: "
                            + String.join(
                                    " | ", jobs.values().stream().map(List::toString).toList())
                            + "; give those of one job");
        }
    }
}
