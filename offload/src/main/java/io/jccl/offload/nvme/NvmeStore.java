package io.jccl.offload.nvme;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.offload.Budgets;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import io.jccl.offload.TierStore;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;
import org.jspecify.annotations.Nullable;

/**
 * Named regions of elements in a folder on a local drive, read into pinned memory and written from
 * it by several threads at once, past the page cache where the file system allows it.
 *
 * <p><b>Checks:</b> every block has a CRC32C (RFC 3720, appendix B.4), taken when it is written and
 * verified when it is read.
 *
 * <p><b>Steps:</b> the file has two slots for each block. Writes go to the slot that the last
 * commit does not point to; {@link #commit} flushes the file, then replaces the manifest, which
 * says for each block which slot holds it, in one step. A process that dies at any time leaves the
 * state of the last commit, and {@link #open} finds it. Until then {@link #rollback} brings it
 * back, so that a step that failed can be repeated. A region so takes twice its size on the drive;
 * a {@linkplain NvmeOptions#scratch scratch} store has one slot, no commits, and leaves nothing
 * behind.
 *
 * <p><b>Fast path:</b> a block moves between the drive and the buffer without a copy if the
 * operation covers all of it (operations that begin at a multiple of {@link #blockBytes()} and end
 * at one, or at the region's end do), its size is a multiple of {@link #padding()}, and so is its
 * address: pools make such buffers with {@link io.jccl.offload.PoolOptions#withAlignment
 * withAlignment(4096)}. Others are copied once through memory of the store's own; a block of which
 * only a part is written is read first.
 *
 * <p><b>Threads:</b> any. Operations on the same elements have no order unless the first is awaited
 * before the second begins.
 */
public final class NvmeStore implements TierStore, AutoCloseable {
    private static final String DATA = "data";
    private static final String MANIFEST = "manifest";
    private static final String LOCK = "lock";

    /** Buffers whose views are kept; in 4 ways, so that a few that collide do not fight. */
    private static final int VIEWS = 1024;

    private static final int WAYS = 4;

    /**
     * Folders that are open in this process. The system's locks are no help here: closing any
     * channel of a file gives up the locks that this process has on it.
     */
    private static final Set<Path> OPEN = ConcurrentHashMap.newKeySet();

    private final Path folder;
    private final Path dataFile;
    private final Budgets budgets;
    private final NvmeOptions options;
    private final IoBackend backend;
    private final @Nullable FileChannel lock;
    private final IoBackend.IoFile file;
    private final UUID id;
    private final int blockBytes;
    private final int padding;
    private final long timeoutNanos;
    private final Thread[] workers;

    /** What operations and commits wait on; guards all below. Taken before a ticket or a region. */
    private final Object queue = new Object();

    private final ArrayDeque<IoTicket> waiting;
    private final ArrayDeque<IoTicket> spare;
    private final @Nullable MemoryView[] views = new MemoryView[VIEWS];
    private int evict;
    private int pending;
    private int pendingWrites;
    private boolean committing;
    private boolean closed;

    /** Why nothing can be written any more. */
    private @Nullable JcclException broken;

    private final Map<String, Region> regions = new LinkedHashMap<>();

    /** Room of closed regions of a scratch store, by size. */
    private final Map<Long, ArrayDeque<Long>> holes = new HashMap<>();

    private long fileEnd;
    private long taken;
    private long step;
    private long bytesRead;
    private long bytesWritten;
    private long copiedBlocks;

    /**
     * What a store has done since it was opened.
     *
     * @param bytesRead bytes of elements read
     * @param bytesWritten bytes of elements written
     * @param copiedBlocks blocks that had to be copied on their way
     * @param fileBytes bytes that the file of blocks takes
     */
    public record Stats(long bytesRead, long bytesWritten, long copiedBlocks, long fileBytes) {}

    /**
     * Opens the store in a folder, in the state of its last commit, or makes one.
     *
     * @param folder an existing folder on the drive
     * @param budgets what tier {@link Tier#NVME} may hold
     * @param options how to use the drive
     * @return the store
     * @throws CorruptStoreException if a file in it is torn, cut short, changed or of something
     *     else
     * @throws OffloadMemoryException if the drive or the budget has no room for it
     * @throws JcclException if the folder is missing or cannot be written, or another process, or
     *     this one, has the store open
     */
    public static NvmeStore open(Path folder, Budgets budgets, NvmeOptions options) {
        return open(folder, budgets, options, new FileBackend());
    }

