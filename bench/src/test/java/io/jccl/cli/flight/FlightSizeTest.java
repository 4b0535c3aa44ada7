package io.jccl.cli.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.cli.Main;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import jdk.jfr.Event;
import jdk.jfr.Name;
import jdk.jfr.Recording;
import jdk.jfr.StackTrace;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Recordings of a real size: 8 ranks of 100,000 operations. */
@Isolated("records all events of the JVM")
@Timeout(value = 240, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FlightSizeTest {
    private static final int RANKS = 8;
    private static final int OPERATIONS = 100_000;

    /** As the library's, so that a rank's recording takes no eight cores to make. */
    @Name("io.jccl.Collective")
    @StackTrace(false)
    static final class CollectiveEvent extends Event {
        String communicator = "host/processes:feed/0";
        int rank;
        int size = RANKS;
        long number;
        long sequence;
        String operation = "allReduce(float, sum) by direct";
        long count = 1024;
        long bytes = 4096;
        int root = -1;
        int channels;
        boolean queued;
        boolean failed;
        boolean enqueued;
    }

    private static void record(Path file, int rank, int operations) throws IOException {
        try (Recording recording = new Recording()) {
            recording.enable("io.jccl.Collective");
            recording.start();
            CollectiveEvent e = new CollectiveEvent();
            e.rank = rank;
            for (int i = 1; i <= operations; i++) {
                e.begin();
                e.number = i;
                e.sequence = i;
                // The last one of rank 5 is another.
                e.count = rank == 5 && i == operations ? 1 : 1024;
                e.end();
                e.commit();
            }
            recording.stop();
            recording.dump(file);
        }
    }

    /** Whoever is told that it is damaged looks for the fault in the wrong place. */
    @ParameterizedTest
    @ValueSource(strings = {"rank-0.jfr", "rank-0.json"})
    void fileThatDoesNotFitIntoMemoryIsNotCalledDamaged(String name, @TempDir Path folder)
            throws IOException, InterruptedException {
        Path file = folder.resolve(name);
        if (name.endsWith(".jfr")) {
            record(file, 0, 500_000);
        } else {
            String operation = "{\"number\":1,\"sequence\":1,\"name\":\"barrier\"},\n";
            Files.writeString(
                    file,
                    "{\"jcclFlight\":1,\"operations\":[" + operation.repeat(500_000) + "{}]}\n");
        }
        Path log = folder.resolve("log.txt");
        Process p =
                new ProcessBuilder(
                                Workers.command(
                                        List.of("-Xmx32m"),
                                        Main.class,
                                        "flight",
                                        folder.toString()))
                        .redirectErrorStream(true)
                        .redirectOutput(log.toFile())
                        .start();
        try {
            assertTrue(p.waitFor(120, TimeUnit.SECONDS), "jccl flight does not end");
        } finally {
            p.destroyForcibly().waitFor();
        }
        String said = Files.readString(log);
        assertEquals(2, p.exitValue(), said);
        assertTrue(said.contains("does not fit into this JVM's memory"), said);
        assertTrue(said.contains("-Xmx"), said);
    }

    @Tag("exhaustive")
    @Test
    void eightRanksOfAHundredThousandOperations(@TempDir Path folder) throws IOException {
        List<String> arguments = new ArrayList<>(List.of("flight", "--html"));
        Path page = folder.resolve("t.html");
        arguments.add(page.toString());
        for (int r = 0; r < RANKS; r++) {
            Path file = folder.resolve("rank-" + r + ".jfr");
            record(file, r, OPERATIONS);
            arguments.add(file.toString());
        }
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        long began = System.nanoTime();
        int status =
                Main.execute(
                        arguments.toArray(String[]::new),
                        new PrintWriter(out),
                        new PrintWriter(err));
        System.out.printf(
                "jccl flight, %d x %d operations: %.1f s%n",
                RANKS, OPERATIONS, (System.nanoTime() - began) / 1e9);
        assertEquals(1, status, err::toString);
        String text = out.toString();
        assertTrue(text.contains("8 ranks, 800,000 operations recorded"), text);
        assertTrue(text.contains("collective #100000 differs on rank(s) [5]"), text);
        assertTrue(Files.size(page) < 8 << 20, "the page holds a part");
    }
}
