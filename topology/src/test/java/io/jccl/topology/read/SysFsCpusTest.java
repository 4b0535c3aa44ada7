package io.jccl.topology.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.topology.CpuList;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SysFsCpusTest {
    @TempDir Path sys;

    /** Two sockets of two cores of two threads, numbered as Linux does: siblings last. */
    private void twoSockets() throws IOException {
        write("devices/system/cpu/online", "0-7\n");
        for (int cpu = 0; cpu < 8; cpu++) {
            int first = cpu % 4;
            int socket = first / 2;
            String dir = "devices/system/cpu/cpu" + cpu;
            write(dir + "/topology/thread_siblings_list", first + "," + (first + 4) + "\n");
            write(dir + "/topology/physical_package_id", socket + "\n");
            cache(dir + "/cache/index0", 1, "Data", first + "," + (first + 4));
            cache(dir + "/cache/index1", 1, "Instruction", first + "," + (first + 4));
            cache(dir + "/cache/index2", 2, "Unified", first + "," + (first + 4));
            String l3 = socket == 0 ? "0-1,4-5" : "2-3,6-7";
            cache(dir + "/cache/index3", 3, "Unified", l3);
        }
        write("devices/system/node/node0/cpulist", "0-1,4-5\n");
        write("devices/system/node/node1/cpulist", "2-3,6-7\n");
        write("devices/system/node/possible", "0-1\n");
    }

    private void cache(String dir, int level, String type, String shared) throws IOException {
        write(dir + "/level", level + "\n");
        write(dir + "/type", type + "\n");
        write(dir + "/shared_cpu_list", shared + "\n");
    }

    private void write(String file, String text) throws IOException {
        Path path = sys.resolve(file);
        Files.createDirectories(path.getParent());
        Files.writeString(path, text);
    }

    @Test
    void twoSocketsWithTwoThreadsACore() throws IOException {
        twoSockets();
        List<Cpu> cpus = SysFs.cpus(sys);
        assertEquals(8, cpus.size());
        assertEquals(new Cpu(0, 0, 0, 0, 0, 0), cpus.get(0));
        assertEquals(new Cpu(3, 3, 1, 1, 3, 2), cpus.get(3));
        assertEquals(new Cpu(5, 1, 0, 0, 1, 0), cpus.get(5));
        assertEquals(new Cpu(7, 3, 1, 1, 3, 2), cpus.get(7));
    }

    @Test
    void cpusThatAreOfflineAreLeftOut() throws IOException {
        twoSockets();
        write("devices/system/cpu/online", "0,2-3,7\n");
        assertEquals(List.of(0, 2, 3, 7), SysFs.cpus(sys).stream().map(Cpu::id).toList());
    }

    @Test
    void damagedFilesAreAsIfMissing() throws IOException {
        twoSockets();
        write("devices/system/cpu/online", "garbage\n");
        write("devices/system/cpu/cpu1/topology/thread_siblings_list", "\0\0\0");
        write("devices/system/cpu/cpu2/topology/physical_package_id", "-1");
        write("devices/system/cpu/cpu3/cache/index3/shared_cpu_list", "6-7\n");
        Files.delete(sys.resolve("devices/system/node/node1/cpulist"));
        List<Cpu> cpus = SysFs.cpus(sys);
        // Without the list of those online, all that have a directory are.
        assertEquals(8, cpus.size());
        assertEquals(new Cpu(1, 1, 0, 0, 1, 0), cpus.get(1));
        assertEquals(new Cpu(2, 2, 0, 0, 2, 2), cpus.get(2));
        // A cache of which the CPU itself is no part is not believed.
        assertEquals(new Cpu(3, 3, 1, 0, 3, -1), cpus.get(3));
    }

    @Test
    void nothingToRead() {
        assertEquals(List.of(), SysFs.cpus(sys.resolve("missing")));
        assertEquals(List.of(), SysFs.cpus(sys));
    }

    @Test
    void bareDirectories() throws IOException {
        write("devices/system/cpu/online", "0-1");
        assertEquals(
                List.of(new Cpu(0, 0, 0, 0, -1, -1), new Cpu(1, 1, 0, 0, -1, -1)), SysFs.cpus(sys));
    }

    @Test
    void partsThatAreNoCpusAreLeftOut() {
        BitSet set = SysFiles.cpus("0-2,9,4-3,x,5-,-7,100000000,65536, 12-13");
        assertEquals("0-2,9,12-13", CpuList.text(set));
        assertEquals("", CpuList.text(SysFiles.cpus("")));
    }

    @Test
    void thisMachine() {
        assumeTrue(Files.isDirectory(SysFs.ROOT), "no /sys here");
        List<Cpu> cpus = SysFs.cpus(SysFs.ROOT);
        assertFalse(cpus.isEmpty());
    }
}
