package io.jccl.contract;

import io.jccl.ReduceOp;
import io.jccl.contract.Case.Data;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.SplittableRandom;
import org.jspecify.annotations.Nullable;

/**
 * Elements that repeat after a prime number of them, so that large buffers are filled and compared
 * with few calculations and still no chunk looks like the one that belongs elsewhere.
 */
final class Pattern {
    private static final int PERIOD = 8191;

    private final DataType type;
    private final long[] bits;
    private final MemorySegment bytes;
    private final double @Nullable [] low;
    private final double @Nullable [] high;
    private final Match match;

    /** What else is right where the bits differ. */
    private enum Match {
        /** Nothing. */
        BITS,
        /** Any NaN where one is expected. */
        ANY_NAN,
        /** That, zeros of either sign, and what lies between low and high. */
        ARITHMETIC
    }

    private Pattern(
            DataType type,
            long[] bits,
            double @Nullable [] low,
            double @Nullable [] high,
            Match match) {
        this.type = type;
        this.bits = bits;
        this.low = low;
        this.high = high;
        this.match = match;
        this.bytes = MemorySegment.ofArray(new byte[Math.max(1, bits.length) * type.size()]);
        for (int i = 0; i < bits.length; i++) {
            Numbers.setBits(bytes, (long) i * type.size(), type.size(), bits[i]);
        }
    }

    /** What a rank contributes in one round. */
    static Pattern input(Case c, int round, int rank, long length) {
        SplittableRandom random =
                new SplittableRandom(Numbers.mix(c.seed(), rank * 31L + round * 1009L));
        long[] bits = new long[(int) Math.min(PERIOD, Math.max(1, length))];
        for (int i = 0; i < bits.length; i++) {
            bits[i] =
                    c.collective().reduces()
                            ? Numbers.operand(c.type(), c.op(), c.data(), random)
                            : Numbers.anyBits(c.type(), random);
        }
        return new Pattern(c.type(), bits, null, null, Match.BITS);
    }

    /** The reduction of what all ranks contribute. */
    static Pattern reduced(Case c, Pattern[] inputs, boolean rankOrder) {
        int length = inputs[0].bits.length;
        boolean exact = rankOrder || c.data() == Data.EXACT || c.type().isInteger();
        long[] bits = new long[length];
        double[] low = new double[length];
        double[] high = new double[length];
        long[] operands = new long[inputs.length];
        for (int i = 0; i < length; i++) {
            for (int r = 0; r < inputs.length; r++) {
                operands[r] = inputs[r].bits[i];
            }
            Numbers.Result result = Numbers.reduce(c, operands);
            bits[i] = result.bits();
            low[i] = result.low();
            high[i] = result.high();
        }
        boolean compares = c.op() == ReduceOp.Kind.MIN || c.op() == ReduceOp.Kind.MAX;
        Match match =
                c.type().isInteger() ? Match.BITS : compares ? Match.ANY_NAN : Match.ARITHMETIC;
        return new Pattern(c.type(), bits, exact ? null : low, exact ? null : high, match);
    }

    /** Writes elements; the first of them is the pattern's element phase. */
    void fill(MemorySegment memory, long offset, long count, long phase) {
        int size = type.size();
        long done = 0;
        while (done < count) {
            long at = (phase + done) % bits.length;
            long n = Math.min(count - done, bits.length - at);
            MemorySegment.copy(bytes, at * size, memory, offset + done * size, n * size);
            done += n;
        }
    }

    /** Compares elements; says where they differ and how, or null. */
    @Nullable String check(MemorySegment memory, long offset, long count, long phase) {
        int size = type.size();
        long done = 0;
        while (done < count) {
            long at = (phase + done) % bits.length;
            long n = Math.min(count - done, bits.length - at);
            long from = offset + done * size;
            long differs =
                    MemorySegment.mismatch(
                            memory, from, from + n * size, bytes, at * size, (at + n) * size);
            for (long i = differs < 0 ? n : differs / size; i < n; i++) {
                long actual = Numbers.bits(memory, from + i * size, size);
                int index = (int) (at + i);
                if (!isRight(actual, index)) {
                    return "element "
                            + (done + i)
                            + " of "
                            + count
                            + " is "
                            + Numbers.text(type, actual)
                            + ", expected "
                            + expected(index);
                }
            }
            done += n;
        }
        return null;
    }

    private boolean isRight(long actual, int index) {
        if (match == Match.BITS) {
            return actual == bits[index];
        }
        double a = Numbers.value(type, actual);
        double e = Numbers.value(type, bits[index]);
        if (actual == bits[index] || (Double.isNaN(e) && Double.isNaN(a))) {
            return true;
        }
        return match == Match.ARITHMETIC
                && ((a == 0 && e == 0)
                        || (low != null && high != null && a >= low[index] && a <= high[index]));
    }

    private String expected(int index) {
        String text = Numbers.text(type, bits[index]);
        return low == null || high == null || Double.isNaN(low[index])
                ? text
                : text + ", or from " + low[index] + " to " + high[index];
    }
}
