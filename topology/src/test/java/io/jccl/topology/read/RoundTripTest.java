package io.jccl.topology.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Random matrices in each of the formats parse back, or are refused; never read wrongly. */
class RoundTripTest {
    private static final long SEED = Long.getLong("jccl.seed", 20_240_917);
    private static final int RUNS = 1500;
    private static final int FEW = 80;

    @ParameterizedTest
    @EnumSource
    void whatIsPrintedIsRead(DumpPrinter.Style style) {
        printedIsRead(style, FEW);
    }

    @Tag("exhaustive")
    @Test
    void manyMoreDumps() {
        for (DumpPrinter.Style style : DumpPrinter.Style.values()) {
            printedIsRead(style, RUNS);
        }
        fused(RUNS);
        broken(RUNS);
        differingHalves(RUNS);
    }

    private static void printedIsRead(DumpPrinter.Style style, int runs) {
        for (int run = 0; run < runs; run++) {
            DumpPrinter p = new DumpPrinter(new Random(SEED + run), 10, 8);
            String text = p.print(style, DumpPrinter.Wrap.NONE);
            same(p, text, ReadOptions.DEFAULT, SEED + run);
        }
    }

    @Test
    void fusedCellsAreToldApart() {
        fused(FEW);
    }

    private static void fused(int runs) {
        // Two lists of numbers that fuse in all rows cannot be told apart.
        assertTrue(refused(DumpPrinter.Wrap.FUSED, runs) <= 0.1);
    }

    @Test
    void brokenLinesAreJoined() {
        broken(FEW);
    }

    private static void broken(int runs) {
        assertTrue(refused(DumpPrinter.Wrap.BROKEN, runs) <= 0.03);
    }

    private static final String LEFT_OUT = "affinities are left out";

    /** The share of dumps that were refused; all others are read as they were printed. */
    private static double refused(DumpPrinter.Wrap wrap, int runs) {
        int refused = 0;
        String last = "";
        for (int run = 0; run < runs; run++) {
            DumpPrinter p = new DumpPrinter(new Random(SEED + run), 10, 8);
            String text = p.print(DumpPrinter.Style.TABS, wrap);
            try {
                Dump dump = TopologyReader.dump(text, ReadOptions.DEFAULT);
                // Said to be left out: no better than refused.
                if (dump.warnings().toString().contains(LEFT_OUT)) {
                    refused++;
                }
            } catch (TopologyFormatException e) {
                refused++;
                last = "seed " + (SEED + run) + ": " + e.getMessage() + "\n" + text;
                continue;
            }
            same(p, text, ReadOptions.DEFAULT, SEED + run);
        }
        System.out.println("Refused " + refused + " of " + runs + "; the last: " + last);
        return (double) refused / runs;
    }

    @Test
    void halvesThatDifferAreReported() {
        differingHalves(FEW);
    }

    private static void differingHalves(int runs) {
        for (int run = 0; run < runs; run++) {
            Random random = new Random(SEED + run);
            DumpPrinter p = new DumpPrinter(random, 8, 4);
            int n = p.names.length;
            if (n < 2) {
                continue;
            }
            int a = random.nextInt(n);
            int b = (a + 1 + random.nextInt(n - 1)) % n;
            String other = p.codes[b][a].equals("PXB") ? "NODE" : "PXB";
            p.codes[a][b] = other;
            String text = p.print(DumpPrinter.Style.TABS, DumpPrinter.Wrap.NONE);
            TopologyFormatException e =
                    assertThrows(
                            TopologyFormatException.class,
                            () -> TopologyReader.topology(text, ReadOptions.DEFAULT),
                            "seed " + (SEED + run));
            String message = e.toString();
            assertTrue(message.contains("row " + p.names[a] + ", column " + p.names[b]), message);
            assertTrue(message.contains("row " + p.names[b] + ", column " + p.names[a]), message);
            assertTrue(e.line() > 0 && e.column() > 0, message);
            Topology t = TopologyReader.topology(text, ReadOptions.DEFAULT.withLenient(true));
            assertTrue(
                    t.warnings().stream().anyMatch(w -> w.message().contains("symmetric")),
                    message);
        }
    }

    private static void same(DumpPrinter p, String text, ReadOptions options, long seed) {
        String at = "seed " + seed + "\n" + text;
        Dump dump;
        try {
            dump = TopologyReader.dump(text, options);
        } catch (TopologyFormatException e) {
            throw new AssertionError(at, e);
        }
        PathMatrix m = assertInstanceOf(PathMatrix.class, dump, at);
        assertEquals(p.gpus, m.gpus().size(), at);
        assertEquals(p.nics, m.nics().size(), at);
        for (int i = 0; i < p.names.length; i++) {
            for (int j = 0; j < p.names.length; j++) {
                assertEquals(p.codes[i][j], m.code(i, j).text(), at);
            }
        }
        for (int i = 0; i < p.gpus; i++) {
            PathMatrix.GpuRow row = m.gpus().get(i);
            assertEquals(p.names[i], row.name(), at);
            String of = "row " + row.name() + ":";
            if (m.warnings().stream()
                    .map(Warning::message)
                    .anyMatch(w -> w.startsWith(of) && w.contains(LEFT_OUT))) {
                assertNull(row.cpuAffinity(), at);
                assertNull(row.numaAffinity(), at);
                assertNull(row.gpuNumaId(), at);
                continue;
            }
            int k = p.headings.length;
            assertEquals(k > 0 ? p.lists[i][0] : null, row.cpuAffinity(), at);
            assertEquals(k > 1 ? p.lists[i][1] : null, row.numaAffinity(), at);
            assertEquals(k > 2 ? p.lists[i][2] : null, row.gpuNumaId(), at);
        }
        for (int i = 0; i < p.nics; i++) {
            PathMatrix.NicRow row = m.nics().get(i);
            assertEquals(p.names[p.gpus + i], row.name(), at);
            assertEquals(p.legend ? p.devices[p.gpus + i] : null, row.device(), at);
        }
        Topology t = TopologyReader.topology(dump, options);
        assertEquals(p.names.length, t.gpus().size() + t.nics().size(), at);
    }
}
