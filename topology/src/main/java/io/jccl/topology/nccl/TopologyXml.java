package io.jccl.topology.nccl;

import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;

/**
 * NCCL's topology XML: what {@code NCCL_TOPO_DUMP_FILE} writes and {@code NCCL_TOPO_FILE} reads.
 *
 * <p>The elements have NCCL's meaning (2.30, src/graph/xml.cc and topo.cc): a {@code cpu} is a NUMA
 * node, and all of a machine are linked to each other; a {@code pci} is a PCIe switch, a GPU or a
 * NIC, with the width of the link to its parent; {@code nvlink} leads to a GPU by its bus id, or
 * into the NVSwitches, which are one switch here as in NCCL.
 *
 * <p>NCCL has no host bridges. Files written by JCCL have them in additional attributes, which NCCL
 * ignores: {@code jccl_bridge} on a {@code pci} directly below a {@code cpu} is the name of its
 * host bridge, {@code jccl_name} that of a switch, a NIC or a GPU. In other files each {@code pci}
 * directly below a {@code cpu} gets its own host bridge, except on Intel CPUs before Skylake, which
 * have one per socket.
 *
 * {@snippet class="snippets.Topologies" region="xml"}
 *
 * <p>Stateless, and safe for use by many threads.
 */
public final class TopologyXml {
    private TopologyXml() {}

    /**
     * Reads a topology. The parser rejects document types and entities, and limits size and depth.
     * GPUs and NICs are in the order of their {@code dev}. Each port of a NIC gets the whole PCIe
     * link, although the ports share it.
     *
     * @param xml the XML
     * @param lenient whether missing or wrong data gives warnings and a partial graph; unknown
     *     elements and attributes always give warnings only
     * @param name a display name; if empty, the one in the file
     * @return the topology
     * @throws TopologyFormatException if the XML is malformed, not a topology of NCCL, or
     *     inconsistent
     */
    public static Topology read(String xml, boolean lenient, String name) {
        return new XmlTopologyReader(lenient).read(xml, name);
    }

    /**
     * Writes a topology that NCCL accepts: without an XML declaration, which NCCL's parser does not
     * support, and with every attribute that NCCL does not add itself.
     *
     * <ul>
     *   <li>NCCL finds GPUs by bus id and NICs by name. A GPU of unknown bus id gets one in domain
     *       ffff. NCCL would not find that GPU, so such a file is for reading, not for {@code
     *       NCCL_TOPO_FILE}. Bus ids of switches and NICs are always made up, which is harmless.
     *   <li>PCIe speed and width are chosen so that NCCL computes the modelled bandwidth from them.
     *       If no x16, x8, x4, x2 or x1 slot has it, they give the nearest for any number of lanes,
     *       in steps of 0.1875 GB/s.
     *   <li>NVLink bandwidth is the number of links times NCCL's constant for the compute
     *       capability: measured figures are lost. {@code sm} is left out if unknown; NCCL adds it.
     *   <li>The CPU is the one that the graph has; if it has none, one for whose inter-socket link
     *       NCCL assumes the modelled bandwidth, Intel Skylake if there is only one NUMA node.
     *       Devices without a NUMA node are below one of number -1, as in NCCL.
     *   <li>Several machines, such as a rack with NVLink between them, have different {@code
     *       host_hash}, by which NCCL distinguishes them, and their GPUs and NICs have the numbers
     *       of their own machine. NCCL writes such files ({@code NCCL_TOPO_DUMP_FILE}), but does
     *       not read them: each process replaces every {@code host_hash} in its {@code
     *       NCCL_TOPO_FILE} by its own (topo.cc, 1787), so that file must have one machine, as
     *       {@link #write(Topology, int)} writes it.
     *   <li>NCCL reads at most 256 elements of a machine, and a larger one is refused.
     * </ul>
     *
     * @param topology one or several machines
     * @return the XML
     * @throws IllegalArgumentException if the PCIe links are not a tree, a link has no counterpart
     *     in NCCL's XML, or a machine is too large
     */
    public static String write(Topology topology) {
        return new XmlTopologyWriter(topology).write(-1);
    }

    /**
     * Writes one of several machines, for the {@code NCCL_TOPO_FILE} of its processes. NCCL puts
     * the machines of a communicator together itself.
     *
     * @param topology one or several machines
     * @param machine index in {@link Topology#machines()}; 0 if there are none
     * @return the XML
     * @throws IllegalArgumentException as {@link #write(Topology)}, or if the machine does not
     *     exist
     */
    public static String write(Topology topology, int machine) {
        int machines = Math.max(1, topology.machines().size());
        if (machine < 0 || machine >= machines) {
            throw new IllegalArgumentException(
                    "machine is %s, expected 0 to %s: %s has %s"
                            .formatted(machine, machines - 1, topology.name(), machines));
        }
        return new XmlTopologyWriter(topology).write(machine);
    }
}
