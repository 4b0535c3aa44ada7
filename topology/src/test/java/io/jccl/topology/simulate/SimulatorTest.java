package io.jccl.topology.simulate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.Machines;
import io.jccl.topology.Operation;
import io.jccl.topology.Route;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class SimulatorTest {
    private static final long SIZE = 1L << 30;

    private static List<Integer> first(int n) {
        return IntStream.range(0, n).boxed().toList();
    }

    private static Hop hop(Topology t, int from, int to) {
        Route route = t.route(from, to);
        if (route == null) {
            throw new AssertionError("no route");
        }
        return new Hop(from, to, route);
    }

    private static Plan plan(Topology t, Operation op, List<Integer> gpus, Channel... channels) {
        return new Plan(t, op, gpus, 0, List.of(channels), 1, 1, "none", List.of());
    }

    private static Channel.Ring ring(Topology t, double gbps, int... order) {
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < order.length; i++) {
            hops.add(hop(t, order[i], order[(i + 1) % order.length]));
        }
        return new Channel.Ring(hops, gbps);
    }

    /** Every kind of plan that there is, right, and as fast as it says. */
    private static void verify(
            Topology t, Operation op, List<Integer> gpus, int root, String what) {
        List<Plan> plans = new ArrayList<>();
        plans.add(Planner.plan(t, op, gpus, root));
        Planner.rings(t, op, gpus, root).ifPresent(plans::add);
        Planner.trees(t, op, gpus, root).ifPresent(plans::add);
        Planner.exchange(t, op, gpus, root).ifPresent(plans::add);
        for (Plan p : plans) {
            // A pipeline fills while its first chunk goes from end to end: many chunks.
            boolean pipeline =
                    op == Operation.BROADCAST
                            || op == Operation.REDUCE
                            || p.channels().getFirst() instanceof Channel.Tree;
            double share = 0;
            double sum = 0;
            for (Channel c : p.channels()) {
                share = Math.max(share, c.gbps());
                sum += c.gbps();
            }
            long chunk = pipeline ? (long) (SIZE * share / sum / (50 * gpus.size())) : SIZE;
            Simulation s = Simulator.run(p, SIZE, chunk);
            assertTrue(s.correct(), () -> what + " " + p + ": " + s.faults() + ", " + s.stuck());
            assertTrue(
                    s.busbwGBps() >= 0.95 * p.bandwidthGBps(),
                    () -> what + " " + s.busbwGBps() + " of " + p.bandwidthGBps() + " " + p);
            assertTrue(
                    s.busbwGBps() <= p.boundGBps() * (1 + 1e-6),
                    () -> what + " " + s.busbwGBps() + " over " + p.boundGBps() + " " + p);
            double use = s.busiest().orElseThrow().use();
            assertTrue(use > 0.5 && use <= 1 + 1e-6, () -> what + " uses " + use);
        }
    }

    @ParameterizedTest
    @EnumSource(Operation.class)
    void machines(Operation op) {
        for (Topology t :
                List.of(
                        Machines.dgx1v(),
                        Machines.nvswitch(8, 80, 12, 20),
                        Machines.pcieOnly(8, 2, 12, 10))) {
            for (int n : new int[] {2, 3, 5, 8}) {
                // Not every pair of the cube mesh has a link.
                if (t.name().equals("DGX-1V")
                        && n > 4
                        && Planner.exchange(t, op, first(n), 0).isEmpty()
                        && Planner.rings(t, op, first(n), 0).isEmpty()) {
                    continue;
                }
                verify(t, op, first(n), n - 1, t.name() + " " + op + " " + n);
            }
        }
    }

    @Test
    void randomGraphs() {
        randomGraphs(0, 4);
    }

    @Tag("exhaustive")
    @Test
    void moreRandomGraphs() {
        randomGraphs(4, 25);
    }

    private static void randomGraphs(long from, long to) {
        for (long seed = from; seed < to; seed++) {
            Random random = new Random(seed);
            int n = 3 + random.nextInt(5);
            Topology.Builder b = new Topology.Builder("random " + seed);
            for (int i = 0; i < n; i++) {
                b.addGpu(i, 70);
            }
            for (int i = 0; i < n; i++) {
                for (int j = i + 1; j < n; j++) {
                    if (j == i + 1 || (i == 0 && j == n - 1) || random.nextInt(3) > 0) {
                        int count = 1 + random.nextInt(3);
                        b.link(i, j, LinkKind.NVLINK, count, 20.0 * count, Source.NCCL_MODEL);
                    }
                }
            }
            Topology t = b.build();
            List<Integer> gpus = new ArrayList<>(first(n));
            Collections.shuffle(gpus, random);
            for (Operation op :
                    List.of(
                            Operation.ALL_REDUCE,
                            Operation.ALL_GATHER,
                            Operation.BROADCAST,
                            Operation.REDUCE)) {
                verify(t, op, gpus, random.nextInt(n), "seed " + seed + " " + op);
            }
        }
    }

    /** 2(n-1) steps of a block each. */
    @Test
    void timeOfARing() {
        Topology t = Machines.nvswitch(4, 80, 12, 20);
        Simulation s =
                Simulator.run(
                        plan(t, Operation.ALL_REDUCE, first(4), ring(t, 240, 0, 1, 2, 3)),
                        240_000_000L,
                        1L << 40);
        assertTrue(s.correct());
        assertEquals(6 * 250, s.timeUs(), 1e-6);
        assertEquals(240, s.busbwGBps(), 1e-9);
        assertEquals(4 * 6, s.transfers());
        assertEquals(1, s.busiest().orElseThrow().use(), 1e-9);
        Simulation late =
                Simulator.run(
                        plan(t, Operation.ALL_REDUCE, first(4), ring(t, 240, 0, 1, 2, 3)),
                        240_000_000L,
                        1L << 40,
                        2);
        assertEquals(6 * 250 + 5 * 2, late.timeUs(), 1e-6);
    }

    /** A rank that a ring leaves out lacks all, and all lack it. */
    @Test
    void leftOut() {
        Topology t = Machines.nvswitch(4, 80, 12, 20);
        Simulation s =
                Simulator.run(
                        plan(t, Operation.ALL_REDUCE, first(4), ring(t, 240, 0, 1, 2)), 1000, 1000);
        assertFalse(s.correct());
        Fault fault = s.faults().stream().filter(f -> f.rank() == 0).findFirst().orElseThrow();
        assertEquals(List.of(3), fault.missing());
        assertTrue(fault.toString().contains("lacks [3]"), fault.toString());
        assertTrue(s.faults().stream().anyMatch(f -> f.rank() == 3));
    }

    @Test
    void visitedTwice() {
        Topology t = Machines.nvswitch(4, 80, 12, 20);
        Simulation s =
                Simulator.run(
                        plan(t, Operation.ALL_REDUCE, first(4), ring(t, 240, 0, 1, 2, 1, 3)),
                        1000,
                        1000);
        assertFalse(s.correct());
        assertTrue(s.faults().stream().anyMatch(f -> !f.doubled().isEmpty()), "" + s.faults());
    }

    @Test
    void brokenTrees() {
        Topology t = Machines.nvswitch(4, 80, 12, 20);
        List<Hop> lacking = List.of(hop(t, 0, 1), hop(t, 1, 2));
        List<Hop> twoParents = List.of(hop(t, 0, 1), hop(t, 0, 2), hop(t, 1, 3), hop(t, 2, 3));
        List<Hop> circle = List.of(hop(t, 0, 1), hop(t, 2, 3), hop(t, 3, 2));
        Simulation s = run(t, Operation.BROADCAST, lacking);
        assertEquals(1, s.faultCount());
        assertEquals(3, s.faults().getFirst().rank());
        assertEquals(List.of(0), s.faults().getFirst().missing());
        s = run(t, Operation.REDUCE, lacking);
        assertEquals(1, s.faultCount());
        assertEquals(0, s.faults().getFirst().rank());
        assertEquals(List.of(3), s.faults().getFirst().missing());
        s = run(t, Operation.REDUCE, twoParents);
        assertEquals(List.of(3), s.faults().getFirst().doubled());
        s = run(t, Operation.ALL_REDUCE, circle);
        assertEquals(4, s.stuck());
        assertFalse(s.correct());
        assertTrue(
                run(t, Operation.ALL_REDUCE, List.of(hop(t, 0, 1), hop(t, 1, 2), hop(t, 1, 3)))
                        .correct());
    }

    private static Simulation run(Topology t, Operation op, List<Hop> hops) {
        return Simulator.run(
                plan(t, op, first(4), new Channel.Tree(0, hops, 10)), 1_000_000, 1_000_000);
    }

    /** Two rings in the same direction over the same links: half as fast as the plan says. */
    @Test
    void overUsed() {
        Topology t = Machines.nvswitch(4, 80, 12, 20);
        Simulation s =
                Simulator.run(
                        plan(
                                t,
                                Operation.ALL_REDUCE,
                                first(4),
                                ring(t, 240, 0, 1, 2, 3),
                                ring(t, 240, 0, 1, 2, 3)),
                        SIZE,
                        SIZE);
        assertTrue(s.correct());
        assertEquals(240, s.busbwGBps(), 1e-6);
    }

    @Test
    void missingPair() {
        Topology t = Machines.nvswitch(3, 80, 12, 20);
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 3; j++) {
                if (i != j && !(i == 2 && j == 1)) {
                    hops.add(hop(t, i, j));
                }
            }
        }
        Simulation s =
                Simulator.run(
                        plan(t, Operation.ALL_TO_ALL, first(3), new Channel.Exchange(hops, 120)),
                        SIZE,
                        SIZE);
        assertEquals(1, s.faultCount());
        Fault f = s.faults().getFirst();
        assertEquals(List.of(1, 2, 1), List.of(f.rank(), f.source(), f.destination()));
        assertEquals(List.of(2), f.missing());
    }

    @Test
    void wrongArguments() {
        Topology t = Machines.nvswitch(4, 80, 12, 20);
        Plan p = plan(t, Operation.ALL_REDUCE, first(4), ring(t, 240, 0, 1, 2, 3));
        assertThrows(IllegalArgumentException.class, () -> Simulator.run(p, 0, 1));
        assertThrows(IllegalArgumentException.class, () -> Simulator.run(p, 1, 0));
        assertThrows(IllegalArgumentException.class, () -> Simulator.run(p, 1, 1, Double.NaN));
        assertThrows(IllegalArgumentException.class, () -> Simulator.run(p, 1L << 50, 1));
        assertThrows(
                IllegalArgumentException.class,
                () ->
                        Simulator.run(
                                plan(t, Operation.ALL_TO_ALL, first(4), p.channels().getFirst()),
                                8,
                                8));
        assertThrows(
                IllegalArgumentException.class,
                () ->
                        Simulator.run(
                                plan(t, Operation.ALL_REDUCE, first(3), p.channels().getFirst()),
                                8,
                                8));
    }
}
