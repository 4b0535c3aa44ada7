package io.jccl.device;

/**
 * Work of a stream, recorded once and launched as often as wanted at the cost of one call: a CUDA
 * graph.
 *
 * {@snippet class="snippets.Collectives" region="graph"}
 *
 * <p>Every rank of a communicator whose operations are in a graph captures and launches the same
 * sequence. The graph keeps the addresses it has seen: buffers, streams and communicators have to
 * stay open until its last launch has completed.
 *
 * <p><b>Threads:</b> one at a time.
 */
public interface Graph extends AutoCloseable {
    /**
     * Records what a function enqueues on a stream; nothing of it runs.
     *
     * @param stream a stream of a CUDA device, idle or not
     * @param body enqueues work on the stream, and on others only behind events of it; it must not
     *     wait for the stream, allocate device memory, or launch another graph on it
     * @return the graph, which the caller closes
     * @throws IllegalArgumentException if the stream is not one of a CUDA device
     */
    static Graph capture(Stream stream, Runnable body) {
        return DeviceProvider.Holder.DEVICES.capture(stream, body);
    }

    /**
     * Enqueues all of it.
     *
     * @param stream a stream of the same device
     */
    void launch(Stream stream);

    /** Releases the graph when its last launch has completed. Closing twice does nothing. */
    @Override
    void close();
}
