package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;

/**
 * Elements that move between tiers and know where they are.
 *
 * <p>A slower tier may hold a copy that is as new as the one on the faster tier; then the buffer is
 * <em>clean</em> there, and moving down only drops the faster copy. Saying at {@link #unpin} that
 * the elements were changed makes the other copies void. A move up keeps the copy on tier {@link
 * Tier#NVME}, and that on tier {@link Tier#PINNED} if the buffer was made to.
 *
 * <p>All memory that a move needs is taken before anything moves. If that, or the move, fails, the
 * buffer is where it was, and can be moved again.
 *
 * <p><b>Threads:</b> any; one move at a time.
 */
public final class OffloadedBuffer implements AutoCloseable {
    private static final Duration CLOSE_WAIT = Duration.ofSeconds(30);

    private final Tiers tiers;
    private final String name;
    private final DataType type;
    private final long count;
    private final boolean keepPinned;

    // All below is guarded by this.
    private @Nullable Buffer onDevice;
    private @Nullable Buffer onHost;
    private TierStore.@Nullable Place place;

    /** The tiers whose copies are the newest. */
    private final Set<Tier> valid = EnumSet.noneOf(Tier.class);

    private int pins;
    private @Nullable Tier pinnedOn;
    private @Nullable Move move;
    private boolean closed;

    private OffloadedBuffer(
            Tiers tiers, String name, DataType type, long count, boolean keepPinned) {
        this.tiers = Objects.requireNonNull(tiers, "tiers");
        this.name = Objects.requireNonNull(name, "name");
        this.type = Objects.requireNonNull(type, "type");
        this.count = count;
        this.keepPinned = keepPinned;
    }

    /**
     * A buffer that is on one tier.
     *
     * @param tiers where it finds room
     * @param name what messages, and the store of tier {@link Tier#NVME}, call it
     * @param type element type
     * @param count number of elements, 0 or more
     * @param tier where it begins: filled with zeros, or on tier {@link Tier#NVME} with what the
     *     store has under the name
     * @param keepPinned whether a copy stays on tier {@link Tier#PINNED} while the elements are on
     *     the device, which costs memory, and makes moving down free as long as they are unchanged
     * @return the buffer
     * @throws OffloadMemoryException if the tier has no room
     */
    public static OffloadedBuffer create(
            Tiers tiers, String name, DataType type, long count, Tier tier, boolean keepPinned) {
        OffloadedBuffer b = new OffloadedBuffer(tiers, name, type, count, keepPinned);
        switch (tier) {
            case DEVICE -> b.onDevice = tiers.device().allocate(type, count).zero();
            case PINNED -> b.onHost = tiers.pinned().allocate(type, count).zero();
            case NVME -> b.place = b.newPlace();
        }
        synchronized (b) {
            b.valid.add(tier);
        }
        return b;
    }

    private TierStore.Place newPlace() {
        TierStore store = tiers.nvme();
        if (store == null) {
            throw new IllegalStateException(
                    this
                            + " cannot be on tier NVME: there is no store for it; give Tiers one, or"
                            + " use another tier");
        }
        return store.place(name, type, count);
    }

    /** A move under way: one copy of the engine, or several steps in a thread of their own. */
    private final class Move implements Completion {
        final Tier target;
        final int priority;
        final @Nullable Event after;

        /** Memory that was taken for the move, and is given back if it fails. */
        @Nullable Buffer newDevice;

        @Nullable Buffer newHost;
        TierStore.@Nullable Place newPlace;

        // Guarded by the buffer.
        @Nullable Transfer transfer;
        boolean done;
        @Nullable Throwable error;

        Move(Tier target, int priority, @Nullable Event after) {
            this.target = target;
            this.priority = priority;
            this.after = after;
        }

        @Override
        public boolean isDone() {
            synchronized (OffloadedBuffer.this) {
                return done;
            }
        }

        @Override
        public void await(Duration timeout) {
            OffloadedBuffer.this.await(this, timeout);
        }

        /** For a move of one copy: how that went. */
        void transferred() {
            Transfer t;
            synchronized (OffloadedBuffer.this) {
                t = transfer;
            }
            if (t == null) {
                return; // start() looks itself
            }
            Throwable failure = null;
            try {
                t.await(Duration.ZERO);
            } catch (RuntimeException e) {
                failure = e;
            }
            ended(failure);
        }

