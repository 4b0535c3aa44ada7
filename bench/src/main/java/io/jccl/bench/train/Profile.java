package io.jccl.bench.train;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.jspecify.annotations.Nullable;

/**
 * How long the operations of this process's ranks take, from a recording of Java's flight recorder
 * over some steps.
 *
 * <p><b>Threads:</b> {@link #name} by any; the rest by one.
 */
final class Profile {
    private static final String EVENT = "io.jccl.Collective";

    /** Names of the axes by communicator. */
    private final Map<String, String> names = new ConcurrentHashMap<>();

    private @Nullable Recording recording;

    /**
     * Seconds of one kind of operation, the mean over ranks.
     *
     * @param inline on the thread that trains, which waits for it
     * @param queued on a stream beside it
     * @param queuedGathers the part of {@code queued} in allGathers
     */
    record Times(double inline, double queued, double queuedGathers) {
        static final Times NONE = new Times(0, 0, 0);

        Times plus(Times t) {
            return new Times(
                    inline + t.inline, queued + t.queued, queuedGathers + t.queuedGathers);
        }
    }

    /** Says which ranks a communicator joins. */
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
     * @return seconds by axis; what no name is known for is the gradients'
     */
    Map<String, Times> stop(int ranks) throws IOException {
        Recording r = recording;
        Map<String, Times> sums = new TreeMap<>();
        if (r == null) {
            return sums;
        }
        recording = null;
        Path file = Files.createTempFile("jccl-train-", ".jfr");
        try (r) {
            r.stop();
            r.dump(file);
            try (RecordingFile events = new RecordingFile(file)) {
                while (events.hasMoreEvents()) {
                    add(events.readEvent(), ranks, sums);
                }
            }
        } finally {
            Files.deleteIfExists(file);
        }
        return sums;
    }

    private void add(RecordedEvent e, int ranks, Map<String, Times> sums) {
        if (!e.getEventType().getName().equals(EVENT)) {
            return;
        }
        String communicator = e.getString("communicator");
        String id = communicator.substring(communicator.indexOf(':') + 1);
        String axis = names.getOrDefault(id, GptTrainer.DATA);
        double seconds = e.getDuration().toNanos() * 1e-9 / ranks;
        boolean queued = e.getBoolean("queued");
        boolean gathers = queued && e.getString("operation").startsWith("allGather");
        Times t =
                new Times(queued ? 0 : seconds, queued ? seconds : 0, gathers ? seconds : 0);
        sums.merge(axis, t, Times::plus);
    }
}
