package io.jccl.device;

/**
 * A CUDA graph: work of a stream that is captured once and then launched any number of times by a
 * single call.
 *
 * {@snippet class="snippets.Collectives" region="graph"}
 *
 * <p>If operations of a communicator are captured, all its ranks must capture and launch the same
 * sequence. The graph stores addresses: buffers, streams and communicators must stay open until its
 * last launch has completed.
 *
 * <p><b>Threads:</b> one at a time.
 */
public interface Graph extends AutoCloseable {
    /**
     * Captures the work that a function enqueues on a stream, without running it.
     *
     * @param stream a stream of a CUDA device, idle or not
     * @param body enqueues work on the stream, and on other streams only after they wait for an
     *     event recorded in it; it must not synchronize the stream, allocate device memory, or
     *     launch another graph on it
     * @return the graph, which the caller closes
     * @throws IllegalArgumentException if the stream is not a CUDA stream
     */
    static Graph capture(Stream stream, Runnable body) {
        return DeviceProvider.Holder.DEVICES.capture(stream, body);
    }

    /**
     * Enqueues one run of the graph.
     *
     * @param stream a stream of the same device
     */
    void launch(Stream stream);

    /** Releases the graph once its last launch has completed. Closing twice has no effect. */
    @Override
    void close();
}
