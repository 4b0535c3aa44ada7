package io.jccl.engine;

import io.jccl.device.Buffer;
import io.jccl.flight.CollectiveOp;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The preconditions of a call, checked before it becomes a {@link Request}. A failed check throws
 * an error that names the value, what was expected and what to do; no check changes state.
 */
final class ArgumentChecks {
    private final EngineCommunicator engine;
    private final int rank;
    private final int size;

    ArgumentChecks(EngineCommunicator engine, int rank, int size) {
        this.engine = engine;
        this.rank = rank;
        this.size = size;
    }

    Buffer present(@Nullable Buffer buffer, String name) {
        if (buffer == null) {
            throw new NullPointerException(name + " is null on rank " + rank + ", which uses it");
        }
        engine.checkBuffer(buffer, name);
        return buffer;
    }

    /** Throws unless a number is a rank. */
    void rank(String name, int value) {
        if (value < 0 || value >= size) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected 0 to " + (size - 1) + ", a rank");
        }
    }

    /**
     * Checks the buffers of an operation whose blocks all have the same length.
     *
     * @param s the buffer that this rank sends, or null if it sends nothing; r likewise
     * @return elements of a block
     */
    long uniform(CollectiveOp op, @Nullable Buffer s, @Nullable Buffer r) {
        if (s == null || r == null) {
            return s != null
                    ? block(s, "send", op.manySend())
                    : block(Objects.requireNonNull(r), "recv", op.manyRecv());
        }
        sameType(s, r);
        long block = block(s, "send", op.manySend());
        long recvBlock = block(r, "recv", op.manyRecv());
        if (recvBlock != block) {
            throw otherBlocks(op, s, block, r, recvBlock);
        }
        return block;
    }

    /** Whether such an operation is in place; throws if buffers overlap in another way. */
    boolean inPlace(CollectiveOp op, @Nullable Buffer s, @Nullable Buffer r, long block) {
        if (s == null || r == null || !overlap(s, r)) {
            return false;
        }
        long sendAt = op.manySend() && !op.manyRecv() ? rank * block : 0;
        long recvAt = op.manyRecv() && !op.manySend() ? rank * block : 0;
        if (!samePlace(s, sendAt, r, recvAt)) {
            throw overlapping(op, s, r);
        }
        return true;
    }

    /** Whether two buffers share elements. */
    boolean overlap(Buffer a, Buffer b) {
        return a.count() > 0
                && b.count() > 0
                && engine.sameMemory(a, b)
                && a.address() < b.address() + b.byteSize()
                && b.address() < a.address() + a.byteSize();
    }

    /** Whether element aAt of a is element bAt of b; both have one type. */
    private boolean samePlace(Buffer a, long aAt, Buffer b, long bAt) {
        int size = a.dataType().size();
        return engine.sameMemory(a, b) && a.address() + aAt * size == b.address() + bAt * size;
    }

    /**
     * Checks the buffers and tables of a v-variant; tables that this rank does not use are null.
     */
    void vector(
            CollectiveOp op,
            @Nullable Buffer s,
            long @Nullable [] sendCounts,
            long @Nullable [] sendDispls,
            @Nullable Buffer r,
            long @Nullable [] recvCounts,
            long @Nullable [] recvDispls) {
        if (s != null && r != null) {
            sameType(s, r);
        }
        if (sendCounts != null) {
            blocks(op, "send", Objects.requireNonNull(s), sendCounts, sendDispls);
        }
        if (recvCounts != null) {
            blocks(op, "recv", Objects.requireNonNull(r), recvCounts, recvDispls);
            disjoint(op, recvCounts, Objects.requireNonNull(recvDispls));
        }
        if (op == CollectiveOp.ALL_TO_ALLV) {
            return;
        }
        if (recvCounts != null && s != null) {
            ownCount(op, "send", s, "recvCounts", recvCounts);
        }
        if (sendCounts != null && r != null) {
            ownCount(op, "recv", r, "counts", sendCounts);
        }
    }

    private void ownCount(
            CollectiveOp op, String name, Buffer buffer, String table, long[] counts) {
        if (buffer.count() != counts[rank]) {
            throw new IllegalArgumentException(
                    op.method()
                            + ": "
                            + name
                            + "'s count is "
                            + buffer.count()
                            + ", but "
                            + table
                            + "["
                            + rank
                            + "] for this rank is "
                            + counts[rank]);
        }
    }

    private static void sameType(Buffer s, Buffer r) {
        if (s.dataType() != r.dataType()) {
            throw new IllegalArgumentException(
                    "send holds "
                            + s.dataType().label()
                            + ", recv "
                            + r.dataType().label()
                            + "; both must hold the same type");
        }
    }

    long block(Buffer buffer, String name, boolean many) {
        if (!many) {
            return buffer.count();
        }
        long block = buffer.count() / size;
        if (block * size != buffer.count()) {
            throw new IllegalArgumentException(
                    name
                            + " holds one block for each of "
                            + size
                            + " ranks, but its count "
                            + buffer.count()
                            + " is not a multiple of "
                            + size);
        }
        return block;
    }

    private IllegalArgumentException otherBlocks(
            CollectiveOp op, Buffer s, long block, Buffer r, long recvBlock) {
        return new IllegalArgumentException(
                op.method()
                        + ": send's count "
                        + s.count()
                        + " makes a block of "
                        + block
                        + " elements, recv's count "
                        + r.count()
                        + " one of "
                        + recvBlock
                        + "; with "
                        + size
                        + " ranks "
                        + shape(op));
    }

    private String shape(CollectiveOp op) {
        String one = "the same count as the other buffer";
        String many = size + " times the other's count";
        return "send needs "
                + (op.manySend() && !op.manyRecv() ? many : one)
                + " and recv "
                + (op.manyRecv() && !op.manySend() ? many : one);
    }

    private void blocks(
            CollectiveOp op, String name, Buffer buffer, long[] counts, long @Nullable [] displs) {
        if (counts.length != size || (displs != null && displs.length != size)) {
            throw new IllegalArgumentException(
                    op.method()
                            + ": "
                            + name
                            + "'s counts have length "
                            + counts.length
                            + (displs == null ? "" : " and its displacements " + displs.length)
                            + ", expected "
                            + size
                            + ", one for each rank");
        }
        long at = 0;
        for (int i = 0; i < size; i++) {
            long from = displs == null ? at : displs[i];
            if (counts[i] < 0 || from < 0 || from > buffer.count() - counts[i]) {
                throw new IllegalArgumentException(
                        op.method()
                                + ": block "
                                + i
                                + " is "
                                + counts[i]
                                + " elements from "
                                + from
                                + ", which does not lie within "
                                + name
                                + "'s "
                                + buffer.count()
                                + " elements");
            }
            at = from + counts[i];
        }
    }

    /** Received blocks must not overlap each other: the result would be undefined. */
    private void disjoint(CollectiveOp op, long[] counts, long[] displs) {
        for (int i = 0; i < size; i++) {
            for (int j = 0; j < i; j++) {
                if (counts[i] > 0
                        && counts[j] > 0
                        && displs[i] < displs[j] + counts[j]
                        && displs[j] < displs[i] + counts[i]) {
                    throw new IllegalArgumentException(
                            op.method()
                                    + ": recv's blocks "
                                    + j
                                    + " ("
                                    + counts[j]
                                    + " elements from "
                                    + displs[j]
                                    + ") and "
                                    + i
                                    + " ("
                                    + counts[i]
                                    + " from "
                                    + displs[i]
                                    + ") overlap");
                }
            }
        }
    }

    /** Throws unless overlapping buffers match the in-place form of the operation exactly. */
    void vectorInPlace(Request q, Buffer s, Buffer r) {
        CollectiveOp op = q.op;
        boolean same;
        if (op == CollectiveOp.ALL_TO_ALLV) {
            same =
                    samePlace(s, 0, r, 0)
                            && Arrays.equals(q.sendCounts, q.recvCounts)
                            && Arrays.equals(q.sendDispls, q.recvDispls);
        } else {
            same =
                    samePlace(
                            s,
                            op.manySend() ? q.sendDispls[rank] : 0,
                            r,
                            op.manyRecv() ? q.recvDispls[rank] : 0);
        }
        if (!same) {
            throw overlapping(op, s, r);
        }
    }

    private static IllegalArgumentException overlapping(CollectiveOp op, Buffer s, Buffer r) {
        return new IllegalArgumentException(
                op.method()
                        + ": send ("
                        + s.count()
                        + " elements at 0x"
                        + Long.toHexString(s.address())
                        + ") and recv ("
                        + r.count()
                        + " at 0x"
                        + Long.toHexString(r.address())
                        + ") overlap, but not as this operation's in-place form does; use separate"
                        + " memory or the in-place overload");
    }
}
