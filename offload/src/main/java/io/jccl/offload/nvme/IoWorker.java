package io.jccl.offload.nvme;

import io.jccl.error.JcclException;
import java.io.IOException;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** A thread of an {@link IoQueue} that moves one block at a time. */
final class IoWorker implements Runnable {
    private final IoQueue queue;
    private final StoreFiles files;
    private final BlockMover mover;

    /** The block that the queue gave it. */
    @Nullable IoTicket ticket;

    int block;

    IoWorker(IoQueue queue, StoreFiles files, int number) {
        this.queue = queue;
        this.files = files;
        this.mover = new BlockMover(files, number);
    }

    @Override
    public void run() {
        while (queue.take(this)) {
            move(Objects.requireNonNull(ticket));
        }
    }

    private void move(IoTicket t) {
        Region region = Objects.requireNonNull(t.region);
        JcclException failure = null;
        region.enter(block, t.write);
        boolean copied = false;
        try {
            copied = mover.move(t, region, block, Objects.requireNonNull(t.view));
        } catch (JcclException e) {
            failure = e;
        } catch (IOException e) {
            failure =
                    files.failed(
                            e,
                            region.length(block),
                            String.format(
                                    "%s block %s of %s in %s failed",
                                    t.write ? "writing" : "reading", block, region, files.data));
        } catch (RuntimeException | Error e) {
            failure = new JcclException("moving a block of " + region + " failed: " + e, e);
        } finally {
            region.leave(block);
        }
        if (failure != null && t.write) {
            region.incomplete(block, block + 1);
        }
        queue.moved(t, copied, failure);
    }
}
