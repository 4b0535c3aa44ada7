package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Causal self-attention of one rank's heads, forward and backward.
 *
 * <p>Probabilities are recomputed from each row's log-sum-exp instead of being kept, as in arXiv
 * 2205.14135; inner loops add multiples of rows, which the compiler vectorizes without changing the
 * order of any sum.
 *
 * <p><b>Threads:</b> one at a time.
 */
final class Attention {
    private final int context;
    private final int heads;
    private final int size;
    private final int width;
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
     * @param heads heads of this rank
     * @param size width of a head
     */
    Attention(int context, int heads, int size) {
        this.context = context;
        this.heads = heads;
        this.size = size;
        this.width = heads * size;
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
    void forward(MemorySegment qkv, MemorySegment out, MemorySegment logSums, int sequences) {
        for (int s = 0; s < sequences; s++) {
            for (int h = 0; h < heads; h++) {
                read(qkv, s, h);
                across(keys, keysAcross);
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
                    double logSum = most + Math.log(sum);
                    logSums.setAtIndex(JAVA_FLOAT, at(s, i) * heads + h, (float) logSum);
                    for (int j = 0; j <= i; j++) {
                        float p = (float) Math.exp(scores[j] - (float) logSum);
                        add(p, values, j * size, outputs, i * size, size);
                    }
                }
                copy(outputs, out, s, width, (long) h * size);
            }
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
    void backward(
            MemorySegment qkv,
            MemorySegment out,
            MemorySegment logSums,
            MemorySegment outGradient,
            MemorySegment qkvGradient,
            int sequences) {
        for (int s = 0; s < sequences; s++) {
            for (int h = 0; h < heads; h++) {
                read(qkv, s, h);
                across(keys, keysAcross);
                across(values, valuesAcross);
                read(out, s, width, (long) h * size, outputs);
                read(outGradient, s, width, (long) h * size, outputGradients);
                Arrays.fill(queryGradients, 0);
                Arrays.fill(keyGradients, 0);
                Arrays.fill(valueGradients, 0);
                for (int i = 0; i < context; i++) {
                    int row = i * size;
                    float logSum = logSums.getAtIndex(JAVA_FLOAT, at(s, i) * heads + h);
                    scores(i);
                    float dot = 0;
                    for (int d = 0; d < size; d++) {
                        dot += outputGradients[row + d] * outputs[row + d];
                    }
                    Arrays.fill(scoreGradients, 0, i + 1, 0);
                    for (int d = 0; d < size; d++) {
                        add(
                                outputGradients[row + d],
                                valuesAcross,
                                d * context,
                                scoreGradients,
                                0,
                                i + 1);
                    }
                    for (int j = 0; j <= i; j++) {
                        float p = (float) Math.exp(scores[j] - logSum);
                        add(p, outputGradients, row, valueGradients, j * size, size);
                        float ds = p * (scoreGradients[j] - dot) * scale;
                        add(ds, keys, j * size, queryGradients, row, size);
                        add(ds, queries, row, keyGradients, j * size, size);
                    }
                }
                copy(queryGradients, qkvGradient, s, 3 * width, (long) h * size);
                copy(keyGradients, qkvGradient, s, 3 * width, width + (long) h * size);
                copy(valueGradients, qkvGradient, s, 3 * width, 2L * width + (long) h * size);
            }
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

    private void read(MemorySegment qkv, int sequence, int head) {
        read(qkv, sequence, 3 * width, (long) head * size, queries);
        read(qkv, sequence, 3 * width, width + (long) head * size, keys);
        read(qkv, sequence, 3 * width, 2L * width + (long) head * size, values);
    }

    private void read(MemorySegment from, int sequence, int stride, long column, float[] to) {
        for (int i = 0; i < context; i++) {
            long place = at(sequence, i) * stride + column;
            MemorySegment.copy(from, JAVA_FLOAT, place * Float.BYTES, to, i * size, size);
        }
    }

    private void copy(float[] from, MemorySegment to, int sequence, int stride, long column) {
        for (int i = 0; i < context; i++) {
            long place = at(sequence, i) * stride + column;
            MemorySegment.copy(from, i * size, to, JAVA_FLOAT, place * Float.BYTES, size);
        }
    }
}
