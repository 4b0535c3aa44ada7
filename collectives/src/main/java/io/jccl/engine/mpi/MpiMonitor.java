package io.jccl.engine.mpi;

import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.flight.RankStatus;
import io.jccl.internal.Deadline;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * The status of one communicator of this rank, and whether an operation takes too long.
 *
 * <p>The thread that runs operations notes each in a {@link CurrentOperation}; it reads no clock.
 * The service thread polls that. If an operation takes long, it requests the status of the other
 * ranks; if two of them are in different operations, one has left, or the timeout has expired, the
 * communicator fails on all ranks with the same message.
 */
final class MpiMonitor {
    /** Time until the first status request in an operation; doubled for each further one. */
    private static final long ASK_NANOS = TimeUnit.SECONDS.toNanos(5);

    /** How long others have to answer, unless the timeout expires first. */
    private static final long ANSWER_NANOS = TimeUnit.SECONDS.toNanos(2);

    /** How long a thread may stay in a blocking call of a failed communicator. */
    private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(2);

    private static final int STANDING_ROOM = 2048;

    private static final String SILENT = "does not answer (stopped, ended, or out of reach)";

    /** Stands for the answer of a rank that cannot answer during a blocking call. */
    private static final String SILENT_ALONE =
            "does not answer (in a blocking call of MPI, stopped, ended, or out of reach)";

    private static final int REMEMBERED = 4096;

    /** The answers for communicators that this process closed last. */
    private static final Map<Long, Answer> CLOSED =
            Collections.synchronizedMap(
                    new LinkedHashMap<>() {
                        private static final long serialVersionUID = 1L;

                        @Override
                        protected boolean removeEldestEntry(Map.Entry<Long, Answer> eldest) {
                            return size() > REMEMBERED;
                        }
                    });

    /** The answer of a rank. */
    record Answer(
            boolean open,
            boolean closed,
            boolean inside,
            long order,
            String text,
            String standing) {
        static final Answer NOT_OPEN =
                new Answer(false, false, false, 0, "has not opened this communicator", "");

        /** Of a process that will not open the communicator any more. */
        static final Answer ENDED =
                new Answer(false, true, false, -1, "has ended without this communicator", "");

        /**
         * Of a process that has closed the communicator.
         *
         * @param order the position of its last operation that all ranks call
         */
        static Answer closed(long order) {
            return new Answer(false, true, false, order, "has closed this communicator", "");
        }
    }

    private final MpiCommunicator comm;
    private final long timeoutNanos;

    /** Time of the last status request, so that the others answer before the timeout. */
    private final long lastAskNanos;

    private final CurrentOperation current = new CurrentOperation();

    // Of the service thread.
    private long seen;
    private long since;
    private long nextAsk = ASK_NANOS;
    private long answersBy;
    private long failedAt;
    private @Nullable Answer @Nullable [] answers;

    MpiMonitor(MpiCommunicator comm, java.time.Duration timeout) {
        this.comm = comm;
        this.timeoutNanos = Deadline.nanos(timeout);
        this.lastAskNanos = timeoutNanos - RankStatus.answerNanos(timeoutNanos);
    }

    // ---- any thread

    /** The operation that is under way, or was last. */
    CurrentOperation current() {
        return current;
    }

    /** The answer for a communicator that this process has closed; null if there is none. */
    static @Nullable Answer whenClosed(long id) {
        return CLOSED.get(id);
    }

    /** Called when the communicator is closed: how it answers from now on. */
    void closed(long id) {
        CLOSED.put(id, Answer.closed(current.order()));
    }

    /** The status of this rank, for the others. */
    Answer answer() {
        CurrentOperation.Seen now = current.look();
        RuntimeException failure = comm.failure();
        String text =
                failure != null
                        ? "has failed: " + failure.getMessage()
                        : now.number() == 0
                                ? "has called nothing yet"
                                : (now.inside() ? "is in " : "has completed ")
                                        + (now.text().isEmpty() ? "" : now.text() + " ")
                                        + "#"
                                        + now.number();
        String standing = comm.where().write(STANDING_ROOM);
        return new Answer(true, false, now.inside(), now.order(), text, standing);
    }

    // ---- the service thread

    /** Checks whether an operation takes too long. */
    void look(long now) {
        long e = current.entered();
        if (!current.isInside(e) || e != seen) {
            seen = e;
            since = now;
            nextAsk = ASK_NANOS;
            answers = null;
            failedAt = 0;
            return;
        }
        if (comm.failure() != null) {
            if (failedAt == 0) {
                failedAt = now;
            } else if ((e & 1) == 1 && now - failedAt > GRACE_NANOS) {
                comm.endProcess(this + " cannot leave MPI");
            }
            return;
        }
        long waited = now - since;
        if ((e & 1) == 1 && comm.isAlone()) {
            if (waited > timeoutNanos) {
                comm.fail(aloneTimeout(), false, comm.rank());
            }
            return;
        }
        boolean last = waited > lastAskNanos;
        if (answers == null && (waited > nextAsk || last)) {
            answers = new Answer[comm.size()];
            // The full time, even if this process was stopped until the timeout.
            answersBy =
                    last
                            ? now + timeoutNanos - lastAskNanos
                            : now + Math.min(ANSWER_NANOS, timeoutNanos - waited);
            comm.ask();
        }
        // Answers that came before the timeout are evaluated at the timeout, without further
        // requests.
        boolean given = answers != null && (complete() || now > answersBy);
        if (last ? waited > timeoutNanos && given : given) {
            judge(waited);
            answers = null;
            nextAsk = 2 * waited;
        }
    }

