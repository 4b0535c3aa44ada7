package io.jccl.topology.nccl;

import io.jccl.topology.CpuList;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Processor;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import io.jccl.topology.internal.PciTree;
import io.jccl.topology.internal.PciTree.Cpu;
import io.jccl.topology.internal.PciTree.Item;
import io.jccl.topology.internal.PciTree.Kind;
import io.jccl.topology.nccl.XmlTree.Element;
import java.util.BitSet;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Reads one topology. */
final class XmlTopologyReader {
    static final String NAME = "jccl_name";
    static final String BRIDGE = "jccl_bridge";

    private static final Pattern BUS_ID =
            Pattern.compile("[0-9a-f]{1,8}:[0-9a-f]{1,4}:[0-9a-f]{1,2}(\\.[0-9a-f])?");
    private static final int MAX_LANES = 4096;

    /** In MB/s and Mbit/s: far above real rates, far below an overflow. */
    static final int MAX_RATE = 1_000_000_000;

    private final XmlTree in;
    private final PciTree tree = new PciTree();
    private final XmlLinks links;

    /** Index of each machine by its {@code host_hash}, in the order of the file. */
    private final Map<String, Integer> hosts = new LinkedHashMap<>();

    private final Set<String> busIds = new HashSet<>();
    private final Map<Item, Cpu> homes = new HashMap<>();
    private final Map<Item, Integer> devs = new HashMap<>();
    private final Map<Item, Element> nets = new HashMap<>();

    /** A host bridge by NUMA node and name. */
    private final Map<Cpu, Map<String, Item>> bridges = new HashMap<>();

    XmlTopologyReader(boolean lenient) {
        in = new XmlTree(lenient);
        links = new XmlLinks(in, tree);
    }

    Topology read(String xml, String name) {
        Element system = in.parse(xml);
        if (system == null) {
            throw new TopologyFormatException(
                    1, 1, "no XML element: expected <system version=\"1\">, NCCL's topology XML");
        }
        if (!system.name().equals("system")) {
            throw new TopologyFormatException(
                    system.line(),
                    system.column(),
                    system.name().equals("graphs")
                            ? "this is NCCL's graph XML, which has no links: expected its topology"
                                    + " XML, which NCCL_TOPO_DUMP_FILE writes"
                            : "found <"
                                    + system.name()
                                    + ">, expected <system>, the root of NCCL's topology XML");
        }
        XmlSchema.check(in, system);
        if (!"1".equals(system.get("version"))) {
            in.bad(
                    system,
                    String.format(
                            "version of <system> is %s, expected \"1\", the only one supported%s",
                            XmlTree.quoted(system.get("version")),
                            "2".equals(system.get("version")) ? ": 2 is of RCCL, AMD's NCCL" : ""));
        }
        for (Element child : system.children()) {
            if (child.name().equals("cpu")) {
                cpu(child);
            }
        }
        if (tree.cpus.isEmpty()) {
            in.bad(system, "no <cpu> in <system>: the file has no machine");
        }
        number();
        String given = system.get("name");
        tree.machines.addAll(hosts.keySet());
        Topology.Builder b = tree.build(!name.isEmpty() ? name : given == null ? "" : given);
        links.add(b);
        devs.forEach((item, dev) -> {
            if (item.kind == Kind.GPU && item.index != dev) {
                b.device(item.id, dev);
            }
        });
        for (Warning warning : in.warnings()) {
            b.warn(warning);
        }
        return b.build();
    }

    private void cpu(Element e) {
        XmlSchema.check(in, e);
        String hash = e.get("host_hash");
        int host = hosts.computeIfAbsent(NcclXml.hostHash(hash), h -> hosts.size());
        Integer numa = in.number(e, "numaid", -1, 1 << 20, true);
        Cpu cpu = new Cpu(host, numa == null ? -1 : numa);
        for (Cpu other : tree.cpus) {
            if (other.host == cpu.host && other.numa == cpu.numa) {
                in.bad(
                        e,
                        "a second <cpu> with numaid " + cpu.numa + ": expected one per NUMA node");
            }
        }
        cpu.name = e.get(NAME);
        cpu.affinity = affinity(e);
        String arch = e.get("arch");
        if (arch == null) {
            in.warnOnce(e, "<cpu> has no arch: the link between CPUs is a guess");
        } else {
            String vendor = Objects.requireNonNullElse(e.get("vendor"), "").strip();
            Integer family = in.number(e, "familyid", 0, 1 << 20, false);
            Integer model = in.number(e, "modelid", 0, 1 << 20, false);
            cpu.processor =
                    new Processor(
                            arch, vendor, family == null ? 0 : family, model == null ? 0 : model);
            // Before Skylake all of a socket's PCIe ports were on one host bridge.
            if (vendor.equals("GenuineIntel")
                    && family != null
                    && family == 6
                    && model != null
                    && model < 0x55) {
                bridges.computeIfAbsent(cpu, c -> new HashMap<>()).put("", bridge(cpu, null));
            }
        }
        tree.cpus.add(cpu);
        for (Element child : e.children()) {
            switch (child.name()) {
                case "pci" -> pci(child, cpu, null);
                case "nic" -> nic(child, cpu, cpu.items, LinkModel.LOCAL, Source.DEFAULT);
                default -> {
                    // check() has warned.
                }
            }
        }
        cpu.items.removeIf(i -> i.kind == Kind.BRIDGE && i.items.isEmpty());
    }

