package io.jccl.kernel;

import io.jccl.internal.SplitMix;

/**
 * Loops over columns of thin matrices, which are stored column after column in an array.
 * orthonormal.h is the same for GPUs.
 */
public final class ThinColumns {
    /**
     * If only this fraction of a column is orthogonal to the earlier ones, it is rounding error:
     * float32 has 2^-24.
     */
    private static final double LOST = 1e-6;

    private static final long PLACE = 0xD1342543DE82EF95L;

    private ThinColumns() {}

    /**
     * Makes columns orthonormal: modified Gram-Schmidt, applied twice to each column, since a
     * single pass is inaccurate in float32. A column that depends on earlier ones becomes zero.
     */
    public static void orthonormalize(float[] a, int length, int columns) {
        for (int k = 0; k < columns; k++) {
            int at = k * length;
            double before = norm(a, at, length);
            for (int pass = 0; pass < 2; pass++) {
                for (int l = 0; l < k; l++) {
                    float along = dot(a, at, a, l * length, length);
                    RowKernel.BEST.add(a, l * length, -along, a, at, length);
                }
            }
            normalize(a, at, length, LOST * before);
        }
    }

    /** Scales each column to a norm of 1; a column of zeros remains. */
    public static void normalize(float[] a, int length, int columns) {
        for (int k = 0; k < columns; k++) {
            normalize(a, k * length, length, 0);
        }
    }

    /** Normalizes a column, or sets it to zero if its norm does not exceed a limit. */
    private static void normalize(float[] a, int at, int length, double least) {
        double norm = norm(a, at, length);
        boolean nothing = norm <= least;
        for (int i = at; i < at + length; i++) {
            a[i] = nothing ? 0 : (float) (a[i] / norm);
        }
    }

    private static double norm(float[] a, int at, int length) {
        double sum = 0;
        for (int i = at; i < at + length; i++) {
            sum += (double) a[i] * a[i];
        }
        return Math.sqrt(sum);
    }

    /** Whether a column is zero. */
    public static boolean isZero(float[] a, int at, int length) {
        for (int i = at; i < at + length; i++) {
            if (a[i] != 0) {
                return false;
            }
        }
        return true;
    }

    /**
     * Fills a column with random elements from -1 to 1, by SplitMix64.
     *
     * @param a where it goes
     * @param at its first element
     * @param length number of elements
     * @param seed of all columns
     * @param place distinguishes columns
     * @param before number of columns drawn before
     */
    public static void draw(float[] a, int at, int length, long seed, long place, long before) {
        long state = seed * 31 + place * PLACE + before;
        for (int i = at; i < at + length; i++) {
            state += SplitMix.GAMMA;
            a[i] = (SplitMix.mix(state) >>> 40) * 0x1p-23f - 1;
        }
    }

    /** Eight partial sums, so that additions do not depend on each other. */
    private static float dot(float[] a, int aAt, float[] b, int bAt, int n) {
        float s0 = 0;
        float s1 = 0;
        float s2 = 0;
        float s3 = 0;
        float s4 = 0;
        float s5 = 0;
        float s6 = 0;
        float s7 = 0;
        int i = 0;
        for (; i < n - 7; i += 8) {
            s0 += a[aAt + i] * b[bAt + i];
            s1 += a[aAt + i + 1] * b[bAt + i + 1];
            s2 += a[aAt + i + 2] * b[bAt + i + 2];
            s3 += a[aAt + i + 3] * b[bAt + i + 3];
            s4 += a[aAt + i + 4] * b[bAt + i + 4];
            s5 += a[aAt + i + 5] * b[bAt + i + 5];
            s6 += a[aAt + i + 6] * b[bAt + i + 6];
            s7 += a[aAt + i + 7] * b[bAt + i + 7];
        }
        for (; i < n; i++) {
            s0 += a[aAt + i] * b[bAt + i];
        }
        return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7));
    }
}
