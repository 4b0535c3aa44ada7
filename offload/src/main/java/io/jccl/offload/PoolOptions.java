package io.jccl.offload;

/**
 * How a {@link BufferPool} takes memory from the system.
 *
 * @param slabBytes bytes of a slab; larger requests get a slab of their own size
 * @param alignment of every block, a power of two of at least 64
 */
public record PoolOptions(long slabBytes, int alignment) {
    /** Slabs of 256 MiB, blocks on boundaries of 64 bytes. */
    public static final PoolOptions DEFAULT = new PoolOptions(256L << 20, 64);

    /** Checks the numbers. */
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
     * With other slabs.
     *
     * @param bytes bytes of a slab
     * @return the changed copy
     */
    public PoolOptions withSlabBytes(long bytes) {
        return new PoolOptions(bytes, alignment);
    }

    /**
     * With another alignment.
     *
     * @param bytes a power of two of at least 64; 4096 suits direct I/O
     * @return the changed copy
     */
    public PoolOptions withAlignment(int bytes) {
        return new PoolOptions(slabBytes, bytes);
    }
}
