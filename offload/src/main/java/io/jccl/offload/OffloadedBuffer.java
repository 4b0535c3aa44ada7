package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A buffer whose elements can be moved between tiers.
 *
 * <p>A slower tier may hold a copy that is as new as the one on the faster tier; then the buffer is
 * <em>clean</em> there, and moving down only drops the faster copy. Reporting changed elements at
 * {@link #unpin} invalidates the other copies. A move up keeps the copy on tier {@link Tier#NVME},
 * and on tier {@link Tier#PINNED} if the buffer was created with {@code keepPinned}.
 *
 * <p>All memory that a move needs is allocated before anything moves. If the allocation or the move
 * fails, the buffer stays where it was and can be moved again.
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
    private @Nullable BufferMove move;
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
     * Creates a buffer on one tier.
     *
     * @param tiers where it allocates memory
     * @param name for messages, and its name in the store of tier {@link Tier#NVME}: there no two
     *     open buffers may have the same
     * @param type element type
     * @param count number of elements, 0 or more
     * @param tier its first tier: the elements are zeros, or on tier {@link Tier#NVME} what the
     *     store has under the name
     * @param keepPinned whether a copy stays on tier {@link Tier#PINNED} while the elements are on
     *     the device, which costs memory, but makes moving down free while they are unchanged
     * @return the buffer
     * @throws OffloadMemoryException if the tier has no room
     * @throws IllegalStateException if it is tier {@link Tier#NVME}, and there is no store or
     *     another open buffer has its place under the name
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
        if (!PlaceNames.take(store, name)) {
            throw new IllegalStateException(
                    this
                            + " cannot be on tier NVME: another open buffer has its place there"
                            + " under this name; give each its own name");
        }
        boolean done = false;
        try {
            TierStore.Place made = store.place(name, type, count);
            done = true;
            return made;
        } finally {
            if (!done) {
                PlaceNames.giveBack(store, name);
            }
        }
    }

    /** Gives back a place, and then its name. */
    void release(TierStore.Place old) {
        try {
            old.close();
        } finally {
            PlaceNames.giveBack(Objects.requireNonNull(tiers.nvme()), name);
        }
    }

    /** A move has ended: what it brought is kept, or, if it failed, the buffer stays as it was. */
    synchronized void ended(BufferMove m, boolean arrived) {
        if (arrived) {
            arrived(m);
        }
        move = null;
        if (closed) {
            free();
        }
    }

    /** Keeps the copies that are of use, and drops the others. */
    private synchronized void arrived(BufferMove m) {
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
     * @param tier the target
     * @param priority among the copies of the engine
     * @return the move; done if the elements are on that tier already
     * @throws OffloadMemoryException if a tier that the move needs has no room; nothing is changed
     *     then
     * @throws IllegalStateException if the buffer is in use, another move is in progress, it is
     *     closed, or another open buffer has its place on tier {@link Tier#NVME} under its name
     */
    public Completion startMove(Tier tier, int priority) {
        return start(tier, priority, null);
    }

    /**
     * Starts to move the elements once an event is complete, such as one recorded after the work
     * that uses them.
     *
     * @param tier the target
     * @param priority among the copies of the engine
     * @param after an event whose last recording was made before this call
     * @return the move; done if the elements are on that tier already
     * @throws OffloadMemoryException if a tier that the move needs has no room; nothing is changed
     *     then
     * @throws IllegalStateException if the buffer is in use, another move is in progress, it is
     *     closed, or another open buffer has its place on tier {@link Tier#NVME} under its name
     */
    public Completion startMove(Tier tier, int priority, Event after) {
        return start(tier, priority, Objects.requireNonNull(after, "after"));
    }

    private BufferMove start(Tier tier, int priority, @Nullable Event after) {
        BufferMove m;
        synchronized (this) {
            checkOpen();
            if (move != null) {
                throw new IllegalStateException(
                        this + " is moving to tier " + move.target + ": await that first");
            }
            if (tier == tier()) {
                m = new BufferMove(this, tiers, tier, priority, after);
                m.finish(null);
                return m;
            }
            m = newMove(tier, priority, after);
        }
        m.start();
        return m;
    }

    /** The move in progress from now on, which the caller starts outside the lock. */
    private synchronized BufferMove newMove(Tier tier, int priority, @Nullable Event after) {
        if (pins > 0) {
            throw new IllegalStateException(
                    this + " is in use on tier " + pinnedOn + ": unpin it first");
        }
        BufferMove m = new BufferMove(this, tiers, tier, priority, after);
        boolean inMemory = valid.contains(Tier.DEVICE) || valid.contains(Tier.PINNED);
        m.up = tier == Tier.DEVICE;
        m.read = tier != Tier.NVME && !inMemory;
        m.write = tier == Tier.NVME && !valid.contains(Tier.NVME);
        m.down =
                (tier == Tier.PINNED || m.write)
                        && valid.contains(Tier.DEVICE)
                        && !valid.contains(Tier.PINNED);
        boolean enough = false;
        try {
            if (m.write && place == null) {
                m.newPlace = newPlace();
            }
            if ((m.read || m.down) && onHost == null) {
                m.newHost = tiers.pinned().allocate(type, count);
            }
            if (m.up && onDevice == null) {
                m.newDevice = tiers.device().allocate(type, count);
            }
            enough = true;
        } finally {
            if (!enough) {
                m.giveBack();
            }
        }
        m.device = m.newDevice != null ? m.newDevice : onDevice;
        m.host = m.newHost != null ? m.newHost : onHost;
        m.place = m.newPlace != null ? m.newPlace : place;
        move = m;
        return m;
    }

    /**
     * Moves the elements and waits for it.
     *
     * @param tier the target
     * @param timeout how long to wait at most
     * @throws OffloadMemoryException if a tier that the move needs has no room; nothing is changed
     *     then
     * @throws io.jccl.error.JcclTimeoutException if the timeout expires first; the move continues
     * @throws JcclException if it failed; the buffer stays where it was
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
     * @throws OffloadMemoryException if a tier that the move needs has no room; nothing is changed
     *     then
     * @throws JcclException if the move failed; the buffer stays where it was
     */
    public Buffer pin(Tier tier, Duration timeout) {
        if (tier == Tier.NVME) {
            throw new IllegalArgumentException(
                    "tier is NVME, expected DEVICE or PINNED: elements are used in memory");
        }
        long deadline = Deadline.after(timeout);
        while (true) {
            BufferMove current;
            boolean mine = false;
            synchronized (this) {
                checkOpen();
                current = move;
                if (current == null && tier == tier()) {
                    pins++;
                    pinnedOn = tier;
                    return Objects.requireNonNull(tier == Tier.DEVICE ? onDevice : onHost);
                }
                if (current == null) {
                    // Decided here, so that a second user waits for this move.
                    current = newMove(tier, 0, null);
                    mine = true;
                }
            }
            if (mine) {
                current.start();
            }
            Duration left = Deadline.left(deadline);
            if (current.target == tier) {
                current.await(left);
            } else {
                current.awaitEnd(left);
            }
        }
    }

    /**
     * Ends one use.
     *
     * @param changed whether the elements were changed, which invalidates the copies on other tiers
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

    /**
     * Orders work that is enqueued on a stream from now on after the move in progress, if there is
     * one. Waits until the last copy is in the engine's stream; for a move from tier {@link
     * Tier#NVME}, until it has ended.
     *
     * @param stream a stream of the engine's device
     */
    public void before(Stream stream) {
        BufferMove m;
        synchronized (this) {
            m = move;
        }
        if (m != null) {
            m.before(stream);
        }
    }

    /**
     * The elements on a tier, without waiting for a move to it; for work that {@link #before}
     * ordered after that move.
     *
     * @param tier {@link Tier#DEVICE} or {@link Tier#PINNED}
     * @return the memory there
     * @throws IllegalStateException if there is none
     */
    public synchronized Buffer memory(Tier tier) {
        BufferMove m = move;
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
     * The name used in messages.
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
     * The fastest tier that has the elements; during a move, the source.
     *
     * @return the tier
     */
    public synchronized Tier tier() {
        return valid.contains(Tier.DEVICE)
                ? Tier.DEVICE
                : valid.contains(Tier.PINNED) ? Tier.PINNED : Tier.NVME;
    }

    /**
     * Whether a tier has an up-to-date copy.
     *
     * @param tier which
     * @return true if moving there copies nothing
     */
    public synchronized boolean isClean(Tier tier) {
        return valid.contains(tier);
    }

    /**
     * Whether it is in use.
     *
     * @return true between {@link #pin} and {@link #unpin}
     */
    public synchronized boolean isPinned() {
        return pins > 0;
    }

    /**
     * Waits for a move in progress, for at most 30 seconds, and frees the memory; if the move takes
     * longer, that happens at its end. Closing twice does nothing.
     *
     * @throws IllegalStateException if it is in use
     * @throws io.jccl.error.JcclTimeoutException if the move takes longer
     */
    @Override
    public void close() {
        BufferMove m;
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
            m.awaitEnd(CLOSE_WAIT);
        } else {
            free();
        }
    }

    private synchronized void free() {
        drop(Tier.DEVICE);
        drop(Tier.PINNED);
        if (place != null) {
            release(place);
            place = null;
        }
    }

    @Override
    public String toString() {
        return "buffer '" + name + "' of " + count + " x " + type.label();
    }
}
