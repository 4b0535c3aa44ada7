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
 * takes milliseconds and stops the device; a block out of a slab takes none of that, and is as
 * large as was asked for but for the alignment: nothing is rounded to powers of two.
 *
 * <p>Taking and giving back cost the same however many blocks there are (a TLSF index: Masmano et
 * al., ECRTS 2004), and neighbours that are free become one block.
 *
 * <p>There are two ways in. {@link #allocate} makes a {@link Buffer}, whose {@code close} gives the
 * memory back once, and that throws if used afterwards. {@link #take} makes a handle without
 * creating any object, and {@link #give} refuses one that was given back before.
 *
 * <p><b>Not checked</b> is a {@link Buffer#asSegment segment}: it lives as long as its slab, so
 * that one used after its buffer was closed reads and writes the memory of the next owner. If
 * {@value #POISON_PROPERTY} is {@code true} when a pool is made, it fills host memory that is given
 * back with bytes of 0xff, which read as NaN, and throws an {@link IllegalStateException} with the
 * stacks that took and gave the memory if some of it has changed when it is next handed out,
 * trimmed, or the pool is closed. That costs a pass over the block each time; memory of a GPU is
 * left alone.
 *
 * <p>What is still out when the pool is closed is logged as a leak (logger {@code
 * io.jccl.offload}), with the stacks that took it if {@value #LEAK_PROPERTY} is {@code true}.
 *
 * <p>Slabs lie on the NUMA node of the thread that makes the pool grow, as Linux places pages where
 * they are first written, and both kinds of memory are zeroed when made: to have them near a GPU,
 * start the process on its node ({@code numactl --cpunodebind}), or take the first blocks in a
 * thread bound there. One pool per node keeps nodes apart.
 *
 * <p><b>Threads:</b> any.
 */
public final class BufferPool implements AutoCloseable {
    private static final Path PROC = Path.of("/proc/self");

    /** The system property that makes pools remember who took what. */
    public static final String LEAK_PROPERTY = "jccl.offload.leaks";

    /** The system property that makes pools find writes to memory that was given back. */
    public static final String POISON_PROPERTY = "jccl.offload.poison";

    /** As many leaks as a log can use. */
    private static final int LOGGED_LEAKS = 10;

    private final Tier tier;
    private final Budgets budgets;
    private final PoolOptions options;
    private final SlabSource source;
    private final int unitLog2;
    private final boolean tracking =
            Boolean.getBoolean(LEAK_PROPERTY) || Boolean.getBoolean(POISON_PROPERTY);

    // All below is guarded by this.

    /** Null unless asked for, and for memory of a GPU. */
    private @Nullable Poison poison;

    private final List<@Nullable Slab> slabs = new ArrayList<>();

    /** Which blocks there are, in units of the alignment. */
    private final TlsfIndex index = new TlsfIndex();

    /** Bytes that were asked for when a block was taken. */
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
     * @param blocks blocks that are out
     * @param blockBytes bytes of those
     * @param askedBytes bytes that were asked for when they were taken
     */
    public record Stats(int slabs, long slabBytes, long blocks, long blockBytes, long askedBytes) {
        /**
         * The share of the blocks' bytes that nobody asked for.
         *
         * @return 0 to 1
         */
        public double waste() {
            return blockBytes == 0 ? 0 : 1 - (double) askedBytes / blockBytes;
        }
    }

    /**
     * A block that nobody gave back.
     *
     * @param bytes how many were asked for
     * @param taken where, as the stack of an exception; null unless {@value
     *     BufferPool#LEAK_PROPERTY} is {@code true}
     */
    public record Leak(long bytes, @Nullable Throwable taken) {}

    /** With the folder in which the system says what the process may lock. */
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
     * A pool of host memory that a device copies from and to beside its work: pinned, if it is a
     * GPU.
     *
     * @param device the device
     * @param budgets what tier {@link Tier#PINNED} may hold
     * @param options slabs and alignment
     * @return the pool; it takes its first slab when first asked
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
     * A pool of device memory. On the host device that is host memory too, so that the budget alone
     * makes it scarce.
     *
     * @param device the device
     * @param budgets what tier {@link Tier#DEVICE} may hold
     * @param options slabs and alignment
     * @return the pool; it takes its first slab when first asked
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
     * Takes memory as a buffer, with whatever content.
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
     * Takes memory, with whatever content.
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
     * Gives slabs of which nothing is out back to the system.
     *
     * @return bytes given back
     */
    public synchronized long trim() {
        long given = 0;
        for (int block = 0; block < index.blocks(); block++) {
            Slab slab = index.slab(block) < 0 ? null : slabs.get(index.slab(block));
            if (slab == null || !index.isFree(block) || index.size(block) != slab.usable() >>> unitLog2) {
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
     * Whose memory it is.
     *
     * @return the tier
     */
    public Tier tier() {
        return tier;
    }

    /**
     * What the pool holds.
     *
     * @return numbers of this moment
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
     * The most bytes that were out at any time, with what rounding added to them. Budgets count
     * slabs instead.
     *
     * @return bytes
     */
    public synchronized long peakBytes() {
        return peakBytes;
    }

    /** The block that a handle stands for, if it is out. */
    private int checked(long handle) {
        int block = (int) handle;
        int taken = (int) (handle >>> 32);
        if (block < 0 || block >= index.blocks() || (taken & 1) == 0) {
            throw new IllegalArgumentException(
                    "0x" + Long.toHexString(handle) + " is no handle of this pool");
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
     * What is out.
     *
     * @return one entry a block
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
     * Gives all slabs back to the system, also under blocks that are still out, which are logged:
     * their buffers are closed by it. No copy from or to them may be under way. Closing twice does
     * nothing.
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
                        + (tracking ? "" : " (-D" + LEAK_PROPERTY + "=true says who took them)"));
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
