package io.jccl.bench;

import io.jccl.device.Buffer;
import io.jccl.internal.SplitMix;
import io.jccl.parallel.Part;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * The elements of the factors by a seeded formula: integers from -3 to 3. Sums of up to 1.8 million
 * of their products are below 2^24, so float32 represents them exactly in any order of addition,
 * and a product can be compared bit for bit.
 *
 * @param seed selects the matrices
 */
public record MatmulInputs(long seed) {
    /** The largest n for which everything is exact, in the check's float64 too. */
    public static final long MOST = 150_000;

    public static final int A = 1;
    static final int B = 2;
    private static final int VALUES = 7;
    private static final int LARGEST = 3;

    /**
     * Range of the check's vectors: the probability of missing a wrong product is its reciprocal,
     * per vector.
     */
    private static final int RANGE = 1 << 15;

    public int value(int which, long row, long column) {
        long x = SplitMix.mix(seed + which * SplitMix.GAMMA + row * 0xD1342543DE82EF95L + column);
        // The upper half times 7, divided by 2^32: as uniform as possible, and cheaper than a
        // remainder.
        return (int) (((x >>> 32) * VALUES) >>> 32) - LARGEST;
    }

    /** An element of a vector of the check. */
    double vector(int trial, long index) {
        long x = SplitMix.mix(seed * 31 + 0x632BE59BD9B4E019L * (trial + 1) + index);
        return (double) ((x >>> 40) % (2 * RANGE)) - RANGE;
    }

    /** Writes a part of a factor, row-major. */
    void fill(int which, Part rows, Part columns, Buffer to) {
        MemorySegment s = to.asSegment();
        long at = 0;
        for (long i = 0; i < rows.count(); i++) {
            for (long j = 0; j < columns.count(); j++) {
                s.setAtIndex(
                        ValueLayout.JAVA_FLOAT,
                        at++,
                        value(which, rows.from() + i, columns.from() + j));
            }
        }
    }

    /** An element of the product, from the formula alone. */
    double product(long n, long row, long column) {
        long sum = 0;
        for (long k = 0; k < n; k++) {
            sum += (long) value(A, row, k) * value(B, k, column);
        }
        return sum;
    }
}
