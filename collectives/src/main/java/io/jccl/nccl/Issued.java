package io.jccl.nccl;

import io.jccl.cuda.CudaStream;
import io.jccl.engine.Request;
import java.lang.invoke.VarHandle;
import java.util.Objects;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * What one rank has enqueued, and where.
 *
 * <p><b>Threads:</b> the one that issues the rank's operations writes, any reads.
 */
final class Issued {
    /** Operations whose descriptions are kept for reports; a power of two. */
    static final int REMEMBERED = 64;

    private final CudaStream.Source source;
    private final Request.Description[] history = new Request.Description[REMEMBERED];

    private volatile long count;

    /** How many of them are collectives: in those, all ranks go together. */
    private long collectives;

    private volatile @Nullable CudaStream lastStream;

    /** The last operation that a thread has seen complete by waiting for its stream. */
    private volatile long reached;

    /** Streams on which an error of the communicator surfaces. */
    private final Set<CudaStream> streams = ConcurrentHashMap.newKeySet();

    Issued(CudaStream.Source source) {
        this.source = source;
        for (int i = 0; i < REMEMBERED; i++) {
            history[i] = new Request.Description();
        }
    }

    /** Writes down what comes next. */
    CudaStream note(Request r) {
        CudaStream stream = (CudaStream) Objects.requireNonNull(r.stream);
        follow(stream);
        long number = count + 1;
        at(number).set(r, number, r.op.peerToPeer() ? 0 : ++collectives);
        count = number;
        return stream;
    }

    /** The same for an operation that is no collective. */
    void note(String name, int peer, CudaStream stream) {
        follow(stream);
        long number = count + 1;
        at(number).set(name, peer, number);
        count = number;
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

    /** The operation of a number, or a later one if that is forgotten. */
    Request.Description at(long number) {
        return history[(int) number & (REMEMBERED - 1)];
    }

    /** The last collectives by their order. */
    SortedMap<Long, String> collectives() {
        SortedMap<Long, String> all = new TreeMap<>();
        long last = count;
        for (long n = Math.max(1, last - REMEMBERED + 1); n <= last; n++) {
            Request.Description d = at(n);
            long order = d.order();
            String text = d.toString();
            VarHandle.loadLoadFence();
            // Not one that was being overwritten meanwhile, or by now.
            if (order > 0 && n > count + 2 - REMEMBERED) {
                all.put(order, text);
            }
        }
        return all;
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
