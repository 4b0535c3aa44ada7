package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;

/** In plain Java; see {@link RowKernel}. */
final class PlainRows extends RowKernel {
    private static final int COLUMNS = 16;

    @Override
    public int columns() {
        return COLUMNS;
    }

    @Override
    public void load(MemorySegment from, DataType type, long index, float[] to, int at, int count) {
        switch (type) {
            case FLOAT32 ->
                    MemorySegment.copy(
                            from, JAVA_FLOAT_UNALIGNED, index * Float.BYTES, to, at, count);
            case BFLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = from.getAtIndex(JAVA_SHORT_UNALIGNED, index + i);
                    to[at + i] = Bfloat16.toFloat(bits);
                }
            }
            case FLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = from.getAtIndex(JAVA_SHORT_UNALIGNED, index + i);
                    to[at + i] = Float.float16ToFloat(bits);
                }
            }
            default -> throw wrong(type);
        }
    }

    @Override
    public void store(
            float[] from, int at, MemorySegment to, DataType type, long index, int count) {
        switch (type) {
            case FLOAT32 ->
                    MemorySegment.copy(
                            from, at, to, JAVA_FLOAT_UNALIGNED, index * Float.BYTES, count);
            case BFLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = Bfloat16.of(from[at + i]);
                    to.setAtIndex(JAVA_SHORT_UNALIGNED, index + i, bits);
                }
            }
            case FLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = Float.floatToFloat16(from[at + i]);
                    to.setAtIndex(JAVA_SHORT_UNALIGNED, index + i, bits);
                }
            }
            default -> throw wrong(type);
        }
    }

    private static IllegalArgumentException wrong(DataType type) {
        return new IllegalArgumentException(
                "elements are of " + type.label() + ", expected float, bfloat16 or half");
    }

    @Override
    void addProduct(
            float[] a,
            int aAt,
            int aRow,
            int aStep,
            float[] b,
            int bAt,
            int bStride,
            int depth,
            float[] c,
            int cAt,
            int cStride,
            int rows,
            int columns) {
        for (int r = 0; r < rows; r++) {
            for (int p = 0; p < depth; p++) {
                float s = a[aAt + r * aRow + p * aStep];
                int from = bAt + p * bStride;
                int to = cAt + r * cStride;
                for (int j = 0; j < columns; j++) {
                    c[to + j] = Math.fma(s, b[from + j], c[to + j]);
                }
            }
        }
    }

    @Override
    float max(float[] x, int at, int n) {
        float most = Float.NEGATIVE_INFINITY;
        for (int i = 0; i < n; i++) {
            most = x[at + i] > most ? x[at + i] : most;
        }
        return most;
    }

    @Override
    void exp(float[] x, int at, int n, float minus) {
        for (int i = at; i < at + n; i++) {
            x[i] = exp(x[i] - minus);
        }
    }

    @Override
    void slopes(float[] x, int at, float[] y, int to, int n, float minus) {
        for (int i = 0; i < n; i++) {
            y[to + i] = (y[to + i] - minus) * x[at + i];
        }
    }

    @Override
    public void scale(float[] x, int at, int n, float by) {
        for (int i = 0; i < n; i++) {
            x[at + i] *= by;
        }
    }

    @Override
    public void add(float[] x, int at, float by, float[] y, int to, int n) {
        for (int i = 0; i < n; i++) {
            y[to + i] += x[at + i] * by;
        }
    }

    @Override
    float sum(float[] x, int at, int n) {
        float sum = 0;
        for (int i = 0; i < n; i++) {
            sum += x[at + i];
        }
        return sum;
    }

    @Override
    float dot(float[] g, int gAt, float gMean, float[] x, int at, float mean, int n) {
        float sum = 0;
        for (int i = 0; i < n; i++) {
            sum += (g[gAt + i] - gMean) * (x[at + i] - mean);
        }
        return sum;
    }

    @Override
    void norm(float[] x, int at, int n, float mean, float by, float[] y, int to) {
        for (int i = 0; i < n; i++) {
            y[to + i] = (x[at + i] - mean) * by;
        }
    }

    @Override
    void normBackward(
            float[] x,
            int at,
            float[] g,
            int gAt,
            int n,
            float mean,
            float by,
            float level,
            float along,
            float[] y,
            int to) {
        for (int i = 0; i < n; i++) {
            y[to + i] += by * (g[gAt + i] - level - along * (x[at + i] - mean));
        }
    }

    @Override
    void reluSquared(float[] x, int at, int n, float[] y, int to) {
        for (int i = 0; i < n; i++) {
            float r = Math.max(x[at + i], 0);
            y[to + i] = r * r;
        }
    }

    @Override
    void reluSquaredBackward(float[] x, int at, int n, float[] g, int gAt) {
        for (int i = 0; i < n; i++) {
            g[gAt + i] = g[gAt + i] * 2 * Math.max(x[at + i], 0);
        }
    }
}