    /** Receives the answer of a rank. */
    void answered(int rank, Answer answer) {
        if (answers != null && rank < answers.length) {
            answers[rank] = answer;
        }
    }

    private boolean complete() {
        for (int r = 0; r < comm.size(); r++) {
            if (r != comm.rank() && (answers == null || answers[r] == null)) {
                return false;
            }
        }
        return true;
    }

    private void judge(long waited) {
        Answer own = answer();
        @Nullable Answer[] all = answers;
        if (!own.inside || all == null) {
            return;
        }
        for (int r = 0; r < all.length; r++) {
            Answer a = all[r];
            if (a == null || r == comm.rank()) {
                continue;
            }
            boolean sameOrder = own.order > 0 && a.order == own.order && a.inside;
            if (sameOrder && !withoutNumber(a.text).equals(withoutNumber(own.text))) {
                comm.fail(
                        new CollectiveMismatchException(
                                ("the ranks disagree on collective #%s:%s. All ranks must call the"
                                                + " same operations in the same order. %s")
                                        .formatted(own.order, table(own), standings(own))),
                        true,
                        lowest());
                return;
            }
            // A rank that has done its part of the operation may close its communicator.
            if (a.closed && (a.order < own.order || comm.waitsFor(r))) {
                comm.fail(
                        new RankFailedException(
                                "rank %s %s while others waited for it:%s"
                                        .formatted(
                                                r,
                                                a.order < 0 ? "ended" : "closed its communicator",
                                                table(own))),
                        true,
                        lowest());
                return;
            }
        }
        if (waited > timeoutNanos) {
            comm.fail(
                    new CollectiveTimeoutException(
                            ("rank %s of %s waited %s:%s. Look at what those ranks do (jstack), or"
                                            + " raise the timeout. %s")
                                    .formatted(
                                            comm.rank(),
                                            comm.size(),
                                            comm.options().timeout(),
                                            table(own),
                                            standings(own))),
                    true,
                    lowest());
        }
    }

    /** This rank's message if it cannot query the others. */
    private CollectiveTimeoutException aloneTimeout() {
        Answer own = answer();
        String table = RankStatus.table(List.of(comm.where()));
        return new CollectiveTimeoutException(
                ("rank %s of %s waited %s: rank %s %s. It cannot query the others: with"
                                + " JCCL_MPI_THREADS=serialized no other thread may call MPI"
                                + " during a call; JCCL_MPI_THREADS=multiple or"
                                + " JCCL_MPI_WAIT=poll shows their state. %s")
                        .formatted(
                                comm.rank(),
                                comm.size(),
                                comm.options().timeout(),
                                comm.rank(),
                                own.text,
                                table));
    }

    private static String withoutNumber(String text) {
        return text.substring(0, Math.max(0, text.lastIndexOf('#')));
    }

    private String table(Answer own) {
        StringBuilder b = new StringBuilder();
        @Nullable Answer[] all = answers;
        for (int r = 0; all != null && r < all.length; r++) {
            Answer a = r == comm.rank() ? own : all[r];
            b.append(r == 0 ? " " : "; ").append("rank ").append(r).append(' ');
            b.append(a == null ? comm.isAlone() ? SILENT_ALONE : SILENT : a.text);
        }
        return b.toString();
    }

    /** The status of all ranks. */
    private String standings(Answer own) {
        List<@Nullable RankStatus> all = new ArrayList<>();
        List<String> names = new ArrayList<>();
        List<String> known = new ArrayList<>();
        @Nullable Answer[] from = answers;
        for (int r = 0; from != null && r < from.length; r++) {
            Answer a = r == comm.rank() ? own : from[r];
            all.add(a == null ? null : RankStatus.read(a.standing));
            names.add("");
            known.add(a == null || !a.standing.isEmpty() ? "" : a.text);
        }
        return RankStatus.table(all, names, known);
    }

    /** The lowest rank that answers; it prints the message. */
    private int lowest() {
        @Nullable Answer[] from = answers;
        for (int r = 0; from != null && r < comm.rank(); r++) {
            if (from[r] != null && from[r].open) {
                return r;
            }
        }
        return comm.rank();
    }

    @Override
    public String toString() {
        return "rank " + comm.rank() + " of " + comm.size() + " in " + current;
    }
}
