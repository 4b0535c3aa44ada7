package io.jccl.engine.host;

import io.jccl.RankFailedException;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.flight.RankStatus;
import io.jccl.internal.Cpus;
import io.jccl.internal.Interrupts;
import java.util.concurrent.locks.LockSupport;

/**
 * How one rank waits for others: it spins as long as that is worthwhile, yields, then parks for
 * increasing times, and checks for reasons to give up: a dead rank, an abort, an interrupt, the
 * timeout. The user's messages make progress during the wait.
 *
 * <p>One wait at a time, on the thread that runs the rank's operations; it allocates nothing.
 */
final class Waiter {
    /** About the duration of a context switch. */
    private static final int SPINS = 256;

    /** If the other rank may need this core: it runs only when this one yields. */
    private static final int FEW_SPINS = 20;

    /** Number of consecutive waits longer than the spinning after which spinning is reduced. */
    private static final int FEW_AFTER = 4;

    /** Number of waits with few spins before more are tried; doubled each time. */
    private static final int TRIAL_FIRST = 16;

    private static final int TRIAL_LAST = 1024;

    private static final int YIELDS = 2000;

    /**
     * Yields between two readings of the clock: on a busy machine each of them may take the other
     * programs' time slices, so all together take seconds.
     */
    private static final int YIELDS_PER_LOOK = 32;

    /**
     * For ranks with their own CPUs, some hundred microseconds; after that the other rank is busy,
     * or another program runs on its CPU. A yield would queue this rank behind all other programs
     * too; a sleeping one gets its core back as soon as it wakes up.
     */
    private static final int APART_SPINS = 1 << 12;

    /**
     * Number of consecutive waits longer than the spinning after which ranks are assumed to share a
     * core.
     */
    private static final int NAP_AFTER = 64;

    private static final long PARK_MIN_NANOS = 20_000;
    private static final long PARK_MAX_NANOS = 500_000;
    private static final long LIVENESS_NANOS = 50_000_000;

    private final SharedMemoryTransport fabric;
    private final ControlBlock control;
    private final PointToPoint messages;
    private final DesyncReport desync;
    private final int rank;
    private final int n;
    private final long timeoutNanos;

    /** How long a rank waits before it requests the status of the others. */
    private final long askNanos;

    /** Barriers announced by this rank. */
    private long tick;

    /** Whether the ranks' placement is known; determined when a wait first takes long. */
    private boolean located;

    private boolean published;

    /**
     * Number of polls of a long wait before it parks, without yields; 0 if ranks may share a core.
     */
    private int patience;

    /** Number of polls before a wait counts as long, adapted to the latest waits. */
    private int spins = SPINS;

    /** Consecutive waits longer than the spinning. */
    private int slowWaits;

    /** Waits with few spins between two trials, and until the next one. */
    private int trialGap = TRIAL_FIRST;

    private int untilTrial = TRIAL_FIRST;

    // The current wait.
    private int rounds;
    private long started;
    private long nextLook;
    private long park = PARK_MIN_NANOS;
    private long question;
    private long answersBy;
    private long interrupted;

    Waiter(
            SharedMemoryTransport fabric,
            PointToPoint messages,
            DesyncReport desync,
            int rank,
            long timeoutNanos) {
        this.fabric = fabric;
        this.control = fabric.control;
        this.messages = messages;
        this.desync = desync;
        this.rank = rank;
        this.n = fabric.ranks;
        this.timeoutNanos = timeoutNanos;
        this.askNanos = timeoutNanos - RankStatus.answerNanos(timeoutNanos);
    }

    int spins() {
        return spins;
    }

    /** Whether a rank has not reached the last barrier that this one has announced. */
    boolean isBehind(int p) {
        return control.acquire(control.state(p) + ControlBlock.TICK) < tick;
    }

    /** Throws if any rank has aborted. */
    void checkAborted() {
        if (control.aborted()) {
            throw desync.abortedByPeer();
        }
    }

    /** A barrier on increasing counters: cheap, and any number can follow each other. */
    void barrier() {
        announce();
        long t = tick;
        for (int i = 1; i < n; i++) {
            int p = rank + i < n ? rank + i : rank + i - n;
            long at = control.state(p) + ControlBlock.TICK;
            if (control.acquire(at) < t) {
                await(at, t, p);
            }
        }
    }

    /** This rank's arrival at a {@link #barrier}, for which the others may wait. */
    void announce() {
        control.release(control.state(rank) + ControlBlock.TICK, ++tick);
    }

    /** Waits until a word that rank p writes has reached a value. */
    void await(long at, long value, int p) {
        boolean trial = spins == FEW_SPINS && --untilTrial == 0;
        int budget = trial ? SPINS : spins;
        for (int i = 0; i < budget; i++) {
            if (control.acquire(at) >= value) {
                slowWaits = 0;
                if (trial && i >= FEW_SPINS) {
                    tried(true);
                } else if (trial) {
                    untilTrial = trialGap;
                }
                return;
            }
            Thread.onSpinWait();
        }
        if (trial) {
            tried(false);
        }
        slowWaits++;
        if (!located) {
            locate();
        } else if (patience == 0) {
            adapt();
        }
        begin();
        try {
            while (control.acquire(at) < value) {
                if (!messages.progress()) {
                    pause(p, at, value);
                }
            }
        } finally {
            end();
        }
    }

