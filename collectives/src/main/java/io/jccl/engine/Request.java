package io.jccl.engine;

import io.jccl.Algorithm;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.flight.CollectiveOp;
import io.jccl.flight.FlightEvents;
import io.jccl.flight.FlightRecorder;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One checked operation, ready to run. Requests are reused, so no memory is allocated per
 * operation.
 *
 * <p>All v-variants have the same form: {@code sendCounts[j]} elements from {@code sendDispls[j]}
 * go to rank j, and {@code recvCounts[i]} elements from rank i go to {@code recvDispls[i]}.
 */
public final class Request extends QueuedWork {
    public CollectiveOp op = CollectiveOp.BARRIER;
    public @Nullable Buffer send;
    public @Nullable Buffer recv;
    public DataType type = DataType.INT8;
    public ReduceOp reduceOp = ReduceOp.SUM;

    /** Elements in one block; 0 for the v-variants. */
    public long count;

    /** Root, or for send and recv the peer; 0 if neither applies. */
    public int root;

    public boolean inPlace;

    /** The stream, for engines whose streams order the work themselves. */
    public @Nullable Stream stream;

    /** The algorithm that the engine chose; {@link Algorithm#AUTO} if a library chooses. */
    public Algorithm algorithm = Algorithm.AUTO;

    /**
     * Lengths and positions of the blocks of a v-variant; the arrays are written to, never
     * replaced.
     */
    public final long[] sendCounts;

    public final long[] sendDispls;
    public final long[] recvCounts;
    public final long[] recvDispls;

    /** Its number among all operations of the rank, from 1. */
    public long sequence;

    /**
     * Its position among the operations that all ranks call in the same order; 0 if it is not one
     * of them.
     */
    long order;

    /** Operation, type, reduction and root in one word, as {@link FlightRecorder} stores them. */
    long word;

    /** Whether a flight recording needs its end. */
    boolean traced;

    /** Reused, as the request is. */
    FlightEvents.@Nullable Kept event;

    Request(EngineCommunicator owner, int size) {
        super(owner);
        this.sendCounts = new long[size];
        this.sendDispls = new long[size];
        this.recvCounts = new long[size];
        this.recvDispls = new long[size];
    }

    /** Sets the operation; not in place, and a sum if no reduction is given. */
    void set(
            CollectiveOp called,
            @Nullable Buffer from,
            @Nullable Buffer to,
            @Nullable ReduceOp reduction,
            long elements,
            int rootOrPeer) {
        Buffer any = from != null ? from : to;
        op = called;
        send = from;
        recv = to;
        type = any == null ? DataType.INT8 : any.dataType();
        reduceOp = reduction == null ? ReduceOp.SUM : reduction;
        count = elements;
        root = rootOrPeer;
        inPlace = false;
    }

    /** Sets the blocks of a v-variant; if a table is null, that side has one block or none. */
    void setTables(
            long @Nullable [] fromCounts,
            long @Nullable [] fromDispls,
            long @Nullable [] toCounts,
            long @Nullable [] toDispls) {
        Buffer s = send;
        Buffer r = recv;
        long prefix = 0;
        for (int i = 0; i < sendCounts.length; i++) {
            boolean to = op.receives(i, root);
            boolean from = op.sends(i, root);
            sendCounts[i] = s == null || !to ? 0 : fromCounts != null ? fromCounts[i] : s.count();
            sendDispls[i] = fromCounts == null ? 0 : fromDispls != null ? fromDispls[i] : prefix;
            recvCounts[i] = r == null || !from ? 0 : toCounts != null ? toCounts[i] : r.count();
            recvDispls[i] = toDispls != null && toCounts != null ? toDispls[i] : 0;
            prefix += sendCounts[i];
        }
    }

    public Buffer sendBuffer() {
        return Objects.requireNonNull(send);
    }

    public Buffer recvBuffer() {
        return Objects.requireNonNull(recv);
    }

    /**
     * Elements in one block; for a v-variant, all that this rank sends, or receives if it sends
     * none.
     */
    long elements() {
        if (!op.vector()) {
            return count;
        }
        long count = 0;
        for (long c : send != null ? sendCounts : recvCounts) {
            count += c;
        }
        return count;
    }

    @Override
    void execute() {
        owner.execute(this);
    }

    @Override
    void note(boolean queued) {
        owner.flight().note(this, queued, false);
    }

    @Override
    void ended(FlightEvents.State state) {
        if (traced) {
            traced = false;
            FlightEvents.end(
                    Objects.requireNonNull(event),
                    state,
                    word,
                    elements(),
                    sequence,
                    order,
                    algorithm,
                    owner.channels());
        }
    }

    @Override
    long lastSequence() {
        return sequence;
    }

    @Override
    void recycle() {
        owner.queue.free(this);
    }

    void clear() {
        send = null;
        recv = null;
        stream = null;
        algorithm = Algorithm.AUTO;
    }

    @Override
    public String toString() {
        return op.describe(type, count, reduceOp.kind(), root);
    }

    /**
     * A copy of an operation's description, kept after its request is reused. Written by one
     * thread, read by any.
     */
    public static final class Description {
        private long word = FlightRecorder.NOTHING;
        private long count;
        private int peer;
        private long order;

        /** Name of an operation that is not a collective; null for collectives. */
        private @Nullable String name;

        /**
         * Copies a request.
         *
         * @param order its position among the operations that all ranks call in the same order; 0
         *     if it is not one of them
         */
        public void set(Request r, long order) {
            this.word = r.word;
            this.count = r.count;
            this.order = order;
            this.name = null;
        }

        /**
         * Describes an operation that only one engine has; with a peer, or a negative number for
         * none.
         */
        public void set(String name, int peer) {
            this.name = name;
            this.peer = peer;
            this.order = 0;
        }

        /**
         * Its position among the operations that all ranks call in the same order; 0 if it is not
         * one.
         */
        public long order() {
            return order;
        }

        @Override
        public String toString() {
            String own = name;
            return own == null
                    ? FlightRecorder.describe(word, count)
                    : peer < 0 ? own : own + "(peer " + peer + ")";
        }
    }
}
