package io.jccl.bootstrap;

import io.jccl.device.host.SharedMemoryFullException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The folder of one job in a shared-memory file system.
 *
 * <p>Each rank holds a lock on its own file for as long as it lives. The kernel drops the lock when
 * the process ends, however it ends, so a lock tells a living rank from a dead one across
 * containers and without process numbers that may have been used again.
 */
public final class SharedFolder {
    private static final String PREFIX = "jccl-";

    /** A folder without a locked file this young may belong to a job that is just starting. */
    private static final Duration GRACE = Duration.ofSeconds(30);

    private static final int ZEROS = 1 << 20;
    private static final int GATE_TRIES = 500;
    private static final long GATE_NANOS = 1_000_000;

    /**
     * Files that this process has locked. It must not open one of them again: closing any channel
     * of a file drops all locks that the process has on it (POSIX).
     */
    private static final Set<Path> OWN = ConcurrentHashMap.newKeySet();

    private final Path path;

    SharedFolder(String jobId) {
        this.path = root().resolve(PREFIX + checkedId(jobId));
    }

    /** Where jobs have their folders. */
    public static Path root() {
        String set = System.getProperty("jccl.shm.dir", System.getenv("JCCL_SHM_DIR"));
        if (set != null && !set.isBlank()) {
            Path p = Path.of(set);
            if (!Files.isDirectory(p)) {
                throw new IllegalArgumentException(
                        "jccl.shm.dir or JCCL_SHM_DIR is '" + set + "', which is no folder");
            }
            return p;
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

    /**
     * Locks a rank's file for the life of this process; null if another process holds it.
     *
     * <p>Taking a lock and deleting an abandoned folder exclude each other by the folder's gate:
     * otherwise a rank could lock a file that is deleted under it.
     */
    @Nullable FileChannel tryLock(int rank) {
        try (Gate gate = Gate.enter(path)) {
            if (gate == null) {
                return null;
            }
            return lock(lockFile(rank));
        } catch (IOException e) {
            throw new UncheckedIOException("cannot lock " + lockFile(rank), e);
        }
    }

    /** Opens and locks a file, which is made if need be; null if somebody else holds it. */
    private static @Nullable FileChannel lock(Path file) throws IOException {
        if (!OWN.add(file)) {
            return null;
        }
        FileChannel channel = null;
        boolean locked = false;
        try {
            channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
            locked = channel.tryLock() != null;
        } catch (OverlappingFileLockException e) {
            // Another thread of this process is looking whether the file is locked.
        } finally {
            if (!locked) {
                unlock(file, channel);
            }
        }
        return locked ? channel : null;
    }

    private static void unlock(Path file, @Nullable FileChannel channel) throws IOException {
        try {
            if (channel != null) {
                channel.close();
            }
        } finally {
            OWN.remove(file);
        }
    }

    /** Short exclusive access to a job's folder, which is made if need be. */
    private record Gate(Path file, FileChannel channel) implements AutoCloseable {
        private static final String NAME = "gate";

        /** Null if somebody else is inside, or has just deleted the folder. */
        static @Nullable Gate enter(Path folder) throws IOException {
            Path file = folder.resolve(NAME);
            FileChannel channel = null;
            try {
                Files.createDirectories(
                        folder,
                        PosixFilePermissions.asFileAttribute(
                                PosixFilePermissions.fromString("rwx------")));
                try {
                    Files.createFile(file);
                } catch (FileAlreadyExistsException e) {
                    // Made by another rank.
                }
                Object before = identity(file);
                channel = lock(file);
                // The file may have been deleted between opening and locking it: then the lock is
                // on something that nobody else can see.
                if (channel != null && before.equals(identity(file))) {
                    return new Gate(file, channel);
                }
            } catch (NoSuchFileException | FileAlreadyExistsException e) {
                // The folder was deleted meanwhile.
            }
            if (channel != null) {
                unlock(file, channel);
            }
            return null;
        }

        private static Object identity(Path file) throws IOException {
            return Files.readAttributes(file, BasicFileAttributes.class).fileKey();
        }

        @Override
        public void close() throws IOException {
            unlock(file, channel);
        }
    }

    /** Whether a living process holds a rank's lock. */
    boolean isHeld(int rank) {
        return isHeld(lockFile(rank));
    }

    private static boolean isHeld(Path file) {
        if (OWN.contains(file)) {
            return true;
        }
        try (FileChannel c = FileChannel.open(file, StandardOpenOption.READ)) {
            // A shared lock, so that several ranks may look at the same time.
            FileLock lock = c.tryLock(0, Long.MAX_VALUE, true);
            if (lock == null) {
                return true;
            }
            lock.release();
            return false;
        } catch (OverlappingFileLockException e) {
            // Another thread of this process is looking too: taken to live until the next look.
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    /** Creates a file of zeros whose memory is really there, and maps it. */
    public MemorySegment create(String name, long bytes, Arena arena, String purpose) {
        Path file = path.resolve(name);
        Path part = path.resolve(name + ".part");
        try {
            FileStore store = Files.getFileStore(path);
            if (store.getUsableSpace() < bytes) {
                throw tooSmall(store, bytes, purpose);
            }
            MemorySegment memory;
            try (FileChannel c =
                    FileChannel.open(
                            part,
                            StandardOpenOption.CREATE,
                            StandardOpenOption.TRUNCATE_EXISTING,
                            StandardOpenOption.READ,
                            StandardOpenOption.WRITE)) {
                // Writing reserves the pages: a sparse file would end in SIGBUS when memory is out.
                fill(c, bytes);
                memory = c.map(MapMode.READ_WRITE, 0, bytes, arena);
            } catch (IOException e) {
                Files.deleteIfExists(part);
                if (store.getUsableSpace() < bytes) {
                    throw tooSmall(store, bytes, purpose);
                }
                throw e;
            }
            Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
            return memory;
        } catch (IOException e) {
            throw new UncheckedIOException(
                    "cannot create " + file + " (" + bytes + " bytes for " + purpose + ")", e);
        }
    }

    private static void fill(FileChannel c, long bytes) throws IOException {
        ByteBuffer zeros = ByteBuffer.allocateDirect((int) Math.min(ZEROS, bytes));
        for (long done = 0; done < bytes; ) {
            zeros.clear().limit((int) Math.min(zeros.capacity(), bytes - done));
            done += c.write(zeros);
        }
    }

    private SharedMemoryFullException tooSmall(FileStore store, long bytes, String purpose)
            throws IOException {
        return new SharedMemoryFullException(
                "the shared-memory file system of "
                        + root()
                        + " is too small: "
                        + purpose
                        + " needs "
                        + mib(bytes)
                        + ", but of its "
                        + mib(store.getTotalSpace())
                        + " only "
                        + mib(store.getUsableSpace())
                        + " are free. Enlarge it (docker run --shm-size=..., mount -o"
                        + " remount,size=...) or name another folder in JCCL_SHM_DIR");
    }

    private static String mib(long bytes) {
        return String.format("%.1f MiB", bytes / 1048576.0);
    }

    /** Maps a file that another rank created. */
    public MemorySegment map(String name, long bytes, Arena arena) {
        Path file = path.resolve(name);
        try (FileChannel c =
                FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            return c.map(MapMode.READ_WRITE, 0, bytes < 0 ? c.size() : bytes, arena);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot map " + file, e);
        }
    }

    /** The 64-bit word at an offset of a file; 0 if there is no such file or it is shorter. */
    long word(String name, long at) {
        ByteBuffer word = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.nativeOrder());
        try (FileChannel c = FileChannel.open(path.resolve(name), StandardOpenOption.READ)) {
            return c.read(word, at) == Long.BYTES ? word.getLong(0) : 0;
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

    /** Deletes files whose names start so. */
    void deleteAll(String prefix) {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(path, prefix + "*")) {
            for (Path f : files) {
                Files.deleteIfExists(f);
            }
        } catch (NoSuchFileException e) {
            // Another rank was faster.
        } catch (IOException e) {
            throw new UncheckedIOException("cannot clean up " + path, e);
        }
    }

    /** Deletes what dead ranks left here; the caller holds rank 0's lock. */
    void deleteLeftovers(int ranks) {
        deleteAll("ctl-");
        for (int r = 0; r < ranks; r++) {
            if (r == 0 || !isHeld(r)) {
                deleteAll("heap-" + r + "-");
            }
        }
    }

    /** Gives up a rank's lock and deletes its file. */
    void unlock(int rank, FileChannel lock) {
        try {
            Files.deleteIfExists(lockFile(rank));
            unlock(lockFile(rank), lock);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot give up " + lockFile(rank), e);
        }
    }

    /** Deletes the folder if no living rank is left in it. */
    void deleteIfAbandoned() {
        deleteIfAbandoned(path);
    }

    private static void deleteIfAbandoned(Path folder) {
        // Whoever is inside the gate may have looked before this rank gave up its lock: look again.
        for (int i = 0; i < GATE_TRIES && Files.isDirectory(folder); i++) {
            if (tryDelete(folder)) {
                return;
            }
            LockSupport.parkNanos(GATE_NANOS);
        }
    }

    /** Returns false if somebody else was inside the gate. */
    private static boolean tryDelete(Path folder) {
        try (Gate gate = Gate.enter(folder)) {
            if (gate == null) {
                return false;
            }
            try (DirectoryStream<Path> locks = Files.newDirectoryStream(folder, "rank-*.lock")) {
                for (Path lock : locks) {
                    if (isHeld(lock)) {
                        return true;
                    }
                }
            }
            try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
                for (Path f : files) {
                    if (Files.isDirectory(f, LinkOption.NOFOLLOW_LINKS)) {
                        deleteWithFiles(f);
                    } else if (!f.endsWith(Gate.NAME)) {
                        Files.deleteIfExists(f);
                    }
                }
            }
            Files.deleteIfExists(folder.resolve(Gate.NAME));
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            // Another process has come or is cleaning up too; nothing depends on it.
        }
        return true;
    }

    /** Deletes a folder of files. */
    static void deleteWithFiles(Path folder) throws IOException {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
            for (Path f : files) {
                Files.deleteIfExists(f);
            }
        }
        Files.deleteIfExists(folder);
    }

    /** Deletes the folder of a job by id if none of its ranks lives; used by launchers. */
    public static void removeJob(String jobId) {
        deleteIfAbandoned(root().resolve(PREFIX + checkedId(jobId)));
    }

    /** Deletes folders of runs whose processes are all dead. */
    static void removeStale() {
        Instant before = Instant.now().minus(GRACE);
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(root(), PREFIX + "*")) {
            for (Path f : folders) {
                if (Files.isDirectory(f)
                        && Files.getLastModifiedTime(f).toInstant().isBefore(before)) {
                    deleteIfAbandoned(f);
                }
            }
        } catch (NotDirectoryException e) {
            // root() has checked it; it went away since.
        } catch (IOException e) {
            // Folders of other users; leave them.
        }
    }
}
