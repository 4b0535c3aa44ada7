package io.jccl.engine.mpi;

import io.jccl.engine.Request;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * The operation that a communicator's thread is in, or was in last. It writes three numbers and a
 * description for each, and creates no object.
 *
 * <p><b>Threads:</b> one enters and leaves; any reads.
 */
final class CurrentOperation {
    private static final VarHandle BEGUN;
    private static final VarHandle LEFT;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            BEGUN = lookup.findVarHandle(CurrentOperation.class, "begun", long.class);
            LEFT = lookup.findVarHandle(CurrentOperation.class, "left", long.class);
        } catch (ReflectiveOperationException e) {
            throw new LinkageError("a field of CurrentOperation", e);
        }
    }

    private final Request.Description description = new Request.Description();

    /** Number of the last operation of which {@link #description} may have a part. */
    @SuppressWarnings("unused")
    private volatile long begun;

    /**
     * Number of the last operation entered, doubled; odd if it is a blocking call of MPI. Written
     * before the thread reads whether it may go on, and read after that was forbidden: so it is
     * volatile, as what forbids it is.
     */
    private volatile long entered;

    @SuppressWarnings("unused")
    private volatile long left;

    private long order;

    /**
     * What a thread has read.
     *
     * @param number of the operation; 0 if there was none yet
     * @param inside whether it was in progress
     * @param order its position among the operations that all ranks call in the same order; 0 if it
     *     is not one of them
     * @param text describes it; empty if there was none, or another one began meanwhile
     */
    record Seen(long number, boolean inside, long order, String text) {}

    /** Called before an operation. */
    void enter(Request q, boolean blocking) {
        long number = begin();
        if (!q.op.peerToPeer()) {
            order++;
        }
        description.set(q, q.op.peerToPeer() ? 0 : order);
        entered = number << 1 | (blocking ? 1 : 0);
    }

    /** Called before an action that is not an operation of the interface. */
    void enter(String what, boolean blocking) {
        long number = begin();
        description.set(what, -1);
        entered = number << 1 | (blocking ? 1 : 0);
    }

    /** Whoever reads a part of the new description also finds the new number. */
    private long begin() {
        long number = (entered >>> 1) + 1;
        BEGUN.setOpaque(this, number);
        VarHandle.storeStoreFence();
        return number;
    }

    /** Called afterwards, whatever the result. */
    void leave() {
        LEFT.setRelease(this, entered >>> 1);
    }

    /** The number of the last operation entered, doubled; odd if it is a blocking call of MPI. */
    long entered() {
        return entered;
    }

    /** Whether an operation is in progress. */
    boolean isInside() {
        return isInside(entered);
    }

    /** Whether the one with this value of {@link #entered} is. */
    boolean isInside(long one) {
        return one >>> 1 != (long) LEFT.getAcquire(this);
    }

    /** The position of the last operation that all ranks call in the same order. */
    long order() {
        return (long) LEFT.getAcquire(this) == 0 ? 0 : order;
    }

    /** The present operation. If another one begins meanwhile, this one is over. */
    Seen look() {
        long e = entered;
        long number = e >>> 1;
        boolean inside = isInside(e);
        String text = number == 0 ? "" : description.toString();
        long at = description.order();
        VarHandle.loadLoadFence();
        return (long) BEGUN.getOpaque(this) == number
                ? new Seen(number, inside, at, text)
                : new Seen(number, false, 0, "");
    }

    @Override
    public String toString() {
        return description.toString();
    }
}
