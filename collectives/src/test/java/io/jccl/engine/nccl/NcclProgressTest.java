package io.jccl.engine.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.jccl.flight.RankStatus;
import io.jccl.rendezvous.Store;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** What ranks say when they are asked how far they are. */
class NcclProgressTest {
    private static NcclProgress of(Map<Long, String> collectives) {
        RankStatus standing =
                new RankStatus(
                        3, "node:7", 10, "#9 barrier", "#10 allReduce(x)", 1234, "A.b(A.java:1)");
        return new NcclProgress("is fine", standing, new TreeMap<>(collectives));
    }

    @Test
    void readsWhatItWrote() {
        for (NcclProgress p :
                List.of(of(Map.of()), of(Map.of(9L, "barrier", 10L, "allReduce(x)")))) {
            assertEquals(p, NcclProgress.read(p.write()));
        }
    }

    @Test
    void ranksThatAreBehindOrSilentDoNotDisagree() {
        assertNull(NcclProgress.disagreement(Arrays.asList(of(Map.of(1L, "a", 2L, "b")), null)));
        assertNull(NcclProgress.disagreement(List.of(of(Map.of(1L, "a", 2L, "b")), of(Map.of()))));
        assertNull(
                NcclProgress.disagreement(
                        List.of(of(Map.of(1L, "a", 2L, "b")), of(Map.of(2L, "b", 3L, "c")))));
    }

    @Test
    void firstDifferenceCounts() {
        assertEquals(
                "collective #10: rank 0 calls a; rank 1 calls b; rank 2 is past it; rank 3 has"
                        + " not reached it; rank 4 gives no answer",
                NcclProgress.disagreement(
                        Arrays.asList(
                                of(Map.of(9L, "x", 10L, "a", 11L, "c")),
                                of(Map.of(9L, "x", 10L, "b", 11L, "d")),
                                of(Map.of(11L, "c")),
                                of(Map.of(9L, "x")),
                                null)));
    }

    /** A rank that recovered from one question may have to ask another. */
    @Test
    void answersToAnEarlierQuestionDoNotCount() {
        Store store = Store.inMemory();
        Membership zero = new Membership(store, "m", 0, 2);
        Membership one = new Membership(store, "m", 1, 2);
        assertEquals(0, one.asked());
        long first = zero.ask();
        assertEquals(first, one.asked());
        one.answer(first, of(Map.of(1L, "old")));
        assertEquals(Arrays.asList(null, of(Map.of(1L, "old"))), zero.answers(first));
        long second = zero.ask();
        assertEquals(Arrays.asList(null, null), zero.answers(second));
        long third = one.ask();
        one.answer(third, of(Map.of(1L, "new")));
        assertEquals(
                "new", Objects.requireNonNull(zero.answers(second).get(1)).collectives().get(1L));
    }
}
