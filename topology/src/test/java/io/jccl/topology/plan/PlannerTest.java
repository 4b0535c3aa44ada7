package io.jccl.topology.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Machines;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import io.jccl.topology.simulate.Simulator;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class PlannerTest {
    static List<Integer> first(int n) {
        List<Integer> gpus = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            gpus.add(i);
        }
        return gpus;
    }

    static List<Integer> set(int bits) {
        List<Integer> gpus = new ArrayList<>();
        for (int i = 0; i < 32; i++) {
            if ((bits >> i & 1) != 0) {
                gpus.add(i);
            }
        }
        return gpus;
    }

    /** Plans, and checks. */
    static Plan plan(Topology t, Operation op, List<Integer> gpus, int root) {
        Plan plan = Planner.plan(t, op, gpus, root);
        assertEquals(List.of(), Planner.check(plan), () -> plan.toString());
        return plan;
    }

    @Test
    void cubeMeshUsesEveryNvlinkBothWaysAndNoPcie() {
        Topology t = Machines.dgx1v();
        Plan plan = plan(t, Operation.ALL_REDUCE, first(8), 0);
        assertEquals(6, plan.channels().size());
        assertEquals(120, plan.bandwidthGBps(), 1e-9);
        assertEquals(120, plan.boundGBps(), 1e-9);
        double[] load = new double[2 * t.links().size()];
        for (Channel channel : plan.channels()) {
            assertInstanceOf(Channel.Ring.class, channel);
            assertEquals(20, channel.gbps());
            for (Hop hop : channel.hops()) {
                hop.route().arcs().forEach(arc -> load[arc] += 20);
            }
        }
        for (Link link : t.links()) {
            double expected = link.kind() == LinkKind.NVLINK ? link.gbps() : 0;
            assertEquals(expected, load[2 * link.id()], 1e-9, link.toString());
            assertEquals(expected, load[2 * link.id() + 1], 1e-9, link.toString());
        }
        assertEquals(plan, plan(t, Operation.ALL_REDUCE, first(8), 0), "not the same twice");
    }

    @Test
    void treesBeatRingsOnAwkwardSubsetsOfTheCubeMesh() {
        Topology t = Machines.dgx1v();
        for (int size : new int[] {3, 5, 6, 7}) {
            double most = 0;
            double sum = 0;
            int subsets = 0;
            int beaten = 0;
            double worst = 1;
            for (int bits = 1; bits < 256; bits++) {
                if (Integer.bitCount(bits) != size) {
                    continue;
                }
                List<Integer> gpus = set(bits);
                Plan trees = Planner.trees(t, Operation.ALL_REDUCE, gpus, 0).orElseThrow();
                Plan rings = Planner.rings(t, Operation.ALL_REDUCE, gpus, 0).orElseThrow();
                assertEquals(List.of(), Planner.check(trees), gpus.toString());
                assertEquals(List.of(), Planner.check(rings), gpus.toString());
                assertTrue(trees.ratio() >= 0.95, () -> gpus + ": " + trees.why());
                double gain = trees.bandwidthGBps() / rings.bandwidthGBps();
                assertTrue(gain >= 1 - 1e-9, () -> trees.why() + " against " + rings.why());
                assertTrue(trees.channels().size() <= 32);
                worst = Math.min(worst, trees.ratio());
                most = Math.max(most, gain);
                beaten += gain > 1.01 ? 1 : 0;
                sum += gain;
                subsets++;
            }
            System.out.printf(
                    "%d of 8 GPUs: %d subsets, trees / rings %.2f on average, %.2f at most,"
                            + " faster on %d; trees / bound at least %.4f%n",
                    size, subsets, sum / subsets, most, beaten, worst);
            assertEquals(subsets, beaten);
            assertTrue(most > 1.25, "of " + size);
        }
    }

    @Test
    void everySubsetRootAndOperationOfTheCubeMeshHasAPlan() {
        Topology t = Machines.dgx1v();
        for (int bits = 1; bits < 256; bits++) {
            List<Integer> gpus = set(bits);
            for (Operation op : Operation.values()) {
                int root = bits % gpus.size();
                Plan plan = plan(t, op, gpus, root);
                assertEquals(gpus.size() == 1, plan.channels().isEmpty());
                assertFalse(plan.why().isEmpty());
            }
            for (int root = 0; root < gpus.size() && gpus.size() > 1; root++) {
                Plan trees = Planner.trees(t, Operation.BROADCAST, gpus, root).orElseThrow();
                assertEquals(List.of(), Planner.check(trees), gpus.toString());
                assertEquals(1, trees.ratio(), 1e-6, () -> gpus + ": " + trees.why());
            }
        }
    }

    @Test
    void switchesReachTheBound() {
        for (int n : new int[] {2, 3, 4, 5, 6, 7, 8, 16, 17, 72}) {
            Topology t = Machines.nvswitch(n, 90, 18, 20.6);
            for (Operation op : Operation.values()) {
                Plan plan = plan(t, op, first(n), n - 1);
                assertEquals(370.8, plan.bandwidthGBps(), 1e-6, () -> plan.why().toString());
                assertEquals(1, plan.ratio(), 1e-9, () -> plan.why().toString());
            }
            Plan trees = Planner.trees(t, Operation.ALL_REDUCE, first(n), 0).orElseThrow();
            assertEquals(List.of(), Planner.check(trees));
            assertTrue(n < 8 || trees.channels().size() == 2);
            assertTrue(trees.ratio() > 0.85, () -> trees.why().toString());
        }
    }

    @Test
    void pcieTreesShareUplinks() {
        for (int n : new int[] {2, 4, 5, 8, 10, 16, 20}) {
            Topology t = Machines.pcieOnly(n, 2, 12, 10);
            Plan rings = Planner.rings(t, Operation.BROADCAST, first(n), 0).orElseThrow();
            assertEquals(List.of(), Planner.check(rings));
            // Once over the link between the sockets in each direction, or up the slots alone.
            assertEquals(n > 2 ? 10 : 12, rings.bandwidthGBps(), 1e-6, "n " + n);
            assertEquals(1, rings.ratio(), 1e-6);
            for (Operation op : Operation.values()) {
                Plan plan = plan(t, op, first(n), 0);
                assertTrue(plan.ratio() > 0.5, () -> plan.why().toString());
            }
        }
        Plan all = plan(Machines.pcieOnly(8, 2, 12, 10), Operation.ALL_REDUCE, first(8), 0);
        assertEquals(12, all.bandwidthGBps(), 0.6, "a tree need not cross the sockets twice");
    }

    @Test
    void orderAndRootAreKept() {
        Topology t = Machines.dgx1v();
        List<Integer> gpus = List.of(6, 2, 5, 1, 0);
        Plan plan = plan(t, Operation.BROADCAST, gpus, 2);
        assertEquals(gpus, plan.gpus());
        Plan trees = Planner.trees(t, Operation.REDUCE, gpus, 2).orElseThrow();
        for (Channel channel : trees.channels()) {
            assertEquals(5, ((Channel.Tree) channel).root());
        }
    }

    @Test
    void twoGpusUseAllTheirLinks() {
        Plan plan = plan(Machines.dgx1v(), Operation.ALL_REDUCE, List.of(0, 3), 0);
        assertEquals(40, plan.bandwidthGBps(), 1e-9);
        assertEquals(2, plan.channels().size());
    }

    @Test
    void oneGpuHasAnEmptyPlan() {
        for (Operation op : Operation.values()) {
            Plan plan = plan(Machines.dgx1v(), op, List.of(3), 0);
            assertEquals(List.of(), plan.channels());
            assertEquals(0, plan.bandwidthGBps());
            assertEquals(1, plan.ratio());
        }
    }

    @Test
    void badArgumentsAreNamed() {
        Topology t = Machines.dgx1v();
        refused("8", t, List.of(0, 8), 0);
        refused("-1", t, List.of(-1), 0);
        refused("twice", t, List.of(0, 1, 0), 0);
        refused("no GPUs", t, List.of(), 0);
        refused("root is 2", t, List.of(0, 1), 2);
        Topology.Builder b = new Topology.Builder("apart");
        for (int i = 0; i < 3; i++) {
            b.addGpu(i, 0);
        }
        b.link(0, 2, LinkKind.NVLINK, 1, 20, Source.DEFAULT);
        refused("{GPU0,GPU2} to {GPU1}", b.build(), List.of(0, 1, 2), 0);
    }

    private static void refused(String words, Topology t, List<Integer> gpus, int root) {
        String message =
                assertThrows(
                                IllegalArgumentException.class,
                                () -> Planner.plan(t, Operation.ALL_REDUCE, gpus, root))
                        .getMessage();
        assertTrue(String.valueOf(message).contains(words), message);
    }

    @Test
    void chainsOfNvlinksTakeTreesRatherThanRingsOverPcie() {
        Topology.Builder b = new Topology.Builder("star");
        for (int i = 0; i < 4; i++) {
            b.addGpu(i, 70);
        }
        for (int i = 1; i < 4; i++) {
            b.link(0, i, LinkKind.NVLINK, 1, 20, Source.DEFAULT);
        }
        Topology t = b.build();
        Plan plan = plan(t, Operation.ALL_REDUCE, first(4), 1);
        assertInstanceOf(Channel.Tree.class, plan.channels().getFirst());
        assertEquals(30, plan.bandwidthGBps(), 1e-6);
        assertTrue(Planner.rings(t, Operation.ALL_REDUCE, first(4), 0).isEmpty());
        String message =
                assertThrows(
                                IllegalArgumentException.class,
                                () -> Planner.plan(t, Operation.ALL_TO_ALL, first(4), 0))
                        .getMessage();
        assertTrue(String.valueOf(message).contains("alltoall"), message);
    }

    @Test
    void checkFindsErrors() {
        Plan good = plan(Machines.dgx1v(), Operation.ALL_REDUCE, first(8), 0);
        List<Channel> twice = new ArrayList<>(good.channels());
        twice.addAll(good.channels());
        assertFalse(Planner.check(with(good, good.gpus(), twice, 240, 240)).isEmpty());
        assertFalse(Planner.check(with(good, good.gpus(), good.channels(), 110, 120)).isEmpty());
        assertFalse(Planner.check(with(good, good.gpus(), good.channels(), 120, 110)).isEmpty());
        assertFalse(Planner.check(with(good, first(7), good.channels(), 120, 120)).isEmpty());
        Plan trees = Planner.trees(good.topology(), Operation.BROADCAST, first(8), 0).orElseThrow();
        Channel.Tree tree = (Channel.Tree) trees.channels().getFirst();
        List<Channel> cut =
                List.of(
                        new Channel.Tree(
                                tree.root(),
                                tree.hops().subList(0, tree.hops().size() - 1),
                                tree.gbps()));
        assertFalse(Planner.check(with(trees, trees.gpus(), cut, tree.gbps(), 120)).isEmpty());
    }

    private static Plan with(
            Plan p, List<Integer> gpus, List<Channel> channels, double gbps, double bound) {
        return new Plan(
                p.topology(), p.operation(), gpus, 0, channels, gbps, bound, p.bound(), p.why());
    }

    /**
     * Where NVLink joins some GPUs but makes no ring of them, trees use PCIe as well, or the bound
     * is that of the NVLinks.
     */
    @ParameterizedTest
    @EnumSource(
            value = Operation.class,
            names = {"ALL_REDUCE", "BROADCAST", "REDUCE"})
    void everySubsetOfACubeMeshReachesItsBound(Operation op) {
        Topology t = Machines.dgx1v();
        for (int set = 0; set < 256; set++) {
            List<Integer> gpus = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                if ((set >> i & 1) == 1) {
                    gpus.add(i);
                }
            }
            if (gpus.size() < 2) {
                continue;
            }
            Plan plan = Planner.plan(t, op, gpus, 0);
            assertEquals(1, plan.ratio(), 1e-6, op + " " + gpus + " " + plan.bound());
            assertEquals(List.of(), Planner.check(plan));
        }
    }

    @Test
    void mixedSubsetsAreFasterThanNvlinkAlone() {
        Topology t = Machines.dgx1v();
        for (List<Integer> gpus : List.of(List.of(1, 4, 5), List.of(0, 2, 5, 6, 7))) {
            for (Operation op : List.of(Operation.BROADCAST, Operation.REDUCE)) {
                Plan plan = Planner.plan(t, op, gpus, 0);
                // One NVLink of 20 GB/s, and PCIe of 12 over the link between the sockets of 10.
                assertTrue(plan.bandwidthGBps() > 20, plan.toString());
                assertTrue(Simulator.run(plan, 1 << 24, 1 << 16).correct(), plan.toString());
            }
        }
    }

    /** Where a kind of plan cannot reach the bound, the reasons tell it. */
    @Test
    void whatIsMissingIsExplained() {
        Topology t = Machines.dgx1v();
        Plan rings = Planner.plan(t, Operation.REDUCE_SCATTER, List.of(0, 3, 4), 0);
        assertTrue(rings.ratio() < 0.9);
        assertTrue(
                rings.why().stream().anyMatch(w -> w.contains("No set of rings is faster")),
                rings.why().toString());
        Plan direct = Planner.plan(t, Operation.ALL_TO_ALL, List.of(0, 1, 4, 5), 0);
        assertTrue(direct.ratio() < 0.9);
        assertTrue(
                direct.why().stream().anyMatch(w -> w.contains("Direct copies end with")),
                direct.why().toString());
    }
}
