package io.jccl.train;

import io.jccl.compute.Activation;
import io.jccl.device.Buffer;

/**
 * Feed-forward part: two matrices with the architecture's activation between them. SwiGLU's first
 * matrix has the columns of the gates, then those of the values.
 */
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
        activate(raised[slot]);
        down[slot].forward();
    }

    private void activate(Buffer x) {
        Operations o = work.operations;
        switch (work.architecture.kind()) {
            case JCCL -> o.reluSquared(x, work.activated);
            case GPT2 -> o.layers().activate(Activation.GELU, x, work.activated, work.stream);
            case LLAMA -> o.layers().swiglu(x, work.wide, work.activated, work.stream);
        }
    }

    /** From the gradient of the activations to that of the first product's output. */
    private void activateBackward(Buffer x) {
        Operations o = work.operations;
        Buffer from = work.wideGradient;
        switch (work.architecture.kind()) {
            case JCCL -> o.reluSquaredBackward(x, from);
            case GPT2 -> o.layers().activateBackward(Activation.GELU, x, from, work.stream);
            case LLAMA ->
                    o.layers().swigluBackward(x, work.wide, from, work.raisedGradient, work.stream);
        }
    }

    @Override
    public void recompute(int slot) {
        up[slot].forward();
    }

    @Override
    public void backward(int slot) {
        activate(raised[slot]);
        down[slot].backward();
        activateBackward(raised[slot]);
        up[slot].backward();
    }
}
