package io.jccl.topology.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.Machines;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class ClusterPlannerTest {
    private static final List<Operation> OPERATIONS =
            List.of(
                    Operation.ALL_REDUCE,
                    Operation.ALL_GATHER,
                    Operation.REDUCE_SCATTER,
                    Operation.BROADCAST,
                    Operation.REDUCE);

    /** Two GPUs and their share of the NICs below each of four PCIe switches, and NVSwitches. */
    private static Topology machine(int nics, double gbps, boolean nvlink) {
        Topology.Builder b = new Topology.Builder("machine");
        for (int i = 0; i < 8; i++) {
            b.addGpu(i, 90);
        }
        for (int k = 0; k < nics; k++) {
            b.add(new Nic(b.nextId(), "mlx5_" + k, null, gbps));
        }
        int root = b.addSwitch("numa0", Switch.Kind.NUMA);
        int[] switches = new int[4];
        for (int s = 0; s < 4; s++) {
            switches[s] = b.addSwitch("pcie-switch" + s, Switch.Kind.PCIE_SWITCH);
            b.link(switches[s], root, LinkKind.PCIE, 1, 48, Source.DEFAULT);
        }
        for (int i = 0; i < 8; i++) {
            b.link(i, switches[i / 2], LinkKind.PCIE, 1, 48, Source.DEFAULT);
        }
        for (int k = 0; k < nics; k++) {
            b.link(8 + k, switches[k * 4 / nics], LinkKind.PCIE, 1, 48, Source.DEFAULT);
        }
        if (nvlink) {
            int sw = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
            for (int i = 0; i < 8; i++) {
                b.link(i, sw, LinkKind.NVLINK, 18, 370.8, Source.DEFAULT);
            }
        }
        return b.build();
    }

    @Test
    void plansFitWhateverTheMachine() {
        plansFit(new int[] {3, 8}, 2, 7);
    }

    @Tag("exhaustive")
    @Test
    void plansFitWithMoreNicsAndMachines() {
        plansFit(new int[] {1, 3, 4, 8, 16}, 2, 3, 4, 7, 64);
    }

    private static void plansFit(int[] nicsOfAMachine, int... sizes) {
        for (boolean nvlink : new boolean[] {true, false}) {
            for (int nics : nicsOfAMachine) {
                Topology t = machine(nics, nics == 3 ? 0 : 25, nvlink);
                for (int machines : sizes) {
                    for (List<Integer> gpus :
                            List.of(
                                    PlannerTest.first(8),
                                    List.of(5),
                                    List.of(6, 1),
                                    List.of(0, 2, 4))) {
                        for (Operation op : OPERATIONS) {
                            Cluster c = new Cluster(t, machines);
                            List<ClusterPlan> plans = new ArrayList<>();
                            plans.add(Planner.plan(c, op, gpus));
                            plans.add(Planner.rings(c, op, gpus));
                            Planner.trees(c, op, gpus).ifPresent(plans::add);
                            for (ClusterPlan plan : plans) {
                                String where = op + " " + c.machines() + " " + gpus + plan.why();
                                assertEquals(List.of(), Planner.check(plan), where);
                                assertTrue(plan.bandwidthGBps() > 0, where);
                                assertTrue(
                                        plan.bandwidthGBps()
                                                <= plans.getFirst().bandwidthGBps() * (1 + 1e-6),
                                        where);
                            }
                        }
                    }
                }
            }
        }
    }

    @Test
    void railsEnterAndLeaveBesideTheirNic() {
        Topology t = machine(4, 25, true);
        ClusterPlan plan =
                Planner.rings(new Cluster(t, 16), Operation.ALL_REDUCE, PlannerTest.first(8));
        assertEquals(4, plan.channels().size());
        for (ClusterPlan.Rail rail : plan.channels()) {
            assertEquals(rail.nicIn(), rail.nicOut());
            assertEquals(rail.nicIn(), rail.entry() / 2, rail.toString());
            assertEquals(rail.nicIn(), rail.exit() / 2, rail.toString());
        }
        assertEquals(100, plan.bandwidthGBps(), 1e-6);
        // 100 * 16 * 127 / (15 * 128)
        assertEquals(105.8333, plan.boundGBps(), 1e-3);
    }

    /** One NIC beside each GPU, and no good way from a GPU to another's NIC. */
    @Test
    void ringsLeaveByAnotherNicWhereThatGivesMore() {
        Topology.Builder b = new Topology.Builder("a NIC for each GPU");
        for (int i = 0; i < 8; i++) {
            b.addGpu(i, 90);
        }
        for (int k = 0; k < 8; k++) {
            b.add(new Nic(b.nextId(), "mlx5_" + k, null, 50));
        }
        int root = b.addSwitch("numa0", Switch.Kind.NUMA);
        int nvswitch = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        for (int i = 0; i < 8; i++) {
            int s = b.addSwitch("pcie-switch" + i, Switch.Kind.PCIE_SWITCH);
            b.link(s, root, LinkKind.PCIE, 1, 12, Source.DEFAULT);
            b.link(i, s, LinkKind.PCIE, 1, 48, Source.DEFAULT);
            b.link(8 + i, s, LinkKind.PCIE, 1, 48, Source.DEFAULT);
            b.link(i, nvswitch, LinkKind.NVLINK, 18, 370.8, Source.DEFAULT);
        }
        ClusterPlan plan =
                Planner.rings(
                        new Cluster(b.build(), 4), Operation.ALL_GATHER, PlannerTest.first(8));
        assertEquals(List.of(), Planner.check(plan));
        assertEquals(8, plan.channels().size());
        boolean[] left = new boolean[8];
        for (ClusterPlan.Rail rail : plan.channels()) {
            assertEquals(rail.nicIn(), rail.entry());
            assertEquals(rail.nicOut(), rail.exit());
            assertFalse(left[rail.nicOut()], plan.channels()::toString);
            left[rail.nicOut()] = true;
        }
        // Each GPU is the last of one ring, so NVLink carries 7 x 48 of its 370.8.
        assertEquals(8 * 48, plan.bandwidthGBps(), 1e-6);
    }

    @Test
    void treesOverTwoMachinesMeetTheBound() {
        Cluster c = new Cluster(machine(4, 25, true), 2);
        ClusterPlan plan = Planner.plan(c, Operation.ALL_REDUCE, PlannerTest.first(8));
        assertEquals(187.5, plan.bandwidthGBps(), 1e-6);
        assertEquals(187.5, plan.boundGBps(), 1e-6);
        assertEquals(ClusterPlan.Shape.TREE, plan.channels().getFirst().shape());
    }

    @Test
    void unknownNicsAreNamedInWhy() {
        Cluster c = new Cluster(machine(8, 0, true), 4);
        ClusterPlan plan = Planner.rings(c, Operation.BROADCAST, PlannerTest.first(8));
        assertEquals(96, plan.bandwidthGBps(), 1e-6);
        assertTrue(
                plan.why().toString().contains("8 NICs have unknown bandwidth"),
                plan.why()::toString);
    }

    @Test
    void clustersThatCannotBePlannedAreRefused() {
        List<Integer> gpus = PlannerTest.first(8);
        refused("no NIC", new Cluster(Machines.dgx1v(), 4), Operation.ALL_REDUCE, gpus);
        Topology t = machine(4, 25, true);
        refused("machines is 1", new Cluster(t, 1), Operation.ALL_REDUCE, gpus);
        refused("alltoall", new Cluster(t, 2), Operation.ALL_TO_ALL, gpus);
        refused("twice", new Cluster(t, 2), Operation.ALL_REDUCE, List.of(1, 1));
    }

    private static void refused(String words, Cluster c, Operation op, List<Integer> gpus) {
        String message =
                assertThrows(IllegalArgumentException.class, () -> Planner.plan(c, op, gpus))
                        .getMessage();
        assertTrue(String.valueOf(message).contains(words), message);
    }

    @Test
    void checkFindsErrors() {
        Cluster c = new Cluster(machine(4, 25, true), 4);
        ClusterPlan p = Planner.rings(c, Operation.ALL_REDUCE, PlannerTest.first(8));
        List<ClusterPlan.Rail> twice = new ArrayList<>(p.channels());
        twice.addAll(p.channels());
        ClusterPlan over =
                new ClusterPlan(c, p.operation(), p.gpus(), twice, 200, 200, p.bound(), p.why());
        assertFalse(Planner.check(over).isEmpty());
        ClusterPlan fewer =
                new ClusterPlan(
                        c,
                        p.operation(),
                        PlannerTest.first(7),
                        p.channels(),
                        p.bandwidthGBps(),
                        p.boundGBps(),
                        p.bound(),
                        p.why());
        assertFalse(Planner.check(fewer).isEmpty());
    }
}
