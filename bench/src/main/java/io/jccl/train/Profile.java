package io.jccl.train;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.jspecify.annotations.Nullable;

/**
 * Times of the operations of this process's ranks, from a JDK Flight Recorder recording of some
 * steps.
 *
 * <p><b>Threads:</b> {@link #name} by any; the rest by one.
 */
final class Profile {
    private static final String EVENT = "io.jccl.Collective";

    /** Names of the axes by communicator. */
    private final Map<String, String> names = new ConcurrentHashMap<>();

    private @Nullable Recording recording;

    /**
     * Seconds, the mean over ranks.
     *
     * @param axes time in operations of each axis
     * @param inline time in operations on the training threads, which wait for them
     * @param queued time in operations on other streams, without a pipeline's messages, whose
     *     receives last as long as the sender computes
     * @param queuedGathers the part of {@code queued} in allGathers
     */
    record Times(Map<String, Double> axes, double inline, double queued, double queuedGathers) {
        static final Times NONE = new Times(Map.of(), 0, 0, 0);
    }

    /** One operation, in nanoseconds of the recording's clock. */
    private record Span(
            long thread, String axis, boolean queued, boolean gathers, Instant from, Instant to) {
        boolean beside() {
            return queued && !axis.equals(GptTrainer.PIPELINE);
        }
    }

    /** Sets the name of a communicator's axis. */
    void name(String communicator, String axis) {
        names.put(communicator, axis);
    }

    void start() {
        Recording r = new Recording();
        r.enable(EVENT).withoutThreshold();
        r.start();
        recording = r;
    }

    /**
     * Ends the recording.
     *
     * @param ranks ranks of this process
     * @return its contents, nothing for operations of GPUs; operations of unnamed communicators are
     *     counted as those of gradients
     */
    Times stop(int ranks) throws IOException {
        Recording r = recording;
        if (r == null) {
            return Times.NONE;
        }
        recording = null;
        List<Span> spans = new ArrayList<>();
        Path file = Files.createTempFile("jccl-train-", ".jfr");
        try (r) {
            r.stop();
            r.dump(file);
            try (RecordingFile events = new RecordingFile(file)) {
                while (events.hasMoreEvents()) {
                    RecordedEvent e = events.readEvent();
                    // Of an operation that ends on a GPU, the event has only the time of the call.
                    if (e.getEventType().getName().equals(EVENT) && !e.getBoolean("enqueued")) {
                        spans.add(span(e));
                    }
                }
            }
        } finally {
            Files.deleteIfExists(file);
        }
        Map<String, Double> axes = new TreeMap<>();
        for (String axis : new TreeSet<>(spans.stream().map(Span::axis).toList())) {
            axes.put(axis, seconds(spans, s -> s.axis.equals(axis)) / ranks);
        }
        return new Times(
                axes,
                seconds(spans, s -> !s.queued) / ranks,
                seconds(spans, s -> s.beside()) / ranks,
                seconds(spans, s -> s.beside() && s.gathers) / ranks);
    }

    private Span span(RecordedEvent e) {
        String communicator = e.getString("communicator");
        String id = communicator.substring(communicator.indexOf(':') + 1);
        return new Span(
                e.getThread() == null ? 0 : e.getThread().getId(),
                names.getOrDefault(id, GptTrainer.DATA),
                e.getBoolean("queued"),
                e.getString("operation").startsWith("allGather"),
                e.getStartTime(),
                e.getEndTime());
    }

    /**
     * Time in any of the operations, over all threads; operations of a group run at the same time.
     */
    private static double seconds(List<Span> spans, Predicate<Span> which) {
        Map<Long, List<Span>> threads = new TreeMap<>();
        spans.stream()
                .filter(which)
                .sorted(Comparator.comparing(Span::from))
                .forEach(s -> threads.computeIfAbsent(s.thread, t -> new ArrayList<>()).add(s));
        double sum = 0;
        for (List<Span> ofThread : threads.values()) {
            Instant until = Instant.MIN;
            for (Span s : ofThread) {
                Instant from = s.from.isBefore(until) ? until : s.from;
                if (from.isBefore(s.to)) {
                    sum += Duration.between(from, s.to).toNanos() * 1e-9;
                    until = s.to;
                }
            }
        }
        return sum;
    }
}
