package io.jccl.topology.cost;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Machines;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Cluster;
import java.io.InputStream;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class CostModelTest {
    private static final CostModel MODEL = CostModel.nccl();
    private static final List<Integer> ALL = IntStream.range(0, 8).boxed().toList();

    private static Cluster machinesWithNics(double gbps) {
        Topology.Builder b = new Topology.Builder("one NIC");
        b.addGpu(0, 80);
        b.addGpu(1, 80);
        b.add(new Nic(b.nextId(), "mlx5_0", null, gbps));
        int sw = b.addSwitch("pcie-switch0", Switch.Kind.PCIE_SWITCH);
        for (int node = 0; node < 3; node++) {
            b.link(node, sw, LinkKind.PCIE, 1, 24, Source.DEFAULT);
        }
        return new Cluster(b.build(), 4);
    }

    @Test
    void aNicOfUnknownBandwidthIsTakenForThePlannersDefault() {
        List<Integer> both = List.of(0, 1);
        Prediction p = MODEL.tune(machinesWithNics(0), both, Operation.ALL_REDUCE).choose(1L << 30);
        Prediction fast =
                MODEL.tune(machinesWithNics(24), both, Operation.ALL_REDUCE).choose(1L << 30);
        assertTrue(p.busbwGBps() > 0.5 * LinkModel.DEFAULT_NIC, p::toString);
        assertTrue(p.busbwGBps() < 1.1 * LinkModel.DEFAULT_NIC, p::toString);
        assertTrue(fast.busbwGBps() > 1.2 * p.busbwGBps(), fast::toString);
    }

    @ParameterizedTest
    @EnumSource(Operation.class)
    void crossoversAreWhereTheChoiceChanges(Operation op) {
        for (Topology t :
                List.of(
                        Machines.dgx1v(),
                        Machines.nvswitch(8, 80, 12, 20),
                        Machines.nvswitch(8, 100, 18, 40.1),
                        Machines.pcieOnly(8, 2, 12, 10))) {
            if (op == Operation.ALL_TO_ALL && t.name().equals("DGX-1V")) {
                continue; // not every pair has a link
            }
            Tuning tuning = MODEL.tune(t, ALL, op);
            List<Crossover> ranges = tuning.crossovers(8, 1L << 34);
            assertEquals(8, ranges.getFirst().fromBytes());
            assertEquals(1L << 34, ranges.getLast().toBytes());
            for (int i = 0; i < ranges.size(); i++) {
                Crossover r = ranges.get(i);
                if (i > 0) {
                    Crossover before = ranges.get(i - 1);
                    assertEquals(before.toBytes() + 1, r.fromBytes());
                    assertNotEquals(
                            List.of(before.algorithm(), before.protocol()),
                            List.of(r.algorithm(), r.protocol()));
                }
                for (long at : new long[] {r.fromBytes(), r.toBytes()}) {
                    assertEquals(r.algorithm(), tuning.choose(at).algorithm(), () -> op + " " + r);
                    assertEquals(r.protocol(), tuning.choose(at).protocol(), () -> op + " " + r);
                }
            }
            long seed = 7;
            Random random = new Random(seed);
            for (int i = 0; i < 200; i++) {
                long at = 8L + random.nextLong(1L << (4 + random.nextInt(30)));
                Prediction p = tuning.choose(at);
                Crossover r =
                        ranges.stream()
                                .filter(x -> x.fromBytes() <= at && at <= x.toBytes())
                                .findFirst()
                                .orElseThrow();
                assertEquals(r.algorithm(), p.algorithm(), "seed " + seed + ", " + at + " bytes");
                assertEquals(r.protocol(), p.protocol(), "seed " + seed + ", " + at + " bytes");
                assertEquals(tuning.predict(at).getFirst(), p);
            }
        }
    }

    @Test
    void busbwIsAlgbwTimesTheFactor() {
        Topology machine = Machines.nvswitch(8, 90, 18, 20.6);
        for (Prediction p : MODEL.tune(machine, ALL, Operation.ALL_REDUCE).predict(1L << 30)) {
            assertEquals(p.bytes() / p.timeUs() / 1000, p.algbwGBps(), 1e-9);
            assertEquals(1.75 * p.algbwGBps(), p.busbwGBps(), 1e-9);
        }
    }

    /** What each algorithm and protocol needs. */
    @Test
    void whatIsThere() {
        assertEquals(0, count(Machines.pcieOnly(8, 2, 12, 10), Algorithm.RING, Protocol.LL128));
        assertEquals(1, count(Machines.dgx1v(), Algorithm.RING, Protocol.LL128));
        assertEquals(0, count(Machines.nvswitch(8, 80, 12, 20), Algorithm.NVLS, Protocol.SIMPLE));
        assertEquals(1, count(Machines.nvswitch(8, 90, 18, 20.6), Algorithm.NVLS, Protocol.SIMPLE));
    }

    private static long count(Topology t, Algorithm a, Protocol p) {
        return MODEL.tune(t, ALL, Operation.ALL_REDUCE).ways().stream()
                .filter(w -> w.algorithm() == a && w.protocol() == p)
                .count();
    }

    /** On a DGX-1V rings have NVLinks only, and an exchange of all pairs crosses PCIe. */
    @Test
    void eachPlanHasItsOwnLinks() {
        Tuning gather = MODEL.tune(Machines.dgx1v(), ALL, Operation.ALL_GATHER);
        Tuning scatter = MODEL.tune(Machines.dgx1v(), ALL, Operation.REDUCE_SCATTER);
        Set<Algorithm> ring = Set.of(Algorithm.RING);
        Set<Protocol> any = Set.of(Protocol.values());
        assertEquals(scatter.ways(), gather.only(ring, any).ways());
        assertEquals(scatter.choose(1 << 30).spread(), gather.choose(1 << 30).spread());
        Tuning exchange = MODEL.tune(Machines.dgx1v(), ALL, Operation.ALL_TO_ALL);
        assertTrue(exchange.choose(1 << 30).spread() > gather.choose(1 << 30).spread());
        assertEquals(
                exchange.ways().getFirst().latencyUs(),
                gather.only(Set.of(Algorithm.DIRECT), any).ways().getFirst().latencyUs());
    }

    @Test
    void crossoversUpToTheLargestSize() {
        Tuning tuning = MODEL.tune(Machines.dgx1v(), ALL, Operation.ALL_REDUCE);
        List<Crossover> ranges = tuning.crossovers(1, Long.MAX_VALUE);
        assertEquals(tuning.crossovers(1, 1L << 62).size(), ranges.size());
        assertEquals(Long.MAX_VALUE, ranges.getLast().toBytes());
        assertEquals(1, tuning.crossovers(8, 8).size());
    }

    /** NCCL 2.30's own constants, 6.6 + 14 * 0.6, and the launch. */
    @Test
    void smallestMessage() {
        Tuning tuning = MODEL.tune(Machines.nvswitch(8, 80, 12, 20), ALL, Operation.ALL_REDUCE);
        double least =
                tuning.ways().stream().mapToDouble(Tuning.Way::latencyUs).min().orElseThrow();
        assertEquals(15.0, least, 0.01);
        Prediction p = tuning.choose(8);
        assertEquals(35.0, p.timeUs(), 0.01);
        assertEquals(Protocol.LL, p.protocol());
    }

    @Test
    void boundsOfEachAlgorithm() {
        Tuning h100 = MODEL.tune(Machines.nvswitch(8, 90, 18, 20.6), ALL, Operation.ALL_REDUCE);
        List<AlgorithmBound> bounds = h100.bounds();
        assertEquals(
                List.of(Algorithm.NVLS, Algorithm.RING, Algorithm.TREE),
                bounds.stream().map(AlgorithmBound::algorithm).toList());
        // 2 (n-1) / (n+1) of what a GPU has, all of it, and 2 (n-1) / n of half of it.
        assertEquals(14.0 / 9 * 370.8, bounds.get(0).boundGBps(), 1e-6);
        assertEquals(370.8, bounds.get(1).boundGBps(), 1e-6);
        assertEquals(7.0 / 8 * 370.8, bounds.get(2).boundGBps(), 0.2 * 370.8);
        for (AlgorithmBound b : bounds) {
            assertTrue(b.busbwGBps() <= b.boundGBps(), b::toString);
            assertTrue(b.busbwGBps() > 0.5 * b.boundGBps(), b::toString);
            double large =
                    h100.only(Set.of(b.algorithm()), Set.of(Protocol.values()))
                            .choose(1L << 40)
                            .busbwGBps();
            assertEquals(b.busbwGBps(), large, 1e-3 * large, b::toString);
        }
    }

    @Test
    void onlySomeAlgorithms() {
        Tuning all = MODEL.tune(Machines.nvswitch(8, 90, 18, 20.6), ALL, Operation.ALL_REDUCE);
        assertEquals(Algorithm.NVLS, all.choose(1L << 30).algorithm());
        Tuning ring = all.only(Set.of(Algorithm.RING), Set.of(Protocol.LL, Protocol.LL128));
        assertEquals(Algorithm.RING, ring.choose(1L << 30).algorithm());
        assertEquals(Protocol.LL128, ring.choose(1L << 30).protocol());
        assertEquals(1, ring.bounds().size());
        double large = ring.choose(1L << 40).busbwGBps();
        assertEquals(large, ring.bounds().getFirst().busbwGBps(), 1e-3 * large);
        for (long size : new long[] {8, 1 << 20, 1L << 30}) {
            assertEquals(
                    all.predict(size).stream()
                            .filter(p ->
                                    p.algorithm() == Algorithm.RING
                                            && p.protocol() != Protocol.SIMPLE)
                            .toList(),
                    ring.predict(size));
        }
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> all.only(Set.of(Algorithm.PAT), Set.of(Protocol.SIMPLE)));
        assertTrue(String.valueOf(e.getMessage()).contains("NVLS SIMPLE"), e.getMessage());
    }

    /** enqueue.cc: 16 channels of 8 heads; a round is the least that NCCL has in flight. */
    @Test
    void nvlsStartsWithARound() {
        Tuning h100 = MODEL.tune(Machines.nvswitch(8, 90, 18, 20.6), ALL, Operation.ALL_REDUCE);
        Tuning nvls = h100.only(Set.of(Algorithm.NVLS), Set.of(Protocol.SIMPLE));
        Tuning.Way way = nvls.ways().getFirst();
        long[] sizes = {1 << 20, 4 << 20, 32 << 20, 128 << 20, 4L << 30};
        int[] chunk = {8, 16, 32, 64, 128}; // KiB; 1 MiB is less than a round of 16 KiB
        for (int i = 0; i < sizes.length; i++) {
            double round = 16 * 8 * 1024.0 * chunk[i];
            assertEquals(
                    20 + way.latencyUs() + (sizes[i] + round) / (1000 * way.algbwGBps()),
                    nvls.choose(sizes[i]).timeUs(),
                    1e-6,
                    sizes[i] + " bytes");
        }
    }

    @Test
    void wrongArguments() {
        Topology t = Machines.dgx1v();
        assertThrows(
                IllegalArgumentException.class,
                () -> MODEL.tune(t, List.of(0), Operation.ALL_REDUCE));
        assertThrows(
                IllegalArgumentException.class,
                () -> MODEL.tune(t, List.of(0, 8), Operation.ALL_REDUCE));
        Tuning tuning = MODEL.tune(t, ALL, Operation.ALL_REDUCE);
        assertThrows(IllegalArgumentException.class, () -> tuning.predict(0));
        assertThrows(IllegalArgumentException.class, () -> tuning.crossovers(8, 7));
    }

    @Test
    void parametersAreChecked() throws Exception {
        Properties good = new Properties();
        try (InputStream in = Parameters.class.getResourceAsStream("nccl.properties")) {
            good.load(in);
        }
        Parameters.of("good", good);
        for (String key : good.stringPropertyNames()) {
            assertFault(good, key, null, "no " + key);
            assertFault(good, key, good.getProperty(key) + " 1", key);
            assertFault(good, key, good.getProperty(key).replaceFirst("[0-9.]+", "-1"), "-1");
            assertFault(good, key, good.getProperty(key).replaceFirst("[0-9.]+", "x"), "x");
        }
        assertFault(good, "ring.speed", "1", "ring.speed");
    }

    private static void assertFault(
            Properties good, String key, @Nullable String value, String named) {
        Properties bad = new Properties();
        bad.putAll(good);
        if (value == null) {
            bad.remove(key);
        } else {
            bad.setProperty(key, value);
        }
        String message =
                "" + assertThrows(IllegalArgumentException.class, () -> Parameters.of("bad", bad));
        assertTrue(message.contains(named), message);
    }
}
