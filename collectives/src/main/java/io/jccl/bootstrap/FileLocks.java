package io.jccl.bootstrap;

import io.jccl.internal.Interrupts;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Locks on files, each held by one process. The kernel releases them when the process ends for any
 * reason, so a lock distinguishes a living rank from a dead one, also across containers and
 * independently of reused process numbers.
 */
final class FileLocks {
    /**
     * Files that this process has locked, with their tokens. It must not open one of them again:
     * closing any channel of a file drops all locks that the process has on it (POSIX). A thread
     * that opens one to lock or inspect it holds the monitor.
     */
    private static final Map<Path, Long> OWN = new HashMap<>();

    private FileLocks() {}

    /**
     * State of a lock.
     *
     * @param held whether a living process holds it
     * @param token of the last process that held it, 0 if that process is not joining
     */
    record Look(boolean held, long token) {}

    /** Opens and locks a file; null if another process holds the lock. */
    static @Nullable FileChannel lock(Path file, OpenOption... options) throws IOException {
        synchronized (OWN) {
            if (OWN.putIfAbsent(file, 0L) != null) {
                return null;
            }
            FileChannel channel = null;
            boolean locked = false;
            try {
                channel = OwnFolder.open(file, options);
                locked = channel.tryLock() != null;
            } finally {
                if (!locked) {
                    unlock(file, channel);
                }
            }
            return locked ? channel : null;
        }
    }

    /** Releases a lock. */
    static void unlock(Path file, @Nullable FileChannel channel) throws IOException {
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

    /** Writes the token of a file that is locked. */
    static void write(FileChannel channel, long token) throws IOException {
        channel.write(ByteBuffer.allocate(Long.BYTES).putLong(0, token), 0);
    }

    /** The process of a token. */
    static long pid(long token) {
        return token >>> Integer.SIZE;
    }

    /** Inspects a lock. */
    static Look look(Path file) {
        synchronized (OWN) {
            Long own = OWN.get(file);
            if (own != null) {
                return new Look(true, own);
            }
            try {
                return Interrupts.shield(() -> inspect(file));
            } catch (NoSuchFileException e) {
                return new Look(false, 0);
            } catch (IOException | OverlappingFileLockException e) {
                // Such as too many open files: considered alive until the next inspection.
                return new Look(true, 0);
            }
        }
    }

    private static Look inspect(Path file) throws IOException {
        try (FileChannel c =
                FileChannel.open(file, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
            // A shared lock, so that several ranks can inspect it at the same time. A dead
            // process writes no token, so the token is read afterwards.
            FileLock lock = c.tryLock(0, Long.MAX_VALUE, true);
            ByteBuffer token = ByteBuffer.allocate(Long.BYTES);
            boolean whole = c.read(token, 0) == Long.BYTES;
            return new Look(lock == null, whole ? token.getLong(0) : 0);
        }
    }

    /** Keeps the token of a file that this process has locked. */
    static void token(Path file, long token) {
        synchronized (OWN) {
            OWN.put(file, token);
        }
    }

    /** Short exclusive access to a job's folder, by its marker. */
    record Gate(Path file, FileChannel channel) implements AutoCloseable {
        /**
         * Null if another process is inside, or has just deleted the folder.
         *
         * @throws OwnFolder.ForeignException if the folder is not ours; nothing in it was touched
         */
        static @Nullable Gate enter(Path folder) throws IOException {
            Path file = folder.resolve(OwnFolder.MARKER);
            FileChannel channel = null;
            boolean inside = false;
            try {
                OwnFolder.checkOurs(folder);
                Object before = identity(file);
                channel = lock(file);
                // The file may have been deleted between opening and locking it: then the lock is
                // on a file that no other process can find.
                if (channel != null && before.equals(identity(file))) {
                    ByteBuffer mark = ByteBuffer.allocate(OwnFolder.MARK.length);
                    channel.read(mark, 0);
                    if (!mark.flip().equals(ByteBuffer.wrap(OwnFolder.MARK))) {
                        throw OwnFolder.unmarked();
                    }
                    inside = true;
                    return new Gate(file, channel);
                }
            } catch (NoSuchFileException e) {
                // The folder was deleted in the meantime.
            } finally {
                if (!inside && channel != null) {
                    unlock(file, channel);
                }
            }
            return null;
        }

        private static Object identity(Path file) throws IOException {
            return OwnFolder.attributes(file).fileKey();
        }

        @Override
        public void close() throws IOException {
            unlock(file, channel);
        }
    }
}
