package io.jccl.offload.memplan;

/**
 * The batch of a step. The global batch is {@code micro x accumulation x data-parallel ranks}.
 *
 * @param micro samples per GPU and micro-batch, b
 * @param accumulation micro-batches whose gradients are summed before the update, m
 */
public record Batch(int micro, int accumulation) {
    /** Most micro-batches of a step. */
    public static final int MOST_ACCUMULATION = 1_000_000_000;

    /** One sample per GPU and step. */
    public static final Batch ONE = new Batch(1, 1);

    /** Checks the arguments. */
    public Batch {
        Checks.range("the micro-batch", micro, 1, 1_000_000, "give samples per GPU");
        Checks.range(
                "gradient accumulation",
                accumulation,
                1,
                MOST_ACCUMULATION,
                "give micro-batches per step");
    }
}
