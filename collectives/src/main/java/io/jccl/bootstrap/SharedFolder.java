package io.jccl.bootstrap;

import io.jccl.device.host.SharedMemoryFullException;
import io.jccl.error.JcclException;
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
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The folder of one job in a shared-memory file system, for its user alone.
 *
 * <p>Others may keep files beside it, with any name. A folder is taken for a job's, to be used or
 * deleted, only if it is a real folder of this user with mode {@code rwx------} and has the marker
 * that JCCL writes. It is deleted only if it also holds nothing but files that JCCL makes. Folders
 * get and lose their name with the marker in them, so none of ours is ever seen without.
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
    private static final long SMALL_FILES = 64 << 10;
    private static final int GATE_TRIES = 500;
    private static final long GATE_NANOS = 1_000_000;

    /** Marks a folder of ours, and is locked by who changes what others rely on. */
    private static final String MARKER = "gate";

    private static final byte[] MARK =
            "JCCL job folder, version 1\n".getBytes(StandardCharsets.US_ASCII);

    private static final Set<PosixFilePermission> FOLDER_MODE =
            PosixFilePermissions.fromString("rwx------");
    private static final FileAttribute<?> PRIVATE_FOLDER =
            PosixFilePermissions.asFileAttribute(FOLDER_MODE);
    private static final FileAttribute<?> PRIVATE_FILE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

    /** All names that this class and its users give to files. */
    private static final Pattern FILES =
            Pattern.compile(
                    MARKER
                            + "|rank-\\d+\\.lock"
                            + "|(ctl-0(\\.\\d+)*|heap-\\d+-\\d+)(\\.part)?"
                            + "|(card-\\d+-\\d+|verdict-\\d+|refused-\\d+)(\\.\\d+\\.part)?");

    private static final String STORE = "store-";
    private static final Pattern STORES = Pattern.compile(STORE + "\\d+");

    /** What a store in a folder makes of keys such as {@code world/card-0}. */
    private static final Pattern STORE_FILES =
            Pattern.compile(MARKER + "|\\.lock-\\d+|\\.part-[0-9a-f-]{36}|[\\w*+%-]+%2F[\\w*+%-]+");

    /** Who files made in a folder belong to. */
    private static final Map<Path, UserPrincipal> OWNERS = new ConcurrentHashMap<>();

    /**
     * Files that this process has locked, with their tokens. It must not open one of them again:
     * closing any channel of a file drops all locks that the process has on it (POSIX). Whoever
     * opens one to lock it, or to look, holds the monitor.
     */
    private static final Map<Path, Long> OWN = new HashMap<>();

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

    /** What is at a folder's path is not a job's folder of this user. */
    private static final class ForeignException extends IOException {
        private static final long serialVersionUID = 1L;

        ForeignException(String message) {
            super(message);
        }
    }

    private static PosixFileAttributes attributes(Path file) throws IOException {
        return Files.readAttributes(file, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    }

    /** The user to whom files belong that this process makes: asked of the file system itself. */
    private static UserPrincipal self() throws IOException {
        Path root = root();
        UserPrincipal known = OWNERS.get(root);
        if (known == null) {
            Path probe = Files.createTempFile(root, PREFIX, ".probe");
            try {
                known = Files.getOwner(probe);
            } finally {
                Files.delete(probe);
            }
            OWNERS.put(root, known);
        }
        return known;
    }

    /** Throws unless a path is a folder of this user's with a marker in it. */
    private static void checkOurs(Path folder) throws IOException {
        UserPrincipal self = self();
        PosixFileAttributes a = attributes(folder);
        if (!isPrivateFolder(a, self)) {
            throw new ForeignException(
                    "it is a "
                            + (a.isSymbolicLink()
                                    ? "symbolic link"
                                    : a.isDirectory() ? "folder" : "file")
                            + " of user "
                            + a.owner().getName()
                            + " with mode "
                            + PosixFilePermissions.toString(a.permissions())
                            + ", expected a folder of user "
                            + self.getName()
                            + " with mode "
                            + PosixFilePermissions.toString(FOLDER_MODE));
        }
        Path marker = folder.resolve(MARKER);
        if (!Files.exists(marker, LinkOption.NOFOLLOW_LINKS)
                || !isOwnFile(marker, self)
                || Files.size(marker) != MARK.length) {
            if (!attributes(folder).fileKey().equals(a.fileKey())) {
                // Another rank has moved it away, to delete it, and made a new one.
                throw new NoSuchFileException(marker.toString());
            }
            throw unmarked();
        }
    }

    private static boolean isPrivateFolder(PosixFileAttributes a, UserPrincipal self) {
        return a.isDirectory() && a.owner().equals(self) && a.permissions().equals(FOLDER_MODE);
    }

    private static boolean isOwnFile(Path file, UserPrincipal self) throws IOException {
        PosixFileAttributes a = attributes(file);
        return a.isRegularFile() && a.owner().equals(self);
    }

    private static ForeignException unmarked() {
        return new ForeignException(
                "it has no file '"
                        + MARKER
                        + "' of this version of JCCL, so something else made it");
    }

    /** Makes this folder, unless something is there already. */
    private void make() throws IOException {
        if (Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
            return;
        }
        Path made = beside(path, ".new-");
        makeMarked(made);
        try {
            Files.move(made, path, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            Files.deleteIfExists(made.resolve(MARKER));
            Files.delete(made);
            if (!Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
                throw e;
            }
            // Another rank was faster.
        }
    }

    private static Path beside(Path folder, String what) {
        return folder.resolveSibling(
                folder.getFileName()
                        + what
                        + Long.toHexString(ThreadLocalRandom.current().nextLong()));
    }

    private static void makeMarked(Path folder) throws IOException {
        Files.createDirectory(folder, PRIVATE_FOLDER);
        try (FileChannel c = open(folder.resolve(MARKER), StandardOpenOption.CREATE_NEW)) {
            c.write(ByteBuffer.wrap(MARK));
        }
    }

    /** Opens a file, for its user alone if it is made, and none that a link leads to. */
    private static FileChannel open(Path file, OpenOption... more) throws IOException {
        List<OpenOption> options = new ArrayList<>(List.of(more));
        options.addAll(
                List.of(
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE,
                        LinkOption.NOFOLLOW_LINKS));
        return FileChannel.open(file, Set.copyOf(options), PRIVATE_FILE);
    }

    /** Makes the folder of a run's store; by rank 0, before others know the number. */
    void makeStore(long nonce) {
        try {
            makeMarked(store(nonce));
        } catch (IOException e) {
            throw new UncheckedIOException("cannot make " + store(nonce), e);
        }
    }

    Path store(long nonce) {
        return path.resolve(STORE + nonce);
    }

    /** A rank's lock. */
    record Lock(FileChannel channel, long token) {}

    /**
     * Locks a rank's file for the life of this process; null if another process holds it.
     *
     * <p>The file says that the rank is joining, by a token, until {@link #joined}. Taking a lock
     * and deleting an abandoned folder exclude each other by the folder's gate: otherwise a rank
     * could lock a file that is deleted under it.
     *
     * @throws JcclException if something else than a job's folder of this user is in its place
     */
    @Nullable Lock tryLock(int rank) {
        Path file = lockFile(rank);
        try {
            make();
            try (Gate gate = Gate.enter(path)) {
                if (gate == null) {
                    return null;
                }
                if (!isHeld(rank)) {
                    // Of an earlier process; no other can come while this one is in the gate.
                    delete(Arrivals.refusal(rank));
                }
                FileChannel channel = lock(file, StandardOpenOption.CREATE);
                if (channel == null) {
                    return null;
                }
                ThreadLocalRandom random = ThreadLocalRandom.current();
                long token =
                        ProcessHandle.current().pid() << Integer.SIZE
                                | random.nextInt(1, Integer.MAX_VALUE);
                synchronized (OWN) {
                    OWN.put(file, token);
                }
                boolean done = false;
                try {
                    write(channel, token);
                    done = true;
                } finally {
                    if (!done) {
                        unlock(file, channel);
                    }
                }
                return new Lock(channel, token);
            }
        } catch (ForeignException e) {
            throw new JcclException(
                    "the ranks cannot meet in "
                            + path
                            + ": "
                            + e.getMessage()
                            + ". Give the run another name in JCCL_JOB_ID, name another folder"
                            + " than "
                            + root()
                            + " in JCCL_SHM_DIR, or remove "
                            + path
                            + " if nobody needs it",
                    e);
        } catch (NoSuchFileException e) {
            // Another rank has just deleted the folder.
            return null;
        } catch (IOException e) {
            checkSpace();
            throw new UncheckedIOException("cannot lock " + file, e);
        }
    }

    /** Throws if there is no room for the small files that every run needs. */
    private void checkSpace() {
        try {
            FileStore store = Files.getFileStore(root());
            if (store.getUsableSpace() < SMALL_FILES) {
                throw tooSmall(store, SMALL_FILES, "what ranks say of themselves");
            }
        } catch (IOException e) {
            // What failed first is what the caller hears of.
        }
    }

    private static void write(FileChannel channel, long token) throws IOException {
        channel.write(ByteBuffer.allocate(Long.BYTES).putLong(0, token), 0);
    }

    /** The process of a token. */
    static long pid(long token) {
        return token >>> Integer.SIZE;
    }

    /** Says that a rank is not joining any more. */
    void joined(int rank, Lock lock) {
        try {
            synchronized (OWN) {
                OWN.put(lockFile(rank), 0L);
            }
            write(lock.channel, 0);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + lockFile(rank), e);
        }
    }

    /** Opens and locks a file; null if somebody else holds it. */
    private static @Nullable FileChannel lock(Path file, OpenOption... options) throws IOException {
        synchronized (OWN) {
            if (OWN.putIfAbsent(file, 0L) != null) {
                return null;
            }
            FileChannel channel = null;
            boolean locked = false;
            try {
                channel = open(file, options);
                locked = channel.tryLock() != null;
            } finally {
                if (!locked) {
                    unlock(file, channel);
                }
            }
            return locked ? channel : null;
        }
    }

    private static void unlock(Path file, @Nullable FileChannel channel) throws IOException {
        synchronized (OWN) {
            try {
                if (channel != null) {
                    channel.close();
                }
            } finally {
                OWN.remove(file);
            }
        }
    }

    /** Short exclusive access to a job's folder, by its marker. */
    private record Gate(Path file, FileChannel channel) implements AutoCloseable {
        /**
         * Null if somebody else is inside, or has just deleted the folder.
         *
         * @throws ForeignException if the folder is not ours; nothing in it was touched
         */
        static @Nullable Gate enter(Path folder) throws IOException {
            Path file = folder.resolve(MARKER);
            FileChannel channel = null;
            boolean inside = false;
            try {
                checkOurs(folder);
                Object before = identity(file);
                channel = lock(file);
                // The file may have been deleted between opening and locking it: then the lock is
                // on something that nobody else can see.
                if (channel != null && before.equals(identity(file))) {
                    ByteBuffer mark = ByteBuffer.allocate(MARK.length);
                    channel.read(mark, 0);
                    if (!mark.flip().equals(ByteBuffer.wrap(MARK))) {
                        throw unmarked();
                    }
                    inside = true;
                    return new Gate(file, channel);
                }
            } catch (NoSuchFileException e) {
                // The folder was deleted meanwhile.
            } finally {
                if (!inside && channel != null) {
                    unlock(file, channel);
                }
            }
            return null;
        }

        private static Object identity(Path file) throws IOException {
            return attributes(file).fileKey();
        }

        @Override
        public void close() throws IOException {
            unlock(file, channel);
        }
    }

    /**
     * What a rank's lock shows.
     *
     * @param held whether a living process has it
     * @param token of the last process that has had it, 0 if that is not joining
     */
    record Look(boolean held, long token) {}

    /** Looks at a rank's lock. */
    Look look(int rank) {
        return look(lockFile(rank));
    }

    /** Whether a living process holds a rank's lock. */
    boolean isHeld(int rank) {
        return look(rank).held;
    }

    private static Look look(Path file) {
        synchronized (OWN) {
            Long own = OWN.get(file);
            if (own != null) {
                return new Look(true, own);
            }
            try (FileChannel c =
                    FileChannel.open(file, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
                // A shared lock, so that several ranks may look at the same time. Who is dead
                // writes no token any more, so that is read afterwards.
                FileLock lock = c.tryLock(0, Long.MAX_VALUE, true);
                ByteBuffer token = ByteBuffer.allocate(Long.BYTES);
                boolean whole = c.read(token, 0) == Long.BYTES;
                return new Look(lock == null, whole ? token.getLong(0) : 0);
            } catch (NoSuchFileException e) {
                return new Look(false, 0);
            } catch (IOException | OverlappingFileLockException e) {
                // Such as too many open files: taken to live until the next look.
                return new Look(true, 0);
            }
        }
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

    /** Writes a small file that nobody sees half written; one writer at a time has the number. */
    void put(String name, String text, int writer) {
        Path part = part(name, text, writer);
        try {
            Files.move(part, path.resolve(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + path.resolve(name), e);
        }
    }

    /** The same, unless somebody was first. */
    void putFirst(String name, String text, int writer) {
        Path part = part(name, text, writer);
        try {
            Files.createLink(path.resolve(name), part);
        } catch (FileAlreadyExistsException e) {
            // Then that counts.
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + path.resolve(name), e);
        } finally {
            delete(String.valueOf(part.getFileName()));
        }
    }

    private Path part(String name, String text, int writer) {
        Path part = path.resolve(name + "." + writer + ".part");
        try (FileChannel c =
                open(part, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING)) {
            ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
            while (bytes.hasRemaining()) {
                c.write(bytes);
            }
            return part;
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + part, e);
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
                    open(part, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING)) {
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
        try (FileChannel c = open(file)) {
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

    /** Deletes files of ours whose names start so. */
    void deleteAll(String prefix) {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(path, prefix + "*")) {
            for (Path f : files) {
                if (isNamed(f, FILES) && Files.isRegularFile(f, LinkOption.NOFOLLOW_LINKS)) {
                    Files.deleteIfExists(f);
                }
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

    /**
     * Gives up a rank's lock.
     *
     * @param delete whether to delete its file too; else others who join see that this one ended
     */
    void unlock(int rank, Lock lock, boolean delete) {
        try {
            if (delete) {
                Files.deleteIfExists(lockFile(rank));
            }
            unlock(lockFile(rank), lock.channel);
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
        for (int i = 0;
                i < GATE_TRIES && Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS);
                i++) {
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
            List<Path> files = new ArrayList<>();
            if (!collect(folder, FILES, files)) {
                return true;
            }
            for (Path f : files) {
                if (f.toString().endsWith(".lock") && look(f).held) {
                    return true;
                }
            }
            // Out of the way first: nobody is to find it without its marker.
            Path dead = beside(folder, ".old-");
            Files.move(folder, dead, StandardCopyOption.ATOMIC_MOVE);
            files.remove(gate.file);
            files.add(gate.file);
            for (Path f : files) {
                Files.deleteIfExists(dead.resolve(folder.relativize(f)));
            }
            Files.deleteIfExists(dead);
        } catch (IOException e) {
            // It is not ours, or others clean up too; nothing depends on it.
        }
        return true;
    }

    private static boolean isNamed(Path file, Pattern names) {
        return names.matcher(String.valueOf(file.getFileName())).matches();
    }

    /**
     * Lists the files of a folder, in an order in which they can be deleted. The folder of a run's
     * store is the only one that is looked into.
     *
     * @return false if there is anything that JCCL does not make
     */
    private static boolean collect(Path folder, Pattern names, List<Path> found)
            throws IOException {
        UserPrincipal self = self();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
            for (Path f : files) {
                boolean ours =
                        (names == FILES && isNamed(f, STORES))
                                ? isPrivateFolder(attributes(f), self) && collectStore(f, found)
                                : isNamed(f, names) && isOwnFile(f, self);
                if (!ours) {
                    return false;
                }
                found.add(f);
            }
        }
        return true;
    }

    private static boolean collectStore(Path store, List<Path> found) throws IOException {
        List<Path> files = new ArrayList<>();
        // Its maker may have been killed before it wrote the marker: then it is empty.
        boolean ours =
                collect(store, STORE_FILES, files)
                        && (files.isEmpty() || files.contains(store.resolve(MARKER)));
        found.addAll(files);
        return ours;
    }

    /** Deletes the folder of a run's store. */
    void deleteStore(Path store) {
        List<Path> files = new ArrayList<>();
        try {
            checkOurs(store);
            if (collectStore(store, files)) {
                for (Path f : files) {
                    Files.deleteIfExists(f);
                }
                Files.deleteIfExists(store);
            }
        } catch (IOException e) {
            // It goes when the last process leaves.
        }
    }

    /** Deletes the folder of a job by id if none of its ranks lives; used by launchers. */
    public static void removeJob(String jobId) {
        deleteIfAbandoned(new SharedFolder(jobId).path);
    }

    /** Deletes folders of this user's runs whose processes are all dead. */
    static void removeStale() {
        Instant before = Instant.now().minus(GRACE);
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(root(), PREFIX + "*")) {
            for (Path f : folders) {
                PosixFileAttributes a = attributes(f);
                if (a.isDirectory() && a.lastModifiedTime().toInstant().isBefore(before)) {
                    deleteIfAbandoned(f);
                }
            }
        } catch (IOException e) {
            // It went away since, or is another user's: the next run looks again.
        }
    }
}
