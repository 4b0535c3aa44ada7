package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Selects the k elements of largest magnitude of a float32 vector; select.h is the same for GPUs.
 *
 * <p>The magnitude threshold is exact: without its sign bit a float32 is ordered like an integer,
 * so three histograms over 11, 10 and 10 of its bits find the k-th largest. NaN is above
 * everything, so it is selected and not hidden. Of equal elements the first ones are taken.
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class LargestSelection {
    private static final int MAGNITUDE = 0x7fffffff;
    private static final int[] SHIFTS = {20, 10, 0};

    private final int[] histogram = new int[1 << 11];

    /**
     * Moves the largest elements, in the order of their indices; zeros remain.
     *
     * @param x the vector
     * @param added as many float32 that are added to it first; null for none
     * @param count its elements
     * @param k number of elements to move, 1 to count
     * @param selection int32: k indices, then the bits of the k elements
     */
    public void select(
            MemorySegment x,
            @Nullable MemorySegment added,
            int count,
            int k,
            MemorySegment selection) {
        // Each digit of the threshold, from the highest; the first count adds as well.
        int prefix = 0;
        int above = Integer.SIZE - 1;
        int left = k;
        for (int shift : SHIFTS) {
            Arrays.fill(histogram, 0);
            int digits = above - shift;
            int mask = (1 << digits) - 1;
            if (added != null && shift == SHIFTS[0]) {
                for (int i = 0; i < count; i++) {
                    float sum =
                            x.getAtIndex(JAVA_FLOAT_UNALIGNED, i)
                                    + added.getAtIndex(JAVA_FLOAT_UNALIGNED, i);
                    x.setAtIndex(JAVA_FLOAT_UNALIGNED, i, sum);
                    histogram[(Float.floatToRawIntBits(sum) & MAGNITUDE) >>> shift]++;
                }
            } else {
                for (int i = 0; i < count; i++) {
                    int m = x.getAtIndex(JAVA_INT_UNALIGNED, i) & MAGNITUDE;
                    if (m >>> above == prefix) {
                        histogram[m >>> shift & mask]++;
                    }
                }
            }
            int digit = mask;
            while (histogram[digit] < left) {
                left -= histogram[digit--];
            }
            prefix = (prefix << digits) | digit;
            above = shift;
        }
        // All above the threshold, then the first ones equal to it.
        int threshold = prefix;
        int at = 0;
        for (int i = 0; i < count && at < k; i++) {
            int bits = x.getAtIndex(JAVA_INT_UNALIGNED, i);
            int m = bits & MAGNITUDE;
            if (m > threshold || (m == threshold && left-- > 0)) {
                selection.setAtIndex(JAVA_INT_UNALIGNED, at, i);
                selection.setAtIndex(JAVA_INT_UNALIGNED, (long) k + at, bits);
                x.setAtIndex(JAVA_INT_UNALIGNED, i, 0);
                at++;
            }
        }
    }

    /**
     * Adds what was selected to a vector.
     *
     * @param selection k indices and k elements, from {@code from} on
     * @param from first element of the selection
     * @param k number of elements; an index outside the vector is skipped
     * @param target float32
     * @param count elements of the target
     */
    public static void add(
            MemorySegment selection, long from, int k, MemorySegment target, long count) {
        for (int i = 0; i < k; i++) {
            int to = selection.getAtIndex(JAVA_INT_UNALIGNED, from + i);
            if (to >= 0 && to < count) {
                float value = selection.getAtIndex(JAVA_FLOAT_UNALIGNED, from + k + i);
                float sum = target.getAtIndex(JAVA_FLOAT_UNALIGNED, to) + value;
                target.setAtIndex(JAVA_FLOAT_UNALIGNED, to, sum);
            }
        }
    }
}
