package io.jccl.train;

import io.jccl.device.Buffer;

/** Feed-forward part: two matrices with a squared ReLU between them. */
final class Dense implements FeedForward {
    private final Workspace work;
    private final Product[] up;
    private final Product[] down;
    private final Buffer[] raised;

    /**
     * Creates the part.
     *
     * @param work shared memory
     * @param up first product, one per slot
     * @param down second product, one per slot
     * @param raised output of the first, one per slot
     */
    Dense(Workspace work, Product[] up, Product[] down, Buffer[] raised) {
        this.work = work;
        this.up = up;
        this.down = down;
        this.raised = raised;
    }

    @Override
    public void forward(int slot) {
        up[slot].forward();
        work.operations.reluSquared(raised[slot], work.squared);
        down[slot].forward();
    }

    @Override
    public void recompute(int slot) {
        up[slot].forward();
    }

    @Override
    public void backward(int slot) {
        work.operations.reluSquared(raised[slot], work.squared);
        down[slot].backward();
        work.operations.reluSquaredBackward(raised[slot], work.wideGradient);
        up[slot].backward();
    }
}
