package io.jccl.offload;

/** Where data may live, from the scarcest memory to the most plentiful. */
public enum Tier {
    /** Memory of the device that computes. */
    DEVICE,
    /** Host memory that the device copies from and to beside its work. */
    PINNED,
    /** Files on a local drive. */
    NVME
}
