package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Causal self-attention, forward and backward. A row of queries, keys and values holds those of all
 * heads of each kind side by side; {@code heads / keyHeads} heads share a key head, which is a unit
 * of work with them.
 *
 * <p>Probabilities are recomputed from each row's log-sum-exp instead of being kept, as in arXiv
 * 2205.14135; inner loops add multiples of rows, which the compiler vectorizes without changing the
 * order of any sum.
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class AttentionLoops {
    private final int context;
    private final int heads;
    private final int keyHeads;
    private final int size;
    private final int stride;
    private final DataType type;
    private final float scale;

    private final float[] queries;
    private final float[] keys;
    private final float[] values;
    private final float[] keysAcross;
    private final float[] valuesAcross;
    private final float[] outputs;
    private final float[] outputGradients;
    private final float[] queryGradients;
    private final float[] keyGradients;
    private final float[] valueGradients;
    private final float[] scores;
    private final float[] scoreGradients;

    /**
     * Allocates scratch memory.
     *
     * @param context rows of a sequence
     * @param heads heads of queries
     * @param keyHeads heads of keys and of values, a divisor of the heads
     * @param size width of a head
     * @param type of all elements but the sums: float32, bfloat16 or float16
     */
    public AttentionLoops(int context, int heads, int keyHeads, int size, DataType type) {
        this.context = context;
        this.heads = heads;
        this.keyHeads = keyHeads;
        this.size = size;
        this.stride = (heads + 2 * keyHeads) * size;
        this.type = type;
        this.scale = (float) (1 / Math.sqrt(size));
        int matrix = context * size;
        queries = new float[matrix];
        keys = new float[matrix];
        values = new float[matrix];
        keysAcross = new float[matrix];
        valuesAcross = new float[matrix];
        outputs = new float[matrix];
        outputGradients = new float[matrix];
        queryGradients = new float[matrix];
        keyGradients = new float[matrix];
        valueGradients = new float[matrix];
        scores = new float[context];
        scoreGradients = new float[context];
    }

    /**
     * Forward pass.
     *
     * @param qkv rows of queries, keys and values, all heads of each side by side
     * @param out rows of the heads' outputs
     * @param logSums log-sum-exp of each row and head, kept for the backward pass
     * @param sequences number of sequences
     */
    public void forward(
            MemorySegment qkv, MemorySegment out, MemorySegment logSums, int sequences) {
        for (int u = 0; u < sequences * keyHeads; u++) {
            forwardUnit(qkv, out, logSums, u);
        }
    }

    /** {@link #forward} of the heads that share a key head: unit sequence keyHeads + key head. */
    public void forwardUnit(MemorySegment qkv, MemorySegment out, MemorySegment logSums, int unit) {
        int s = unit / keyHeads;
        int keyHead = unit % keyHeads;
        readKeys(qkv, s, keyHead);
        across(keys, keysAcross);
        int group = heads / keyHeads;
        for (int h = keyHead * group; h < (keyHead + 1) * group; h++) {
            read(qkv, s, stride, h, queries);
            Arrays.fill(outputs, 0);
            for (int i = 0; i < context; i++) {
                scores(i);
                float most = Float.NEGATIVE_INFINITY;
                for (int j = 0; j <= i; j++) {
                    most = Math.max(most, scores[j]);
                }
                double sum = 0;
                for (int j = 0; j <= i; j++) {
                    sum += Math.exp(scores[j] - most);
                }
                float logSum = (float) (most + Math.log(sum));
                logSums.setAtIndex(JAVA_FLOAT_UNALIGNED, at(s, i) * heads + h, logSum);
                for (int j = 0; j <= i; j++) {
                    float p = (float) Math.exp(scores[j] - logSum);
                    add(p, values, j * size, outputs, i * size, size);
                }
            }
            copy(outputs, out, s, heads * size, h);
        }
    }

    /**
     * Backward pass.
     *
     * @param qkv argument of {@link #forward}
     * @param out result of {@link #forward}
     * @param logSums result of {@link #forward}
     * @param outGradient gradient of the outputs
     * @param qkvGradient destination of the gradient of queries, keys and values
     * @param sequences number of sequences
     */
    public void backward(
            MemorySegment qkv,
            MemorySegment out,
            MemorySegment logSums,
            MemorySegment outGradient,
            MemorySegment qkvGradient,
            int sequences) {
        for (int u = 0; u < sequences * keyHeads; u++) {
            backwardUnit(qkv, out, logSums, outGradient, qkvGradient, u);
        }
    }

    /** {@link #backward} of the heads that share a key head, as in {@link #forwardUnit}. */
    public void backwardUnit(
            MemorySegment qkv,
            MemorySegment out,
            MemorySegment logSums,
            MemorySegment outGradient,
            MemorySegment qkvGradient,
            int unit) {
        int s = unit / keyHeads;
        int keyHead = unit % keyHeads;
        readKeys(qkv, s, keyHead);
        across(keys, keysAcross);
        across(values, valuesAcross);
        Arrays.fill(keyGradients, 0);
        Arrays.fill(valueGradients, 0);
        int group = heads / keyHeads;
        for (int h = keyHead * group; h < (keyHead + 1) * group; h++) {
            read(qkv, s, stride, h, queries);
            read(out, s, heads * size, h, outputs);
            read(outGradient, s, heads * size, h, outputGradients);
            Arrays.fill(queryGradients, 0);
            for (int i = 0; i < context; i++) {
                backwardRow(i, logSums.getAtIndex(JAVA_FLOAT_UNALIGNED, at(s, i) * heads + h));
            }
            copy(queryGradients, qkvGradient, s, stride, h);
        }
        copy(keyGradients, qkvGradient, s, stride, heads + keyHead);
        copy(valueGradients, qkvGradient, s, stride, heads + keyHeads + keyHead);
    }

    private void backwardRow(int i, float logSum) {
        int row = i * size;
        scores(i);
        float dot = 0;
        for (int d = 0; d < size; d++) {
            dot += outputGradients[row + d] * outputs[row + d];
        }
        Arrays.fill(scoreGradients, 0, i + 1, 0);
        for (int d = 0; d < size; d++) {
            float by = outputGradients[row + d];
            add(by, valuesAcross, d * context, scoreGradients, 0, i + 1);
        }
        for (int j = 0; j <= i; j++) {
            float p = (float) Math.exp(scores[j] - logSum);
            add(p, outputGradients, row, valueGradients, j * size, size);
            float ds = p * (scoreGradients[j] - dot) * scale;
            add(ds, keys, j * size, queryGradients, row, size);
            add(ds, queries, row, keyGradients, j * size, size);
        }
    }

    /** Products of row i with the keys up to it. */
    private void scores(int i) {
        Arrays.fill(scores, 0, i + 1, 0);
        for (int d = 0; d < size; d++) {
            add(queries[i * size + d] * scale, keysAcross, d * context, scores, 0, i + 1);
        }
    }

    private static void add(float by, float[] from, int at, float[] to, int toAt, int count) {
        for (int i = 0; i < count; i++) {
            to[toAt + i] += by * from[at + i];
        }
    }

    private void across(float[] rows, float[] columns) {
        for (int i = 0; i < context; i++) {
            for (int d = 0; d < size; d++) {
                columns[d * context + i] = rows[i * size + d];
            }
        }
    }

    private long at(int sequence, int row) {
        return (long) sequence * context + row;
    }

    private void readKeys(MemorySegment qkv, int sequence, int keyHead) {
        read(qkv, sequence, stride, heads + keyHead, keys);
        read(qkv, sequence, stride, heads + keyHeads + keyHead, values);
    }

    private void read(MemorySegment from, int sequence, int stride, int head, float[] to) {
        for (int i = 0; i < context; i++) {
            long place = at(sequence, i) * stride + (long) head * size;
            FloatRows.load(from, type, place, to, i * size, size);
        }
    }

    private void copy(float[] from, MemorySegment to, int sequence, int stride, int head) {
        for (int i = 0; i < context; i++) {
            long place = at(sequence, i) * stride + (long) head * size;
            FloatRows.store(from, i * size, to, type, place, size);
        }
    }
}