    private static Item bridge(Cpu cpu, @Nullable String name) {
        Item bridge = new Item(Kind.BRIDGE);
        bridge.name = name;
        cpu.items.add(bridge);
        return bridge;
    }

    /** The parent's items for a {@code pci} directly below a {@code cpu}. */
    private List<Item> below(Element e, Cpu cpu) {
        String name = e.get(BRIDGE);
        if (name == null) {
            Map<String, Item> shared = bridges.get(cpu);
            Item bridge = shared == null ? null : shared.get("");
            return (bridge == null ? bridge(cpu, null) : bridge).items;
        }
        if (name.isEmpty()) {
            return cpu.items;
        }
        return bridges.computeIfAbsent(cpu, c -> new HashMap<>())
                .computeIfAbsent(name, n -> bridge(cpu, n))
                .items;
    }

    private void pci(Element e, Cpu cpu, @Nullable List<Item> parent) {
        XmlSchema.check(in, e);
        String busId = e.get("busid");
        String id = busId == null ? null : busId.strip().toLowerCase(Locale.ROOT);
        if (id == null || !BUS_ID.matcher(id).matches()) {
            in.bad(
                    e,
                    "busid of <pci> is "
                            + XmlTree.quoted(busId)
                            + ", expected a PCI address such as \"0000:07:00.0\"");
            id = null;
        } else if (!busIds.add(cpu.host + "/" + canonical(id))) {
            in.bad(
                    e,
                    "busid "
                            + id
                            + " appears at two <pci>: expected each once; the second is left out");
            return;
        }
        List<Element> gpus = e.children("gpu");
        List<Element> nics = e.children("nic");
        List<Element> below = e.children("pci");
        String kind = e.get("class");
        if (kind == null) {
            in.bad(
                    e,
                    "class of <pci> is missing: expected a PCI class such as \"0x030200\" for a"
                            + " GPU, \"0x020700\" for a NIC, \"0x060400\" for a switch");
            kind = "";
        }
        Item item;
        if (!gpus.isEmpty() || kind.startsWith("0x03")) {
            item = new Item(Kind.GPU);
            gpu(e, gpus, item, id, cpu);
        } else if (below.isEmpty() && (!nics.isEmpty() || kind.startsWith("0x02"))) {
            item = new Item(Kind.NIC);
        } else {
            item = new Item(Kind.SWITCH);
            item.name = e.get(NAME);
        }
        // Domain ffff is for made-up addresses.
        item.busId = id == null || id.startsWith("ffff:") ? null : id;
        bandwidth(e, item);
        homes.put(item, cpu);
        List<Item> at = parent == null ? below(e, cpu) : parent;
        switch (item.kind) {
            case NIC -> {
                int before = at.size();
                for (Element nic : nics) {
                    nic(nic, cpu, at, item.gbps, item.source);
                }
                if (at.size() == before) {
                    // Files for virtual machines have no <nic>: NCCL adds it.
                    in.warnOnce(
                            e, "<pci> of a NIC without <net>: its name and speed are not known");
                    at.add(item);
                    tree.nics.add(item);
                }
            }
            case SWITCH -> {
                at.add(item);
                for (Element child : below) {
                    pci(child, cpu, item.items);
                }
                for (Element nic : nics) {
                    nic(nic, cpu, item.items, item.gbps, item.source);
                }
                if (!e.children("pcilink").isEmpty()) {
                    in.warnOnce(
                            e, "<pcilink>, a direct link between PCIe switches, is not modelled");
                }
            }
            default -> {
                at.add(item);
                tree.gpus.add(item);
                if (!below.isEmpty()) {
                    in.bad(below.getFirst(), "<pci> below a GPU: expected GPUs to be leaves");
                }
            }
        }
    }

    private void bandwidth(Element e, Item item) {
        Integer width = in.number(e, "link_width", 0, MAX_LANES, false);
        int lanes = width == null || width == 0 ? 16 : width; // as NCCL does
        String speed = e.get("link_speed");
        double gigatransfers = 0;
        if (speed != null && !speed.isBlank()) {
            try {
                gigatransfers = Double.parseDouble(speed.strip().split("\\s+", 2)[0]);
            } catch (NumberFormatException x) {
                gigatransfers = 0;
            }
        }
        double gbps = LinkModel.pcie(gigatransfers, lanes);
        if (gbps == 0) {
            in.warn(
                    e.line(),
                    e.column(),
                    "link_speed of <pci> is "
                            + XmlTree.quoted(speed)
                            + ", expected a speed such as \"16.0 GT/s PCIe\"; PCIe 3.0 is assumed, as NCCL"
                            + " does");
            gbps = LinkModel.pcie(8, lanes);
            item.source = Source.DEFAULT;
        } else {
            item.source = speed == null || width == null ? Source.DEFAULT : Source.DEVICE;
        }
        item.gbps = gbps;
    }

