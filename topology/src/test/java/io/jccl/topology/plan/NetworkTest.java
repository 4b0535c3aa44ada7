package io.jccl.topology.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.LinkKind;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.simulate.Simulation;
import io.jccl.topology.simulate.Simulator;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Thin networks: what an oversubscribed fat tree leaves of plans and predictions. */
class NetworkTest {
    private static final List<Integer> GPUS = IntStream.range(0, 4).boxed().toList();

    /** Four GPUs on an NVSwitch, a NIC of 50 GB/s beside each. */
    private static final Topology MACHINE = machine();

    private static Topology machine() {
        Topology.Builder b = new Topology.Builder("machine");
        for (int i = 0; i < 4; i++) {
            b.addGpu(i, 90);
        }
        for (int k = 0; k < 4; k++) {
            b.add(new Nic(b.nextId(), "mlx5_" + k, null, 50));
        }
        int nvs = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        int numa = b.addSwitch("numa0", Switch.Kind.NUMA);
        for (int i = 0; i < 4; i++) {
            b.link(i, nvs, LinkKind.NVLINK, 18, 370.8, Source.NCCL_MODEL);
            int sw = b.addSwitch("pcie" + i, Switch.Kind.PCIE_SWITCH);
            b.link(i, sw, LinkKind.PCIE, 1, 50, Source.NCCL_MODEL);
            b.link(4 + i, sw, LinkKind.PCIE, 1, 50, Source.NCCL_MODEL);
            b.link(sw, numa, LinkKind.PCIE, 1, 24, Source.NCCL_MODEL);
        }
        return b.build();
    }

    private static ClusterPlan plan(int machines, Network network, Operation op) {
        return Planner.plan(new Cluster(MACHINE, machines, network), op, GPUS);
    }

    @Test
    void ringsCrossAUnitOnce() {
        // One ring of a rail leaves a unit, and its leaf has the uplinks of unit / ratio NICs.
        assertEquals(1, new Network(8, 4).share(Operation.ALL_REDUCE, 64));
        assertEquals(0.5, new Network(8, 16).share(Operation.ALL_GATHER, 64));
        assertEquals(0.25, new Network(1, 4).share(Operation.ALL_REDUCE, 64));
        // Inside one unit nothing is thin.
        assertEquals(1, new Network(8, 16).share(Operation.ALL_TO_ALL, 8));
    }

    @Test
    void exchangesLeaveTheUnit() {
        // 56 of the 63 other machines are in other units.
        assertEquals(63.0 / (4 * 56), new Network(8, 4).share(Operation.ALL_TO_ALL, 64), 1e-12);
        assertEquals(0.25, new Network(8, 4).share(Operation.SEND_RECV, 64));
    }

    @Test
    void planAndPredictionFall() {
        Network thin = new Network(1, 4);
        for (Operation op : List.of(Operation.ALL_REDUCE, Operation.ALL_GATHER)) {
            ClusterPlan full = plan(6, Network.FULL, op);
            ClusterPlan less = plan(6, thin, op);
            assertEquals(full.bandwidthGBps() / 4, less.bandwidthGBps(), 1e-6, op.command());
            assertEquals(full.boundGBps() / 4, less.boundGBps(), 1e-6, op.command());
            assertEquals(List.of(), Planner.check(less));
            assertTrue(
                    less.why().stream().anyMatch(w -> w.contains("leaves 25% of the NICs' rate")),
                    less.why().toString());
            double before =
                    CostModel.nccl()
                            .tune(new Cluster(MACHINE, 6), GPUS, op)
                            .choose(8L << 30)
                            .busbwGBps();
            double after =
                    CostModel.nccl()
                            .tune(new Cluster(MACHINE, 6, thin), GPUS, op)
                            .choose(8L << 30)
                            .busbwGBps();
            assertEquals(before / 4, after, 0.02 * before, op.command());
        }
        // Its rails at full speed overload a thin network.
        ClusterPlan full = plan(6, Network.FULL, Operation.ALL_REDUCE);
        ClusterPlan wrong =
                new ClusterPlan(
                        new Cluster(MACHINE, 6, thin),
                        full.operation(),
                        full.gpus(),
                        full.channels(),
                        full.bandwidthGBps(),
                        full.boundGBps(),
                        full.bound(),
                        full.why());
        assertTrue(!Planner.check(wrong).isEmpty());
    }

    @Test
    void theSimulationIsAsSlow() {
        ClusterPlan p = plan(4, new Network(1, 4), Operation.ALL_GATHER);
        Simulation s = Simulator.run(p, 1L << 30, 1 << 16);
        assertTrue(s.correct());
        assertEquals(1, s.busbwGBps() / p.bandwidthGBps(), 0.05);
    }

    @Test
    void theAssumptionsAreReported() {
        List<String> full =
                CostModel.nccl()
                        .tune(new Cluster(MACHINE, 6), GPUS, Operation.ALL_REDUCE)
                        .assumptions();
        assertEquals("4 NICs for 4 GPUs of a machine, 192.0 GB/s together", full.getFirst());
        assertTrue(full.get(1).contains("no oversubscription"), full.toString());
        List<String> thin =
                CostModel.nccl()
                        .tune(
                                new Cluster(MACHINE, 6, new Network(2, 8)),
                                GPUS,
                                Operation.ALL_REDUCE)
                        .assumptions();
        assertEquals(
                "units of 2 machines and an oversubscription of 8.0 leave 48.0 GB/s of that",
                thin.get(1));
        assertEquals(
                List.of(),
                CostModel.nccl().tune(MACHINE, GPUS, Operation.ALL_REDUCE).assumptions());
    }

    @Test
    void wrongNumbersAreNamed() {
        for (double ratio : new double[] {0.5, 0, -1, Double.NaN, 1e6}) {
            IllegalArgumentException e =
                    assertThrows(IllegalArgumentException.class, () -> new Network(1, ratio));
            assertTrue(String.valueOf(e.getMessage()).contains("is " + ratio), e.getMessage());
        }
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> new Network(0, 2));
        assertTrue(String.valueOf(e.getMessage()).contains("are 0, expected"), e.getMessage());
    }
}
