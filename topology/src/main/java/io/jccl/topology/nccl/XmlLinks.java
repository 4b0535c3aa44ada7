package io.jccl.topology.nccl;

import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.internal.PciTree;
import io.jccl.topology.internal.PciTree.Cpu;
import io.jccl.topology.internal.PciTree.Item;
import io.jccl.topology.nccl.XmlTree.Element;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The GPUs of one topology XML, and their links: NVLinks and NVLink-C2C. Not thread-safe. */
final class XmlLinks {
    private static final int MAX_LINKS = 999;

    private final XmlTree in;
    private final PciTree names;
    private final Map<String, Item> byBusId = new HashMap<>();
    private final Map<Item, Element> elements = new LinkedHashMap<>();
    private final Map<Item, Cpu> cpus = new HashMap<>();

    XmlLinks(XmlTree in, PciTree names) {
        this.in = in;
        this.names = names;
    }

    /** Notes a GPU, by its canonical bus id if it has one. */
    void gpu(Item gpu, Cpu cpu, @Nullable String busId) {
        cpus.put(gpu, cpu);
        if (busId != null) {
            byBusId.put(cpu.host + "/" + XmlTopologyReader.canonical(busId), gpu);
        }
    }

    /** Notes the {@code <gpu>} of a GPU. */
    void element(Item gpu, Element e) {
        elements.put(gpu, e);
    }

    /** The {@code <gpu>} of a GPU. */
    Element element(Item gpu) {
        return Objects.requireNonNull(elements.get(gpu));
    }

    private Cpu cpu(Item gpu) {
        return Objects.requireNonNull(cpus.get(gpu));
    }

    /** Adds the links to a graph whose GPUs and CPUs have their numbers. */
    void add(Topology.Builder b) {
        int nvswitch = -1;
        Map<Item, Map<Item, Integer>> peers = new LinkedHashMap<>();
        for (Map.Entry<Item, Element> entry : elements.entrySet()) {
            Item gpu = entry.getKey();
            int toSwitch = 0;
            int toCpu = 0;
            for (Element e : entry.getValue().children()) {
                if (e.name().equals("c2c")) {
                    c2c(b, e, gpu);
                }
                if (!e.name().equals("nvlink")) {
                    continue;
                }
                XmlSchema.check(in, e);
                Integer count = in.number(e, "count", 1, MAX_LINKS, true);
                String target = e.get("target");
                String kind = e.get("tclass");
                if (kind == null) {
                    in.bad(
                            e,
                            "tclass of <nvlink> is missing: expected \"0x068000\" for an NVSwitch,"
                                    + " \"0x030200\" for a GPU");
                    continue;
                }
                if (count == null) {
                    continue;
                }
                if (kind.startsWith("0x03")) {
                    Item peer =
                            target == null
                                    ? null
                                    : byBusId.get(
                                            cpu(gpu).host
                                                    + "/"
                                                    + XmlTopologyReader.canonical(
                                                            target.strip()
                                                                    .toLowerCase(Locale.ROOT)));
                    if (peer == gpu) {
                        // Files of virtual machines have it; NCCL makes a link of no effect of it.
                        in.warnOnce(e, "<nvlink> from a GPU to itself is ignored");
                        continue;
                    }
                    if (peer == null) {
                        in.bad(
                                e,
                                "target of <nvlink> is "
                                        + XmlTree.quoted(target)
                                        + ", which is not a GPU of this file: expected another"
                                        + " GPU's bus id; if the file is of a job on some of the"
                                        + " machine's GPUs, read it leniently, and the links to"
                                        + " the others are left out");
                        continue;
                    }
                    peers.computeIfAbsent(gpu, g -> new LinkedHashMap<>())
                            .merge(peer, count, Integer::sum);
                } else if (kind.startsWith("0x068001")) {
                    toCpu += count;
                } else {
                    toSwitch += count;
                }
            }
            double each = LinkModel.nvlink(gpu.sm);
            Source source = gpu.sm == 0 ? Source.DEFAULT : Source.NCCL_MODEL;
            if (toSwitch > 0) {
                if (nvswitch < 0) {
                    nvswitch = b.addSwitch(names.unique("nvswitch"), Switch.Kind.NVSWITCH);
                }
                b.link(gpu.id, nvswitch, LinkKind.NVLINK, toSwitch, toSwitch * each, source);
            }
            if (toCpu > 0) {
                b.link(gpu.id, cpu(gpu).id, LinkKind.NVLINK, toCpu, toCpu * each, source);
            }
        }
        peers.forEach((gpu, to) -> to.forEach((peer, count) -> pair(b, peers, gpu, peer, count)));
    }

    private void pair(
            Topology.Builder b,
            Map<Item, Map<Item, Integer>> peers,
            Item gpu,
            Item peer,
            int count) {
        Integer back = peers.getOrDefault(peer, Map.of()).get(gpu);
        if (back != null && peer.id < gpu.id) {
            return; // done from the other end
        }
        int links = count;
        if (back == null || back != count) {
            links = back == null ? count : Math.min(count, back);
            in.bad(
                    element(gpu),
                    String.format(
                            "%s has %s NVLinks to %s, which has %s back: expected as many; %s are"
                                    + " taken",
                            nameOf(gpu), count, nameOf(peer), back == null ? 0 : back, links));
        }
        double each = Math.min(LinkModel.nvlink(gpu.sm), LinkModel.nvlink(peer.sm));
        Source source = gpu.sm == 0 || peer.sm == 0 ? Source.DEFAULT : Source.NCCL_MODEL;
        b.link(gpu.id, peer.id, LinkKind.NVLINK, links, links * each, source);
    }

    private static String nameOf(Item gpu) {
        return gpu.name != null ? gpu.name : "GPU" + gpu.index;
    }

    private void c2c(Topology.Builder b, Element e, Item gpu) {
        XmlSchema.check(in, e);
        Integer count = in.number(e, "count", 1, MAX_LINKS, true);
        Integer bw = in.number(e, "bw", 1, XmlTopologyReader.MAX_RATE, true);
        if (count != null && bw != null) {
            double gbps = (double) bw * count / 1000; // MB/s
            b.link(gpu.id, cpu(gpu).id, LinkKind.C2C, count, gbps, Source.DEVICE);
        }
    }
}
