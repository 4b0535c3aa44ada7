package io.jccl.cli.check;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bench.Soak;
import io.jccl.cli.Main;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 3, unit = TimeUnit.MINUTES)
class SoakCommandTest {
    @Test
    void everyResultIsRight() {
        everyResultIsRight(3, 500);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3})
    void everyOneOfManyResultsIsRight(int ranks) {
        everyResultIsRight(ranks, 12_000);
    }

    /** Whether something grows is no matter here: other tests run in this JVM too. */
    private static void everyResultIsRight(int ranks, int operations) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        Main.execute(
                new String[] {"soak", "-g", "" + ranks, "-n", "" + operations},
                new PrintWriter(out),
                new PrintWriter(err));
        assertEquals("", err.toString());
        assertEquals(13, out.toString().lines().count(), out::toString);
        assertTrue(out.toString().contains(ranks + " ranks, host/threads"), out::toString);
    }

    @Test
    void memoryGrowsIfMostStepsAddToIt() {
        // Runs of a few seconds on a loaded machine, which compiled late.
        assertEquals(List.of(), memory(141, 145, 143, 144, 144, 144, 155, 159, 161, 161));
        assertEquals(List.of(), memory(126, 127, 130, 130, 136, 142, 147, 147, 147, 152));
        assertEquals(List.of(), memory(141, 145, 143, 144, 144, 144, 144, 144, 144, 194));
        assertEquals(
                List.of("memory from 14680064 to 35651584 bytes"),
                memory(1, 2, 3, 4, 9, 14, 19, 24, 29, 34));
        // What the collector frees once does not hide a leak.
        assertEquals(
                List.of("memory from 115343360 to 133169152 bytes"),
                memory(85, 90, 95, 100, 105, 110, 108, 114, 120, 127));
    }

    private static List<String> memory(int... mib) {
        List<Soak.Reading> readings = new ArrayList<>();
        for (int m : mib) {
            readings.add(new Soak.Reading(readings.size(), (long) m << 20, 7, 9));
        }
        return SoakCommand.grown(readings);
    }

    @Test
    void whatGrowsIsNamed() {
        List<Soak.Reading> flat = new ArrayList<>();
        for (int i = 1; i <= 10; i++) {
            flat.add(new Soak.Reading(i, i < 5 ? i * 10_000_000L : 50_000_000, i < 3 ? i : 7, 9));
        }
        assertEquals(List.of(), SoakCommand.grown(flat));
        List<Soak.Reading> growing = new ArrayList<>();
        for (int i = 1; i <= 10; i++) {
            growing.add(new Soak.Reading(i, i * 10_000_000L, 5 + i, 3 + i));
        }
        assertEquals(
                List.of(
                        "memory from 60000000 to 100000000 bytes",
                        "threads from 11 to 15",
                        "open files from 9 to 13"),
                SoakCommand.grown(growing));
    }
}
