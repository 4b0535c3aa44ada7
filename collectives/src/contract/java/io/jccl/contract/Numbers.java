package io.jccl.contract;

import io.jccl.ReduceOp;
import io.jccl.contract.Case.Data;
import io.jccl.device.DataType;
import io.jccl.internal.SplitMix;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.SplittableRandom;

/**
 * Elements as raw bits in a long, and what a reduction of them has to give. Nothing here calls the
 * engine.
 */
public final class Numbers {
    private Numbers() {}

    /** Mixes two numbers into one that looks random. */
    static long mix(long a, long b) {
        return SplitMix.mix(a * SplitMix.GAMMA + b + 0x632BE59BD9B4E019L);
    }

    /** A number from 0 to bound - 1. */
    static int below(long hash, int bound) {
        return (int) ((hash >>> 33) % bound);
    }

    /** Reads the bits of an element. */
    public static long bits(MemorySegment memory, long offset, int size) {
        return switch (size) {
            case 1 -> memory.get(ValueLayout.JAVA_BYTE, offset) & 0xFFL;
            case 2 -> memory.get(ValueLayout.JAVA_SHORT_UNALIGNED, offset) & 0xFFFFL;
            case 4 -> memory.get(ValueLayout.JAVA_INT_UNALIGNED, offset) & 0xFFFFFFFFL;
            default -> memory.get(ValueLayout.JAVA_LONG_UNALIGNED, offset);
        };
    }

    /** Writes the bits of an element. */
    public static void setBits(MemorySegment memory, long offset, int size, long bits) {
        switch (size) {
            case 1 -> memory.set(ValueLayout.JAVA_BYTE, offset, (byte) bits);
            case 2 -> memory.set(ValueLayout.JAVA_SHORT_UNALIGNED, offset, (short) bits);
            case 4 -> memory.set(ValueLayout.JAVA_INT_UNALIGNED, offset, (int) bits);
            default -> memory.set(ValueLayout.JAVA_LONG_UNALIGNED, offset, bits);
        }
    }

    /** Cuts bits to the width of a type. */
    public static long mask(DataType type, long bits) {
        return type.size() == 8 ? bits : bits & ((1L << (8 * type.size())) - 1);
    }

    /** The integer that bits stand for; uint64 keeps its bits. */
    public static long integer(DataType type, long bits) {
        int unused = 64 - 8 * type.size();
        return type.isUnsigned() ? bits << unused >>> unused : bits << unused >> unused;
    }

    /** The floating-point value that bits stand for. */
    public static double value(DataType type, long bits) {
        return switch (type) {
            case FLOAT64 -> Double.longBitsToDouble(bits);
            case FLOAT32 -> Float.intBitsToFloat((int) bits);
            default -> Narrow.of(type).decode(bits);
        };
    }

    /** The bits of the value of a type nearest to a number. */
    public static long encode(DataType type, double value) {
        return switch (type) {
            case FLOAT64 -> Double.doubleToRawLongBits(value);
            case FLOAT32 -> Float.floatToRawIntBits((float) value) & 0xFFFFFFFFL;
            default -> Narrow.of(type).encode(value);
        };
    }

    /** An element of a type as text. */
    public static String text(DataType type, long bits) {
        String number =
                !type.isInteger()
                        ? Double.toString(value(type, bits))
                        : type.isUnsigned()
                                ? Long.toUnsignedString(integer(type, bits))
                                : Long.toString(integer(type, bits));
        return number + " (0x" + Long.toHexString(bits) + ")";
    }

    /** Random bits, to be moved and not to be calculated with. */
    static long anyBits(DataType type, SplittableRandom random) {
        return mask(type, random.nextLong());
    }

    /** An operand of a reduction. */
    static long operand(DataType type, ReduceOp.Kind op, Data data, SplittableRandom random) {
        if (type.isInteger()) {
            return switch (random.nextInt(8)) {
                case 0 -> mask(type, -1);
                case 1 -> mask(type, 1L << (8 * type.size() - 1));
                case 2 -> mask(type, random.nextInt(-9, 10));
                default -> mask(type, random.nextLong());
            };
        }
        boolean prod = op == ReduceOp.Kind.PROD;
        return encode(
                type,
                switch (data) {
                    case EXACT ->
                            prod
                                    ? Math.scalb(sign(random), random.nextInt(-1, 2))
                                    : random.nextInt(-15, 16) / 2.0;
                    case RANDOM, ROUNDED ->
                            prod
                                    ? sign(random) * random.nextDouble(0.5, 2)
                                    : Math.scalb(
                                            random.nextDouble(-0.5, 0.5), random.nextInt(-3, 4));
                    case SPECIAL, QUIET -> special(type, op, random);
                });
    }

