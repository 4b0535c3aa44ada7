package io.jccl.cli.shell;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * A folder for tier NVME, which is removed with everything this process creates in it, even if the
 * process is terminated. Other files in it are kept, and then so is the folder.
 */
public final class Scratch implements AutoCloseable {
    private static final Pattern FOLDERS = Pattern.compile("rank-\\d+|state[^/]*");

    /** A store's file, between being made and losing its name. */
    private static final String FILE = "scratch-" + ProcessHandle.current().pid() + "-";

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
     * @throws IllegalArgumentException if {@code within} is not a folder that can be written
     */
    public static Scratch in(@Nullable Path within, String prefix) throws IOException {
        if (within == null) {
            try {
                return new Scratch(Files.createTempDirectory(prefix));
            } catch (IOException e) {
                throw new IOException(
                        "in the folder for temporary files none can be made ("
                                + Text.message(e)
                                + "); name one with --nvme, or another with"
                                + " -Djava.io.tmpdir",
                        e);
            }
        }
        if (!Files.isDirectory(within) || !Files.isWritable(within)) {
            throw new IllegalArgumentException(
                    "--nvme '"
                            + within
                            + "' is not a folder that can be written; give an existing one");
        }
        return new Scratch(Files.createTempDirectory(within, prefix));
    }

    public Path folder() {
        return folder;
    }

    private void remove() {
        try {
            remove(folder);
        } catch (IOException e) {
            System.getLogger("io.jccl.cli")
                    .log(System.Logger.Level.WARNING, "cannot remove " + folder, e);
        }
    }

    /** Removes the folders that ranks make and their stores' files; what else is there stays. */
    private static void remove(Path folder) throws IOException {
        try (DirectoryStream<Path> all = Files.newDirectoryStream(folder)) {
            for (Path p : all) {
                String name = String.valueOf(p.getFileName());
                if (FOLDERS.matcher(name).matches()
                        && Files.isDirectory(p, LinkOption.NOFOLLOW_LINKS)) {
                    remove(p);
                } else if (name.startsWith(FILE)
                        && Files.isRegularFile(p, LinkOption.NOFOLLOW_LINKS)) {
                    Files.deleteIfExists(p);
                }
            }
        }
        Files.deleteIfExists(folder);
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
