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
 * Messages between two neighbours in one direction, on a stream and a communicator of their own:
 * those of one communicator would wait for each other. Micro-batch i has buffer {@code i % n}.
 */
final class PipelineLane implements AutoCloseable {
    private final Communicator comm;
    private final int peer;
    private final List<Buffer> ring;
    private final Stream compute;
    private final Stream stream;

    /** On the default stream of the host computation has run when its call returns. */
    private final boolean host;

    private final Event ready;
    private final Event[] done;
    private long waited;

    /**
     * Takes a stream and events.
     *
     * @param comm nothing else uses it on this rank
     * @param peer the neighbour
     * @param ring buffers, which the caller closes
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

    /** Starts to receive; the buffer's last use has been enqueued. */
    void post(int microBatch) {
        afterComputation();
        comm.recv(ring.get(microBatch % done.length), peer, stream);
        done[microBatch % done.length].record(stream);
    }

    /** Makes computation wait for what was posted last. */
    void await(int microBatch) {
        if (!host) {
            compute.waitFor(done[microBatch % done.length]);
            return;
        }
        // Nothing else is on the stream, and an error comes out before anything is computed.
        synchronize();
    }

    /** Makes computation wait until a buffer is free that it is about to write. */
    void beforeWriting(int microBatch) {
        long start = host ? System.nanoTime() : 0;
        compute.waitFor(done[microBatch % done.length]);
        waited += host ? System.nanoTime() - start : 0;
    }

    /** Sends what has been computed. */
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

    /** How long this lane has kept the computing thread waiting. */
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
