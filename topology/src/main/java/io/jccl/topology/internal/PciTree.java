package io.jccl.topology.internal;

import io.jccl.topology.Gpu;
import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Processor;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * NUMA nodes, and below each of them host bridges, PCIe switches, GPUs and NICs: the content of
 * both NCCL's XML and Linux's {@code /sys}. A reader fills one in, and {@link #build} makes the
 * graph from it. Not thread-safe.
 */
public final class PciTree {
    /** What an {@link Item} is. */
    public enum Kind {
        /** A PCIe host bridge. */
        BRIDGE,
        /** A PCIe switch. */
        SWITCH,
        /** A GPU. */
        GPU,
        /** A port of a NIC. */
        NIC
    }

    /** A NUMA node. */
    public static final class Cpu {
        /** Its machine, if there are several; 0 if there is one. */
        public final int host;

        /** Its number; -1 if unknown. */
        public final int numa;

        /** Its name; made of its number if null. */
        public @Nullable String name;

        /** The CPU, which decides on the link to each other NUMA node of its machine, if known. */
        public @Nullable Processor processor;

        /** List of its CPUs, if known. */
        public @Nullable String affinity;

        /** What hangs on it. */
        public final List<Item> items = new ArrayList<>();

        /** Id in the graph, once built. */
        public int id = -1;

        /**
         * Makes one.
         *
         * @param host which machine
         * @param numa its number
         */
        public Cpu(int host, int numa) {
            this.host = host;
            this.numa = numa;
        }
    }

    /** Anything below a NUMA node. */
    public static final class Item {
        /** What it is. */
        public final Kind kind;

        /** Its name; made up if null. */
        public @Nullable String name;

        /** PCI address, if known. */
        public @Nullable String busId;

        /** GB/s of the link to its parent; 0 for a bridge whose link is not known. */
        public double gbps;

        /** Where that comes from. */
        public Source source = Source.DEFAULT;

        /** Of a GPU: its number. */
        public int index = -1;

        /** Of a GPU: compute capability times ten; 0 if unknown. */
        public int sm;

        /** Of a GPU: where {@link #sm} comes from. */
        public Source smSource = Source.DEFAULT;

        /** Of a GPU: its marketing name, if known. */
        public @Nullable String model;

        /** Of a GPU: what was printed of its affinities, if that is known better. */
        public @Nullable Gpu printed;

        /** Of a NIC: its device, if known. */
        public @Nullable String device;

        /** Of a NIC: GB/s of the port; 0 if unknown. */
        public double port;

        /** Of a bridge or a switch: its children. */
        public final List<Item> items = new ArrayList<>();

        /** Id in the graph, once built. */
        public int id = -1;

        /**
         * Makes one.
         *
         * @param kind what it is
         */
        public Item(Kind kind) {
            this.kind = kind;
        }
    }

    /** Ids of the machines, by {@link Cpu#host}; none if the source does not mention machines. */
    public final List<String> machines = new ArrayList<>();

    /** NUMA nodes in the order of the source. */
    public final List<Cpu> cpus = new ArrayList<>();

    /** GPUs in the order that they shall have in the graph. */
    public final List<Item> gpus = new ArrayList<>();

    /** NICs in the order that they shall have in the graph. */
    public final List<Item> nics = new ArrayList<>();

    private final Set<String> names = new HashSet<>();

    /** The NUMA node that each item is below. */
    private final Map<Item, Cpu> homes = new HashMap<>();

    /** Makes an empty one. */
    public PciTree() {}

    /**
     * Makes the graph of it. Every two NUMA nodes of a machine are linked, as NCCL does it; the
     * bandwidth between them is that of the slower one.
     *
     * @param name a name for people
     * @return a builder with all nodes and links, for more to be added
     */
    public Topology.Builder build(String name) {
        Topology.Builder b = new Topology.Builder(name);
        for (Cpu cpu : cpus) {
            prepare(cpu, cpu.items);
        }
        for (Item gpu : gpus) {
            Cpu cpu = homes.get(gpu);
            Gpu printed = gpu.printed;
            String near = cpu == null ? null : cpu.affinity;
            String numa = cpu == null || cpu.numa < 0 ? null : "" + cpu.numa;
            gpu.id =
                    b.add(
                            new Gpu(
                                    b.nextId(),
                                    unique(gpu.name, "GPU", gpu.index),
                                    gpu.index,
                                    gpu.model,
                                    gpu.sm,
                                    gpu.smSource,
                                    gpu.busId,
                                    printed == null ? near : printed.cpuAffinity(),
                                    printed == null ? numa : printed.numaAffinity(),
                                    printed == null ? null : printed.gpuNumaId()));
        }
        int n = 0;
        for (Item nic : nics) {
            nic.id = b.add(new Nic(b.nextId(), unique(nic.name, "NIC", n++), nic.device, nic.port));
        }
        for (Cpu cpu : cpus) {
            String base = (cpu.host == 0 ? "" : "host" + cpu.host + "-") + "numa";
            cpu.id = b.addSwitch(unique(cpu.name, base, cpu.numa), Switch.Kind.NUMA);
            if (cpu.processor != null) {
                b.processor(cpu.id, cpu.processor);
            }
        }
        // Names of the source come first, so that made-up ones do not collide with them.
        List<Item> switches = new ArrayList<>();
        for (Cpu cpu : cpus) {
            switches(cpu.items, switches);
        }
        for (Item sw : switches) {
            if (sw.name != null) {
                sw.name = unique(sw.name, "switch", 0);
            }
        }
        int bridges = 0;
        int pcieSwitches = 0;
        for (Item sw : switches) {
            boolean bridge = sw.kind == Kind.BRIDGE;
            String switchName = sw.name;
            if (switchName == null) {
                switchName =
                        bridge
                                ? unique(null, "host-bridge", bridges++)
                                : unique(null, "pcie-switch", pcieSwitches++);
            }
            sw.id =
                    b.addSwitch(
                            switchName, bridge ? Switch.Kind.HOST_BRIDGE : Switch.Kind.PCIE_SWITCH);
        }
        machines.forEach(b::addMachine);
        for (Cpu cpu : cpus) {
            if (cpu.host > 0) {
                b.machine(cpu.id, cpu.host);
            }
            link(b, cpu.id, cpu.items);
        }
        homes.forEach((item, cpu) -> {
            if (cpu.host > 0) {
                b.machine(item.id, cpu.host);
            }
        });
        for (int i = 0; i < cpus.size(); i++) {
            for (int j = i + 1; j < cpus.size(); j++) {
                Cpu x = cpus.get(i);
                Cpu y = cpus.get(j);
                if (x.host == y.host) {
                    Cpu slow = smp(x) <= smp(y) ? x : y;
                    Source source = slow.processor == null ? Source.DEFAULT : Source.NCCL_MODEL;
                    b.link(x.id, y.id, LinkKind.SMP, 1, smp(slow), source);
                }
            }
        }
        return b;
    }

    private static double smp(Cpu cpu) {
        return cpu.processor == null ? LinkModel.DEFAULT_SMP : cpu.processor.smpGbps();
    }

    /**
     * The NUMA node that an item is below, once built.
     *
     * @param item an item of this tree
     * @return its NUMA node
     */
    public Cpu cpu(Item item) {
        return Objects.requireNonNull(homes.get(item));
    }

    /**
     * Removes everything without a GPU or NIC of the lists below it, and devices not in the lists.
     */
    public void prune() {
        Set<Item> keep = new HashSet<>();
        keep.addAll(gpus);
        keep.addAll(nics);
        cpus.forEach(cpu -> prune(cpu.items, keep));
    }

    private static void prune(List<Item> items, Set<Item> keep) {
        for (Item item : items) {
            prune(item.items, keep);
        }
        items.removeIf(item -> item.items.isEmpty() && !keep.contains(item));
    }

    /** Notes whose each device is, and gives bridges their bandwidth. */
    private void prepare(Cpu cpu, List<Item> items) {
        for (Item item : items) {
            homes.put(item, cpu);
            prepare(cpu, item.items);
            if (item.kind == Kind.BRIDGE && item.gbps == 0) {
                // Not published. CPUs serve at least two slots at full speed.
                double widest = LinkModel.PCIE_3_X16;
                for (Item below : item.items) {
                    widest = Math.max(widest, below.gbps);
                }
                item.gbps = 2 * widest;
            }
        }
    }

    private static void switches(List<Item> items, List<Item> all) {
        for (Item item : items) {
            if (item.kind == Kind.BRIDGE || item.kind == Kind.SWITCH) {
                all.add(item);
            }
            switches(item.items, all);
        }
    }

    private static void link(Topology.Builder b, int parent, List<Item> items) {
        for (Item item : items) {
            LinkKind kind = item.kind == Kind.BRIDGE ? LinkKind.HOST_BRIDGE : LinkKind.PCIE;
            b.link(item.id, parent, kind, 1, item.gbps, item.source);
            link(b, item.id, item.items);
        }
    }

    /**
     * A name for another node, once built.
     *
     * @param wanted what it should be
     * @return that, or followed by a number if a node already has it
     */
    public String unique(String wanted) {
        return unique(wanted, "", 0);
    }

    /** A name that no other node has: what is wanted, or made of a word and a number. */
    private String unique(@Nullable String wanted, String word, int number) {
        String base = wanted != null ? wanted : word + number;
        String name = base;
        for (int n = 1; !names.add(name); n++) {
            name = base + "-" + n;
        }
        return name;
    }
}
