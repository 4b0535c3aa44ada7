package io.jccl.offload.zero;

/**
 * Bytes that one rank holds on one tier. All of it is taken when the optimizer is made, so this is
 * the peak too.
 *
 * @param parameters parameters, whole or this rank's shard
 * @param gradients accumulators, whole or this rank's shard
 * @param optimizer master parameters and moments, whole or this rank's shard
 * @param buffers windows of gathered layers and of gradients under way, staging, and the copy of
 *     the previous state
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
     * All of it.
     *
     * @return bytes
     */
    public long total() {
        return parameters + gradients + optimizer + buffers;
    }

    /**
     * Parameters, gradients and optimizer state, which is what arXiv 1910.02054 counts.
     *
     * @return bytes
     */
    public long modelState() {
        return parameters + gradients + optimizer;
    }
}
