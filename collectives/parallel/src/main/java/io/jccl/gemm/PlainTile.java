package io.jccl.gemm;

import io.jccl.internal.Bfloat16;

/**
 * In plain Java, if the Vector API is not available: C2 vectorizes the inner loops if they are long
 * enough.
 */
final class PlainTile extends Tile {
    private static final int ROWS = 4;
    private static final int COLUMNS = 256;

    PlainTile() {
        super(ROWS, ROWS, COLUMNS);
    }

    @Override
    void multiply(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt) {
        for (int r = 0; r < ROWS; r++) {
            int at = cAt + r * COLUMNS;
            for (int p = 0; p < k; p++) {
                row(a[aAt + r * STRIDE + p], b, bAt + p * COLUMNS, c, at);
            }
        }
    }

    private static void row(float x, float[] b, int bAt, float[] c, int cAt) {
        for (int j = 0; j < COLUMNS; j++) {
            c[cAt + j] += x * b[bAt + j];
        }
    }

    @Override
    void multiplyFew(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt) {
        multiply(a, aAt, b, bAt, k, c, cAt);
    }

    @Override
    void addRows(
            float[] a,
            int aAt,
            int aStride,
            float[] b,
            int bStride,
            int depth,
            int count,
            float[] c,
            int cAt) {
        for (int p = 0; p < depth; p++) {
            float x = a[aAt + p * aStride];
            for (int j = 0; j < count; j++) {
                c[cAt + j] += x * b[p * bStride + j];
            }
        }
    }

    @Override
    float add(float a, float b, float c) {
        return c + a * b;
    }

    @Override
    void spread(float[] from, int steps, int count, float[] to, int at, int panelStride) {
        for (int j = 0, o = at; j < count; j += COLUMNS, o += panelStride) {
            for (int i = 0; i < steps; i++) {
                System.arraycopy(from, i * count + j, to, o + i * COLUMNS, COLUMNS);
            }
        }
    }

    @Override
    void collect(float[] from, int at, int panelStride, float[] to, int count) {
        for (int j = 0, i = at; j < count; j += COLUMNS, i += panelStride) {
            System.arraycopy(from, i, to, j, COLUMNS);
        }
    }

    @Override
    void scaleAdd(float[] from, int fromAt, float factor, float[] to, int at, int count) {
        for (int i = 0; i < count; i++) {
            to[at + i] = factor * to[at + i] + from[fromAt + i];
        }
    }

    @Override
    void widen(short[] from, float[] to, int at, int count) {
        for (int i = 0; i < count; i++) {
            to[at + i] = Bfloat16.toFloat(from[i]);
        }
    }
}
