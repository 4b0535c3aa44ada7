package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Event;
import org.jspecify.annotations.Nullable;

/** The part of a transfer that is one operation of the stream. Guarded by its {@link CopyQueue}. */
final class Chunk implements Runnable {
    private final CopyQueue queue;
    @Nullable Transfer transfer;
    int run;
    long from;
    long size;
    boolean isLast;
    boolean waitFirst;
    @Nullable Event event;
    @Nullable Buffer slot;
    @Nullable Throwable error;

    Chunk(CopyQueue queue) {
        this.queue = queue;
    }

    /** Runs in the stream: the copy of the host device, or that from or to a slot. */
    @Override
    public void run() {
        queue.run(this);
    }
}
