package io.jccl.engine;

import io.jccl.flight.FlightEvents;
import java.util.ArrayList;
import java.util.List;

/** The operations of one group on one communicator, in the order in which they were called. */
public final class Batch extends QueuedWork {
    final List<Request> requests = new ArrayList<>();

    Batch(EngineCommunicator owner) {
        super(owner);
    }

    public int size() {
        return requests.size();
    }

    public Request get(int i) {
        return requests.get(i);
    }

    @Override
    void execute() {
        owner.execute(this);
    }

    @Override
    void note(boolean queued) {
        for (int i = 0; i < requests.size(); i++) {
            owner.flight().note(requests.get(i), queued, true);
        }
        owner.flight().groupNoted(this);
    }

    @Override
    void ended(FlightEvents.State state) {
        for (int i = 0; i < requests.size(); i++) {
            requests.get(i).ended(state);
        }
    }

    @Override
    long lastSequence() {
        return requests.getLast().sequence;
    }

    @Override
    void recycle() {
        owner.queue.free(this);
    }

    @Override
    public String toString() {
        return requests.getFirst() + " in a group of " + requests.size();
    }
}
