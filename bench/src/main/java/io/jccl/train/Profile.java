package io.jccl.train;

import io.jccl.device.Device;
import io.jccl.engine.OperationSpans;
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
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.jspecify.annotations.Nullable;

/**
 * Times of the operations in some steps: on the CPU those of this process's ranks, from a JDK
 * Flight Recorder recording; on a GPU those of one rank, from events on its streams.
 *
 * <p><b>Threads:</b> {@link #name} by any; the rest by one.
 */
final class Profile implements AutoCloseable {
    private static final String EVENT = "io.jccl.Collective";

    /** Names of the axes by communicator. */
    private final Map<String, String> names = new ConcurrentHashMap<>();

    private @Nullable Recording recording;

    /** Of a GPU; null on the CPU. */
    private @Nullable OperationSpans onDevice;

    private final List<Span> ofDevice = new ArrayList<>();
    private int steps;

    /**
     * Seconds, the mean over ranks.
     *
     * @param axes time in operations of each axis
     * @param inline time in operations on the training threads, which wait for them; on a GPU in
     *     those on any stream, whatever runs concurrently
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

    /**
     * Begins.
     *
     * @param device where the rank computes
     */
    void start(Device device) {
        if (device.kind() == Device.Kind.CUDA) {
            onDevice = OperationSpans.of(device);
            return;
        }
        Recording r = new Recording();
        r.enable(EVENT).withoutThreshold();
        r.start();
        recording = r;
    }

    /** A step begins. */
    void stepBegins() {
        if (onDevice != null) {
            onDevice.begin();
        }
    }

    /** A step has ended; on a GPU this waits for operations still running. */
    void stepEnded() {
        if (onDevice == null) {
            return;
        }
        // Steps have their own clocks.
        Instant begin = Instant.ofEpochSecond(TimeUnit.DAYS.toSeconds(steps++));
        for (OperationSpans.Span s : onDevice.end()) {
            String axis = names.getOrDefault(s.communicator(), GptTrainer.DATA);
            Instant from = begin.plusNanos(s.fromNanos());
            Instant to = begin.plusNanos(s.toNanos());
            ofDevice.add(new Span(0, axis, false, false, from, to));
        }
    }

    /**
     * Ends the recording.
     *
     * @param ranks ranks of this process
     * @return its contents; operations of unnamed communicators are counted as those of gradients
     */
    Times stop(int ranks) throws IOException {
        if (onDevice != null) {
            close();
            return times(ofDevice, 1);
        }
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
        return times(spans, ranks);
    }

    /** Ends what was not stopped, after an error. */
    @Override
    public void close() {
        OperationSpans spans = onDevice;
        if (spans != null) {
            onDevice = null;
            spans.close();
        }
        Recording r = recording;
        if (r != null) {
            recording = null;
            r.close();
        }
    }

    private static Times times(List<Span> spans, int ranks) {
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
