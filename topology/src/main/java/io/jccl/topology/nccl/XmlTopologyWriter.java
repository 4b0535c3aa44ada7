package io.jccl.topology.nccl;

import io.jccl.topology.CpuList;
import io.jccl.topology.Gpu;
import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Node;
import io.jccl.topology.Processor;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Writes one topology. */
final class XmlTopologyWriter {
    /** What NCCL itself writes for NVSwitches that a virtual machine does not show. */
    private static final String NVSWITCH_TARGET = "fffffff:ffff:ff";

    private static final String NVSWITCH_CLASS = "0x068000";
    private static final String CPU_CLASS = "0x068001";
    private static final String GPU_CLASS = "0x030200";
    private static final String NIC_CLASS = "0x020000";
    private static final String SWITCH_CLASS = "0x060400";

    /** From here on a link is not a PCIe slot but practically unlimited: a NIC in the CPU. */
    private static final double NO_SLOT = LinkModel.LOCAL / 2;

    private static final Pattern BUS_ID =
            Pattern.compile("[0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-9a-f]");

    /** A NUMA number at the end of a name; -1 is that of a machine without NUMA. */
    private static final Pattern NUMBER = Pattern.compile("(?<=numa)-1$|[0-9]{1,6}$");

    private static final int NO_NUMBER = Integer.MIN_VALUE;

    /** CPUs to choose from if the source does not mention one, by the bandwidth between two. */
    private static final List<Processor> CPUS =
            List.of(
                    new Processor("x86_64", "GenuineIntel", 6, 0x55),
                    new Processor("x86_64", "GenuineIntel", 6, 0x4f),
                    new Processor("x86_64", "GenuineIntel", 6, 0x8f),
                    new Processor("x86_64", "GenuineIntel", 6, 0xcf),
                    new Processor("x86_64", "AuthenticAMD", 23, 0x31),
                    new Processor("x86_64", "AuthenticAMD", 25, 0x01),
                    new Processor("ppc64", "", 0, 0));

    /** Names of PCIe generations that NCCL knows: with {@code .0} it wants the word behind. */
    private static final List<String> SPEEDS =
            List.of(
                    "2.5 GT/s PCIe",
                    "5.0 GT/s PCIe",
                    "8.0 GT/s PCIe",
                    "16.0 GT/s PCIe",
                    "32.0 GT/s PCIe",
                    "64.0 GT/s PCIe");

    /** GB/s of one lane of the slowest generation. */
    private static final double LANE = LinkModel.pcie(2.5, 1);

    private final Topology t;
    private final XmlText out = new XmlText();

    /** By node: the link up, or null. */
    private final @Nullable Link[] up;

    private final List<List<Link>> down = new ArrayList<>();
    private final boolean[] placed;
    private final @Nullable String[] busIds;

    /** Whether one of several machines is written. */
    private boolean single;

    XmlTopologyWriter(Topology topology) {
        t = topology;
        int n = t.nodes().size();
        up = new Link[n];
        placed = new boolean[n];
        busIds = new String[n];
        Set<String> taken = new HashSet<>();
        for (Gpu gpu : t.gpus()) {
            String real = gpu.busId() == null ? "" : gpu.busId().strip().toLowerCase(Locale.ROOT);
            if (BUS_ID.matcher(real).matches()) {
                busIds[gpu.id()] = XmlTopologyReader.canonical(real);
                if (!taken.add(t.machine(gpu.id()) + "/" + busIds[gpu.id()])) {
                    throw new IllegalArgumentException(
                            "two GPUs of one machine have bus id "
                                    + busIds[gpu.id()]
                                    + ": each needs its own in NCCL's XML");
                }
            }
        }
        int next = 0;
        for (int i = 0; i < n; i++) {
            down.add(new ArrayList<>());
            while (busIds[i] == null) {
                // Function 0: NCCL has other uses for the low bits.
                String made = String.format("ffff:%02x:%02x.0", next / 32, next % 32);
                busIds[i] = taken.add(t.machine(i) + "/" + made) ? made : null;
                next++;
            }
        }
    }

