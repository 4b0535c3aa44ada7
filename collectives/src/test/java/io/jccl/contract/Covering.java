package io.jccl.contract;

import io.jccl.contract.Case.Data;
import io.jccl.testkit.Pairs;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Few of a world's cases, in which still occurs what occurs in any: each operation with each
 * element type, reduction, size class, algorithm, kind of memory, root, kind of data, placement and
 * kind of stream; and each element type with each reduction, size class, algorithm and kind of
 * memory.
 */
final class Covering {
    private Covering() {}

    /**
     * Selects cases, each time the one with the most pairs that do not occur yet.
     *
     * @param all cases of one world
     * @return some of them, in the same order
     */
    static List<Case> of(List<Case> all) {
        return Pairs.selected(all, Covering::pairs);
    }

    /**
     * Selects fewer: each element type and each reduction occurs, but not with everything else.
     * Enough where another test takes {@link #of} with the same loops over elements.
     *
     * @param all cases of one world
     * @return some of them, in the same order
     */
    static List<Case> ofOperations(List<Case> all) {
        return Pairs.selected(all, Covering::pairsOfOperations);
    }

    private static Set<String> pairsOfOperations(Case c) {
        Set<String> pairs = pairs(c);
        if (pairs.size() > 1) {
            String operation = c.collective().name();
            pairs.removeIf(p -> p.startsWith(c.type() + " "));
            pairs.remove(operation + " type " + c.type());
            pairs.remove(operation + " reduction " + c.op());
            pairs.add("type " + c.type());
            if (c.collective().reduces()) {
                pairs.add("reduction " + c.op());
            }
        }
        return pairs;
    }

    /** The pairs of values that occur in a case. */
    private static Set<String> pairs(Case c) {
        Set<String> pairs = new HashSet<>();
        String operation = c.collective().name();
        pairs.add(operation + " algorithm " + c.algorithm());
        switch (c.collective()) {
            // These draw what they do from the seed.
            case BARRIER, GROUP, SPLIT -> {
                return pairs;
            }
            default -> {}
        }
        List<String> withType = new ArrayList<>();
        withType.add("size " + size(c.count()));
        withType.add("algorithm " + c.algorithm());
        withType.add("memory " + c.memory());
        if (c.collective().reduces()) {
            withType.add("reduction " + c.op());
        }
        for (String value : withType) {
            pairs.add(operation + " " + value);
            pairs.add(c.type() + " " + value);
        }
        pairs.add(operation + " type " + c.type());
        pairs.add(operation + " root " + c.root());
        pairs.add(operation + " in place " + c.inPlace());
        pairs.add(operation + " stream " + c.async());
        pairs.add(operation + " data " + c.data());
        if (c.collective().reduces() && c.data() == Data.SPECIAL) {
            pairs.add("special values of " + c.type());
        }
        return pairs;
    }

    /** Sizes that take the same way through an engine. */
    static String size(long count) {
        if (count < 3) {
            return Long.toString(count);
        }
        return count < 64 ? "some" : count < 2000 ? "a thousand" : count < 70_000 ? "many" : "big";
    }
}
