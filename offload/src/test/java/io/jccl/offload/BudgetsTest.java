package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;

class BudgetsTest {
    @Test
    void takesNoMoreThanThereIs() {
        Budgets b = new Budgets(Map.of(Tier.DEVICE, 100L));
        b.take(Tier.DEVICE, 70, "a layer");
        OffloadMemoryException e =
                assertThrows(
                        OffloadMemoryException.class, () -> b.take(Tier.DEVICE, 31, "layer 7"));
        assertEquals(Tier.DEVICE, e.tier());
        assertEquals(31, e.asked());
        assertEquals(30, e.free());
        assertTrue(String.valueOf(e.getMessage()).contains("layer 7"), e.getMessage());
        assertTrue(String.valueOf(e.getMessage()).contains("free 1 bytes first"), e.getMessage());
        b.take(Tier.DEVICE, 30, "what is left");
        b.give(Tier.DEVICE, 100);
        assertEquals(0, b.used(Tier.DEVICE));
        assertEquals(100, b.peak(Tier.DEVICE));
        assertThrows(IllegalStateException.class, () -> b.give(Tier.DEVICE, 1));
        assertEquals(0, b.used(Tier.DEVICE));
    }

    @Test
    void oneTierKnowsNothingOfAnother() {
        Budgets b = new Budgets(Map.of(Tier.DEVICE, 0L));
        b.take(Tier.NVME, Long.MAX_VALUE / 2, "a lot");
        assertThrows(
                OffloadMemoryException.class, () -> b.take(Tier.DEVICE, 1, "the smallest thing"));
        assertThrows(IllegalArgumentException.class, () -> new Budgets(Map.of(Tier.PINNED, -1L)));
    }
}
