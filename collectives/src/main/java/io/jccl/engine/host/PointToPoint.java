package io.jccl.engine.host;

import io.jccl.Algorithm;
import io.jccl.CollectiveMismatchException;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.device.DataType;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.flight.CollectiveOp;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Messages between two ranks, through a ring of cells for each ordered pair.
 *
 * <p>A small message is stored in its cell. The cell of a larger one holds the position of the
 * sender's buffer; the receiver copies from there and marks the cell as consumed, which completes
 * the send. A foreign buffer that other processes cannot map is sent in pieces through two halves
 * of staging memory. Messages of the user and of algorithms have separate rings.
 */
final class PointToPoint {
    /** Rings of send and recv. */
    private static final int USER = 0;

    /** Rings of algorithms; their payloads are in scratch memory. */
    private static final int INTERNAL = 1;

    private static final long STAGE = 64 << 10;

    /** A send or recv in progress. */
    private static final class Pending {
        @Nullable Request request;
        long moved;

        /** Cell that must be consumed before the send is complete; 0 if not posted yet. */
        long ticket;

        boolean done;
    }

    private final HostCommunicator comm;
    private final SharedMemoryTransport fabric;
    private final ControlBlock control;
    private final MemorySegment memory;
    private final int rank;
    private final int n;

    /** Cells posted and taken, by ring and peer. */
    private final long[][] posted;

    private final long[][] taken;

    private final @Nullable HostBuffer[] stages;

    private final List<Pending> pending = new ArrayList<>();
    private final List<Pending> spare = new ArrayList<>();
    private int open;

    /** Peers whose earlier send or recv is unfinished in this round, as bits of round numbers. */
    private final long[] sendBlocked;

    private final long[] recvBlocked;
    private long round;

    PointToPoint(HostCommunicator comm, SharedMemoryTransport fabric, int rank) {
        this.comm = comm;
        this.fabric = fabric;
        this.control = fabric.control;
        this.memory = control.memory;
        this.rank = rank;
        this.n = fabric.ranks;
        posted = new long[2][n];
        taken = new long[2][n];
        stages = new HostBuffer[n];
        sendBlocked = new long[n];
        recvBlocked = new long[n];
    }

    // ---- the user's messages

    void add(Request q) {
        Pending p = spare.isEmpty() ? new Pending() : spare.removeLast();
        p.request = q;
        q.algorithm = Algorithm.DIRECT;
        p.moved = 0;
        p.ticket = 0;
        p.done = false;
        pending.add(p);
        open++;
    }

    /** Completes everything added. */
    void finish() {
        Waiter waiter = null;
        int idle = 0;
        try {
            while (open > 0) {
                if (progress()) {
                    idle = 0;
                    if (waiter != null) {
                        waiter.end();
                        waiter = null;
                    }
                } else if (idle++ < comm.waiter().spins()) {
                    Thread.onSpinWait();
                } else {
                    if (waiter == null) {
                        waiter = comm.waiter();
                        waiter.begin();
                    }
                    waiter.pause(-1, 0, 0);
                }
            }
        } finally {
            if (waiter != null) {
                waiter.end();
            }
        }
        clear();
    }

    /** Removes messages, completed or abandoned. */
    void clear() {
        for (int i = 0; i < pending.size(); i++) {
            Pending p = pending.get(i);
            p.request = null;
            spare.add(p);
        }
        pending.clear();
        open = 0;
    }

    /** Whether a send or recv with a rank is unfinished. */
    boolean waitsFor(int peer) {
        for (int i = 0; i < pending.size(); i++) {
            Pending p = pending.get(i);
            if (!p.done && Objects.requireNonNull(p.request).root == peer) {
                return true;
            }
        }
        return false;
    }

    /** The first unfinished message, for errors. */
    @Nullable Request unfinished() {
        for (int i = 0; i < pending.size(); i++) {
            if (!pending.get(i).done) {
                return pending.get(i).request;
            }
        }
        return null;
    }

