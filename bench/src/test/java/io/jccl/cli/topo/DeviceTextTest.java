package io.jccl.cli.topo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Operation;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.junit.jupiter.api.Test;

class DeviceTextTest {
    private static Findings.GpuRow gpu(int i) {
        return new Findings.GpuRow(i, "GPU" + i, null, null, null, null, null, null, null, null);
    }

    private static Findings.Pair pair(int gpu, String to, boolean toNic, String code) {
        return new Findings.Pair("GPU" + gpu, to, toNic, code, "pcie", 1, 12.0);
    }

    private static String text(int gpus, List<Findings.NicRow> nics, List<Findings.Pair> pairs) {
        List<Findings.GpuRow> rows = new ArrayList<>();
        for (int i = 0; i < gpus; i++) {
            rows.add(gpu(i));
        }
        Findings f =
                new Findings(
                        "box",
                        rows,
                        nics,
                        pairs,
                        Operation.ALL_REDUCE,
                        1,
                        List.of(),
                        null,
                        null,
                        List.of(),
                        List.of(),
                        null,
                        Answers.NONE,
                        List.of(),
                        List.of());
        return TextReport.of(f, false);
    }

    @Test
    void theNearestNicsOfEachGpu() {
        List<Findings.Pair> pairs =
                List.of(
                        pair(0, "NIC0", true, "NODE"),
                        pair(0, "NIC1", true, "PIX"),
                        pair(0, "NIC2", true, "PHB"),
                        pair(0, "NIC3", true, "PIX"),
                        pair(1, "NIC0", true, "PHB"),
                        pair(1, "NIC1", true, "SYS"),
                        pair(2, "NIC0", true, "SYS"),
                        pair(2, "GPU0", false, "PIX"));
        assertEquals(
                """
                box: 3 GPUs
                  GPU0  near NIC1 NIC3 (PIX)
                  GPU1  near NIC0 (PHB)
                  GPU2

                Between GPUs (GB/s per direction, for a pair that has the path to itself)
                  PIX  1 pair  12.0 GB/s  pcie  every pair
                """,
                text(3, List.of(), pairs));
    }

    /** A domain of 576 GPUs has half a million pairs. */
    @Test
    void allPairsAreVisitedOnce() {
        int[] visits = new int[1];
        List<Findings.Pair> pairs =
                new AbstractList<>() {
                    @Override
                    public Findings.Pair get(int index) {
                        return pair(index, "NIC" + index, true, "PIX");
                    }

                    @Override
                    public int size() {
                        return 576;
                    }

                    @Override
                    public Iterator<Findings.Pair> iterator() {
                        visits[0]++;
                        return super.iterator();
                    }
                };
        assertEquals(576, DeviceText.near(pairs).size());
        assertEquals(1, visits[0]);
    }

    @Test
    void manyPairsAreCutToALine() {
        List<Findings.Pair> pairs = new ArrayList<>();
        for (int a = 0; a < 576; a++) {
            for (int b = a + 1; b < 576; b++) {
                pairs.add(pair(a, "GPU" + b, false, a == 0 ? "PIX" : "SYS"));
            }
        }
        String text = text(576, List.of(), pairs);
        assertTrue(text.contains("PIX     575 pairs  12.0 GB/s  pcie  0-1 0-2 0-3"), text);
        assertTrue(text.contains("SYS  165025 pairs"), text);
        text.lines().forEach(line -> assertTrue(line.length() <= TextLines.WIDTH, line));
    }
}
