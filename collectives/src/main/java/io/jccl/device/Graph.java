package io.jccl.device;

/**
 * A CUDA graph: work of a stream that is captured once and then launched any number of times by a
 * single call.
 *
 * {@snippet class="snippets.Collectives" region="graph"}
 *
 * <p>If operations of a communicator are captured, all its ranks must capture and launch the same
 * sequence. The graph stores addresses: buffers and streams must stay open until its last launch
 * has completed, and communicators until the graph is closed.
 *
 * <p><b>Threads:</b> one at a time.
 */
public interface Graph extends AutoCloseable {
    /**
     * Captures the work that a function enqueues on a stream, without running it.
     *
     * @param stream a stream of a CUDA device, idle or not
     * @param body enqueues work on the stream. Another stream becomes part of the graph by waiting
     *     for an event recorded in the capture, and has to be joined back by another event; what it
     *     does otherwise runs at once. It must not synchronize the stream. While the default stream
     *     of a device is captured, any thread that allocates, reads or writes memory of the device,
     *     other than by work that it enqueues, gets an {@link IllegalStateException}
     * @return the graph, which the caller closes
     * @throws IllegalArgumentException if the stream is not a CUDA stream
     * @throws IllegalStateException if the stream is being captured already
     */
    static Graph capture(Stream stream, Runnable body) {
        return DeviceProvider.Holder.DEVICES.capture(stream, body);
    }

    /**
     * Enqueues one run of the graph.
     *
     * @param stream a stream of the same device
     * @throws IllegalStateException if the graph is closed, or the stream is being captured
     */
    void launch(Stream stream);

    /** Releases the graph once its last launch has completed. Closing twice has no effect. */
    @Override
    void close();
}