    private static double sign(SplittableRandom random) {
        return random.nextBoolean() ? 1 : -1;
    }

    private static double special(DataType type, ReduceOp.Kind op, SplittableRandom random) {
        boolean compares = op == ReduceOp.Kind.MIN || op == ReduceOp.Kind.MAX;
        double max =
                switch (type) {
                    case FLOAT64 -> Double.MAX_VALUE;
                    case FLOAT32 -> Float.MAX_VALUE;
                    default -> Narrow.of(type).max();
                };
        double least =
                switch (type) {
                    case FLOAT64 -> Double.MIN_VALUE;
                    case FLOAT32 -> Float.MIN_VALUE;
                    default -> Narrow.of(type).decode(1);
                };
        // float8 has no infinity to give back: sums and comparisons of them saturate
        boolean infinities = !type.isNarrowFloat() || type.size() == 2;
        return switch (random.nextInt(compares ? 12 : 24)) {
            case 0 -> Double.NaN;
            case 1 -> infinities ? Double.POSITIVE_INFINITY : max;
            case 2 -> infinities ? Double.NEGATIVE_INFINITY : -max;
            case 3, 4 -> 0.0;
            case 5, 6 -> -0.0;
            case 7 -> max;
            case 8 -> -max;
            case 9 -> sign(random) * least;
            default -> sign(random);
        };
    }

    /** Whether special values give the same result in whatever order they are reduced. */
    static boolean specialIsDefined(DataType type, ReduceOp.Kind op) {
        return switch (op) {
            case MIN, MAX -> true;
            // float32 holds every intermediate result of these without overflow
            case SUM, AVG, PROD, PRE_MUL_SUM ->
                    type == DataType.FLOAT8E4M3
                            || (op != ReduceOp.Kind.PROD
                                    && (type == DataType.FLOAT16 || type == DataType.FLOAT8E5M2));
        };
    }

    /** The operation as rank passes it. */
    static ReduceOp reduceOp(Case c, int rank) {
        return switch (c.op()) {
            case SUM -> ReduceOp.SUM;
            case PROD -> ReduceOp.PROD;
            case MIN -> ReduceOp.MIN;
            case MAX -> ReduceOp.MAX;
            case AVG -> ReduceOp.AVG;
            case PRE_MUL_SUM ->
                    c.type().isInteger()
                            ? ReduceOp.preMulSum(longFactor(c, rank))
                            : ReduceOp.preMulSum(factor(c, rank));
        };
    }

    private static final double[] EXACT_FACTORS = {1, -1, 2, 0.5, -0.5, 3};

    private static long longFactor(Case c, int rank) {
        return mix(c.seed(), rank + 77);
    }

    private static double factor(Case c, int rank) {
        long hash = mix(c.seed(), rank + 78);
        return c.data() == Data.RANDOM
                ? new SplittableRandom(hash).nextDouble(-2, 2)
                : EXACT_FACTORS[below(hash, EXACT_FACTORS.length)];
    }

    /**
     * What an element may be after a reduction.
     *
     * @param bits the result of a reduction in rank order
     * @param low the least value that is right in any order
     * @param high the largest
     */
    record Result(long bits, double low, double high) {}

    /** Reduces one element of each rank. */
    static Result reduce(Case c, long[] operands) {
        if (c.type().isInteger()) {
            return new Result(reduceIntegers(c, operands), 0, 0);
        }
        return c.type() == DataType.FLOAT64
                ? reduceDoubles(c, operands)
                : reduceFloats(c, operands);
    }