    static NvmeStore open(Path folder, Budgets budgets, NvmeOptions options, IoBackend backend) {
        Objects.requireNonNull(budgets, "budgets");
        Objects.requireNonNull(options, "options");
        if (!Files.isDirectory(folder)) {
            throw new JcclException(
                    "folder "
                            + folder
                            + (Files.exists(folder) ? " is no folder" : " does not exist")
                            + ": name an existing one on the drive that is to hold tier NVME");
        }
        Path real;
        try {
            real = folder.toRealPath();
        } catch (IOException e) {
            throw new JcclException("folder " + folder + ": " + e, e);
        }
        if (options.scratch()) {
            return new NvmeStore(real, budgets, options, backend, null);
        }
        if (!OPEN.add(real)) {
            throw new JcclException(
                    "the store in "
                            + real
                            + " is open in this process already: close it first, or share it");
        }
        FileChannel lock = null;
        boolean done = false;
        try {
            lock = lock(real);
            NvmeStore store = new NvmeStore(real, budgets, options, backend, lock);
            done = true;
            return store;
        } finally {
            if (!done) {
                closeQuietly(lock);
                OPEN.remove(real);
            }
        }
    }

    private static FileChannel lock(Path folder) {
        FileChannel channel;
        try {
            channel =
                    FileChannel.open(
                            folder.resolve(LOCK),
                            StandardOpenOption.CREATE,
                            StandardOpenOption.READ,
                            StandardOpenOption.WRITE);
        } catch (IOException e) {
            throw new JcclException(
                    "folder " + folder + " cannot be written: " + e + "; change its permissions",
                    e);
        }
        try {
            FileLock held = channel.tryLock();
            if (held == null) {
                ByteBuffer text = ByteBuffer.allocate(32);
                channel.read(text, 0);
                String pid =
                        new String(text.array(), 0, text.position(), StandardCharsets.US_ASCII);
                channel.close();
                throw new JcclException(
                        "the store in "
                                + folder
                                + " is in use by process "
                                + (pid.isBlank() ? "(unknown)" : pid.strip())
                                + ": end it first, or use another folder");
            }
            channel.truncate(0);
            channel.write(
                    ByteBuffer.wrap(
                            (ProcessHandle.current().pid() + "\n")
                                    .getBytes(StandardCharsets.US_ASCII)),
                    0);
            return channel;
        } catch (IOException e) {
            closeQuietly(channel);
            throw new JcclException("the lock of the store in " + folder + " fails: " + e, e);
        }
    }

    private static void closeQuietly(@Nullable AutoCloseable c) {
        if (c != null) {
            try {
                c.close();
            } catch (Exception e) {
                // Something else went wrong before, and that is what the caller hears of.
            }
        }
    }

