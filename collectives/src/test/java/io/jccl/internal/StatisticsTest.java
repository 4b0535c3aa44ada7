package io.jccl.internal;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class StatisticsTest {
    @Test
    void medianIsInTheMiddle() {
        double[] values = {5, 1, 9};
        assertEquals(5, Statistics.median(values));
        assertArrayEquals(new double[] {5, 1, 9}, values, "the caller's order");
        assertEquals(4, Statistics.median(9, 1, 5, 3));
        assertEquals(7, Statistics.median(7));
        assertEquals(Double.NaN, Statistics.median());
    }

    @Test
    void percentileIsOneOfTheValues() {
        double[] tens = IntStream.rangeClosed(1, 20).mapToDouble(i -> 10 * i).toArray();
        assertEquals(10, Statistics.percentile(tens, 0));
        assertEquals(10, Statistics.percentile(tens, 5));
        assertEquals(20, Statistics.percentile(tens, 6));
        assertEquals(100, Statistics.percentile(tens, 50));
        assertEquals(190, Statistics.percentile(tens, 95));
        assertEquals(200, Statistics.percentile(tens, 96));
        assertEquals(200, Statistics.percentile(tens, 100));
        assertEquals(3, Statistics.percentile(new double[] {3}, 1));
    }
}
