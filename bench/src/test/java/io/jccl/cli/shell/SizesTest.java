package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import picocli.CommandLine.TypeConversionException;

class SizesTest {
    @ParameterizedTest
    @CsvSource({
        "0, 0",
        "8, 8",
        "1K, 1024",
        "64k, 65536",
        "3M, 3145728",
        "2G, 2147483648",
        "1T, 1099511627776",
        "8388607T, 9223370937343148032",
    })
    void parses(String text, long bytes) {
        assertEquals(bytes, Sizes.parse(text));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "K", "-1", "1.5M", "12Q", "1KB", "8388608T", "9223372036854775808"})
    void namesWhatIsNoSize(String text) {
        Exception e = assertThrows(TypeConversionException.class, () -> Sizes.parse(text));
        assertTrue(e.toString().contains("'" + text + "'"), e::toString);
        assertTrue(e.toString().contains("64K"), e::toString);
    }

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
