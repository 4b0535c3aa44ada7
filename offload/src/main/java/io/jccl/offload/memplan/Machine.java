package io.jccl.offload.memplan;

import io.jccl.offload.Tier;

/**
 * The hardware to train on.
 *
 * @param gpus GPUs per machine
 * @param device bytes of memory per GPU
 * @param host bytes of memory per machine
 * @param nvme bytes of NVMe drives per machine; 0 if there are none
 * @param machines number of machines, all equal
 */
public record Machine(int gpus, long device, long host, long nvme, int machines) {
    /** Checks the arguments. */
    public Machine {
        Checks.range("the number of GPUs per machine", gpus, 1, 1024, "give at least one");
        Checks.range("the number of machines", machines, 1, 1_000_000, "give at least one");
        Checks.range("device memory", device, 1, 1L << 50, "give bytes per GPU, such as 16G");
        Checks.range("host memory", host, 0, 1L << 55, "give bytes per machine, such as 330G");
        Checks.range("NVMe", nvme, 0, 1L << 60, "give bytes per machine, such as 4T");
    }

    /**
     * Number of GPUs of all machines.
     *
     * @return the number
     */
    public int ranks() {
        return Math.multiplyExact(gpus, machines);
    }

    /**
     * The capacity of a tier.
     *
     * @param tier the tier
     * @return bytes: per GPU for the device, per machine otherwise
     */
    public long capacity(Tier tier) {
        return switch (tier) {
            case DEVICE -> device;
            case PINNED -> host;
            case NVME -> nvme;
        };
    }
}
