package io.jccl.engine.mpi;

import io.jccl.CollectiveMismatchException;
import io.jccl.bindings.MpiAbi;
import io.jccl.bindings.MpiApi;
import io.jccl.device.DataType;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.flight.CollectiveOp;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;

/** Sends and receives of one communicator that are in progress. */
final class MpiMessages {
    private static final int TAG_USER = 1;

    /** Tag of messages that are part of a collective. */
    static final int TAG_OURS = 2;

    private static final long LIMIT = MpiCalls.LIMIT;
    private static final BitSet NONE = new BitSet();

    private final MpiLink link;
    private final MpiApi mpi;
    private final MpiAbi abi;
    private final MpiTypes types;
    private final int statusBytes;
    private final MemorySegment flag;
    private MemorySegment requests;
    private MemorySegment statuses;
    private int open;

    /** Buffers of messages that are sent as copies, and whether to copy them back. */
    private final List<HostBuffer> moved = new ArrayList<>();

    private final List<Boolean> movedBack = new ArrayList<>();
    private final List<Scratch> scratches = new ArrayList<>();

    /** Elements to receive; negative for sends, and for receives that were checked. */
    private long[] expected = new long[8];

    private long[] messageType = new long[8];
    private int[] peers = new int[8];

    /** Whether the service thread wants to know which ranks are waited for. */
    private volatile boolean asked;

    /** The ranks waited for when last asked; never changed. */
    private volatile BitSet waitedFor = NONE;

    MpiMessages(MpiLink link) {
        this.link = link;
        this.mpi = link.process().mpi();
        this.abi = link.process().abi();
        this.types = link.process().types();
        this.statusBytes = (int) abi.constant("sizeof(MPI_Status)");
        this.flag = link.allocate(8);
        this.requests = link.allocate(8L * 8);
        this.statuses = link.allocate(8L * statusBytes);
    }

    /** Number of messages. */
    int open() {
        return open;
    }

    void free() {
        scratches.forEach(Scratch::free);
    }

    /** Starts a send or receive of the user. */
    void post(Request q) {
        boolean sends = q.op == CollectiveOp.SEND;
        HostBuffer b = (HostBuffer) (sends ? q.sendBuffer() : q.recvBuffer());
        long address = b.address();
        if (!b.isPlain()) {
            Scratch own = scratch(moved.size());
            MemorySegment copy = own.atLeast(b.byteSize());
            MemorySegment.copy(b.segment(), 0, copy, 0, b.byteSize());
            address = copy.address();
            moved.add(b);
            movedBack.add(!sends);
        }
        if (sends) {
            postSend(address, q.count, q.type, q.root, TAG_USER);
        } else {
            postRecv(address, q.count, q.type, q.root, TAG_USER);
        }
    }

    private Scratch scratch(int i) {
        if (i == scratches.size()) {
            scratches.add(new Scratch());
        }
        return scratches.get(i);
    }

    void postSend(long at, long count, DataType type, int to, int tag) {
        for (long done = 0; ; done += LIMIT) {
            long m = Math.min(LIMIT, count - done);
            int slot = slot(-1, type, to);
            link.begin();
            int code;
            try {
                code =
                        mpi.MPI_Isend(
                                at + done * type.size(),
                                (int) m,
                                types.type(type),
                                to,
                                tag,
                                link.comm(),
                                requests.asSlice((long) slot * abi.handleBytes()));
            } finally {
                link.end();
            }
            link.check(code, "MPI_Isend");
            open++;
            if (count - done <= LIMIT) {
                return;
            }
        }
    }

    void postRecv(long at, long count, DataType type, int from, int tag) {
        for (long done = 0; ; done += LIMIT) {
            long m = Math.min(LIMIT, count - done);
            int slot = slot(m, type, from);
            link.begin();
            int code;
            try {
                code =
                        mpi.MPI_Irecv(
                                at + done * type.size(),
                                (int) m,
                                types.type(type),
                                from,
                                tag,
                                link.comm(),
                                requests.asSlice((long) slot * abi.handleBytes()));
            } finally {
                link.end();
            }
            link.check(code, "MPI_Irecv");
            open++;
            if (count - done <= LIMIT) {
                return;
            }
        }
    }

    private int slot(long count, DataType type, int peer) {
        if (open == expected.length) {
            int room = 2 * open;
            MemorySegment more = link.allocate(8L * room);
            MemorySegment.copy(requests, 0, more, 0, requests.byteSize());
            requests = more;
            statuses = link.allocate((long) room * statusBytes);
            expected = Arrays.copyOf(expected, room);
            messageType = Arrays.copyOf(messageType, room);
            peers = Arrays.copyOf(peers, room);
        }
        expected[open] = count;
        messageType[open] = types.type(type);
        peers[open] = peer;
        return open;
    }

