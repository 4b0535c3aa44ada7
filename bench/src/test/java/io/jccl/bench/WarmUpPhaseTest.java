package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class WarmUpPhaseTest {
    private static final long MIB = 1 << 20;

    /** With 64 KiB alone, the loops of large sizes were not called often enough to be compiled. */
    @Test
    void somethingShortCallsTheLoopsOfLargeSizes() {
        assertEquals(List.of(65_536L, 8L, 4096L), WarmUpPhase.sizes(List.of(8L, 65_536L)));
        assertEquals(List.of(MIB, 4096L), WarmUpPhase.sizes(List.of(MIB << 10)));
    }

    @Test
    void smallSizesStayAmongThemselves() {
        assertEquals(List.of(8L), WarmUpPhase.sizes(List.of(8L)));
        assertEquals(List.of(8L, 4096L), WarmUpPhase.sizes(List.of(8L, 4096L)));
        assertEquals(List.of(), WarmUpPhase.sizes(List.of()));
    }

    @Test
    void aSweepIsThinnedOut() {
        List<Long> sweep = new ArrayList<>();
        for (long size = 8; size <= 64 * MIB; size *= 2) {
            sweep.add(size);
        }
        List<Long> sizes = WarmUpPhase.sizes(sweep);
        assertEquals(MIB, sizes.stream().mapToLong(s -> s).max().orElse(0));
        assertEquals(65_536, sizes.getFirst());
        assertTrue(sizes.containsAll(List.of(8L, 32_768L, 4096L)), sizes::toString);
        assertTrue(sizes.size() <= 17, sizes::toString);
    }
}
