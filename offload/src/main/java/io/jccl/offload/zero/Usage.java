package io.jccl.offload.zero;

/**
 * Bytes that one rank holds on one tier. All of it is allocated when the optimizer is created, so
 * this is also the peak.
 *
 * @param parameters parameters, whole or this rank's shard
 * @param gradients accumulators, whole or this rank's shard
 * @param optimizer master parameters and moments, whole or this rank's shard
 * @param buffers windows of gathered layers and of gradients in progress, staging memory, and the
 *     copy of the previous state
 */
public record Usage(long parameters, long gradients, long optimizer, long buffers) {
    /** Nothing. */
    static final Usage NONE = new Usage(0, 0, 0, 0);

    Usage plus(Usage more) {
        return new Usage(
                parameters + more.parameters,
                gradients + more.gradients,
                optimizer + more.optimizer,
                buffers + more.buffers);
    }

    /**
     * The total.
     *
     * @return bytes
     */
    public long total() {
        return parameters + gradients + optimizer + buffers;
    }

    /**
     * Parameters, gradients and optimizer state, as counted in arXiv 1910.02054.
     *
     * @return bytes
     */
    public long modelState() {
        return parameters + gradients + optimizer;
    }
}
