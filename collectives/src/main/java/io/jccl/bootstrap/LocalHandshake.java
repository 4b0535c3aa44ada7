package io.jccl.bootstrap;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
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
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;

/**
 * The compatibility check of a job's processes, by files in the job's folder: incompatible ranks
 * all fail at once with the same error message, before any of them maps memory that others lay out
 * differently. File names contain the number of the run ({@link ControlBlock#NONCE_AT}), so files
 * of an earlier run are ignored.
 *
 * <p>While it waits, a rank also watches the others. A rank that cannot join writes the reason to a
 * file, with the token of its lock. Only ranks that have seen that token take notice of it, so it
 * does not affect a later run. The lock of a killed rank is free and still has the token.
 *
 * <p><b>Threads:</b> one.
 */
final class LocalHandshake {
    private static final String CARDS = "card-";
    private static final String VERDICT = "verdict-";

    /**
     * How long to wait for further ranks once a difference is known, so that the message names all.
     */
    private static final Duration REST = Duration.ofSeconds(2);

    private static final long LOOK_NANOS = 5_000_000;
    private static final long SETTLE_NANOS = 20_000_000;
    private static final long WATCH_NANOS = 50_000_000;
    private static final long WATCH_NANOS_EACH = 4_000_000;

    private static final long PAUSE_NANOS = 1_000_000_000;
    private static final long OWN_PAUSE_NANOS = 5_000_000_000L;

    /** Marks the refusal of a rank whose timeout expired. */
    private static final String LATE = "late";

    private final SharedFolder folder;
    private final IntFunction<FileLocks.Look> locks;
    private final RankInfo own;
    private long lastLook = System.nanoTime() - LOOK_NANOS;

    /** The token of each rank that was observed joining; 0 for others. */
    private final long[] tokens;

    private final long watchNanos;
    private long lastWatch;
    private long lastNew;
    private boolean told;

    /**
     * Creates one.
     *
     * @param token of this rank's lock
     */
    LocalHandshake(SharedFolder folder, int rank, int size, long token) {
        this(folder, rank, size, folder::look);
        // Another process that has this rank's number too may refuse it.
        tokens[rank] = token;
    }

    /**
     * With another way to inspect locks, for tests.
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

    /** Publishes this rank's information. */
    void come(long nonce) {
        folder.put(CARDS + nonce + "-" + own.rank(), own.write(), own.rank());
    }

    /** Deletes the files of all runs, once all ranks have joined or before any has. */
    static void forget(SharedFolder folder) {
        folder.deleteAll(CARDS);
        folder.deleteAll(VERDICT);
    }

    /** Whether this rank is compatible with rank 0, or rank 0 has published nothing. */
    boolean fits(long nonce) {
        String first = folder.read(CARDS + nonce + "-0");
        return first == null || own.fits(RankInfo.read(0, first));
    }

