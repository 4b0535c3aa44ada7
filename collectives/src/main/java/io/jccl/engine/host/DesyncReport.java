package io.jccl.engine.host;

import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.engine.Request;
import io.jccl.error.JcclException;
import io.jccl.flight.RankStatus;
import io.jccl.internal.Interrupts;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * Errors about ranks that are out of step: which ranks wait for which, and the status of all. Runs
 * only when an operation cannot proceed.
 */
final class DesyncReport {
    /** How long to wait for the status of the other ranks after a disagreement. */
    private static final long ANSWER_NANOS = 2_000_000_000L;

    /** The same for ranks that write their answer just as the time expires. */
    private static final long LAST_ANSWER_NANOS = 50_000_000;

    private static final long PARK_NANOS = 500_000;

    private final HostCommunicator comm;
    private final SharedMemoryTransport fabric;
    private final ControlBlock control;
    private final Slots slots;
    private final PointToPoint messages;
    private final int rank;
    private final int n;
    private final Duration timeout;

    /** Answers status requests of other ranks. */
    private final Runnable attend;

    DesyncReport(
            HostCommunicator comm,
            SharedMemoryTransport fabric,
            Slots slots,
            PointToPoint messages,
            int rank,
            Duration timeout,
            Runnable attend) {
        this.comm = comm;
        this.fabric = fabric;
        this.control = fabric.control;
        this.slots = slots;
        this.messages = messages;
        this.rank = rank;
        this.n = fabric.ranks;
        this.timeout = timeout;
        this.attend = attend;
    }

    /** The operation that this rank is in; only collectives have numbers. */
    String here() {
        Request q = comm.current() != null ? comm.current() : messages.unfinished();
        return q == null
                ? "an operation"
                : q.op.peerToPeer() ? q.toString() : q + " #" + comm.sequence();
    }

    /** The error of ranks that call different operations. */
    CollectiveMismatchException mismatch(long s, int parity) {
        return new CollectiveMismatchException(
                slots.disagreement(s, parity)
                        + ". "
                        + table(standings(control.ask(), System.nanoTime() + ANSWER_NANOS, false)));
    }

    JcclException abortedByPeer() {
        int by = control.abortRank();
        String text = by == rank ? control.abortText() : "rank " + by + ": " + control.abortText();
        return switch (control.abortKind()) {
            case MISMATCH -> new CollectiveMismatchException(text);
            case TIMEOUT -> new CollectiveTimeoutException(text);
            case FAILED ->
                    new RankFailedException(
                            text + "; rank " + rank + " was in " + here() + " and cannot go on");
        };
    }

    /**
     * The error of a rank that failed on its own. After an abort, also one of this rank by another
     * thread, the others may have closed the memory that this one was reading, so the abort is the
     * error.
     */
    JcclException failure(RuntimeException cause) {
        JcclException e =
                control.aborted()
                        ? abortedByPeer()
                        : new JcclException("rank " + rank + " failed in " + here() + ": " + cause);
        e.initCause(cause);
        return e;
    }

    /**
     * The error of a timeout: the same message on all ranks, whichever rank's timeout expired
     * first.
     */
    JcclException expire(long question, long answersBy) {
        List<@Nullable RankStatus> all = standings(question, answersBy, true);
        String text =
                ("rank %s of %s waited %s in %s for: %s. Look at what those ranks do (jstack), or"
                                + " raise the timeout. %s")
                        .formatted(rank, n, timeout, here(), waitedFor(all), table(all));
        // In one process this rank can print at once; it may end soon.
        int printer = fabric.isOneProcess() ? rank : RankStatus.lowest(all);
        return control.abort(rank, ControlBlock.AbortKind.TIMEOUT, printer, text)
                ? new CollectiveTimeoutException(text)
                : abortedByPeer();
    }

    /**
     * The status of all ranks. Their status pollers answer, independently of the ranks' own
     * threads.
     *
     * @param answersBy deadline for answers, extended slightly for ranks that are just writing
     * @param alone whether the report may also be ended by another rank
     */
    private List<@Nullable RankStatus> standings(long question, long answersBy, boolean alone) {
        long last = System.nanoTime() + LAST_ANSWER_NANOS;
        long deadline = answersBy - last > 0 ? answersBy : last;
        attend.run();
        List<@Nullable RankStatus> all = answers(question);
        long interrupted = 0;
        for (long now = System.nanoTime();
                isAwaited(all) && !(alone && control.aborted()) && now - deadline < 0;
                now = System.nanoTime()) {
            interrupted = Interrupts.notice(interrupted, now);
            LockSupport.parkNanos(PARK_NANOS);
            all = answers(question);
        }
        Interrupts.restore(interrupted);
        return all;
    }

    private String table(List<@Nullable RankStatus> all) {
        List<String> names = new ArrayList<>();
        List<String> known = new ArrayList<>();
        for (int p = 0; p < n; p++) {
            names.add(fabric.nameOf(p));
            known.add(lastCollective(p));
        }
        return RankStatus.table(all, names, known);
    }

    private List<@Nullable RankStatus> answers(long question) {
        List<@Nullable RankStatus> all = new ArrayList<>();
        for (int p = 0; p < n; p++) {
            // A closed rank does not answer any more, but may have answered another rank's request.
            String said = control.answerTo(isClosed(p) ? 1 : question, p);
            all.add(said == null ? null : RankStatus.read(said));
        }
        return all;
    }

    /** Whether a rank that is still alive has not answered. */
    private boolean isAwaited(List<@Nullable RankStatus> all) {
        for (int p = 0; p < n; p++) {
            if (all.get(p) == null && !isClosed(p)) {
                return true;
            }
        }
        return false;
    }

    private boolean isClosed(int p) {
        return control.acquire(control.state(p) + ControlBlock.CLOSED) != 0;
    }

    private String lastCollective(int p) {
        long reached = slots.reached(p);
        if (reached == 0) {
            return "";
        }
        StringBuilder b = new StringBuilder("entered #").append(reached).append(' ');
        slots.describe(b, p, (int) (reached & 1));
        return b.toString();
    }

    /** The ranks that this one waits for, without their answers. */
    String waitedFor() {
        return waitedFor(List.of());
    }

    private String waitedFor(List<@Nullable RankStatus> all) {
        StringBuilder b = new StringBuilder();
        boolean any = false;
        Request q = comm.current();
        boolean inMessages = q == null || q.op.peerToPeer();
        for (int p = 0; p < n; p++) {
            long reached = slots.reached(p);
            boolean behind =
                    inMessages
                            ? messages.waitsFor(p)
                            : reached < comm.sequence() || comm.waiter().isBehind(p);
            if (p == rank || !behind) {
                continue;
            }
            b.append(any ? ", " : "").append(fabric.nameOf(p));
            any = true;
            if (reached == 0) {
                b.append(", which has entered no collective yet");
            } else {
                b.append(
                        inMessages || reached < comm.sequence()
                                ? ", whose last collective is #"
                                : ", which has not finished #");
                slots.describe(b.append(reached).append(' '), p, (int) (reached & 1));
            }
            RankStatus status = p < all.size() ? all.get(p) : null;
            if (status != null && status.called() > reached) {
                b.append(" (it has called #")
                        .append(reached + 1)
                        .append(", which waits behind other work of its streams)");
            }
        }
        if (!any) {
            b.append("messages of ranks that have entered it too");
        }
        return b.toString();
    }
}
