package io.jccl.cli.shell;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A folder for tier NVME, which is removed with all that is in it, also if the process is ended.
 */
public final class Scratch implements AutoCloseable {
    private final Path folder;
    private final Thread cleaner;

    private Scratch(Path folder) {
        this.folder = folder;
        this.cleaner = Thread.ofPlatform().unstarted(this::remove);
        Runtime.getRuntime().addShutdownHook(cleaner);
    }

    /**
     * Makes it.
     *
     * @param within an existing folder, what {@code --nvme} gave; null for that of temporary files
     * @param prefix how its name begins
     * @throws IllegalArgumentException if {@code within} is no folder that can be written
     */
    public static Scratch in(@Nullable Path within, String prefix) throws IOException {
        if (within == null) {
            return new Scratch(Files.createTempDirectory(prefix));
        }
        if (!Files.isDirectory(within) || !Files.isWritable(within)) {
            throw new IllegalArgumentException(
                    "--nvme '"
                            + within
                            + "' is no folder that can be written; give an existing one");
        }
        return new Scratch(Files.createTempDirectory(within, prefix));
    }

    public Path folder() {
        return folder;
    }

    private void remove() {
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path p : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(p);
            }
        } catch (IOException e) {
            System.getLogger("io.jccl.cli")
                    .log(System.Logger.Level.WARNING, "cannot remove " + folder, e);
        }
    }

    @Override
    public void close() {
        remove();
        try {
            Runtime.getRuntime().removeShutdownHook(cleaner);
        } catch (IllegalStateException e) {
            // The process is ending; it finds nothing left to remove.
        }
    }
}
