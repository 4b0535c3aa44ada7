package io.jccl.flight;

import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import java.util.Objects;

/**
 * Every operation as data: which ranks send and receive, and in how many blocks. One generic
 * executor runs them all. The order of the constants is part of the protocol between processes.
 */
public enum CollectiveOp {
    BROADCAST("broadcast", Flow.ONE_TO_ALL, 0),
    SCATTER("scatter", Flow.ONE_TO_ALL, Bits.MANY_SEND),
    GATHER("gather", Flow.ALL_TO_ONE, Bits.MANY_RECV),
    REDUCE("reduce", Flow.ALL_TO_ONE, Bits.REDUCES),
    ALL_REDUCE("allReduce", Flow.ALL_TO_ALL, Bits.REDUCES),
    ALL_GATHER("allGather", Flow.ALL_TO_ALL, Bits.MANY_RECV),
    REDUCE_SCATTER("reduceScatter", Flow.ALL_TO_ALL, Bits.MANY_SEND | Bits.REDUCES),
    ALL_TO_ALL("allToAll", Flow.ALL_TO_ALL, Bits.MANY_SEND | Bits.MANY_RECV),
    GATHERV("gatherv", Flow.ALL_TO_ONE, Bits.MANY_RECV | Bits.VECTOR),
    SCATTERV("scatterv", Flow.ONE_TO_ALL, Bits.MANY_SEND | Bits.VECTOR),
    ALL_GATHERV("allGatherv", Flow.ALL_TO_ALL, Bits.MANY_RECV | Bits.VECTOR),
    REDUCE_SCATTERV("reduceScatterv", Flow.ALL_TO_ALL, Bits.MANY_SEND | Bits.REDUCES | Bits.VECTOR),
    ALL_TO_ALLV("allToAllv", Flow.ALL_TO_ALL, Bits.MANY_SEND | Bits.MANY_RECV | Bits.VECTOR),
    BARRIER("barrier", Flow.NONE, 0),
    SEND("send", Flow.PEER, 0),
    RECV("recv", Flow.PEER, 0);

    /** Ranks whose send and receive buffers are used. */
    private enum Flow {
        ONE_TO_ALL,
        ALL_TO_ONE,
        ALL_TO_ALL,
        NONE,
        PEER
    }

    private static final class Bits {
        static final int MANY_SEND = 1;
        static final int MANY_RECV = 2;
        static final int REDUCES = 4;
        static final int VECTOR = 8;
    }

    private static final CollectiveOp[] VALUES = values();

    private final String method;
    private final Flow flow;
    private final int bits;

    CollectiveOp(String method, Flow flow, int bits) {
        this.method = method;
        this.flow = flow;
        this.bits = bits;
    }

    /** The operation of a method of {@link io.jccl.Communicator}. */
    public static CollectiveOp ofMethod(String method) {
        Objects.requireNonNull(method, "operation");
        for (CollectiveOp c : VALUES) {
            if (c.method.equals(method)) {
                return c;
            }
        }
        throw new IllegalArgumentException(
                "operation '" + method + "' is unknown, expected a method name like allReduce");
    }

    /** Name of the method of {@link io.jccl.Communicator}. */
    public String method() {
        return method;
    }

    /** Whether the call has a root. */
    public boolean rooted() {
        return flow == Flow.ONE_TO_ALL || flow == Flow.ALL_TO_ONE;
    }

    /** Whether only the root's send buffer is used. */
    public boolean rootSends() {
        return flow == Flow.ONE_TO_ALL;
    }

    /** Whether only the root's receive buffer is used. */
    public boolean rootReceives() {
        return flow == Flow.ALL_TO_ONE;
    }

    /** Whether a rank's send buffer is used. */
    public boolean sends(int rank, int root) {
        return flow == Flow.ALL_TO_ALL
                || flow == Flow.ALL_TO_ONE
                || (flow == Flow.ONE_TO_ALL && rank == root);
    }

    /** Whether a rank's receive buffer is used. */
    public boolean receives(int rank, int root) {
        return flow == Flow.ALL_TO_ALL
                || flow == Flow.ONE_TO_ALL
                || (flow == Flow.ALL_TO_ONE && rank == root);
    }

    /** Whether the send buffer holds one block for each rank, not one for all. */
    public boolean manySend() {
        return (bits & Bits.MANY_SEND) != 0;
    }

    /** Whether the receive buffer holds one block from each rank. */
    public boolean manyRecv() {
        return (bits & Bits.MANY_RECV) != 0;
    }

    /** Whether blocks are reduced. */
    public boolean reduces() {
        return (bits & Bits.REDUCES) != 0;
    }

    /** Whether each block has its own count. */
    public boolean vector() {
        return (bits & Bits.VECTOR) != 0;
    }

    /** Whether this is send or recv. */
    public boolean peerToPeer() {
        return flow == Flow.PEER;
    }

    /** Describes a call, for messages. */
    public String describe(DataType type, long count, ReduceOp.Kind kind, int root) {
        if (this == BARRIER) {
            return "barrier";
        }
        StringBuilder s = new StringBuilder(method).append('(').append(type.label());
        if (!vector()) {
            s.append(", count ").append(count);
        }
        if (reduces()) {
            s.append(", ").append(ReduceOp.label(kind));
        }
        if (rooted()) {
            s.append(", root ").append(root);
        }
        if (peerToPeer()) {
            s.append(", peer ").append(root);
        }
        return s.append(')').toString();
    }
}
