package io.jccl.train;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;

/** Feed-forward part: two matrices with a squared ReLU between them. */
final class Dense implements FeedForward {
    private final Product[] up;
    private final Product[] down;
    private final MemorySegment[] raised;
    private final MemorySegment squared;
    private final MemorySegment gradient;
    private final long count;

    /**
     * Creates the part.
     *
     * @param up first product, one per slot
     * @param down second product, one per slot
     * @param raised output of the first, one per slot
     * @param squared input of the second
     * @param gradient gradient of either
     */
    Dense(Product[] up, Product[] down, Buffer[] raised, Buffer squared, Buffer gradient) {
        this.up = up;
        this.down = down;
        this.raised = new MemorySegment[raised.length];
        for (int i = 0; i < raised.length; i++) {
            this.raised[i] = raised[i].asSegment();
        }
        this.squared = squared.asSegment();
        this.gradient = gradient.asSegment();
        this.count = squared.count();
    }

    @Override
    public void forward(int slot) {
        up[slot].forward();
        Functions.reluSquared(raised[slot], squared, count);
        down[slot].forward();
    }

    @Override
    public void recompute(int slot) {
        up[slot].forward();
    }

    @Override
    public void backward(int slot) {
        Functions.reluSquared(raised[slot], squared, count);
        down[slot].backward();
        Functions.reluSquaredBackward(raised[slot], gradient, count);
        up[slot].backward();
    }
}
