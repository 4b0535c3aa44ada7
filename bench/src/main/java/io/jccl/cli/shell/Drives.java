package io.jccl.cli.shell;

import io.jccl.offload.Budgets;
import io.jccl.offload.TierStore;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/** Drives that commands measure. */
public final class Drives {
    /** Alignment of buffers that go to a drive without a copy. */
    public static final int ALIGNMENT = 4096;

    private Drives() {}

    /** Space under a folder for temporary data. */
    public static TierStore scratch(Path folder) {
        return NvmeStore.open(folder, new Budgets(Map.of()), NvmeOptions.DEFAULT.withScratch(true));
    }

    /** A folder from the command line. */
    public static void checkFolder(CommandLine line, String option, Path folder) {
        if (!Files.isDirectory(folder) || !Files.isWritable(folder)) {
            throw new ParameterException(
                    line,
                    option
                            + " '"
                            + folder
                            + "' is not a folder"
                            + (Files.isDirectory(folder) ? " that this user may write to" : "")
                            + "; give an existing folder on the drive");
        }
    }

    /** Why the drive is not read and written past the page cache; null if it is, or unknown. */
    public static @Nullable String bufferedBecause(@Nullable TierStore store) {
        return store instanceof NvmeStore n ? n.bufferedBecause() : null;
    }

    public static void close(@Nullable TierStore store) throws Exception {
        if (store instanceof AutoCloseable c) {
            c.close();
        }
    }
}
