package io.jccl.engine;

import io.jccl.device.Stream;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Records the operations of one communicator between the start and the end of a group.
 *
 * <p><b>Threads:</b> the communicator's thread only.
 */
final class GroupRecorder {
    private final EngineCommunicator engine;
    private final OperationQueue queue;
    private int depth;
    private @Nullable Batch batch;

    /** The stream of the first operation, and so of all. */
    private @Nullable Stream stream;

    /** Whether a nested group has failed, so that no operation of this one may run. */
    private boolean poisoned;

    GroupRecorder(EngineCommunicator engine, OperationQueue queue) {
        this.engine = engine;
        this.queue = queue;
    }

    boolean isRecording() {
        return depth > 0;
    }

    /** Throws if the group's other operations use another stream. */
    void checkStream(Stream named) {
        if (stream == null) {
            stream = named;
        } else if (stream != named) {
            throw new IllegalArgumentException(
                    "a group's operations on one communicator go to one stream, but this one names"
                            + " another than the first; use two groups");
        }
    }

    void record(Request request) {
        Objects.requireNonNull(batch).requests.add(request);
    }

    void refuse(String operation) {
        if (depth > 0) {
            throw new IllegalStateException(
                    ("%s inside Group.run: a group only records, but %s waits for the other ranks"
                                    + " at once; call it before or after the group")
                            .formatted(operation, operation));
        }
    }

    /** Starts recording; calls nest. */
    private void start() {
        engine.checkUsable();
        if (depth++ == 0) {
            batch = queue.takeBatch();
        }
    }

    /** Ends recording after an error; no operation of the group will run. */
    private void discard() {
        Batch discarded = Objects.requireNonNull(batch);
        for (Request r : discarded.requests) {
            queue.free(r);
        }
        discarded.requests.clear();
        poisoned = true;
        if (--depth == 0) {
            queue.free(finish());
        }
    }

    /**
     * Ends recording; returns the batch to run, or null if it is empty or an outer group is open.
     */
    private @Nullable Batch end() {
        if (--depth > 0) {
            return null;
        }
        boolean failed = poisoned;
        Batch recorded = finish();
        if (!failed && !recorded.requests.isEmpty()) {
            return recorded;
        }
        queue.free(recorded);
        if (failed) {
            throw new IllegalStateException(
                    "a nested group ended with an exception, so nothing of this group was run");
        }
        return null;
    }

    private Batch finish() {
        Batch finished = Objects.requireNonNull(batch);
        batch = null;
        stream = null;
        poisoned = false;
        return finished;
    }

    /** See {@link io.jccl.Group#run(io.jccl.Communicator, Runnable)}. */
    void run(Runnable body) {
        start();
        boolean recorded = false;
        try {
            body.run();
            recorded = true;
        } finally {
            if (!recorded) {
                discard();
            }
        }
        Stream to = stream;
        Batch work = end();
        if (work != null) {
            run(work, Objects.requireNonNull(to));
        }
    }

    private void run(Batch work, Stream to) {
        if (engine.runsInline(to)) {
            queue.runHere(work);
        } else {
            queue.enqueue(work, to);
        }
    }

    // ---- several communicators of one thread

    /** See {@link io.jccl.Group#run(java.util.List, Runnable)}. */
    static void run(EngineCommunicator[] engines, Runnable body) {
        for (EngineCommunicator e : engines) {
            if (e.runsTogether() != engines[0].runsTogether()) {
                throw new IllegalArgumentException(
                        ("the group has communicators of the engines %s and %s, but NCCL's run only"
                                        + " with each other; use a group for each engine")
                                .formatted(engines[0].engine(), e.engine()));
            }
        }
        int started = 0;
        boolean recorded = false;
        try {
            for (EngineCommunicator e : engines) {
                e.group.start();
                started++;
            }
            body.run();
            recorded = true;
        } finally {
            for (int i = 0; !recorded && i < started; i++) {
                engines[i].group.discard();
            }
        }
        end(engines);
    }

    /** Ends recording on several communicators and runs all recorded operations together. */
    private static void end(EngineCommunicator[] engines) {
        @Nullable Batch[] batches = new Batch[engines.length];
        @Nullable Stream[] streams = new Stream[engines.length];
        boolean[] inline = new boolean[engines.length];
        RuntimeException first = null;
        // All recordings end before any operation runs, so that an error leaves none of them open.
        for (int i = 0; i < engines.length; i++) {
            Stream stream = engines[i].group.stream;
            streams[i] = stream;
            try {
                batches[i] = engines[i].group.end();
                // Throws if the body has closed the stream: then nothing of the group runs.
                inline[i] = stream != null && engines[i].runsInline(stream);
            } catch (IllegalStateException e) {
                first = first == null ? e : first;
            }
        }
        if (first != null) {
            for (int i = 0; i < engines.length; i++) {
                Batch batch = batches[i];
                if (batch != null) {
                    engines[i].queue.free(batch);
                }
            }
            throw first;
        }
        EngineCommunicator[] inlineEngines = new EngineCommunicator[engines.length];
        Batch[] inlineBatches = new Batch[engines.length];
        int n = 0;
        for (int i = 0; i < engines.length; i++) {
            EngineCommunicator e = engines[i];
            Stream stream = streams[i];
            Batch batch = batches[i];
            if (batch == null || stream == null) {
                continue;
            }
            if (inline[i]) {
                inlineEngines[n] = e;
                inlineBatches[n++] = batch;
            } else {
                e.queue.enqueue(batch, stream);
            }
        }
        if (n == 1) {
            inlineEngines[0].queue.runHere(inlineBatches[0]);
        } else if (n > 1 && inlineEngines[0].runsTogether()) {
            runTogether(inlineEngines, inlineBatches, n);
        } else if (n > 1) {
            runBeside(inlineEngines, inlineBatches, n);
        }
    }

    /** The engine drives all ranks from this thread. */
    private static void runTogether(EngineCommunicator[] engines, Batch[] batches, int n) {
        for (int i = 0; i < n; i++) {
            engines[i].queue.ticketed(batches[i], true);
        }
        boolean done = false;
        try {
            engines[0].executeTogether(engines, batches, n);
            done = true;
        } catch (Error e) {
            for (int i = 0; i < n; i++) {
                engines[i].queue.broke(batches[i], e);
            }
            throw e;
        } finally {
            for (int i = 0; i < n; i++) {
                if (done) {
                    engines[i].flight().ended(batches[i], true);
                }
                batches[i].discard();
            }
        }
    }

    /** The first rank on this thread, each of the others on its own thread. */
    private static void runBeside(EngineCommunicator[] engines, Batch[] batches, int n) {
        for (int i = 1; i < n; i++) {
            engines[i].queue.enqueue(batches[i], engines[i].driver());
        }
        Throwable first = null;
        try {
            engines[0].queue.runHere(batches[0]);
        } catch (RuntimeException | Error e) {
            first = e;
        }
        for (int i = 1; i < n; i++) {
            try {
                engines[i].driver().synchronize();
            } catch (RuntimeException e) {
                if (first == null) {
                    first = e;
                } else {
                    first.addSuppressed(e);
                }
            }
        }
        if (first instanceof Error e) {
            throw e;
        } else if (first instanceof RuntimeException e) {
            throw e;
        }
    }
}