    private NvmeStore(
            Path folder,
            Budgets budgets,
            NvmeOptions options,
            IoBackend backend,
            @Nullable FileChannel lock) {
        this.folder = folder;
        this.budgets = budgets;
        this.options = options;
        this.backend = backend;
        this.lock = lock;
        this.timeoutNanos = Deadline.nanos(options.timeout());
        this.dataFile =
                folder.resolve(
                        lock != null
                                ? DATA
                                : "scratch-"
                                        + ProcessHandle.current().pid()
                                        + "-"
                                        + UUID.randomUUID());
        IoBackend.IoFile opened = null;
        boolean done = false;
        try {
            Path manifestFile = folder.resolve(MANIFEST);
            Manifest.Content content = null;
            if (lock != null) {
                Files.deleteIfExists(folder.resolve(MANIFEST + ".new"));
                content = Files.exists(manifestFile) ? Manifest.read(manifestFile) : null;
                checkDataFile(manifestFile, content);
            }
            opened = backend.open(dataFile, options.directIo(), lock == null);
            if (content != null && opened.alignment() > content.padding()) {
                // The folder was moved to a drive with larger sectors.
                opened.close();
                if (options.directIo() == NvmeOptions.DirectIo.REQUIRED) {
                    throw new IOException(
                            "O_DIRECT is required, but needs an alignment of "
                                    + opened.alignment()
                                    + " bytes, and the store has "
                                    + content.padding());
                }
                opened = backend.open(dataFile, NvmeOptions.DirectIo.OFF, false);
            }
            file = opened;
            if (content == null) {
                id = UUID.randomUUID();
                blockBytes = options.blockBytes();
                padding = file.alignment();
                step = Manifest.NO_STEP;
                if (blockBytes < padding) {
                    throw new IllegalArgumentException(
                            "blockBytes is "
                                    + blockBytes
                                    + ", but the drive needs at least "
                                    + padding);
                }
                take(padding, "the header of " + dataFile);
                fileEnd = padding;
                create(manifestFile);
            } else {
                id = content.id();
                blockBytes = content.blockBytes();
                padding = content.padding();
                step = content.step();
                take(content.fileEnd(), "the regions in " + dataFile);
                fileEnd = content.fileEnd();
                checkHeader();
                for (Manifest.Entry e : content.regions()) {
                    Region r = new Region(this, e.name(), e.type(), e.count(), e.base(), 2);
                    for (int b = 0; b < e.states().length; b++) {
                        r.restore(b, e.states()[b], e.checksums()[b]);
                    }
                    regions.put(e.name(), r);
                }
                // Regions that were added and never committed.
                file.cut(fileEnd);
            }
            waiting = new ArrayDeque<>(options.pendingOperations() + 1);
            spare = new ArrayDeque<>(options.pendingOperations() + 1);
            workers = new Thread[options.queueDepth()];
            for (int w = 0; w < workers.length; w++) {
                Worker worker = new Worker(w);
                workers[w] =
                        Thread.ofPlatform()
                                .daemon()
                                .name("jccl-nvme-" + folder.getFileName() + "-" + w)
                                .unstarted(worker);
            }
            for (Thread t : workers) {
                t.start();
            }
            done = true;
        } catch (IOException e) {
            throw failed(e, padding(), "opening the store in " + folder + " fails");
        } finally {
            if (!done) {
                closeQuietly(opened);
                budgets.give(Tier.NVME, taken);
            }
        }
    }

    /** Compares what is there with the manifest, before anything is opened for writing. */
    private void checkDataFile(Path manifestFile, Manifest.@Nullable Content content)
            throws IOException {
        long size = Files.exists(dataFile) ? Files.size(dataFile) : -1;
        if (content == null) {
            // A store that died while it was made has a header and no manifest yet.
            if (size > 1 << 16) {
                throw new CorruptStoreException(
                        manifestFile,
                        0,
                        "the manifest is missing, but " + dataFile + " has " + size + " bytes",
                        "a manifest",
                        "none",
                        "restore it from a copy, or use an empty folder");
            }
            if (size > 0) {
                Manifest.checkIsOurs(dataFile, start((int) size));
            }
        } else if (size < content.fileEnd()) {
            throw new CorruptStoreException(
                    dataFile,
                    Math.max(0, size),
                    size < 0 ? "the file is missing" : "the file was cut short",
                    content.fileEnd() + " bytes",
                    Math.max(0, size) + " bytes",
                    "restore the folder from a copy, or start a new one");
        }
    }

    private ByteBuffer start(int size) throws IOException {
        ByteBuffer start = ByteBuffer.allocate(size);
        try (FileChannel c = FileChannel.open(dataFile, StandardOpenOption.READ)) {
            while (start.hasRemaining() && c.read(start) > 0) {
                // Goes on.
            }
        }
        return start.flip();
    }

    private void checkHeader() throws IOException {
        MemoryView page = page();
        int n = file.read(page, 0, 0, padding, 0);
        Manifest.checkHeader(dataFile, page.bytes(0, 0, padding).slice(), n, id);
    }

    private MemoryView page() {
        return new MemoryView(MemorySegment.ofBuffer(FileBackend.aligned(padding, padding)), 1);
    }

    private void create(Path manifestFile) throws IOException {
        MemoryView page = page();
        ByteBuffer bytes = page.bytes(0, 0, padding).slice();
        Manifest.header(bytes, id, blockBytes, padding);
        file.cut(padding);
        file.write(page, 0, 0, padding, 0);
        if (lock != null) {
            file.force();
            backend.replace(manifestFile, manifest(List.of(), step));
        }
    }

