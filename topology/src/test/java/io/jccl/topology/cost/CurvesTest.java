package io.jccl.topology.cost;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.Processor;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Predictions beside curves that others have published, of machines that no parameter was set by
 * unless the curve is marked "fit". What is off is in docs/topology-cost.md, which this test
 * recomputes.
 */
class CurvesTest {
    /** Sizes that are neither dominated by launches nor by the links. */
    private static final long LARGE = 256L << 20;

    /**
     * A published curve.
     *
     * @param machine as the documentation names it
     * @param build what is built for it
     * @param source where it was published
     * @param fit whether a parameter was set with it in sight
     * @param bytes sizes, ascending
     * @param us time of each
     */
    record Curve(
            String machine,
            String build,
            String source,
            boolean fit,
            List<Long> bytes,
            List<Double> us) {
        /** Measured time over predicted time, less 1, absolute. */
        double[] errors(boolean large) {
            Tuning tuning = tuning(build);
            List<Double> errors = new ArrayList<>();
            for (int i = 0; i < bytes.size(); i++) {
                if (bytes.get(i) >= LARGE == large) {
                    errors.add(Math.abs(us.get(i) / tuning.choose(bytes.get(i)).timeUs() - 1));
                }
            }
            return errors.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        }

        @Override
        public String toString() {
            return machine;
        }
    }

    private static Tuning tuning(String build) {
        Topology a100 = PublishedTest.node(80, 12, 20, 1, 25);
        Topology h100 = PublishedTest.node(90, 18, 20.6, 1, 50);
        return switch (build) {
            case "a100" -> PublishedTest.on(a100, 8);
            case "a100x2" -> PublishedTest.on(a100, 2, 8);
            case "a100-board" -> PublishedTest.on(PublishedTest.board(80, 4, 20), 4);
            case "a100-board-2" -> PublishedTest.on(PublishedTest.board(80, 4, 20), 2);
            case "h100" -> PublishedTest.on(h100, 8);
            case "h100-2" -> PublishedTest.on(h100, 2);
            case "h100x2" -> PublishedTest.on(h100, 2, 8);
            case "gb200-8" -> PublishedTest.on(PublishedTest.node(100, 18, 40.1, 1, 50), 8);
            case "gb200" -> PublishedTest.on(rack(), 72);
            case "gb200x2" -> PublishedTest.on(rack(), 2, 72);
            case "gb200x20" -> PublishedTest.on(rack(), 20, 72);
            case "rtx4090" -> PublishedTest.on(sockets(4), 4);
            case "rtx4090-8" -> PublishedTest.on(sockets(8), 8);
            default -> throw new IllegalArgumentException("nothing is built for " + build);
        };
    }

    private static Topology rack() {
        return PublishedTest.node(72, 100, 18, 40.1, 1, 50);
    }

    /** GPUs on PCIe 4.0, each on its own host bridge, four to a socket of AMD's. */
    private static Topology sockets(int gpus) {
        Topology.Builder b = new Topology.Builder(gpus + " GPUs over PCIe");
        for (int i = 0; i < gpus; i++) {
            b.addGpu(i, 89);
        }
        int[] numa = {
            b.addSwitch("numa0", Switch.Kind.NUMA), b.addSwitch("numa1", Switch.Kind.NUMA)
        };
        // The sources name AMD, not the generation: as with any such CPU, 16 GB/s between sockets.
        Processor amd = new Processor("x86_64", "AuthenticAMD", 0, 0);
        b.processor(numa[0], amd);
        b.processor(numa[1], amd);
        b.link(numa[0], numa[1], LinkKind.SMP, 1, amd.smpGbps(), Source.NCCL_MODEL);
        for (int i = 0; i < gpus; i++) {
            int bridge = b.addSwitch("host-bridge" + i, Switch.Kind.HOST_BRIDGE);
            b.link(i, bridge, LinkKind.PCIE, 1, 24, Source.NCCL_MODEL);
            b.link(bridge, numa[i / 4], LinkKind.HOST_BRIDGE, 1, 48, Source.NCCL_MODEL);
        }
        return b.build();
    }

