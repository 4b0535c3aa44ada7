package io.jccl.train;

/**
 * What follows attention in a block: two matrices, or experts. One slot per micro-batch under way.
 */
interface FeedForward {
    /** From the normed rows of a slot to the output that the residual path adds. */
    void forward(int slot);

    /** Computes again what {@link #backward} needs; the normed rows are there. */
    void recompute(int slot);

    /** From the gradient by the output to that by the normed rows. */
    void backward(int slot);
}
