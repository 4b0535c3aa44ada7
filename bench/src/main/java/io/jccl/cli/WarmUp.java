package io.jccl.cli;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Parameters;

/**
 * Runs what a cache of classes is to hold, for the launcher, which records one process for each
 * kind of command: those that compute, and those that report.
 */
@Command
final class WarmUp implements Callable<Integer> {
    /** A mistake in what is above; other commands report on the machine by their status. */
    private static final int USAGE = 2;

    @Parameters(index = "0", paramLabel = "<compute|report>", description = "Which commands.")
    private String kind = "";

    @Parameters(index = "1", paramLabel = "<dump>", description = "Output of nvidia-smi topo -m.")
    private @Nullable Path dump;

    @Override
    public Integer call() throws IOException {
        Path folder = Files.createTempDirectory("jccl-warm-up");
        Path picture = folder.resolve("picture");
        Map<String, String> places =
                Map.of("DUMP", String.valueOf(dump), "PICTURE", picture.toString());
        List<String> lines =
                kind.equals("compute")
                        ? List.of("all_reduce -b 8 -e 64K -f 8 -g 2 -n 2")
                        : List.of(
                                "--version",
                                "--help",
                                "all_reduce --help",
                                "plan --params 1e9",
                                "topo --file DUMP --explain --simulate",
                                "topo --file DUMP --json --gpus 0-2",
                                "topo --file DUMP --svg PICTURE",
                                "topo --file DUMP --html PICTURE",
                                "doctor");
        try {
            int status = 0;
            for (String line : lines) {
                String[] words =
                        Arrays.stream(line.split(" ", -1))
                                .map(word -> places.getOrDefault(word, word))
                                .toArray(String[]::new);
                PrintWriter nowhere = new PrintWriter(Writer.nullWriter());
                status = Math.max(status, Main.execute(words, nowhere, nowhere));
            }
            return status == USAGE ? status : 0;
        } finally {
            Files.deleteIfExists(picture);
            Files.delete(folder);
        }
    }
}
