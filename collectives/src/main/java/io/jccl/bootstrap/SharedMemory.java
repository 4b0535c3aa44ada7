package io.jccl.bootstrap;

import io.jccl.device.host.SharedMemoryFullException;
import io.jccl.internal.Interrupts;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Locale;

/** Files in shared memory that several processes map. */
final class SharedMemory {
    private static final int ZEROS = 1 << 20;
    private static final long SMALL_FILES = 64 << 10;

    private SharedMemory() {}

    /** Creates a file of zeros with reserved memory, and maps it. */
    static MemorySegment create(Path folder, String name, long bytes, Arena arena, String purpose) {
        Path file = folder.resolve(name);
        Path part = folder.resolve(name + ".part");
        try {
            MemorySegment memory =
                    Interrupts.shield(() -> createPart(folder, part, bytes, arena, purpose));
            Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
            return memory;
        } catch (IOException e) {
            String reason = e instanceof FileSystemException f ? f.getReason() : e.getMessage();
            if (reason == null) {
                throw new UncheckedIOException("cannot create " + file, e);
            }
            SharedMemoryFullException full =
                    new SharedMemoryFullException(
                            ("cannot create %s, %s for %s: %s. The file system has room: look at"
                                            + " its inodes (df -i) and quotas, and at the limits of"
                                            + " the process (ulimit -a), or name another folder in"
                                            + " JCCL_SHM_DIR")
                                    .formatted(file, size(bytes), purpose, reason));
            full.initCause(e);
            throw full;
        }
    }

    private static MemorySegment createPart(
            Path folder, Path part, long bytes, Arena arena, String purpose) throws IOException {
        // Not a FileStore, for which the JDK needs the mount: within a chroot it has no entry.
        File place = folder.toFile();
        if (place.getUsableSpace() < bytes) {
            throw tooSmall(place, bytes, purpose);
        }
        try (FileChannel c =
                OwnFolder.open(
                        part, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING)) {
            // Writing reserves the pages: with a sparse file, lack of memory would cause SIGBUS.
            fill(c, bytes);
            return c.map(MapMode.READ_WRITE, 0, bytes, arena);
        } catch (ClosedByInterruptException e) {
            Files.deleteIfExists(part);
            throw e;
        } catch (IOException e) {
            try {
                // Before the deletion: several processes may have filled it together.
                if (place.getUsableSpace() < bytes) {
                    throw tooSmall(place, bytes, purpose);
                }
                throw e;
            } finally {
                Files.deleteIfExists(part);
            }
        }
    }

    private static void fill(FileChannel c, long bytes) throws IOException {
        ByteBuffer zeros = ByteBuffer.allocateDirect((int) Math.min(ZEROS, bytes));
        for (long done = 0; done < bytes; ) {
            zeros.clear().limit((int) Math.min(zeros.capacity(), bytes - done));
            done += c.write(zeros);
        }
    }

    private static SharedMemoryFullException tooSmall(File place, long bytes, String purpose) {
        return new SharedMemoryFullException(
                ("the shared-memory file system of %s is too small: this process needs %s for"
                                + " %s, but of the %s there only %s are free. Enlarge it (docker"
                                + " run --shm-size=..., mount -o remount,size=...) or name another"
                                + " folder in JCCL_SHM_DIR")
                        .formatted(
                                SharedFolder.root(),
                                size(bytes),
                                purpose,
                                size(place.getTotalSpace()),
                                size(place.getUsableSpace())));
    }

    private static String size(long bytes) {
        return bytes < 1 << 20
                ? String.format(Locale.ROOT, "%.1f KiB", bytes / 1024.0)
                : String.format(Locale.ROOT, "%.1f MiB", bytes / 1048576.0);
    }

    /** Maps a file that another rank created. */
    static MemorySegment map(Path file, long bytes, Arena arena) {
        try {
            return Interrupts.shield(() -> {
                try (FileChannel c = OwnFolder.open(file)) {
                    return c.map(MapMode.READ_WRITE, 0, bytes < 0 ? c.size() : bytes, arena);
                }
            });
        } catch (IOException e) {
            throw new UncheckedIOException("cannot map " + file, e);
        }
    }

    /** Throws if there is no space for the small files that every run needs. */
    static void checkSpace() {
        File place = SharedFolder.root().toFile();
        // Where there is none, the caller receives the first error.
        if (place.exists() && place.getUsableSpace() < SMALL_FILES) {
            throw tooSmall(place, SMALL_FILES, "the ranks' descriptions");
        }
    }
}
