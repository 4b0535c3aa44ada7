package io.jccl.cli.report;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;

/** Chromium, without a window. */
public final class Browser {
    private static final List<String> NAMES =
            List.of("chromium", "chromium-browser", "google-chrome");

    /** What the list in JCCL_TEST_REQUIRE calls it. */
    private static final String NEED = "chromium";

    private Browser() {}

    private static Path find() {
        Path found =
                Arrays.stream(
                                System.getenv()
                                        .getOrDefault("PATH", "")
                                        .split(File.pathSeparator, -1))
                        .flatMap(folder -> NAMES.stream().map(name -> Path.of(folder, name)))
                        .filter(Files::isExecutable)
                        .findFirst()
                        .orElse(null);
        if (found == null) {
            String reason = "none of " + NAMES + " is on the PATH; apt-get install chromium";
            String required = System.getenv().getOrDefault("JCCL_TEST_REQUIRE", "");
            if (Stream.of(required.split(",", -1)).anyMatch(r -> r.matches(NEED + "|all"))) {
                throw new AssertionError(reason + ": JCCL_TEST_REQUIRE lists " + NEED);
            }
            return Assumptions.abort(reason);
        }
        return found;
    }

    /**
     * Opens a page and runs its scripts; skips the test where there is no browser.
     *
     * @param page the file
     * @param folder for what the browser writes
     * @return the document as it is then
     * @throws IOException if the browser cannot be started
     * @throws InterruptedException if the thread is interrupted
     */
    public static String open(Path page, Path folder) throws IOException, InterruptedException {
        Path out = folder.resolve("browser.out");
        Path log = folder.resolve("browser.log");
        Process p =
                new ProcessBuilder(
                                find().toString(),
                                "--headless",
                                "--no-sandbox",
                                "--disable-gpu",
                                "--disable-dev-shm-usage",
                                "--enable-logging=stderr",
                                "--user-data-dir=" + folder.resolve("profile"),
                                "--window-size=1200,900",
                                "--dump-dom",
                                page.toUri().toString())
                        .redirectOutput(out.toFile())
                        .redirectError(log.toFile())
                        .start();
        try {
            assertTrue(p.waitFor(120, TimeUnit.SECONDS), "the browser does not end");
        } finally {
            p.destroyForcibly().waitFor();
        }
        String console =
                Files.readString(log)
                        .lines()
                        .filter(l -> l.contains(":CONSOLE"))
                        .toList()
                        .toString();
        assertTrue(console.equals("[]"), console);
        return Files.readString(out);
    }
}
