package io.jccl.offload;

/** Where data can be, from the scarcest memory to the most plentiful. */
public enum Tier {
    /** Memory of the compute device. */
    DEVICE,
    /** Host memory that the device can copy from and to asynchronously. */
    PINNED,
    /** Files on a local drive. */
    NVME
}
