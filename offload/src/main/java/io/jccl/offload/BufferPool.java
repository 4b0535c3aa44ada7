package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.internal.Closing;
import io.jccl.offload.SlabSource.Slab;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.function.LongFunction;
import org.jspecify.annotations.Nullable;

/**
 * Memory of one tier, carved out of a few large slabs. Pinning memory, or asking a GPU for it,
 * takes milliseconds and stops the device; a block of a slab takes none of that, and is as large as
 * requested, rounded up to the alignment only: sizes are not rounded to powers of two.
 *
 * {@snippet class="snippets.Offload" region="pools"}
 *
 * <p>Allocation and release take constant time (a TLSF index: Masmano et al., ECRTS 2004), and
 * adjacent free blocks are merged.
 *
 * <p>There are two interfaces. {@link #allocate} returns a {@link Buffer}, which returns the memory
 * when it is closed and throws if used afterwards. {@link #take} returns a handle without creating
 * an object, and {@link #give} rejects a handle that was given back before.
 *
 * <p><b>Not checked:</b> a {@link Buffer#asSegment segment} lives as long as its slab, so using one
 * after its buffer was closed reads and writes the memory of the next owner. If {@value
 * #POISON_PROPERTY} is {@code true} when a pool is made, it fills host memory that is given back
 * with bytes of 0xff, which read as NaN, and throws an {@link IllegalStateException} with the
 * stacks that took and gave the memory if some of it has changed when it is next allocated,
 * trimmed, or the pool is closed. This costs a pass over the block each time. GPU memory is not
 * checked.
 *
 * <p>Blocks that are still in use when the pool is closed are logged as leaks (logger {@code
 * io.jccl.offload}), with the stacks that took them if {@value #LEAK_PROPERTY} is {@code true}.
 *
 * <p>Slabs are on the NUMA node of the thread that makes the pool grow, since Linux places pages
 * where they are first written, and both kinds of memory are zeroed when they are allocated. To
 * place slabs near a GPU, start the process on its node ({@code numactl --cpunodebind}), or take
 * the first blocks in a thread bound to it. Use one pool per node.
 *
 * <p><b>Threads:</b> any.
 */
public final class BufferPool implements AutoCloseable {
    private static final Path PROC = Path.of("/proc/self");

    /** The system property that makes pools record the stack of each allocation. */
    public static final String LEAK_PROPERTY = "jccl.offload.leaks";

    /** The system property that makes pools detect writes to memory that was given back. */
    public static final String POISON_PROPERTY = "jccl.offload.poison";

    /** Most leaks that are logged one by one. */
    private static final int LOGGED_LEAKS = 10;

    private final Tier tier;
    private final Budgets budgets;
    private final PoolOptions options;
    private final SlabSource source;
    private final int unitLog2;
    private final boolean tracking =
            Boolean.getBoolean(LEAK_PROPERTY) || Boolean.getBoolean(POISON_PROPERTY);

    // All below is guarded by this.

    /** Null unless enabled, and for GPU memory. */
    private @Nullable Poison poison;

    private final List<@Nullable Slab> slabs = new ArrayList<>();

    /** The blocks, in units of the alignment. */
    private final TlsfIndex index = new TlsfIndex();

    /** Bytes requested for each block. */
    private long[] asked = new long[0];

    /** Where a block was taken; only if {@link #tracking}. */
    private @Nullable Throwable[] takers = new Throwable[0];

    private long out;
    private long outBytes;
    private long peakBytes;
    private long askedBytes;
    private boolean closed;

    /**
     * What a pool holds.
     *
     * @param slabs number of slabs
     * @param slabBytes bytes taken from the system
     * @param blocks blocks in use
     * @param blockBytes their bytes
     * @param askedBytes bytes that were requested for them
     */
    public record Stats(int slabs, long slabBytes, long blocks, long blockBytes, long askedBytes) {
        /**
         * The share of the blocks' bytes that was not requested.
         *
         * @return 0 to 1
         */
        public double waste() {
            return blockBytes == 0 ? 0 : 1 - (double) askedBytes / blockBytes;
        }
    }

    /**
     * A block that was not given back.
     *
     * @param bytes requested size
     * @param taken where, as the stack of an exception; null unless {@value
     *     BufferPool#LEAK_PROPERTY} is {@code true}
     */
    public record Leak(long bytes, @Nullable Throwable taken) {}

    /** With the folder in which the system reports how much the process may lock. */
    BufferPool(
            Tier tier,
            Budgets budgets,
            PoolOptions options,
            LongFunction<Buffer> source,
            Path proc) {
        this.tier = tier;
        this.budgets = Objects.requireNonNull(budgets, "budgets");
        this.options = Objects.requireNonNull(options, "options");
        this.source = new SlabSource(tier, budgets, options, source, proc);
        this.unitLog2 = Integer.numberOfTrailingZeros(options.alignment());
        this.poison = Boolean.getBoolean(POISON_PROPERTY) ? new Poison(tier) : null;
    }

