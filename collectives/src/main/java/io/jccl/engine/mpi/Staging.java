package io.jccl.engine.mpi;

import io.jccl.device.Buffer;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import java.lang.foreign.MemorySegment;

/**
 * Where MPI reads and writes a buffer's elements: in place, or in native copies. Java's heap has no
 * addresses that stay, and elements that are not aligned are none in C.
 */
final class Staging {
    private final Scratch send = new Scratch();
    private final Scratch recv = new Scratch();

    Scratch send() {
        return send;
    }

    Scratch recv() {
        return recv;
    }

    void free() {
        send.free();
        recv.free();
    }

    /** The address of elements to read. */
    long in(HostBuffer b) {
        return b.isPlain() ? b.address() : copyOf(b);
    }

    long copyOf(HostBuffer b) {
        MemorySegment copy = send.atLeast(b.byteSize());
        MemorySegment.copy(b.segment(), 0, copy, 0, b.byteSize());
        return copy.address();
    }

    /**
     * The address of elements to write, with those in it that may stay; then comes {@link #back}.
     */
    long out(HostBuffer b) {
        if (b.isPlain()) {
            return b.address();
        }
        MemorySegment copy = recv.atLeast(b.byteSize());
        MemorySegment.copy(b.segment(), 0, copy, 0, b.byteSize());
        return copy.address();
    }

    void back(HostBuffer b, long address) {
        if (address != b.address()) {
            MemorySegment.copy(recv.atLeast(0), 0, b.segment(), 0, b.byteSize());
        }
    }

    /** This rank's own block, which no message carries. */
    static void copyOwn(Request q, Buffer from, long at, Buffer to, long toAt, long count) {
        int size = q.type.size();
        MemorySegment.copy(
                ((HostBuffer) from).segment(),
                at * size,
                ((HostBuffer) to).segment(),
                toAt * size,
                count * size);
    }
}
