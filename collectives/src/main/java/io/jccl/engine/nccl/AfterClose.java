package io.jccl.engine.nccl;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * What this process does when it has closed a communicator and all that were made from it, such as
 * closing the store that they use.
 *
 * <p><b>Threads:</b> any.
 */
final class AfterClose {
    private final Runnable action;
    private final AtomicInteger users = new AtomicInteger(1);

    /** Used by one communicator. */
    AfterClose(Runnable action) {
        this.action = action;
    }

    /** Adds a communicator that uses it. */
    AfterClose shared() {
        users.incrementAndGet();
        return this;
    }

    /** Notes that one of them is closed. */
    void closed() {
        if (users.decrementAndGet() == 0) {
            action.run();
        }
    }
}
