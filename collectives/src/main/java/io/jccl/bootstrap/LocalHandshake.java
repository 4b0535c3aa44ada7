package io.jccl.bootstrap;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.error.JcclException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;

/**
 * What the processes of a job say of themselves when they come, as files of the job's folder, so
 * that ranks which do not fit each other all fail at once with one story, before any of them maps
 * memory that others lay out differently. Files carry the number of the run ({@link
 * ControlBlock#NONCE_AT}): those of an earlier one mean nothing.
 *
 * <p>While it waits, a rank also watches the others. One that cannot join leaves its reason in a
 * file, with the token of its lock; it counts for those who have seen that rank join with that
 * token, so not for a later run. One that is killed leaves its lock free and the token in it.
 *
 * <p><b>Threads:</b> one.
 */
final class LocalHandshake {
    private static final String CARDS = "card-";
    private static final String VERDICT = "verdict-";

    /**
     * How long others may still come when it is known that ranks differ, so as to name them all.
     */
    private static final Duration REST = Duration.ofSeconds(2);

    private static final long LOOK_NANOS = 5_000_000;
    private static final long SETTLE_NANOS = 20_000_000;
    private static final long WATCH_NANOS = 50_000_000;
    private static final long WATCH_NANOS_EACH = 4_000_000;

    private static final long PAUSE_NANOS = 1_000_000_000;
    private static final long OWN_PAUSE_NANOS = 5_000_000_000L;

    /** Marks a refusal of a rank that has waited too long. */
    private static final String LATE = "late";

    private final SharedFolder folder;
    private final IntFunction<FileLocks.Look> locks;
    private final RankInfo own;
    private long lastLook = System.nanoTime() - LOOK_NANOS;

    /** The token of each rank that was seen joining; 0 for others. */
    private final long[] tokens;

    private final long watchNanos;
    private long lastWatch;
    private long lastNew;
    private boolean told;

    LocalHandshake(SharedFolder folder, int rank, int size) {
        this(folder, rank, size, folder::look);
    }

    /**
     * With another way to look at locks, for tests.
     *
     * @param locks the lock of a rank
     */
    LocalHandshake(SharedFolder folder, int rank, int size, IntFunction<FileLocks.Look> locks) {
        this.folder = folder;
        this.locks = locks;
        this.own = RankInfo.own(rank, size, List.of());
        this.tokens = new long[size];
        // Every rank opens every other one's file.
        this.watchNanos = Math.max(WATCH_NANOS, size * WATCH_NANOS_EACH);
        this.lastWatch = System.nanoTime() - watchNanos;
    }

    /** Says that this rank is here. */
    void come(long nonce) {
        folder.put(CARDS + nonce + "-" + own.rank(), own.write(), own.rank());
    }

    /** Forgets a run that all have joined, or all runs. */
    static void forget(SharedFolder folder) {
        folder.deleteAll(CARDS);
        folder.deleteAll(VERDICT);
    }

    /** Whether this rank fits rank 0, or rank 0 says nothing of itself. */
    boolean fits(long nonce) {
        String first = folder.read(CARDS + nonce + "-0");
        return first == null || own.fits(RankInfo.read(0, first));
    }

    /** Throws if somebody has found that ranks differ; looks now and then only. */
    void checkVerdict(long nonce) {
        long now = System.nanoTime();
        if (now - lastLook >= LOOK_NANOS) {
            lastLook = now;
            throwVerdict(nonce);
        }
    }

    private void throwVerdict(long nonce) {
        String verdict = folder.read(VERDICT + nonce);
        if (verdict == null) {
            return;
        }
        if (own.rank() == 0) {
            awaitOthers(nonce);
        } else {
            // What a run that was killed has left, a new rank 0 clears away at once.
            LockSupport.parkNanos(SETTLE_NANOS);
            if (!isCurrent(nonce)) {
                return;
            }
        }
        told = true;
        throw new JcclException(verdict);
    }

    /** Rank 0 leaves last: that it is there is what makes the verdict one of this run. */
    private void awaitOthers(long nonce) {
        long until = System.nanoTime() + REST.toNanos();
        while (System.nanoTime() - until < 0
                && cards(nonce).stream().anyMatch(c -> c.rank() != 0 && folder.isHeld(c.rank()))) {
            LockSupport.parkNanos(LOOK_NANOS);
        }
    }

    private boolean isCurrent(long nonce) {
        return folder.isHeld(0)
                && nonce == folder.word(LocalProcessGroup.CONTROL, ControlBlock.NONCE_AT);
    }

    /**
     * This rank differs from rank 0: tells all, and throws. Returns if rank 0 is of a run that has
     * ended.
     *
     * @param deadline as of {@link System#nanoTime}
     */
    void judge(long nonce, long deadline) {
        long until = Math.min(System.nanoTime() + REST.toNanos(), deadline);
        List<RankInfo> cards = cards(nonce);
        while (System.nanoTime() - until < 0
                && cards.size() < cards.stream().mapToInt(RankInfo::size).max().orElse(0)) {
            LockSupport.parkNanos(LOOK_NANOS);
            throwVerdict(nonce);
            cards = cards(nonce);
        }
        String story = RankInfo.differences("this job in " + folder.path(), cards);
        if (story != null && isCurrent(nonce)) {
            folder.putFirst(VERDICT + nonce, story, own.rank());
        }
        throwVerdict(nonce);
    }

