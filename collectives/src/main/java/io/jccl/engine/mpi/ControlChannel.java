package io.jccl.engine.mpi;

import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.bindings.MpiApi;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Short messages between the service threads of all ranks, on a separate communicator: status
 * requests, answers, failures.
 *
 * <p><b>Threads:</b> the service thread only.
 */
final class ControlChannel {
    private static final int TAG = 7;
    private static final int BYTES = 1 << 18; // a row of text for each of a thousand ranks
    private static final int TEXT = 48;

    /** Time limit for the lock: a thread in a blocking call may not release it. */
    private static final long WAIT_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

    private static final long ASK = 1;
    private static final long ANSWER = 2;
    private static final long FAIL = 3;

    private record Sending(Arena arena, MemorySegment request) {}

    private final MpiApi mpi;
    private final @Nullable SerializedLock turn;
    private final long comm;
    private final int rank;
    private final int size;
    private final MemorySegment flag = Arena.global().allocate(8, 8);
    private final MemorySegment status;
    private final MemorySegment inbox = Arena.global().allocate(BYTES, 64);
    private final MemorySegment barrier = Arena.global().allocate(8, 8);
    private final List<Sending> sending = new ArrayList<>();
    private final int source;
    private final int anySource;
    private final MemorySegment ignore;
    private boolean ending;
    private volatile boolean broken;

    ControlChannel(MpiApi mpi, @Nullable SerializedLock turn, long comm, int rank, int size) {
        this.mpi = mpi;
        this.turn = turn;
        this.comm = comm;
        this.rank = rank;
        this.size = size;
        this.status = Arena.global().allocate(mpi.abi().constant("sizeof(MPI_Status)"), 8);
        this.anySource = (int) mpi.abi().constant("MPI_ANY_SOURCE");
        this.ignore = mpi.statusIgnore();
        this.source = (int) mpi.abi().constant("offsetof(MPI_Status,MPI_SOURCE)");
    }

    /** Whether requests were left behind, so that MPI cannot be finalized. */
    boolean broken() {
        return broken;
    }

    /** Some request will never complete. */
    void setBroken() {
        broken = true;
    }

    /** Tells the other ranks that this one ends; returns whether all do. */
    boolean allEnd() {
        if (size == 1) {
            return true;
        }
        if (!begin()) {
            return false;
        }
        try {
            int code = ending ? 0 : mpi.MPI_Ibarrier(comm, barrier);
            ending = true;
            if (code != 0 || mpi.MPI_Test(barrier, flag, ignore) != 0) {
                broken = true; // nobody can be waited for
                return true;
            }
            return flag.get(ValueLayout.JAVA_INT, 0) != 0;
        } finally {
            end();
        }
    }

    /** Whether MPI may be called now; must be followed by {@link #end}. */
    private boolean begin() {
        return turn == null || turn.take(WAIT_NANOS);
    }

    private void end() {
        if (turn != null) {
            turn.give();
        }
    }

    /** Receives and answers messages. */
    void receive(Map<Long, MpiCommunicator> communicators) {
        if (size == 1) {
            return;
        }
        for (int i = 0; i < 256; i++) {
            if (!begin()) {
                return;
            }
            try {
                int code = mpi.MPI_Iprobe(anySource, TAG, comm, flag, status);
                if (code != 0 || flag.get(ValueLayout.JAVA_INT, 0) == 0) {
                    break;
                }
                int from = status.get(ValueLayout.JAVA_INT, source);
                code =
                        mpi.MPI_Recv(
                                inbox.address(), BYTES, mpi.MPI_BYTE(), from, TAG, comm, ignore);
                if (code != 0) {
                    break;
                }
            } finally {
                end();
            }
            int from = status.get(ValueLayout.JAVA_INT, source);
            handle(from, communicators);
        }
        sweep();
    }