    private static long reduceIntegers(Case c, long[] operands) {
        DataType type = c.type();
        long all = integer(type, operands[0]);
        if (c.op() == ReduceOp.Kind.PRE_MUL_SUM) {
            all *= longFactor(c, 0);
        }
        for (int r = 1; r < operands.length; r++) {
            long x = integer(type, operands[r]);
            int order = type.isUnsigned() ? Long.compareUnsigned(x, all) : Long.compare(x, all);
            all =
                    switch (c.op()) {
                        case SUM, AVG -> all + x;
                        case PROD -> all * x;
                        case MIN -> order < 0 ? x : all;
                        case MAX -> order > 0 ? x : all;
                        case PRE_MUL_SUM -> all + x * longFactor(c, r);
                    };
        }
        if (c.op() == ReduceOp.Kind.AVG) {
            long sum = integer(type, mask(type, all));
            int n = operands.length;
            all = type.isUnsigned() ? Long.divideUnsigned(sum, n) : sum / n;
        }
        return mask(type, all);
    }

    private static Result reduceDoubles(Case c, long[] operands) {
        double all = 0;
        double size = 0;
        for (int r = 0; r < operands.length; r++) {
            double x = Double.longBitsToDouble(operands[r]);
            if (c.op() == ReduceOp.Kind.PRE_MUL_SUM) {
                x *= factor(c, r);
            }
            size += Math.abs(x);
            all = r == 0 ? x : combine(c, all, x);
        }
        if (c.op() == ReduceOp.Kind.AVG) {
            all /= operands.length;
            size /= operands.length;
        }
        double unit = 0x1p-52;
        return bounded(c, all, size, unit, operands.length, Double.doubleToRawLongBits(all));
    }

    private static Result reduceFloats(Case c, long[] operands) {
        float all = 0;
        double wide = 0;
        double size = 0;
        for (int r = 0; r < operands.length; r++) {
            float x = (float) value(c.type(), operands[r]);
            double exact = x;
            if (c.op() == ReduceOp.Kind.PRE_MUL_SUM) {
                exact *= (float) factor(c, r);
                x *= (float) factor(c, r);
            }
            size += Math.abs(exact);
            all = r == 0 ? x : combine(c, all, x);
            wide = r == 0 ? exact : combine(c, wide, exact);
        }
        if (c.op() == ReduceOp.Kind.AVG) {
            all /= operands.length;
            wide /= operands.length;
            size /= operands.length;
        }
        return bounded(c, wide, size, 0x1p-24, operands.length, encode(c.type(), all));
    }

    private static float combine(Case c, float a, float b) {
        return switch (c.op()) {
            case SUM, AVG, PRE_MUL_SUM -> a + b;
            case PROD -> a * b;
            case MIN, MAX -> (float) extreme(c, a, b);
        };
    }

    private static double combine(Case c, double a, double b) {
        return switch (c.op()) {
            case SUM, AVG, PRE_MUL_SUM -> a + b;
            case PROD -> a * b;
            case MIN, MAX -> extreme(c, a, b);
        };
    }

    private static double extreme(Case c, double a, double b) {
        if (c.data() == Data.QUIET && (Double.isNaN(a) || Double.isNaN(b))) {
            return Double.isNaN(a) ? b : a;
        }
        return c.op() == ReduceOp.Kind.MIN ? Math.min(a, b) : Math.max(a, b);
    }

    /**
     * n roundings to the width the sum is kept in, each of at most unit times the sum of sizes; to
     * the element type, where subnormal numbers are apart by its least, if the data is {@link
     * Data#ROUNDED}.
     */
    private static Result bounded(
            Case c, double value, double size, double unit, int n, long bits) {
        boolean any =
                switch (c.op()) {
                    case SUM, AVG, PRE_MUL_SUM, PROD ->
                            c.data() != Data.EXACT && Double.isFinite(value);
                    case MIN, MAX -> false;
                };
        if (!any) {
            return new Result(bits, Double.NaN, Double.NaN);
        }
        double of = c.op() == ReduceOp.Kind.PROD ? Math.abs(value) : size;
        double step = unit;
        double least = 0;
        if (c.data() == Data.ROUNDED && c.type().isNarrowFloat()) {
            Narrow narrow = Narrow.of(c.type());
            step = narrow.decode(narrow.encode(1) + 1) - 1;
            least = narrow.decode(1);
        }
        double error = (n + 2) * (step * of + least);
        double low = value - error;
        double high = value + error;
        if (c.type().isNarrowFloat()) {
            low = value(c.type(), encode(c.type(), low));
            high = value(c.type(), encode(c.type(), high));
        }
        return new Result(bits, low, high);
    }
}
