package io.jccl.engine;

import io.jccl.device.Stream;
import io.jccl.internal.Waits;
import java.util.ArrayDeque;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The order of one communicator's operations, and the requests and batches that carry them.
 *
 * <p>Work that a stream runs later takes a ticket when it is called and runs when all earlier
 * tickets have ended, on any stream. An operation on the caller's own thread waits for those
 * tickets, but takes none.
 *
 * <p><b>Threads:</b> the communicator's thread submits; streams' threads wait for their turn and
 * return finished requests.
 */
final class OperationQueue {
    private static final int MAX_POOLED = 1024;
    private static final int TURN_SPINS = 1000;
    private static final long TURN_PARK_NANOS = 20_000;

    private final EngineCommunicator engine;

    /** The request of operations that run on the caller's thread; free when the call returns. */
    private final Request inline;

    /** Requests and batches not in use; shared with stream threads, guarded by the former. */
    private final ArrayDeque<Request> freeRequests = new ArrayDeque<>();

    private final ArrayDeque<Batch> freeBatches = new ArrayDeque<>();

    /** Operations called and completed, without those that run on the caller's thread. */
    private volatile long issued;

    private final AtomicLong executed = new AtomicLong();

    OperationQueue(EngineCommunicator engine) {
        this.engine = engine;
        this.inline = new Request(engine, engine.size());
    }

    // ---- order

    /** Runs an inline request, or enqueues another. */
    void submit(Request request, Stream stream) {
        if (request != inline) {
            enqueue(request, stream);
            return;
        }
        engine.flight().note(request, engine.completesLater(), false);
        awaitTurn(issued);
        boolean done = false;
        try {
            engine.execute(request);
            done = true;
        } finally {
            engine.flight().ended(request, done);
            request.clear();
        }
    }

    /** Assigns work its position in the order and passes it to a stream with its own thread. */
    void enqueue(QueuedWork work, Stream stream) {
        boolean accepted = false;
        try {
            engine.enqueue(stream, ticketed(work, true));
            accepted = true;
        } finally {
            if (!accepted) {
                work.drop();
            }
        }
    }

    /** Assigns work its position in the order; the caller runs or drops it. */
    <W extends QueuedWork> W ticketed(W work, boolean queued) {
        work.note(queued);
        work.ticket = issued;
        issued = work.ticket + 1;
        return work;
    }

    /** Number of operations and groups enqueued and not yet completed. */
    long pending() {
        return issued - executed.get();
    }

    /** Waits until all earlier operations have completed, on any stream. */
    void awaitTurn(long ticket) {
        for (int i = 0; executed.get() != ticket; i++) {
            if (i < TURN_SPINS) {
                Thread.onSpinWait();
            } else {
                Waits.park(TURN_PARK_NANOS);
            }
        }
    }

    void nextTurn() {
        // Only the thread whose turn it is writes.
        executed.setRelease(executed.get() + 1);
    }

    // ---- requests

    Request take(boolean runsInline) {
        if (runsInline) {
            return inline;
        }
        synchronized (freeRequests) {
            return freeRequests.isEmpty() ? new Request(engine, engine.size()) : freeRequests.pop();
        }
    }

    Batch takeBatch() {
        synchronized (freeRequests) {
            return freeBatches.isEmpty() ? new Batch(engine) : freeBatches.pop();
        }
    }

    /** Returns a request for reuse. */
    void free(Request request) {
        request.clear();
        if (request == inline) {
            return;
        }
        synchronized (freeRequests) {
            if (freeRequests.size() < MAX_POOLED) {
                freeRequests.push(request);
            }
        }
    }

    void free(Batch batch) {
        for (int i = 0; i < batch.requests.size(); i++) {
            free(batch.requests.get(i));
        }
        batch.requests.clear();
        synchronized (freeRequests) {
            if (freeBatches.size() < MAX_POOLED) {
                freeBatches.push(batch);
            }
        }
    }
}
