package io.jccl.topology.read;

import io.jccl.topology.Topology;
import io.jccl.topology.internal.PciTree;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Reads what Linux reports about a machine in {@code /sys}. Missing, unreadable or invalid files
 * count as unknown values and never throw.
 *
 * <p>Stateless, and safe for use by many threads.
 */
public final class SysFs {
    /** The path on Linux. */
    public static final Path ROOT = Path.of("/sys");

    private SysFs() {}

    /**
     * The CPUs that are online, with their shared caches.
     *
     * @param sysRoot {@link #ROOT}, or a copy of it
     * @return the CPUs by number; empty if nothing can be read
     */
    public static List<Cpu> cpus(Path sysRoot) {
        Path root = sysRoot.resolve("devices/system/cpu");
        BitSet online = SysFiles.cpus(root.resolve("online"));
        if (online.isEmpty()) {
            for (Path entry : SysFiles.list(root)) {
                online.or(SysFiles.cpus(after("cpu", entry)));
            }
        }
        Map<Integer, BitSet> nodes = numaNodes(sysRoot);
        List<Cpu> cpus = new ArrayList<>();
        online.stream()
                .forEach(id -> {
                    Path cpu = root.resolve("cpu" + id);
                    Path topology = cpu.resolve("topology");
                    int core = lowest(topology.resolve("thread_siblings_list"), id);
                    cpus.add(
                            new Cpu(
                                    id,
                                    core < 0 ? id : core,
                                    Math.max(
                                            0,
                                            SysFiles.number(
                                                    topology.resolve("physical_package_id"), 0)),
                                    nodeOf(nodes, id),
                                    cache(cpu, 2, id),
                                    cache(cpu, 3, id)));
                });
        return List.copyOf(cpus);
    }

    /** CPUs of each NUMA node; a node without CPUs (of a GPU's memory, say) has an empty set. */
    static Map<Integer, BitSet> numaNodes(Path sysRoot) {
        Map<Integer, BitSet> nodes = new TreeMap<>();
        for (Path entry : SysFiles.list(sysRoot.resolve("devices/system/node"))) {
            BitSet id = SysFiles.cpus(after("node", entry));
            if (id.cardinality() == 1) {
                nodes.put(id.nextSetBit(0), SysFiles.cpus(entry.resolve("cpulist")));
            }
        }
        return nodes;
    }

    private static int nodeOf(Map<Integer, BitSet> nodes, int cpu) {
        for (Map.Entry<Integer, BitSet> node : nodes.entrySet()) {
            if (node.getValue().get(cpu)) {
                return node.getKey();
            }
        }
        return 0;
    }

    /** The lowest CPU that shares the unified or data cache of a level. */
    private static int cache(Path cpu, int level, int id) {
        for (Path index : SysFiles.list(cpu.resolve("cache"))) {
            if (Files.isDirectory(index)
                    && SysFiles.number(index.resolve("level"), 0) == level
                    && !"Instruction".equals(SysFiles.text(index.resolve("type")))) {
                return lowest(index.resolve("shared_cpu_list"), id);
            }
        }
        return -1;
    }

    /** The lowest of a list that must hold {@code member}; -1 if it does not. */
    private static int lowest(Path list, int member) {
        BitSet set = SysFiles.cpus(list);
        return set.get(member) ? set.nextSetBit(0) : -1;
    }

    /** The rest of a name after a prefix, if it has that prefix. */
    private static String after(String prefix, Path entry) {
        String name = String.valueOf(entry.getFileName());
        return name.startsWith(prefix) ? name.substring(prefix.length()) : "";
    }

    /**
     * GPUs, NICs and the switches between them. {@code /sys} has no NVLinks and compute
     * capabilities. Devices other than GPUs and NICs are left out.
     *
     * <p>The bandwidth of a PCIe link follows from its current speed and width, except for GPUs:
     * idle GPUs slow their links down, so the highest speed that both the GPU and its slot support
     * is used.
     *
     * @param sysRoot {@link #ROOT}, or a copy of it; the CPU's model is read from {@code
     *     proc/cpuinfo} next to it
     * @return the machine
     */
    public static Topology machine(Path sysRoot) {
        return machine(sysRoot, cpuinfo(sysRoot));
    }

    /**
     * The same, with the CPU's model read from another file.
     *
     * @param sysRoot {@link #ROOT}, or a copy of it
     * @param cpuinfo {@code /proc/cpuinfo}, or a copy of it
     * @return the machine
     */
    public static Topology machine(Path sysRoot, Path cpuinfo) {
        SysPci pci = new SysPci(sysRoot, cpuinfo);
        PciTree tree = pci.read();
        if (tree.gpus.isEmpty()) {
            pci.warn("no NVIDIA GPU in " + sysRoot);
        } else {
            pci.warn("/sys has no NVLinks and compute capabilities: this is the PCIe side only");
        }
        Topology.Builder b = tree.build("this machine");
        pci.warnings().forEach(b::warn);
        return b.build();
    }

    /** Beside {@code /sys}. */
    static Path cpuinfo(Path sysRoot) {
        return sysRoot.resolveSibling("proc").resolve("cpuinfo");
    }
}
