package io.jccl.engine;

import java.util.ArrayList;
import java.util.List;

/** The operations of one group on one communicator, in the order in which they were called. */
public final class Batch implements QueuedWork {
    private final EngineCommunicator owner;
    final List<Request> requests = new ArrayList<>();

    Batch(EngineCommunicator owner) {
        this.owner = owner;
    }

    public int size() {
        return requests.size();
    }

    public Request get(int i) {
        return requests.get(i);
    }

    /** Runs on a stream's thread. */
    @Override
    public void run() {
        owner.runQueued(this);
    }

    @Override
    public void drop() {
        owner.dropQueued(this);
    }
}