    /** Throws if a rank has found a difference; reads the file only every few milliseconds. */
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
            // A new rank 0 immediately deletes what a killed run has left.
            Waits.park(SETTLE_NANOS);
            if (!isCurrent(nonce)) {
                return;
            }
        }
        told = true;
        throw new JcclException(verdict);
    }

    /** Rank 0 leaves last: its lock shows that the verdict belongs to this run. */
    private void awaitOthers(long nonce) {
        long until = System.nanoTime() + REST.toNanos();
        while (System.nanoTime() - until < 0
                && cards(nonce).stream().anyMatch(c -> c.rank() != 0 && folder.isHeld(c.rank()))) {
            Waits.park(LOOK_NANOS);
        }
    }

    private boolean isCurrent(long nonce) {
        return folder.isHeld(0)
                && nonce == folder.word(LocalProcessGroup.CONTROL, ControlBlock.NONCE_AT);
    }

    /**
     * Called if this rank differs from rank 0: reports the difference to all ranks and throws.
     * Returns if rank 0 belongs to a run that has ended.
     *
     * @param deadline as of {@link System#nanoTime}
     */
    void judge(long nonce, long deadline) {
        long until = Math.min(System.nanoTime() + REST.toNanos(), deadline);
        List<RankInfo> cards = cards(nonce);
        while (System.nanoTime() - until < 0
                && cards.size() < cards.stream().mapToInt(RankInfo::size).max().orElse(0)) {
            Waits.park(LOOK_NANOS);
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

    // ---- ranks that cannot join

    /** The file in which a rank reports why it cannot join. */
    static String refusal(int rank) {
        return "refused-" + rank;
    }

    /**
     * Checks the other ranks; their files only every 50 ms or more.
     *
     * @param met the memory of this run, once rank 0 has responded in it; null before
     * @throws RankFailedException if one has reported that it cannot join, or has ended without a
     *     report
     * @throws CollectiveTimeoutException if the timeout of one has expired
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
            // Read after the locks: a rank reports its refusal before it releases its lock.
            String said = tokens[r] == 0 ? null : folder.read(refusal(r));
            if (said != null && said.startsWith(Long.toHexString(tokens[r]) + " ")) {
                told = true;
                String story = said.substring(said.indexOf('\n') + 1);
                throw said.substring(0, said.indexOf('\n')).endsWith(LATE)
                        ? new CollectiveTimeoutException(story)
                        : new RankFailedException(story);
            }
        }
        // If all have joined since, this rank has only not noticed yet.
        if (dead >= 0 && (met == null || met.acquire(ControlBlock.GO_AT) != 1)) {
            long pid = FileLocks.pid(tokens[dead]);
            throw new RankFailedException(
                    ("rank %s%s ended while the ranks of the job in %s were joining: look at its"
                                    + " output")
                            .formatted(
                                    dead, pid == 0 ? "" : " (process " + pid + ")", folder.path()));
        }
    }

    /** Inspects all locks; returns a rank that was present and has ended, or -1. */
    private int look(@Nullable ControlBlock met) {
        int left = -1;
        int killed = -1;
        for (int r = 0; r < tokens.length; r++) {
            // Read before the lock: a rank may lock its file and join right after the inspection.
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

    /** Whether all other ranks also receive the error that ends this rank. */
    boolean isTold() {
        return told;
    }

    /**
     * Reports why this rank cannot join; present ranks read it even after this process has ended.
     *
     * @param token of this rank's lock
     */
    void refuse(long token, Throwable why) {
        String late = why instanceof CollectiveTimeoutException ? LATE : "";
        // Of two processes with this number both may write.
        folder.put(
                refusal(own.rank()),
                Long.toHexString(token) + " " + late + "\n" + story(why),
                (int) ProcessHandle.current().pid());
    }

    /** The error of all ranks if this process finds its number taken by the token's process. */
    JcclException claimedTwice(String jobId) {
        long token = tokens[own.rank()];
        JcclException error =
                new RankFailedException(
                        ("processes %s and %s both join job %s as rank %s; give each its own rank,"
                                        + " or one run another JCCL_JOB_ID")
                                .formatted(
                                        FileLocks.pid(token),
                                        ProcessHandle.current().pid(),
                                        jobId,
                                        own.rank()));
        try {
            refuse(token, error);
        } catch (RuntimeException e) {
            error.addSuppressed(e); // such as of a folder that was deleted meanwhile
        }
        return error;
    }

    /**
     * Waits briefly for ranks that are still starting, so that they read the reason as well: longer
     * if only this rank knows the reason, and not at all after a timeout.
     */
    void awaitLate(Throwable why) {
        long pause =
                why instanceof CollectiveTimeoutException
                        ? 0
                        : why instanceof RankFailedException ? PAUSE_NANOS : OWN_PAUSE_NANOS;
        long since = System.nanoTime();
        int unused = look(null);
        // A rank that has just come must observe this rank's lock before it accepts the report.
        while (System.nanoTime() - (isMissing() ? since + pause : lastNew + 2 * watchNanos) < 0) {
            Waits.park(LOOK_NANOS);
            unused = look(null);
        }
    }

    /** The message that other ranks receive about an error of this rank. */
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
