package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.bench.MatmulInputs;
import io.jccl.bench.MatmulPlan;
import io.jccl.cli.Main;
import io.jccl.cli.launch.RunCommand;
import io.jccl.cli.launch.RunCommandTest;
import io.jccl.device.Buffer;
import io.jccl.parallel.Part;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The product of matrices that do not fit the device, split over ranks. */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class MatmulCommandTest {
    @TempDir Path folder = Path.of("");

    private record Outcome(int status, String out, String err) {
        static Outcome of(Consumer<List<Buffer>> spoil, String... args) {
            StringWriter out = new StringWriter();
            StringWriter err = new StringWriter();
            int status =
                    Main.execute(
                            "matmul",
                            new MatmulCommand(spoil),
                            args,
                            new PrintWriter(out),
                            new PrintWriter(err));
            return new Outcome(status, out.toString(), err.toString());
        }

        static Outcome of(String... args) {
            return of(tiles -> {}, args);
        }
    }

    /** Sizes that are no multiples of ranks or tiles; as little memory as makes many tiles. */
    @ParameterizedTest
    @CsvSource({"1, 1, 1M", "2, 2, 1M", "97, 1, 64K", "97, 2, 64K", "101, 3, 64K", "257, 4, 96K"})
    void everyElementIsRight(int size, int ranks, String memory) throws IOException {
        Path json = folder.resolve("matmul.json");
        Outcome o =
                Outcome.of(
                        "-n",
                        "" + size,
                        "-g",
                        "" + ranks,
                        "--device-memory",
                        memory,
                        "--threads",
                        "1",
                        "--seed",
                        "5",
                        "-J",
                        json.toString());
        assertEquals("", o.err);
        assertEquals(0, o.status, o.out);
        long all = (long) size * size;
        assertTrue(o.out.contains("right (2 random vectors, " + all + " elements)"), o.out);
        JsonNode n = new ObjectMapper().readTree(Files.readString(json));
        assertEquals(all, n.get("elementsChecked").asLong());
        assertEquals(ranks, n.get("ranks").asInt());
        assertEquals(0, n.get("wrongRanks").asInt());
        JsonNode plan = n.get("plan");
        assertEquals(plan.get("receivedBytes").asLong(), n.get("receivedBytes").asLong());
        assertEquals(plan.get("toDeviceBytes").asLong(), n.get("toDeviceBytes").asLong());
        assertTrue(n.get("devicePeakBytes").asLong() <= n.get("deviceBudgetBytes").asLong(), o.out);
    }

    @Tag("exhaustive")
    @Test
    void largerOnesAreCheckedInPart() {
        Outcome o = Outcome.of("-n", "700", "-g", "2", "--device-memory", "512K");
        assertEquals(0, o.status, o.err);
        assertTrue(o.out.contains("checked: right (2 random vectors, "), o.out);
    }

    @Test
    void matricesMayLiveOnADrive() throws IOException {
        Outcome o =
                Outcome.of(
                        "-n",
                        "200",
                        "-g",
                        "3",
                        "--device-memory",
                        "96K",
                        "--tier",
                        "nvme",
                        "--nvme",
                        folder.toString());
        assertEquals("", o.err);
        assertEquals(0, o.status, o.out);
        assertTrue(o.out.contains("files under"), o.out);
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(), left.toList(), "left behind");
        }
    }

    /** One wrong element of all is found, by the vectors alone too. */
    @ParameterizedTest
    @CsvSource({"60, element", "700, times a random vector"})
    void aWrongElementIsFound(int size, String how) {
        Consumer<List<Buffer>> spoil =
                tiles -> {
                    Buffer b = tiles.getLast();
                    // At 700 not among the elements that are compared one by one.
                    long at = b.count() / 2 + 1;
                    b.set(at, b.get(at) + 1);
                };
        Outcome o = Outcome.of(spoil, "-n", "" + size, "-g", "2");
        assertEquals(1, o.status, o.out);
        assertTrue(o.err.contains("wrong result on rank"), o.err);
        assertTrue(o.err.contains(how), o.err);
        assertTrue(o.out.contains("WRONG on 2 ranks"), o.out);
    }

    @Tag("exhaustive")
    @Test
    void ranksMayBeProcesses() {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int status =
                Main.execute(
                        "run",
                        new RunCommand(
                                jccl -> jccl ? RunCommandTest.jccl() : List.of("."), Main.listed()),
                        new String[] {"-n", "3", "matmul", "-n", "150", "--device-memory", "64K"},
                        new PrintWriter(out),
                        new PrintWriter(err));
        assertEquals(0, status, err::toString);
        assertTrue(out.toString().contains("host/processes"), out::toString);
        assertTrue(out.toString().contains("right (2 random vectors, 22500 el"), out::toString);
    }

    @Test
    void mistakesAreNamed() {
        assertMistake("--size is 0", "-n", "0");
        assertMistake("--size is 2, expected at least one row", "-n", "2", "-g", "3");
        assertMistake("--device-memory is 1024 bytes", "-n", "64", "--device-memory", "1K");
        assertMistake("--tier is 'tape'", "--tier", "tape");
        assertMistake("needs --nvme", "--tier", "nvme");
        assertMistake("add --tier nvme", "--nvme", folder.toString());
        assertMistake("is not a folder", "--tier", "nvme", "--nvme", folder + "/none");
        assertMistake("/none does not exist", "-J", folder + "/none/x.json");
        assertMistake("expected 1 to 150000", "-n", "150001");
    }

    private static void assertMistake(String part, String... args) {
        Outcome o = Outcome.of(args);
        assertEquals(2, o.status, o.err);
        assertTrue(o.err.contains(part), o.err);
    }

    @Test
    void plansCoverTheMatrixWithinMemory() {
        long seed = System.nanoTime();
        System.out.println("MatmulCommandTest seed " + seed);
        Random random = new Random(seed);
        for (int round = 0; round < 2000; round++) {
            long n = 1L + random.nextInt(random.nextBoolean() ? 60_000 : 300);
            int ranks = 1 + random.nextInt((int) Math.min(n, 64));
            long memory = 30_000L + (long) (Math.pow(random.nextDouble(), 4) * 20e9);
            MatmulPlan plan;
            try {
                plan = MatmulPlan.of(n, ranks, memory);
            } catch (IllegalArgumentException e) {
                String message = String.valueOf(e.getMessage());
                memory = Long.parseLong(message.replaceAll(".* need |; raise it", ""));
                plan = MatmulPlan.of(n, ranks, memory);
            }
            String what = "seed " + seed + " round " + round + " " + plan + " in " + memory;
            assertTrue(plan.deviceBytes() <= memory, what);
            long at = 0;
            for (MatmulPlan.Panel p : plan.panels()) {
                assertEquals(at, p.from(), what);
                assertTrue(p.count() > 0 && p.count() <= plan.depth(), what);
                at += p.count();
            }
            assertEquals(n, at, what);
            at = 0;
            for (int j = 0; j < plan.strips(); j++) {
                assertEquals(at, plan.strip(j).from(), what);
                at += plan.strip(j).count();
            }
            assertEquals(n, at, what);
            for (int r : new int[] {0, ranks - 1}) {
                long rows = 0;
                for (int i = 0; i < plan.high(); i++) {
                    Part t = plan.tile(r, i);
                    assertTrue(t.count() > 0, what);
                    rows += t.count();
                }
                assertEquals(plan.rows(r).count(), rows, what);
            }
        }
        // The notes' task: 10 GB each, on four devices of 4 GiB.
        MatmulPlan task = MatmulPlan.of(50_000, 4, 4L << 30);
        assertEquals(1, task.high());
        assertEquals(35_008, MatmulPlan.of(1000, 2, 35_008).deviceBytes());
        assertThrows(IllegalArgumentException.class, () -> MatmulPlan.of(1000, 2, 35_007));
    }

    @Test
    void theFormulaIsEvenAndSeeded() {
        MatmulInputs one = new MatmulInputs(1);
        List<Integer> counts = new ArrayList<>(List.of(0, 0, 0, 0, 0, 0, 0));
        int same = 0;
        for (int i = 0; i < 300; i++) {
            for (int j = 0; j < 300; j++) {
                int v = one.value(MatmulInputs.A, i, j);
                counts.set(v + 3, counts.get(v + 3) + 1);
                same += v == new MatmulInputs(2).value(MatmulInputs.A, i, j) ? 1 : 0;
            }
        }
        for (int c : counts) {
            // 90000 / 7 = 12857, with a standard deviation of 105.
            assertTrue(Math.abs(c - 12857) < 1000, counts::toString);
        }
        assertTrue(same < 20_000, "seeds 1 and 2 share " + same);
    }
}
