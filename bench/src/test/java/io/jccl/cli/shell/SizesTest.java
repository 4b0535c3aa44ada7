package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class SizesTest {
    @Test
    void goesByFactorOrStep() {
        assertEquals(List.of(8L, 16L, 32L, 64L), Sizes.sequence(8, 64, 1, 2));
        assertEquals(List.of(8L, 24L, 72L), Sizes.sequence(8, 100, 1, 3));
        assertEquals(List.of(0L, 5L, 10L), Sizes.sequence(0, 12, 5, 1));
        assertEquals(List.of(7L), Sizes.sequence(7, 7, 1, 2));
        assertEquals(List.of(0L), Sizes.sequence(0, 0, 1, 2));
        assertEquals(
                List.of(1L << 62), Sizes.sequence(1L << 62, Long.MAX_VALUE, Long.MAX_VALUE, 2));
    }

    @Test
    void refusesEmptyAndEndlessSequences() {
        assertThrows(IllegalArgumentException.class, () -> Sizes.sequence(9, 8, 1, 2));
        assertThrows(IllegalArgumentException.class, () -> Sizes.sequence(0, 8, 1, 2));
        assertThrows(IllegalArgumentException.class, () -> Sizes.sequence(0, 1 << 30, 1, 1));
    }

    @Test
    void formats() {
        assertEquals("0", Sizes.format(0));
        assertEquals("1000", Sizes.format(1000));
        assertEquals("64K", Sizes.format(65536));
        assertEquals("1025K", Sizes.format(1025 << 10));
        assertEquals("2G", Sizes.format(2L << 30));
    }
}
