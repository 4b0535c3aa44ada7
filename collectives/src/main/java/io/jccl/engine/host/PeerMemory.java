package io.jccl.engine.host;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.device.host.HostBuffer;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** How ranks map each other's buffers. */
final class PeerMemory {
    private PeerMemory() {}

    /** See {@link HostCommunicator#peerMemory}. */
    static MemorySegment @Nullable [] of(
            Communicator comm, SharedMemoryTransport fabric, HostBuffer own) {
        int n = comm.size();
        int rank = comm.rank();
        Stream stream = comm.device().defaultStream();
        MemorySegment[] seen = new MemorySegment[n];
        try (Buffer places = comm.device().allocate(DataType.INT64, 2L * n)) {
            places.setLong(2L * rank, fabric.publish(rank, 0, false, own));
            places.setLong(2L * rank + 1, fabric.offset(own));
            comm.allGather(places, stream);
            boolean all = true;
            for (int p = 0; p < n; p++) {
                all &= places.getLong(2L * p) != HostBuffer.PRIVATE;
            }
            if (!all) {
                return null;
            }
            // Once more, since the allGather may have published its own.
            fabric.publish(rank, 0, false, own);
            comm.barrier(stream);
            for (int p = 0; p < n; p++) {
                seen[p] =
                        p == rank
                                ? own.segment()
                                : fabric.published(p, 0, false, places.getLong(2L * p))
                                        .asSlice(places.getLong(2L * p + 1), own.byteSize());
            }
            // Until all have read the result.
            comm.barrier(stream);
        }
        return seen;
    }
}
