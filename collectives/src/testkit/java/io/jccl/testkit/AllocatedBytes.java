package io.jccl.testkit;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.function.Predicate;
import java.util.stream.LongStream;

/** What the calling thread and some others allocate on the Java heap from a moment on. */
public final class AllocatedBytes {
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final long[] threads;
    private final long[] before;

    private AllocatedBytes(long[] threads) {
        this.threads = threads;
        this.before = new long[threads.length];
        for (int i = 0; i < threads.length; i++) {
            before[i] = THREADS.getThreadAllocatedBytes(threads[i]);
        }
    }

    /**
     * Begins now, for the calling thread alone.
     *
     * @return what it allocates from now on
     */
    public static AllocatedBytes own() {
        return new AllocatedBytes(new long[] {Thread.currentThread().threadId()});
    }

    /**
     * Begins now.
     *
     * @param others which threads of this JVM count beside the calling one
     * @return what they allocate from now on
     */
    public static AllocatedBytes from(Predicate<Thread> others) {
        Thread own = Thread.currentThread();
        return new AllocatedBytes(
                LongStream.concat(
                                LongStream.of(own.threadId()),
                                Thread.getAllStackTraces().keySet().stream()
                                        .filter(t -> t != own && others.test(t))
                                        .mapToLong(Thread::threadId))
                        .toArray());
    }

    /**
     * The bytes since {@link #from}. A thread that has ended meanwhile, left by an earlier test,
     * counts as none.
     *
     * @return 0 or more
     */
    public long since() {
        long sum = 0;
        for (int i = 0; i < threads.length; i++) {
            long now = THREADS.getThreadAllocatedBytes(threads[i]);
            sum += now < 0 || before[i] < 0 ? 0 : now - before[i];
        }
        return sum;
    }
}
