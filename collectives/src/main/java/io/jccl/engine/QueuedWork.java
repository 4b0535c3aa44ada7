package io.jccl.engine;

import io.jccl.RankFailedException;
import io.jccl.device.host.StreamTask;
import io.jccl.flight.FlightEvents;

/**
 * An operation or a group on one communicator. Operations of one communicator run in the order in
 * which they were called, on any stream, since all ranks must run them in the same order.
 *
 * <p>So none can be left out: if an earlier error on its stream drops one, the communicator fails.
 * Otherwise this rank's next operation would meet the one that the other ranks still run.
 */
public abstract class QueuedWork implements StreamTask {
    final EngineCommunicator owner;

    /** Position in the communicator's order. */
    long ticket;

    QueuedWork(EngineCommunicator owner) {
        this.owner = owner;
    }

    /** Runs on the engine, to completion. */
    abstract void execute();

    /** Logs the operations, before they are enqueued. */
    abstract void note(boolean queued);

    /** Reports to recordings how it ended. */
    abstract void ended(FlightEvents.State state);

    /** The number of its last operation. */
    abstract long lastSequence();

    /** Returns to its pool for reuse. */
    abstract void recycle();

    @Override
    public final void run() {
        owner.queue.awaitTurn(ticket);
        owner.queue.begins(ticket);
        boolean done = false;
        try {
            execute();
            done = true;
        } catch (Error e) {
            owner.queue.broke(this, e);
            throw e;
        } finally {
            owner.flight().ended(this, done);
            finish();
        }
    }

    @Override
    public final void drop(Throwable earlier) {
        owner.queue.awaitTurn(ticket);
        try {
            RankFailedException dropped =
                    new RankFailedException(
                            "%s of rank %s was dropped because of an earlier error on its stream: %s"
                                    .formatted(this, owner.rank(), earlier));
            dropped.initCause(earlier);
            owner.fail(dropped);
        } finally {
            owner.flight().ended(this, false);
            finish();
        }
    }

    /** Ends work that has run as part of another, or that no stream has accepted. */
    final void discard() {
        owner.queue.awaitTurn(ticket);
        owner.flight().ended(this, false);
        finish();
    }

    private void finish() {
        EngineCommunicator e = owner;
        recycle();
        e.queue.nextTurn();
    }
}
