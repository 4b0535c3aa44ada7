package io.jccl.internal;

/**
 * The mixing of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
 * Generators", OOPSLA 2014, figure 16): numbers from a formula, without an object for them.
 */
public final class SplitMix {
    /** Increment of the generator's state. */
    public static final long GAMMA = 0x9E3779B97F4A7C15L;

    private SplitMix() {}

    /**
     * Mixes the bits of a state, so that neighbouring states give unrelated numbers.
     *
     * @param state any number
     * @return a number that no other state gives
     */
    public static long mix(long state) {
        long z = (state ^ (state >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    /**
     * A number of the uniform distribution over [0, 1), one of 2^53.
     *
     * @param stream of numbers that have nothing to do with those of other streams
     * @param index of the number in its stream
     * @return the number, the same for the same arguments
     */
    public static double uniform(long stream, long index) {
        return (mix(stream + GAMMA * index) >>> 11) * 0x1p-53;
    }

    /**
     * A number of the exponential distribution of mean 1, by inversion; at most 36.8.
     *
     * @param stream of numbers that have nothing to do with those of other streams
     * @param index of the number in its stream
     * @return the number, the same for the same arguments on any machine
     */
    public static double exponential(long stream, long index) {
        return -StrictMath.log(1 - uniform(stream, index));
    }

    /**
     * A number of the standard normal distribution, by the transform of Box and Muller ("A Note on
     * the Generation of Random Normal Deviates", 1958); at most 8.6 away from 0.
     *
     * @param stream of numbers that have nothing to do with those of other streams
     * @param index of the number in its stream
     * @return the number, the same for the same arguments on any machine
     */
    public static double normal(long stream, long index) {
        double radius = StrictMath.sqrt(-2 * StrictMath.log(1 - uniform(stream, 2 * index)));
        return radius * cosine(uniform(stream, 2 * index + 1));
    }

    /**
     * The cosine of a part of a turn, 0 to 1. {@link StrictMath#cos} makes an array if an angle is
     * beyond an eighth of a turn, so it is folded into that, which is exact.
     */
    private static double cosine(double turn) {
        double half = Math.min(turn, 1 - turn);
        double quarter = Math.min(half, 0.5 - half);
        double value =
                quarter <= 0.125
                        ? StrictMath.cos(2 * Math.PI * quarter)
                        : StrictMath.sin(2 * Math.PI * (0.25 - quarter));
        return half <= 0.25 ? value : -value;
    }
}
