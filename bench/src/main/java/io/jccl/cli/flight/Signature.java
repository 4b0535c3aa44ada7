package io.jccl.cli.flight;

import static io.jccl.cli.shell.Text.words;

import java.util.Set;

/**
 * The properties of an operation on which all ranks must agree; for send and recv including the
 * peer.
 *
 * @param operation name of the method
 * @param type type of the elements
 * @param reduction the reduction; empty if it does not reduce
 * @param root root or peer; -1 for none
 */
record Signature(String operation, String type, String reduction, int root) {
    /** Operations in which no rank can finish before all have started. */
    private static final Set<String> SYNCHRONISING =
            Set.copyOf(
                    words(
                            "allReduce allGather allGatherv reduceScatter reduceScatterv allToAll"
                                    + " allToAllv barrier"));

    Signature withRoot(int other) {
        return other == root ? this : new Signature(operation, type, reduction, other);
    }

    /** Whether it ends on all ranks at about the same time, so that clocks can be aligned by it. */
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

    /** Whether ranks may have different counts. */
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
