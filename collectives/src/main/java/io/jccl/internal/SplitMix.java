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
     * A number of the standard normal distribution, by the transform of Box and Muller ("A Note on
     * the Generation of Random Normal Deviates", 1958); at most 8.6 away from 0.
     *
     * @param stream of numbers that have nothing to do with those of other streams
     * @param index of the number in its stream
     * @return the number, the same for the same arguments on any machine
     */
    public static double normal(long stream, long index) {
        double radius = StrictMath.sqrt(-2 * StrictMath.log(1 - uniform(stream, 2 * index)));
        return radius * StrictMath.cos(2 * Math.PI * uniform(stream, 2 * index + 1));
    }
}
