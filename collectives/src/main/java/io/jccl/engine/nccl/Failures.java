package io.jccl.engine.nccl;

import io.jccl.CollectiveMismatchException;
import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.error.JcclException;
import io.jccl.flight.RankStatus;
import io.jccl.internal.Deadline;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Interprets NCCL's results: whether a call has finished, which rank caused an error, and which
 * error made this rank's communicator unusable. Any thread may report an error; the first one is
 * kept.
 */
final class Failures {
    /** Maximum delay from NCCL's detection of a process's end to ours. */
    static final long BLAME_NANOS = 1_000_000_000L;

    private final NcclRank rank;
    private final NcclApi nccl;
    private final Membership members;
    private final CommunicatorOptions options;
    private final NcclHandle handle;
    private final NcclMonitor watch;
    private final AtomicReference<@Nullable JcclException> failure = new AtomicReference<>();

    Failures(
            NcclRank rank,
            NcclApi nccl,
            Membership members,
            CommunicatorOptions options,
            NcclHandle handle,
            NcclMonitor watch) {
        this.rank = rank;
        this.nccl = nccl;
        this.members = members;
        this.options = options;
        this.handle = handle;
        this.watch = watch;
    }

    /** The error that made the communicator unusable; null while it is usable. */
    @Nullable JcclException failure() {
        return failure.get();
    }

    /**
     * Throws the error of a call that enqueues; waits for it if the communicator is non-blocking.
     */
    void settle(int result, String operation) {
        if (result != nccl_h.ncclSuccess() || failure.get() != null) {
            settleSlowly(result, () -> Pending.state(nccl, handle.comm()), operation);
        }
    }

    /** Waits until a call that needs other ranks has finished; throws its error. */
    void settle(NcclTask task, String operation) {
        settleSlowly(nccl_h.ncclInProgress(), task, operation);
    }

    private void settleSlowly(int result, IntSupplier stateOf, String operation) {
        throwIfFailed();
        int state = result;
        if (state == nccl_h.ncclInProgress()) {
            long timeout = Deadline.nanos(options.timeout());
            long answering = RankStatus.answerNanos(timeout);
            state = await(stateOf, timeout - answering);
            if (state == nccl_h.ncclInProgress()) {
                long question = members.ask();
                NcclRas ras = NcclRas.ask(rank.rank(), rank.size());
                state = await(stateOf, answering);
                if (state == nccl_h.ncclInProgress()) {
                    JcclException late = whyLate(operation, question, ras);
                    throwIfFailed();
                    throw fail(late);
                }
            }
        }
        if (state != nccl_h.ncclSuccess()) {
            // NCCL rejects an invalid argument before it does anything; only a non-blocking
            // communicator keeps that error for good.
            if (state == nccl_h.ncclInvalidArgument() && handle.isBlocking()) {
                throw explained(state, operation);
            }
            long began = System.nanoTime();
            JcclException e = blamed(state, operation, began);
            while (e == null) {
                LockSupport.parkNanos(10_000_000);
                e = blamed(state, operation, began);
            }
            throwIfFailed();
            throw fail(e);
        }
    }

    private int await(IntSupplier stateOf, long nanos) {
        int state;
        try {
            state = Pending.await(stateOf, nanos, () -> failure.get() != null);
        } catch (JcclException e) {
            throw fail(e);
        }
        throwIfFailed();
        return state;
    }

    /** The reason for which a call is still in progress. */
    private JcclException whyLate(String operation, long question, NcclRas ras) {
        JcclException told = brokenBy(operation);
        if (told != null) {
            return told;
        }
        JcclException found =
                watch.late(
                        question,
                        operation,
                        ("%s is still in progress after %s: a rank is missing, or connections"
                                        + " cannot be made")
                                .formatted(describe(operation), options.timeout()),
                        ras);
        // This process may have been stopped in the meantime, and the others have given up on it.
        told = found instanceof CollectiveMismatchException ? null : brokenBy(operation);
        return told == null ? found : told;
    }

    private @Nullable JcclException brokenBy(String operation) {
        String broken = members.broken();
        CollectiveMismatchException mismatch = broken == null ? null : members.disagreement();
        return broken == null || mismatch != null
                ? mismatch
                : new RankFailedException(describe(operation) + " failed: " + broken);
    }

    /**
     * An error of NCCL, with the rank that caused it if that is known; null if it may become known
     * shortly. NCCL itself does not report the rank.
     */
    @Nullable JcclException blamed(int result, String operation, long since) {
        String broken = members.broken();
        if (broken != null) {
            CollectiveMismatchException mismatch = members.disagreement();
            return mismatch != null
                    ? mismatch
                    : because(explained(result, operation), operation, broken);
        }
        boolean anothers = NcclCodes.mayBeAnothers(result);
        List<Integer> left = anothers ? members.left() : List.of();
        if (!left.isEmpty()) {
            return because(
                    explained(result, operation),
                    operation,
                    "rank(s) " + left + " closed the communicator while this one waits");
        }
        return anothers && members.knowsProcesses() && System.nanoTime() - since < BLAME_NANOS
                ? null
                : explained(result, operation);
    }

    private RankFailedException because(NcclException said, String operation, String reason) {
        RankFailedException e =
                new RankFailedException(
                        "%s failed: %s; NCCL reports: %s"
                                .formatted(describe(operation), reason, said.getMessage()));
        e.initCause(said);
        return e;
    }

    /** NCCL's error text, the communicator, CUDA's error, and the settings in force. */
    private NcclException explained(int result, String operation) {
        NcclException plain = NcclException.of(nccl, result, operation, handle.comm());
        StringBuilder text = new StringBuilder(describe(operation)).append(": ");
        text.append(plain.getMessage());
        int cuda = CudaRuntime.api().cudaPeekAtLastError();
        if (cuda != 0) {
            text.append("; CUDA's last error is ")
                    .append(CudaRuntime.api().cudaGetErrorName(cuda))
                    .append(
                            CudaException.isFatal(cuda)
                                    ? ", after which this process cannot use CUDA any more"
                                    : ", which is not sticky");
        }
        text.append(Settings.inForce());
        return new NcclException(result, operation, text.toString());
    }

    /** An operation with its rank and communicator. */
    String describe(String operation) {
        return operation
                + " on rank "
                + rank.rank()
                + " of "
                + rank.size()
                + " of communicator '"
                + members.name()
                + "' ("
                + rank.device()
                + ")";
    }

    /** Makes the communicator unusable, notifies the other ranks, and aborts NCCL's work. */
    <E extends JcclException> E fail(E error) {
        fail(error, true);
        return error;
    }

    void fail(JcclException error, boolean tell) {
        if (!failure.compareAndSet(null, error)) {
            return;
        }
        rank.keepFailure(error);
        if (tell) {
            try {
                members.fail(error);
            } catch (RuntimeException e) {
                error.addSuppressed(e);
            }
        }
        printReport();
        handle.startAbort();
    }

    /** The lowest rank that answered prints the status of all ranks. */
    private void printReport() {
        try {
            String report = members.report();
            if (report != null) {
                rank.printStandings(report);
            }
        } catch (RuntimeException e) {
            // The error itself contains it too.
        }
    }

    /** Fails for an exception amid a group: the other ranks wait for the rest of it. */
    void amidGroup(Throwable e) {
        fail(
                e instanceof JcclException known
                        ? known
                        : new JcclException(describe("a part of a group") + " failed: " + e, e),
                true);
    }

    /** Throws the error that made the communicator unusable. */
    void throwIfFailed() {
        JcclException e = failure.get();
        if (e != null) {
            throw e;
        }
    }
}
