package io.jccl.topology;

import java.util.Objects;

/**
 * Something that links meet in and that no data starts or ends at.
 *
 * @param id place in {@link Topology#nodes()}
 * @param name made up by the reader: {@code pcie-switch1}, {@code numa0}
 * @param kind what it is
 */
public record Hub(int id, String name, Kind kind) implements Node {
    /** Kinds of hubs. */
    public enum Kind {
        /** All NVSwitches of a machine as one: they are a full crossbar. */
        NVSWITCH,
        /** A PCIe switch, or several of which a dump does not tell the inside. */
        PCIE_SWITCH,
        /** A PCIe host bridge. */
        HOST_BRIDGE,
        /** A NUMA node: CPU cores and their memory. */
        NUMA,
        /** The network that the NICs lead to. */
        NETWORK
    }

    /** Checks that nothing is missing. */
    public Hub {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(kind, "kind");
    }
}
