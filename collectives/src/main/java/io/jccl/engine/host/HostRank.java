package io.jccl.engine.host;

import io.jccl.CollectiveTimeoutException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.host.HostBuffer;
import io.jccl.device.host.HostDevice;
import io.jccl.device.host.HostStream;
import io.jccl.engine.EngineCommunicator;
import io.jccl.engine.QueuedWork;
import io.jccl.internal.Deadline;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** A rank with host buffers and streams, independent of the transport. */
public abstract class HostRank extends EngineCommunicator {
    private final HostDevice device;
    private final Duration timeout;
    private volatile @Nullable HostStream driver;

    protected HostRank(int rank, int size, HostDevice device, Duration timeout) {
        super(rank, size);
        this.device = device;
        this.timeout = timeout;
    }

    @Override
    public final Device device() {
        return device;
    }

    @Override
    protected void checkBuffer(Buffer buffer, String name) {
        if (!(buffer instanceof HostBuffer h)) {
            throw new IllegalArgumentException(
                    ("%s is on device %s (%s), but this communicator's ranks compute on the host;"
                                    + " copy it to a buffer of comm.device()")
                            .formatted(name, buffer.device(), buffer.device().kind()));
        }
        if (!h.isOpen()) {
            throw new IllegalStateException(name + " is closed");
        }
    }

    @Override
    protected boolean sameMemory(Buffer a, Buffer b) {
        return ((HostBuffer) a).base() == ((HostBuffer) b).base();
    }

    @Override
    protected boolean runsInline(Stream stream) {
        return HostStream.of(stream).isInline();
    }

    @Override
    protected void enqueue(Stream stream, Runnable work) {
        HostStream.of(stream).submit(work);
    }

    @Override
    protected void checkWaiting(QueuedWork work, long idleNanos) {
        checkUsable();
        if (idleNanos > Deadline.nanos(timeout)) {
            CollectiveTimeoutException late =
                    new CollectiveTimeoutException(
                            ("rank %s of %s waited %s in %s for its own earlier operations (%s"
                                            + " pending), which wait behind other work of their"
                                            + " streams. Look at what those streams do (jstack), or"
                                            + " raise the timeout")
                                    .formatted(rank(), size(), timeout, work, pending()));
            fail(late);
            throw late;
        }
    }

    @Override
    protected Stream driver() {
        HostStream d = driver;
        if (d == null) {
            d = HostStream.threaded(device);
            driver = d;
        }
        return d;
    }

    /**
     * The first step of a split: all ranks exchange their arguments.
     *
     * @return the ranks with this rank's colour, by key and then by rank; none if it is negative
     */
    protected final int[] members(int colour, int key) {
        checkUsable();
        refuseInGroup("split");
        refuseWhilePending("split");
        int n = size();
        int[] members = new int[n];
        int count = 0;
        try (Buffer mine = device.allocate(DataType.INT64, 2);
                Buffer all = device.allocate(DataType.INT64, 2L * n)) {
            mine.setLong(0, colour);
            mine.setLong(1, key);
            allGather(mine, all, device.defaultStream());
            for (int r = 0; r < n && colour >= 0; r++) {
                if (all.getLong(2L * r) == colour) {
                    int at = count++;
                    // Insertion keeps equal keys in rank order.
                    while (at > 0
                            && all.getLong(2L * members[at - 1] + 1) > all.getLong(2L * r + 1)) {
                        members[at] = members[at - 1];
                        at--;
                    }
                    members[at] = r;
                }
            }
        }
        return Arrays.copyOf(members, count);
    }

    /** Throws if operations are enqueued. */
    protected final void refuseWhilePending(String operation) {
        if (pending() > 0) {
            throw new IllegalStateException(
                    "%s while %s operations are enqueued on streams; synchronize them first"
                            .formatted(operation, pending()));
        }
    }

    /**
     * The first step of a shrink.
     *
     * @param excluded ranks to leave out
     * @return the others, in order
     */
    protected final int[] remaining(List<Integer> excluded) {
        refuseInGroup("shrink");
        for (int r : excluded) {
            if (r < 0 || r >= size() || r == rank()) {
                throw new IllegalArgumentException(
                        "excluded names rank %s, expected others than %s, 0 to %s"
                                .formatted(r, rank(), size() - 1));
            }
        }
        return IntStream.range(0, size()).filter(r -> !excluded.contains(r)).toArray();
    }

    /** Closes the stream of {@link #driver}. */
    protected final void closeDriver() {
        HostStream d = driver;
        if (d != null) {
            d.close();
        }
    }

    /** The communicator has failed and may never be closed: ends the driver's thread. */
    protected final void retireDriver() {
        HostStream d = driver;
        if (d != null) {
            d.retire();
        }
    }
}
