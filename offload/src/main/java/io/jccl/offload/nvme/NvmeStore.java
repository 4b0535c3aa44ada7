package io.jccl.offload.nvme;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Waits;
import io.jccl.offload.Budgets;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import io.jccl.offload.TierStore;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Named regions of elements in a folder on a local drive, read into pinned memory and written from
 * it by several threads at once. The page cache is bypassed where the file system allows it.
 *
 * {@snippet class="snippets.Offload" region="nvme"}
 *
 * <p><b>Checks:</b> every block has a CRC32C (RFC 3720, appendix B.4), computed when it is written
 * and verified when it is read.
 *
 * <p><b>Steps:</b> the file has two slots for each block. Writes go to the slot that the last
 * commit does not point to; {@link #commit} flushes the file, then atomically replaces the
 * manifest, which has the slot of each block. A process that dies at any time leaves the state of
 * the last commit, which {@link #open} restores. {@link #rollback} restores it in a running
 * process, so that a failed step can be repeated. A region therefore takes twice its size on the
 * drive; a {@linkplain NvmeOptions#scratch scratch} store has one slot, no commits, and leaves
 * nothing behind.
 *
 * <p><b>Fast path:</b> a block moves between the drive and the buffer without a copy if the
 * operation covers the whole block (it does if it begins at a multiple of {@link #blockBytes()} and
 * ends at one or at the region's end), and if both the block's size and its address are multiples
 * of {@link #padding()}: pools allocate such buffers with {@link
 * io.jccl.offload.PoolOptions#withAlignment withAlignment(4096)}. Other blocks are copied once
 * through the store's own memory; a block that is written in part is read first.
 *
 * <p><b>Threads:</b> any. Operations on the same elements are unordered unless the first is awaited
 * before the second begins.
 */
public final class NvmeStore implements TierStore, AutoCloseable {
    private static final long LATE_NANOS = 10_000_000;

    private final StoreFiles files;
    private final IoQueue queue;

    // Guarded by regions, a lock that is not held while waiting. Commits and new regions are also
    // in the queue's exclusive section, so that a commit saves all regions.

    private final Map<String, Region> regions = new LinkedHashMap<>();

    /** Room of closed regions of a scratch store, by size. */
    private final Map<Long, ArrayDeque<Long>> holes = new HashMap<>();

    private long step;

    /**
     * Statistics since a store was opened.
     *
     * @param bytesRead bytes of elements read
     * @param bytesWritten bytes of elements written
     * @param copiedBlocks blocks that had to be copied in memory
     * @param fileBytes size of the file of blocks
     */
    public record Stats(long bytesRead, long bytesWritten, long copiedBlocks, long fileBytes) {}

    /**
     * Opens the store in a folder, in the state of its last commit, or creates one.
     *
     * @param folder an existing folder on the drive
     * @param budgets what tier {@link Tier#NVME} may hold
     * @param options how to use the drive
     * @return the store
     * @throws CorruptStoreException if a file in it is torn, truncated, changed or does not belong
     *     to a store
     * @throws OffloadMemoryException if the drive or the budget has no room for it
     * @throws JcclException if the folder is missing or cannot be written, or the store is open in
     *     this or another process
     */
    public static NvmeStore open(Path folder, Budgets budgets, NvmeOptions options) {
        return open(folder, budgets, options, new FileBackend());
    }

    static NvmeStore open(Path folder, Budgets budgets, NvmeOptions options, IoBackend backend) {
        StoreFiles files = StoreFiles.open(folder, budgets, options, backend);
        boolean done = false;
        try {
            NvmeStore store = new NvmeStore(files, options);
            store.queue.start();
            done = true;
            return store;
        } finally {
            if (!done) {
                files.close();
            }
        }
    }

    private NvmeStore(StoreFiles files, NvmeOptions options) {
        this.files = files;
        this.queue = new IoQueue(files, options, this.toString());
        Manifest.Content content = files.restored;
        step = content == null ? Manifest.NO_STEP : content.step();
        if (content != null) {
            for (Manifest.Entry e : content.regions()) {
                Region r = new Region(this, e.name(), e.type(), e.count(), e.base(), 2);
                for (int b = 0; b < e.states().length; b++) {
                    r.restore(b, e.states()[b], e.checksums()[b]);
                }
                regions.put(e.name(), r);
            }
        }
    }

    // Regions.

    /**
     * Finds a region, or creates one filled with zeros. A new region survives a crash once it is
     * part of a commit.
     *
     * @param name its name, up to 1024 characters
     * @param type element type
     * @param count number of elements, 0 or more
     * @return the region
     * @throws OffloadMemoryException if the drive or the budget has no room for it
     * @throws IllegalArgumentException if it exists with another type or count
     */
    public Region region(String name, DataType type, long count) {
        if (name.isEmpty() || name.length() > 1024) {
            throw new IllegalArgumentException(
                    "the name has " + name.length() + " characters, expected 1 to 1024");
        }
        Objects.requireNonNull(type, "type");
        if (count < 0 || count > Long.MAX_VALUE / 64) {
            throw new IllegalArgumentException(
                    "count is " + count + ", expected 0 to " + Long.MAX_VALUE / 64);
        }
        queue.enter(false, "making region '" + name + "'");
        try {
            synchronized (regions) {
                return findOrMake(name, type, count);
            }
        } finally {
            queue.leave();
        }
    }

    private Region findOrMake(String name, DataType type, long count) {
        Region known = regions.get(name);
        if (known != null) {
            if (known.type != type || known.count != count) {
                throw new IllegalArgumentException(
                        String.format(
                                "region '%s' has %s x %s, but %s x %s were requested: use another"
                                        + " name, or the same type and count",
                                name, known.count, known.type.label(), count, type.label()));
            }
            return known;
        }
        queue.checkWritable();
        Region.blocks(type, count, files.blockBytes);
        int slots = isScratch() ? 1 : 2;
        long bytes = slots * Region.slotBytes(type, count, files.padding);
        ArrayDeque<Long> hole = holes.get(bytes);
        Long base = hole == null ? null : hole.pollLast();
        if (base == null) {
            base = files.grow(name, bytes);
        }
        Region r = new Region(this, name, type, count, base, slots);
        regions.put(name, r);
        return r;
    }

    void free(Region region) {
        synchronized (regions) {
            if (regions.remove(region.name, region) && region.slotBytes > 0) {
                holes.computeIfAbsent(region.slotBytes, b -> new ArrayDeque<>()).add(region.base);
            }
        }
    }

    @Override
    public Region place(String name, DataType type, long count) {
        return region(name, type, count);
    }

    /**
     * All regions, in the order of their creation.
     *
     * @return a copy
     */
    public List<Region> regions() {
        synchronized (regions) {
            return List.copyOf(regions.values());
        }
    }

    // Operations.

    /**
     * Starts to read elements: the ones written last, committed or not. Waits while the maximum
     * number of operations is pending.
     *
     * @param region of this store
     * @param firstElement index of the first element in the region
     * @param pinned the target, whose count is the number of elements; of the region's type, in
     *     host memory
     * @return the read
     * @throws JcclTimeoutException if the queue stays full for the options' timeout
     */
    public IoTicket read(Region region, long firstElement, Buffer pinned) {
        return submit(false, region, firstElement, pinned);
    }

    /**
     * Starts to write elements. The content of the last commit is kept. Waits while the maximum
     * number of operations is pending, and while a commit is in progress.
     *
     * @param region of this store
     * @param firstElement index of the first element in the region
     * @param pinned the source, whose count is the number of elements; of the region's type, in
     *     host memory
     * @return the write
     * @throws JcclTimeoutException if the queue stays full for the options' timeout
     */
    public IoTicket write(Region region, long firstElement, Buffer pinned) {
        return submit(true, region, firstElement, pinned);
    }

    private IoTicket submit(boolean write, Region region, long first, Buffer buffer) {
        if (region.store != this) {
            throw new IllegalArgumentException(
                    "%s is of the store in %s, not in %s"
                            .formatted(region, region.store.files.folder, files.folder));
        }
        if (buffer.dataType() != region.type) {
            throw new IllegalArgumentException(
                    "the buffer holds %s, %s; both need the same type"
                            .formatted(buffer.dataType().label(), region));
        }
        if (!files.backend.reaches(buffer.device())) {
            throw new IllegalArgumentException(
                    "the buffer is in the memory of "
                            + buffer.device()
                            + ", which the drive does not reach: copy it to pinned memory first");
        }
        long count = buffer.count();
        if (first < 0 || count > region.count - first) {
            throw new IllegalArgumentException(
                    "elements %s to %s do not lie within %s: the buffer has %s"
                            .formatted(first, first + count, region, count));
        }
        if (region.isClosed()) {
            throw new IllegalStateException(region + " is closed");
        }
        MemorySegment memory = buffer.asSegment();
        return queue.submit(write, region, first, buffer, memory);
    }

    // Steps.

    /**
     * Commits what was written since the last commit: it survives a crash from now on. Waits for
     * pending writes.
     *
     * @param step the new value of {@link #committedStep}: 0 or more, and more than the current one
     * @throws IllegalStateException if a write failed or was cancelled and its elements were not
     *     written again: call {@link #rollback} and repeat the step
     * @throws OffloadMemoryException if the drive has no room for the manifest; nothing is
     *     committed then, and the commit can be repeated
     * @throws JcclException if the drive fails, or the file of blocks was removed or cut by
     *     another; unless the message states otherwise nothing is committed
     */
    public void commit(long step) {
        if (isScratch()) {
            throw new IllegalStateException(
                    "a scratch store has no steps: open the store without scratch to commit");
        }
        queue.enter(true, "the commit of step " + step);
        try {
            queue.checkWritable();
            save(step, committable(step));
            synchronized (regions) {
                this.step = step;
            }
        } finally {
            queue.leave();
        }
    }

    /** All regions, if they and the step can be committed. */
    private List<Region> committable(long step) {
        List<Region> all;
        synchronized (regions) {
            if (step <= this.step || step < 0) {
                throw new IllegalArgumentException(
                        "step is %s, expected more than the last committed, %s"
                                .formatted(step, this.step < 0 ? "none" : this.step));
            }
            all = List.copyOf(regions.values());
        }
        for (Region r : all) {
            int block = r.firstIncomplete();
            if (block >= 0) {
                throw new IllegalStateException(
                        ("step %s cannot be committed: a write to block %s of %s failed or was"
                                        + " cancelled: rollback() and repeat the step")
                                .formatted(step, block, r));
            }
        }
        return all;
    }

    private void save(long step, List<Region> all) {
        try {
            files.file.force();
        } catch (IOException e) {
            // The system may have dropped blocks it could not write, and does not report which.
            all.forEach(Region::distrust);
            throw files.failed(
                    e,
                    0,
                    "flushing %s failed, step %s is not committed: rollback() and repeat the step"
                            .formatted(files.data, step));
        }
        try {
            files.checkData();
        } catch (IOException e) {
            throw files.failed(e, 0, "step " + step + " is not committed");
        }
        Path target = files.manifestFile();
        ByteBuffer bytes = files.manifest(all, step);
        try {
            files.backend.replace(target, bytes);
        } catch (IoBackend.NotReplacedException e) {
            throw files.failed(
                    e,
                    bytes.limit(),
                    "writing " + target + " failed, step " + step + " is not committed");
        } catch (IOException e) {
            JcclException unusable =
                    files.failed(
                            e,
                            bytes.limit(),
                            ("flushing the folder failed: whether step %s is committed is known"
                                            + " only after the store in %s has been opened again")
                                    .formatted(step, files.folder));
            queue.refuseWrites(unusable);
            throw unusable;
        }
        all.forEach(Region::committed);
    }

    /**
     * Discards what was written since the last commit: reads return the committed content. Waits
     * for pending writes.
     */
    public void rollback() {
        if (isScratch()) {
            throw new IllegalStateException("a scratch store has no steps to roll back to");
        }
        queue.enter(true, "the rollback");
        try {
            queue.checkWritable();
            regions().forEach(Region::rolledBack);
        } finally {
            queue.leave();
        }
    }

    /**
     * The last committed step.
     *
     * @return its number; empty if nothing was committed yet
     */
    public OptionalLong committedStep() {
        synchronized (regions) {
            return step < 0 ? OptionalLong.empty() : OptionalLong.of(step);
        }
    }

    // Properties.

    /**
     * Bytes that are read, written and checksummed at once.
     *
     * @return a power of two
     */
    public int blockBytes() {
        return files.blockBytes;
    }

    /**
     * Blocks on the drive are padded to a multiple of this.
     *
     * @return bytes, a power of two
     */
    public int padding() {
        return files.padding;
    }

    /**
     * Why reads and writes go through the page cache.
     *
     * @return null if they do not: O_DIRECT is in use
     */
    public @Nullable String bufferedBecause() {
        return files.file.bufferedBecause();
    }

    /**
     * The location.
     *
     * @return the folder, without symbolic links
     */
    public Path folder() {
        return files.folder;
    }

    boolean isScratch() {
        return files.isScratch();
    }

    /**
     * Statistics so far.
     *
     * @return a snapshot
     */
    public Stats stats() {
        return queue.stats();
    }

    /**
     * Closes the store. Waiting operations are cancelled; those in progress are awaited for up to
     * the options' timeout. Uncommitted data is lost. Closing twice does nothing.
     *
     * @throws JcclTimeoutException if an operation hangs in the drive: its buffer must not be
     *     freed. The store is closed nevertheless, but its folder stays locked until that has
     *     ended, since it may yet write
     */
    @Override
    public void close() {
        if (!queue.close()) {
            return;
        }
        long start = System.nanoTime();
        int hanging = queue.join();
        if (hanging == 0) {
            files.close();
        } else {
            Thread.ofPlatform().daemon().name("jccl-nvme-close").start(this::closeLate);
            throw new JcclTimeoutException(
                    hanging
                            + " operations still hang in the drive of "
                            + files.folder
                            + " after "
                            + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start)
                            + " ms: do not free their buffers");
        }
    }

    private void closeLate() {
        while (queue.join() > 0) {
            Waits.park(LATE_NANOS);
        }
        files.close();
    }

    @Override
    public String toString() {
        return (isScratch() ? "scratch store in " : "store in ") + files.folder;
    }
}
