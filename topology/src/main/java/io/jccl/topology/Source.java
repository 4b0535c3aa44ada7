package io.jccl.topology;

/** Where a bandwidth figure comes from, from the least to the most specific. */
public enum Source {
    /** A conservative default for an unknown device. */
    DEFAULT,
    /** NCCL's planning constant for the kind of link or the generation of the GPU. */
    NCCL_MODEL,
    /** The GPU model. */
    GPU_MODEL,
    /** Width and speed that the system reports for a PCIe device, or a NIC's port speed. */
    DEVICE,
    /** {@code nvidia-smi nvlink -s}. */
    NVLINK_STATUS,
    /** Given by the caller. */
    USER
}