        /** The steps, one after the other. */
        void steps(boolean write, boolean read, boolean up, boolean down) {
            Throwable failure = null;
            try {
                if (after != null) {
                    after.synchronize(FOREVER);
                }
                Buffer device = newDevice != null ? newDevice : onDevice();
                Buffer host = newHost != null ? newHost : onHost();
                TierStore.Place at = newPlace != null ? newPlace : place();
                if (read) {
                    Objects.requireNonNull(at).read(Objects.requireNonNull(host)).await(FOREVER);
                }
                if (up) {
                    tiers.engine()
                            .toDevice(
                                    Objects.requireNonNull(host),
                                    Objects.requireNonNull(device),
                                    priority)
                            .await(FOREVER);
                }
                if (down) {
                    tiers.engine()
                            .toHost(
                                    Objects.requireNonNull(device),
                                    Objects.requireNonNull(host),
                                    priority)
                            .await(FOREVER);
                }
                if (write) {
                    Objects.requireNonNull(at).write(Objects.requireNonNull(host)).await(FOREVER);
                }
            } catch (Throwable e) {
                failure = e;
            }
            ended(failure);
        }

        void ended(@Nullable Throwable failure) {
            synchronized (OffloadedBuffer.this) {
                if (done) {
                    return;
                }
                if (failure == null) {
                    arrived(this);
                } else {
                    giveBack(this);
                    error = failure;
                }
                done = true;
                move = null;
                OffloadedBuffer.this.notifyAll();
            }
        }
    }

    private static final Duration FOREVER = Duration.ofDays(36_500);

    private synchronized @Nullable Buffer onDevice() {
        return onDevice;
    }

    private synchronized @Nullable Buffer onHost() {
        return onHost;
    }

    private synchronized TierStore.@Nullable Place place() {
        return place;
    }

    private synchronized void giveBack(Move m) {
        if (m.newDevice != null) {
            m.newDevice.close();
        }
        if (m.newHost != null) {
            m.newHost.close();
        }
        if (m.newPlace != null) {
            m.newPlace.close();
        }
    }

    /** Keeps what is worth keeping, and drops the rest. */
    private synchronized void arrived(Move m) {
        if (m.newDevice != null) {
            onDevice = m.newDevice;
        }
        if (m.newHost != null) {
            onHost = m.newHost;
        }
        if (m.newPlace != null) {
            place = m.newPlace;
        }
        if (m.target != Tier.NVME && onHost != null) {
            valid.add(Tier.PINNED); // on the way up or down, it went through here
        }
        valid.add(m.target);
        if (m.target != Tier.DEVICE) {
            drop(Tier.DEVICE);
        }
        if (m.target == Tier.NVME || (m.target == Tier.DEVICE && !keepPinned)) {
            drop(Tier.PINNED);
        }
    }

    private synchronized void drop(Tier tier) {
        Buffer b = tier == Tier.DEVICE ? onDevice : onHost;
        if (b != null) {
            b.close();
        }
        if (tier == Tier.DEVICE) {
            onDevice = null;
        } else {
            onHost = null;
        }
        valid.remove(tier);
    }

    /**
     * Starts to move the elements.
     *
     * @param tier where to
     * @param priority among the copies of the engine
     * @return the move; done if the elements are there
     * @throws OffloadMemoryException if a tier on the way has no room; nothing has changed then
     * @throws IllegalStateException if the buffer is in use, another move is under way, or it is
     *     closed
     */
    public Completion startMove(Tier tier, int priority) {
        return start(tier, priority, null);
    }

    /**
     * Starts to move the elements once an event is complete, such as one behind the work that uses
     * them.
     *
     * @param tier where to
     * @param priority among the copies of the engine
     * @param after an event whose last recording was made before this call
     * @return the move; done if the elements are there
     * @throws OffloadMemoryException if a tier on the way has no room; nothing has changed then
     * @throws IllegalStateException if the buffer is in use, another move is under way, or it is
     *     closed
     */
    public Completion startMove(Tier tier, int priority, Event after) {
        return start(tier, priority, Objects.requireNonNull(after, "after"));
    }

