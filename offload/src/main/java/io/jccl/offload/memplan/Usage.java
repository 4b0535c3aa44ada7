package io.jccl.offload.memplan;

/**
 * The bytes that one tier holds: per GPU for the device, per machine otherwise.
 *
 * @param parameters parameters that the model computes with
 * @param gradients gradients as computed
 * @param optimizer master parameters, moments, and the gradients that an offloaded optimizer holds
 * @param activations activations kept from the forward pass
 * @param temporary recomputed activations, gradients of activations, workspaces
 * @param communication layers and gradients in transit, staging slots for NVMe, NCCL's buffers
 * @param reserved runtime, operating system, and what allocators cannot use
 * @param capacity bytes of the tier
 */
public record Usage(
        long parameters,
        long gradients,
        long optimizer,
        long activations,
        long temporary,
        long communication,
        long reserved,
        long capacity) {
    /** Stands for any larger number of bytes of a part; the sum of seven parts is still exact. */
    public static final long MOST = Long.MAX_VALUE / 7;

    /**
     * The total.
     *
     * @return bytes
     */
    public long total() {
        return model() + reserved;
    }

    /**
     * What training needs, without the reserved bytes.
     *
     * @return bytes
     */
    public long model() {
        return parameters + gradients + optimizer + activations + temporary + communication;
    }

    /**
     * Whether it fits.
     *
     * @return true if nothing is needed, or no more than the capacity
     */
    public boolean fits() {
        return model() == 0 || total() <= capacity;
    }

    /**
     * The shortfall.
     *
     * @return bytes, 0 if it fits
     */
    public long missing() {
        return fits() ? 0 : total() - capacity;
    }
}
