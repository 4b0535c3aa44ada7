package io.jccl.train;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;

/**
 * A transformer block: attention, then a feed-forward part or experts, each with a norm before it
 * and a residual connection.
 */
final class Block {
    /** The memory of one micro-batch's tensors. */
    private record Slot(
            MemorySegment x,
            MemorySegment y,
            MemorySegment normed,
            MemorySegment qkv,
            MemorySegment attended,
            MemorySegment logSums,
            MemorySegment middle,
            MemorySegment middleNormed) {}

    private final Workspace work;
    private final int sequences;
    private final Product[] qkv;
    private final Product[] out;
    private final FeedForward inner;
    private final Slot[] slots;
    private final MemorySegment gradient;
    private final MemorySegment normedGradient;
    private final MemorySegment branch;
    private final MemorySegment attendedGradient;
    private final MemorySegment qkvGradient;

    /**
     * Creates a block.
     *
     * @param work shared memory
     * @param sequences of a micro-batch
     * @param x the block's input, one per slot; kept
     * @param y its output, one per slot
     * @param kept other kept tensors, one per slot
     * @param qkv first product, one per slot
     * @param out product after attention, one per slot
     * @param inner the feed-forward part
     */
    Block(
            Workspace work,
            int sequences,
            Buffer[] x,
            Buffer[] y,
            Workspace.Kept[] kept,
            Product[] qkv,
            Product[] out,
            FeedForward inner) {
        this.work = work;
        this.sequences = sequences;
        this.qkv = qkv;
        this.out = out;
        this.inner = inner;
        slots = new Slot[x.length];
        for (int i = 0; i < x.length; i++) {
            slots[i] =
                    new Slot(
                            x[i].asSegment(),
                            y[i].asSegment(),
                            kept[i].normed.asSegment(),
                            kept[i].qkv.asSegment(),
                            kept[i].attended.asSegment(),
                            kept[i].logSums.asSegment(),
                            kept[i].middle.asSegment(),
                            kept[i].middleNormed.asSegment());
        }
        gradient = work.gradient.asSegment();
        normedGradient = work.normedGradient.asSegment();
        branch = work.branch.asSegment();
        attendedGradient = work.attendedGradient.asSegment();
        qkvGradient = work.qkvGradient.asSegment();
    }

    void forward(int slot) {
        attend(slot);
        inner.forward(slot);
        Slot s = slots[slot];
        Functions.sum(s.middle, branch, s.y, work.gradient.count());
    }

    /** Recomputes everything but the input, which was kept. */
    void recompute(int slot) {
        attend(slot);
        inner.recompute(slot);
    }

    /** Attention: from the block's input to the input of the feed-forward part. */
    private void attend(int slot) {
        Slot s = slots[slot];
        Functions.norm(s.x, s.normed, work.shareRows, work.hidden);
        qkv[slot].forward();
        work.attention.forward(s.qkv, s.attended, s.logSums, sequences);
        out[slot].forward();
        Functions.sum(s.x, branch, s.middle, work.gradient.count());
        Functions.norm(s.middle, s.middleNormed, work.shareRows, work.hidden);
    }

    /** From the gradient of the output to that of the input, both in {@link Workspace#gradient}. */
    void backward(int slot) {
        Slot s = slots[slot];
        inner.backward(slot);
        Functions.normBackward(s.middle, normedGradient, gradient, work.shareRows, work.hidden);
        out[slot].backward();
        work.attention.backward(
                s.qkv, s.attended, s.logSums, attendedGradient, qkvGradient, sequences);
        qkv[slot].backward();
        Functions.normBackward(s.x, normedGradient, gradient, work.shareRows, work.hidden);
    }
}
