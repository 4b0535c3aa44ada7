package io.jccl.host;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.engine.EngineCommunicator;
import org.jspecify.annotations.Nullable;

/**
 * A rank that computes on the host, whatever carries its data: buffers and streams are the host's.
 */
public abstract class HostRank extends EngineCommunicator {
    private final HostDevice device;
    private @Nullable HostStream driver;

    protected HostRank(int rank, int size, HostDevice device) {
        super(rank, size);
        this.device = device;
    }

    @Override
    public final Device device() {
        return device;
    }

    @Override
    protected void checkBuffer(Buffer buffer, String name) {
        if (!(buffer instanceof HostBuffer h)) {
            throw new IllegalArgumentException(
                    name
                            + " is on device "
                            + buffer.device()
                            + " ("
                            + buffer.device().kind()
                            + "), but this communicator's ranks compute on the host; copy it to a"
                            + " buffer of comm.device()");
        }
        if (!h.isOpen()) {
            throw new IllegalStateException(name + " is closed");
        }
    }

    @Override
    protected boolean overlap(Buffer a, Buffer b) {
        if (a.count() == 0
                || b.count() == 0
                || ((HostBuffer) a).base() != ((HostBuffer) b).base()) {
            return false;
        }
        return a.address() < b.address() + b.byteSize() && b.address() < a.address() + a.byteSize();
    }

    @Override
    protected boolean samePlace(Buffer a, long aAt, Buffer b, long bAt) {
        return ((HostBuffer) a).base() == ((HostBuffer) b).base()
                && a.address() + aAt * a.dataType().size()
                        == b.address() + bAt * b.dataType().size();
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
    protected Stream driver() {
        if (driver == null) {
            driver = HostStream.threaded(device);
        }
        return driver;
    }

    /** Ends what {@link #driver} made. */
    protected final void closeDriver() {
        if (driver != null) {
            driver.close();
        }
    }
}
