package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.NcclCommunicator;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.internal.Closing;
import java.util.ArrayList;
import java.util.List;

/** The two buffers of a type, sized for the largest message. */
final class Buffers implements AutoCloseable {
    /** NCCL windows consist of whole pages. */
    private static final long PAGE = 4096;

    private final DataType type;
    private final List<AutoCloseable> owned = new ArrayList<>();
    private long bytes;
    private final Buffer send;
    private final Buffer recv;

    /**
     * Allocates the buffers; if windows are requested, all ranks call it.
     *
     * @param comm communicator whose operations use them
     * @param config operation and kind of memory
     * @param type element type
     * @param sizes sizes that must fit
     */
    Buffers(Communicator comm, PerfConfig config, DataType type, List<Long> sizes) {
        this.type = type;
        long sent = 0;
        long received = 0;
        for (long size : sizes) {
            Shape shape = config.collective().layout().shape(size, type.size(), comm.size());
            sent = Math.max(sent, shape.send());
            received = Math.max(received, shape.larger());
        }
        boolean done = false;
        try {
            send = allocate(comm, config.buffers(), sent);
            recv = allocate(comm, config.buffers(), received);
            done = true;
        } finally {
            if (!done) {
                close();
            }
        }
    }

    private Buffer allocate(Communicator comm, PerfConfig.Memory memory, long count) {
        long whole = count + memory.unalign();
        Buffer buffer;
        if (memory.registration() > 0 && comm instanceof NcclCommunicator nccl) {
            long elements = PAGE / type.size();
            whole = Math.max(1, Math.ceilDiv(whole, elements)) * elements;
            buffer = Cuda.allocateForNccl(comm.device(), type, whole);
            owned.addFirst(buffer);
            owned.addFirst(
                    memory.registration() == 1 ? nccl.register(buffer) : nccl.window(buffer, true));
        } else {
            buffer = comm.device().allocate(type, whole);
            owned.addFirst(buffer);
        }
        bytes += buffer.byteSize();
        return buffer.slice(memory.unalign(), count);
    }

    DataType type() {
        return type;
    }

    /** The send buffer out of place. */
    Buffer send() {
        return send;
    }

    /** The receive buffer; in place also the send buffer. */
    Buffer recv() {
        return recv;
    }

    /** Memory of both buffers. */
    long bytes() {
        return bytes;
    }

    @Override
    public void close() {
        Closing.all(owned);
        owned.clear();
    }
}
