package io.jccl.device.host;

/** Work of a stream that is notified when an earlier error on the stream drops it. */
public interface StreamTask extends Runnable {
    /**
     * Called instead of {@link #run} if an earlier error on the stream drops it.
     *
     * @param earlier that error
     */
    void drop(Throwable earlier);
}
