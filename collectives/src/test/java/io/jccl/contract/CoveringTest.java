package io.jccl.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Algorithm;
import io.jccl.ReduceOp;
import io.jccl.contract.Case.Memory;
import io.jccl.device.DataType;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Which pairs of values the default run of the engine contract meets. */
@Timeout(60)
class CoveringTest {
    private static final Set<Collective> MIXED =
            EnumSet.of(Collective.BARRIER, Collective.GROUP, Collective.SPLIT);

    private static <T> void assertAll(Set<T> expected, List<Case> cases, Function<Case, T> value) {
        assertEquals(
                expected, cases.stream().map(value).collect(Collectors.toSet()), cases::toString);
    }

    private static <T> Set<T> all(T[] values) {
        return new HashSet<>(Arrays.asList(values));
    }

    /** Kinds of stream, placements and roots. */
    private static void assertWays(Collective collective, int ranks, List<Case> cases) {
        assertAll(Set.of(true, false), cases, Case::async);
        if (collective.canBeInPlace()) {
            assertAll(Set.of(true, false), cases, Case::inPlace);
        }
        if (collective.hasRoot()) {
            assertAll(
                    IntStream.range(0, ranks).boxed().collect(Collectors.toSet()),
                    cases,
                    Case::root);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"4, 2", "5, 3", "6, 4"})
    void everyPairOccursWithOtherSeeds(long seed, int ranks) {
        everyPairOccurs(seed, ranks);
    }

    @ParameterizedTest
    @CsvSource({"1, 2", "2, 3", "3, 4"})
    void everyPairOccurs(long seed, int ranks) {
        List<Case> full = Cases.all(ranks, seed, 1);
        List<Case> some = Covering.of(full);
        assertTrue(full.containsAll(some));
        assertTrue(some.size() < full.size() / 3, () -> some.size() + " of " + full.size());
        List<Case> reducing = new ArrayList<>();
        for (Collective collective : Collective.values()) {
            List<Case> cases = some.stream().filter(c -> c.collective() == collective).toList();
            assertAll(all(Algorithm.values()), cases, Case::algorithm);
            if (MIXED.contains(collective)) {
                continue;
            }
            assertAll(all(DataType.values()), cases, Case::type);
            assertAll(all(Memory.values()), cases, Case::memory);
            assertAll(Set.of(Case.Data.DRAWN), cases, Case::data);
            assertAll(
                    Set.of("0", "1", "2", "some", "a thousand", "many", "big"),
                    cases,
                    c -> Covering.size(c.count()));
            assertWays(collective, ranks, cases);
            if (collective.reduces()) {
                assertAll(all(ReduceOp.Kind.values()), cases, Case::op);
                reducing.addAll(cases);
            }
        }
        List<Case> few = Covering.ofOperations(full);
        assertTrue(full.containsAll(few));
        assertTrue(few.size() < some.size(), () -> few.size() + " of " + some.size());
        assertAll(all(DataType.values()), few, Case::type);
        assertAll(all(ReduceOp.Kind.values()), few, Case::op);
        assertAll(all(Memory.values()), few, Case::memory);
        for (Collective collective : Collective.values()) {
            List<Case> cases = few.stream().filter(c -> c.collective() == collective).toList();
            assertAll(all(Algorithm.values()), cases, Case::algorithm);
            if (MIXED.contains(collective)) {
                continue;
            }
            assertAll(Set.of(true, false), cases, c -> c.count() >= 2000);
            assertWays(collective, ranks, cases);
        }
        for (DataType type : DataType.values()) {
            List<Case> cases = reducing.stream().filter(c -> c.type() == type).toList();
            assertAll(all(ReduceOp.Kind.values()), cases, Case::op);
        }
    }
}
