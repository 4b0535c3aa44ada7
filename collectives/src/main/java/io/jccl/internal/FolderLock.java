package io.jccl.internal;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The exclusive use of a folder: a lock on the file {@code lock} in it, which holds the id of the
 * process. The kernel releases it when the process ends for any reason. The file stays: another
 * process may be about to lock it.
 */
public final class FolderLock implements AutoCloseable {
    private static final String FILE = "lock";

    /**
     * Folders that this process has locked. File locks do not help here: closing any channel of a
     * file releases all locks of this process on it.
     */
    private static final Set<Path> OWN = ConcurrentHashMap.newKeySet();

    private final Path folder;
    private final FileChannel channel;

    private FolderLock(Path folder, FileChannel channel) {
        this.folder = folder;
        this.channel = channel;
    }

    /** The folder is in use. */
    public static final class HeldException extends IOException {
        private static final long serialVersionUID = 1;

        private final String process;

        private final boolean own;

        private HeldException(Path folder, String process, boolean own) {
            super(folder + " is in use by process " + process);
            this.process = process;
            this.own = own;
        }

        /** The id of the process that uses it. */
        public String process() {
            return process;
        }

        /** Whether that is this process; in a container another may have the same id. */
        public boolean isOwn() {
            return own;
        }
    }

    /** The file has another content than that of a lock, and was left as it is. */
    public static final class ForeignException extends IOException {
        private static final long serialVersionUID = 1;

        private final String content;

        private ForeignException(Path file, String content) {
            super(file + " is not a lock: it begins with '" + content + "'");
            this.content = content;
        }

        /** How the file begins. */
        public String content() {
            return content;
        }
    }

    /**
     * Locks a folder.
     *
     * @param folder an existing folder
     * @return the lock
     * @throws HeldException if this or another process has locked it
     * @throws ForeignException if its file {@code lock} is not ours
     * @throws java.nio.file.FileSystemException if the file cannot be opened for writing
     * @throws IOException if the file system has no locks
     */
    public static FolderLock take(Path folder) throws IOException {
        Path real = folder.toRealPath();
        if (!OWN.add(real)) {
            throw new HeldException(real, own(), true);
        }
        try {
            return new FolderLock(real, lock(real));
        } catch (IOException | RuntimeException | Error e) {
            OWN.remove(real);
            throw e;
        }
    }

    private static FileChannel lock(Path folder) throws IOException {
        Path file = file(folder);
        FileChannel channel =
                FileChannel.open(
                        file,
                        StandardOpenOption.CREATE,
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE);
        try {
            ByteBuffer text = ByteBuffer.allocate(32);
            channel.read(text, 0);
            String process =
                    new String(text.array(), 0, text.position(), StandardCharsets.US_ASCII).strip();
            if (channel.tryLock() == null) {
                throw new HeldException(folder, process.isEmpty() ? "(unknown)" : process, false);
            }
            if (!process.matches("\\d*")) {
                throw new ForeignException(file, process);
            }
            note(channel);
            return channel;
        } catch (IOException | RuntimeException | Error e) {
            close(channel);
            throw e;
        }
    }

    /** Writes who holds the lock. On a full disk the lock holds without it. */
    private static void note(FileChannel channel) {
        try {
            channel.truncate(0);
            channel.write(ByteBuffer.wrap((own() + "\n").getBytes(StandardCharsets.US_ASCII)), 0);
        } catch (IOException e) {
            // Only a message is poorer.
        }
    }

    private static String own() {
        return Long.toString(ProcessHandle.current().pid());
    }

    /**
     * The file of a lock.
     *
     * @param folder the folder
     * @return a file in it
     */
    public static Path file(Path folder) {
        return folder.resolve(FILE);
    }

    private static void close(FileChannel channel) {
        try {
            channel.close();
        } catch (IOException e) {
            // The kernel has released the lock nevertheless.
        }
    }

    @Override
    public String toString() {
        return "lock of " + folder;
    }

    /** Releases the lock. */
    @Override
    public void close() {
        close(channel);
        OWN.remove(folder);
    }
}