    /**
     * A pool of host memory that a device can copy from and to asynchronously: pinned, if it is a
     * GPU.
     *
     * @param device the device
     * @param budgets what tier {@link Tier#PINNED} may hold
     * @param options slabs and alignment
     * @return the pool; it takes its first slab on first use
     */
    public static BufferPool pinned(Device device, Budgets budgets, PoolOptions options) {
        return new BufferPool(
                Tier.PINNED,
                budgets,
                options,
                device.kind() == Device.Kind.CUDA
                        ? bytes -> Cuda.pinned(DataType.UINT8, bytes)
                        : bytes -> device.allocate(DataType.UINT8, bytes),
                PROC);
    }

    /**
     * A pool of device memory. On the host device this is host memory too, limited by the budget
     * only.
     *
     * @param device the device
     * @param budgets what tier {@link Tier#DEVICE} may hold
     * @param options slabs and alignment
     * @return the pool; it takes its first slab on first use
     */
    public static BufferPool device(Device device, Budgets budgets, PoolOptions options) {
        return new BufferPool(
                Tier.DEVICE,
                budgets,
                options,
                bytes -> device.allocate(DataType.UINT8, bytes),
                PROC);
    }

    /**
     * Allocates a buffer with undefined content.
     *
     * @param type element type
     * @param count number of elements, 0 or more
     * @return a buffer; closing it gives the memory back
     * @throws OffloadMemoryException if the budget or the system has no room
     */
    public Buffer allocate(DataType type, long count) {
        if (count < 0 || count > Long.MAX_VALUE / 16) {
            throw new IllegalArgumentException(
                    "count is " + count + ", expected 0 to " + Long.MAX_VALUE / 16);
        }
        long handle;
        Slab slab;
        long from;
        synchronized (this) {
            handle = take(count * type.size());
            int block = (int) handle;
            slab = Objects.requireNonNull(slabs.get(index.slab(block)));
            from = index.start(block) << unitLog2;
        }
        return slab.memory().lease(from, type, count, () -> give(handle));
    }