    /** Makes progress without waiting; returns whether there was any. */
    boolean progress() {
        if (open == 0) {
            return false;
        }
        boolean any = false;
        round++;
        for (int i = 0; i < pending.size(); i++) {
            Pending p = pending.get(i);
            if (p.done) {
                continue;
            }
            Request q = Objects.requireNonNull(p.request);
            boolean send = q.op == CollectiveOp.SEND;
            long[] blocked = send ? sendBlocked : recvBlocked;
            // Messages of a pair keep their order.
            if (blocked[q.root] == round) {
                continue;
            }
            any |= send ? stepSend(p, q) : stepRecv(p, q);
            if (p.done) {
                open--;
            } else if (!(send && posted(p, q))) {
                blocked[q.root] = round;
            }
        }
        return any;
    }

    /** Whether all of a send has been posted, so that the next may follow. */
    private static boolean posted(Pending p, Request q) {
        return p.ticket > 0 && p.moved == q.sendBuffer().byteSize();
    }

    private boolean stepSend(Pending p, Request q) {
        HostBuffer b = (HostBuffer) q.sendBuffer();
        int peer = q.root;
        long bytes = b.byteSize();
        long channel = control.channel(USER, rank, peer);
        long consumed = control.acquire(channel + ControlBlock.CONSUMED);
        if (p.ticket > 0 && p.moved == bytes) {
            p.done = consumed >= p.ticket;
            return p.done;
        }
        long next = posted[USER][peer] + 1;
        if (next - consumed > ControlBlock.CELLS) {
            return false;
        }
        long cell = ControlBlock.cell(channel, next);
        if (bytes <= ControlBlock.INLINE) {
            MemorySegment.copy(b.segment(), 0, memory, cell + ControlBlock.CELL_PAYLOAD, bytes);
            post(cell, q, bytes, 0, 0, next, peer);
            p.done = true;
            return true;
        }
        int index = (int) ((next - 1) % ControlBlock.CELLS);
        int chunk = fabric.publishCell(rank, peer, index, b);
        if (chunk != HostBuffer.PRIVATE) {
            post(cell, q, bytes, chunk, fabric.offset(b), next, peer);
            p.moved = bytes;
            p.ticket = next;
            return true;
        }
        // Foreign: a half can be refilled when the piece in it has been consumed.
        HostBuffer stage = stage(peer);
        if (consumed < next - 2) {
            return false;
        }
        long at = (next & 1) * STAGE;
        long length = Math.min(STAGE, bytes - p.moved);
        MemorySegment.copy(b.segment(), p.moved, stage.segment(), at, length);
        p.moved += length;
        p.done = p.moved == bytes;
        post(cell, q, length, stage.chunk(), stage.chunkAt() + at, next, peer);
        return true;
    }

    private void post(
            long cell, Request q, long bytes, long chunk, long at, long number, int peer) {
        control.set(cell + ControlBlock.CELL_TYPE, q.type.code());
        control.set(cell + ControlBlock.CELL_COUNT, q.count);
        control.set(cell + ControlBlock.CELL_BYTES, bytes);
        control.set(cell + ControlBlock.CELL_CHUNK, chunk);
        control.set(cell + ControlBlock.CELL_AT, at);
        posted[USER][peer] = number;
        control.release(cell + ControlBlock.CELL_SEQ, number);
    }

    private HostBuffer stage(int peer) {
        HostBuffer s = stages[peer];
        if (s == null) {
            s = fabric.staging(2 * STAGE);
            stages[peer] = s;
        }
        return s;
    }

