package io.jccl.engine.host;

import io.jccl.Algorithm;
import io.jccl.CollectiveMismatchException;
import io.jccl.ReduceOp;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.device.DataType;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.flight.CollectiveOp;
import java.lang.foreign.MemorySegment;

/**
 * What each rank has published about its current collective: the operation, the positions of its
 * buffers, and the tables of a v-variant. A rank writes its own slots and reads all others'.
 */
final class Slots {
    /**
     * The bits of a signature that must be equal on all ranks; the higher bits are the rank's own
     * flags.
     */
    private static final long AGREED = 0x0000ffff_ffffffffL;

    private static final long FLAG_IN_PLACE = 1L << 48;
    private static final long FLAG_FOREIGN = 1L << 49;

    private final SharedMemoryTransport fabric;
    private final ControlBlock control;
    private final int rank;
    private final int n;

    Slots(SharedMemoryTransport fabric, int rank) {
        this.fabric = fabric;
        this.control = fabric.control;
        this.rank = rank;
        this.n = fabric.ranks;
    }

    private static long signature(
            CollectiveOp op, DataType type, ReduceOp.Kind kind, Algorithm algorithm, int root) {
        return op.ordinal()
                | (long) type.ordinal() << 8
                | (long) kind.ordinal() << 16
                | (long) algorithm.ordinal() << 24
                | (long) root << 32;
    }

    /**
     * Publishes this rank's call of collective s.
     *
     * @param eager how many bytes of payload to send in the slot; negative to publish the positions
     *     of the buffers instead
     * @return its signature
     */
    long publish(
            Request q,
            long s,
            int parity,
            Algorithm algorithm,
            long eager,
            boolean source,
            boolean target) {
        long slot = control.slot(rank, parity);
        long signature = signature(q.op, q.type, q.reduceOp.kind(), algorithm, q.root);
        if (q.inPlace) {
            signature |= FLAG_IN_PLACE;
        }
        control.set(slot + ControlBlock.COUNT, q.count);
        control.set(slot + ControlBlock.FACTOR, q.reduceOp.factorBits(q.type));
        if (eager < 0) {
            signature |= publishPlaces(q, slot, parity, source, target);
        } else if (source && eager > 0) {
            MemorySegment.copy(
                    ((HostBuffer) q.sendBuffer()).segment(),
                    0,
                    control.memory,
                    slot + ControlBlock.PAYLOAD,
                    eager);
        }
        control.set(slot + ControlBlock.SIGNATURE, signature);
        control.release(slot + ControlBlock.SEQ, s);
        return signature;
    }

    /** Writes the positions of the buffers, and the tables of a v-variant; returns flags. */
    private long publishPlaces(Request q, long slot, int parity, boolean source, boolean target) {
        boolean foreign = false;
        if (source) {
            HostBuffer b = (HostBuffer) q.sendBuffer();
            int chunk = fabric.publish(rank, parity, false, b);
            foreign = chunk == HostBuffer.PRIVATE;
            control.set(slot + ControlBlock.SEND_CHUNK, chunk);
            control.set(slot + ControlBlock.SEND_AT, fabric.offset(b));
        }
        if (target) {
            HostBuffer b = (HostBuffer) q.recvBuffer();
            int chunk = fabric.publish(rank, parity, true, b);
            // Only in these do other ranks write to the receiver's buffer.
            boolean pushed = pushes(q.op) || (q.op.manySend() && q.op.manyRecv());
            foreign |= pushed && chunk == HostBuffer.PRIVATE;
            control.set(slot + ControlBlock.RECV_CHUNK, chunk);
            control.set(slot + ControlBlock.RECV_AT, fabric.offset(b));
        }
        if (q.op.vector()) {
            writeTable(parity, 0, q.sendCounts);
            writeTable(parity, 1, q.sendDispls);
            writeTable(parity, 2, q.recvCounts);
            writeTable(parity, 3, q.recvDispls);
        }
        return foreign ? FLAG_FOREIGN : 0;
    }

    private void writeTable(int parity, int which, long[] values) {
        long at = control.table(rank, parity, which);
        for (int i = 0; i < n; i++) {
            control.set(at + (long) i * Long.BYTES, values[i]);
        }
    }

