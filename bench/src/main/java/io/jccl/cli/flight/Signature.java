package io.jccl.cli.flight;

import java.util.Set;

/**
 * What an operation was, as far as all ranks must agree on it; for send and recv with the peer.
 *
 * @param operation name of the method
 * @param type type of the elements
 * @param reduction the reduction; empty if it does not reduce
 * @param root root or peer; -1 for none
 */
record Signature(String operation, String type, String reduction, int root) {
    /** None can end before all have begun. */
    private static final Set<String> SYNCHRONISING =
            Set.of(
                    "allReduce",
                    "allGather",
                    "allGatherv",
                    "reduceScatter",
                    "reduceScatterv",
                    "allToAll",
                    "allToAllv",
                    "barrier");

    Signature withRoot(int other) {
        return other == root ? this : new Signature(operation, type, reduction, other);
    }

    /** Whether its end is about the same moment on all ranks, so that clocks can be set by it. */
    boolean synchronising() {
        return SYNCHRONISING.contains(operation);
    }

    boolean peerToPeer() {
        return sends() || receives();
    }

    boolean sends() {
        return operation.equals("send");
    }

    boolean receives() {
        return operation.equals("recv");
    }

    /** Whether ranks may have counts of their own. */
    boolean vector() {
        return operation.endsWith("v") && !receives();
    }

    /** For messages. */
    String describe(long count) {
        if (operation.equals("barrier")) {
            return operation;
        }
        StringBuilder s = new StringBuilder(operation).append('(').append(type);
        if (!vector()) {
            s.append(", count ").append(count);
        }
        if (!reduction.isEmpty()) {
            s.append(", ").append(reduction);
        }
        if (root >= 0) {
            s.append(peerToPeer() ? ", peer " : ", root ").append(root);
        }
        return s.append(')').toString();
    }
}
