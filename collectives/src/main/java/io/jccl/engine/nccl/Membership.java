package io.jccl.engine.nccl;

import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.bootstrap.LocalPeers;
import io.jccl.bootstrap.RankInfo;
import io.jccl.bootstrap.StoreHandshake;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.rendezvous.Store;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The ranks of one communicator as seen through the store: which have joined, which failed first,
 * and the progress of each.
 *
 * <p><b>Threads:</b> any.
 */
final class Membership {
    private static final String FAILED = "failed";
    private static final String DISAGREEMENT = "disagreement";
    private static final String ASK = "ask";

    /** {@link #TOGETHER} if all have made the communicator; else why one has given up before. */
    private static final String DECIDED = "decided";

    private static final byte[] TOGETHER = {1};

    private static final String FLIGHT = "flight";
    private static final String REPORT = "report";
    private static final long DRAWN_NANOS = 1_000_000_000L;
    private static final int MOST_RANKS = 1 << 20;

    private final Store store;
    private final String name;
    private final int rank;
    private final int size;

    /** The ranks' processes, if it can be observed which of them are alive; else null. */
    private final @Nullable LocalPeers meeting;

    /** Each rank's process in the group, if there is one; -1 as long as it has not been read. */
    private final AtomicIntegerArray processes;

    private volatile @Nullable String id;

    /** Whether this rank has left; the store may then be closed. */
    private volatile boolean gone;

    /** Whether the other ranks count on this one, so that its failure is theirs. */
    private volatile boolean member = true;

    Membership(Store store, String name, int rank, int size) {
        // The size may be absurdly large by mistake, which the handshake tells all ranks.
        this(store, name, rank, size, null, new AtomicIntegerArray(0));
    }

    private Membership(
            Store store,
            String name,
            int rank,
            int size,
            @Nullable LocalPeers meeting,
            AtomicIntegerArray processes) {
        this.store = store;
        this.name = name;
        this.rank = rank;
        this.size = size;
        this.meeting = meeting;
        this.processes = processes;
    }

    /** Refuses a size that can only be a mistake, where no handshake compares it. */
    static void checkSize(int size) {
        if (size > MOST_RANKS) {
            throw new IllegalArgumentException(
                    "size is " + size + ", expected at most " + MOST_RANKS);
        }
    }

    /** The membership of the processes of a local group. */
    static Membership of(Store store, String name, LocalPeers meeting) {
        int size = meeting.size();
        AtomicIntegerArray processes = new AtomicIntegerArray(size);
        for (int r = 0; r < size; r++) {
            processes.set(r, r);
        }
        return new Membership(store, name, meeting.rank(), size, meeting, processes);
    }

    private Membership of(String name, int rank, int size) {
        AtomicIntegerArray unknown = new AtomicIntegerArray(meeting == null ? 0 : size);
        for (int r = 0; r < unknown.length(); r++) {
            unknown.set(r, -1);
        }
        Membership made = new Membership(store, name, rank, size, meeting, unknown);
        if (meeting != null) {
            made.put(made.key("process", rank), Integer.toString(meeting.rank()));
        }
        return made;
    }

    /** The membership of a communicator created from this one. */
    Membership child(String suffix, int rank, int size) {
        return of(name + "." + suffix, rank, size);
    }

    /** The membership without some ranks, given the remaining old ranks in order. */
    Membership without(String suffix, List<Integer> remaining) {
        AtomicIntegerArray known = new AtomicIntegerArray(remaining.size());
        for (int r = 0; r < remaining.size(); r++) {
            known.set(r, meeting == null ? -1 : processOf(remaining.get(r)));
        }
        return new Membership(
                store,
                name + "." + suffix,
                remaining.indexOf(rank),
                remaining.size(),
                meeting,
                known);
    }

    /** The membership of a communicator with another name in the same store. */
    Membership other(String name, int size) {
        return of(name, rank, size);
    }

    /**
     * Distinguishes this communicator from those of other stores. Rank 0 draws a random number at
     * creation; other ranks wait briefly for it. Without a store it is the name alone.
     */
    String id() {
        String known = id;
        if (known == null) {
            known = name;
            try {
                long drawn = gone ? 0 : rank == 0 ? store.add(key(FLIGHT), random()) : awaitDrawn();
                known = drawn == 0 ? name : Long.toHexString(drawn) + "/" + name;
            } catch (RuntimeException e) {
                // The store was closed first; the name alone will do.
            }
            id = known;
        }
        return known;
    }

