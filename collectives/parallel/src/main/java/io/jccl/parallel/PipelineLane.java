package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.internal.Closing;
import java.util.ArrayList;
import java.util.List;

/**
 * Messages between two neighbours in one direction, on their own stream and communicator:
 * operations of one communicator would wait for each other. Micro-batch i has buffer {@code i % n}.
 */
final class PipelineLane implements AutoCloseable {
    private final Communicator comm;
    private final int peer;
    private final List<Buffer> ring;
    private final Stream compute;
    private final Stream stream;

    /** On the host's default stream, computation has completed when the call returns. */
    private final boolean host;

    private final Event ready;
    private final Event[] done;
    private long waited;

    /**
     * Creates the stream and events.
     *
     * @param comm used by nothing else on this rank
     * @param peer the neighbour
     * @param ring buffers, closed by the caller
     */
    PipelineLane(Communicator comm, int peer, List<Buffer> ring) {
        Device device = comm.device();
        this.comm = comm;
        this.peer = peer;
        this.ring = ring;
        compute = device.defaultStream();
        stream = device.newStream();
        host = device.kind() == Device.Kind.HOST;
        ready = device.newEvent();
        done = new Event[ring.size()];
        for (int i = 0; i < done.length; i++) {
            done[i] = device.newEvent();
        }
    }

    /** Starts a receive; the buffer's last use must have been enqueued. */
    void post(int microBatch) {
        afterComputation();
        comm.recv(ring.get(microBatch % done.length), peer, stream);
        done[microBatch % done.length].record(stream);
    }

    /** Makes computation wait for the receive posted last. */
    void await(int microBatch) {
        if (!host) {
            compute.waitFor(done[microBatch % done.length]);
            return;
        }
        // Nothing else is on the stream, and errors are thrown before anything is computed.
        synchronize();
    }

    /** Makes computation wait until the buffer that it is about to write is free. */
    void beforeWriting(int microBatch) {
        long start = host ? System.nanoTime() : 0;
        compute.waitFor(done[microBatch % done.length]);
        waited += host ? System.nanoTime() - start : 0;
    }

    /** Sends the computed output. */
    void send(int microBatch) {
        afterComputation();
        comm.send(ring.get(microBatch % done.length), peer, stream);
        done[microBatch % done.length].record(stream);
    }

    private void afterComputation() {
        if (!host) {
            ready.record(compute);
            stream.waitFor(ready);
        }
    }

    /** Waits for all messages. */
    void synchronize() {
        long start = System.nanoTime();
        stream.synchronize();
        waited += System.nanoTime() - start;
    }

    /** Time that the computing thread has waited for this lane. */
    long waitedNanos() {
        return waited;
    }

    @Override
    public void close() {
        List<AutoCloseable> all = new ArrayList<>(List.of(stream, ready));
        all.addAll(List.of(done));
        Closing.all(all);
    }
}