    private ByteBuffer manifest(Collection<Region> of, long step) {
        ByteBuffer bytes = ByteBuffer.allocateDirect(Manifest.size(of));
        Manifest.write(bytes, id, blockBytes, padding, step, fileEnd, of);
        return bytes;
    }

    private void take(long bytes, String what) {
        budgets.take(Tier.NVME, bytes, what);
        taken += bytes;
    }

    /** The exception for an error of the system. */
    private JcclException failed(IOException e, long bytes, String what) {
        long free = -1;
        try {
            free = backend.freeSpace(folder);
        } catch (IOException second) {
            e.addSuppressed(second);
        }
        if (Faults.isFull(e)) {
            return new OffloadMemoryException(
                    Tier.NVME,
                    bytes,
                    Math.max(0, free),
                    what
                            + ": "
                            + e.getMessage()
                            + "; what was committed is intact: make room on the drive, and repeat"
                            + " the step",
                    e);
        }
        return new JcclException(
                what
                        + ": "
                        + (e.getMessage() == null ? e : e.getMessage())
                        + " (tier NVME, "
                        + bytes
                        + " bytes asked for, "
                        + free
                        + " free on the drive)",
                e);
    }

    // Regions.

    /**
     * Finds a region, or makes one, which is zeros. It is there after a crash once it was part of a
     * commit.
     *
     * @param name what it is called, up to 1024 characters
     * @param type element type
     * @param count number of elements, 0 or more
     * @return the region
     * @throws OffloadMemoryException if the drive or the budget has no room for it
     * @throws IllegalArgumentException if there is one of that name with another type or count
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
        synchronized (queue) {
            checkOpen();
            awaitIdle(false, "making region '" + name + "'");
            Region known = regions.get(name);
            if (known != null) {
                if (known.type != type || known.count != count) {
                    throw new IllegalArgumentException(
                            "region '"
                                    + name
                                    + "' has "
                                    + known.count
                                    + " x "
                                    + known.type.label()
                                    + ", but "
                                    + count
                                    + " x "
                                    + type.label()
                                    + " were asked for: take another name, or the same shape");
                }
                return known;
            }
            checkWritable();
            Region.blocks(type, count, blockBytes);
            int slots = isScratch() ? 1 : 2;
            long bytes = slots * Region.slotBytes(type, count, padding);
            ArrayDeque<Long> hole = holes.get(bytes);
            Long base = hole == null ? null : hole.pollLast();
            if (base == null) {
                base = grow(name, bytes);
            }
            Region r = new Region(this, name, type, count, base, slots);
            regions.put(name, r);
            return r;
        }
    }

    private long grow(String name, long bytes) {
        String what = "region '" + name + "' in " + dataFile;
        take(bytes, what);
        boolean done = false;
        try {
            long free = backend.freeSpace(folder);
            if (free < bytes) {
                throw new OffloadMemoryException(
                        Tier.NVME,
                        bytes,
                        free,
                        what + "; the drive has no more: make room on it, or use another folder",
                        null);
            }
            file.grow(fileEnd + bytes);
            done = true;
        } catch (IOException e) {
            throw failed(e, bytes, "making " + what + " fails");
        } finally {
            if (!done) {
                budgets.give(Tier.NVME, bytes);
                taken -= bytes;
            }
        }
        long base = fileEnd;
        fileEnd += bytes;
        return base;
    }

    void free(Region region) {
        synchronized (queue) {
            if (!closed && regions.remove(region.name, region) && region.slotBytes > 0) {
                holes.computeIfAbsent(region.slotBytes, b -> new ArrayDeque<>()).add(region.base);
            }
        }
    }

    @Override
    public Region place(String name, DataType type, long count) {
        return region(name, type, count);
    }

    /**
     * All regions, in the order in which they were made.
     *
     * @return a copy
     */
    public List<Region> regions() {
        synchronized (queue) {
            return List.copyOf(regions.values());
        }
    }

    // Operations.

    /**
     * Starts to read elements: those that were written last, committed or not. Waits while as many
     * operations are pending as the options allow.
     *
     * @param region of this store
     * @param firstElement index in it of the first
     * @param pinned where to, as many as it holds; of the region's type, in host memory
     * @return the read
     * @throws JcclTimeoutException if the queue stays full for as long as the options say
     */
    public IoTicket read(Region region, long firstElement, Buffer pinned) {
        return submit(false, region, firstElement, pinned);
    }

