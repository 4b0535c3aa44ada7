package io.jccl.topology.read;

import io.jccl.topology.CpuList;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Processor;
import io.jccl.topology.Source;
import io.jccl.topology.Warning;
import io.jccl.topology.internal.PciTree;
import io.jccl.topology.internal.PciTree.Cpu;
import io.jccl.topology.internal.PciTree.Item;
import io.jccl.topology.internal.PciTree.Kind;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Reads the PCI devices of {@code /sys}. Where a device is in the tree is in the name of its
 * directory: {@code devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0}. The first bridge below the host
 * bridge is the root port, which is a part of it; of the others each pair is the upstream and a
 * downstream port of a switch (NCCL takes it likewise, src/graph/xml.cc).
 */
final class SysPci {
    private static final Pattern ADDRESS =
            Pattern.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-9a-f]");
    private static final Pattern HOST_BRIDGE = Pattern.compile("pci[0-9a-f]{4,8}:[0-9a-f]{2}");
    private static final int MAX_LANES = 32;

    /** Far more than a machine has: a damaged file must not make a large set. */
    private static final int MAX_NODES = 1 << 16;

    /** A device and the bridges above it, the root port first. */
    private record Place(String address, Path directory, String host, List<Path> bridges) {}

    private final Path root;
    private final Path cpuinfo;
    private final List<Warning> warnings = new ArrayList<>();
    private final PciTree tree = new PciTree();
    private final Map<Integer, Cpu> cpus = new TreeMap<>();
    private final Map<Integer, BitSet> nodes;

    /** Bridges and switches by NUMA node and address. */
    private final Map<String, Item> switches = new HashMap<>();

    SysPci(Path root, Path cpuinfo) {
        this.root = root;
        this.cpuinfo = cpuinfo;
        nodes = SysFs.numaNodes(root);
    }

    List<Warning> warnings() {
        return warnings;
    }

    void warn(String message) {
        warnings.add(Warning.of(message));
    }

    /** Everything, GPUs and NICs in the order of their addresses. */
    PciTree read() {
        nodes.forEach((id, set) -> {
            if (!set.isEmpty()) { // else it is the memory of a device
                cpu(id);
            }
        });
        if (cpus.isEmpty()) {
            cpu(0);
        }
        Map<String, List<Path>> infiniband = byAddress("infiniband");
        Map<String, List<Path>> net = byAddress("net");
        for (Path entry : SysFiles.list(root.resolve("bus/pci/devices"))) {
            Place place = place(entry);
            String kind = place == null ? null : SysFiles.text(entry.resolve("class"));
            if (place == null || kind == null) {
                continue;
            }
            boolean nvidia = "0x10de".equals(SysFiles.text(entry.resolve("vendor")));
            List<Path> ports = infiniband.getOrDefault(place.address, List.of());
            List<Path> names = net.getOrDefault(place.address, List.of());
            if (nvidia && (kind.startsWith("0x0300") || kind.startsWith("0x0302"))) {
                gpu(place);
            } else if (!ports.isEmpty() || kind.startsWith("0x0200") || kind.startsWith("0x0207")) {
                nics(place, ports, names);
            }
        }
        tree.machines.add(""); // one, and it needs no id
        tree.cpus.addAll(cpus.values());
        return tree;
    }

    private Cpu cpu(int id) {
        return cpus.computeIfAbsent(
                id,
                n -> {
                    Cpu cpu = new Cpu(0, n);
                    BitSet set = nodes.get(n);
                    cpu.affinity = set == null || set.isEmpty() ? null : CpuList.text(set);
                    processor(cpu);
                    return cpu;
                });
    }

    /** The CPU's model, as Linux writes it for each architecture. */
    private void processor(Cpu cpu) {
        Map<String, String> info = new HashMap<>();
        String text = SysFiles.text(cpuinfo);
        if (text != null) {
            for (String line : text.split("\n", -1)) {
                int colon = line.indexOf(':');
                if (colon > 0) {
                    info.putIfAbsent(
                            line.substring(0, colon).strip().toLowerCase(Locale.ROOT),
                            line.substring(colon + 1).strip());
                }
            }
        }
        String vendor = info.get("vendor_id");
        String arch =
                vendor != null
                        ? "x86_64"
                        : info.containsKey("cpu implementer")
                                ? "arm64"
                                : info.getOrDefault("cpu", "").startsWith("POWER") ? "ppc64" : null;
        if (arch != null) {
            cpu.processor =
                    new Processor(
                            arch,
                            vendor == null ? "" : vendor,
                            number(info.get("cpu family")),
                            number(info.get("model")));
        }
    }

    private static int number(@Nullable String text) {
        return text != null && text.matches("[0-9]{1,6}") ? Integer.parseInt(text) : 0;
    }

    /** Entries of a device class by the PCI device that they belong to. */
    private Map<String, List<Path>> byAddress(String kind) {
        Map<String, List<Path>> all = new HashMap<>();
        for (Path entry : SysFiles.list(root.resolve("class").resolve(kind))) {
            String address = lastAddress(SysFiles.real(entry));
            if (address == null) {
                address = lastAddress(SysFiles.real(entry.resolve("device")));
            }
            if (address != null) {
                all.computeIfAbsent(address, a -> new ArrayList<>()).add(entry);
            }
        }
        return all;
    }

    private static @Nullable String lastAddress(@Nullable Path path) {
        String last = null;
        if (path != null) {
            for (Path part : path) {
                last = ADDRESS.matcher(part.toString()).matches() ? part.toString() : last;
            }
        }
        return last;
    }

    private static @Nullable Place place(Path entry) {
        Path real = SysFiles.real(entry);
        if (real == null) {
            return null;
        }
        String host = null;
        List<Path> chain = new ArrayList<>();
        Path at = real.getRoot();
        for (Path part : real) {
            at = at == null ? part : at.resolve(part);
            String name = part.toString();
            if (HOST_BRIDGE.matcher(name).matches()) {
                host = name;
                chain.clear();
            } else if (host != null && ADDRESS.matcher(name).matches()) {
                chain.add(at);
            }
        }
        if (host == null || chain.isEmpty()) {
            return null;
        }
        Path directory = chain.removeLast();
        return new Place(String.valueOf(directory.getFileName()), directory, host, chain);
    }

    private void gpu(Place place) {
        Item gpu = new Item(Kind.GPU);
        gpu.index = tree.gpus.size();
        gpu.busId = place.address;
        bandwidth(gpu, place.directory, true);
        tree.gpus.add(gpu);
        parent(place).add(gpu);
    }

    private void nics(Place place, List<Path> ports, List<Path> names) {
        double ethernet = 0;
        for (Path name : names) {
            int megabits = SysFiles.number(name.resolve("speed"), -1); // -1 too if it is down
            ethernet = Math.max(ethernet, megabits / 8000.0);
        }
        List<Path> all = ports.isEmpty() ? names : ports;
        for (int i = 0; i < Math.max(1, all.size()); i++) {
            Item nic = new Item(Kind.NIC);
            nic.busId = place.address;
            nic.port = ethernet;
            if (!all.isEmpty()) {
                nic.device = String.valueOf(all.get(i).getFileName());
                nic.name = nic.device;
                double rate = ports.isEmpty() ? 0 : rate(all.get(i));
                nic.port = rate > 0 ? rate : ethernet;
            }
            bandwidth(nic, place.directory, false);
            tree.nics.add(nic);
            parent(place).add(nic);
        }
    }

    /** GB/s of the fastest port of an InfiniBand device, from {@code 400 Gb/sec (4X NDR)}. */
    private static double rate(Path device) {
        double best = 0;
        for (Path port : SysFiles.list(device.resolve("ports"))) {
            best = Math.max(best, leading(SysFiles.text(port.resolve("rate"))) / 8);
        }
        return best;
    }

    /** The number that a text starts with; 0 if it starts with none. */
    private static double leading(@Nullable String text) {
        if (text != null) {
            try {
                double value = Double.parseDouble(text.split("\\s+", 2)[0]);
                return value > 0 && value < 1e6 ? value : 0;
            } catch (NumberFormatException e) {
                return 0;
            }
        }
        return 0;
    }

    /** What a device hangs on: makes bridge and switches. */
    private List<Item> parent(Place place) {
        int numa = numa(place);
        String key = numa + "/" + place.host;
        Item at = switches.get(key);
        if (at == null) {
            at = new Item(Kind.BRIDGE);
            at.name = place.host;
            switches.put(key, at);
            cpu(numa).items.add(at);
        }
        for (int b = 1; b < place.bridges.size(); b += 2) {
            Path upstream = place.bridges.get(b);
            key += "/" + upstream.getFileName();
            Item next = switches.get(key);
            if (next == null) {
                next = new Item(Kind.SWITCH);
                next.busId = String.valueOf(upstream.getFileName());
                bandwidth(next, upstream, false);
                switches.put(key, next);
                at.items.add(next);
            }
            at = next;
        }
        return at.items;
    }

    private int numa(Place place) {
        int numa = SysFiles.number(place.directory.resolve("numa_node"), -1);
        if (numa >= 0 && (nodes.isEmpty() || nodes.containsKey(numa)) && numa < MAX_NODES) {
            return numa;
        }
        int first = cpus.keySet().iterator().next();
        if (cpus.size() == 1) {
            return first;
        }
        BitSet near = SysFiles.cpus(place.directory.resolve("local_cpulist"));
        int found = -1;
        for (Map.Entry<Integer, BitSet> node : nodes.entrySet()) {
            BitSet outside = (BitSet) near.clone();
            outside.andNot(node.getValue());
            if (!near.isEmpty() && outside.isEmpty()) {
                found = node.getKey();
            }
        }
        if (found < 0) {
            warn(
                    "/sys does not show the NUMA node of %s: taken for node %s"
                            .formatted(place.address, first));
            found = first;
        }
        return found;
    }

    private static void bandwidth(Item item, Path device, boolean slowsDown) {
        Path slot = device.resolveSibling(""); // the port that the device is plugged into
        double max = lower(speed(device, "max"), speed(slot, "max"));
        double current = speed(device, "current");
        double speed = (slowsDown && max > 0) || current == 0 ? max : current;
        int lanes = SysFiles.number(device.resolve("current_link_width"), 0);
        if (lanes < 1 || lanes > MAX_LANES) {
            lanes =
                    (int)
                            lower(
                                    SysFiles.number(device.resolve("max_link_width"), 0),
                                    SysFiles.number(slot.resolve("max_link_width"), 0));
        }
        if (lanes < 1 || lanes > MAX_LANES) {
            lanes = 0;
        }
        item.gbps = lanes == 0 ? 0 : LinkModel.pcie(speed, lanes);
        item.source = Source.DEVICE;
        if (item.gbps == 0) {
            item.gbps = LinkModel.PCIE_3_X16;
            item.source = Source.DEFAULT;
        }
    }

    private static double speed(Path device, String which) {
        return leading(SysFiles.text(device.resolve(which + "_link_speed")));
    }

    /** The lower of two figures of which either may be unknown. */
    private static double lower(double a, double b) {
        return a <= 0 ? b : b <= 0 ? a : Math.min(a, b);
    }
}
