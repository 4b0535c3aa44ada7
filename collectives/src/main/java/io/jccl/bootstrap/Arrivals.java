package io.jccl.bootstrap;

import io.jccl.error.JcclException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * What the processes of a job say of themselves when they come, as files of the job's folder, so
 * that ranks which do not fit each other all fail at once with one story, before any of them maps
 * memory that others lay out differently. Files carry the number of the run ({@link
 * Control#NONCE_AT}): those of an earlier one mean nothing.
 *
 * <p><b>Threads:</b> one.
 */
final class Arrivals {
    private static final String CARDS = "card-";
    private static final String VERDICT = "verdict-";

    /**
     * How long others may still come when it is known that ranks differ, so as to name them all.
     */
    private static final Duration REST = Duration.ofSeconds(2);

    private static final long LOOK_NANOS = 5_000_000;
    private static final long SETTLE_NANOS = 20_000_000;

    private final SharedFolder folder;
    private final RankCard own;
    private long lastLook = System.nanoTime() - LOOK_NANOS;

    Arrivals(SharedFolder folder, int rank, int size) {
        this.folder = folder;
        this.own = RankCard.own(rank, size, List.of());
    }

    /** Says that this rank is here. */
    void come(long nonce) {
        put(CARDS + nonce + "-" + own.rank(), own.write());
    }

    /** Forgets a run that all have joined, or all runs. */
    static void forget(SharedFolder folder) {
        folder.deleteAll(CARDS);
        folder.deleteAll(VERDICT);
    }

    /** Whether this rank fits rank 0, or rank 0 says nothing of itself. */
    boolean fits(long nonce) {
        String first = read(CARDS + nonce + "-0");
        return first == null || own.fits(RankCard.read(0, first));
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
        String verdict = read(VERDICT + nonce);
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
        return folder.isHeld(0) && nonce == folder.word(ProcessJob.CONTROL, Control.NONCE_AT);
    }

    /**
     * This rank differs from rank 0: tells all, and throws. Returns if rank 0 is of a run that has
     * ended.
     *
     * @param deadline as of {@link System#nanoTime}
     */
    void judge(long nonce, long deadline) {
        long until = Math.min(System.nanoTime() + REST.toNanos(), deadline);
        List<RankCard> cards = cards(nonce);
        while (System.nanoTime() - until < 0
                && cards.size() < cards.stream().mapToInt(RankCard::size).max().orElse(0)) {
            LockSupport.parkNanos(LOOK_NANOS);
            throwVerdict(nonce);
            cards = cards(nonce);
        }
        String story = RankCard.differences("this job in " + folder.path(), cards);
        if (story != null && isCurrent(nonce)) {
            link(VERDICT + nonce, story);
        }
        throwVerdict(nonce);
    }

    private List<RankCard> cards(long nonce) {
        String prefix = CARDS + nonce + "-";
        List<RankCard> cards = new ArrayList<>();
        try (DirectoryStream<Path> files =
                Files.newDirectoryStream(folder.path(), prefix + "*[0-9]")) {
            for (Path f : files) {
                String name = String.valueOf(f.getFileName());
                String text = read(name);
                if (text != null) {
                    int rank = Integer.parseInt(name.substring(prefix.length()));
                    cards.add(RankCard.read(rank, text));
                }
            }
        } catch (NoSuchFileException e) {
            // All have left.
        } catch (IOException e) {
            throw new UncheckedIOException("cannot read " + folder.path(), e);
        }
        cards.sort(Comparator.comparingInt(RankCard::rank));
        return cards;
    }

    private @Nullable String read(String name) {
        try {
            return Files.readString(folder.path().resolve(name));
        } catch (NoSuchFileException e) {
            return null;
        } catch (IOException e) {
            throw new UncheckedIOException("cannot read " + name + " in " + folder.path(), e);
        }
    }

    /** Writes a file that nobody sees half written. */
    private void put(String name, String text) {
        Path part = part(name, text);
        try {
            Files.move(part, folder.path().resolve(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + name + " in " + folder.path(), e);
        }
    }

    /** The same, unless somebody was first. */
    private void link(String name, String text) {
        Path part = part(name, text);
        try {
            Files.createLink(folder.path().resolve(name), part);
        } catch (FileAlreadyExistsException e) {
            // Then that counts.
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + name + " in " + folder.path(), e);
        } finally {
            folder.delete(String.valueOf(part.getFileName()));
        }
    }

    private Path part(String name, String text) {
        Path part = folder.path().resolve(name + "." + own.rank() + ".part");
        try {
            return Files.writeString(part, text);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + part, e);
        }
    }
}
