package io.jccl.kernel;

import io.jccl.internal.ThreadTeam;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLongArray;
import org.jspecify.annotations.Nullable;

/**
 * Threads that share the elements of one piece of work; the calling thread is one of them.
 *
 * <p>Each thread takes a contiguous share in chunks, of 65536 elements unless stated otherwise,
 * which suits memory that was first touched in the same order, and then chunks that others have not
 * started yet. Where chunks begin does not depend on the number of threads. Nothing is allocated
 * for a run.
 *
 * <p><b>Threads:</b> one at a time runs.
 */
public final class Chunks implements AutoCloseable {
    /** Elements that a thread takes at a time: some 10 microseconds' worth. */
    public static final int CHUNK = 1 << 16;

    /** Number of longs in a cache line and the one prefetched with it. */
    private static final int PAD = 16;

    /** The work on a range of elements that starts at a multiple of the chunk. */
    public abstract static class Work {
        /** Does it, on the thread with that number. */
        public abstract void run(int thread, long begin, long end);
    }

    private final int threads;
    private final ThreadTeam team;
    private final AtomicLongArray cursors;
    private @Nullable Work work;
    private long count;
    private long chunk = CHUNK;

    /** Starts threads with a name, one fewer than given. */
    public Chunks(int threads, String name) {
        this.team = new ThreadTeam(threads, name, this::share);
        this.threads = threads;
        this.cursors = new AtomicLongArray((threads + 1) * PAD);
    }

    /** Number of threads, including the calling one. */
    public int threads() {
        return threads;
    }

    /** Runs work over elements 0 to count - 1, and returns when all is done. */
    public void run(Work work, long count) {
        run(work, count, CHUNK);
    }

    /** The same in chunks of the given size; fewer than two chunks run on the caller. */
    public void run(Work work, long count, long chunk) {
        long chunks = (count + chunk - 1) / chunk;
        if (threads == 1 || chunks < 2) {
            work.run(0, 0, count);
            return;
        }
        this.work = work;
        this.count = count;
        this.chunk = chunk;
        for (int i = 0; i < threads; i++) {
            cursors.set(i * PAD, begin(i, chunks));
        }
        Throwable f = team.run();
        this.work = null;
        if (f != null) {
            throw new IllegalStateException(
                    "a piece of the work failed, the rest may be done: " + f.getMessage(), f);
        }
    }

    private long begin(int thread, long chunks) {
        return chunks / threads * thread + Math.min(thread, chunks % threads);
    }

    /** First the thread's own chunks, then what the others have left. */
    private void share(int me) {
        Work w = Objects.requireNonNull(work);
        long all = count;
        long size = chunk;
        long chunks = (all + size - 1) / size;
        for (int i = 0; i < threads; i++) {
            int whose = (me + i) % threads;
            long end = begin(whose + 1, chunks);
            long next;
            while ((next = cursors.getAndIncrement(whose * PAD)) < end) {
                long from = next * size;
                w.run(me, from, Math.min(from + size, all));
            }
        }
    }

    @Override
    public void close() {
        team.close();
    }
}
