package io.jccl.topology.read;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.TopologyFormatException;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Damaged dumps end in a graph or in a clean error. The system property {@code jccl.fuzz} sets how
 * many are tried.
 */
class FuzzTest {
    private static final int RUNS = Integer.getInteger("jccl.fuzz", 25_000);
    private static final long SEED = Long.getLong("jccl.seed", 4711);
    private static final String[] WORDS = {
        "X",
        "NV4",
        "NV12",
        "PIX",
        "SYS",
        "NODE",
        "GPU0",
        "GPU9",
        "NIC0",
        "mlx5_0",
        "CPU Affinity",
        "GPU NUMA ID",
        "N/A",
        "0-31",
        "0-1",
        "...",
        "|",
        "\t",
        "\n",
        "\r\n",
        "\u001b[4m",
        "^[[0m",
        "OK",
        "CNS",
        "Legend:",
        "C2C",
        "GPU 0: NVIDIA H100 80GB HBM3",
        "Link 0: 26.562 GB/s",
        "<inactive>",
        "```",
        "\u2026",
        "99999999999999999999",
        "NV999",
        "GPU00",
        "GPU99999",
        "-",
        ",",
        "#",
        "\u0000",
        "\ud83d",
        "\u00a0",
        "Link 5: 1e99 GB/s",
        "NIC Legend:",
        "NIC1: mlx5_7",
        "numa0",
        "PPU0",
        "ICN4"
    };

    @Test
    @Timeout(3000)
    void damageIsToldOrBridged() {
        damaged(RUNS / 50, SEED);
    }

    @Test
    @Tag("exhaustive")
    @Timeout(3000)
    void damageInEverNewPlaces() {
        damaged(RUNS, SEED);
        damaged(RUNS, Long.getLong("jccl.seed", System.nanoTime()));
    }

    private static void damaged(int runs, long seed) {
        System.out.println("FuzzTest: -Djccl.seed=" + seed);
        long graphs = 0;
        long slowest = 0;
        DumpPrinter.Style[] styles = DumpPrinter.Style.values();
        DumpPrinter.Wrap[] wraps = DumpPrinter.Wrap.values();
        String text = "";
        for (int run = 0; run < runs; run++) {
            Random random = new Random(seed + run);
            if (run % 8 == 0 || text.length() > 20_000) {
                DumpPrinter p = new DumpPrinter(random, 6, 4);
                text =
                        p.print(
                                styles[random.nextInt(styles.length)],
                                wraps[random.nextInt(wraps.length)]);
                if (random.nextInt(8) == 0) {
                    text = text.replaceAll("PIX|PXB|PHB", "OK").replaceAll("NODE|SYS|SOC", "CNS");
                }
            }
            for (int k = random.nextInt(3); k >= 0; k--) {
                text = mutate(text, random);
            }
            boolean lenient = random.nextBoolean();
            long start = System.nanoTime();
            try {
                TopologyReader.topology(text, ReadOptions.DEFAULT.withLenient(lenient));
                graphs++;
            } catch (TopologyFormatException e) {
                // This is what damage should end in.
                int length = e.toString().length();
                assertTrue(length > 60 && length < 4000, length + " characters");
            } catch (RuntimeException | StackOverflowError e) {
                throw new AssertionError("seed " + (seed + run) + ", text:\n" + text, e);
            }
            slowest = Math.max(slowest, System.nanoTime() - start);
        }
        System.out.printf(
                "seed %d: %d damaged dumps, %d of them gave a graph; the slowest took %.1f ms%n",
                seed, runs, graphs, slowest / 1e6);
        assertTrue(graphs > runs / 20, "hardly any damage was survived");
        assertTrue(graphs < runs, "no damage was found");
    }

    private static String mutate(String text, Random random) {
        int n = text.length();
        int a = n == 0 ? 0 : random.nextInt(n);
        int b = Math.min(n, a + 1 + random.nextInt(random.nextInt(5) == 0 ? 200 : 6));
        String word = WORDS[random.nextInt(WORDS.length)];
        return switch (random.nextInt(9)) {
            case 0 -> text.substring(0, a) + text.substring(b);
            case 1 -> text.substring(0, a) + word + text.substring(a);
            case 2 -> text.substring(0, a) + word + text.substring(b);
            case 3 -> text.substring(0, b) + text.substring(a);
            case 4 -> text.substring(0, a) + (char) random.nextInt(300) + text.substring(a);
            case 5 -> {
                int from = text.lastIndexOf('\n', a) + 1;
                int to = text.indexOf('\n', a);
                String line = text.substring(from, to < 0 ? n : to + 1);
                int at = text.indexOf('\n', random.nextInt(n + 1)) + 1;
                yield random.nextBoolean()
                        ? text.substring(0, from) + text.substring(from + line.length())
                        : text.substring(0, at) + line + text.substring(at);
            }
            case 6 -> text.replaceFirst("\t", random.nextBoolean() ? "" : " ");
            case 7 -> random.nextInt(20) == 0 ? text.substring(0, a) : text.replace("  ", " ");
            default -> {
                int at = text.indexOf('\t', a);
                yield at < 0 ? text : text.substring(0, at) + text.substring(at + 1);
            }
        };
    }

    @Test
    void hugeTextsAreBounded() {
        hugeTexts(30);
    }

    @Test
    @Tag("exhaustive")
    @Timeout(600)
    void textsUpToTheLimitAreBounded() {
        hugeTexts(1);
    }

    /** Texts of some MB, the largest that are read, divided by a number. */
    private static void hugeTexts(int by) {
        String cell = "NV18\t";
        String[] texts = {
            "\tGPU0\tGPU1\n" + "GPU0\n".repeat(300_000 / by),
            "GPU0 GPU1\n".repeat(90_000 / by),
            "\tGPU0\tGPU1\nGPU0\t" + cell.repeat(400_000 / by),
            "\tGPU0\tGPU1\nGPU0\t" + "NV1".repeat(1_000_000 / by),
            "\tGPU0\tGPU1\nGPU0 X " + "N\n".repeat(90_000 / by),
            "\t" + "GPU1".repeat(200_000 / by),
            "GPU" + "0".repeat(3_000_000 / by),
            "|".repeat(4_000_000 / by),
            "\u001b[".repeat(1_000_000 / by),
            "GPU 0: A\n" + "Link 0: 1 GB/s\n".repeat(90_000 / by),
            "\tGPU0\t" + "mlx5_0mlx5_".repeat(100_000 / by) + "\nGPU0 X",
            "x\n".repeat(99_000 / by) + "NIC0: a\n",
            "\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n".repeat(20_000 / by),
            "a".repeat(Text.MAX_CHARS + 1),
        };
        for (String text : texts) {
            for (boolean lenient : new boolean[] {false, true}) {
                try {
                    TopologyReader.topology(text, ReadOptions.DEFAULT.withLenient(lenient));
                } catch (TopologyFormatException e) {
                    int length = e.toString().length();
                    assertTrue(length < 4000, length + " characters");
                }
            }
        }
    }
}
