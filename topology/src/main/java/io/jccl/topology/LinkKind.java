package io.jccl.topology;

/** The technology of a {@link Link}. */
public enum LinkKind {
    /** NVLink: from GPU to GPU, or from a GPU into the NVSwitches. */
    NVLINK,
    /** NVLink-C2C between a GPU and its CPU. */
    C2C,
    /** PCI Express: from a device to a switch or a host bridge, or between switches. */
    PCIE,
    /** From a PCIe host bridge to the NUMA node that it belongs to. */
    HOST_BRIDGE,
    /** Between two NUMA nodes: QPI, UPI, xGMI, X-Bus. */
    SMP,
    /** From a NIC into the network. */
    NETWORK
}
