package io.jccl.engine;

import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Interrupts;
import io.jccl.internal.Waits;
import java.util.ArrayDeque;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The order of one communicator's operations, and the requests and batches that carry them.
 *
 * <p>Work that a stream runs later takes a ticket when it is called and runs when all earlier
 * tickets have ended, on any stream. An operation on the caller's own thread waits for those
 * tickets and takes none, and a group takes one after the wait, so both can give up.
 *
 * <p><b>Threads:</b> the communicator's thread submits; streams' threads wait for their turn and
 * return finished requests.
 */
final class OperationQueue {
    private static final int MAX_POOLED = 1024;
    private static final int TURN_SPINS = 1000;
    private static final long TURN_PARK_NANOS = 20_000;
    private static final long LOOK_NANOS = 50_000_000;

    private final EngineCommunicator engine;

    /** The request of operations that run on the caller's thread; free when the call returns. */
    private final Request inline;

    /** Requests and batches not in use; shared with stream threads, guarded by the former. */
    private final ArrayDeque<Request> freeRequests = new ArrayDeque<>();

    private final ArrayDeque<Batch> freeBatches = new ArrayDeque<>();

    /** Operations called and completed, without those that run on the caller's thread. */
    private volatile long issued;

    private final AtomicLong executed = new AtomicLong();

    /** Of those, the number that have begun. */
    private volatile long begun;

    /** An error after which the communicator could not be ended. */
    private volatile @Nullable Error broken;

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
        boolean done = false;
        try {
            awaitEarlier(request);
            engine.execute(request);
            done = true;
        } catch (Error e) {
            broke(request, e);
            throw e;
        } finally {
            engine.flight().ended(request, done);
            request.clear();
        }
    }

    /** Runs a group on the caller's thread. */
    void runHere(Batch batch) {
        batch.note(engine.completesLater());
        boolean turn = false;
        try {
            awaitEarlier(batch);
            turn = true;
        } finally {
            if (!turn) {
                engine.flight().ended(batch, false);
                free(batch);
            }
        }
        takeTicket(batch);
        batch.run();
    }

    /** Assigns work its position in the order and passes it to a stream with its own thread. */
    void enqueue(QueuedWork work, Stream stream) {
        boolean accepted = false;
        try {
            engine.enqueue(stream, ticketed(work, true));
            accepted = true;
        } finally {
            if (!accepted) {
                work.discard();
            }
        }
    }

    /** Assigns work its position in the order; the caller runs or discards it. */
    <W extends QueuedWork> W ticketed(W work, boolean queued) {
        work.note(queued);
        takeTicket(work);
        return work;
    }

    private void takeTicket(QueuedWork work) {
        work.ticket = issued;
        issued = work.ticket + 1;
    }

    // ---- errors of the JVM

    /**
     * Ends the communicator after an error that the engine does not handle, such as a stack
     * overflow: it is unknown how much of the operation has happened.
     */
    void broke(QueuedWork work, Error error) {
        // First of all, since the same error may come again; then the next operation does the rest.
        broken = error;
        end(work.toString(), error);
        broken = null;
    }

    private void end(String where, Error error) {
        String what = "rank %s failed in %s: %s".formatted(engine.rank(), where, error);
        engine.fail(new JcclException(what, error));
    }

    /** Throws if an earlier operation broke. */
    void checkWhole() {
        Error error = broken;
        if (error != null) {
            end("an earlier operation", error);
            broken = null;
            engine.checkUsable();
        }
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

    /**
     * The same on the caller's thread, for work without a ticket. It gives up if the communicator
     * ends, after an interrupt, or if none of the earlier ones runs for as long as the timeout:
     * they wait behind other work of their streams. One that runs has its own timeout.
     */
    private void awaitEarlier(QueuedWork work) {
        long last = issued;
        for (int i = 0; i < TURN_SPINS && executed.get() != last; i++) {
            Thread.onSpinWait();
        }
        if (executed.get() == last) {
            return;
        }
        long idleSince = System.nanoTime();
        long nextLook = idleSince;
        long before = executed.get();
        long interrupted = 0;
        try {
            for (long done = before; done != last; done = executed.get()) {
                long now = System.nanoTime();
                if (done != before || begun > done) {
                    before = done;
                    idleSince = now;
                }
                if (now - nextLook >= 0) {
                    nextLook = now + LOOK_NANOS;
                    engine.checkWaiting(work, now - idleSince);
                }
                interrupted = Interrupts.notice(interrupted, now);
                if (Interrupts.overdue(interrupted, now)) {
                    JcclException error =
                            Interrupts.error(
                                    "rank " + engine.rank() + " in " + work,
                                    (last - done)
                                            + " earlier operations on other streams come first."
                                            + " The communicator has failed on all ranks");
                    engine.fail(error);
                    throw error;
                }
                LockSupport.parkNanos(TURN_PARK_NANOS);
            }
        } finally {
            Interrupts.restore(interrupted);
        }
    }

    /** Called by the thread whose turn it is. */
    void begins(long ticket) {
        begun = ticket + 1;
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
