package io.jccl.engine;

/** Work on a stream that must be told when it will not run because of an error before it. */
public interface QueuedWork extends Runnable {
    /** Called instead of {@link #run}. */
    void drop();
}