    /**
     * An entry of a rank's table: 0 send counts, 1 displacements, 2 recv counts, 3 displacements.
     */
    long table(int r, int parity, int which, int i) {
        return control.get(control.table(r, parity, which) + (long) i * Long.BYTES);
    }

    boolean anyForeign(int parity) {
        boolean any = false;
        for (int p = 0; p < n; p++) {
            any |= flag(p, parity, FLAG_FOREIGN);
        }
        return any;
    }

    boolean anyInPlace(int parity) {
        boolean any = false;
        for (int p = 0; p < n; p++) {
            any |= flag(p, parity, FLAG_IN_PLACE);
        }
        return any;
    }

    private boolean flag(int p, int parity, long flag) {
        return (control.get(control.slot(p, parity) + ControlBlock.SIGNATURE) & flag) != 0;
    }

    /** The factor that a rank multiplies its elements by, as bits of their type. */
    long factor(int p, int parity) {
        return control.get(control.slot(p, parity) + ControlBlock.FACTOR);
    }

    /** Whether the ranks write into the receivers' buffers, rather than read the senders'. */
    static boolean pushes(CollectiveOp op) {
        return (op.reduces() && !op.manySend())
                || op == CollectiveOp.GATHER
                || op == CollectiveOp.GATHERV;
    }

    /** The last collective that a rank has entered. */
    long reached(int p) {
        return Math.max(
                control.acquire(control.slot(p, 0) + ControlBlock.SEQ),
                control.acquire(control.slot(p, 1) + ControlBlock.SEQ));
    }

    /** Appends what rank p has published. */
    void describe(StringBuilder b, int p, int parity) {
        long slot = control.slot(p, parity);
        long sig = control.get(slot + ControlBlock.SIGNATURE);
        CollectiveOp op = CollectiveOp.values()[(int) (sig & 0xff)];
        b.append(
                op.describe(
                        DataType.values()[(int) (sig >> 8 & 0xff)],
                        control.get(slot + ControlBlock.COUNT),
                        ReduceOp.Kind.values()[(int) (sig >> 16 & 0xff)],
                        (int) (sig >> 32 & 0xffff)));
        Algorithm a = Algorithm.values()[(int) (sig >> 24 & 0xff)];
        if (a != Algorithm.DIRECT) {
            b.append(" by ").append(a);
        }
    }

    /** Describes the call of each rank, for the error of operation s. */
    String disagreement(long s, int parity) {
        StringBuilder b =
                new StringBuilder("the ranks disagree on operation #").append(s).append(':');
        for (int p = 0; p < n; p++) {
            b.append(p == 0 ? " " : "; ").append("rank ").append(p).append(" calls ");
            describe(b, p, parity);
        }
        return b.append(". All ranks must call the same operations in the same order").toString();
    }

    /** Waits until every rank has published collective s; returns whether all agree. */
    boolean meet(Waiter waiter, long s, int parity, long signature, long count) {
        boolean same = true;
        for (int i = 1; i < n; i++) {
            int p = rank + i < n ? rank + i : rank + i - n;
            long slot = control.slot(p, parity);
            if (control.acquire(slot + ControlBlock.SEQ) < s) {
                waiter.await(slot + ControlBlock.SEQ, s, p);
            }
            same &=
                    ((control.get(slot + ControlBlock.SIGNATURE) ^ signature) & AGREED) == 0
                            && control.get(slot + ControlBlock.COUNT) == count;
        }
        return same;
    }

    /**
     * The count that rank i sends to j must be what j expects from i; every rank checks all pairs.
     */
    void checkTables(Request q, long s, int parity) {
        StringBuilder wrong = null;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                long sent = table(i, parity, 0, j);
                long expected = table(j, parity, 2, i);
                if (sent != expected) {
                    wrong = wrong == null ? new StringBuilder() : wrong.append("; ");
                    wrong.append("rank ")
                            .append(i)
                            .append(" sends ")
                            .append(sent)
                            .append(" elements to rank ")
                            .append(j)
                            .append(", which expects ")
                            .append(expected);
                }
            }
        }
        if (wrong != null) {
            throw new CollectiveMismatchException(
                    "the ranks disagree on the counts of " + q + " #" + s + ": " + wrong);
        }
    }
}
