package io.jccl.engine.nccl;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/** One thread that polls all communicators of the process, as long as there are any. */
final class Watchdog {
    private static final long PERIOD_NANOS = 50_000_000;

    private static final Set<NcclMonitor> WATCHED = ConcurrentHashMap.newKeySet();
    private static @Nullable Thread thread;

    private Watchdog() {}

    static synchronized void watch(NcclMonitor watch) {
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

    private static synchronized boolean goesOn() {
        if (WATCHED.isEmpty()) {
            thread = null;
            return false;
        }
        return true;
    }
}
