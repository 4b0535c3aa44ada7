package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class WindowsTest {
    @Test
    void agreeOnceTheLastThreeAreAlike() {
        Windows w = new Windows(0);
        w.add(46, 1, true);
        w.add(1.2, 1, true);
        w.add(0.50, 1, true);
        assertFalse(w.agree());
        w.add(0.51, 1, true);
        assertFalse(w.agree());
        w.add(0.49, 1, true);
        assertTrue(w.agree());
        w.add(0.6, 1, true);
        assertFalse(w.agree());
        assertEquals(6, w.operations());
    }

    /** Code that counts its calls is slow but steady: that is not warm. */
    @Test
    void aPlateauBeforeTheJvmCompilesIsNotTakenForTheEnd() {
        Windows w = new Windows(1000);
        for (int i = 0; i < 9; i++) {
            w.add(46, 100, true);
            assertFalse(w.agree());
        }
        w.add(46, 100, true);
        assertTrue(w.agree());
    }

    @Test
    void theToleranceIsThatOfTheMedian() {
        Windows w = new Windows(0);
        w.add(100, 1, true);
        w.add(104.9, 1, true);
        w.add(95.1, 1, true);
        assertTrue(w.agree());
        Windows far = new Windows(0);
        far.add(100, 1, true);
        far.add(105.1, 1, true);
        far.add(100, 1, true);
        assertFalse(far.agree());
    }
}
