package io.jccl.engine.nccl;

import io.jccl.FlightHistory.Operation;
import io.jccl.device.cuda.CudaStream;
import io.jccl.engine.Request;
import io.jccl.flight.FlightRecorder;
import java.util.Objects;
import java.util.Set;
import java.util.SortedMap;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * The number of operations that one rank has enqueued, and their streams. The operations themselves
 * are in the {@link FlightRecorder}, which numbers them.
 *
 * <p><b>Threads:</b> the one that issues the rank's operations writes, any reads.
 */
final class InFlightOps {
    /** Number of recent collectives that a rank reports to others on request. */
    static final int REMEMBERED = 64;

    private final CudaStream.Source source;
    private final FlightRecorder flight;

    private volatile long count;

    private volatile @Nullable CudaStream lastStream;

    /** The last operation known to be complete because a thread has waited for its stream. */
    private volatile long reached;

    /** Streams whose synchronization throws this communicator's error. */
    private final Set<CudaStream> streams = ConcurrentHashMap.newKeySet();

    InFlightOps(CudaStream.Source source, FlightRecorder flight) {
        this.source = source;
        this.flight = flight;
    }

    /** Records the next operation, which the flight recorder already contains. */
    CudaStream note(Request r) {
        CudaStream stream = (CudaStream) Objects.requireNonNull(r.stream);
        follow(stream);
        count = r.sequence;
        return stream;
    }

    /** The same for an operation that is not a collective. */
    void note(String name, int peer, CudaStream stream) {
        follow(stream);
        count = flight.note(name, peer);
    }

    private void follow(CudaStream stream) {
        if (stream != lastStream) {
            stream.attach(source);
            streams.add(stream);
            lastStream = stream;
        }
    }

    /** The number of the last operation; the first has 1. */
    long count() {
        return count;
    }

    /** Describes the operation with a number. */
    String describe(long number) {
        Operation o = flight.at(number);
        return o == null ? "an operation enqueued earlier" : o.describe();
    }

    /** The latest collectives by their order. */
    SortedMap<Long, String> collectives() {
        return flight.collectives(REMEMBERED);
    }

    @Nullable CudaStream lastStream() {
        return lastStream;
    }

    /** Called when a thread has waited for all work of a stream, while others may enqueue more. */
    void synchronizedWith(CudaStream stream, NcclHandle handle) {
        long last = count;
        // In this order: what another thread is about to enqueue has a number already, and what it
        // has enqueued since the wait may not be done. Other streams may be behind.
        if (last > reached
                && !handle.isInside()
                && streams.size() == 1
                && stream == lastStream
                && stream.isDone()) {
            reached = last;
        }
    }

    long reached() {
        return reached;
    }

    /** From now on no stream throws this communicator's error. */
    void detach() {
        streams.forEach(stream -> stream.detach(source));
    }
}
