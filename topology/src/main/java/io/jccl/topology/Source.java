package io.jccl.topology;

/** Where a bandwidth figure comes from, from the least to the most specific. */
public enum Source {
    /** Nothing is known about the device: a cautious default. */
    DEFAULT,
    /** NCCL's planning constant for the kind of link or the generation of the GPU. */
    NCCL_MODEL,
    /** The model of the GPU was named. */
    GPU_MODEL,
    /** Width and speed that the system states for a PCIe device, or a NIC's port speed. */
    DEVICE,
    /** {@code nvidia-smi nvlink -s}. */
    NVLINK_STATUS,
    /** The caller said so. */
    USER
}
