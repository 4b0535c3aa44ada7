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
 * What one rank has enqueued, and where. What the operations were is in the {@link FlightRecorder},
 * whose numbers count here too.
 *
 * <p><b>Threads:</b> the one that issues the rank's operations writes, any reads.
 */
final class InFlightOps {
    /** Collectives that a rank tells the others about, when it is asked. */
    static final int REMEMBERED = 64;

    private final CudaStream.Source source;
    private final FlightRecorder flight;

    private volatile long count;

    private volatile @Nullable CudaStream lastStream;

    /** The last operation that a thread has seen complete by waiting for its stream. */
    private volatile long reached;

    /** Streams on which an error of the communicator surfaces. */
    private final Set<CudaStream> streams = ConcurrentHashMap.newKeySet();

    InFlightOps(CudaStream.Source source, FlightRecorder flight) {
        this.source = source;
        this.flight = flight;
    }

    /** Takes what comes next, which the ring has. */
    CudaStream note(Request r) {
        CudaStream stream = (CudaStream) Objects.requireNonNull(r.stream);
        follow(stream);
        count = r.sequence;
        return stream;
    }

    /** The same for an operation that is no collective. */
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

    /** What the operation of a number was. */
    String describe(long number) {
        Operation o = flight.at(number);
        return o == null ? "an operation enqueued earlier" : o.describe();
    }

    /** The last collectives by their order. */
    SortedMap<Long, String> collectives() {
        return flight.collectives(REMEMBERED);
    }

    @Nullable CudaStream lastStream() {
        return lastStream;
    }

    /** A thread has waited for all work of a stream. */
    void synchronizedWith(CudaStream stream) {
        // Another stream may be behind: only who uses one alone is known to be through.
        if (streams.size() == 1 && stream == lastStream) {
            reached = count;
        }
    }

    long reached() {
        return reached;
    }

    /** No error surfaces on any stream from now on. */
    void detach() {
        streams.forEach(stream -> stream.detach(source));
    }
}
