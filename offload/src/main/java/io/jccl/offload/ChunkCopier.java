package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.concurrent.atomic.LongAdder;

/**
 * Enqueues the copies of one direction on its stream.
 *
 * <p><b>Threads:</b> {@link #copy} by one; {@link #stage} by the stream's.
 */
final class ChunkCopier {
    private final boolean toDevice;
    private final Stream stream;
    private final StagingRing ring;
    private final TransferOptions options;
    private final LongAdder stagedChunks = new LongAdder();

    ChunkCopier(boolean toDevice, Stream stream, StagingRing ring, TransferOptions options) {
        this.toDevice = toDevice;
        this.stream = stream;
        this.ring = ring;
        this.options = options;
    }

    /** Chunks that went by way of a slot. */
    long stagedChunks() {
        return stagedChunks.sum();
    }

    /** A GPU's copy of one chunk, by way of a slot if the host's memory is not pinned. */
    void copy(Chunk c, Transfer t) {
        if (t.staged == null) {
            Buffer host = toDevice ? t.source : t.target;
            t.staged = !Cuda.isPinned(host);
        }
        if (!t.staged) {
            stream.copy(t.piece(false, c.from, c.size), t.piece(true, c.from, c.size));
            return;
        }
        Buffer slot = ring.take();
        synchronized (t.queue) {
            c.slot = slot;
        }
        stagedChunks.increment();
        DataType type = t.source.dataType();
        if (toDevice) {
            Event after = t.after;
            if (t.waited && after != null && !after.query()) {
                stream.launchHostFunction(c);
            } else {
                stage(c, t);
            }
            Buffer target = t.piece(true, c.from, c.size);
            stream.copy(StagingRing.view(slot, type, target.count()), target);
        } else {
            Buffer source = t.piece(false, c.from, c.size);
            stream.copy(source, StagingRing.view(slot, type, source.count()));
            stream.launchHostFunction(c);
        }
    }

    /** Copies between the host's memory and the slot. */
    void stage(Chunk c, Transfer t) {
        MemorySegment pinned = Objects.requireNonNull(c.slot).asSegment();
        if (toDevice) {
            MemorySegment.copy(t.source.asSegment(), c.from, pinned, 0, c.size);
        } else {
            MemorySegment.copy(pinned, 0, t.target.asSegment(), c.from, c.size);
        }
    }

    /** Waits for copies that may be in the stream without an event after them. */
    void settle() {
        try {
            stream.synchronize(options.closeTimeout());
        } catch (RuntimeException e) {
            // The transfer fails with the error that led here.
        }
    }
}
