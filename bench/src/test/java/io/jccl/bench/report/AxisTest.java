package io.jccl.bench.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bench.report.Axis.Scale;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AxisTest {
    private static List<String> ticks(Scale scale, double least, double most, int count) {
        Axis axis = new Axis("x", scale);
        return axis.ticks(axis.place(least), axis.place(most), count).stream()
                .map(axis::text)
                .toList();
    }

    @Test
    void sizesAreLabelledByPowersOfTwo() {
        assertEquals(List.of("8 B", "16 B", "32 B"), ticks(Scale.BYTES, 8, 32, 9));
        assertEquals(
                List.of("16 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB"),
                ticks(Scale.BYTES, 8, 1 << 30, 9));
        assertEquals(List.of("1000 B"), ticks(Scale.BYTES, 999, 1001, 9));
        assertEquals("1 MiB", Axis.bytes((1 << 20) - 4));
    }

    @Test
    void logarithmsAreLabelledByDecades() {
        assertEquals(List.of("0.1", "1", "10", "100"), ticks(Scale.DECADES, 0.05, 200, 8));
        assertEquals(List.of("1", "2", "5", "10", "20"), ticks(Scale.DECADES, 0.9, 30, 8));
        assertEquals(List.of("420", "440", "460", "480"), ticks(Scale.DECADES, 410, 490, 8));
    }

    @Test
    void anAxisAlwaysHasLabelsAndNeverTooMany() {
        for (Scale scale : Scale.values()) {
            for (double factor : List.of(1.0001, 1.5, 3.0, 100.0, 1e6, 1e14)) {
                List<String> labels = ticks(scale, 7, 7 * factor, 8);
                assertFalse(labels.isEmpty(), scale + " " + factor);
                assertTrue(labels.size() <= 12, scale + " " + factor + " " + labels);
            }
        }
    }

    @ParameterizedTest
    @CsvSource({
        "0, 0", "1, 1", "12.345, 12.3", "0.0012, 0.0012", "0.00012, 1.2e-04", "9999, 9999",
        "12345, 12.3K", "999999, 1M", "4360000, 4.36M", "-1500000, -1.5M", "NaN, -", "Infinity, -",
    })
    void numbersHaveThreeDigits(double value, String text) {
        assertEquals(text, Axis.number(value));
    }

    @Test
    void aLogarithmicAxisHasNoPlaceForZero() {
        assertFalse(new Axis("x", Scale.DECADES).holds(0));
        assertFalse(new Axis("x", Scale.BYTES).holds(-1));
        assertTrue(new Axis("x", Scale.LINEAR).holds(0));
        assertFalse(new Axis("x", Scale.LINEAR).holds(Double.NaN));
    }
}
