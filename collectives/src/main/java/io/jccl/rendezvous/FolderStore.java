package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import io.jccl.internal.AtomicFile;
import io.jccl.internal.Waits;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.Arrays;
import java.util.Set;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * A store with one file per value, which is replaced atomically.
 *
 * <p>An interrupt closes a channel that its thread uses, so a channel is only locked, and values
 * are read and written by methods of {@link Files} that ignore interrupts.
 */
final class FolderStore implements Store {
    /** In characters; one character of a key may take nine in the file's name. */
    private static final int LONGEST_NAME = 200;

    /** Writers of different keys rarely share a lock; writers of the same key always do. */
    private static final int LOCKS = 64;

    private static final Duration LOCK_PATIENCE = Duration.ofSeconds(30);
    private static final long POLL_NANOS = 200_000;

    /** Files are accessible to this user alone. */
    private static final FileAttribute<?> PRIVATE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

    /** File locks belong to the JVM, so its threads exclude each other by these. */
    private static final Object[] TURNS = new Object[LOCKS];

    static {
        Arrays.setAll(TURNS, i -> new Object());
    }

    private final Path folder;

    FolderStore(Path folder) {
        this.folder = folder;
        try {
            Files.createDirectories(folder);
        } catch (IOException e) {
            throw failed("be made", e);
        }
    }

    private JcclException failed(String what, IOException e) {
        return new JcclException("the store in " + folder + " cannot " + what + ": " + e, e);
    }

    private Path file(String key) {
        String name = URLEncoder.encode(Limits.key(key), StandardCharsets.UTF_8);
        name = name.replace(".", "%2E");
        if (name.length() > LONGEST_NAME) {
            throw new IllegalArgumentException(
                    "key '%s' makes a file name of %s characters, expected at most %s"
                            .formatted(key, name.length(), LONGEST_NAME));
        }
        return folder.resolve(name);
    }

    /** An action during which no other process changes the key. */
    private interface Change<T> {
        T make() throws IOException;
    }

    /** Locks a separate file, because the value's own file is replaced by each new value. */
    private <T> T locked(String key, String what, Change<T> change) {
        int number = Math.floorMod(key.hashCode(), LOCKS);
        Path file = folder.resolve(".lock-" + number);
        synchronized (TURNS[number]) {
            try (FileChannel channel = open(file);
                    FileLock lock = lock(channel, file)) {
                if (!lock.isValid()) {
                    throw new IOException("the lock of " + file + " was lost");
                }
                return change.make();
            } catch (IOException e) {
                throw failed(what + " '" + key + "'", e);
            }
        }
    }

    /** Opens a file and creates it if missing. */
    private static FileChannel open(Path file) throws IOException {
        return FileChannel.open(
                file,
                Set.of(
                        StandardOpenOption.CREATE,
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE),
                PRIVATE);
    }

    /** Gives up after a while: a process may have been stopped while it held the lock. */
    private static FileLock lock(FileChannel channel, Path file) throws IOException {
        long deadline = System.nanoTime() + LOCK_PATIENCE.toNanos();
        FileLock lock = channel.tryLock();
        while (lock == null) {
            if (System.nanoTime() > deadline) {
                throw new IOException(
                        "another process has held the lock of %s for %s; is one stopped?"
                                .formatted(file, LOCK_PATIENCE));
            }
            Waits.park(POLL_NANOS);
            lock = channel.tryLock();
        }
        return lock;
    }

    @Override
    public void set(String key, byte[] value) {
        Path file = file(key);
        Limits.value(key, value);
        boolean unused = locked(key, "take", () -> replace(file, value));
    }

    private boolean replace(Path file, byte[] value) throws IOException {
        Path part = folder.resolve(".part-" + UUID.randomUUID());
        try {
            Files.write(Files.createFile(part, PRIVATE), value);
            AtomicFile.rename(part, file);
            return true;
        } catch (IOException | RuntimeException | Error e) {
            AtomicFile.discard(part, e);
            throw e;
        }
    }

    @Override
    public boolean compareAndSet(String key, byte @Nullable [] expected, byte[] value) {
        Path file = file(key);
        Limits.value(key, value);
        return locked(
                key, "compare", () -> Arrays.equals(read(file), expected) && replace(file, value));
    }

    private static byte @Nullable [] read(Path file) throws IOException {
        try {
            return Files.readAllBytes(file);
        } catch (NoSuchFileException e) {
            return null;
        }
    }

    @Override
    public byte @Nullable [] get(String key) {
        try {
            return read(file(key));
        } catch (IOException e) {
            throw failed("give '" + key + "'", e);
        }
    }

    @Override
    public long add(String key, long delta) {
        Path file = file(key);
        return locked(
                key,
                "count",
                () -> {
                    // Written in place: readers hold the lock.
                    byte[] number = read(file);
                    if (number == null) {
                        Files.createFile(file, PRIVATE);
                        number = new byte[0];
                    }
                    boolean whole = number.length >= Long.BYTES;
                    long value = (whole ? ByteBuffer.wrap(number).getLong() : 0) + delta;
                    if (delta != 0) {
                        byte[] bytes = ByteBuffer.allocate(Long.BYTES).putLong(value).array();
                        Files.write(file, bytes, StandardOpenOption.WRITE);
                    }
                    return value;
                });
    }

    @Override
    public void close() {
        // No file is kept open.
    }

    @Override
    public String toString() {
        return "the store in " + folder;
    }
}
