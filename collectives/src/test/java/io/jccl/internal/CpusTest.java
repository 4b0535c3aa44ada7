package io.jccl.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.CpuList;
import io.jccl.topology.read.Cpu;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class CpusTest {
    /** Two NUMA nodes of four cores; the second hardware threads of all cores are 8 to 15. */
    private static final List<Cpu> MACHINE = machine();

    private static List<Cpu> machine() {
        List<Cpu> cpus = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            int core = i % 8;
            cpus.add(new Cpu(i, core, core / 4, core / 4, core, core / 4 * 4));
        }
        return cpus;
    }

    private static String texts(List<BitSet> shares) {
        return String.join(" ", shares.stream().map(CpuList::text).toList());
    }

    @ParameterizedTest
    @CsvSource({
        "1, 0-15, 0-15",
        "2, 0-15, '0-3,8-11 4-7,12-15'",
        "3, 0-15, '0-1,8-9 2-4,10-12 5-7,13-15'",
        "8, 0-15, '0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15'",
        "16, 0-15, '0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15'",
        "17, 0-15, ''",
        "2, '1,5', '1 5'",
        "2, '3,11', '3 11'",
        "2, '0,8,3', '0,8 3'",
        "2, 7, ''",
        "2, 64-65, ''",
    })
    void ranksGetCoresOfTheirOwn(int ranks, String allowed, String expected) {
        assertEquals(expected, texts(Cpus.cores(MACHINE, CpuList.parse(allowed), ranks)));
    }

    @Test
    void noTwoRanksShareACpu() {
        for (int ranks = 1; ranks <= MACHINE.size(); ranks++) {
            BitSet all = new BitSet();
            for (BitSet share : Cpus.cores(MACHINE, CpuList.parse("0-15"), ranks)) {
                assertFalse(share.isEmpty());
                assertFalse(all.intersects(share));
                all.or(share);
            }
            assertEquals("0-15", CpuList.text(all), ranks + " ranks");
        }
    }

    @ParameterizedTest
    @CsvSource({
        "1, 0-15, '0-3,8-11'",
        "2, 0-15, '0-3,8-11 4-7,12-15'",
        "3, 0-15, '0-3,8-11 0-3,8-11 4-7,12-15'",
        "2, 0-2, '0-2 0-2'",
        "3, '0,4', ''",
    })
    void ranksGetNodes(int ranks, String allowed, String expected) {
        assertEquals(expected, texts(Cpus.nodes(MACHINE, CpuList.parse(allowed), ranks)));
    }

    @Test
    void thisThreadMayUseCpusOfThisMachine() {
        BitSet own = Cpus.ofThread();
        assertEquals(own.isEmpty(), Cpus.ofProcess().isEmpty());
        for (int cpu : own.stream().toArray()) {
            assertTrue(Cpus.all().stream().anyMatch(c -> c.id() == cpu), "CPU " + cpu);
        }
    }

    @Test
    void modelIsWhatLinuxReportsOnEachProcessor() {
        assertEquals(
                "A CPU @ 2 GHz: fast",
                Cpus.model(
                        List.of(
                                "processor\t: 0",
                                "vendor_id\t: GenuineIntel",
                                "cpu family\t: 6",
                                "model\t\t: 85",
                                "model name\t: A CPU @ 2 GHz: fast")));
        // Neoverse V2, as in Grace and Graviton 4.
        assertEquals(
                "ARM implementer 0x41 part 0xd4f",
                Cpus.model(
                        List.of(
                                "processor\t: 0",
                                "BogoMIPS\t: 2000.00",
                                "Features\t: fp asimd evtstrm aes sve sve2",
                                "CPU implementer\t: 0x41",
                                "CPU architecture: 8",
                                "CPU variant\t: 0x0",
                                "CPU part\t: 0xd4f",
                                "CPU revision\t: 0")));
        assertEquals(
                "POWER9, altivec supported",
                Cpus.model(List.of("processor\t: 0", "cpu\t\t: POWER9, altivec supported")));
        assertNull(Cpus.model(List.of("processor\t: 0", "Features\t: fp asimd")));
    }
}
