package io.jccl.internal;

import io.jccl.topology.CpuList;
import io.jccl.topology.read.Cpu;
import io.jccl.topology.read.SysFs;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/** The CPUs that a thread may use, and how the ranks of one machine share them. */
public final class Cpus {
    private static final String ALLOWED = "Cpus_allowed_list:";

    private Cpus() {}

    /**
     * The CPUs that the calling thread may use.
     *
     * @return their numbers; empty if the system does not report them
     */
    public static BitSet ofThread() {
        return allowed(Path.of("/proc/thread-self/status"));
    }

    /**
     * The CPUs that this process was started with; its threads may be bound to fewer.
     *
     * @return their numbers; empty if the system does not report them
     */
    public static BitSet ofProcess() {
        return allowed(Path.of("/proc/self/status"));
    }

    private static BitSet allowed(Path status) {
        try {
            for (String line : Files.readAllLines(status)) {
                if (line.startsWith(ALLOWED)) {
                    return CpuList.parse(line.substring(ALLOWED.length()).strip());
                }
            }
        } catch (IOException | NumberFormatException e) {
            // Not Linux, or an unknown format.
        }
        return new BitSet();
    }

    /**
     * Number of processors of this process. The JVM's own number counts those of the calling
     * thread.
     *
     * @return 1 or more
     */
    public static int processors() {
        BitSet process = ofProcess();
        return ofThread().equals(process)
                ? Runtime.getRuntime().availableProcessors()
                : process.cardinality();
    }

    /**
     * The model of this machine's CPUs.
     *
     * @return its name; the architecture if the system does not report it
     */
    public static String model() {
        @Nullable String name = null;
        try (var lines = Files.lines(Path.of("/proc/cpuinfo"))) {
            name = model(lines.takeWhile(l -> !l.isBlank()).toList());
        } catch (IOException | RuntimeException e) {
            // Not Linux, or not readable.
        }
        return name == null ? System.getProperty("os.arch", "CPU") : name;
    }

    /**
     * The model of the first CPU of a machine. Linux on x86 names it; on ARM it gives the numbers
     * of implementer and part; on POWER it calls the field cpu.
     *
     * @param lines of {@code /proc/cpuinfo}
     * @return its name; null if there is none
     */
    public static @Nullable String model(List<String> lines) {
        Map<String, String> fields = new HashMap<>();
        for (String line : lines) {
            int colon = line.indexOf(':');
            if (colon > 0) {
                fields.putIfAbsent(
                        line.substring(0, colon).strip(), line.substring(colon + 1).strip());
            }
        }
        String name = fields.get("model name");
        String implementer = fields.get("CPU implementer");
        String part = fields.get("CPU part");
        if (name == null && implementer != null && part != null) {
            name = "ARM implementer " + implementer + " part " + part;
        }
        return name != null ? name : fields.get("cpu");
    }

    /**
     * All CPUs of this machine.
     *
     * @return in the order of their numbers; empty if the system does not report them
     */
    public static List<Cpu> all() {
        return SysFs.cpus(SysFs.ROOT);
    }

    /**
     * Divides CPUs among ranks: each gets the same number of whole neighbouring cores, or hardware
     * threads if there are fewer cores than ranks.
     *
     * @param machine all CPUs of the machine
     * @param allowed those to divide
     * @param ranks how many ranks there are
     * @return the CPUs of each rank; empty if there are fewer CPUs than ranks
     */
    public static List<BitSet> cores(List<Cpu> machine, BitSet allowed, int ranks) {
        List<Cpu> cpus =
                machine.stream()
                        .filter(c -> allowed.get(c.id()))
                        .sorted(
                                Comparator.comparingInt(Cpu::numa)
                                        .thenComparingInt(Cpu::l3)
                                        .thenComparingInt(Cpu::core)
                                        .thenComparingInt(Cpu::id))
                        .toList();
        List<BitSet> units = new ArrayList<>();
        int core = -1;
        for (Cpu c : cpus) {
            if (units.isEmpty() || c.core() != core) {
                units.add(new BitSet());
                core = c.core();
            }
            units.getLast().set(c.id());
        }
        if (units.size() < ranks) {
            units = cpus.stream().map(c -> one(c.id())).toList();
        }
        List<BitSet> shares = new ArrayList<>();
        for (int r = 0; r < ranks && units.size() >= ranks; r++) {
            shares.add(union(units.subList(start(r, units, ranks), start(r + 1, units, ranks))));
        }
        return shares;
    }

    /**
     * Distributes ranks over NUMA nodes, neighbours on the same node.
     *
     * @param machine all CPUs of the machine
     * @param allowed those to use
     * @param ranks how many ranks there are
     * @return the CPUs of each rank: all allowed ones of its node; empty if there are fewer CPUs
     *     than ranks
     */
    public static List<BitSet> nodes(List<Cpu> machine, BitSet allowed, int ranks) {
        TreeMap<Integer, BitSet> byNode = new TreeMap<>();
        machine.stream()
                .filter(c -> allowed.get(c.id()))
                .forEach(c -> byNode.computeIfAbsent(c.numa(), n -> new BitSet()).set(c.id()));
        List<BitSet> nodes = List.copyOf(byNode.values());
        List<BitSet> shares = new ArrayList<>();
        for (int r = 0; r < ranks && union(nodes).cardinality() >= ranks; r++) {
            shares.add(nodes.get((int) ((long) r * nodes.size() / ranks)));
        }
        return shares;
    }

    private static int start(int rank, List<?> units, int ranks) {
        return (int) ((long) rank * units.size() / ranks);
    }

    private static BitSet one(int cpu) {
        BitSet set = new BitSet();
        set.set(cpu);
        return set;
    }

    private static BitSet union(Collection<BitSet> sets) {
        BitSet all = new BitSet();
        sets.forEach(all::or);
        return all;
    }
}
