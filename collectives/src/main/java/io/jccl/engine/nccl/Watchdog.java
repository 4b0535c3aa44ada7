package io.jccl.engine.nccl;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * One thread that polls all communicators of the process, as long as there are any.
 *
 * <p>When the JVM ends, CUDA waits for kernels that run, and those of NCCL may wait for other ranks
 * without end: such communicators are aborted first.
 */
final class Watchdog {
    private static final long PERIOD_NANOS = 50_000_000;

    /** For work that completes by itself when the JVM ends. */
    private static final long FINISH_NANOS = 1_000_000_000;

    /** For the abort of other work then. */
    private static final long ABORT_NANOS = 3_000_000_000L;

    private static final Set<NcclMonitor> WATCHED = ConcurrentHashMap.newKeySet();
    private static @Nullable Thread thread;
    private static @Nullable Thread atExit;

    private Watchdog() {}

    static synchronized void watch(NcclMonitor watch) {
        if (atExit == null) {
            atExit = Thread.ofPlatform().name("jccl-exit").unstarted(Watchdog::abortUnfinished);
            try {
                Runtime.getRuntime().addShutdownHook(atExit);
            } catch (IllegalStateException e) {
                // The JVM is ending already.
            }
        }
        WATCHED.add(watch);
        if (thread == null) {
            thread = Thread.ofPlatform().daemon().name("jccl-watchdog").start(Watchdog::run);
        }
    }

    static void forget(NcclMonitor watch) {
        WATCHED.remove(watch);
    }

    private static void run() {
        while (goesOn()) {
            long now = System.nanoTime();
            for (NcclMonitor watch : WATCHED) {
                watch.look(now);
            }
            LockSupport.parkNanos(PERIOD_NANOS);
        }
    }

    private static void abortUnfinished() {
        await(FINISH_NANOS, NcclMonitor::isComplete);
        WATCHED.stream().filter(w -> !w.isComplete()).forEach(NcclMonitor::abort);
        await(ABORT_NANOS, w -> w.isComplete() || w.hasEnded());
    }

    private static void await(long nanos, Predicate<NcclMonitor> all) {
        long deadline = System.nanoTime() + nanos;
        while (!WATCHED.stream().allMatch(all) && System.nanoTime() < deadline) {
            LockSupport.parkNanos(PERIOD_NANOS / 10);
        }
    }

    private static synchronized boolean goesOn() {
        if (WATCHED.isEmpty()) {
            thread = null;
            return false;
        }
        return true;
    }
}