    /**
     * Starts to write elements. What the last commit has stays as it is. Waits while as many
     * operations are pending as the options allow, and while a commit is under way.
     *
     * @param region of this store
     * @param firstElement index in it of the first
     * @param pinned where from, as many as it holds; of the region's type, in host memory
     * @return the write
     * @throws JcclTimeoutException if the queue stays full for as long as the options say
     */
    public IoTicket write(Region region, long firstElement, Buffer pinned) {
        return submit(true, region, firstElement, pinned);
    }

    private IoTicket submit(boolean write, Region region, long first, Buffer buffer) {
        if (region.store != this) {
            throw new IllegalArgumentException(
                    region + " is of the store in " + region.store.folder + ", not in " + folder);
        }
        if (buffer.dataType() != region.type) {
            throw new IllegalArgumentException(
                    "the buffer holds "
                            + buffer.dataType().label()
                            + ", "
                            + region
                            + "; both need the same type");
        }
        if (!backend.reaches(buffer.device())) {
            throw new IllegalArgumentException(
                    "the buffer is in the memory of "
                            + buffer.device()
                            + ", which the drive does not reach: copy it to pinned memory first");
        }
        long count = buffer.count();
        if (first < 0 || count > region.count - first) {
            throw new IllegalArgumentException(
                    "elements "
                            + first
                            + " to "
                            + (first + count)
                            + " do not lie within "
                            + region
                            + ": the buffer has "
                            + count);
        }
        if (region.isClosed()) {
            throw new IllegalStateException(region + " was closed before");
        }
        MemorySegment memory = buffer.asSegment();
        int size = region.type.size();
        synchronized (queue) {
            checkOpen();
            long start = System.nanoTime();
            boolean interrupted = false;
            while (pending >= options.pendingOperations() || (write && committing)) {
                interrupted |= pause(start, "the queue of ");
                checkOpen();
            }
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
            if (write) {
                checkWritable();
            }
            IoTicket t = spare.pollLast();
            if (t == null) {
                t = new IoTicket(this);
            }
            t.write = write;
            t.region = region;
            t.from = first * size;
            t.to = (first + count) * size;
            t.nextBlock = (int) (t.from / blockBytes);
            t.endBlock = count == 0 ? t.nextBlock : (int) ((t.to - 1) / blockBytes) + 1;
            t.remaining = t.endBlock - t.nextBlock;
            t.cancelRequested = false;
            t.failure = null;
            t.begin();
            if (t.remaining == 0) {
                t.end();
                return t;
            }
            t.view = view(buffer, memory);
            pending++;
            pendingWrites += write ? 1 : 0;
            waiting.addLast(t);
            queue.notifyAll();
            return t;
        }
    }

    /** Waits on the queue, and returns whether the thread was interrupted. */
    @SuppressWarnings("WaitNotInLoop") // its callers loop
    private boolean pause(long start, String what) {
        long left = timeoutNanos - (System.nanoTime() - start);
        if (left <= 0) {
            throw new JcclTimeoutException(
                    what
                            + this
                            + " does not move for "
                            + options.timeout()
                            + ": "
                            + pending
                            + " operations are pending, "
                            + pendingWrites
                            + " of them writes");
        }
        try {
            queue.wait(left / 1_000_000, (int) (left % 1_000_000));
            return false;
        } catch (InterruptedException e) {
            return true;
        }
    }

