package io.jccl.train;

/**
 * The part of a block after attention: two matrices, or experts. One slot per micro-batch in
 * flight.
 */
interface FeedForward {
    /** From the normalized rows of a slot to the output that is added to the residual. */
    void forward(int slot);

    /** Recomputes what {@link #backward} needs from the normalized rows. */
    void recompute(int slot);

    /** From the gradient of the output to that of the normalized rows. */
    void backward(int slot);
}
