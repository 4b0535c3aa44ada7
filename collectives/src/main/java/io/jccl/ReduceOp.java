package io.jccl;

import io.jccl.device.DataType;
import java.util.Locale;
import java.util.Objects;

/**
 * A reduction over the elements of all ranks.
 *
 * <p>Integers wrap as in C. {@link #AVG} sums and then divides by the number of ranks; for integers
 * the wrapped sum is divided and the quotient truncated towards zero (unsigned division for
 * unsigned types). {@link #MIN} and {@link #MAX} return NaN if any rank has NaN, and order -0 below
 * +0. {@linkplain #preMulSum A pre-multiplied sum} scales each rank's elements by that rank's own
 * factor before they are added.
 *
 * <p>On the host engine {@link Algorithm#DIRECT} adds in rank order; other algorithms add in a
 * different order, which may change the last digits of floating-point results. How float16,
 * bfloat16 and float8 are rounded: {@link DataType}.
 *
 * <p><b>Threads:</b> immutable.
 */
public final class ReduceOp {
    /** Kinds of reduction. */
    public enum Kind {
        /** Addition. */
        SUM,
        /** Multiplication. */
        PROD,
        /** Minimum. */
        MIN,
        /** Maximum. */
        MAX,
        /** Addition, then division of the sum by the number of ranks. */
        AVG,
        /** Multiplication by a factor, then addition. */
        PRE_MUL_SUM
    }

    /** Sum over all ranks. */
    public static final ReduceOp SUM = new ReduceOp(Kind.SUM, 1, 1);

    /** Product over all ranks. */
    public static final ReduceOp PROD = new ReduceOp(Kind.PROD, 1, 1);

    /**
     * Smallest element over all ranks. NaN if any is NaN; NCCL returns the smallest number instead.
     */
    public static final ReduceOp MIN = new ReduceOp(Kind.MIN, 1, 1);

    /** Largest element over all ranks; NaN as for {@link #MIN}. */
    public static final ReduceOp MAX = new ReduceOp(Kind.MAX, 1, 1);

    /**
     * Sum over all ranks divided by their number. NCCL multiplies floating-point elements by 1 /
     * number, rounded to the type, before it adds.
     */
    public static final ReduceOp AVG = new ReduceOp(Kind.AVG, 1, 1);

    private final Kind kind;
    private final double factor;
    private final long longFactor;

    private ReduceOp(Kind kind, double factor, long longFactor) {
        this.kind = kind;
        this.factor = factor;
        this.longFactor = longFactor;
    }

    /**
     * Sum of each rank's elements times its own factor. Ranks may pass different factors.
     *
     * @param factor rounded to float32 for every type narrower than float64, and by NCCL to the
     *     element type; integer types use its integer part
     * @return the operation
     */
    public static ReduceOp preMulSum(double factor) {
        return new ReduceOp(Kind.PRE_MUL_SUM, factor, (long) factor);
    }

    /**
     * Sum of each rank's elements times its own factor, for integer types with factors that a
     * double cannot represent.
     *
     * @param factor the factor; it wraps to the width of the type
     * @return the operation
     */
    public static ReduceOp preMulSum(long factor) {
        return new ReduceOp(Kind.PRE_MUL_SUM, (double) factor, factor);
    }

    /**
     * The kind of reduction.
     *
     * @return the kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * This rank's factor for floating-point types.
     *
     * @return 1 unless created by {@link #preMulSum}
     */
    public double factor() {
        return factor;
    }

    /**
     * This rank's factor as raw bits for a type: a float64's bits, a float32's bits, or a 64-bit
     * integer.
     *
     * @param type element type
     * @return the bits
     */
    public long factorBits(DataType type) {
        if (type.isInteger()) {
            return longFactor;
        }
        return type == DataType.FLOAT64
                ? Double.doubleToRawLongBits(factor)
                : Float.floatToRawIntBits((float) factor);
    }

    /**
     * The name that nccl-tests uses.
     *
     * @return {@code sum}, {@code prod}, {@code min}, {@code max}, {@code avg} or {@code mulsum}
     */
    public String label() {
        return label(kind);
    }

    /**
     * The name that nccl-tests uses for a kind.
     *
     * @param kind a kind
     * @return its name
     */
    public static String label(Kind kind) {
        return kind == Kind.PRE_MUL_SUM ? "mulsum" : kind.name().toLowerCase(Locale.ROOT);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof ReduceOp o
                && o.kind == kind
                && o.longFactor == longFactor
                && Double.compare(o.factor, factor) == 0;
    }

    @Override
    public int hashCode() {
        return Objects.hash(kind, factor, longFactor);
    }

    @Override
    public String toString() {
        return kind == Kind.PRE_MUL_SUM ? label() + "(" + factor + ")" : label();
    }
}
