package io.jccl.topology.nccl;

import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;

/**
 * NCCL's topology XML: what {@code NCCL_TOPO_DUMP_FILE} writes and {@code NCCL_TOPO_FILE} reads.
 *
 * <p>What the elements mean is NCCL's (2.30, src/graph/xml.cc and topo.cc): a {@code cpu} is a NUMA
 * node, all of a machine are linked with each other; a {@code pci} is a PCIe switch, a GPU or a
 * NIC, with the width of the link to what it stands in; {@code nvlink} leads to a GPU by its bus
 * id, or into the NVSwitches, which are one switch here as in NCCL.
 *
 * <p>NCCL knows no host bridges. Those of a file that JCCL wrote are in attributes of their own,
 * which NCCL ignores: {@code jccl_bridge} on a {@code pci} right below a {@code cpu} has the name
 * of its host bridge, {@code jccl_name} that of a switch, a NIC or a GPU. Elsewhere each {@code pci}
 * below a {@code cpu} gets a host bridge of its own, but on Intel CPUs before Skylake, which have
 * one a socket.
 *
 * <p>Stateless, and safe for use by many threads.
 */
public final class TopologyXml {
    private TopologyXml() {}

    /**
     * Reads a topology. The parser takes no document type and no entities, and bounds size and
     * depth. The GPUs come in the order of their {@code dev}, the NICs likewise. The ports of a NIC
     * each have the whole PCIe link, which really they share.
     *
     * @param xml the XML
     * @param lenient whether what is missing or wrong gives a warning and a partial graph; elements
     *     and attributes that are not known are no more than a warning anyway
     * @param name a name for people; if empty, what the file says
     * @return the topology
     * @throws TopologyFormatException if the XML is malformed, or not of NCCL's form, or what it
     *     says does not fit together
     */
    public static Topology read(String xml, boolean lenient, String name) {
        return new XmlTopologyReader(lenient).read(xml, name);
    }

    /**
     * Writes a topology such that NCCL accepts it: no XML declaration, which NCCL's parser does not
     * know; every attribute that NCCL does not add by itself.
     *
     * <ul>
     *   <li>NCCL finds GPUs by bus id and NICs by name. A GPU whose bus id is not known gets one in
     *       domain ffff; NCCL would overlook it, so such a file is for reading, not for {@code
     *       NCCL_TOPO_FILE}. Bus ids of switches and NICs are always made up, which does no harm.
     *   <li>PCIe speed and width give the modelled bandwidth in NCCL's arithmetic; where no x16,
     *       x8, x4, x2 or x1 slot has it, the nearest that any number of lanes gives, in steps of
     *       0.1875 GB/s.
     *   <li>NVLink bandwidth is the number of links times NCCL's constant for the compute
     *       capability: measured figures are lost. {@code sm} is left out if unknown; NCCL adds it.
     *   <li>The CPU is one whose inter-socket link NCCL takes to have the modelled bandwidth; Intel
     *       Skylake if there is one NUMA node only. What belongs to no NUMA node stands below one
     *       of number -1, as NCCL does it.
     *   <li>NCCL reads at most 256 elements a machine.
     * </ul>
     *
     * @param topology one machine
     * @return the XML
     * @throws IllegalArgumentException if the PCIe links are no tree, or a link has no counterpart
     *     in NCCL's XML
     */
    public static String write(Topology topology) {
        return new XmlTopologyWriter(topology).write();
    }
}