    /** Waits until no commit is under way, and no write either if they matter. */
    private void awaitIdle(boolean writes, String what) {
        long start = System.nanoTime();
        boolean interrupted = false;
        while (committing || (writes && pendingWrites > 0)) {
            interrupted |= pause(start, what + ": ");
            checkOpen();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private MemoryView view(Buffer buffer, MemorySegment memory) {
        int home = (System.identityHashCode(buffer) * WAYS) & (VIEWS - 1);
        for (int i = home; i < home + WAYS; i++) {
            MemoryView v = views[i];
            if (v != null && v.isOf(buffer, memory)) {
                return v;
            }
        }
        MemoryView fresh = new MemoryView(buffer, workers.length, blockBytes);
        views[home + (evict++ & (WAYS - 1))] = fresh;
        return fresh;
    }

    boolean cancel(IoTicket t) {
        synchronized (queue) {
            if (drop(t)) {
                t.cancelRequested = true;
                if (t.remaining == 0) {
                    end(t);
                }
            }
            return t.cancelRequested;
        }
    }

    /** Drops the blocks that are not under way, and returns whether there were any. */
    private boolean drop(IoTicket t) {
        int dropped = t.endBlock - t.nextBlock;
        if (dropped == 0) {
            return false;
        }
        waiting.removeFirstOccurrence(t);
        if (t.write) {
            Objects.requireNonNull(t.region).incomplete(t.nextBlock, t.endBlock);
        }
        t.nextBlock = t.endBlock;
        t.remaining -= dropped;
        return true;
    }

    private void end(IoTicket t) {
        pending--;
        pendingWrites -= t.write ? 1 : 0;
        t.view = null;
        if (t.end()) {
            spare.addLast(t);
        }
        queue.notifyAll();
    }

    void recycle(IoTicket t) {
        synchronized (queue) {
            if (spare.size() < options.pendingOperations()) {
                spare.addLast(t);
            }
        }
    }

    /** A thread that moves one block at a time. */
    private final class Worker implements Runnable {
        private final int number;
        private final CRC32C crc = new CRC32C();
        private @Nullable MemoryView own;

        Worker(int number) {
            this.number = number;
        }

        @Override
        public void run() {
            while (true) {
                IoTicket t;
                int block;
                synchronized (queue) {
                    while (waiting.isEmpty() && !closed) {
                        try {
                            queue.wait();
                        } catch (InterruptedException e) {
                            // Only close() ends this thread.
                        }
                    }
                    if (waiting.isEmpty()) {
                        return;
                    }
                    t = waiting.getFirst();
                    block = t.nextBlock++;
                    if (t.nextBlock == t.endBlock) {
                        waiting.removeFirst();
                    }
                }
                Region region = Objects.requireNonNull(t.region);
                JcclException failure = null;
                region.enter(block, t.write);
                boolean copied = false;
                try {
                    copied = move(t, region, block, Objects.requireNonNull(t.view));
                } catch (JcclException e) {
                    failure = e;
                } catch (IOException e) {
                    failure =
                            failed(
                                    e,
                                    region.length(block),
                                    (t.write ? "writing" : "reading")
                                            + " block "
                                            + block
                                            + " of "
                                            + region
                                            + " in "
                                            + dataFile
                                            + " fails");
                } catch (RuntimeException | Error e) {
                    failure = new JcclException("moving a block of " + region + " fails: " + e, e);
                } finally {
                    region.leave(block);
                }
                if (failure != null && t.write) {
                    region.incomplete(block, block + 1);
                }
                synchronized (queue) {
                    copiedBlocks += copied ? 1 : 0;
                    if (failure != null) {
                        if (t.failure == null) {
                            t.failure = failure;
                        }
                        drop(t);
                    }
                    if (--t.remaining == 0) {
                        if (t.write) {
                            bytesWritten += t.to - t.from;
                        } else {
                            bytesRead += t.to - t.from;
                        }
                        end(t);
                    }
                }
            }
        }

        /** Moves what an operation wants of a block, and returns whether it had to be copied. */
        private boolean move(IoTicket t, Region region, int block, MemoryView view)
                throws IOException {
            long blockAt = (long) block * blockBytes;
            int length = region.length(block);
            int from = (int) Math.max(0, t.from - blockAt);
            int to = (int) Math.min(length, t.to - blockAt);
            long at = blockAt + from - t.from;
            boolean whole = from == 0 && to == length;
            boolean inPlace =
                    whole && length % padding == 0 && view.isAligned(at, file.alignment());
            if (t.write) {
                write(region, block, view, at, from, to, inPlace);
                return !inPlace;
            }
            int slot = region.newest(block);
            if (slot < 0) {
                view.memory.asSlice(at, to - from).fill((byte) 0);
                return false;
            }
            if (inPlace) {
                load(region, block, slot, view, at);
                return false;
            }
            MemoryView mine = own();
            load(region, block, slot, mine, 0);
            MemorySegment.copy(mine.memory, from, view.memory, at, to - from);
            return true;
        }

        private void write(
                Region region,
                int block,
                MemoryView view,
                long at,
                int from,
                int to,
                boolean inPlace)
                throws IOException {
            int length = region.length(block);
            int slot = region.target(block);
            MemoryView source = view;
            if (!inPlace) {
                source = own();
                if (to - from < length) {
                    int newest = region.newest(block);
                    if (newest < 0) {
                        source.memory.fill((byte) 0);
                    } else {
                        load(region, block, newest, source, 0);
                    }
                }
                MemorySegment.copy(view.memory, at, source.memory, from, to - from);
                at = 0;
            }
            crc.reset();
            crc.update(source.bytes(number, at, length));
            int checksum = (int) crc.getValue();
            file.write(source, number, at, padded(length), region.position(block, slot));
            region.written(block, slot, checksum, to - from == length);
        }

        /** Reads a block and verifies it. */
        private void load(Region region, int block, int slot, MemoryView into, long at)
                throws IOException {
            int length = region.length(block);
            long position = region.position(block, slot);
            int n = file.read(into, number, at, padded(length), position);
            if (n < length) {
                throw new CorruptStoreException(
                        dataFile,
                        position + n,
                        "short read in block " + block + " of " + region,
                        length + " bytes",
                        n + " bytes",
                        "the file was cut short: restore it from a copy");
            }
            crc.reset();
            crc.update(into.bytes(number, at, length));
            int expected = region.checksum(block, slot);
            int found = (int) crc.getValue();
            if (expected != found) {
                throw new CorruptStoreException(
                        dataFile,
                        position,
                        "block " + block + " of " + region + " was torn or changed",
                        "CRC32C 0x" + Integer.toHexString(expected),
                        "0x" + Integer.toHexString(found),
                        "roll back if this step wrote it, else restore the folder from a copy");
            }
        }

        private int padded(int length) {
            return (length + padding - 1) / padding * padding;
        }

        /** Aligned memory for a block that cannot move in place. */
        private MemoryView own() {
            MemoryView mine = own;
            if (mine == null) {
                mine =
                        new MemoryView(
                                MemorySegment.ofBuffer(
                                        FileBackend.aligned(
                                                blockBytes, Math.max(padding, file.alignment()))),
                                number + 1);
                own = mine;
            }
            return mine;
        }
    }

    // Steps.

    /**
     * Makes what was written since the last commit the state that a crash leaves. Waits for the
     * writes that are pending.
     *
     * @param step what {@link #committedStep} says from now on: more than it does now, and 0 or
     *     more
     * @throws IllegalStateException if a write failed or was cancelled and its elements were not
     *     written again: then {@link #rollback} and repeat the step
     * @throws OffloadMemoryException if the drive has no room for the manifest; nothing is
     *     committed then, and the commit can be repeated
     * @throws JcclException if the drive fails; unless the message says otherwise nothing is
     *     committed
     */
    public void commit(long step) {
        if (isScratch()) {
            throw new IllegalStateException(
                    "a scratch store has no steps: open the store without scratch to commit");
        }
        Collection<Region> all;
        synchronized (queue) {
            checkOpen();
            checkWritable();
            awaitIdle(true, "the commit of step " + step);
            if (step <= this.step || step < 0) {
                throw new IllegalArgumentException(
                        "step is "
                                + step
                                + ", expected more than the last committed, "
                                + (this.step < 0 ? "none" : this.step));
            }
            for (Region r : regions.values()) {
                int block = r.firstIncomplete();
                if (block >= 0) {
                    throw new IllegalStateException(
                            "step "
                                    + step
                                    + " cannot be committed: a write to block "
                                    + block
                                    + " of "
                                    + r
                                    + " failed or was cancelled: rollback() and repeat the step");
                }
            }
            committing = true;
            all = List.copyOf(regions.values());
        }
        JcclException unusable = null;
        boolean done = false;
        try {
            try {
                file.force();
            } catch (IOException e) {
                // The system may have dropped what it could not write; nothing tells which blocks.
                all.forEach(Region::distrust);
                throw failed(
                        e,
                        0,
                        "flushing "
                                + dataFile
                                + " fails, step "
                                + step
                                + " is not committed: rollback() and repeat the step");
            }
            Path target = folder.resolve(MANIFEST);
            ByteBuffer bytes = manifest(all, step);
            try {
                backend.replace(target, bytes);
            } catch (IoBackend.NotReplacedException e) {
                throw failed(
                        e,
                        bytes.limit(),
                        "writing " + target + " fails, step " + step + " is not committed");
            } catch (IOException e) {
                unusable =
                        failed(
                                e,
                                bytes.limit(),
                                "whether step "
                                        + step
                                        + " is committed will be known once the store in "
                                        + folder
                                        + " is opened again, since flushing the folder fails");
                throw unusable;
            }
            all.forEach(Region::committed);
            done = true;
        } finally {
            synchronized (queue) {
                if (done) {
                    this.step = step;
                }
                if (unusable != null) {
                    broken = unusable;
                }
                committing = false;
                queue.notifyAll();
            }
        }
    }

    /**
     * Forgets what was written since the last commit: reads give what that has. Waits for the
     * writes that are pending.
     */
    public void rollback() {
        if (isScratch()) {
            throw new IllegalStateException("a scratch store has no steps to roll back to");
        }
        synchronized (queue) {
            checkOpen();
            checkWritable();
            awaitIdle(true, "the rollback");
            regions.values().forEach(Region::rolledBack);
        }
    }

    /**
     * The last whole step.
     *
     * @return what it was called at its commit; empty if nothing was committed yet
     */
    public OptionalLong committedStep() {
        synchronized (queue) {
            return step < 0 ? OptionalLong.empty() : OptionalLong.of(step);
        }
    }

    // What there is to know.

    /**
     * Bytes that are read, written and checksummed at once.
     *
     * @return a power of two
     */
    public int blockBytes() {
        return blockBytes;
    }

    /**
     * What blocks on the drive are rounded up to.
     *
     * @return bytes, a power of two
     */
    public int padding() {
        return padding;
    }

    /**
     * Why reads and writes go through the page cache.
     *
     * @return null if they do not: O_DIRECT is in use
     */
    public @Nullable String bufferedBecause() {
        return file.bufferedBecause();
    }

    /**
     * Where it is.
     *
     * @return the folder, without symbolic links
     */
    public Path folder() {
        return folder;
    }

    boolean isScratch() {
        return lock == null;
    }

    /**
     * What the store has done.
     *
     * @return numbers of this moment
     */
    public Stats stats() {
        synchronized (queue) {
            return new Stats(bytesRead, bytesWritten, copiedBlocks, fileEnd);
        }
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the store in " + folder + " is closed");
        }
    }

    private void checkWritable() {
        JcclException why = broken;
        if (why != null) {
            throw new JcclException(
                    "the store in " + folder + " has to be opened again: " + why.getMessage(), why);
        }
    }

    /**
     * Ends the store. Operations that are not under way are cancelled; for those that are it waits
     * as long as the options say. What was not committed is lost. Closing twice does nothing.
     *
     * @throws JcclTimeoutException if an operation hangs in the drive: its buffer must not be freed
     *     then; the store is closed nevertheless
     */
    @Override
    public void close() {
        boolean interrupted = false;
        synchronized (queue) {
            if (closed) {
                return;
            }
            long start = System.nanoTime();
            while (committing && System.nanoTime() - start < timeoutNanos) {
                try {
                    queue.wait(100);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            closed = true;
            while (!waiting.isEmpty()) {
                cancel(waiting.getFirst());
            }
            queue.notifyAll();
        }
        int hanging = 0;
        long start = System.nanoTime();
        for (Thread t : workers) {
            long left = Math.max(1, timeoutNanos - (System.nanoTime() - start));
            try {
                if (!t.join(java.time.Duration.ofNanos(left))) {
                    hanging++;
                }
            } catch (InterruptedException e) {
                interrupted = true;
                hanging++;
            }
        }
        closeQuietly(file);
        closeQuietly(lock);
        if (lock != null) {
            OPEN.remove(folder);
        }
        budgets.give(Tier.NVME, taken);
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        if (hanging > 0) {
            throw new JcclTimeoutException(
                    hanging
                            + " operations hang in the drive of "
                            + folder
                            + " for "
                            + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start)
                            + " ms: do not free their buffers");
        }
    }

    @Override
    public String toString() {
        return (isScratch() ? "scratch store in " : "store in ") + folder;
    }
}
