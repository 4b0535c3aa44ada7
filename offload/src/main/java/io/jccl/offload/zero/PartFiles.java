package io.jccl.offload.zero;

import io.jccl.internal.AtomicFile;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.regex.Pattern;

/** Unfinished files of saves: one that is written is locked, what a killed save left is not. */
final class PartFiles {
    private PartFiles() {}

    /**
     * Removes what saves of a block left in a step's folder when they were killed. An empty file
     * stays: another save may be about to lock it.
     *
     * @param block how the names of its files end, after the id of 13 digits
     */
    static void remove(Path step, String block) {
        String name = "[0-9a-f]{13}" + Pattern.quote(block + AtomicFile.PART);
        try (DirectoryStream<Path> parts =
                Files.newDirectoryStream(step, p -> p.getFileName().toString().matches(name))) {
            for (Path part : parts) {
                removeUnused(part);
            }
        } catch (IOException | DirectoryIteratorException e) {
            // The save does not need it.
        }
    }

    private static void removeUnused(Path part) {
        try (FileChannel c =
                FileChannel.open(part, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS)) {
            if (c.size() > 0 && c.tryLock() != null) {
                Files.delete(part);
            }
        } catch (IOException | OverlappingFileLockException e) {
            // What may be in use stays.
        }
    }

    /** Marks an empty file as in use until it is closed, or its process ends. */
    static void lock(FileChannel c) throws IOException {
        FileLock lock;
        try {
            lock = c.tryLock();
        } catch (IOException e) {
            return; // a file system without locks: nobody removes files there
        }
        if (lock == null) {
            throw new IOException("another process writes it; give each its own folder");
        }
    }
}