    /**
     * Writes all machines, or one.
     *
     * @param only index of a machine; -1 for all
     */
    String write(int only) {
        single = only >= 0;
        List<Switch> numas =
                t.switches().stream().filter(h -> h.kind() == Switch.Kind.NUMA).toList();
        for (Switch numa : numas) {
            placed[numa.id()] = true;
        }
        numas.forEach(numa -> grow(numa.id()));
        List<Integer> orphans = orphans();
        check();
        out.start(0, "system")
                .with("version", "1")
                .with("name", t.name().isEmpty() ? null : t.name())
                .open();
        int machines = Math.max(1, t.machines().size());
        for (int m = Math.max(0, only); m < (only < 0 ? machines : only + 1); m++) {
            machine(m, numas, orphans, machines > 1 && only < 0 ? hash(m) : null);
            out.endOfMachine(machines > 1 ? "machine " + m + " of " + t.name() : t.name());
        }
        out.close(0, "system");
        return out.toString();
    }

    private void machine(
            int machine, List<Switch> all, List<Integer> allOrphans, @Nullable String hash) {
        List<Switch> numas = all.stream().filter(n -> t.machine(n.id()) == machine).toList();
        List<Integer> orphans = allOrphans.stream().filter(o -> t.machine(o) == machine).toList();
        numbers(numas, orphans.isEmpty())
                .forEach((numa, number) -> cpu(number, numa, hash, tops(numa.id())));
        if (!orphans.isEmpty() || numas.isEmpty()) {
            cpu(-1, null, hash, orphans);
        }
    }

    /** NCCL distinguishes the machines by this. */
    private String hash(int machine) {
        return t.machines().stream().allMatch(NcclXml::isHostHash)
                ? t.machines().get(machine)
                : "0x" + Integer.toHexString(machine + 1);
    }

    /** Finds what hangs below a node. */
    private void grow(int node) {
        for (Link link : t.links(node)) {
            if (link.equals(up[node])
                    || (link.kind() != LinkKind.PCIE && link.kind() != LinkKind.HOST_BRIDGE)) {
                continue;
            }
            int below = link.opposite(node);
            if (placed[below]) {
                throw new IllegalArgumentException(
                        t.nodes().get(below).name()
                                + " can be reached over PCIe in two ways, by "
                                + t.nodes().get(node).name()
                                + " and another: NCCL's XML has a tree");
            }
            placed[below] = true;
            up[below] = link;
            down.get(node).add(link);
            if (t.nodes().get(below) instanceof Switch) {
                grow(below);
            }
        }
    }

    /** Tops of trees that belong to no NUMA node. */
    private List<Integer> orphans() {
        List<Integer> tops = new ArrayList<>();
        List<Node> order = new ArrayList<>();
        for (Switch.Kind kind : List.of(Switch.Kind.HOST_BRIDGE, Switch.Kind.PCIE_SWITCH)) {
            t.switches().stream().filter(h -> h.kind() == kind).forEach(order::add);
        }
        order.addAll(t.gpus());
        order.addAll(t.nics());
        for (Node node : order) {
            if (!placed[node.id()]) {
                placed[node.id()] = true;
                tops.add(node.id());
                grow(node.id());
            }
        }
        return tops;
    }

    /** Refuses links that would be lost. */
    private void check() {
        for (Link link : t.links()) {
            Node a = t.nodes().get(link.a());
            Node b = t.nodes().get(link.b());
            boolean known =
                    switch (link.kind()) {
                        case PCIE, HOST_BRIDGE -> true;
                        case SMP ->
                                is(a, Switch.Kind.NUMA)
                                        && is(b, Switch.Kind.NUMA)
                                        && t.machine(a.id()) == t.machine(b.id());
                        case C2C -> gpuTo(a, b, Switch.Kind.NUMA);
                        case NVLINK ->
                                (a instanceof Gpu
                                                && b instanceof Gpu
                                                && t.machine(a.id()) == t.machine(b.id()))
                                        || gpuTo(a, b, Switch.Kind.NVSWITCH)
                                        || gpuTo(a, b, Switch.Kind.NUMA);
                        case NETWORK -> true; // the network is not part of the machine
                    };
            if (!known) {
                throw new IllegalArgumentException(
                        "the %s link from %s to %s has no counterpart in NCCL's XML"
                                .formatted(link.kind(), a.name(), b.name()));
            }
        }
    }

    private static boolean gpuTo(Node a, Node b, Switch.Kind kind) {
        return (a instanceof Gpu && is(b, kind)) || (b instanceof Gpu && is(a, kind));
    }

    private static boolean is(Node node, Switch.Kind kind) {
        return node instanceof Switch sw && sw.kind() == kind;
    }

    private List<Integer> tops(int node) {
        return down.get(node).stream().map(l -> l.opposite(node)).toList();
    }