    private static long random() {
        return ThreadLocalRandom.current().nextLong(1, 1L << 48);
    }

    private long awaitDrawn() {
        long deadline = System.nanoTime() + DRAWN_NANOS;
        long drawn = store.add(key(FLIGHT), 0);
        while (drawn == 0 && System.nanoTime() < deadline) {
            LockSupport.parkNanos(5_000_000);
            drawn = store.add(key(FLIGHT), 0);
        }
        return drawn;
    }

    String name() {
        return name;
    }

    int rank() {
        return rank;
    }

    int size() {
        return size;
    }

    private String key(String what) {
        return name + "/" + what;
    }

    private String key(String what, int rank) {
        return key(what + "-" + rank);
    }

    private void put(String key, String value) {
        store.set(key, value.getBytes(StandardCharsets.UTF_8));
    }

    private @Nullable String read(String key) {
        byte[] value = store.get(key);
        return value == null ? null : new String(value, StandardCharsets.UTF_8);
    }

    /** Called first where {@link #callTheRoll} follows: until then no rank counts on this one. */
    void beginHandshake() {
        member = false;
    }

    /**
     * Waits until all ranks have joined with compatible settings, or the attempt has failed.
     *
     * @param facts what must be identical on all ranks
     * @param timeout how long to wait
     * @throws JcclException on all ranks, if one is missing or incompatible
     */
    void callTheRoll(List<RankInfo.Fact> facts, Duration timeout) {
        StoreHandshake handshake = new StoreHandshake(store, name, rank, size);
        try {
            handshake.answer(facts, timeout, this::broken);
        } finally {
            member = handshake.isMember();
        }
    }

    void publish(String what, byte[] value) {
        store.set(key(what), value);
    }

    /** Waits for a value that rank 0 publishes. */
    byte[] await(String what, long deadline, Duration timeout) {
        while (true) {
            long left = Math.max(deadline - System.nanoTime(), 0);
            try {
                return store.await(key(what), Duration.ofNanos(Math.min(left, 200_000_000)));
            } catch (JcclTimeoutException e) {
                throwIfFailed();
                if (left == 0) {
                    throw new CollectiveTimeoutException(
                            ("rank 0 did not publish the %s of communicator '%s' within %s: look"
                                            + " at its output, or raise the timeout")
                                    .formatted(what, name, timeout));
                }
            }
        }
    }

    /**
     * Waits until all ranks have made the communicator. All return or none does: who wants to give
     * up after all have made it returns as well, and meets the failure in its first operation.
     */
    void confirm(Duration timeout) {
        try {
            if (store.add(key("made"), 1) == size) {
                store.compareAndSet(key(DECIDED), null, TOGETHER);
            }
            awaitDecision(System.nanoTime() + Deadline.nanos(timeout), timeout);
        } catch (RuntimeException | Error e) {
            String why = "rank " + rank + " gave up: " + e.getMessage();
            store.compareAndSet(key(DECIDED), null, why.getBytes(StandardCharsets.UTF_8));
            if (!Arrays.equals(store.get(key(DECIDED)), TOGETHER)) {
                throw e;
            }
        }
    }

    private void awaitDecision(long deadline, Duration timeout) {
        while (true) {
            long left = Math.max(deadline - System.nanoTime(), 0);
            try {
                byte[] decided =
                        store.await(key(DECIDED), Duration.ofNanos(Math.min(left, 200_000_000)));
                if (Arrays.equals(decided, TOGETHER)) {
                    return;
                }
                throwIfFailed();
                throw cannotBeMade(new String(decided, StandardCharsets.UTF_8));
            } catch (JcclTimeoutException e) {
                throwIfFailed();
                if (left == 0) {
                    throw new CollectiveTimeoutException(
                            ("rank %s waited %s until all other ranks have made communicator '%s':"
                                            + " look at their output, or raise the timeout")
                                    .formatted(rank, timeout, name));
                }
            }
        }
    }

    /**
     * Notifies the others that this rank has failed; only the first failure of all ranks is kept.
     */
    void fail(RuntimeException error) {
        String reason = String.valueOf(error.getMessage());
        // For ranks that still wait in the handshake: this one may have failed before it joined.
        new StoreHandshake(store, name, rank, size).fail("rank " + rank + ": " + reason);
        if (member && store.add(key("failures"), 1) == 1) {
            if (error instanceof CollectiveMismatchException) {
                put(key(DISAGREEMENT), reason);
            }
            put(key(FAILED), "rank " + rank + ": " + reason);
        }
    }

