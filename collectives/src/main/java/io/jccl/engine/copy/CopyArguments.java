package io.jccl.engine.copy;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaStream;
import io.jccl.topology.Operation;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/** Checks the arguments of a call on a {@link CopyEngine} and keeps their addresses. */
final class CopyArguments {
    private final CudaDevice[] devices;
    private final int n;

    /** By rank: address of the send buffer, 0 if the rank has none. */
    final long[] sendAt;

    /** By rank: address of the receive buffer, 0 if the rank has none. */
    final long[] recvAt;

    /** By rank. */
    final CudaStream[] streams;

    CopyArguments(CudaDevice[] devices) {
        this.devices = devices;
        n = devices.length;
        sendAt = new long[n];
        recvAt = new long[n];
        streams = new CudaStream[n];
    }

    /**
     * Begins a call.
     *
     * @throws IllegalStateException if a stream is closed
     */
    void begin(List<? extends Stream> list) {
        checkSize("streams", list.size(), "streams");
        for (int r = 0; r < n; r++) {
            CudaStream s = CudaStream.of(list.get(r), devices[r]);
            if (!s.isOpen()) {
                throw new IllegalStateException("the stream of rank " + r + " is closed: " + s);
            }
            streams[r] = s;
        }
        Arrays.fill(sendAt, 0);
        Arrays.fill(recvAt, 0);
    }

    void checkSize(String name, int size, String what) {
        if (size != n) {
            throw new IllegalArgumentException(
                    name + " has " + size + " " + what + ", expected " + n + ", one for each rank");
        }
    }

    void checkRoot(int root) {
        if (root < 0 || root >= n) {
            throw new IllegalArgumentException(
                    "root is " + root + ", expected 0 to " + (n - 1) + " of " + n + " ranks");
        }
    }

    /** Elements of a rank's block in a buffer of all ranks' blocks. */
    long block(Buffer buffer, String name) {
        if (buffer.count() % n != 0) {
            throw new IllegalArgumentException(
                    "%s holds %s elements, expected a multiple of the %s ranks"
                            .formatted(name, buffer.count(), n));
        }
        return buffer.count() / n;
    }

    /** {@link #take} for the buffers of all ranks. */
    void takeAll(
            List<Buffer> list,
            String name,
            DataType type,
            long count,
            String because,
            int times,
            long[] at) {
        checkSize(name, list.size(), "buffers");
        for (int r = 0; r < n; r++) {
            take(list.get(r), r, name, type, count, because, times, at);
        }
    }

    /** Checks a buffer of a rank and keeps its address in {@code at}. */
    void take(
            Buffer buffer,
            int rank,
            String name,
            DataType type,
            long count,
            String because,
            int times,
            long[] at) {
        if (!(buffer instanceof CudaBuffer b) || b.device() != devices[rank]) {
            throw new IllegalArgumentException(
                    "%s of rank %s is on device %s, expected %s"
                            .formatted(
                                    name,
                                    rank,
                                    Objects.requireNonNull(buffer, name + " of a rank").device(),
                                    devices[rank]));
        }
        if (!b.isOpen()) {
            throw new IllegalStateException(name + " of rank " + rank + " is closed");
        }
        if (b.dataType() != type) {
            throw new IllegalArgumentException(
                    "%s of rank %s holds elements of %s, the others of %s"
                            .formatted(name, rank, b.dataType().label(), type.label()));
        }
        if (b.count() != Math.multiplyExact(count, times)) {
            throw new IllegalArgumentException(
                    "%s of rank %s holds %s elements, expected %s: %s%s"
                            .formatted(name, rank, b.count(), count * times, because, count));
        }
        at[rank] = b.address();
    }

    /** Throws unless a rank's buffers are disjoint, or in place as the operation allows. */
    void checkOverlap(Operation op, int rank, long block) {
        long send = sendAt[rank];
        long recv = recvAt[rank];
        if (send == 0 || recv == 0) {
            return;
        }
        long sendBytes = op == Operation.SCATTER || op == Operation.ALL_TO_ALL ? n * block : block;
        long recvBytes = op == Operation.SCATTER || op == Operation.BROADCAST ? block : n * block;
        boolean apart = send >= recv + recvBytes || recv >= send + sendBytes;
        long own =
                switch (op) {
                    case SCATTER -> rank * block;
                    case GATHER, ALL_GATHER -> -rank * block;
                    default -> 0;
                };
        if (!apart && recv != send + own) {
            throw new IllegalArgumentException(
                    ("send and recv of rank %s overlap (%s bytes at 0x%s, %s at 0x%s); in place"
                                    + " recv would be at 0x%s")
                            .formatted(
                                    rank,
                                    sendBytes,
                                    Long.toHexString(send),
                                    recvBytes,
                                    Long.toHexString(recv),
                                    Long.toHexString(send + own)));
        }
    }
}
