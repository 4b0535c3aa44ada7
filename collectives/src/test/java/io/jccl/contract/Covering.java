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
     * Selects fewer: each operation occurs with each algorithm, root, placement and kind of stream,
     * with few and with many elements, and each element type, reduction, size class, kind of memory
     * and kind of data with some operation. Enough where another test takes {@link #of} with the
     * same loops over elements.
     *
     * @param all cases of one world
     * @return some of them, in the same order
     */
    static List<Case> ofOperations(List<Case> all) {
        return Pairs.selected(all, Covering::pairsOfOperations);
    }

    private static Set<String> pairsOfOperations(Case c) {
        Set<String> pairs = new HashSet<>();
        String operation = c.collective().name();
        pairs.add(operation + " algorithm " + c.algorithm());
        if (drawn(c)) {
            return pairs;
        }
        pairs.add(operation + " root " + c.root());
        pairs.add(operation + " in place " + c.inPlace());
        pairs.add(operation + " stream " + c.async());
        pairs.add(operation + " many " + (c.count() >= 2000));
        pairs.add("type " + c.type());
        pairs.add("size " + size(c.count()));
        pairs.add("memory " + c.memory());
        pairs.add("data " + c.data());
        if (c.collective().reduces()) {
            pairs.add("reduction " + c.op());
        }
        return pairs;
    }

    /** Whether a case draws what it does from its seed. */
    private static boolean drawn(Case c) {
        return switch (c.collective()) {
            case BARRIER, GROUP, SPLIT -> true;
            default -> false;
        };
    }

    /** The pairs of values that occur in a case. */
    private static Set<String> pairs(Case c) {
        Set<String> pairs = new HashSet<>();
        String operation = c.collective().name();
        pairs.add(operation + " algorithm " + c.algorithm());
        if (drawn(c)) {
            return pairs;
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
