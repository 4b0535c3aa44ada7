package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class WindowsTest {
    @Test
    void agreeOnceTheLastThreeAreAlike() {
        Windows w = new Windows(0);
        w.add(46, 1);
        w.add(1.2, 1);
        w.add(0.50, 1);
        assertFalse(w.agree());
        w.add(0.51, 1);
        assertFalse(w.agree());
        w.add(0.49, 1);
        assertTrue(w.agree());
        w.add(0.6, 1);
        assertFalse(w.agree());
        assertEquals(6, w.operations());
    }

    /** Code that counts its calls is slow but steady: that is not warm. */
    @Test
    void aPlateauBeforeTheJvmCompilesIsNotTakenForTheEnd() {
        Windows w = new Windows(1000);
        for (int i = 0; i < 9; i++) {
            w.add(46, 100);
            assertFalse(w.agree());
        }
        w.add(46, 100);
        assertTrue(w.agree());
    }

    @Test
    void theToleranceIsThatOfTheMedian() {
        Windows w = new Windows(0);
        w.add(100, 1);
        w.add(104.9, 1);
        w.add(95.1, 1);
        assertTrue(w.agree());
        Windows far = new Windows(0);
        far.add(100, 1);
        far.add(105.1, 1);
        far.add(100, 1);
        assertFalse(far.agree());
    }
}
