package io.jccl;

import io.jccl.error.JcclException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Files to which variables of NCCL refer, in a folder that only this user can read. */
final class SteeringFiles implements AutoCloseable {
    private final Map<String, Path> paths = new LinkedHashMap<>();
    private @Nullable Path folder;

    private SteeringFiles() {}

    /**
     * Writes the files.
     *
     * @param contents by variable; if empty, no folder is created
     * @throws JcclException if a file cannot be written
     */
    static SteeringFiles write(Map<String, String> contents) {
        SteeringFiles files = new SteeringFiles();
        if (contents.isEmpty()) {
            return files;
        }
        try {
            Path folder = Files.createTempDirectory("jccl-steering");
            files.folder = folder;
            for (Map.Entry<String, String> file : contents.entrySet()) {
                String name = file.getKey().toLowerCase(Locale.ROOT).replace('_', '-') + ".xml";
                Path path = folder.resolve(name);
                files.paths.put(file.getKey(), path);
                Files.writeString(path, file.getValue());
            }
            return files;
        } catch (IOException e) {
            files.close();
            throw new JcclException(
                    "the files for NCCL cannot be written to a folder in %s: %s"
                            .formatted(System.getProperty("java.io.tmpdir"), e),
                    e);
        }
    }

    /** The files by variable. */
    Map<String, Path> paths() {
        return paths;
    }

    @Override
    public void close() {
        if (folder == null) {
            return;
        }
        try {
            // By name: other files in the folder are not ours.
            for (Path path : paths.values()) {
                Files.deleteIfExists(path);
            }
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            // A leftover in the folder for temporary files does no harm.
            System.getLogger("io.jccl")
                    .log(System.Logger.Level.DEBUG, "cannot delete " + folder, e);
        }
    }
}
