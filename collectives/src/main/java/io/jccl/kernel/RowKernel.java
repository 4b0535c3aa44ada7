package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;

/**
 * The inner loops of layers and of attention on ranges of float32 arrays: {@link VectorRows}, or
 * {@link PlainRows} where the Vector API's module is absent.
 *
 * <p>Elementwise results of both are bitwise equal. Sums are added in an order that depends only on
 * the number of elements and on the width of the machine's vectors, so they are the same each time
 * on one machine.
 *
 * <p><b>Threads:</b> any; nothing is kept between calls.
 */
public abstract class RowKernel {
    /** The fastest that this JVM supports. */
    public static final RowKernel BEST = make(Templates.VECTOR);

    /** Below this argument {@link #exp} is 0, which is off by less than 2^-125. */
    static final float EXP_LEAST = (float) -87.33;

    /** Above this argument {@link #exp} is infinite. */
    static final float EXP_MOST = (float) 88.37;

    static final float LOG2_E = (float) (1 / Math.log(2));

    /** Adding it leaves an integer in the low bits of a float32: 1.5 times 2^23. */
    static final float TO_INTEGER = 0x1.8p23f;

    /** The logarithm of 2 in two parts; products of the first with small integers are exact. */
    static final float LN2_HIGH = 355 / 512f;

    static final float LN2_LOW = (float) (Math.log(2) - 355 / 512.0);

    /** The bits of 1. */
    static final int ONE = 0x3f800000;

    static final int FRACTION_BITS = 23;

    /** 1 / 7!, 1 / 6! and so on: the series of the exponential. */
    static final float C7 = 1 / 5040f;

    static final float C6 = 1 / 720f;
    static final float C5 = 1 / 120f;
    static final float C4 = 1 / 24f;
    static final float C3 = 1 / 6f;
    static final float C2 = 0.5f;

    /** A kernel on vectors or not. */
    public static RowKernel make(boolean vector) {
        return vector ? new VectorRows() : new PlainRows();
    }

    /**
     * The exponential: 2^k times the series of the remainder r, |r| at most ln(2) / 2, up to r^7.
     * Leaving out r^8 / 8! is worth 2^-27; the last addition rounds by 2^-24 of a result that is
     * not below 0.7, those before it and the remainder by less than half of that together. So the
     * result is off by at most 2^-23, relative to it. NaN remains NaN.
     */
    public static float exp(float x) {
        float t = x < EXP_LEAST ? EXP_LEAST : x > EXP_MOST ? EXP_MOST : x;
        float shifted = Math.fma(t, LOG2_E, TO_INTEGER);
        float k = shifted - TO_INTEGER;
        float r = Math.fma(k, -LN2_LOW, Math.fma(k, -LN2_HIGH, t));
        float p = Math.fma(r, C7, C6);
        p = Math.fma(p, r, C5);
        p = Math.fma(p, r, C4);
        p = Math.fma(p, r, C3);
        p = Math.fma(p, r, C2);
        p = Math.fma(p, r, 1);
        p = Math.fma(p, r, 1);
        int power = (Float.floatToRawIntBits(shifted) << FRACTION_BITS) + ONE;
        float y = p * Float.intBitsToFloat(power);
        return x < EXP_LEAST ? 0 : x > EXP_MOST ? Float.POSITIVE_INFINITY : y;
    }

    /** Columns of {@link #addProduct} are multiples of this. */
    public abstract int columns();

    /**
     * Widens elements of float32, bfloat16 or float16.
     *
     * @param index first element in memory
     */
    public abstract void load(
            MemorySegment from, DataType type, long index, float[] to, int at, int count);

    /** Rounds to elements of float32, bfloat16 or float16. */
    public abstract void store(
            float[] from, int at, MemorySegment to, DataType type, long index, int count);

    /**
     * {@code c[rows, columns] += a[rows, depth] b[depth, columns]}, each sum in the order of the
     * depth with fused multiplications.
     *
     * @param aRow elements from one row of a to the next
     * @param aStep elements from one column of a to the next
     * @param bStride elements from one row of b to the next
     * @param cStride elements from one row of c to the next
     * @param columns a multiple of {@link #columns()}
     */
    abstract void addProduct(
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
            int columns);

    /** The largest element; NaN is ignored. */
    abstract float max(float[] x, int at, int n);

    /** {@code x = exp(x - minus)} by {@link #exp}. */
    abstract void exp(float[] x, int at, int n, float minus);

    /** The sum of elements in float64: four sums side by side, the same on any machine. */
    static double total(float[] x, int at, int n) {
        double a = 0;
        double b = 0;
        double c = 0;
        double d = 0;
        int i = at;
        for (; i + 4 <= at + n; i += 4) {
            a += x[i];
            b += x[i + 1];
            c += x[i + 2];
            d += x[i + 3];
        }
        for (; i < at + n; i++) {
            a += x[i];
        }
        return a + b + (c + d);
    }

    /** {@code y = (y - minus) x}. */
    abstract void slopes(float[] x, int at, float[] y, int to, int n, float minus);

    /** {@code x = x by}. */
    public abstract void scale(float[] x, int at, int n, float by);

    /** {@code y = y + x by}, rounded twice. */
    public abstract void add(float[] x, int at, float by, float[] y, int to, int n);

    /** The sum of elements. */
    abstract float sum(float[] x, int at, int n);

    /** The sum of {@code g (x - mean)}; g may be x, and then it is the sum of squares. */
    abstract float dot(float[] g, int gAt, float gMean, float[] x, int at, float mean, int n);

    /** {@code y = (x - mean) by}. */
    abstract void norm(float[] x, int at, int n, float mean, float by, float[] y, int to);

    /** {@code y += by (g - level - along (x - mean))}. */
    abstract void normBackward(
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
            int to);

    /** {@code y = max(x, 0)^2}. */
    abstract void reluSquared(float[] x, int at, int n, float[] y, int to);

    /** {@code g = g 2 max(x, 0)}. */
    abstract void reluSquaredBackward(float[] x, int at, int n, float[] g, int gAt);
}
