package io.jccl.bench.probe;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ElementwiseProbeTest {
    /** A fast machine does hundreds of thousands of steps, whose roundings all go one way. */
    @ParameterizedTest
    @ValueSource(longs = {1, 1000, 234_752, 1_000_000})
    void sumsInFloat32StayWithinTheirRoundings(long steps) {
        float sum = 0;
        for (long i = 0; i < steps; i++) {
            sum -= 1e-3f;
        }
        double expected = -1e-3 * steps;
        double bound = ElementwiseProbe.roundingError(steps, expected);
        double off = Math.abs(sum - expected);
        assertTrue(off <= 1e-3 + bound, off + " exceeds " + bound);
        assertTrue(bound <= 1e-3 * Math.max(1, steps * 0.05), "too loose: " + bound);
    }
}
