package io.jccl.bootstrap;

import io.jccl.error.JcclException;
import io.jccl.internal.Interrupts;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFileAttributes;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The folder of one job in a shared-memory file system, accessible to its user only: locks of its
 * ranks, small files that they exchange, and files that they map. {@link OwnFolder} decides what
 * may be used and deleted; each rank holds a lock on its own file as long as it lives ({@link
 * FileLocks}).
 */
public final class SharedFolder {
    /** A younger folder without a locked file may belong to a job that is just starting. */
    private static final Duration GRACE = Duration.ofSeconds(30);

    private static final int GATE_TRIES = 500;
    private static final long GATE_NANOS = 1_000_000;

    private final Path path;

    SharedFolder(String jobId) {
        this.path = in(root(), jobId);
    }

    private static Path in(Path root, String jobId) {
        return root.resolve(OwnFolder.PREFIX + checkedId(jobId));
    }

    /** Parent folder of all jobs' folders. */
    public static Path root() {
        Path root = namedRoot();
        if (!Files.isDirectory(root)) {
            throw new IllegalArgumentException(
                    "the folder of shared memory (jccl.shm.dir, JCCL_SHM_DIR) is '"
                            + root
                            + "', which is not a folder; name one, such as /dev/shm");
        }
        return root;
    }

    /** The same, whether it exists or not. */
    private static Path namedRoot() {
        String set = System.getProperty("jccl.shm.dir", System.getenv("JCCL_SHM_DIR"));
        if (set != null && !set.isBlank()) {
            return Path.of(set);
        }
        Path shm = Path.of("/dev/shm");
        return Files.isDirectory(shm) ? shm : Path.of(System.getProperty("java.io.tmpdir"));
    }

    private static String checkedId(String id) {
        if (id.isEmpty() || id.length() > 200 || !id.matches("[A-Za-z0-9._-]+")) {
            throw new IllegalArgumentException(
                    "job id '"
                            + id
                            + "' is not usable, expected 1 to 200 letters, digits, '.', '_' or '-'");
        }
        return id;
    }

    Path path() {
        return path;
    }

    private Path lockFile(int rank) {
        return path.resolve("rank-" + rank + ".lock");
    }

    /** Creates the folder of a run's store; called by rank 0 before others know the number. */
    void makeStore(long nonce) {
        try {
            OwnFolder.makeMarked(store(nonce));
        } catch (IOException e) {
            throw new UncheckedIOException("cannot make " + store(nonce), e);
        }
    }

    Path store(long nonce) {
        return path.resolve(OwnFolder.STORE + nonce);
    }

    /** A rank's lock. */
    record Lock(FileChannel channel, long token) {}

    /**
     * Locks a rank's file for the life of this process; null if another process holds it.
     *
     * <p>Until {@link #joined}, a token in the file shows that the rank is joining. Taking a lock
     * and deleting an abandoned folder exclude each other by the folder's gate: otherwise a rank
     * could lock a file that is deleted under it.
     *
     * @throws JcclException if the path is occupied by something other than a job's folder of this
     *     user
     */
    @Nullable Lock tryLock(int rank) {
        Path file = lockFile(rank);
        try {
            OwnFolder.make(path);
            try (FileLocks.Gate gate = FileLocks.Gate.enter(path)) {
                if (gate == null) {
                    return null;
                }
                if (!isHeld(rank)) {
                    // Of an earlier process; no other can lock it while this one is in the gate.
                    delete(LocalHandshake.refusal(rank));
                }
                FileChannel channel = FileLocks.lock(file, StandardOpenOption.CREATE);
                if (channel == null) {
                    return null;
                }
                ThreadLocalRandom random = ThreadLocalRandom.current();
                long token =
                        ProcessHandle.current().pid() << Integer.SIZE
                                | random.nextInt(1, Integer.MAX_VALUE);
                FileLocks.token(file, token);
                boolean done = false;
                try {
                    FileLocks.write(channel, token);
                    done = true;
                } finally {
                    if (!done) {
                        FileLocks.unlock(file, channel);
                    }
                }
                return new Lock(channel, token);
            }
        } catch (OwnFolder.ForeignException e) {
            throw new JcclException(
                    ("the ranks cannot meet in %s: %s. Give the run another name in JCCL_JOB_ID,"
                                    + " name another folder than %s in JCCL_SHM_DIR, or remove %s"
                                    + " if it is not needed")
                            .formatted(path, e.getMessage(), root(), path),
                    e);
        } catch (NoSuchFileException e) {
            // Another rank has just deleted the folder.
            return null;
        } catch (IOException e) {
            SharedMemory.checkSpace();
            throw new JcclException(
                    ("the ranks cannot meet in %s: %s. Make it writable, or name another folder"
                                    + " than %s in JCCL_SHM_DIR")
                            .formatted(path, e, root()),
                    e);
        }
    }

