package io.jccl.contract;

import io.jccl.device.DataType;
import java.util.Arrays;

/**
 * The floating-point formats below 32 bits, written down a second time and without tricks: the
 * value of each code from its three fields, and rounding as a search for the nearest of all codes.
 */
public final class Narrow {
    private final int magnitudeBits;
    private final boolean saturates;

    /** Values of the codes 0, 1, 2, ... without sign; ends with the largest finite one. */
    private final double[] finite;

    private final double[] byCode;

    private Narrow(int exponentBits, int fractionBits, boolean ieee, boolean saturates) {
        this.magnitudeBits = exponentBits + fractionBits;
        this.saturates = saturates;
        int codes = 1 << magnitudeBits;
        int bias = (1 << (exponentBits - 1)) - 1;
        int topExponent = (1 << exponentBits) - 1;
        byCode = new double[2 * codes];
        int last = 0;
        for (int code = 0; code < codes; code++) {
            int exponent = code >> fractionBits;
            int fraction = code & ((1 << fractionBits) - 1);
            double value;
            if (ieee && exponent == topExponent) {
                value = fraction == 0 ? Double.POSITIVE_INFINITY : Double.NaN;
            } else if (!ieee && code == codes - 1) {
                value = Double.NaN;
            } else {
                double significand = Math.scalb((double) fraction, -fractionBits);
                value =
                        exponent == 0
                                ? Math.scalb(significand, 1 - bias)
                                : Math.scalb(1 + significand, exponent - bias);
                last = code;
            }
            byCode[code] = value;
            byCode[codes + code] = -value;
        }
        finite = Arrays.copyOf(byCode, last + 1);
    }

    private static final Narrow FLOAT16 = new Narrow(5, 10, true, false);
    private static final Narrow BFLOAT16 = new Narrow(8, 7, true, false);
    private static final Narrow E4M3 = new Narrow(4, 3, false, true);
    private static final Narrow E5M2 = new Narrow(5, 2, true, true);

    /**
     * The format of a type.
     *
     * @param type float16, bfloat16 or one of the float8 formats
     * @return its format
     */
    public static Narrow of(DataType type) {
        return switch (type) {
            case FLOAT16 -> FLOAT16;
            case BFLOAT16 -> BFLOAT16;
            case FLOAT8E4M3 -> E4M3;
            case FLOAT8E5M2 -> E5M2;
            default -> throw new IllegalArgumentException(type + " is no narrow float");
        };
    }

    /** Number of codes: 256 or 65536. */
    public int codes() {
        return byCode.length;
    }

    /** Largest finite value. */
    public double max() {
        return finite[finite.length - 1];
    }

    /** The value of a code. */
    public double decode(long code) {
        return byCode[(int) code];
    }

    /**
     * Rounds to the nearest code, to the even one of two that are equally near. Past the largest
     * finite value float8 stays there; the others round as if the next value existed and was
     * infinity.
     */
    public long encode(double value) {
        long sign = Double.doubleToRawLongBits(value) < 0 ? 1L << magnitudeBits : 0;
        if (Double.isNaN(value)) {
            return sign | ((1L << magnitudeBits) - 1);
        }
        double v = Math.abs(value);
        if (v >= max()) {
            double step = max() - finite[finite.length - 2];
            boolean stays = saturates || v < max() + step / 2;
            return sign | (stays ? finite.length - 1 : finite.length);
        }
        int at = Arrays.binarySearch(finite, v);
        if (at >= 0) {
            return sign | at;
        }
        int above = -at - 1;
        int below = above - 1;
        // exact: both neighbours have few bits, so that their mean fits a double
        double middle = (finite[below] + finite[above]) / 2;
        boolean up = v > middle || (v == middle && (above & 1) == 0);
        return sign | (up ? above : below);
    }
}