    /**
     * NUMA numbers: those at the end of the names if they differ, else counted.
     *
     * @param none whether one may be -1, which devices without a NUMA node have
     */
    private static Map<Switch, Integer> numbers(List<Switch> numas, boolean none) {
        Map<Switch, Integer> numbers = new LinkedHashMap<>();
        for (Switch numa : numas) {
            Matcher m = NUMBER.matcher(numa.name());
            numbers.put(numa, m.find() ? Integer.parseInt(m.group()) : NO_NUMBER);
        }
        Set<Integer> different = new HashSet<>(numbers.values());
        if (different.size() < numas.size()
                || different.contains(NO_NUMBER)
                || (!none && different.contains(-1))) {
            int next = 0;
            for (Switch numa : numas) {
                numbers.put(numa, next++);
            }
        }
        return numbers;
    }

    private void cpu(int number, @Nullable Switch numa, @Nullable String hash, List<Integer> tops) {
        double smp = LinkModel.DEFAULT_SMP;
        String name = null;
        if (numa != null) {
            name = numa.name().equals("numa" + number) ? null : numa.name();
            for (Link link : t.links(numa.id())) {
                smp = link.kind() == LinkKind.SMP ? link.gbps() : smp;
            }
        }
        Processor model = numa == null ? null : t.processor(numa.id());
        if (model == null) {
            model = CPUS.getFirst();
            for (Processor m : CPUS) {
                boolean nearer = Math.abs(m.smpGbps() - smp) < Math.abs(model.smpGbps() - smp);
                model = nearer ? m : model;
            }
        }
        boolean x86 = model.arch().equals("x86_64");
        // NCCL compares all twelve characters that this CPU reports.
        String vendor = model.vendor().equals("Shanghai") ? "  Shanghai  " : model.vendor();
        // All of it is in the file even if unknown: attributes that only some processes fill in
        // make NCCL take one CPU for two when it merges their files.
        out.start(2, "cpu")
                .with("numaid", "" + number)
                .with("affinity", affinity(tops))
                .with("arch", model.arch())
                .with("vendor", x86 ? vendor : null)
                .with("familyid", x86 ? "" + model.family() : null)
                .with("modelid", x86 ? "" + model.model() : null)
                .with("host_hash", hash)
                .with(XmlTopologyReader.NAME, name)
                .open();
        for (int top : tops) {
            Node node = t.nodes().get(top);
            if (is(node, Switch.Kind.HOST_BRIDGE)) {
                for (int below : tops(top)) {
                    device(4, below, node.name(), numa);
                }
            } else {
                device(4, top, "", numa);
            }
        }
        out.close(2, "cpu");
    }

    /** CPUs that all GPUs below are near to. */
    private String affinity(List<Integer> tops) {
        BitSet cpus = new BitSet();
        return collect(tops, cpus) ? CpuMask.text(cpus) : "";
    }

    private boolean collect(List<Integer> nodes, BitSet cpus) {
        boolean known = true;
        for (int node : nodes) {
            if (t.nodes().get(node) instanceof Gpu gpu) {
                known &= add(gpu.cpuAffinity(), cpus);
            }
            known &= collect(tops(node), cpus);
        }
        return known;
    }

    private static boolean add(@Nullable String list, BitSet cpus) {
        if (list == null || list.isBlank()) {
            return false;
        }
        try {
            cpus.or(CpuList.parse(list));
            return true;
        } catch (NumberFormatException e) {
            return false;
        }
    }