    /** Completes all messages. */
    void finish() {
        finish(0);
        for (int i = 0; i < moved.size(); i++) {
            if (movedBack.get(i)) {
                HostBuffer b = moved.get(i);
                MemorySegment.copy(scratch(i).atLeast(0), 0, b.segment(), 0, b.byteSize());
            }
        }
        moved.clear();
        movedBack.clear();
    }

    /** Completes the messages from an index on. */
    void finish(int first) {
        int many = open - first;
        if (many == 0) {
            return;
        }
        MemorySegment own = requests.asSlice((long) first * abi.handleBytes());
        try {
            for (int i = 0; ; i++) {
                link.begin();
                int code;
                try {
                    code = mpi.MPI_Testall(many, own, flag, statuses);
                } finally {
                    link.end();
                }
                if (code != 0) {
                    throw messageError(code, many);
                }
                if (flag.get(ValueLayout.JAVA_INT, 0) != 0) {
                    break;
                }
                link.pause(i);
                if (asked) {
                    asked = false;
                    noteWaiting(first);
                }
            }
        } finally {
            link.endWait();
        }
        open = first;
        for (int i = 0; i < many; i++) {
            checkReceived(i, first + i);
        }
    }

    /** Notes which ranks the messages from an index on wait for. */
    private void noteWaiting(int first) {
        BitSet ranks = new BitSet();
        for (int i = first; i < open; i++) {
            MemorySegment request = requests.asSlice((long) i * abi.handleBytes());
            link.begin();
            int code;
            try {
                code = mpi.MPI_Test(request, flag, statuses);
            } finally {
                link.end();
            }
            if (code != 0) {
                expected[i] = -1; // MPI has freed the request
                throw link.error(code, "MPI_Test");
            }
            if (flag.get(ValueLayout.JAVA_INT, 0) == 0) {
                ranks.set(peers[i]);
            } else {
                checkReceived(0, i);
            }
        }
        waitedFor = ranks;
    }

    /** Called by the service thread: {@link #waitsFor} is to know the present state soon. */
    void ask() {
        waitedFor = NONE;
        asked = true;
    }

    /** Whether a message to or from a rank was in progress after the last {@link #ask}. */
    boolean waitsFor(int rank) {
        return waitedFor.get(rank);
    }

    private void checkReceived(int status, int i) {
        long count = expected[i];
        if (count < 0) {
            return;
        }
        expected[i] = -1;
        link.begin();
        int code;
        try {
            code =
                    mpi.MPI_Get_count(
                            statuses.asSlice((long) status * statusBytes), messageType[i], flag);
        } finally {
            link.end();
        }
        link.check(code, "MPI_Get_count");
        int got = flag.get(ValueLayout.JAVA_INT, 0);
        if (got != count) {
            throw new CollectiveMismatchException(
                    "%s: a rank sent %s elements, but this one receives %s"
                            .formatted(
                                    link.owner().watch(),
                                    got < 0 ? "part of an element more than some" : got,
                                    count));
        }
    }

    private RuntimeException messageError(int code, int many) {
        int errorClass = link.errorClass(code);
        int at = (int) abi.constant("offsetof(MPI_Status,MPI_ERROR)");
        int pending = (int) abi.constant("MPI_ERR_PENDING");
        for (int i = 0; errorClass == abi.constant("MPI_ERR_IN_STATUS") && i < many; i++) {
            int one = statuses.get(ValueLayout.JAVA_INT, (long) i * statusBytes + at);
            if (one != 0 && link.errorClass(one) != pending) {
                code = one;
                break;
            }
        }
        return link.error(code, "MPI_Testall");
    }

    /**
     * Abandons messages in progress after an error.
     *
     * @return whether there are any, so that MPI may still use their memory
     */
    boolean giveUp() {
        boolean any = open > 0;
        if (any) {
            link.process().control().setBroken();
            if (link.tryBegin()) {
                for (int i = 0; i < open; i++) {
                    // What MPI_Testall reported as failed or done, MPI has freed: it may not be
                    // named again.
                    if (expected[i] >= 0 && abi.handle(requests, i) != mpi.MPI_REQUEST_NULL()) {
                        // JCCL's memory is kept, but memory that a user wraps may be freed.
                        mpi.MPI_Cancel(requests.asSlice((long) i * abi.handleBytes()));
                    }
                }
                link.end();
            }
            open = 0;
        }
        moved.clear();
        movedBack.clear();
        return any;
    }
}
