package io.jccl.train;

import io.jccl.device.Buffer;

/** Experts and, in addition, two matrices that all tokens pass through; their outputs are added. */
final class SharedExpert implements FeedForward {
    private final Workspace work;
    private final FeedForward experts;
    private final FeedForward shared;

    SharedExpert(Workspace work, FeedForward experts, FeedForward shared) {
        this.work = work;
        this.experts = experts;
        this.shared = shared;
    }

    @Override
    public void forward(int slot) {
        experts.forward(slot);
        set(work.branch);
        shared.forward(slot);
        work.operations.add(work.branch, work.beside, work.branch);
    }

    /** Both write where their outputs go, which the backward pass does not read. */
    @Override
    public void recompute(int slot) {
        experts.recompute(slot);
        shared.recompute(slot);
    }

    @Override
    public void backward(int slot) {
        experts.backward(slot);
        set(work.normedGradient);
        shared.backward(slot);
        work.operations.add(work.normedGradient, work.beside, work.normedGradient);
    }

    private void set(Buffer from) {
        work.operations.convert(from, work.beside);
    }
}
