package io.jccl.engine.nccl;

import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.error.JcclException;
import io.jccl.flight.RankStatus;
import io.jccl.internal.Deadline;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Monitors one rank: errors of NCCL, operations that take too long, and failures of other ranks.
 *
 * <p><b>Threads:</b> two of {@link Watchdog}: one calls {@link #look}, which holds the rank's lock
 * during a call, the other {@link #lookAtProgress}, which CUDA may keep.
 */
final class NcclMonitor {
    private static final long BEAT_NANOS = 2_000_000_000L;
    private static final long SILENCE_NANOS = 15_000_000_000L;
    private static final long LEFT_NANOS = 5_000_000_000L;

    /**
     * Number of ranks, following its own, whose heartbeats a rank reads. The first silent rank
     * follows one that is alive, which reports it to all; reading those of all ranks would be too
     * much load for a store.
     */
    private static final int WATCHED = 32;

    private final NcclRank rank;
    private final Membership members;
    private final InFlightOps issued;
    private final Duration timeout;
    private final long timeoutNanos;

    /** The last part of the timeout, in which the others report their progress. */
    private final long answerNanos;

    private final GpuProgress progress;
    private long beats;
    private long lastBeat;
    private long askedAt;

    /** NCCL's own view, for the report. */
    private @Nullable NcclRas ras;

    /** The operation that a thread is enqueuing, 0 for none, and when that was first observed. */
    private long entering;

    private long enteredAt;

    private long failedAt;
    private final long[] beatSeen;
    private final @Nullable String[] beatText;

    /** The last request that this rank sent, and the last that it answered. */
    private long question;

    private long answered;

    NcclMonitor(
            NcclRank rank, Membership members, InFlightOps issued, Duration timeout, long marker) {
        this.rank = rank;
        this.members = members;
        this.issued = issued;
        this.timeout = timeout;
        this.timeoutNanos = Deadline.nanos(timeout);
        this.answerNanos = RankStatus.answerNanos(timeoutNanos);
        this.progress = new GpuProgress(rank, issued, marker);
        this.beatSeen = new long[rank.size()];
        this.beatText = new String[rank.size()];
    }

    /**
     * Whether no thread is inside NCCL, and all operations have completed, as far as is known. Any
     * thread may call it.
     */
    boolean isIdle() {
        return !rank.handle().isInside() && progress.isComplete();
    }

    /**
     * Fails the communicator on all ranks. The others are told first: this rank's threads may close
     * it as soon as they see that it has failed. Any thread may call it.
     */
    void abort(String why) {
        try {
            members.fail(new RankFailedException(why));
        } catch (RuntimeException e) {
            // The others notice the end of the process.
        }
        rank.abort(why);
    }

    /** Aborts NCCL's work without that. Any thread may call it. */
    void startAbort() {
        rank.handle().startAbort();
    }

    /** Whether no thread is inside NCCL any more. */
    boolean hasEnded() {
        return rank.handle().hasEnded() && !rank.handle().isInside();
    }

    /** Waits, for a limited time, until no thread uses the marker; whether that is so. */
    boolean awaitMarking() {
        return progress.awaitEnd();
    }

    /** Polls for errors, and what others say; calls no function of CUDA. Never throws. */
    void look(long now) {
        if (rank.isOver() || !rank.handle().lock().tryLock()) {
            return;
        }
        try {
            if (rank.comm() == 0) {
                return;
            }
            int state = rank.handle().state();
            if (NcclCodes.isError(state)) {
                failedAt = failedAt == 0 ? now : failedAt;
                progress.note(now);
                JcclException e = rank.failures().blamed(state, next(), failedAt);
                if (e != null) {
                    rank.failures().fail(e);
                }
                return;
            }
            lookAtCaller(now);
            lookAtTime(now);
            if (now - lastBeat > BEAT_NANOS / 8 || answered > 0) {
                lookAtOthers(now);
            }
        } catch (RuntimeException e) {
            failed(e);
        } finally {
            rank.handle().lock().unlock();
        }
    }

    private void failed(RuntimeException e) {
        rank.failures()
                .fail(
                        e instanceof JcclException known
                                ? known
                                : new JcclException(
                                        rank.failures().describe("watching") + " failed: " + e, e));
    }

    /** Looks at the GPU's progress, in calls of CUDA that may not return; never throws. */
    void lookAtProgress(long now) {
        try {
            progress.look(now);
        } catch (RuntimeException e) {
            failed(e);
        }
    }

    /**
     * A thread that does not return from NCCL waits there for other ranks, since the first
     * operations connect to them. Nothing has been enqueued yet, so there is nothing to mark.
     */
    private void lookAtCaller(long now) {
        long number = rank.handle().isInside() ? issued.count() : 0;
        if (number != entering) {
            entering = number;
            enteredAt = now;
        }
    }

    /** Whether this rank waits for an operation, enqueued or not. */
    private boolean waits() {
        return progress.isPending() || entering > progress.completed();
    }

    private long waitsSince() {
        return progress.isPending() ? progress.markedAt() : enteredAt;
    }

    private void lookAtTime(long now) {
        progress.note(now);
        if (waits()) {
            expireIfLate(now);
        } else {
            askedAt = 0;
        }
    }

    private String progressText() {
        long last = issued.count();
        long completed = progress.completed();
        long marked = progress.marked();
        if (last == completed) {
            return "has completed all " + completed + " operations that it has enqueued";
        }
        return "has completed "
                + (marked > completed + 1 ? "at least " : "")
                + completed
                + " operations of "
                + last
                + (marked <= completed + 1 ? "; the next is " + next() : "");
    }

    private void expireIfLate(long now) {
        boolean known = progress.isFresh(now) || entering > progress.completed();
        if (known && now - waitsSince() > timeoutNanos - answerNanos) {
            expire(now);
        } else {
            askedAt = 0; // what was asked about has completed
        }
    }

    /**
     * Shortly before the timeout: requests the others' progress, and fails with a report when the
     * time is over. It must not wait for answers: this same thread may have to give them.
     */
    private void expire(long now) {
        if (askedAt == 0) {
            askedAt = now;
            question = members.ask();
            answer(question);
            ras = NcclRas.ask(rank.rank(), rank.size());
        }
        if (now - waitsSince() <= timeoutNanos) {
            return;
        }
        List<@Nullable NcclProgress> all = members.answers(question);
        // They get this time even if this process was stopped until the end of the timeout.
        if ((all.contains(null) && now - askedAt < answerNanos) || (ras != null && !ras.isDone())) {
            return;
        }
        String table = RankStatus.table(standings(all));
        CollectiveMismatchException mismatch = disagreement(all, awaited(), table);
        JcclException e =
                mismatch != null ? mismatch : new CollectiveTimeoutException(report(all, table));
        announce(e, all);
        rank.failures().fail(e);
    }

    private static List<@Nullable RankStatus> standings(List<@Nullable NcclProgress> all) {
        List<@Nullable RankStatus> standings = new ArrayList<>();
        for (NcclProgress p : all) {
            standings.add(p == null ? null : p.standing());
        }
        return standings;
    }

    /** Lets the lowest rank that answered print the status table when it learns of the error. */
    private void announce(JcclException e, List<@Nullable NcclProgress> all) {
        members.report(RankStatus.lowest(standings(all)), String.valueOf(e.getMessage()));
    }

    private String report(List<@Nullable NcclProgress> all, String table) {
        StringBuilder report =
                new StringBuilder("rank ")
                        .append(rank.rank())
                        .append(" of communicator '")
                        .append(members.name())
                        .append("' (")
                        .append(rank.device())
                        .append(") waited longer than ")
                        .append(timeout)
                        .append(" for ")
                        .append(awaited())
                        .append(
                                progress.isPending()
                                        ? ":"
                                        : ", whose thread is still inside NCCL, which connects to"
                                                + " other ranks or hangs:");
        for (int r = 0; r < all.size(); r++) {
            NcclProgress said = all.get(r);
            report.append("\n  rank ")
                    .append(r)
                    .append(said == null ? " gives no answer" : " " + said.text());
        }
        return report.append("\nlook first at the ranks that are behind, or give no answer: ")
                .append(table)
                .append(ras == null ? "" : ras.text())
                .toString();
    }

    private void answer(long number) {
        answered = number;
        members.answer(
                number, new NcclProgress(progressText(), rank.answer(), issued.collectives()));
    }

    private @Nullable CollectiveMismatchException disagreement(
            List<@Nullable NcclProgress> all, String waitsFor, String table) {
        String what = NcclProgress.disagreement(all);
        return what == null
                ? null
                : new CollectiveMismatchException(
                        ("the ranks of communicator '%s' disagree on %s. All ranks must call the"
                                        + " same operations in the same order. Rank %s (%s) found"
                                        + " out when it had waited longer than %s for %s. %s")
                                .formatted(
                                        members.name(),
                                        what,
                                        rank.rank(),
                                        rank.device(),
                                        timeout,
                                        waitsFor,
                                        table));
    }

    /**
     * The error of a thread that has waited without success for NCCL to enqueue an operation, and
     * has requested the others' progress. All ranks' watchdogs answer, including this one's.
     *
     * @param asked number of the request
     * @param text the error's text, unless the ranks called different operations
     * @param said the report of NCCL's RAS
     */
    JcclException late(long asked, String operation, String text, NcclRas said) {
        List<@Nullable NcclProgress> all = members.answers(asked);
        String table = RankStatus.table(standings(all));
        CollectiveMismatchException mismatch = disagreement(all, operation, table);
        JcclException e =
                mismatch != null
                        ? mismatch
                        : new CollectiveTimeoutException(text + ". " + table + said.await());
        announce(e, all);
        return e;
    }

    /** The operation, or range of operations, that this rank waits for. */
    private String awaited() {
        long completed = progress.completed();
        String first = next() + ", number " + (completed + 1);
        long last = progress.isPending() ? progress.marked() : entering;
        return last <= completed + 1
                ? first
                : "one of "
                        + (last - completed)
                        + " operations, from "
                        + first
                        + ", to "
                        + issued.describe(last)
                        + ", number "
                        + last;
    }

    /** The operation that this rank waits for, or the first of them. */
    private String next() {
        return issued.describe(progress.completed() + 1);
    }

    private void lookAtOthers(long now) {
        boolean needsOthers = waits() || progress.isActive();
        String broken = needsOthers ? members.broken() : members.failure();
        if (broken != null) {
            progress.note(now); // this thread may have been stopped since its last poll
            if (!waits() && members.failure() == null) {
                return; // the operation has completed: the lost rank matters to the next one
            }
            CollectiveMismatchException mismatch = members.disagreement();
            rank.failures()
                    .fail(
                            mismatch != null
                                    ? mismatch
                                    : new RankFailedException(
                                            "communicator '"
                                                    + members.name()
                                                    + "' is broken: "
                                                    + broken
                                                    + (waits()
                                                            ? "; this rank waits in " + next()
                                                            : "")),
                            false);
            return;
        }
        long asked = members.asked();
        if (asked > answered) {
            answer(asked);
        }
        if (now - lastBeat > BEAT_NANOS) {
            lastBeat = now;
            members.beat(++beats);
            if (needsOthers) {
                lookForSilence(now);
            }
        }
    }

    /** Fails if a rank has left, or has no heartbeat, while this one needs it. */
    private void lookForSilence(long now) {
        if (waits() && now - waitsSince() > LEFT_NANOS) {
            List<Integer> left = members.left();
            if (!left.isEmpty()) {
                rank.failures()
                        .fail(
                                new RankFailedException(
                                        ("rank(s) %s of communicator '%s' closed it while rank %s"
                                                        + " waits in %s")
                                                .formatted(
                                                        left,
                                                        members.name(),
                                                        rank.rank(),
                                                        next())));
                return;
            }
        }
        for (int i = 1; i <= Math.min(rank.size() - 1, WATCHED); i++) {
            int r = (rank.rank() + i) % rank.size();
            String beat = members.beatOf(r);
            if (beatSeen[r] == 0 || !Objects.equals(beat, beatText[r])) {
                beatSeen[r] = now;
                beatText[r] = beat;
            } else if (now - beatSeen[r] > SILENCE_NANOS) {
                rank.failures()
                        .fail(
                                new RankFailedException(
                                        ("rank %s of communicator '%s' has given no sign of life"
                                                        + " for %s s while rank %s waits in %s:"
                                                        + " its process was killed, or its"
                                                        + " machine is lost")
                                                .formatted(
                                                        r,
                                                        members.name(),
                                                        Duration.ofNanos(now - beatSeen[r])
                                                                .toSeconds(),
                                                        rank.rank(),
                                                        next())));
                return;
            }
        }
    }
}
