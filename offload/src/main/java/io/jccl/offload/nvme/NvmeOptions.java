package io.jccl.offload.nvme;

import java.time.Duration;
import java.util.Objects;

/**
 * How an {@link NvmeStore} uses its drive.
 *
 * @param blockBytes bytes that are read, written and checksummed at once, a power of two from 4 KiB
 *     to 64 MiB. Fixed when a store is created; an existing store keeps its own
 * @param queueDepth blocks in progress on the drive at once, each in its own thread, 1 to 256
 * @param pendingOperations reads and writes that may be waiting or in progress; starting one more
 *     blocks the caller. 1 or more
 * @param directIo whether to bypass the page cache
 * @param scratch if true, the file has no name and disappears when the store is closed or the
 *     process dies; nothing can be committed, and data takes its size on the drive once instead of
 *     twice
 * @param timeout how long to wait for a place in the queue, for writes to end before a commit, and
 *     for reads and writes in progress when the store is closed
 */
public record NvmeOptions(
        int blockBytes,
        int queueDepth,
        int pendingOperations,
        DirectIo directIo,
        boolean scratch,
        Duration timeout) {
    /** Whether reads and writes bypass the page cache (O_DIRECT). */
    public enum DirectIo {
        /** Yes, where the file system allows it. */
        AUTO,
        /** Yes; on a file system that does not allow it, opening fails. */
        REQUIRED,
        /** No. */
        OFF
    }

    /** The default block size. */
    static final int DEFAULT_BLOCK = 1 << 20;

    /** The default number of blocks in flight. */
    static final int DEFAULT_DEPTH = 8;

    /**
     * Blocks of 1 MiB, 8 of them in flight, 256 operations pending, O_DIRECT where possible, 60
     * seconds. Block and depth are those of DeepSpeed's {@code aio} section (its {@code
     * docs/_pages/config-json.md}); {@code docs/nvme-tier.md} has measurements of others.
     */
    public static final NvmeOptions DEFAULT =
            new NvmeOptions(
                    DEFAULT_BLOCK,
                    DEFAULT_DEPTH,
                    256,
                    DirectIo.AUTO,
                    false,
                    Duration.ofSeconds(60));

    /** Checks the arguments. */
    public NvmeOptions {
        if (blockBytes < 4096 || blockBytes > 64 << 20 || Integer.bitCount(blockBytes) != 1) {
            throw new IllegalArgumentException(
                    "blockBytes is "
                            + blockBytes
                            + ", expected a power of two from 4096 to 67108864");
        }
        if (queueDepth < 1 || queueDepth > 256) {
            throw new IllegalArgumentException(
                    "queueDepth is " + queueDepth + ", expected 1 to 256");
        }
        if (pendingOperations < 1) {
            throw new IllegalArgumentException(
                    "pendingOperations is " + pendingOperations + ", expected 1 or more");
        }
        Objects.requireNonNull(directIo, "directIo");
        if (timeout.isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("timeout is " + timeout + ", expected more than 0");
        }
    }

    /**
     * With other blocks.
     *
     * @param bytes a power of two from 4 KiB to 64 MiB
     * @return the changed copy
     */
    public NvmeOptions withBlockBytes(int bytes) {
        return new NvmeOptions(bytes, queueDepth, pendingOperations, directIo, scratch, timeout);
    }

    /**
     * With more or fewer blocks in flight.
     *
     * @param depth 1 to 256
     * @return the changed copy
     */
    public NvmeOptions withQueueDepth(int depth) {
        return new NvmeOptions(blockBytes, depth, pendingOperations, directIo, scratch, timeout);
    }

    /**
     * With a longer or shorter queue.
     *
     * @param operations 1 or more
     * @return the changed copy
     */
    public NvmeOptions withPendingOperations(int operations) {
        return new NvmeOptions(blockBytes, queueDepth, operations, directIo, scratch, timeout);
    }

    /**
     * With or without O_DIRECT.
     *
     * @param choice whether to use it
     * @return the changed copy
     */
    public NvmeOptions withDirectIo(DirectIo choice) {
        return new NvmeOptions(blockBytes, queueDepth, pendingOperations, choice, scratch, timeout);
    }

    /**
     * For data that may be lost, or for state that must survive.
     *
     * @param choice whether it may be lost
     * @return the changed copy
     */
    public NvmeOptions withScratch(boolean choice) {
        return new NvmeOptions(
                blockBytes, queueDepth, pendingOperations, directIo, choice, timeout);
    }

    /**
     * With another timeout.
     *
     * @param time more than 0
     * @return the changed copy
     */
    public NvmeOptions withTimeout(Duration time) {
        return new NvmeOptions(blockBytes, queueDepth, pendingOperations, directIo, scratch, time);
    }
}
