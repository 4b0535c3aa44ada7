package io.jccl.testkit;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;

/**
 * Few of many cases in which whatever pair of values occurs in any case still occurs. The default
 * run of a test takes these, the exhaustive one takes all.
 */
public final class Pairs {
    private Pairs() {}

    /** Two values of a case, each with its position. */
    private record Pair(int first, Object value, int second, Object other) {}

    /**
     * Selects cases in which every pair of values at two positions occurs.
     *
     * @param all the cases
     * @param values the values of a case, as many for each
     * @return some of the cases, in the same order
     */
    public static <T> List<T> covering(List<T> all, Function<T, List<?>> values) {
        return selected(all, c -> pairs(values.apply(c)));
    }

    /**
     * Selects cases, each time the first one with the most features that do not occur yet.
     *
     * @param all the cases
     * @param features what occurs in a case
     * @return some of the cases, in the same order, in which all features occur
     */
    public static <T> List<T> selected(List<T> all, Function<T, Set<?>> features) {
        Map<Object, Integer> ids = new HashMap<>();
        List<BitSet> left = new ArrayList<>();
        for (T c : all) {
            BitSet bits = new BitSet();
            features.apply(c).forEach(f -> bits.set(ids.computeIfAbsent(f, x -> ids.size())));
            left.add(bits);
        }
        BitSet chosen = new BitSet();
        for (int covered = 0; covered < ids.size(); ) {
            int best = 0;
            for (int i = 1; i < left.size(); i++) {
                if (left.get(i).cardinality() > left.get(best).cardinality()) {
                    best = i;
                }
            }
            BitSet found = (BitSet) left.get(best).clone();
            left.forEach(bits -> bits.andNot(found));
            covered += found.cardinality();
            chosen.set(best);
        }
        return chosen.stream().mapToObj(all::get).toList();
    }

    private static Set<Pair> pairs(List<?> values) {
        Set<Pair> pairs = new HashSet<>();
        for (int i = 0; i < values.size(); i++) {
            for (int j = i + 1; j < values.size(); j++) {
                pairs.add(new Pair(i, values.get(i), j, values.get(j)));
            }
        }
        return pairs;
    }
}
