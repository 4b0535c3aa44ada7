package io.jccl.topology;

import java.util.Objects;

/**
 * A node that forwards data and at which no data starts or ends: an NVSwitch, a PCIe switch, a host
 * bridge, a NUMA node or the network.
 *
 * @param id index in {@link Topology#nodes()}
 * @param name assigned by the reader, such as {@code pcie-switch1} or {@code numa0}
 * @param kind what it represents
 */
public record Switch(int id, String name, Kind kind) implements Node {
    /** Kinds of switches. */
    public enum Kind {
        /** All NVSwitches of a machine, modelled as one full crossbar. */
        NVSWITCH,
        /** A PCIe switch, or several switches whose inner structure the dump does not show. */
        PCIE_SWITCH,
        /** A PCIe host bridge. */
        HOST_BRIDGE,
        /** A NUMA node: CPU cores and their memory. */
        NUMA,
        /** The network that the NICs connect to. */
        NETWORK
    }

    /** Checks that no argument is null. */
    public Switch {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(kind, "kind");
    }
}
