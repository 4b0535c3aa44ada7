package io.jccl.offload.zero;

/** The progress of a rank, and whether its parameters can be used. */
final class Progress {
    private final int rank;

    /** Steps that were taken. */
    long steps;

    /** Whether there is no state, or only what a failed initialize or load left. */
    boolean unset = true;

    /** Whether parameters may differ from the master parameters. */
    boolean stale;

    /** Whether the state of before the last step is there. */
    boolean canUndo;

    boolean closed;

    Progress(int rank) {
        this.rank = rank;
    }

    void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the optimizer of rank " + rank + " is closed");
        }
    }

    void checkState() {
        if (unset) {
            throw new IllegalStateException(
                    "rank " + rank + " has no state: call initialize or load on all ranks first");
        }
    }

    void checkFresh() {
        checkState();
        if (stale) {
            throw new IllegalStateException(
                    "the parameters on rank "
                            + rank
                            + " are not those of the optimizer's state: call refresh on all ranks,"
                            + " or load with another communicator if this one is broken");
        }
    }

    /** A new state is about to be set. */
    void clear() {
        unset = true;
        canUndo = false;
    }

    /** A new state is there. */
    void set(long newSteps) {
        steps = newSteps;
        unset = false;
        canUndo = false;
    }
}
