package io.jccl.offload.nvme;

import io.jccl.error.JcclException;
import io.jccl.internal.FolderLock;
import io.jccl.offload.Budgets;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * The files of a store in its folder: the file of blocks, the manifest and the lock.
 *
 * <p><b>Threads:</b> {@link #grow}, {@link #fileEnd} and {@link #close} are called one at a time;
 * the rest by any.
 */
final class StoreFiles {
    private static final String DATA = "data";
    private static final String MANIFEST = "manifest";

    final Path folder;
    final Path data;
    final IoBackend backend;
    final IoBackend.IoFile file;
    final int blockBytes;
    final int padding;

    /** The state of the last commit; null in a new store. */
    final Manifest.@Nullable Content restored;

    private final Budgets budgets;
    private final @Nullable FolderLock lock;
    private final UUID id;

    /** What the file system identifies the file of blocks by; null in a scratch store. */
    private final @Nullable Object dataKey;

    private long fileEnd;
    private long taken;

    /** Opens the files in a folder, or creates them; see {@link NvmeStore#open}. */
    static StoreFiles open(Path folder, Budgets budgets, NvmeOptions options, IoBackend backend) {
        Objects.requireNonNull(budgets, "budgets");
        Objects.requireNonNull(options, "options");
        if (!Files.isDirectory(folder)) {
            throw new JcclException(
                    "folder "
                            + folder
                            + (Files.exists(folder) ? " is not a folder" : " does not exist")
                            + ": name an existing one on the drive that is to hold tier NVME");
        }
        Path real;
        try {
            real = folder.toRealPath();
        } catch (IOException e) {
            throw new JcclException("folder " + folder + ": " + e, e);
        }
        if (options.scratch()) {
            return new StoreFiles(real, budgets, options, backend, null);
        }
        FolderLock lock = lock(real);
        boolean done = false;
        try {
            StoreFiles files = new StoreFiles(real, budgets, options, backend, lock);
            done = true;
            return files;
        } finally {
            if (!done) {
                lock.close();
            }
        }
    }

    private static FolderLock lock(Path folder) {
        try {
            return FolderLock.take(folder);
        } catch (FolderLock.HeldException e) {
            throw new JcclException(
                    e.isOwn()
                            ? "the store in "
                                    + folder
                                    + " is open in this process already: close it first, or share"
                                    + " it"
                            : ("the store in %s is in use by process %s: end it first, or use"
                                            + " another folder")
                                    .formatted(folder, e.process()),
                    e);
        } catch (FolderLock.ForeignException e) {
            throw new CorruptStoreException(
                    FolderLock.file(folder),
                    0,
                    "this is not the lock of a store",
                    "a process id",
                    "'" + e.content() + "'",
                    "name another folder, or move the file away");
        } catch (FileSystemException e) {
            throw new JcclException(
                    "folder " + folder + " cannot be written: " + e + "; change its permissions",
                    e);
        } catch (IOException e) {
            throw new JcclException("the lock of the store in " + folder + " fails: " + e, e);
        }
    }

    private static void closeQuietly(@Nullable AutoCloseable c) {
        if (c != null) {
            try {
                c.close();
            } catch (Exception e) {
                // An earlier error is reported to the caller.
            }
        }
    }

    private StoreFiles(
            Path folder,
            Budgets budgets,
            NvmeOptions options,
            IoBackend backend,
            @Nullable FolderLock lock) {
        this.folder = folder;
        this.budgets = budgets;
        this.backend = backend;
        this.lock = lock;
        this.data =
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
            Path manifestFile = manifestFile();
            Manifest.Content content = null;
            if (lock != null) {
                content = Files.exists(manifestFile) ? Manifest.read(manifestFile) : null;
                checkDataFile(manifestFile, content);
                Files.deleteIfExists(folder.resolve(MANIFEST + ".new"));
            }
            opened = backend.open(data, options.directIo(), lock == null);
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
                opened = backend.open(data, NvmeOptions.DirectIo.OFF, false);
            }
            file = opened;
            dataKey = lock == null ? null : dataAttributes().fileKey();
            restored = content;
            if (content == null) {
                id = UUID.randomUUID();
                blockBytes = options.blockBytes();
                padding = file.alignment();
                if (blockBytes < padding) {
                    throw new IllegalArgumentException(
                            "blockBytes is %s, but the drive needs at least %s"
                                    .formatted(blockBytes, padding));
                }
                take(padding, "the header of " + data);
                fileEnd = padding;
                create(manifestFile);
            } else {
                id = content.id();
                blockBytes = content.blockBytes();
                padding = content.padding();
                take(content.fileEnd(), "the regions in " + data);
                fileEnd = content.fileEnd();
                checkHeader();
                // Regions that were added and never committed.
                file.cut(fileEnd);
            }
            done = true;
        } catch (IOException e) {
            throw failed(
                    e,
                    opened == null ? 0 : opened.alignment(),
                    "opening the store in " + folder + " fails");
        } finally {
            if (!done) {
                closeQuietly(opened);
                budgets.give(Tier.NVME, taken);
            }
        }
    }

    /** Compares the files with the manifest before anything is opened for writing. */
    private void checkDataFile(Path manifestFile, Manifest.@Nullable Content content)
            throws IOException {
        long size = Files.exists(data) ? Files.size(data) : -1;
        if (content == null) {
            // A store whose creation was interrupted has a header and no manifest.
            if (size > 1 << 16) {
                throw new CorruptStoreException(
                        manifestFile,
                        0,
                        "the manifest is missing, but " + data + " has " + size + " bytes",
                        "a manifest",
                        "none",
                        "restore it from a copy, or use an empty folder");
            }
            if (size > 0) {
                Manifest.checkIsOurs(data, start((int) size));
            }
        } else if (size < content.fileEnd()) {
            throw new CorruptStoreException(
                    data,
                    Math.max(0, size),
                    size < 0 ? "the file is missing" : "the file was cut short",
                    content.fileEnd() + " bytes",
                    Math.max(0, size) + " bytes",
                    "restore the folder from a copy, or start a new one");
        }
    }

    private BasicFileAttributes dataAttributes() throws IOException {
        return Files.readAttributes(data, BasicFileAttributes.class);
    }

    /** Checks that the open file is still the one that the next {@link #open} finds, and whole. */
    void checkData() throws IOException {
        String what = "";
        try {
            BasicFileAttributes now = dataAttributes();
            if (!Objects.equals(now.fileKey(), dataKey)) {
                what = "was replaced";
            } else if (now.size() < fileEnd()) {
                what = "was cut to %s bytes, expected %s".formatted(now.size(), fileEnd());
            }
        } catch (NoSuchFileException e) {
            what = "was removed";
        }
        if (!what.isEmpty()) {
            throw new IOException(
                    ("%s %s while the store is open: save elsewhere what can still be read before"
                                    + " the store is closed, and start a new one")
                            .formatted(data, what));
        }
    }

    private ByteBuffer start(int size) throws IOException {
        ByteBuffer start = ByteBuffer.allocate(size);
        try (FileChannel c = FileChannel.open(data, StandardOpenOption.READ)) {
            while (start.hasRemaining() && c.read(start) > 0) {
                // Keep reading.
            }
        }
        return start.flip();
    }

    private void checkHeader() throws IOException {
        MemoryView page = page();
        int n = file.read(page, 0, 0, padding, 0);
        Manifest.checkHeader(data, page.bytes(0, 0, padding).slice(), n, id);
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
            backend.replace(manifestFile, manifest(List.of(), Manifest.NO_STEP));
        }
    }

    /** The bytes of a manifest. */
    ByteBuffer manifest(Collection<Region> of, long step) {
        ByteBuffer bytes = ByteBuffer.allocateDirect(Manifest.size(of));
        Manifest.write(bytes, id, blockBytes, padding, step, fileEnd, of);
        return bytes;
    }

    private void take(long bytes, String what) {
        budgets.take(Tier.NVME, bytes, what);
        taken += bytes;
    }

    /** The exception for an error of the operating system. */
    JcclException failed(IOException e, long bytes, String what) {
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
                    ("%s: %s; what was committed is intact: make room on the drive, and repeat the"
                                    + " step")
                            .formatted(what, e.getMessage()),
                    e);
        }
        // The message of an error of a file may be no more than its name.
        boolean bare = e.getMessage() == null || e instanceof FileSystemException;
        return new JcclException(
                "%s: %s (tier NVME, %s bytes requested, %s free on the drive)"
                        .formatted(what, bare ? e : e.getMessage(), bytes, free),
                e);
    }

    /** Extends the file, and returns its previous end. */
    synchronized long grow(String name, long bytes) {
        String what = "region '" + name + "' in " + data;
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

    synchronized long fileEnd() {
        return fileEnd;
    }

    boolean isScratch() {
        return lock == null;
    }

    Path manifestFile() {
        return folder.resolve(MANIFEST);
    }

    /** Closes them; the channel of the data waits for operations on it. */
    void close() {
        closeQuietly(file);
        budgets.give(Tier.NVME, taken);
        closeQuietly(lock);
    }
}
