package io.jccl.engine.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.flight.CollectiveOp;
import io.jccl.topology.CpuList;
import io.jccl.topology.read.Cpu;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class HostPlanTest {
    /** Two sockets with two level 3 caches each, four cores a cache; no hyper-threads. */
    private static final List<Cpu> MACHINE = machine();

    private static List<Cpu> machine() {
        List<Cpu> cpus = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            cpus.add(new Cpu(i, i, i / 8, i / 8, i, i / 4 * 4));
        }
        return cpus;
    }

    private static long home(String cpus) {
        return HostPlan.home(MACHINE, CpuList.parse(cpus));
    }

    private static HostPlan plan(String... cpus) {
        long[] homes = new long[cpus.length];
        for (int r = 0; r < cpus.length; r++) {
            homes[r] = home(cpus[r]);
        }
        return HostPlan.of(homes);
    }

    @Test
    void neighboursShareCacheThenNode() {
        // As a launcher leaves them that hands ranks out socket by socket, cache by cache.
        HostPlan plan = plan("0", "8", "4", "12", "1", "9", "5", "13");
        assertEquals(2, plan.nodes());
        assertArrayEquals(new int[] {0, 4, 2, 6, 1, 5, 3, 7}, plan.order());
        assertTrue(plan.toString().contains("2 NUMA nodes"), plan.toString());
    }

    @Test
    void ranksPinnedToACacheOrANodeAreOrderedAsFarAsIsKnown() {
        assertArrayEquals(new int[] {1, 2, 0, 3}, plan("8-11", "0-3", "0-3", "12-15").order());
        assertArrayEquals(new int[] {0, 2, 1, 3}, plan("0-7", "8-15", "0-7", "8-15").order());
    }

    @Test
    void onlyOffTurnsItOff() {
        assertTrue(HostPlan.isOff("off"));
        for (String unset : Arrays.asList(null, "")) {
            assertFalse(HostPlan.isOff(unset));
        }
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> HostPlan.isOff("ring"));
        assertEquals("JCCL_HOST_PLAN is 'ring', expected off, or unset it", e.getMessage());
    }

    @Test
    void ranksThatAreNotPinnedToANodeHaveNoPlan() {
        assertSame(HostPlan.FLAT, plan("0-15", "0-15"));
        assertSame(HostPlan.FLAT, plan("0", "8", "0-15", "9"));
        assertEquals(HostPlan.UNKNOWN, home("7-8"));
        assertEquals(HostPlan.UNKNOWN, home("99"), "a CPU that is not there");
        assertEquals(HostPlan.UNKNOWN, HostPlan.home(List.of(), CpuList.parse("0")));
    }

    @Test
    void withinANodeEverythingIsAsWithoutAPlan() {
        HostPlan plan = plan("0", "1", "4", "5");
        assertSame(HostPlan.FLAT, plan);
        for (CollectiveOp op : CollectiveOp.values()) {
            for (long bytes = 1; bytes < 1L << 32; bytes <<= 4) {
                assertEquals(Algorithm.DIRECT, plan.choose(op, bytes, 4));
            }
        }
    }

    @Test
    void acrossNodesLargeBlocksArePassedOn() {
        HostPlan plan = plan("0", "8", "1", "9");
        assertEquals(Algorithm.DIRECT, plan.choose(CollectiveOp.ALL_REDUCE, (1 << 20) - 1, 4));
        assertEquals(Algorithm.RING, plan.choose(CollectiveOp.ALL_REDUCE, 1 << 20, 4));
        assertEquals(Algorithm.RING, plan.choose(CollectiveOp.ALL_GATHER, 1 << 24, 4));
        assertEquals(Algorithm.TREE, plan.choose(CollectiveOp.BROADCAST, 1 << 24, 4));
        assertEquals(Algorithm.DIRECT, plan.choose(CollectiveOp.ALL_TO_ALL, 1 << 24, 4));
        assertEquals(Algorithm.DIRECT, plan("0", "8").choose(CollectiveOp.ALL_REDUCE, 1 << 24, 2));
        for (CollectiveOp op : CollectiveOp.values()) {
            Algorithm chosen = plan.choose(op, 1 << 24, 4);
            assertTrue(AlgorithmTable.serves(chosen, op), op + " by " + chosen);
        }
    }

    @Test
    void aCommunicatorFollowsItsPlanUnlessToldOtherwise() {
        int[] order = {2, 0, 3, 1};
        List<Communicator> ranks = OrderedRanks.open(order, 2, CommunicatorOptions.DEFAULT);
        assertEquals(Algorithm.RING, ranks.get(1).algorithmFor("allReduce", 1 << 20));
        assertEquals(Algorithm.DIRECT, ranks.get(1).algorithmFor("allReduce", 1 << 10));
        ranks.forEach(Communicator::close);
        List<Communicator> told =
                OrderedRanks.open(
                        order, 2, CommunicatorOptions.DEFAULT.withAlgorithm(Algorithm.TREE));
        assertEquals(Algorithm.TREE, told.get(0).algorithmFor("allReduce", 1 << 20));
        told.forEach(Communicator::close);
        try (Communicator flat = Communicator.local(1).getFirst()) {
            assertEquals(Algorithm.DIRECT, flat.algorithmFor("allReduce", 1 << 30));
        }
    }

    @Test
    void coresHaveHomesOfTheirOwn() {
        assertNotEquals(home("0"), home("1"));
    }
}