    private Move start(Tier tier, int priority, @Nullable Event after) {
        Move m = new Move(tier, priority, after);
        boolean read;
        boolean write;
        boolean up;
        boolean down;
        Buffer from;
        Buffer to;
        synchronized (this) {
            checkOpen();
            if (move != null) {
                throw new IllegalStateException(
                        this + " is moving to tier " + move.target + ": await that first");
            }
            if (tier == tier()) {
                m.done = true;
                return m;
            }
            if (pins > 0) {
                throw new IllegalStateException(
                        this + " is in use on tier " + pinnedOn + ": unpin it first");
            }
            up = tier == Tier.DEVICE;
            read =
                    tier != Tier.NVME
                            && !valid.contains(Tier.DEVICE)
                            && !valid.contains(Tier.PINNED);
            down = !up && valid.contains(Tier.DEVICE) && !valid.contains(Tier.PINNED);
            write = tier == Tier.NVME && !valid.contains(Tier.NVME);
            down &= tier == Tier.PINNED || write;
            boolean enough = false;
            try {
                if (write && place == null) {
                    m.newPlace = newPlace();
                }
                if ((read || down) && onHost == null) {
                    m.newHost = tiers.pinned().allocate(type, count);
                }
                if (up && onDevice == null) {
                    m.newDevice = tiers.device().allocate(type, count);
                }
                enough = true;
            } finally {
                if (!enough) {
                    giveBack(m);
                }
            }
            move = m;
            if (!read && !write && !up && !down && (after == null || after.query())) {
                m.ended(null);
                return m;
            }
            from = up ? onHost : onDevice;
            to = up ? m.newDevice : m.newHost != null ? m.newHost : onHost;
        }
        if (read || write || (!up && !down)) {
            boolean w = write;
            boolean r = read;
            boolean u = up;
            boolean d = down;
            Thread.ofVirtual().name("jccl-move-" + name).start(() -> m.steps(w, r, u, d));
            return m;
        }
        Transfer t;
        try {
            t =
                    tiers.engine()
                            .start(
                                    up,
                                    Objects.requireNonNull(from),
                                    Objects.requireNonNull(to),
                                    priority,
                                    after,
                                    m::transferred);
        } catch (RuntimeException e) {
            m.ended(e);
            throw e;
        }
        synchronized (this) {
            m.transfer = t;
        }
        if (t.isDone()) {
            // It may have been over before it was known here.
            m.transferred();
        }
        return m;
    }

    /**
     * Moves the elements and waits for it.
     *
     * @param tier where to
     * @param timeout how long to wait at most
     * @throws OffloadMemoryException if a tier on the way has no room; nothing has changed then
     * @throws io.jccl.error.JcclTimeoutException if the time passes first; the move goes on
     * @throws JcclException if it failed; the buffer is where it was
     */
    public void moveTo(Tier tier, Duration timeout) {
        startMove(tier, 0).await(timeout);
    }

    /**
     * Moves the elements if they are elsewhere, waits, and keeps them there until {@link #unpin}.
     * Several users may pin a buffer to one tier.
     *
     * @param tier {@link Tier#DEVICE} or {@link Tier#PINNED}
     * @param timeout how long to wait at most
     * @return the elements on that tier; valid until unpinned
     * @throws IllegalStateException if it is in use on another tier
     * @throws OffloadMemoryException if a tier on the way has no room; nothing has changed then
     * @throws JcclException if the move failed; the buffer is where it was
     */
    public Buffer pin(Tier tier, Duration timeout) {
        if (tier == Tier.NVME) {
            throw new IllegalArgumentException(
                    "tier is NVME, expected DEVICE or PINNED: elements are used in memory");
        }
        long deadline = System.nanoTime() + nanos(timeout);
        while (true) {
            Move current;
            synchronized (this) {
                checkOpen();
                current = move;
                if (current == null && tier == tier()) {
                    pins++;
                    pinnedOn = tier;
                    return Objects.requireNonNull(tier == Tier.DEVICE ? onDevice : onHost);
                }
            }
            Duration left = Duration.ofNanos(Math.max(0, deadline - System.nanoTime()));
            if (current == null || current.target == tier) {
                (current == null ? start(tier, 0, null) : current).await(left);
            } else {
                awaitEnd(current, left);
            }
        }
    }

    /**
     * Ends one use.
     *
     * @param changed whether the elements were changed, so that copies on other tiers are void
     * @throws IllegalStateException if it is not in use
     */
    public synchronized void unpin(boolean changed) {
        if (pins == 0) {
            throw new IllegalStateException(this + " is not in use: it was unpinned before");
        }
        Tier tier = Objects.requireNonNull(pinnedOn);
        if (changed) {
            valid.retainAll(EnumSet.of(tier));
        }
        if (--pins == 0) {
            pinnedOn = null;
        }
    }

