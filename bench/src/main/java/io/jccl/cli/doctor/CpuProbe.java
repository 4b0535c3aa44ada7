package io.jccl.cli.doctor;

import io.jccl.cli.doctor.Facts.NumaNode;
import io.jccl.internal.Cpus;
import io.jccl.topology.CpuList;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** Reads the processors' properties. */
final class CpuProbe {
    private static final String CPUS = "/sys/devices/system/cpu/";
    private static final String NODES = "/sys/devices/system/node";
    private static final String INFO = "/proc/cpuinfo";
    private static final String HUGE = "/sys/kernel/mm/transparent_hugepage/";
    private static final Pattern CHOSEN = Pattern.compile("\\[([^]]+)]");

    private final MachineFiles files;

    private CpuProbe(MachineFiles files) {
        this.files = files;
    }

    static Facts.Cpu examine(Machine machine, Cgroups cgroups) {
        return new CpuProbe(machine.files()).examine(machine.processors(), cgroups);
    }

    private Facts.Cpu examine(int processors, Cgroups cgroups) {
        Reading<BitSet> online = files.text(CPUS + "online").map(CpuList::parse);
        return new Facts.Cpu(
                model(),
                ids(online, "physical_package_id").map(Set::size),
                cores(online),
                online.map(BitSet::cardinality).or(files.lines(INFO).flatMap(CpuProbe::listed)),
                processors,
                ProcessStatus.field(files, "Cpus_allowed_list"),
                cgroups.cpuLimit(),
                ProcessStatus.field(files, INFO, "flags")
                        .map(f -> (" " + f + " ").contains(" hypervisor ")),
                numaNodes(),
                // Bit 1 concerns memory tiers.
                files.number("/proc/sys/kernel/numa_balancing").map(n -> (n & 1) != 0),
                chosen("enabled"),
                chosen("shmem_enabled"));
    }

    private Reading<String> model() {
        return files.lines(INFO)
                .flatMap(lines -> {
                    String name = Cpus.model(lines);
                    return name == null
                            ? Reading.unknown("no 'model name' in " + INFO)
                            : Reading.known(name);
                });
    }

    private static Reading<Integer> listed(List<String> lines) {
        long count = lines.stream().filter(l -> l.matches("processor\\s*:.*")).count();
        return count == 0
                ? Reading.unknown("no 'processor' in " + INFO)
                : Reading.known(Math.toIntExact(count));
    }

    private Reading<Integer> cores(Reading<BitSet> online) {
        Reading<Set<String>> siblings = ids(online, "core_cpus_list");
        return siblings.or(ids(online, "thread_siblings_list")).map(Set::size);
    }

    /** The distinct contents of a topology file over all CPUs; unknown if one cannot be read. */
    private Reading<Set<String>> ids(Reading<BitSet> online, String file) {
        return online.flatMap(cpus -> {
            Set<String> ids = new HashSet<>();
            for (int cpu : cpus.stream().toArray()) {
                Reading<String> id = files.text(CPUS + "cpu" + cpu + "/topology/" + file);
                if (!(id instanceof Reading.Known<String>(String value))) {
                    return id.map(Set::of);
                }
                ids.add(value);
            }
            return ids.isEmpty() ? Reading.unknown("no CPU is online") : Reading.known(ids);
        });
    }

    private Reading<List<NumaNode>> numaNodes() {
        return files.names(NODES)
                .map(names ->
                        names.stream()
                                .filter(n -> n.matches("node\\d+"))
                                .map(n -> numaNode(Integer.parseInt(n.substring(4))))
                                .collect(Collectors.toUnmodifiableList()));
    }

    private NumaNode numaNode(int node) {
        String folder = NODES + "/node" + node;
        return new NumaNode(
                node,
                files.text(folder + "/cpulist"),
                nodeMemory(folder, node, "MemTotal"),
                nodeMemory(folder, node, "MemFree"));
    }

    private Reading<Long> nodeMemory(String folder, int node, String name) {
        return ProcessStatus.kilobytes(files, folder + "/meminfo", "Node " + node + " " + name);
    }

    /** The word in brackets. */
    private Reading<String> chosen(String file) {
        return files.text(HUGE + file)
                .flatMap(t -> {
                    Matcher m = CHOSEN.matcher(t);
                    return m.find()
                            ? Reading.known(m.group(1))
                            : Reading.unknown("makes no sense: '" + Texts.excerpt(t) + "'");
                });
    }
}
