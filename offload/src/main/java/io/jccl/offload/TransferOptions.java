package io.jccl.offload;

import java.time.Duration;

/**
 * How a {@link TransferEngine} cuts and queues its work.
 *
 * @param chunkBytes bytes of a chunk, a multiple of 64; priorities and cancellation take effect
 *     between chunks, so smaller chunks react sooner but cost more
 * @param depth chunks that are in a direction's stream at once, 1 to 256; with one, the stream
 *     idles between chunks
 * @param queue transfers of one direction that may wait, 1 or more; starting one more blocks the
 *     caller
 * @param closeTimeout how long closing waits for chunks in flight
 */
public record TransferOptions(long chunkBytes, int depth, int queue, Duration closeTimeout) {
    private static final int MAX_DEPTH = 256;
    private static final int ALIGNMENT = 64;

    /** Chunks of 4 MiB, 4 in flight, 1,024 waiting, 10 seconds to close. */
    public static final TransferOptions DEFAULT =
            new TransferOptions(4L << 20, 4, 1024, Duration.ofSeconds(10));

    /** Checks the arguments. */
    public TransferOptions {
        if (chunkBytes < ALIGNMENT || chunkBytes % ALIGNMENT != 0) {
            throw new IllegalArgumentException(
                    "chunkBytes is " + chunkBytes + ", expected a multiple of " + ALIGNMENT);
        }
        if (depth < 1 || depth > MAX_DEPTH) {
            throw new IllegalArgumentException(
                    "depth is " + depth + ", expected 1 to " + MAX_DEPTH);
        }
        if (queue < 1) {
            throw new IllegalArgumentException("queue is " + queue + ", expected 1 or more");
        }
        if (closeTimeout.isNegative()) {
            throw new IllegalArgumentException(
                    "closeTimeout is " + closeTimeout + ", expected 0 or more");
        }
    }

    /**
     * With other chunks.
     *
     * @param bytes bytes of a chunk, a multiple of 64
     * @return the changed copy
     */
    public TransferOptions withChunkBytes(long bytes) {
        return new TransferOptions(bytes, depth, queue, closeTimeout);
    }

    /**
     * With more or fewer chunks in flight.
     *
     * @param chunks 1 to 256
     * @return the changed copy
     */
    public TransferOptions withDepth(int chunks) {
        return new TransferOptions(chunkBytes, chunks, queue, closeTimeout);
    }

    /**
     * With a longer or shorter queue.
     *
     * @param transfers 1 or more
     * @return the changed copy
     */
    public TransferOptions withQueue(int transfers) {
        return new TransferOptions(chunkBytes, depth, transfers, closeTimeout);
    }

    /**
     * With another timeout for closing.
     *
     * @param timeout how long closing waits for chunks in flight
     * @return the changed copy
     */
    public TransferOptions withCloseTimeout(Duration timeout) {
        return new TransferOptions(chunkBytes, depth, queue, timeout);
    }
}