    private void gpu(Element pci, List<Element> gpus, Item item, @Nullable String busId, Cpu cpu) {
        links.gpu(item, cpu, busId);
        if (gpus.isEmpty()) {
            // Files for virtual machines have none: NCCL adds it.
            in.warnOnce(
                    pci,
                    "<pci> of a GPU without <gpu>: its number, compute capability and NVLinks are"
                            + " not known");
            return;
        }
        Element e = gpus.getFirst();
        if (gpus.size() > 1) {
            in.bad(gpus.get(1), "a second <gpu> in a <pci>: parts of a GPU are not supported");
        }
        XmlSchema.check(in, e);
        item.name = e.get(NAME);
        Integer dev = in.number(e, "dev", 0, 1 << 20, false);
        if (dev != null) {
            devs.put(item, dev);
        }
        Integer sm = in.number(e, "sm", 0, 10_000, false);
        if (sm == null) {
            in.warnOnce(e, "<gpu> without sm: the bandwidth of its NVLinks is a guess");
        } else {
            item.sm = sm;
            item.smSource = Source.DEVICE;
        }
        links.element(item, e);
    }

    private void nic(Element e, Cpu cpu, List<Item> at, double gbps, Source source) {
        XmlSchema.check(in, e);
        for (Element net : e.children("net")) {
            XmlSchema.check(in, net);
            Item nic = new Item(Kind.NIC);
            nic.device = net.get("name");
            nic.name = net.get(NAME);
            if (nic.name == null) {
                nic.name =
                        nic.device == null || cpu.host == 0
                                ? nic.device
                                : "host" + cpu.host + "-" + nic.device;
            }
            if (nic.device == null) {
                in.bad(net, "<net> without name: expected such as \"mlx5_0\"");
            }
            Integer speed = in.number(net, "speed", -1, MAX_RATE, false);
            nic.port = speed == null || speed <= 0 ? 0 : speed / 8000.0; // Mbit/s
            nic.gbps = gbps;
            nic.source = source;
            Integer dev = in.number(net, "dev", 0, 1 << 20, false);
            if (dev != null) {
                devs.put(nic, dev);
            }
            homes.put(nic, cpu);
            nets.put(nic, net);
            at.add(nic);
            tree.nics.add(nic);
        }
    }

    /** Numbers and orders GPUs and NICs, and rejects duplicate names. */
    private void number() {
        boolean several = hosts.size() > 1;
        Set<Integer> used = new HashSet<>();
        for (Item gpu : tree.gpus) {
            Integer dev = devs.get(gpu);
            if (dev == null || several) {
                continue;
            }
            if (used.add(dev)) {
                gpu.index = dev;
            } else {
                Element e = links.element(gpu);
                in.bad(
                        e,
                        "dev "
                                + dev
                                + " appears at two <gpu>: expected a different number for each");
            }
        }
        if (several) {
            in.warn(
                    0,
                    0,
                    "the file has "
                            + hosts.size()
                            + " machines: their GPUs are numbered consecutively, machine by machine");
        }
        Comparator<Item> byHost = Comparator.comparingInt(i -> home(i).host);
        Comparator<Item> byDev =
                byHost.thenComparingInt(i -> devs.getOrDefault(i, Integer.MAX_VALUE));
        tree.gpus.sort(byDev);
        tree.nics.sort(byDev);
        int next = 0;
        for (Item gpu : tree.gpus) {
            if (gpu.index < 0) {
                while (!used.add(next)) {
                    next++;
                }
                gpu.index = next;
            }
        }
        tree.gpus.sort(Comparator.comparingInt(i -> i.index));
        Set<String> names = new HashSet<>();
        for (Item nic : tree.nics) {
            if (nic.name != null && !names.add(nic.name)) {
                in.bad(
                        Objects.requireNonNull(nets.get(nic)),
                        "the name "
                                + XmlTree.quoted(nic.name)
                                + " appears at two <net>: expected a different name for each");
            }
        }
    }

    private Cpu home(Item item) {
        return Objects.requireNonNull(homes.get(item));
    }

    /** The CPUs of a mask such as {@code 0000ffff,0000ffff}, as a list. */
    private @Nullable String affinity(Element e) {
        String mask = e.get("affinity");
        if (mask == null || mask.isBlank()) {
            return null;
        }
        BitSet cpus = CpuMask.parse(mask);
        if (cpus == null) {
            in.bad(
                    e,
                    "affinity of <cpu> is "
                            + XmlTree.quoted(mask)
                            + ", expected a mask of hexadecimal digits such as"
                            + " \"0000ffff,0000ffff\"");
        }
        return cpus == null ? null : CpuList.text(cpus);
    }

    /** Bus ids as NCCL compares them: nvidia-smi writes longer domains. */
    static String canonical(String busId) {
        int colon = busId.indexOf(':');
        String domain = colon < 0 ? busId : busId.substring(0, colon);
        String plain = domain.replaceFirst("^0+(?=.)", "");
        return "0".repeat(Math.max(0, 4 - plain.length()))
                + plain
                + (colon < 0 ? "" : busId.substring(colon));
    }
}
