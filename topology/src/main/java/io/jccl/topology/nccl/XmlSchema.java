package io.jccl.topology.nccl;

import io.jccl.topology.nccl.XmlTree.Element;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/** The elements and attributes of NCCL's topology XML. */
final class XmlSchema {
    /** Attributes that are read here, or that NCCL writes and that are of no use here. */
    private static final Map<String, Set<String>> KNOWN =
            Map.of(
                    "system",
                    Set.of("version", "name"),
                    "cpu",
                    Set.of(
                            "numaid",
                            "affinity",
                            "arch",
                            "vendor",
                            "familyid",
                            "modelid",
                            "host_hash",
                            XmlTopologyReader.NAME),
                    "pci",
                    Set.of(
                            "busid",
                            "class",
                            "vendor",
                            "device",
                            "subsystem_vendor",
                            "subsystem_device",
                            "link_speed",
                            "link_width",
                            XmlTopologyReader.NAME,
                            XmlTopologyReader.BRIDGE),
                    "gpu",
                    Set.of("dev", "sm", "rank", "gdr", "mlopart", XmlTopologyReader.NAME),
                    "nvlink",
                    Set.of("target", "count", "tclass"),
                    "c2c",
                    Set.of("bw", "count"),
                    "pcilink",
                    Set.of("target"),
                    "nic",
                    Set.of(),
                    "net",
                    Set.of(
                            "name",
                            "dev",
                            "speed",
                            "port",
                            "guid",
                            "latency",
                            "maxconn",
                            "gdr",
                            "coll",
                            "net",
                            "gin",
                            "rma",
                            "rail",
                            "plane",
                            "keep",
                            XmlTopologyReader.NAME));

    /** Elements that may be inside each element. */
    private static final Map<String, Set<String>> CHILDREN =
            Map.of(
                    "system", Set.of("cpu"),
                    "cpu", Set.of("pci", "nic"),
                    "pci", Set.of("pci", "gpu", "nic", "pcilink"),
                    "gpu", Set.of("nvlink", "c2c"),
                    "nic", Set.of("net"));

    private XmlSchema() {}

    /** Warns of unknown attributes and elements. */
    static void check(XmlTree in, Element e) {
        for (String attribute : e.attributes().keySet()) {
            if (!Objects.requireNonNull(KNOWN.get(e.name())).contains(attribute)) {
                in.warnOnce(
                        e,
                        "attribute "
                                + XmlTree.shorten(attribute)
                                + " of <"
                                + e.name()
                                + "> is unknown and ignored");
            }
        }
        Set<String> allowed = CHILDREN.getOrDefault(e.name(), Set.of());
        for (Element child : e.children()) {
            if (!allowed.contains(child.name())) {
                in.warnOnce(
                        child,
                        "element <"
                                + child.name()
                                + "> in <"
                                + e.name()
                                + "> is unknown and ignored");
            }
        }
    }
}