    /**
     * Allocates memory with undefined content.
     *
     * @param bytes how much, 0 or more
     * @return a handle for {@link #give} and {@link #address}
     * @throws OffloadMemoryException if the budget or the system has no room
     * @throws IllegalStateException if the pool is closed, or, with {@value #POISON_PROPERTY}, the
     *     memory was written to after it was given back
     */
    public synchronized long take(long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException("bytes is " + bytes + ", expected 0 or more");
        }
        if (closed) {
            throw new IllegalStateException("the pool of tier " + tier + " is closed");
        }
        long units = Math.max(1, (bytes + options.alignment() - 1) >>> unitLog2);
        int block = index.find(units);
        if (block == TlsfIndex.NONE) {
            block = grow(bytes, units);
        }
        if (poison != null) {
            poison.check(memory(block, units));
        }
        index.take(block, units);
        if (block >= asked.length) {
            asked = Arrays.copyOf(asked, index.capacity());
            takers = Arrays.copyOf(takers, index.capacity());
        }
        asked[block] = bytes;
        if (tracking) {
            takers[block] = new Throwable(bytes + " bytes of tier " + tier + " taken");
        }
        out++;
        outBytes += units << unitLog2;
        peakBytes = Math.max(peakBytes, outBytes);
        askedBytes += bytes;
        return (long) index.generation(block) << 32 | block;
    }

    /**
     * Gives memory back.
     *
     * @param handle of {@link #take}
     * @throws IllegalStateException if it was given back before
     */
    public synchronized void give(long handle) {
        if (closed) {
            return;
        }
        int block = checked(handle);
        out--;
        outBytes -= index.size(block) << unitLog2;
        askedBytes -= asked[block];
        if (poison != null) {
            poison.give(memory(block, index.size(block)), asked[block], takers[block]);
        }
        if (tracking) {
            takers[block] = null;
        }
        index.give(block);
    }

    /**
     * Where memory is.
     *
     * @param handle of {@link #take}
     * @return its address on the tier's device
     * @throws IllegalStateException if it was given back
     */
    public synchronized long address(long handle) {
        int block = checked(handle);
        return Objects.requireNonNull(slabs.get(index.slab(block))).memory().address()
                + (index.start(block) << unitLog2);
    }

    /**
     * Returns unused slabs to the system.
     *
     * @return bytes returned
     */
    public synchronized long trim() {
        long given = 0;
        for (int block = 0; block < index.blocks(); block++) {
            Slab slab = index.slab(block) < 0 ? null : slabs.get(index.slab(block));
            if (slab == null
                    || !index.isFree(block)
                    || index.size(block) != slab.usable() >>> unitLog2) {
                continue;
            }
            if (poison != null) {
                MemorySegment memory = memory(block, index.size(block));
                poison.check(memory);
                poison.forget(memory);
            }
            slabs.set(index.slab(block), null);
            index.remove(block);
            slab.memory().close();
            budgets.give(tier, slab.bytes());
            given += slab.bytes();
        }
        return given;
    }

    /**
     * The tier of the memory.
     *
     * @return the tier
     */
    public Tier tier() {
        return tier;
    }

    /**
     * Current numbers.
     *
     * @return a snapshot
     */
    public synchronized Stats stats() {
        int count = 0;
        long bytes = 0;
        for (Slab slab : slabs) {
            if (slab != null) {
                count++;
                bytes += slab.bytes();
            }
        }
        return new Stats(count, bytes, out, outBytes, askedBytes);
    }

    /**
     * The most bytes in use at any time, including rounding. Budgets count slabs instead.
     *
     * @return bytes
     */
    public synchronized long peakBytes() {
        return peakBytes;
    }

    /** The block of a handle, if it is in use. */
    private int checked(long handle) {
        int block = (int) handle;
        int taken = (int) (handle >>> 32);
        if (block < 0 || block >= index.blocks() || (taken & 1) == 0) {
            throw new IllegalArgumentException(
                    "0x" + Long.toHexString(handle) + " is not a handle of this pool");
        }
        if (index.generation(block) != taken) {
            throw new IllegalStateException(
                    "the memory of handle 0x"
                            + Long.toHexString(handle)
                            + " was given back before: use it, and give it back, only once");
        }
        return block;
    }

    /** Takes another slab, and makes a free block of it. */
    private int grow(long bytes, long units) {
        long needed = units << unitLog2;
        if (needed < bytes) {
            throw new IllegalArgumentException("bytes is " + bytes + ", which is out of range");
        }
        if (budgets.free(tier) < needed) {
            trim();
        }
        Slab taken = source.take(needed, bytes, out, outBytes);
        int slab = slabs.indexOf(null);
        if (slab < 0) {
            slab = slabs.size();
            slabs.add(null);
        }
        slabs.set(slab, taken);
        int block = index.add(slab, taken.usable() >>> unitLog2);
        if (taken.memory().device().kind() != Device.Kind.HOST) {
            poison = null;
        }
        if (poison != null) {
            poison.fill(memory(block, index.size(block)));
        }
        return block;
    }

    /** The first units of a block, in host memory. */
    private MemorySegment memory(int block, long units) {
        return Objects.requireNonNull(slabs.get(index.slab(block)))
                .memory()
                .asSegment()
                .asSlice(index.start(block) << unitLog2, units << unitLog2);
    }

    /**
     * The blocks in use.
     *
     * @return one entry per block
     */
    public synchronized List<Leak> leaks() {
        List<Leak> all = new ArrayList<>();
        for (int block = 0; block < index.blocks(); block++) {
            if (!index.isFree(block)) {
                all.add(new Leak(asked[block], takers[block]));
            }
        }
        return all;
    }

    /**
     * Returns all slabs to the system. Blocks still in use are logged, and their buffers are
     * closed. No copy from or to them may be in progress. Closing twice does nothing.
     */
    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        List<Leak> leaks = leaks();
        if (!leaks.isEmpty()) {
            log(leaks);
        }
        closed = true;
        List<AutoCloseable> steps = new ArrayList<>();
        Poison p = poison;
        for (int i = 0; i < index.blocks(); i++) {
            int block = i;
            if (p != null && index.slab(block) >= 0 && index.isFree(block)) {
                steps.add(() -> p.check(memory(block, index.size(block))));
            }
        }
        for (Slab slab : slabs) {
            if (slab != null) {
                steps.add(slab.memory());
                steps.add(() -> budgets.give(tier, slab.bytes()));
            }
        }
        try {
            Closing.all(steps);
        } finally {
            slabs.clear();
        }
    }

    private void log(List<Leak> leaks) {
        System.Logger logger = System.getLogger("io.jccl.offload");
        logger.log(
                System.Logger.Level.WARNING,
                "the pool of tier "
                        + tier
                        + " is closed while "
                        + leaks.size()
                        + " blocks of "
                        + outBytes
                        + " bytes are out: close their buffers first"
                        + (tracking
                                ? ""
                                : " (-D" + LEAK_PROPERTY + "=true logs where they were taken)"));
        for (Leak leak : leaks.subList(0, Math.min(LOGGED_LEAKS, leaks.size()))) {
            if (leak.taken != null) {
                logger.log(System.Logger.Level.WARNING, "not given back", leak.taken);
            }
        }
    }

    @Override
    public String toString() {
        return "pool of tier " + tier + ": " + stats();
    }
}