    /** Records that a rank has joined. */
    void joined(int rank, Lock lock) {
        try {
            FileLocks.token(lockFile(rank), 0);
            FileLocks.write(lock.channel, 0);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + lockFile(rank), e);
        }
    }

    /** Inspects a rank's lock. */
    FileLocks.Look look(int rank) {
        return FileLocks.look(lockFile(rank));
    }

    /** Whether a living process holds a rank's lock. */
    boolean isHeld(int rank) {
        return look(rank).held();
    }

    /** A small file's text; null if there is none. */
    @Nullable String read(String name) {
        try {
            return Files.readString(path.resolve(name));
        } catch (NoSuchFileException e) {
            return null;
        } catch (IOException e) {
            throw new UncheckedIOException("cannot read " + path.resolve(name), e);
        }
    }

    /** Writes a small file atomically; writers at the same time have different numbers. */
    void put(String name, String text, int writer) {
        Path part = part(name, text, writer);
        try {
            Files.move(part, path.resolve(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + path.resolve(name), e);
        }
    }

    /** The same, unless the file exists. */
    void putFirst(String name, String text, int writer) {
        Path part = part(name, text, writer);
        try {
            Files.createLink(path.resolve(name), part);
        } catch (FileAlreadyExistsException e) {
            // The first one counts.
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + path.resolve(name), e);
        } finally {
            delete(String.valueOf(part.getFileName()));
        }
    }

    private Path part(String name, String text, int writer) {
        Path part = path.resolve(name + "." + writer + ".part");
        try {
            Files.deleteIfExists(part);
            return OwnFolder.write(part, text.getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + part, e);
        }
    }

    /** Creates a file of zeros with reserved memory, and maps it. */
    public MemorySegment create(String name, long bytes, Arena arena, String purpose) {
        return SharedMemory.create(path, name, bytes, arena, purpose);
    }

    /** Maps a file that another rank created; all of it if the length is negative. */
    public MemorySegment map(String name, long bytes, Arena arena) {
        return SharedMemory.map(path.resolve(name), bytes, arena);
    }

    /** The 64-bit word at an offset of a file; 0 if there is no such file or it is shorter. */
    long word(String name, long at) {
        ByteBuffer word = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.nativeOrder());
        try {
            return Interrupts.shield(() -> {
                try (FileChannel c =
                        FileChannel.open(path.resolve(name), StandardOpenOption.READ)) {
                    return c.read(word.clear(), at) == Long.BYTES ? word.getLong(0) : 0;
                }
            });
        } catch (IOException e) {
            return 0;
        }
    }

    long size(String name) {
        try {
            return Files.size(path.resolve(name));
        } catch (IOException e) {
            return -1;
        }
    }

    public void delete(String name) {
        try {
            Files.deleteIfExists(path.resolve(name));
        } catch (IOException e) {
            throw new UncheckedIOException("cannot delete " + path.resolve(name), e);
        }
    }

    /** Deletes JCCL's files whose names have a prefix. */
    void deleteAll(String prefix) {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(path, prefix + "*")) {
            for (Path f : files) {
                if (OwnFolder.isOurs(f)) {
                    Files.deleteIfExists(f);
                }
            }
        } catch (NoSuchFileException e) {
            // Another rank was faster.
        } catch (IOException e) {
            throw new UncheckedIOException("cannot clean up " + path, e);
        }
    }

    /** Deletes files of dead ranks; the caller holds rank 0's lock. */
    void deleteLeftovers(int ranks) {
        deleteAll("ctl-");
        for (int r = 0; r < ranks; r++) {
            if (r == 0 || !isHeld(r)) {
                deleteAll(PeerChunks.files(r));
            }
        }
    }

    /**
     * Releases a rank's lock.
     *
     * @param delete whether to delete its file too; otherwise joining ranks see that this one has
     *     ended
     */
    void unlock(int rank, Lock lock, boolean delete) {
        try {
            if (delete) {
                Files.deleteIfExists(lockFile(rank));
            }
            FileLocks.unlock(lockFile(rank), lock.channel);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot give up " + lockFile(rank), e);
        }
    }

    /** Deletes the folder if no living rank is left in it. */
    void deleteIfAbandoned() {
        deleteIfAbandoned(path);
    }

    private static void deleteIfAbandoned(Path folder) {
        // The thread's interrupt flag would close the files that it opens.
        long interrupted = Interrupts.notice(0, System.nanoTime());
        try {
            // A process inside the gate may have inspected this rank's lock before it was released:
            // retry.
            for (int i = 0;
                    i < GATE_TRIES
                            && Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)
                            && !tryDelete(folder);
                    i++) {
                LockSupport.parkNanos(GATE_NANOS);
            }
        } finally {
            Interrupts.restore(interrupted);
        }
    }

    /** Returns false if another process was inside the gate. */
    private static boolean tryDelete(Path folder) {
        try (FileLocks.Gate gate = FileLocks.Gate.enter(folder)) {
            if (gate == null) {
                return false;
            }
            List<Path> files = OwnFolder.list(folder);
            if (files == null) {
                return true;
            }
            for (Path f : files) {
                if (f.toString().endsWith(".lock") && FileLocks.look(f).held()) {
                    return true;
                }
            }
            // Renamed first, so that no process finds it without its marker, which stays locked
            // under its new name: other threads must not open it.
            Path dead = OwnFolder.beside(folder, OwnFolder.OLD);
            Path marker = dead.resolve(OwnFolder.MARKER);
            FileLocks.token(marker, 0);
            try {
                Files.move(folder, dead, StandardCopyOption.ATOMIC_MOVE);
                deleteMoved(dead, marker);
            } finally {
                FileLocks.unlock(marker, null);
            }
        } catch (IOException e) {
            // Not a job's folder, or others are deleting it too; nothing depends on it.
        }
        return true;
    }

    /**
     * Deletes a renamed folder. A process that ends may have written to its store after it released
     * its lock and until the renaming, so the files are listed now.
     */
    private static void deleteMoved(Path dead, Path marker) throws IOException {
        for (int i = 0; i < GATE_TRIES; i++) {
            List<Path> files = OwnFolder.list(dead);
            if (files == null) {
                return;
            }
            // Last, since it identifies the folder.
            files.remove(marker);
            if (files.isEmpty()) {
                break;
            }
            try {
                for (Path f : files) {
                    Files.deleteIfExists(f);
                }
            } catch (DirectoryNotEmptyException e) {
                // A write that was in progress while the folder was renamed.
            }
        }
        Files.deleteIfExists(marker);
        Files.deleteIfExists(dead);
    }

    /** Deletes the folder of a run's store. */
    void deleteStore(Path store) {
        try {
            List<Path> files = OwnFolder.listStore(store);
            if (files != null) {
                for (Path f : files) {
                    Files.deleteIfExists(f);
                }
                Files.deleteIfExists(store);
            }
        } catch (IOException e) {
            // It is deleted when the last process leaves.
        }
    }

    /**
     * Deletes the folder of a job if none of its ranks is alive, and temporary folders of ranks
     * that were killed while creating or deleting it; used by launchers.
     */
    public static void removeJob(String jobId) {
        // It may be gone by now, and all jobs' folders with it.
        Path root = namedRoot();
        Path folder = in(root, jobId);
        forEach(
                root,
                folder.getFileName().toString(),
                f -> {
                    if (f.equals(folder) || OwnFolder.isTemporary(folder, f)) {
                        remove(f);
                    }
                });
    }

    /** Deletes folders of this user's runs whose processes are all dead. */
    static void removeStale() {
        Instant before = Instant.now().minus(GRACE);
        forEach(
                root(),
                OwnFolder.PREFIX,
                f -> {
                    PosixFileAttributes a = OwnFolder.attributes(f);
                    if (a.isDirectory() && a.lastModifiedTime().toInstant().isBefore(before)) {
                        remove(f);
                    }
                });
    }

    private static void remove(Path folder) throws IOException {
        if (!OwnFolder.removeUnfinished(folder)) {
            deleteIfAbandoned(folder);
        }
    }

    private interface Action {
        void on(Path folder) throws IOException;
    }

    /** Visits all paths whose names have a prefix; a failure does not prevent visiting the rest. */
    private static void forEach(Path root, String prefix, Action action) {
        try (DirectoryStream<Path> found =
                Files.newDirectoryStream(
                        root, f -> f.getFileName().toString().startsWith(prefix))) {
            for (Path f : found) {
                try {
                    action.on(f);
                } catch (IOException e) {
                    // It was deleted since, or belongs to another user.
                }
            }
        } catch (IOException | DirectoryIteratorException e) {
            // The next run tries again.
        }
    }
}
