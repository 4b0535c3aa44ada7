package io.jccl.engine.mpi;

import io.jccl.device.Buffer;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import java.lang.foreign.MemorySegment;

/**
 * The memory in which MPI reads and writes a buffer's elements: the buffer itself, or native
 * copies. Objects on Java's heap move, and C requires aligned elements.
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
     * The address of elements to write, with the previous values if they may remain; must be
     * followed by {@link #back}.
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

    /** This rank's own block, which needs no message. */
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
