package io.jccl.offload;

/**
 * How a {@link BufferPool} takes memory from the system.
 *
 * @param slabBytes bytes of a slab; larger requests get a slab of exactly their size
 * @param alignment of every block, a power of two of at least 64
 * @param checkLockLimit whether a pool of tier {@link Tier#PINNED} checks the limit of locked
 *     memory ({@code ulimit -l}) before it takes a slab. Needed for memory that is locked with
 *     {@code mlock} or registered with an RDMA adapter, which counts against that limit. Not
 *     needed, and off by default, for memory pinned for a GPU: NVIDIA's driver pins pages itself
 */
public record PoolOptions(long slabBytes, int alignment, boolean checkLockLimit) {
    /** Slabs of 256 MiB, blocks aligned to 64 bytes, no check of the limit. */
    public static final PoolOptions DEFAULT = new PoolOptions(256L << 20, 64);

    /** Checks the arguments. */
    public PoolOptions {
        if (slabBytes < 1) {
            throw new IllegalArgumentException(
                    "slabBytes is " + slabBytes + ", expected 1 or more");
        }
        if (alignment < 64 || Integer.bitCount(alignment) != 1) {
            throw new IllegalArgumentException(
                    "alignment is " + alignment + ", expected a power of two of at least 64");
        }
    }

    /**
     * Options that do not check the limit of locked memory.
     *
     * @param slabBytes bytes of a slab
     * @param alignment of every block, a power of two of at least 64
     */
    public PoolOptions(long slabBytes, int alignment) {
        this(slabBytes, alignment, false);
    }

    /**
     * With other slabs.
     *
     * @param bytes bytes of a slab
     * @return the changed copy
     */
    public PoolOptions withSlabBytes(long bytes) {
        return new PoolOptions(bytes, alignment, checkLockLimit);
    }

    /**
     * With another alignment.
     *
     * @param bytes a power of two of at least 64; 4096 suits direct I/O
     * @return the changed copy
     */
    public PoolOptions withAlignment(int bytes) {
        return new PoolOptions(slabBytes, bytes, checkLockLimit);
    }

    /**
     * With or without a check of the limit of locked memory.
     *
     * @param check whether to check
     * @return the changed copy
     */
    public PoolOptions withLockLimitCheck(boolean check) {
        return new PoolOptions(slabBytes, alignment, check);
    }
}
