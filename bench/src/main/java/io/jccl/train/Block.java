package io.jccl.train;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;

/**
 * A block: attention, then two matrices or experts, each behind a norm and added to the residual
 * path.
 */
final class Block {
    /** One micro-batch's tensors, as memory. */
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
     * Ties it together.
     *
     * @param work shared memory
     * @param sequences of a micro-batch
     * @param x the block's input, one a slot; kept
     * @param y its output, one a slot
     * @param kept what else is kept, one a slot
     * @param qkv first product, one a slot
     * @param out product behind attention, one a slot
     * @param inner what follows
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

    /** Computes again what was not kept; only the input was. */
    void recompute(int slot) {
        attend(slot);
        inner.recompute(slot);
    }

    /** From the input to what the second part takes. */
    private void attend(int slot) {
        Slot s = slots[slot];
        Functions.norm(s.x, s.normed, work.shareRows, work.hidden);
        qkv[slot].forward();
        work.attention.forward(s.qkv, s.attended, s.logSums, sequences);
        out[slot].forward();
        Functions.sum(s.x, branch, s.middle, work.gradient.count());
        Functions.norm(s.middle, s.middleNormed, work.shareRows, work.hidden);
    }

    /** From the gradient by the output to that by the input, both {@link Workspace#gradient}. */
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