    private List<RankInfo> cards(long nonce) {
        String prefix = CARDS + nonce + "-";
        List<RankInfo> cards = new ArrayList<>();
        try (DirectoryStream<Path> files =
                Files.newDirectoryStream(folder.path(), prefix + "*[0-9]")) {
            for (Path f : files) {
                String name = String.valueOf(f.getFileName());
                String text = folder.read(name);
                if (text != null) {
                    int rank = Integer.parseInt(name.substring(prefix.length()));
                    cards.add(RankInfo.read(rank, text));
                }
            }
        } catch (NoSuchFileException e) {
            // All have left.
        } catch (IOException e) {
            throw new UncheckedIOException("cannot read " + folder.path(), e);
        }
        cards.sort(Comparator.comparingInt(RankInfo::rank));
        return cards;
    }

    // ---- who cannot come

    /** The file in which a rank says why it cannot join. */
    static String refusal(int rank) {
        return "refused-" + rank;
    }

    /**
     * Looks at the other ranks, at their files only now and then.
     *
     * @param met the memory of this run, once rank 0 has been met in it; null before
     * @throws RankFailedException if one has said that it cannot join, or ended without a word
     * @throws CollectiveTimeoutException if one has waited too long
     */
    void checkOthers(@Nullable ControlBlock met) {
        if (met != null && met.aborted()) {
            told = true;
            throw met.ended();
        }
        long now = System.nanoTime();
        if (now - lastWatch < watchNanos) {
            return;
        }
        lastWatch = now;
        int dead = look(met);
        for (int r = 0; r < tokens.length; r++) {
            // Read after the look: who refuses says so before it lets go of its lock.
            String said = tokens[r] == 0 || r == own.rank() ? null : folder.read(refusal(r));
            if (said != null && said.startsWith(Long.toHexString(tokens[r]) + " ")) {
                told = true;
                String story = said.substring(said.indexOf('\n') + 1);
                throw said.substring(0, said.indexOf('\n')).endsWith(LATE)
                        ? new CollectiveTimeoutException(story)
                        : new RankFailedException(story);
            }
        }
        // All may have met since: then this one only has not seen it yet.
        if (dead >= 0 && (met == null || met.acquire(ControlBlock.GO_AT) != 1)) {
            long pid = FileLocks.pid(tokens[dead]);
            throw new RankFailedException(
                    "rank "
                            + dead
                            + (pid == 0 ? "" : " (process " + pid + ")")
                            + " ended while the ranks of the job in "
                            + folder.path()
                            + " were joining: look at its output");
        }
    }

    /** Looks at all; returns one that was here and is no more, or -1. */
    private int look(@Nullable ControlBlock met) {
        int left = -1;
        int killed = -1;
        for (int r = 0; r < tokens.length; r++) {
            // Read before the lock: a rank locks its file first, and may come after the look.
            boolean came =
                    met != null && (r == 0 || met.acquire(met.state(r) + ControlBlock.JOIN) != 0);
            FileLocks.Look look = r == own.rank() ? new FileLocks.Look(true, 0) : locks.apply(r);
            if (look.held()) {
                if (look.token() != 0 && tokens[r] != look.token()) {
                    tokens[r] = look.token();
                    lastNew = System.nanoTime();
                }
            } else if (look.token() != 0 && look.token() == tokens[r]) {
                killed = r;
            } else if (came) {
                left = r;
            }
        }
        return killed >= 0 ? killed : left;
    }

    /** Whether this rank ends by what all others hear too. */
    boolean isTold() {
        return told;
    }

    /**
     * Says why this rank cannot join. Who is here reads it, even after this process has ended.
     *
     * @param token of this rank's lock
     */
    void refuse(long token, Throwable why) {
        String late = why instanceof CollectiveTimeoutException ? LATE : "";
        folder.put(
                refusal(own.rank()),
                Long.toHexString(token) + " " + late + "\n" + story(why),
                own.rank());
    }

    /**
     * Waits a moment for those who are on their way, so that they read the reason as well: longer
     * if it is this rank's own, which only it knows; not at all if they had the time to come.
     */
    void awaitLate(Throwable why) {
        long pause =
                why instanceof CollectiveTimeoutException
                        ? 0
                        : why instanceof RankFailedException ? PAUSE_NANOS : OWN_PAUSE_NANOS;
        long since = System.nanoTime();
        int unused = look(null);
        // Who has just come has to see this rank's lock: only then it believes its words.
        while (System.nanoTime() - (isMissing() ? since + pause : lastNew + 2 * watchNanos) < 0) {
            LockSupport.parkNanos(LOOK_NANOS);
            unused = look(null);
        }
    }

    /** What others are told of an error of this rank. */
    String story(Throwable why) {
        String message = String.valueOf(why.getMessage());
        return why instanceof CollectiveTimeoutException || why instanceof RankFailedException
                ? message
                : "rank "
                        + own.rank()
                        + " ("
                        + own.process()
                        + ") cannot join the job in "
                        + folder.path()
                        + ": "
                        + (why instanceof JcclException
                                ? message
                                : why instanceof UncheckedIOException io
                                        ? message + ": " + io.getCause()
                                        : why.toString());
    }

    private boolean isMissing() {
        for (int r = 0; r < tokens.length; r++) {
            if (r != own.rank() && tokens[r] == 0) {
                return true;
            }
        }
        return false;
    }
}
