package io.jccl.topology.simulate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.ClusterPlan.Rail;
import io.jccl.topology.plan.ClusterPlan.Shape;
import io.jccl.topology.plan.Planner;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ClusterSimulatorTest {
    /** GPUs on NVSwitches, each with a NIC below its own PCIe switch. */
    private static Topology node(int gpus, double nvlink, double nic) {
        Topology.Builder b = new Topology.Builder(gpus + " GPUs with NICs");
        for (int i = 0; i < gpus; i++) {
            b.addGpu(i, 90);
        }
        for (int i = 0; i < gpus; i++) {
            b.add(new Nic(b.nextId(), "mlx5_" + i, null, nic));
        }
        int nvs = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        int numa = b.addSwitch("numa0", Switch.Kind.NUMA);
        for (int i = 0; i < gpus; i++) {
            b.link(i, nvs, LinkKind.NVLINK, 18, nvlink, Source.NCCL_MODEL);
            int sw = b.addSwitch("pcie" + i, Switch.Kind.PCIE_SWITCH);
            b.link(i, sw, LinkKind.PCIE, 1, 2 * nic, Source.NCCL_MODEL);
            b.link(gpus + i, sw, LinkKind.PCIE, 1, 2 * nic, Source.NCCL_MODEL);
            b.link(sw, numa, LinkKind.PCIE, 1, nic, Source.NCCL_MODEL);
        }
        return b.build();
    }

    private static List<Integer> first(int n) {
        return IntStream.range(0, n).boxed().toList();
    }

    private static ClusterPlan plan(int machines, int gpus, Operation op) {
        return Planner.plan(new Cluster(node(gpus, 370.8, 50), machines), op, first(gpus));
    }

    private static ClusterPlan with(ClusterPlan p, List<Rail> rails) {
        return new ClusterPlan(
                p.cluster(),
                p.operation(),
                p.gpus(),
                rails,
                p.bandwidthGBps(),
                p.boundGBps(),
                p.bound(),
                p.why());
    }

    /** The plan's rails as trees, whatever the planner found better. */
    private static ClusterPlan trees(ClusterPlan p) {
        List<Rail> rails = new ArrayList<>();
        for (Rail r : p.channels()) {
            for (Shape s : new Shape[] {Shape.TREE, Shape.COMPLEMENT_TREE}) {
                rails.add(new Rail(s, r.hops(), r.entry(), r.entry(), r.nicIn(), r.nicIn(), 12.5));
            }
        }
        return with(p, rails);
    }

    @ParameterizedTest
    @EnumSource(
            value = Operation.class,
            names = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "BROADCAST", "REDUCE"})
    void oneForAllIsAsAll(Operation op) {
        oneForAll(op, 3, 2);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(
            value = Operation.class,
            names = {"ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "BROADCAST", "REDUCE"})
    void oneForAllIsAsAllInMoreClusters(Operation op) {
        oneForAll(op, 6, 1, 2, 4);
    }

    private static void oneForAll(Operation op, int most, int... gpusOfAMachine) {
        for (int machines = 2; machines <= most; machines++) {
            for (int gpus : gpusOfAMachine) {
                ClusterPlan p = plan(machines, gpus, op);
                compare(p, 0.02, op + " " + machines + "x" + gpus);
            }
        }
    }

    @Test
    void treesToo() {
        treesOf(17);
    }

    @Tag("exhaustive")
    @Test
    void moreTrees() {
        treesOf(16, 33, 40, 64);
    }

    private static void treesOf(int... sizes) {
        for (int machines : sizes) {
            compare(trees(plan(machines, 2, Operation.ALL_REDUCE)), 0.05, "trees " + machines);
        }
    }

    private static void compare(ClusterPlan p, double tolerance, String what) {
        long bytes = 1L << 30;
        long chunk = bytes / 800 / p.channels().size();
        Simulation all = new ClusterSimulator(p, bytes, chunk).full();
        Simulation one = new ClusterSimulator(p, bytes, chunk).alike();
        assertTrue(all.correct(), () -> what + " " + all.faults() + " " + all.stuck());
        assertTrue(one.correct(), what);
        assertEquals(1, one.timeUs() / all.timeUs(), tolerance, what);
        assertEquals(all.ranks(), one.ranks());
    }

    @Test
    void asFastAsPlanned() {
        asFast(2);
    }

    @Tag("exhaustive")
    @Test
    void asFastAsPlannedInMoreClusters() {
        asFast(3, 4, 7);
    }

    private static void asFast(int... sizes) {
        for (int machines : sizes) {
            ClusterPlan p = plan(machines, 8, Operation.ALL_REDUCE);
            long bytes = 1L << 30;
            Simulation s = Simulator.run(p, bytes, bytes / 16_000);
            assertTrue(s.correct());
            assertTrue(
                    s.busbwGBps() > 0.95 * p.bandwidthGBps()
                            && s.busbwGBps() < 1.05 * p.boundGBps(),
                    machines + ": " + s.busbwGBps() + " of " + p.bandwidthGBps());
        }
    }

    @Test
    void wrongDataShowsInLargeClusters() {
        ClusterPlan p = plan(1000, 4, Operation.ALL_REDUCE);
        List<Rail> rails = new ArrayList<>();
        for (Rail r : p.channels()) {
            int last = r.hops().size() - 1;
            rails.add(
                    new Rail(
                            r.shape(),
                            r.hops().subList(0, last),
                            r.entry(),
                            r.hops().get(last).from(),
                            r.nicIn(),
                            r.nicOut(),
                            r.gbps()));
        }
        Simulation s = Simulator.run(with(p, rails), 1L << 30, 1L << 20);
        assertFalse(s.correct());
        assertFalse(s.faults().getFirst().missing().isEmpty());
    }

    /** 12,500 machines of 8 GPUs; with all of them in memory it would not end. */
    @Timeout(120)
    @Test
    void hundredThousandRanks() {
        for (Operation op :
                List.of(Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.BROADCAST)) {
            ClusterPlan each = plan(12_500, 8, op);
            long start = System.nanoTime();
            Simulation s = Simulator.run(each, 1L << 34, 1L << 20);
            double seconds = (System.nanoTime() - start) / 1e9;
            Runtime r = Runtime.getRuntime();
            long heap = (r.totalMemory() - r.freeMemory()) >> 20;
            System.out.printf(
                    "100,000 ranks, %s, %s: %.2f s, %d MiB of heap, %.1f GB/s of %.1f planned, %d transfers%n",
                    op,
                    each.channels().getFirst().shape(),
                    seconds,
                    heap,
                    s.busbwGBps(),
                    each.bandwidthGBps(),
                    s.transfers());
            assertTrue(s.correct());
            assertEquals(100_000, s.ranks());
            assertTrue(s.busbwGBps() > 0 && s.busbwGBps() < 1.05 * each.boundGBps());
        }
    }
}
