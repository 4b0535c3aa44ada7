package io.jccl.train;

import io.jccl.device.Buffer;

/**
 * A transformer block: attention, then a feed-forward part or experts, each with a norm before it
 * and a residual connection.
 */
final class Block {
    /** The memory of one micro-batch's tensors. */
    private record Slot(Buffer x, Buffer y, Workspace.Kept kept) {}

    private final Workspace work;
    private final Operations operations;
    private final RowNorm norm1;
    private final RowNorm norm2;
    private final Product[] qkv;
    private final Product[] out;
    private final FeedForward inner;
    private final Slot[] slots;

    /**
     * Creates a block.
     *
     * @param work shared memory
     * @param x the block's input, one per slot; kept
     * @param y its output, one per slot
     * @param kept other kept tensors, one per slot
     * @param norm1 before attention
     * @param norm2 before the feed-forward part
     * @param qkv first product, one per slot
     * @param out product after attention, one per slot
     * @param inner the feed-forward part
     */
    Block(
            Workspace work,
            Buffer[] x,
            Buffer[] y,
            Workspace.Kept[] kept,
            RowNorm norm1,
            RowNorm norm2,
            Product[] qkv,
            Product[] out,
            FeedForward inner) {
        this.work = work;
        this.operations = work.operations;
        this.norm1 = norm1;
        this.norm2 = norm2;
        this.qkv = qkv;
        this.out = out;
        this.inner = inner;
        slots = new Slot[x.length];
        for (int i = 0; i < x.length; i++) {
            slots[i] = new Slot(x[i], y[i], kept[i]);
        }
    }

    void forward(int slot) {
        attend(slot);
        inner.forward(slot);
        Slot s = slots[slot];
        operations.add(s.kept.middle, work.branch, s.y);
    }

    /** Recomputes everything but the input, which was kept. */
    void recompute(int slot) {
        attend(slot);
        inner.recompute(slot);
    }

    /** Attention: from the block's input to the input of the feed-forward part. */
    private void attend(int slot) {
        Slot s = slots[slot];
        Workspace.Kept k = s.kept;
        norm1.forward(s.x, k.normed, k.ofNorm);
        qkv[slot].forward();
        rotate(k.qkv, false);
        work.attention.forward(k.qkv, k.attended, k.logSums);
        out[slot].forward();
        operations.add(s.x, work.branch, k.middle);
        norm2.forward(k.middle, k.middleNormed, k.ofMiddleNorm);
    }

    /** Rotates queries and keys by their positions, or their gradients back. */
    private void rotate(Buffer qkv, boolean back) {
        if (work.rotary != null) {
            operations.layers().rotate(work.rotary, qkv, work.angles, back, work.stream);
        }
    }

    /** From the gradient of the output to that of the input, both in {@link Workspace#gradient}. */
    void backward(int slot) {
        Slot s = slots[slot];
        Workspace.Kept k = s.kept;
        inner.backward(slot);
        norm2.backward(k.middle, k.ofMiddleNorm, work.normedGradient, work.gradient);
        out[slot].backward();
        work.attention.backward(
                k.qkv, k.attended, k.logSums, work.attendedGradient, work.qkvGradient);
        rotate(work.qkvGradient, true);
        qkv[slot].backward();
        norm1.backward(s.x, k.ofNorm, work.normedGradient, work.gradient);
    }
}
