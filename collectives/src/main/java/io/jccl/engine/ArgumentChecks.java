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
                    "%s: %s's count is %s, but %s[%s] for this rank is %s"
                            .formatted(
                                    op.method(), name, buffer.count(), table, rank, counts[rank]));
        }
    }

    private static void sameType(Buffer s, Buffer r) {
        if (s.dataType() != r.dataType()) {
            throw new IllegalArgumentException(
                    "send holds %s, recv %s; both must hold the same type"
                            .formatted(s.dataType().label(), r.dataType().label()));
        }
    }

    long block(Buffer buffer, String name, boolean many) {
        if (!many) {
            return buffer.count();
        }
        long block = buffer.count() / size;
        if (block * size != buffer.count()) {
            throw new IllegalArgumentException(
                    ("%s holds one block for each of %s ranks, but its count %s is not a multiple"
                                    + " of %s")
                            .formatted(name, size, buffer.count(), size));
        }
        return block;
    }

    private IllegalArgumentException otherBlocks(
            CollectiveOp op, Buffer s, long block, Buffer r, long recvBlock) {
        return new IllegalArgumentException(
                ("%s: send's count %s makes a block of %s elements, recv's count %s one of %s;"
                                + " with %s ranks %s")
                        .formatted(
                                op.method(),
                                s.count(),
                                block,
                                r.count(),
                                recvBlock,
                                size,
                                shape(op)));
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
                    "%s: %s's counts have length %s%s, expected %s, one for each rank"
                            .formatted(
                                    op.method(),
                                    name,
                                    counts.length,
                                    displs == null ? "" : " and its displacements " + displs.length,
                                    size));
        }
        long at = 0;
        for (int i = 0; i < size; i++) {
            long from = displs == null ? at : displs[i];
            if (counts[i] < 0 || from < 0 || from > buffer.count() - counts[i]) {
                throw new IllegalArgumentException(
                        ("%s: block %s is %s elements from %s, which does not lie within %s's %s"
                                        + " elements")
                                .formatted(op.method(), i, counts[i], from, name, buffer.count()));
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
                            ("%s: recv's blocks %s (%s elements from %s) and %s (%s from %s)"
                                            + " overlap")
                                    .formatted(
                                            op.method(),
                                            j,
                                            counts[j],
                                            displs[j],
                                            i,
                                            counts[i],
                                            displs[i]));
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
                ("%s: send (%s elements at 0x%s) and recv (%s at 0x%s) overlap, but not as this"
                                + " operation's in-place form does; use separate memory or the"
                                + " in-place overload")
                        .formatted(
                                op.method(),
                                s.count(),
                                Long.toHexString(s.address()),
                                r.count(),
                                Long.toHexString(r.address())));
    }
}
