package io.jccl.train.fit;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.BufferPool;
import io.jccl.offload.zero.ShardedLayer;
import io.jccl.train.Functions;
import io.jccl.train.Grammar;
import io.jccl.train.Owned;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Predicts the next character: embeddings of the last 8 characters side by side, residual blocks
 * <i>x + W2 relu(W1 norm(x))²</i> of four times the width, and a softmax. The blocks are those of a
 * transformer without attention; norm is RMSNorm (arXiv 1910.07467), squared ReLU is that of arXiv
 * 2109.08668; there are no biases.
 *
 * <p>Arithmetic is float32. Tensors kept for the backward pass (the inputs of norm, W1, relu² and
 * W2) have the parameters' type and are rounded to it before use, so that recomputation gives
 * identical bits.
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class Network {
    /** Characters that a prediction depends on. */
    static final int CONTEXT = 8;

    /** Size of the alphabet, padded for matrix products. */
    static final int TOKENS = 32;

    /** The hidden width must be a multiple of it. */
    public static final int MULTIPLE = 32;

    private static final int WIDTH = 4;

    private final int hidden;
    private final int rows;
    private final DataType type;
    private final MemorySegment x;
    private final MemorySegment normed;
    private final MemorySegment inner;
    private final MemorySegment innerGradient;
    private final MemorySegment gradient;
    private final MemorySegment logits;
    private final MemorySegment tile;
    private final MemorySegment sums;
    private final MemorySegment targets;
    private final double[] losses;

    /**
     * Tensors that a block keeps for the backward pass.
     *
     * @param x its input
     * @param normed input of W1
     * @param inner input of the squared relu
     * @param squared input of W2
     */
    record Kept(MemorySegment x, MemorySegment normed, MemorySegment inner, MemorySegment squared) {
        /** All in one buffer. */
        static Kept in(Buffer b, long row) {
            return with(b.slice(0, row), b.slice(row, (1 + 2 * WIDTH) * row));
        }

        /** The input apart from the others. */
        static Kept with(Buffer x, Buffer others) {
            long row = x.count();
            return new Kept(
                    x.asSegment(),
                    others.slice(0, row).asSegment(),
                    others.slice(row, WIDTH * row).asSegment(),
                    others.slice((1 + WIDTH) * row, WIDTH * row).asSegment());
        }
    }

    /** Elements of {@link Kept}, as a multiple of the input's. */
    static final int KEPT = 2 + 2 * WIDTH;

    /** Allocates scratch memory, which the caller's list closes. */
    Network(int hidden, int rows, DataType type, BufferPool device, Owned owned) {
        this.hidden = hidden;
        this.rows = rows;
        this.type = type;
        this.targets = MemorySegment.ofArray(new int[rows]);
        this.losses = new double[rows];
        long row = (long) rows * hidden;
        x = floats(device, row, owned);
        normed = floats(device, row, owned);
        inner = floats(device, WIDTH * row, owned);
        innerGradient = floats(device, WIDTH * row, owned);
        gradient = floats(device, row, owned);
        logits = floats(device, (long) rows * TOKENS, owned);
        int longest = Math.max(WIDTH * hidden, rows);
        tile = floats(device, (long) longest * Kernels.PANEL, owned);
        // Also used for the gradients of all embeddings.
        sums =
                floats(
                        device,
                        Math.max((long) WIDTH * hidden * Kernels.PANEL, (long) TOKENS * hidden),
                        owned);
    }

    private static MemorySegment floats(BufferPool pool, long count, Owned owned) {
        Buffer b = pool.allocate(DataType.FLOAT32, count);
        owned.add(b);
        return b.asSegment();
    }

    /** The parameters: embeddings, blocks, and the output. */
    static List<ShardedLayer> layers(int hidden, int blocks) {
        List<ShardedLayer> layers = new ArrayList<>();
        layers.add(ShardedLayer.of("embedding", (long) TOKENS * hidden));
        long matrix = (long) WIDTH * hidden * hidden;
        for (int i = 0; i < blocks; i++) {
            layers.add(
                    new ShardedLayer(
                            "block" + i,
                            List.of(
                                    new ShardedLayer.Tensor("w1", matrix),
                                    new ShardedLayer.Tensor("w2", matrix))));
        }
        layers.add(ShardedLayer.of("output", (long) TOKENS * hidden));
        return layers;
    }

    static long parameters(int hidden, int blocks) {
        return 2L * TOKENS * hidden + 2L * WIDTH * hidden * hidden * blocks;
    }

    /** Uniform; blocks start small, so that depth does not matter initially. */
    static void initialize(
            long seed, int hidden, int blocks, String layer, String tensor, MemorySegment values) {
        SplittableRandom random =
                new SplittableRandom(seed * 31 + layer.hashCode() * 7L + tensor.hashCode());
        double bound =
                switch (tensor) {
                    case "w1" -> Math.sqrt(3.0 / hidden);
                    case "w2" -> 0.3 * Math.sqrt(3.0 / (WIDTH * hidden) / blocks);
                    case "output" -> 0.3 * Math.sqrt(3.0 / hidden);
                    default -> 1;
                };
        long count = values.byteSize() / Float.BYTES;
        for (long i = 0; i < count; i++) {
            values.setAtIndex(JAVA_FLOAT, i, (float) random.nextDouble(-bound, bound));
        }
    }

    /** Sets the blocks' input from the characters before each sample. */
    void embed(Buffer embeddings, byte[] text, int[] at, int from) {
        MemorySegment e = embeddings.asSegment();
        int piece = hidden / CONTEXT;
        Kernels.widen(e, type, 0, sums, 0, TOKENS * hidden);
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < CONTEXT; c++) {
                MemorySegment.copy(
                        sums,
                        row(text, at[from + r], c) * Float.BYTES,
                        x,
                        ((long) r * hidden + (long) c * piece) * Float.BYTES,
                        (long) piece * Float.BYTES);
            }
        }
    }

    private long row(byte[] text, int at, int c) {
        return (c * TOKENS + text[at - CONTEXT + c]) * (long) (hidden / CONTEXT);
    }

    void embedBackward(Buffer gradients, byte[] text, int[] at, int from) {
        int piece = hidden / CONTEXT;
        sums.fill((byte) 0);
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < CONTEXT; c++) {
                long to = row(text, at[from + r], c);
                long source = (long) r * hidden + (long) c * piece;
                for (int i = 0; i < piece; i++) {
                    sums.setAtIndex(
                            JAVA_FLOAT,
                            to + i,
                            sums.getAtIndex(JAVA_FLOAT, to + i)
                                    + gradient.getAtIndex(JAVA_FLOAT, source + i));
                }
            }
        }
        Kernels.add(sums, 0, gradients.asSegment(), type, 0, TOKENS * hidden);
    }

    void forward(Buffer parameters, Kept kept) {
        Kernels.keep(x, kept.x, type, rows * hidden);
        MemorySegment w = parameters.asSegment();
        within(w, kept);
        Kernels.times(
                innerGradient, w, matrix(), type, x, rows, WIDTH * hidden, hidden, true, tile);
    }

    /** Recomputes everything but the input, which was kept. */
    void recompute(Buffer parameters, Kept kept) {
        Kernels.widen(kept.x, type, 0, x, 0, rows * hidden);
        within(parameters.asSegment(), kept);
    }

    /** From the input to the input of W2. */
    private void within(MemorySegment w, Kept kept) {
        Functions.norm(x, normed, 0, rows, hidden);
        Kernels.keep(normed, kept.normed, type, rows * hidden);
        Kernels.times(normed, w, 0, type, inner, rows, hidden, WIDTH * hidden, false, tile);
        Kernels.keep(inner, kept.inner, type, WIDTH * rows * hidden);
        Functions.reluSquared(inner, innerGradient, 0, (long) WIDTH * rows * hidden);
        Kernels.keep(innerGradient, kept.squared, type, WIDTH * rows * hidden);
    }

    void backward(Buffer parameters, Kept kept, Buffer gradients) {
        MemorySegment w = parameters.asSegment();
        MemorySegment g = gradients.asSegment();
        int wide = WIDTH * hidden;
        Kernels.widen(kept.squared, type, 0, inner, 0, rows * wide);
        Kernels.addOuter(inner, gradient, g, matrix(), type, rows, wide, hidden, tile, sums);
        Kernels.timesTransposed(
                gradient, w, matrix(), type, innerGradient, rows, wide, hidden, tile);
        Kernels.widen(kept.inner, type, 0, inner, 0, rows * wide);
        Functions.reluSquaredBackward(inner, innerGradient, 0, (long) rows * wide);
        Kernels.widen(kept.normed, type, 0, normed, 0, rows * hidden);
        Kernels.addOuter(normed, innerGradient, g, 0, type, rows, hidden, wide, tile, sums);
        // Memory that is no longer needed; the input itself is read last.
        Kernels.timesTransposed(innerGradient, w, 0, type, inner, rows, hidden, wide, tile);
        Kernels.widen(kept.x, type, 0, x, 0, rows * hidden);
        Functions.normBackward(x, inner, gradient, 0, rows, hidden);
    }

    private long matrix() {
        return (long) WIDTH * hidden * hidden;
    }

    /**
     * The output layer: loss and gradient of the last block's output.
     *
     * @return sum over the samples, nats
     */
    double output(
            Buffer parameters,
            Buffer gradients,
            byte[] text,
            int[] at,
            int from,
            double lossScale) {
        MemorySegment w = parameters.asSegment();
        Functions.norm(x, normed, 0, rows, hidden);
        Kernels.times(normed, w, 0, type, logits, rows, hidden, TOKENS, false, tile);
        for (int r = 0; r < rows; r++) {
            targets.setAtIndex(JAVA_INT, r, text[at[from + r]]);
        }
        float scale = (float) (lossScale / rows);
        Functions.crossEntropy(logits, targets, 0, rows, TOKENS, scale, losses);
        double loss = 0;
        for (int r = 0; r < rows; r++) {
            loss += losses[r];
        }
        Kernels.addOuter(
                normed, logits, gradients.asSegment(), 0, type, rows, hidden, TOKENS, tile, sums);
        gradient.fill((byte) 0);
        Kernels.timesTransposed(logits, w, 0, type, inner, rows, hidden, TOKENS, tile);
        Functions.normBackward(x, inner, gradient, 0, rows, hidden);
        return loss;
    }

    /** Text to train on. */
    static byte[] text(long seed) {
        return Grammar.tokens(seed, 1 << 16);
    }

    /** Positions of the samples of a step, of all ranks. */
    static int[] samples(long seed, int step, int batch, int length) {
        SplittableRandom random = new SplittableRandom(seed * 1_000_003 + step);
        int[] at = new int[batch];
        for (int i = 0; i < batch; i++) {
            at[i] = random.nextInt(CONTEXT, length);
        }
        return at;
    }
}
