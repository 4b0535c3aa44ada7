package io.jccl.topology.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Random machines. The seed of each is in the message of a failure. */
class PlannerPropertyTest {
    private static final int MACHINES = 600;
    private static final int FEW = 80;

    /** NVLinks at random over a random tree of PCIe switches; sometimes sockets in a cycle. */
    private static Topology machine(Random random, boolean pcie) {
        int n = 2 + random.nextInt(7);
        Topology.Builder b = new Topology.Builder("random");
        for (int i = 0; i < n; i++) {
            b.addGpu(i, 70);
        }
        if (pcie) {
            int switches = 1 + random.nextInt(4);
            int first = b.nextId();
            for (int s = 0; s < switches; s++) {
                int sw = b.addSwitch("switch" + s, Switch.Kind.PCIE_SWITCH);
                if (s > 0) {
                    int above = first + random.nextInt(s);
                    double gbps = 6 + random.nextInt(20);
                    b.link(sw, above, LinkKind.PCIE, 1, gbps, Source.DEFAULT);
                }
            }
            if (switches > 2 && random.nextInt(4) == 0) {
                b.link(first, first + switches - 1, LinkKind.SMP, 1, 7, Source.DEFAULT);
            }
            for (int i = 0; i < n; i++) {
                int at = first + random.nextInt(switches);
                b.link(i, at, LinkKind.PCIE, 1, 12, Source.DEFAULT);
            }
        }
        double density = random.nextDouble();
        for (int i = 0; i < n; i++) {
            for (int j = i + 1; j < n; j++) {
                if (random.nextDouble() < density) {
                    int count = 1 + random.nextInt(4);
                    b.link(i, j, LinkKind.NVLINK, count, 20.0 * count, Source.DEFAULT);
                }
            }
        }
        return b.build();
    }

    private static void good(String where, Optional<Plan> plan) {
        plan.ifPresent(p -> assertEquals(List.of(), Planner.check(p), where + " " + p.channels()));
    }

    @Test
    void plansFitAndStayBelowTheBound() {
        plansFit(0, FEW);
    }

    @Tag("exhaustive")
    @Test
    void plansOfManyMachinesFitAndStayBelowTheBound() {
        plansFit(FEW, MACHINES);
    }

    private static void plansFit(long from, long to) {
        for (long seed = from; seed < to; seed++) {
            Random random = new Random(seed);
            Topology t = machine(random, true);
            List<Integer> gpus = PlannerTest.first(t.gpus().size());
            Collections.shuffle(gpus, random);
            gpus = new ArrayList<>(gpus.subList(0, 1 + random.nextInt(gpus.size())));
            int root = random.nextInt(gpus.size());
            for (Operation op : Operation.values()) {
                String where = "seed " + seed + ", " + op + " over " + gpus + ", root " + root;
                Plan best = Planner.plan(t, op, gpus, root);
                good(where, Optional.of(best));
                Optional<Plan> rings = Planner.rings(t, op, gpus, root);
                Optional<Plan> trees = Planner.trees(t, op, gpus, root);
                good(where, rings);
                good(where, trees);
                good(where, Planner.exchange(t, op, gpus, root));
                for (Optional<Plan> other : List.of(rings, trees)) {
                    assertTrue(
                            other.isEmpty()
                                    || best.bandwidthGBps()
                                            >= other.get().bandwidthGBps() * (1 - 1e-6),
                            where);
                }
            }
        }
    }

    @Test
    void treesReachTheBoundOnNvlink() {
        treesReachTheBound(0, FEW);
    }

    @Tag("exhaustive")
    @Test
    void treesReachTheBoundOnManyMachines() {
        treesReachTheBound(FEW, MACHINES);
    }

    private static void treesReachTheBound(long from, long to) {
        int joined = 0;
        for (long seed = from; seed < to; seed++) {
            Topology t = machine(new Random(seed), false);
            List<Integer> gpus = PlannerTest.first(t.gpus().size());
            int root = (int) (seed % gpus.size());
            Plan broadcast;
            try {
                broadcast = Planner.trees(t, Operation.BROADCAST, gpus, root).orElseThrow();
            } catch (IllegalArgumentException apart) {
                assertTrue(String.valueOf(apart.getMessage()).contains("no link leads"));
                continue;
            }
            joined++;
            String where = "seed " + seed + ": ";
            good(where, Optional.of(broadcast));
            assertEquals(1, broadcast.ratio(), 1e-6, where + broadcast.why());
            Plan reduce = Planner.trees(t, Operation.REDUCE, gpus, root).orElseThrow();
            assertEquals(1, reduce.ratio(), 1e-6, where + reduce.why());
            Plan all = Planner.trees(t, Operation.ALL_REDUCE, gpus, root).orElseThrow();
            good(where, Optional.of(all));
            assertEquals(1, all.ratio(), 1e-6, where + all.why());
        }
        assertTrue(joined > (to - from) / 4, "only " + joined + " machines are joined");
    }
}
