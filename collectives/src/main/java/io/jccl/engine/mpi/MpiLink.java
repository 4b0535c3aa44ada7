package io.jccl.engine.mpi;

import io.jccl.bindings.MpiAbi;
import io.jccl.bindings.MpiApi;
import io.jccl.bindings.MpiException;
import io.jccl.internal.Interrupts;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One of MPI's communicators, and how its calls are made: serialized if MPI requires that, and
 * awaited if they do not block.
 */
final class MpiLink {
    private static final int SPINS = 2000;
    private static final int YIELDS = 2000;
    private static final long PARK_NANOS = 50_000;

    private final MpiProcess.State process;
    private final MpiApi mpi;
    private final MpiAbi abi;
    private final @Nullable SerializedLock turn;
    private final boolean blocking;
    private final MpiCommunicator owner;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment request = arena.allocate(8, 8);
    private final MemorySegment flag = arena.allocate(8, 8);
    private final MemorySegment ignore;

    /** MPI's communicator. */
    private long comm;

    /** Whether a collective was abandoned on which MPI may still work. */
    private boolean abandoned;

    /** When the current wait noticed an interrupt; 0 if it did not. */
    private long interrupted;

    MpiLink(MpiProcess.State process, MpiCommunicator owner) {
        this.process = process;
        this.mpi = process.mpi();
        this.abi = process.abi();
        this.turn = process.turn();
        this.blocking = process.blocking();
        this.ignore = mpi.statusIgnore();
        this.owner = owner;
    }

    MpiProcess.State process() {
        return process;
    }

    MpiCommunicator owner() {
        return owner;
    }

    /** MPI's handle. */
    long comm() {
        return comm;
    }

    /** Memory for the request of a non-blocking collective, for {@link #complete}. */
    MemorySegment request() {
        return request;
    }

    /** Memory that lives as long as this. */
    MemorySegment allocate(long bytes) {
        return arena.allocate(bytes, 8);
    }

    // ---- the communicator itself

    /** Creates MPI's communicator from another. */
    void duplicate(long other) {
        MemorySegment made = arena.allocate(8, 8);
        begin();
        int code;
        try {
            code = mpi.MPI_Comm_idup(other, made, request);
        } finally {
            end();
        }
        check(code, "MPI_Comm_idup");
        poll("MPI_Comm_idup");
        adopt(abi.handle(made, 0));
    }

    /** Takes ownership of MPI's communicator. */
    void adopt(long handle) {
        comm = handle;
        begin();
        int code;
        try {
            code = mpi.MPI_Comm_set_errhandler(handle, mpi.MPI_ERRORS_RETURN());
        } finally {
            end();
        }
        check(code, "MPI_Comm_set_errhandler");
    }

    /** Splits MPI's communicator; ranks with a negative colour get none. */
    long split(int colour, int key) {
        MemorySegment made = arena.allocate(8, 8);
        int c = colour < 0 ? (int) abi.constant("MPI_UNDEFINED") : colour;
        begin();
        int code;
        try {
            code = mpi.MPI_Comm_split(comm, c, key, made);
        } finally {
            end();
        }
        check(code, "MPI_Comm_split");
        return abi.handle(made, 0);
    }

    /** Frees everything; no request may be in progress. */
    void close() {
        if (tryBegin()) {
            try {
                abi.setHandle(request, 0, comm);
                mpi.MPI_Comm_free(request);
            } finally {
                end();
            }
        } else {
            process.control().setBroken();
        }
        arena.close();
    }

    // MPI 4.1 lets errors be queried by any thread, whatever the thread level (11.4.1).

    int errorClass(int code) {
        try (Arena own = Arena.ofConfined()) {
            MemorySegment result = own.allocate(ValueLayout.JAVA_INT);
            return mpi.MPI_Error_class(code, result) == 0
                    ? result.get(ValueLayout.JAVA_INT, 0)
                    : -1;
        }
    }

    /** The text of an error code. */
    MpiException error(int code, String operation) {
        return MpiException.of(mpi, code, operation);
    }

    // ---- calls

    /** Called before a call of MPI; must be followed by {@link #end}. */
    void begin() {
        SerializedLock t = turn;
        if (t != null && !t.take()) {
            throw owner.noTurn();
        }
    }

    /** The same, if the caller can proceed without it. */
    boolean tryBegin() {
        return turn == null || turn.take(SerializedLock.WAIT_NANOS);
    }

    void end() {
        SerializedLock t = turn;
        if (t != null) {
            t.give();
        }
    }

    void check(int code, String operation) {
        if (code != 0) {
            throw error(code, operation);
        }
    }

    /** After a collective: waits for it, unless it has blocked. */
    void complete(int code, String operation) {
        check(code, operation);
        if (!blocking) {
            poll(operation);
        }
    }

    /** Waits for {@link #request}. */
    private void poll(String operation) {
        boolean done = false;
        try {
            for (int i = 0; !done; i++) {
                begin();
                int code;
                try {
                    code = mpi.MPI_Test(request, flag, ignore);
                } finally {
                    end();
                }
                check(code, operation);
                done = flag.get(ValueLayout.JAVA_INT, 0) != 0;
                if (!done) {
                    pause(i);
                }
            }
        } finally {
            endWait();
            if (!done) {
                abandoned = true;
                process.control().setBroken();
            }
        }
    }

    /** Whether MPI may still use the memory of a collective that has failed. */
    boolean abandoned() {
        return abandoned;
    }

    /** Pauses between two polls; {@link #endWait} must follow the last one. */
    void pause(int round) {
        owner.throwFailure();
        if (round < SPINS) {
            Thread.onSpinWait();
        } else if (round < SPINS + YIELDS) {
            Thread.yield();
        } else {
            long now = System.nanoTime();
            interrupted = Interrupts.notice(interrupted, now);
            if (Interrupts.overdue(interrupted, now)) {
                throw Interrupts.error(
                        owner.watch().toString(),
                        "the others cannot finish the operation without this rank, so the"
                                + " communicator has failed on all");
            }
            LockSupport.parkNanos(PARK_NANOS);
        }
    }

    /** Sets the interrupt flag again if the thread was interrupted during the wait. */
    void endWait() {
        Interrupts.restore(interrupted);
        interrupted = 0;
    }
}
