package io.jccl.flight;

import io.jccl.FlightHistory;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.function.Supplier;

/** Writes a rank's history to a file when its communicator fails. */
public final class FlightDump {
    private static final System.Logger LOG = System.getLogger("io.jccl");

    private FlightDump() {}

    /** Never throws: an error is already being reported. */
    public static void leave(int rank, Supplier<FlightHistory> history) {
        try {
            Path folder = FlightSettings.folder();
            if (folder != null) {
                write(history.get(), folder);
            }
        } catch (IOException | RuntimeException e) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "cannot write the history of rank %s to the folder of %s: %s"
                            .formatted(rank, FlightSettings.FOLDER, e));
        }
    }

    private static void write(FlightHistory history, Path folder) throws IOException {
        Files.createDirectories(folder);
        String name =
                "flight-%s-rank%s.json"
                        .formatted(
                                history.communicator().replaceAll("[^A-Za-z0-9._-]", "_"),
                                history.rank());
        // Renamed into place, so that readers see a complete file.
        Path part = folder.resolve("." + name + "." + history.process());
        Files.writeString(part, history.toJson());
        Files.move(part, folder.resolve(name), StandardCopyOption.REPLACE_EXISTING);
    }
}