    /** Writes what hangs below a CPU, a bridge or a switch. */
    private void device(int indent, int id, @Nullable String bridge, @Nullable Switch numa) {
        Link link = up[id];
        double gbps = link == null ? LinkModel.PCIE_3_X16 : link.gbps();
        int lanes = 16;
        String speed = "8.0 GT/s PCIe";
        double best = Double.POSITIVE_INFINITY;
        for (int width : new int[] {16, 8, 4, 2, 1, (int) Math.max(1, Math.round(gbps / LANE))}) {
            for (int generation = 0; generation < SPEEDS.size(); generation++) {
                double off = Math.abs(LANE * width * (1 << generation) - gbps);
                if (off < best - 1e-9) {
                    best = off;
                    lanes = width;
                    speed = SPEEDS.get(generation);
                }
            }
        }
        Node node = t.nodes().get(id);
        if (node instanceof Nic nic && gbps > NO_SLOT && "".equals(bridge)) {
            out.start(indent, "nic").open();
            net(indent + 2, nic);
            out.close(indent, "nic");
            return;
        }
        String kind =
                node instanceof Gpu ? GPU_CLASS : node instanceof Nic ? NIC_CLASS : SWITCH_CLASS;
        out.start(indent, "pci")
                .with("busid", busIds[id])
                .with("class", kind)
                .with("link_speed", speed)
                .with("link_width", "" + lanes)
                .with(XmlTopologyReader.NAME, node instanceof Switch ? node.name() : null)
                .with(XmlTopologyReader.BRIDGE, bridge)
                .open();
        switch (node) {
            case Gpu gpu -> gpu(indent + 2, gpu, numa);
            case Nic nic -> {
                out.start(indent + 2, "nic").open();
                net(indent + 4, nic);
                out.close(indent + 2, "nic");
            }
            case Switch sw -> {
                for (int below : tops(sw.id())) {
                    if (is(t.nodes().get(below), Switch.Kind.HOST_BRIDGE)) {
                        throw new IllegalArgumentException(
                                "host bridge %s hangs below %s: expected it at a NUMA node"
                                        .formatted(t.nodes().get(below).name(), sw.name()));
                    }
                    device(indent + 2, below, null, numa);
                }
            }
        }
        out.close(indent, "pci");
    }

    private void net(int indent, Nic nic) {
        String device = nic.device() == null ? nic.name() : nic.device();
        out.start(indent, "net")
                .with("name", device)
                .with("dev", "" + place(t.nics(), nic))
                .with("speed", nic.gbps() > 0 ? "" + Math.round(nic.gbps() * 8000) : null)
                .with(XmlTopologyReader.NAME, device.equals(nic.name()) ? null : nic.name())
                .end();
    }

    private void gpu(int indent, Gpu gpu, @Nullable Switch numa) {
        // gdr is left out: NCCL detects it itself, but would trust the file.
        out.start(indent, "gpu")
                .with("dev", "" + t.device(gpu.id()))
                .with("sm", gpu.sm() == 0 ? null : "" + gpu.sm())
                .with("rank", "" + (single ? place(t.gpus(), gpu) : gpu.id()))
                .with(
                        XmlTopologyReader.NAME,
                        gpu.name().equals("GPU" + gpu.index()) ? null : gpu.name())
                .open();
        Map<Integer, Integer> counts = new LinkedHashMap<>();
        for (Link link : t.links(gpu.id())) {
            if (link.kind() == LinkKind.NVLINK) {
                Node to = t.nodes().get(link.opposite(gpu.id()));
                own(gpu, to, numa, "an NVLink");
                // All NVSwitches are one.
                counts.merge(
                        to instanceof Switch ? -1 - kind(to) : to.id(), link.count(), Integer::sum);
            }
        }
        counts.forEach((to, count) -> {
            boolean direct = to >= 0;
            boolean cpu = to == -1 - Switch.Kind.NUMA.ordinal();
            out.start(indent + 2, "nvlink")
                    .with("target", direct ? busIds[to] : NVSWITCH_TARGET)
                    .with("count", "" + count)
                    .with("tclass", direct ? GPU_CLASS : cpu ? CPU_CLASS : NVSWITCH_CLASS)
                    .end();
        });
        for (Link link : t.links(gpu.id())) {
            if (link.kind() == LinkKind.C2C) {
                own(gpu, t.nodes().get(link.opposite(gpu.id())), numa, "C2C");
                out.start(indent + 2, "c2c")
                        .with("bw", "" + Math.max(1, Math.round(link.gbps() * 1000 / link.count())))
                        .with("count", "" + link.count())
                        .end();
            }
        }
        out.close(indent, "gpu");
    }

    /** Index of a device among those of its machine. */
    private int place(List<? extends Node> devices, Node device) {
        int place = 0;
        for (Node other : devices) {
            if (other.equals(device)) {
                break;
            }
            place += t.machine(other.id()) == t.machine(device.id()) ? 1 : 0;
        }
        return place;
    }

    private static int kind(Node sw) {
        return ((Switch) sw).kind().ordinal();
    }

    /** A link to a CPU does not name the CPU: it must be the GPU's own. */
    private static void own(Gpu gpu, Node to, @Nullable Switch numa, String what) {
        if (is(to, Switch.Kind.NUMA) && !to.equals(numa)) {
            throw new IllegalArgumentException(
                    "%s has %s to %s, but PCIe to %s: NCCL's XML has links to a GPU's own CPU only"
                            .formatted(
                                    gpu.name(),
                                    what,
                                    to.name(),
                                    numa == null ? "no NUMA node" : numa.name()));
        }
    }
}