    private boolean stepRecv(Pending p, Request q) {
        HostBuffer b = (HostBuffer) q.recvBuffer();
        int peer = q.root;
        long channel = control.channel(USER, peer, rank);
        long next = taken[USER][peer] + 1;
        long cell = ControlBlock.cell(channel, next);
        if (control.acquire(cell + ControlBlock.CELL_SEQ) < next) {
            return false;
        }
        long total = b.byteSize();
        if (p.moved == 0) {
            checkMatch(q, cell, peer);
        }
        long bytes = control.get(cell + ControlBlock.CELL_BYTES);
        if (total <= ControlBlock.INLINE) {
            MemorySegment.copy(memory, cell + ControlBlock.CELL_PAYLOAD, b.segment(), 0, bytes);
        } else {
            int index = (int) ((next - 1) % ControlBlock.CELLS);
            long chunk = control.get(cell + ControlBlock.CELL_CHUNK);
            MemorySegment from = fabric.publishedCell(peer, rank, index, chunk);
            MemorySegment.copy(
                    from, control.get(cell + ControlBlock.CELL_AT), b.segment(), p.moved, bytes);
        }
        p.moved += bytes;
        p.done = p.moved == total;
        taken[USER][peer] = next;
        control.release(channel + ControlBlock.CONSUMED, next);
        return true;
    }

    private void checkMatch(Request q, long cell, int peer) {
        long count = control.get(cell + ControlBlock.CELL_COUNT);
        DataType type = DataType.ofCode((int) control.get(cell + ControlBlock.CELL_TYPE));
        if (count != q.count || type != q.type) {
            throw new CollectiveMismatchException(
                    "rank %s sends %s elements of %s to rank %s, which receives %s of %s"
                            .formatted(peer, count, type.label(), rank, q.count, q.type.label()));
        }
    }

    /** Whether a rank that is still alive has not yet read a message of this one. */
    boolean unfetched() {
        for (int p = 0; p < n; p++) {
            long channel = control.channel(USER, rank, p);
            if (p != rank
                    && stages[p] != null
                    && control.acquire(channel + ControlBlock.CONSUMED) < posted[USER][p]
                    && control.acquire(control.state(p) + ControlBlock.CLOSED) == 0
                    && fabric.isAlive(p)) {
                return true;
            }
        }
        return false;
    }

    /** Releases staging memory, once no rank will read from it. */
    void close() {
        for (HostBuffer s : stages) {
            if (s != null) {
                s.close();
            }
        }
    }

    // ---- messages of algorithms: places in this rank's scratch memory

    /** Notifies a rank that bytes of this rank's scratch memory are ready; returns a ticket. */
    long postScratch(int peer, long at, long bytes) {
        long channel = control.channel(INTERNAL, rank, peer);
        long next = ++posted[INTERNAL][peer];
        if (control.acquire(channel + ControlBlock.CONSUMED) < next - ControlBlock.CELLS) {
            comm.waiter().await(channel + ControlBlock.CONSUMED, next - ControlBlock.CELLS, peer);
        }
        long cell = ControlBlock.cell(channel, next);
        control.set(cell + ControlBlock.CELL_BYTES, bytes);
        control.set(cell + ControlBlock.CELL_AT, at);
        control.release(cell + ControlBlock.CELL_SEQ, next);
        return next;
    }

    /** Waits until a rank has read what was posted to it. */
    void awaitConsumed(int peer, long ticket) {
        long at = control.channel(INTERNAL, rank, peer) + ControlBlock.CONSUMED;
        if (control.acquire(at) < ticket) {
            comm.waiter().await(at, ticket, peer);
        }
    }

    /** Waits until all that was posted to a rank has been read. */
    void awaitConsumed(int peer) {
        awaitConsumed(peer, posted[INTERNAL][peer]);
    }

    /**
     * Waits for the next message of a rank; returns the position of its bytes in that rank's
     * scratch memory.
     */
    long take(int peer) {
        long channel = control.channel(INTERNAL, peer, rank);
        long next = taken[INTERNAL][peer] + 1;
        long cell = ControlBlock.cell(channel, next);
        if (control.acquire(cell + ControlBlock.CELL_SEQ) < next) {
            comm.waiter().await(cell + ControlBlock.CELL_SEQ, next, peer);
        }
        return control.get(cell + ControlBlock.CELL_AT);
    }

    /** Marks the message taken last as read. */
    void consumed(int peer) {
        long next = ++taken[INTERNAL][peer];
        control.release(control.channel(INTERNAL, peer, rank) + ControlBlock.CONSUMED, next);
    }
}
