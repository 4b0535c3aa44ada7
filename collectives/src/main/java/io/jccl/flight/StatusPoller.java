package io.jccl.flight;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A thread of the process that sets the clock of all {@linkplain FlightRecorder recorders} and
 * answers status requests for ranks whose own threads wait. It ends when there are no recorders
 * left.
 */
public final class StatusPoller {
    static final int TICK_MILLIS = 10;

    private static final long TICK_NANOS = TICK_MILLIS * 1_000_000L;

    /** Ticks between two polls of the ranks. */
    private static final int LOOK = 3;

    /** Wall clock minus {@link System#nanoTime}, determined once since the wall clock may jump. */
    private static final long EPOCH = System.currentTimeMillis() * 1_000_000L - System.nanoTime();

    /** Recorders in use; unreachable ones are dropped. */
    private static final Set<FlightRecorder> RINGS =
            Collections.newSetFromMap(new WeakHashMap<FlightRecorder, Boolean>());

    private static final Set<Runnable> ASKED = ConcurrentHashMap.newKeySet();

    private static volatile long now = System.nanoTime();
    private static @Nullable Thread thread;

    private StatusPoller() {}

    /** The time of the last tick, as of {@link System#nanoTime}. */
    static long now() {
        return now;
    }

    /** Converts a time of {@link System#nanoTime} to nanoseconds since 1970. */
    public static long epochNanos(long nanoTime) {
        return EPOCH + nanoTime;
    }

    static synchronized void startClock(FlightRecorder ring) {
        RINGS.add(ring);
        if (thread == null) {
            now = System.nanoTime();
            thread = Thread.ofPlatform().daemon().name("jccl-flight").start(StatusPoller::run);
        }
    }

    public static synchronized void stopClock(FlightRecorder ring) {
        RINGS.remove(ring);
    }

    /**
     * Registers a poll, called every few ticks.
     *
     * @param look must not block; its exceptions are discarded
     */
    public static void attend(Runnable look) {
        ASKED.add(look);
    }

    /** Unregisters a poll. A call may still be in progress. */
    public static void leave(Runnable look) {
        ASKED.remove(look);
    }

    private static void run() {
        for (int i = 0; i % 100 != 0 || goesOn(); i++) {
            now = System.nanoTime();
            if (i % LOOK == 0 && !ASKED.isEmpty()) {
                for (Runnable look : ASKED) {
                    try {
                        look.run();
                    } catch (RuntimeException e) {
                        // A communicator that is just being closed must not stop the clock.
                    }
                }
            }
            LockSupport.parkNanos(TICK_NANOS);
        }
    }

    private static synchronized boolean goesOn() {
        if (RINGS.isEmpty()) {
            thread = null;
            return false;
        }
        return true;
    }
}
