package io.jccl.engine.nccl;

import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.ObjLongConsumer;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Two threads that poll all communicators of the process, as long as there are any: one asks CUDA,
 * which may keep it, the other everybody else.
 *
 * <p>When the JVM ends, CUDA waits for kernels that run, and those of NCCL may wait for other ranks
 * without end. And CUDA frees what a thread that is inside NCCL still uses. So communicators whose
 * work is not complete are aborted first, and no operation begins once it is known which: the
 * program's threads go on until the JVM has ended.
 */
final class Watchdog {
    private static final long PERIOD_NANOS = 50_000_000;

    /** For work that completes by itself when the JVM ends, and for telling the other ranks. */
    private static final long FINISH_NANOS = 1_000_000_000;

    /** For the abort of other work then. */
    private static final long ABORT_NANOS = 3_000_000_000L;

    private static final Set<NcclMonitor> WATCHED = ConcurrentHashMap.newKeySet();
    private static final Poller[] POLLERS = {
        new Poller("jccl-watchdog", NcclMonitor::look),
        new Poller("jccl-progress", NcclMonitor::lookAtProgress)
    };

    /** Longer than the JVM takes to end after its hooks. */
    private static final long LAST_PAUSE_NANOS = 1_000_000_000;

    private static final CountDownLatch FINISHED = new CountDownLatch(1);

    private static @Nullable Thread atExit;

    /** Whether operations are refused. */
    private static volatile boolean over;

    /** A thread and what it does to each communicator; guarded by the class. */
    private static final class Poller {
        final String name;
        final ObjLongConsumer<NcclMonitor> look;
        @Nullable Thread thread;

        Poller(String name, ObjLongConsumer<NcclMonitor> look) {
            this.name = name;
            this.look = look;
        }

        void run() {
            while (goesOn(this)) {
                for (NcclMonitor watch : WATCHED) {
                    look.accept(watch, System.nanoTime());
                }
                LockSupport.parkNanos(PERIOD_NANOS);
            }
        }
    }

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
        for (Poller p : POLLERS) {
            if (p.thread == null) {
                p.thread = Thread.ofPlatform().daemon().name(p.name).start(p::run);
            }
        }
    }

    static void forget(NcclMonitor watch) {
        WATCHED.remove(watch);
    }

    /**
     * Called after a thread has entered: throws if the JVM ends. Threads that still run end with it
     * rather than with this error.
     */
    static void checkGoesOn(NcclHandle handle) {
        if (over) {
            handle.leave();
            Waits.await(FINISHED, ABORT_NANOS + 2 * FINISH_NANOS);
            Waits.park(LAST_PAUSE_NANOS);
            throw new JcclException("no operation of NCCL begins while the JVM ends");
        }
    }

    private static void abortUnfinished() {
        try {
            boolean all = await(FINISH_NANOS, NcclMonitor::isIdle);
            over = true;
            if (all) {
                // What has begun since may wait for what another rank may no longer begin.
                await(FINISH_NANOS, NcclMonitor::isIdle);
            }
            end();
        } finally {
            FINISHED.countDown();
        }
    }

    private static void end() {
        List<NcclMonitor> unfinished = WATCHED.stream().filter(w -> !w.isIdle()).toList();
        // A store that cannot be reached must not keep the JVM.
        unfinished.forEach(w ->
                Thread.ofPlatform()
                        .daemon()
                        .name("jccl-exit-abort")
                        .start(() -> w.abort("its JVM ends")));
        Predicate<NcclMonitor> ended = w -> !unfinished.contains(w) || w.hasEnded();
        await(FINISH_NANOS, ended);
        unfinished.forEach(NcclMonitor::startAbort);
        await(ABORT_NANOS, ended);
    }

    /** Whether it holds for all within a time. */
    private static boolean await(long nanos, Predicate<NcclMonitor> all) {
        long deadline = System.nanoTime() + nanos;
        while (!WATCHED.stream().allMatch(all)) {
            if (System.nanoTime() >= deadline) {
                return false;
            }
            LockSupport.parkNanos(PERIOD_NANOS / 10);
        }
        return true;
    }

    private static synchronized boolean goesOn(Poller poller) {
        if (WATCHED.isEmpty()) {
            poller.thread = null;
            return false;
        }
        return true;
    }
}