    private void handle(int from, Map<Long, MpiCommunicator> communicators) {
        long kind = inbox.get(ValueLayout.JAVA_LONG, 0);
        long id = inbox.get(ValueLayout.JAVA_LONG, 8);
        long order = inbox.get(ValueLayout.JAVA_LONG, 16);
        int bits = inbox.get(ValueLayout.JAVA_INT, 24);
        int length = inbox.get(ValueLayout.JAVA_INT, 28);
        String text =
                new String(
                        inbox.asSlice(TEXT, length).toArray(ValueLayout.JAVA_BYTE),
                        StandardCharsets.UTF_8);
        MpiCommunicator c = communicators.get(id);
        if (kind == ASK) {
            MpiMonitor.Answer a = c != null ? c.watch().answer() : MpiMonitor.whenClosed(id);
            if (a == null) {
                a = ending ? MpiMonitor.Answer.ENDED : MpiMonitor.Answer.NOT_OPEN;
            }
            int flags = (a.open() ? 1 : 0) | (a.closed() ? 2 : 0) | (a.inside() ? 4 : 0);
            send(from, ANSWER, id, a.order(), flags, a.text() + '\n' + a.standing());
        } else if (kind == ANSWER && c != null) {
            int cut = text.indexOf('\n');
            c.answered(
                    from,
                    new MpiMonitor.Answer(
                            (bits & 1) != 0,
                            (bits & 2) != 0,
                            (bits & 4) != 0,
                            order,
                            text.substring(0, Math.max(0, cut)),
                            text.substring(cut + 1)));
        } else if (kind == FAIL && c != null) {
            c.fail(
                    switch (bits) {
                        case 1 -> new CollectiveMismatchException(text);
                        case 2 -> new CollectiveTimeoutException(text);
                        default -> new RankFailedException(text);
                    },
                    false,
                    (int) order);
        }
    }

    /** Requests the status of a rank of the world. */
    void ask(int to, long id) {
        send(to, ASK, id, 0, 0, "");
    }

    /**
     * Notifies a rank of the world why a communicator has failed, and which rank prints the reason.
     */
    void fail(int to, long id, RuntimeException why, int printer) {
        int kind =
                switch (why) {
                    case CollectiveMismatchException m -> 1;
                    case CollectiveTimeoutException t -> 2;
                    default -> 0;
                };
        send(to, FAIL, id, printer, kind, String.valueOf(why.getMessage()));
    }

    private void send(int to, long kind, long id, long order, int bits, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        int length = Math.min(bytes.length, BYTES - TEXT);
        Arena arena = Arena.ofShared();
        MemorySegment message = arena.allocate(TEXT + length, 64);
        MemorySegment request = arena.allocate(8, 8);
        message.set(ValueLayout.JAVA_LONG, 0, kind);
        message.set(ValueLayout.JAVA_LONG, 8, id);
        message.set(ValueLayout.JAVA_LONG, 16, order);
        message.set(ValueLayout.JAVA_INT, 24, bits);
        message.set(ValueLayout.JAVA_INT, 28, length);
        MemorySegment.copy(bytes, 0, message, ValueLayout.JAVA_BYTE, TEXT, length);
        if (!begin()) {
            arena.close();
            return;
        }
        try {
            int code =
                    mpi.MPI_Isend(
                            message.address(),
                            TEXT + length,
                            mpi.MPI_BYTE(),
                            to,
                            TAG,
                            comm,
                            request);
            if (code == 0) {
                sending.add(new Sending(arena, request));
            } else {
                arena.close();
            }
        } finally {
            end();
        }
    }

    /** Releases the memory of sent messages. */
    private void sweep() {
        for (int i = sending.size() - 1; i >= 0; i--) {
            Sending s = sending.get(i);
            if (!begin()) {
                return;
            }
            try {
                int code = mpi.MPI_Test(s.request, flag, ignore);
                if (code == 0 && flag.get(ValueLayout.JAVA_INT, 0) != 0) {
                    s.arena.close();
                    sending.remove(i);
                }
            } finally {
                end();
            }
        }
    }

    @Override
    public String toString() {
        return "control of rank " + rank + " of " + size;
    }
}
