package io.jccl.engine;

import io.jccl.device.host.StreamTask;
import io.jccl.flight.FlightEvents;

/**
 * An operation or a group on one communicator. Whatever streams they are on, those of one
 * communicator run in the order in which they were called, since all ranks must run them in the
 * same one.
 */
public abstract class QueuedWork implements StreamTask {
    final EngineCommunicator owner;

    /** Place in the communicator's order. */
    long ticket;

    QueuedWork(EngineCommunicator owner) {
        this.owner = owner;
    }

    /** Runs on the engine, to completion. */
    abstract void execute();

    /** Is written down, before it is enqueued. */
    abstract void note(boolean queued);

    /** Tells recordings how it ended. */
    abstract void ended(FlightEvents.State state);

    /** The number of its last operation. */
    abstract long lastSequence();

    /** Goes back to where it came from, to be used again. */
    abstract void recycle();

    @Override
    public final void run() {
        owner.queue.awaitTurn(ticket);
        boolean done = false;
        try {
            execute();
            done = true;
        } finally {
            owner.flight().ended(this, done);
            finish();
        }
    }

    @Override
    public final void drop() {
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