    /** Reduces spinning if it is not worthwhile: the other rank may need this core. */
    private void adapt() {
        if (slowWaits % NAP_AFTER == 0) {
            // Another core may be idle: the scheduler puts a thread that wakes up there, whereas
            // two that only yield to each other can share a core for long.
            LockSupport.parkNanos(1);
        }
        if (slowWaits == FEW_AFTER) {
            spins = FEW_SPINS;
        }
    }

    /**
     * Publishes the CPUs that this rank may use, and determines from those of all whether each rank
     * has its own CPUs, or there are more ranks than CPUs. A launcher may have bound each of them,
     * so this rank's CPUs are not those of all.
     */
    private void locate() {
        if (!published) {
            published = true;
            long[] own = Cpus.ofThread().toLongArray();
            int words = Math.min(own.length, ControlBlock.CPU_WORDS);
            long state = control.state(rank);
            for (int i = 0; i < words; i++) {
                control.set(state + ControlBlock.CPUS + (long) i * Long.BYTES, own[i]);
            }
            control.release(state + ControlBlock.CPU_COUNT, Math.max(1, words));
        }
        long[][] cpus = new long[n][];
        for (int r = 0; r < n; r++) {
            long state = control.state(r);
            int words = (int) control.acquire(state + ControlBlock.CPU_COUNT);
            if (words == 0) {
                return;
            }
            cpus[r] = new long[words];
            for (int i = 0; i < words; i++) {
                cpus[r][i] = control.get(state + ControlBlock.CPUS + (long) i * Long.BYTES);
            }
        }
        Places places = Places.of(cpus, Runtime.getRuntime().availableProcessors(), rank);
        spins = places == Places.CROWDED ? FEW_SPINS : SPINS;
        patience = places == Places.APART ? APART_SPINS : 0;
        located = true;
    }

    /** Spins longer again if that was worthwhile, otherwise tries it less often. */
    private void tried(boolean paid) {
        spins = paid ? SPINS : FEW_SPINS;
        trialGap = paid ? TRIAL_FIRST : Math.min(TRIAL_LAST, 2 * trialGap);
        untilTrial = trialGap;
    }

    /**
     * Begins a new wait, which {@link #end} ends; the object is reused, so waiting allocates
     * nothing.
     */
    void begin() {
        rounds = 0;
        started = 0;
        nextLook = 0;
        park = PARK_MIN_NANOS;
        question = 0;
        interrupted = 0;
    }

    /** Sets the interrupt flag again if the thread was interrupted during the wait. */
    void end() {
        Interrupts.restore(interrupted);
    }

    /**
     * Pauses once; p is the rank waited for, or -1 for any; at and value are the word that it must
     * write.
     */
    void pause(int p, long at, long value) {
        rounds++;
        if (control.aborted() && !arrived(p, at, value)) {
            throw desync.abortedByPeer();
        }
        if (rounds < patience) {
            Thread.onSpinWait();
            return;
        }
        boolean yields = patience == 0 && rounds < YIELDS;
        if (yields) {
            Thread.yield();
            if (rounds % YIELDS_PER_LOOK != 1) {
                return;
            }
        }
        long now = System.nanoTime();
        if (started == 0) {
            started = now;
            // The other side is checked when a wait has become long.
            nextLook = now + LIVENESS_NANOS;
        }
        if (now - nextLook >= 0) {
            nextLook = now + LIVENESS_NANOS;
            look(p, at, value);
            if (now - started > askNanos) {
                if (question == 0) {
                    question = control.ask();
                    // The full time, even if this process was stopped in the meantime.
                    answersBy = now + timeoutNanos - askNanos;
                }
                if (now - started > timeoutNanos) {
                    throw desync.expire(question, answersBy);
                }
                nextLook = Math.min(nextLook, started + timeoutNanos);
            }
        }
        interrupted = Interrupts.notice(interrupted, now);
        if (Interrupts.overdue(interrupted, now)) {
            throw Interrupts.error(
                    "rank " + rank + " of " + n + " in " + desync.here(),
                    desync.waitedFor()
                            + ". The others cannot finish the operation without this rank, so"
                            + " the communicator has failed on all");
        }
        if (yields) {
            return;
        }
        LockSupport.parkNanos(park);
        park = Math.min(PARK_MAX_NANOS, park * 2);
    }

    /** Whether there is progress after all: a rank may do its part, and abort or end at once. */
    private boolean arrived(int p, long at, long value) {
        return p < 0 ? messages.progress() : control.acquire(at) >= value;
    }

    private void look(int p, long at, long value) {
        fabric.unmapDeleted();
        for (int r = 0; r < n; r++) {
            boolean concerns = p < 0 ? messages.waitsFor(r) : p == r;
            if (!concerns || r == rank) {
                continue;
            }
            boolean left = control.acquire(control.state(r) + ControlBlock.CLOSED) != 0;
            boolean dead = !left && !fabric.isAlive(r);
            if ((left || dead) && !arrived(p, at, value)) {
                throw new RankFailedException(
                        fabric.nameOf(r)
                                + (left ? " closed its communicator" : " died")
                                + " while rank "
                                + rank
                                + " waited for it in "
                                + desync.here());
            }
        }
    }
}
