package io.jccl.engine.host;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.topology.CpuList;
import java.util.Arrays;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class PlacesTest {
    @ParameterizedTest(name = "{0} and {1} processors: {2}")
    @CsvSource({
        // What a launcher binds to a core each sees one processor, and is not oversubscribed.
        "0 1, 1, APART",
        "0-7 8-15, 8, APART",
        "0 1 64-70, 1, APART",
        "0-1 0-1, 2, TOGETHER",
        "0-3 2-7, 4, TOGETHER",
        "0-1 0-1 0-1, 2, CROWDED",
        "0 0, 1, CROWDED",
        "0 1 0-1, 1, CROWDED",
        // A container may have less time than CPUs.
        "0-15 0-15 0-15 0-15, 2, CROWDED",
        "0-7 8-15 16-23, 2, CROWDED",
        "0-15 0-15, 2, TOGETHER",
        // Not known.
        "- -, 4, TOGETHER",
        "- - -, 2, CROWDED",
        "0 -, 2, TOGETHER",
        "5, 1, TOGETHER",
    })
    void ranksAreApartOrCrowdedByTheCpusOfAll(String cpus, int available, Places expected) {
        long[][] ranks =
                Arrays.stream(cpus.split(" ", -1))
                        .map(text -> CpuList.parse(text.equals("-") ? "" : text).toLongArray())
                        .toArray(long[][]::new);
        assertEquals(expected, Places.of(ranks, available, 0));
    }
}
