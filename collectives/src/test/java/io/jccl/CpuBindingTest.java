package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.internal.Cpus;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import io.jccl.topology.CpuList;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(value = 2, unit = TimeUnit.MINUTES)
class CpuBindingTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final BitSet OWN = Cpus.ofThread();

    /** The CPUs of each rank's thread. */
    private static List<BitSet> ofThreads(int ranks, CommunicatorOptions options) {
        Map<Integer, BitSet> seen = new ConcurrentSkipListMap<>();
        Communicator.runLocal(ranks, options, c -> seen.put(c.rank(), Cpus.ofThread()));
        assertEquals(OWN, Cpus.ofThread(), "the calling thread stays as it is");
        return List.copyOf(seen.values());
    }

    private static void assertApart(List<BitSet> ranks) {
        BitSet all = new BitSet();
        for (BitSet r : ranks) {
            assertFalse(r.isEmpty());
            assertFalse(all.intersects(r), () -> ranks + " overlap");
            all.or(r);
        }
        all.andNot(OWN);
        assertTrue(all.isEmpty(), () -> ranks + " are not all of " + OWN);
    }

    private static void assumeCpus(int count) {
        assumeTrue(OWN.cardinality() >= count, () -> "needs " + count + " CPUs, has " + OWN);
    }

    @Test
    void threadsAreNotBoundUnlessAsked() {
        assumeTrue(System.getenv(CpuBinding.VARIABLE) == null, "JCCL_BIND is set");
        for (BitSet cpus : ofThreads(2, CommunicatorOptions.DEFAULT)) {
            assertEquals(OWN, cpus);
        }
    }

    @Test
    void threadsGetCoresOfTheirOwn() {
        assumeCpus(2);
        assertApart(ofThreads(2, CommunicatorOptions.DEFAULT.withBinding(CpuBinding.CORE)));
    }

    @ParameterizedTest
    @EnumSource(
            value = CpuBinding.class,
            names = {"CORE", "NUMA"})
    void nothingIsBoundWhereThereAreFewerCpusThanRanks(CpuBinding binding) {
        int ranks = OWN.cardinality() + 1;
        assumeTrue(ranks > 1 && ranks <= 256, "the CPUs of this machine are not known");
        for (BitSet cpus : ofThreads(ranks, CommunicatorOptions.DEFAULT.withBinding(binding))) {
            assertEquals(OWN, cpus);
        }
    }

    @Test
    void processesGetCoresOfTheirOwnAsTheirEnvironmentSays() {
        assumeCpus(2);
        assertApart(ofProcesses(Map.of(CpuBinding.VARIABLE, "core"), List.of()));
    }

    @Tag("exhaustive")
    @Test
    void optionsComeBeforeTheEnvironment() {
        for (BitSet cpus : ofProcesses(Map.of(CpuBinding.VARIABLE, "core"), List.of(), "none")) {
            assertEquals(OWN, cpus);
        }
    }

    /** Each may use one core; together they have enough. */
    @Tag("exhaustive")
    @Test
    void aLaunchersBindingStays() {
        assumeCpus(2);
        int[] two = OWN.stream().limit(2).toArray();
        List<BitSet> seen =
                ofProcesses(
                        Map.of(CpuBinding.VARIABLE, "core"),
                        List.of("taskset -c " + two[0], "taskset -c " + two[1]));
        assertEquals(List.of(CpuList.parse(two[0] + ""), CpuList.parse(two[1] + "")), seen);
    }

    private static List<BitSet> ofProcesses(
            Map<String, String> environment, List<String> launchers, String... binding) {
        List<BitSet> seen = new ArrayList<>();
        try (Workers workers = new Workers(2, Workers.newJobId(), List.of(), environment)) {
            for (int r = 0; r < 2; r++) {
                if (!launchers.isEmpty()) {
                    workers.by(launchers.get(r).split(" ", -1));
                }
                workers.start(r, BoundWorker.class, binding);
            }
            for (Worker w : workers.all()) {
                seen.add(CpuList.parse(w.await("CPUS ", PATIENCE).substring("CPUS ".length())));
                assertEquals(0, w.join(PATIENCE));
            }
        }
        return seen;
    }

    @Test
    void wordsAreRead() {
        assertEquals(CpuBinding.NONE, CpuBinding.of(Map.of()));
        assertEquals(CpuBinding.NUMA, CpuBinding.of(Map.of("JCCL_BIND", "NUMA")));
        Exception e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> CpuBinding.of(Map.of("JCCL_BIND", "cores")));
        assertEquals("JCCL_BIND is 'cores', expected core, numa or none", e.getMessage());
    }
}
