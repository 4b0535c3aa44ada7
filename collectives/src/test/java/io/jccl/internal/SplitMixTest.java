package io.jccl.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Numbers of other distributions are those of the formulas. */
class SplitMixTest {
    private static final int COUNT = 100_000;

    @Test
    void normalNumbersAreThoseOfBoxAndMuller() {
        for (int i = 0; i < COUNT; i++) {
            double radius = Math.sqrt(-2 * Math.log(1 - SplitMix.uniform(3, 2L * i)));
            double turn = SplitMix.uniform(3, 2L * i + 1);
            double expected = radius * Math.cos(2 * Math.PI * turn);
            assertEquals(expected, SplitMix.normal(3, i), 1e-14, "number " + i);
        }
    }

    @Test
    void exponentialNumbersAreThoseOfInversion() {
        double sum = 0;
        int above = 0;
        for (int i = 0; i < COUNT; i++) {
            double x = SplitMix.exponential(5, i);
            assertEquals(SplitMix.uniform(5, i), 1 - Math.exp(-x), 1e-14, "number " + i);
            assertTrue(x >= 0, "number " + i);
            sum += x;
            above += x > 1 ? 1 : 0;
        }
        // Six deviations of the mean, and of the share above it.
        assertEquals(1, sum / COUNT, 6 / Math.sqrt(COUNT));
        double share = Math.exp(-1);
        assertEquals(share, (double) above / COUNT, 6 * Math.sqrt(share * (1 - share) / COUNT));
    }
}