    /** Publishes the status of all ranks at a timeout, and which rank prints it. */
    void report(int printer, String table) {
        put(key(REPORT), printer + "\n" + table);
    }

    /** That status, if this rank is the one to print it; else null. */
    @Nullable String report() {
        String said = read(key(REPORT));
        String own = rank + "\n";
        return said != null && said.startsWith(own) ? said.substring(own.length()) : null;
    }

    /**
     * The mismatch between the ranks' operations, if that was the first error; all get the same.
     */
    @Nullable CollectiveMismatchException disagreement() {
        String said = read(key(DISAGREEMENT));
        return said == null ? null : new CollectiveMismatchException(said);
    }

    /** The message of the first rank that failed, or null. */
    @Nullable String failure() {
        return read(key(FAILED));
    }

    private void throwIfFailed() {
        String b = broken();
        if (b != null) {
            throw cannotBeMade(b);
        }
    }

    private RankFailedException cannotBeMade(String why) {
        return new RankFailedException(
                "communicator '" + name + "' cannot be made: " + why.replace('\n', ' '));
    }

    /** The reason for which this communicator is broken: a rank failed or is lost; else null. */
    @Nullable String broken() {
        // In this order: a failing rank publishes its message before its process ends.
        List<Integer> lost = lost();
        String failure = failure();
        if (failure != null || lost.isEmpty()) {
            return failure;
        }
        return (lost.size() == 1 ? "rank " + lost.getFirst() + " is" : "ranks " + lost + " are")
                + " lost: the process was killed, or ended without closing the communicator";
    }

    /** Whether the end of a rank's process is noticed at once. */
    boolean knowsProcesses() {
        return meeting != null;
    }

    /** A rank's process in the group; -1 if it has not published it yet. */
    private int processOf(int r) {
        if (processes.get(r) < 0) {
            String said = read(key("process", r));
            processes.set(r, said == null ? -1 : Integer.parseInt(said));
        }
        return processes.get(r);
    }

    /** None once this rank has left: it no longer knows. */
    private List<Integer> lost() {
        List<Integer> lost = new ArrayList<>();
        for (int r = 0; r < size && meeting != null && !gone; r++) {
            int process = processOf(r);
            // In this order: a rank publishes that it leaves before its process ends.
            if (r != rank
                    && process >= 0
                    && !meeting.isAlive(process)
                    && store.get(key("left", r)) == null) {
                lost.add(r);
            }
        }
        return lost;
    }

    /** Publishes that this rank has closed its communicator. */
    void leave() {
        gone = true;
        put(key("left", rank), "");
        store.add(key("leaving"), 1);
    }

    /** The ranks that have closed their communicator. */
    List<Integer> left() {
        List<Integer> gone = new ArrayList<>();
        if (store.add(key("leaving"), 0) > 0) {
            for (int r = 0; r < size; r++) {
                if (store.get(key("left", r)) != null) {
                    gone.add(r);
                }
            }
        }
        return gone;
    }

    /** Publishes a heartbeat. */
    void beat(long number) {
        put(key("beat", rank), Long.toString(number));
    }

    /** A rank's last heartbeat, or null. */
    @Nullable String beatOf(int rank) {
        return read(key("beat", rank));
    }

    /** Requests every rank's progress; returns the number of the request. */
    long ask() {
        long question = store.add(key("questions"), 1);
        put(key(ASK), Long.toString(question));
        return question;
    }

    /** The number of the last request, 0 if there was none. */
    long asked() {
        String question = read(key(ASK));
        return question == null ? 0 : Long.parseLong(question);
    }

    void answer(long question, NcclProgress progress) {
        put(key("progress", rank), question + " " + progress.write());
    }

    /** Each rank's answer to a request or a later one; null if it has not answered. */
    List<@Nullable NcclProgress> answers(long question) {
        // Of two ranks that send a request at once, the one with the lower number may have written
        // last.
        if (asked() < question) {
            put(key(ASK), Long.toString(question));
        }
        List<@Nullable NcclProgress> all = new ArrayList<>();
        for (int r = 0; r < size; r++) {
            String said = read(key("progress", r));
            int blank = said == null ? 0 : said.indexOf(' ');
            all.add(
                    said == null || Long.parseLong(said, 0, blank, 10) < question
                            ? null
                            : NcclProgress.read(said.substring(blank + 1)));
        }
        return all;
    }
}
