package io.jccl.cli.train;

import io.jccl.cli.shell.CsvOption;
import io.jccl.train.RunSettings;
import io.jccl.train.TrainRun;
import java.io.IOException;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Where {@code train} writes the metrics of each step while it runs. */
final class MetricsOptions {
    static final String EVENTS = "--tensorboard";

    @Option(
            names = CsvOption.NAME,
            paramLabel = "<file>",
            description =
                    "Write step, loss, learning rate and speed after each step, comma-separated;"
                            + " --resume adds to the file.")
    @Nullable Path csv;

    @Option(
            names = EVENTS,
            paramLabel = "<folder>",
            description = "Write the same as events of TensorBoard, to a new file in the folder.")
    @Nullable Path events;

    /**
     * Checks them before anything is trained.
     *
     * @throws IllegalArgumentException if they make no sense
     */
    void check(boolean compares) {
        if (compares && (csv != null || events != null)) {
            throw new IllegalArgumentException(
                    (csv != null ? CsvOption.NAME : EVENTS)
                            + " is for one run, --compare makes several; leave out one");
        }
        if (events != null) {
            TrainOptions.makeFolder(EVENTS, events);
        }
    }

    /** Writes to them, and passes everything on to another one. */
    MetricsLog log(RunSettings settings, TrainRun.Report next) throws IOException {
        Path file = null;
        if (events != null) {
            file = MetricsLog.eventFile(events);
        }
        return new MetricsLog(settings, csv, file, next);
    }
}
