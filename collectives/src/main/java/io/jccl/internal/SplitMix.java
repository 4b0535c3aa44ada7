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
}
