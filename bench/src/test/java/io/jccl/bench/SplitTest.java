package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class SplitTest {
    private static String groups(Map<String, String> environment) {
        Split split = Split.of(environment);
        return IntStream.range(0, 8).mapToObj(r -> "" + split.group(r)).reduce("", String::concat);
    }

    @ParameterizedTest
    @CsvSource({
        "AND 0x1, 01010101",
        "and 0b110, 00224466",
        "&3, 01230123",
        "OR 0x6, 67676767",
        "|0b1, 11335577",
        "MOD 3, 01201201",
        "%2, 01010101",
        "DIV 4, 00001111",
        "/ 010, 00000000",
        "' div  2 ', 00112233",
    })
    void operations(String text, String groups) {
        assertEquals(groups, groups(Map.of(Split.VARIABLE, text)));
    }

    /** Digits are hexadecimal with and without 0x. */
    @ParameterizedTest
    @CsvSource({"0x1, 01010101", "7, 01234567", "10, 00000000", "0X3, 01230123"})
    void masks(String text, String groups) {
        Map<String, String> both = Map.of(Split.MASK, text, Split.VARIABLE, "DIV 1");
        assertEquals(groups, groups(both));
    }

    @Test
    void withoutVariablesThereIsOneGroup() {
        Split none = Split.of(Map.of());
        assertFalse(none.isAsked());
        assertArrayEquals(new int[] {5}, none.sizes(5));
    }

    @Test
    void sizesOfGroupsMayDiffer() {
        assertArrayEquals(new int[] {3, 3, 2}, Split.of(Map.of(Split.VARIABLE, "MOD 3")).sizes(8));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "2",
                "MOD",
                "MOD 0",
                "DIV 0x0",
                "XOR 1",
                "AND -1",
                "AND 0b2",
                "AND 0xfg",
                "MOD 99999999999",
                "AND 1 2"
            })
    void malformedOnesAreRefused(String text) {
        String message =
                assertThrows(
                                IllegalArgumentException.class,
                                () -> Split.of(Map.of(Split.VARIABLE, text)))
                        .getMessage();
        assertTrue(
                String.valueOf(message).startsWith(Split.VARIABLE + " is '" + text + "', expected"),
                message);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "0x", "-1", "g", "1ffffffff"})
    void malformedMasksAreRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Split.of(Map.of(Split.MASK, text)));
    }
}
