package io.jccl.cli;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Parameters;

/**
 * Runs what a cache of classes is to hold, for the launcher, which records one process: a small
 * collective, and all that {@code topo} can write.
 */
@Command
final class WarmUp implements Callable<Integer> {
    @Parameters(paramLabel = "<dump>", description = "Output of nvidia-smi topo -m.")
    private @Nullable Path dump;

    @Override
    public Integer call() throws IOException {
        Path folder = Files.createTempDirectory("jccl-warm-up");
        String file = String.valueOf(dump);
        Path picture = folder.resolve("picture");
        List<String[]> lines =
                List.of(
                        "all_reduce -b 8 -e 64K -f 8 -g 2 -n 2".split(" ", -1),
                        new String[] {"topo", "--file", file, "--explain", "--simulate"},
                        new String[] {"topo", "--file", file, "--json", "--gpus", "0-2"},
                        new String[] {"topo", "--file", file, "--svg", picture.toString()},
                        new String[] {"topo", "--file", file, "--html", picture.toString()});
        try {
            int status = 0;
            for (String[] line : lines) {
                PrintWriter nowhere = new PrintWriter(Writer.nullWriter());
                status = Math.max(status, Main.execute(line, nowhere, nowhere));
            }
            return status;
        } finally {
            Files.deleteIfExists(picture);
            Files.delete(folder);
        }
    }
}
