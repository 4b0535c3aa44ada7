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
                    "system", words("version name"),
                    "cpu",
                            words(
                                    "numaid affinity arch vendor familyid modelid host_hash "
                                            + XmlTopologyReader.NAME),
                    "pci",
                            words(
                                    "busid class vendor device subsystem_vendor subsystem_device"
                                            + " link_speed link_width "
                                            + XmlTopologyReader.NAME
                                            + " "
                                            + XmlTopologyReader.BRIDGE),
                    "gpu", words("dev sm rank gdr mlopart " + XmlTopologyReader.NAME),
                    "nvlink", words("target count tclass"),
                    "c2c", words("bw count"),
                    "pcilink", words("target"),
                    "nic", Set.of(),
                    "net",
                            words(
                                    "name dev speed port guid latency maxconn gdr coll net gin rma"
                                            + " rail plane keep "
                                            + XmlTopologyReader.NAME));

    /** Elements that may be inside each element. */
    private static final Map<String, Set<String>> CHILDREN =
            Map.of(
                    "system", Set.of("cpu"),
                    "cpu", Set.of("pci", "nic"),
                    "pci", Set.of("pci", "gpu", "nic", "pcilink"),
                    "gpu", Set.of("nvlink", "c2c"),
                    "nic", Set.of("net"));

    private XmlSchema() {}

    private static Set<String> words(String text) {
        return Set.of(text.split(" ", -1));
    }

    /** Warns of unknown attributes and elements. */
    static void check(XmlTree in, Element e) {
        for (String attribute : e.attributes().keySet()) {
            if (!Objects.requireNonNull(KNOWN.get(e.name())).contains(attribute)) {
                in.warnOnce(
                        e,
                        "attribute %s of <%s> is unknown and ignored"
                                .formatted(XmlTree.shorten(attribute), e.name()));
            }
        }
        Set<String> allowed = CHILDREN.getOrDefault(e.name(), Set.of());
        for (Element child : e.children()) {
            if (!allowed.contains(child.name())) {
                in.warnOnce(
                        child,
                        "element <%s> in <%s> is unknown and ignored"
                                .formatted(child.name(), e.name()));
            }
        }
    }
}
