package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import io.jccl.internal.SplitMix;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Computations of a mixture of experts other than moving rows, on float32 in host memory: random
 * factors, normal noise, and the mix of two outputs by the softmax of two logits. mixture.h is the
 * same for GPUs. Nothing is allocated.
 *
 * <p><b>Threads:</b> any.
 */
public final class MixtureLoops {
    /** The bits of a place's first digit, which float32 holds exactly. */
    private static final int PLACE_BITS = 24;

    private MixtureLoops() {}

    /**
     * Writes a place as two digits.
     *
     * @param place 0 to less than 2^48
     * @param row of the places
     * @param places two elements for each row
     */
    public static void setPlace(long place, long row, MemorySegment places) {
        long high = place >>> PLACE_BITS;
        places.setAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row, (float) (place - (high << PLACE_BITS)));
        places.setAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row + 1, (float) high);
    }

    private static long place(MemorySegment places, long row) {
        return (long) places.getAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row)
                + ((long) places.getAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row + 1) << PLACE_BITS);
    }

    /**
     * Multiplies elements by random factors.
     *
     * @param from rows
     * @param rows number of rows
     * @param width elements of a row
     * @param places of rows, as {@link #setPlace} writes them; null if they follow each other
     * @param place of the first row, if they do
     * @param columns elements of a whole row
     * @param first column
     * @param jitter largest change of a factor
     * @param jitterStream its random stream
     * @param dropout probability that the factor is 0
     * @param dropoutStream its random stream
     * @param to as many rows; may be the same
     */
    public static void scale(
            MemorySegment from,
            long rows,
            int width,
            @Nullable MemorySegment places,
            long place,
            long columns,
            long first,
            double jitter,
            long jitterStream,
            double dropout,
            long dropoutStream,
            MemorySegment to) {
        for (long r = 0; r < rows; r++) {
            long index = (places == null ? place + r : place(places, r)) * columns + first;
            for (long i = r * width; i < (r + 1) * width; i++, index++) {
                double factor = 1;
                if (jitter > 0) {
                    factor += jitter * (2 * SplitMix.uniform(jitterStream, index) - 1);
                }
                float by = (float) factor * keep(dropout, dropoutStream, index);
                to.setAtIndex(
                        JAVA_FLOAT_UNALIGNED, i, from.getAtIndex(JAVA_FLOAT_UNALIGNED, i) * by);
            }
        }
    }

    /**
     * The factor of dropout for one element (Srivastava et al., "Dropout", 2014, in its inverted
     * form).
     *
     * @param probability 0 to less than 1
     * @param stream of the numbers drawn
     * @param index of the element
     * @return 0, or 1 / (1 - probability)
     */
    private static float keep(double probability, long stream, long index) {
        return probability > 0 && SplitMix.uniform(stream, index) < probability
                ? 0
                : (float) (1 / (1 - probability));
    }

    /**
     * Adds normally distributed numbers.
     *
     * @param x changed
     * @param count elements
     * @param deviation standard deviation
     * @param stream the random stream
     * @param first index of the first number in it
     */
    public static void addNormal(
            MemorySegment x, long count, double deviation, long stream, long first) {
        for (long i = 0; i < count; i++) {
            double noise = deviation * SplitMix.normal(stream, first + i);
            float old = x.getAtIndex(JAVA_FLOAT_UNALIGNED, i);
            x.setAtIndex(JAVA_FLOAT_UNALIGNED, i, (float) (old + noise));
        }
    }

    /** The difference of the two columns in a row of coefficients. */
    private static double slope(MemorySegment c, long row) {
        return c.getAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row)
                - (double) c.getAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row + 1);
    }

    /**
     * Mixes two outputs: with a share s = softmax(x coefficient + bias), of which the first counts,
     * b becomes {@code b + s (a - b)}.
     *
     * @param x rows
     * @param rows number of rows
     * @param width elements of a row
     * @param coefficient width x 2
     * @param bias 2 elements
     * @param a rows
     * @param b rows, overwritten
     * @param difference receives a - b
     * @param share receives s of each row
     */
    public static void mix(
            MemorySegment x,
            long rows,
            int width,
            MemorySegment coefficient,
            MemorySegment bias,
            MemorySegment a,
            MemorySegment b,
            MemorySegment difference,
            MemorySegment share) {
        double offset = slope(bias, 0);
        for (long r = 0; r < rows; r++) {
            long from = r * width;
            double z = offset;
            for (int f = 0; f < width; f++) {
                z += x.getAtIndex(JAVA_FLOAT_UNALIGNED, from + f) * slope(coefficient, f);
            }
            float s = (float) (1 / (1 + Math.exp(-z)));
            share.setAtIndex(JAVA_FLOAT_UNALIGNED, r, s);
            for (long i = from; i < from + width; i++) {
                float of = b.getAtIndex(JAVA_FLOAT_UNALIGNED, i);
                float more = a.getAtIndex(JAVA_FLOAT_UNALIGNED, i) - of;
                difference.setAtIndex(JAVA_FLOAT_UNALIGNED, i, more);
                b.setAtIndex(JAVA_FLOAT_UNALIGNED, i, of + s * more);
            }
        }
    }

    /**
     * Multiplies rows by their shares, or by 1 minus these.
     *
     * @param from rows
     * @param rows number of rows
     * @param width elements of a row
     * @param share one for each row
     * @param rest whether to use 1 minus the shares
     * @param to as many rows; may be the same
     */
    public static void scaleByShare(
            MemorySegment from,
            long rows,
            int width,
            MemorySegment share,
            boolean rest,
            MemorySegment to) {
        for (long r = 0; r < rows; r++) {
            float s = share.getAtIndex(JAVA_FLOAT_UNALIGNED, r);
            float by = rest ? 1 - s : s;
            for (long i = r * width; i < (r + 1) * width; i++) {
                float x = from.getAtIndex(JAVA_FLOAT_UNALIGNED, i);
                to.setAtIndex(JAVA_FLOAT_UNALIGNED, i, by * x);
            }
        }
    }

    /**
     * The gradients of {@link #mix} through its shares.
     *
     * @param x rows
     * @param rows number of rows
     * @param width elements of a row
     * @param coefficient width x 2
     * @param gradient of the mix
     * @param difference from {@link #mix}
     * @param share from {@link #mix}
     * @param ofX gradient of x, to which is added
     * @param sums float64, overwritten: the gradients of the first coefficients and of the first
     *     element of the bias; those of the second ones are their negatives
     */
    public static void mixBackward(
            MemorySegment x,
            long rows,
            int width,
            MemorySegment coefficient,
            MemorySegment gradient,
            MemorySegment difference,
            MemorySegment share,
            MemorySegment ofX,
            MemorySegment sums) {
        for (int f = 0; f <= width; f++) {
            sums.setAtIndex(JAVA_DOUBLE_UNALIGNED, f, 0);
        }
        for (long r = 0; r < rows; r++) {
            long from = r * width;
            double dot = 0;
            for (long i = from; i < from + width; i++) {
                dot +=
                        (double) gradient.getAtIndex(JAVA_FLOAT_UNALIGNED, i)
                                * difference.getAtIndex(JAVA_FLOAT_UNALIGNED, i);
            }
            double s = share.getAtIndex(JAVA_FLOAT_UNALIGNED, r);
            double logit = s * (1 - s) * dot;
            add(sums, width, logit);
            for (int f = 0; f < width; f++) {
                long i = from + f;
                add(sums, f, logit * x.getAtIndex(JAVA_FLOAT_UNALIGNED, i));
                float to = ofX.getAtIndex(JAVA_FLOAT_UNALIGNED, i);
                ofX.setAtIndex(
                        JAVA_FLOAT_UNALIGNED, i, (float) (to + logit * slope(coefficient, f)));
            }
        }
    }

    private static void add(MemorySegment sums, int index, double value) {
        double old = sums.getAtIndex(JAVA_DOUBLE_UNALIGNED, index);
        sums.setAtIndex(JAVA_DOUBLE_UNALIGNED, index, old + value);
    }

    /**
     * Adds the sums of {@link #mixBackward} to gradients.
     *
     * @param sums float64
     * @param width rows of the coefficients
     * @param coefficient gradient, changed
     * @param bias gradient, changed
     */
    public static void addSums(
            MemorySegment sums, int width, MemorySegment coefficient, MemorySegment bias) {
        for (int f = 0; f <= width; f++) {
            MemorySegment to = f < width ? coefficient : bias;
            long at = f < width ? 2L * f : 0;
            double of = sums.getAtIndex(JAVA_DOUBLE_UNALIGNED, f);
            float first = to.getAtIndex(JAVA_FLOAT_UNALIGNED, at);
            float second = to.getAtIndex(JAVA_FLOAT_UNALIGNED, at + 1);
            to.setAtIndex(JAVA_FLOAT_UNALIGNED, at, (float) (first + of));
            to.setAtIndex(JAVA_FLOAT_UNALIGNED, at + 1, (float) (second - of));
        }
    }
}