    static List<Curve> curves() throws IOException {
        List<String> lines;
        try (InputStream in = CurvesTest.class.getResourceAsStream("curves.txt")) {
            if (in == null) {
                throw new IllegalStateException("no resource curves.txt");
            }
            lines = new String(in.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
        }
        List<Curve> curves = new ArrayList<>();
        String[] head = new String[4];
        List<Long> bytes = new ArrayList<>();
        List<Double> us = new ArrayList<>();
        for (String line : lines) {
            int colon = line.indexOf(": ");
            if (line.startsWith("#")) {
                continue;
            }
            if (colon > 0) {
                int at =
                        List.of("machine", "build", "source", "use")
                                .indexOf(line.substring(0, colon));
                head[at] = line.substring(colon + 1).strip();
            } else if (!line.isBlank()) {
                String[] words = line.split(" ", -1);
                long unit = words[0].endsWith("G") ? 1L << 30 : 1L << 20;
                bytes.add(unit * Long.parseLong(words[0].substring(0, words[0].length() - 1)));
                us.add(Double.parseDouble(words[1]));
            } else if (!bytes.isEmpty()) {
                curves.add(curve(head, bytes, us));
                bytes.clear();
                us.clear();
            }
        }
        curves.add(curve(head, bytes, us));
        return curves;
    }

    private static Curve curve(String[] head, List<Long> bytes, List<Double> us) {
        assertTrue(head[3].equals("fit") || head[3].equals("check"), head[0]);
        return new Curve(
                head[0],
                head[1],
                head[2],
                head[3].equals("fit"),
                List.copyOf(bytes),
                List.copyOf(us));
    }

    @ParameterizedTest
    @MethodSource("curves")
    void withinTheSpread(Curve c) {
        Tuning tuning = tuning(c.build());
        for (int i = 0; i < c.bytes().size(); i++) {
            Prediction p = tuning.choose(c.bytes().get(i));
            double error = Math.abs(c.us().get(i) / p.timeUs() - 1);
            assertTrue(error <= p.spread(), p + ", measured " + c.us().get(i) + " us");
        }
    }

    /** The documentation has these rows, and no others. */
    @Test
    void theTableOfTheDocumentation() throws IOException {
        List<String> rows = new ArrayList<>();
        List<Double> middle = new ArrayList<>();
        List<Double> large = new ArrayList<>();
        for (Curve c : curves()) {
            rows.add(
                    "| "
                            + c.machine()
                            + " | "
                            + cells(c.errors(false))
                            + " | "
                            + cells(c.errors(true))
                            + " | "
                            + (c.fit() ? "fit" : "")
                            + " | "
                            + c.source()
                            + " |");
            if (!c.fit()) {
                Arrays.stream(c.errors(false)).forEach(middle::add);
                Arrays.stream(c.errors(true)).forEach(large::add);
            }
        }
        rows.add(
                "| all that are not fit | "
                        + cells(sorted(middle))
                        + " | "
                        + cells(sorted(large))
                        + " | | |");
        String page = Files.readString(Path.of("../docs/topology-cost.md"));
        String start = "| curve | 1 to 128 MiB: median | worst | from 256 MiB: median | worst |";
        int at = page.indexOf(start);
        assertTrue(at >= 0, start);
        List<String> there =
                page.substring(at).lines().skip(2).takeWhile(l -> l.startsWith("|")).toList();
        assertEquals(String.join("\n", rows), String.join("\n", there));
    }

    private static double[] sorted(List<Double> errors) {
        return errors.stream().mapToDouble(Double::doubleValue).sorted().toArray();
    }

    private static String cells(double[] errors) {
        return errors.length == 0
                ? "– | –"
                : Stream.of(errors[errors.length / 2], errors[errors.length - 1])
                        .map(e -> String.format(Locale.ROOT, "%.0f%%", 100 * e))
                        .reduce((a, b) -> a + " | " + b)
                        .orElseThrow();
    }
}