    private void await(Move m, Duration timeout) {
        awaitEnd(m, timeout);
        Throwable e;
        synchronized (this) {
            e = m.error;
        }
        switch (e) {
            case null -> {}
            case CancellationException c -> throw c;
            case OffloadMemoryException o -> throw o;
            default ->
                    throw new JcclException(
                            this
                                    + " could not be moved to tier "
                                    + m.target
                                    + " and is where it was: "
                                    + e.getMessage(),
                            e);
        }
    }

    private void awaitEnd(Move m, Duration timeout) {
        long deadline = System.nanoTime() + nanos(timeout);
        boolean interrupted = false;
        synchronized (this) {
            while (!m.done) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new JcclTimeoutException(
                            this + " is not on tier " + m.target + " after " + timeout);
                }
                try {
                    wait(left / 1_000_000, (int) (left % 1_000_000));
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static long nanos(Duration timeout) {
        return timeout.compareTo(FOREVER) >= 0
                ? Long.MAX_VALUE / 2
                : Math.max(0, timeout.toNanos());
    }

    /**
     * Lets work that is enqueued on a stream from now on run after the move under way, if there is
     * one. Waits until the last copy is in the engine's stream; for a move from tier {@link
     * Tier#NVME} until it has ended.
     *
     * @param stream a stream of the engine's device
     */
    public void before(Stream stream) {
        Move m;
        Transfer t;
        synchronized (this) {
            m = move;
            t = m == null ? null : m.transfer;
        }
        if (t != null) {
            t.before(stream);
        } else if (m != null) {
            awaitEnd(m, FOREVER);
        }
    }

    /**
     * The elements on a tier without waiting for a move to it, for work that was ordered behind
     * that move by {@link #before}.
     *
     * @param tier {@link Tier#DEVICE} or {@link Tier#PINNED}
     * @return the memory there
     * @throws IllegalStateException if there is none
     */
    public synchronized Buffer memory(Tier tier) {
        Move m = move;
        Buffer b =
                switch (tier) {
                    case DEVICE -> m != null && m.newDevice != null ? m.newDevice : onDevice;
                    case PINNED -> m != null && m.newHost != null ? m.newHost : onHost;
                    case NVME -> null;
                };
        if (b == null) {
            throw new IllegalStateException(this + " has no memory on tier " + tier);
        }
        return b;
    }

    private synchronized void checkOpen() {
        if (closed) {
            throw new IllegalStateException(this + " is closed");
        }
    }

    /**
     * What messages call it.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Element type.
     *
     * @return the type
     */
    public DataType dataType() {
        return type;
    }

    /**
     * Number of elements.
     *
     * @return 0 or more
     */
    public long count() {
        return count;
    }

    /**
     * Size of all elements.
     *
     * @return bytes
     */
    public long byteSize() {
        return count * type.size();
    }

    /**
     * The fastest tier that has the elements; during a move the one that they come from.
     *
     * @return the tier
     */
    public synchronized Tier tier() {
        return valid.contains(Tier.DEVICE)
                ? Tier.DEVICE
                : valid.contains(Tier.PINNED) ? Tier.PINNED : Tier.NVME;
    }

    /**
     * Whether a tier has a copy that is as new as any.
     *
     * @param tier which
     * @return true if moving there copies nothing
     */
    public synchronized boolean isClean(Tier tier) {
        return valid.contains(tier);
    }

    /**
     * Whether somebody uses it.
     *
     * @return true between {@link #pin} and {@link #unpin}
     */
    public synchronized boolean isPinned() {
        return pins > 0;
    }

    /**
     * Waits for a move under way, for at most 30 seconds, and gives the memory back. Closing twice
     * does nothing.
     *
     * @throws IllegalStateException if it is in use
     */
    @Override
    public void close() {
        Move m;
        synchronized (this) {
            if (closed) {
                return;
            }
            if (pins > 0) {
                throw new IllegalStateException(
                        this + " is in use on tier " + pinnedOn + ": unpin it first");
            }
            closed = true;
            m = move;
        }
        if (m != null) {
            awaitEnd(m, CLOSE_WAIT);
        }
        synchronized (this) {
            drop(Tier.DEVICE);
            drop(Tier.PINNED);
            if (place != null) {
                place.close();
                place = null;
            }
        }
    }

    @Override
    public String toString() {
        return "buffer '" + name + "' of " + count + " x " + type.label();
    }
}
