package io.jccl.offload.memplan;

import io.jccl.offload.Tier;
import java.util.List;

/**
 * The needs of a job with some techniques.
 *
 * @param job the job
 * @param techniques the techniques
 * @param device what each GPU holds; the fullest one if they differ
 * @param host what each machine's memory holds
 * @param nvme what each machine's drives hold
 * @param traffic bytes that one GPU moves per step
 * @param compute operations of all GPUs per step
 */
public record Plan(
        Job job,
        Techniques techniques,
        Usage device,
        Usage host,
        Usage nvme,
        List<Traffic> traffic,
        Compute compute) {
    /**
     * The use of a tier.
     *
     * @param tier the tier
     * @return its use
     */
    public Usage usage(Tier tier) {
        return switch (tier) {
            case DEVICE -> device;
            case PINNED -> host;
            case NVME -> nvme;
        };
    }

    /**
     * Whether all tiers have room.
     *
     * @return true if it can be trained
     */
    public boolean fits() {
        return device.fits() && host.fits() && nvme.fits();
    }

    /**
     * Bytes per parameter of the model state in all tiers of all machines, without buffers.
     *
     * @return bytes
     */
    public double stateBytesPerParameter() {
        double devices = state(device) * job.machine().ranks();
        double rest = (state(host) + state(nvme)) * job.machine().machines();
        return (devices + rest) / job.model().parameters();
    }

    private static double state(Usage usage) {
        return (double) usage.parameters() + usage.gradients() + usage.optimizer();
    }
}
