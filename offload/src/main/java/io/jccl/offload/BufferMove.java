package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;

/**
 * One move of an {@link OffloadedBuffer}: one copy of the engine, or several steps in a thread of
 * its own. Its monitor is never held while it calls the buffer.
 *
 * <p><b>Threads:</b> any.
 */
final class BufferMove implements Completion {
    private final OffloadedBuffer owner;
    private final Tiers tiers;
    final Tier target;
    private final int priority;
    private final @Nullable Event after;

    // Set by the buffer before the move starts.

    /** What it does, in this order: from the drive, to the device, to the host, to the drive. */
    boolean read;

    boolean up;
    boolean down;
    boolean write;

    /** Memory that was taken for the move, and is given back if it fails. */
    @Nullable Buffer newDevice;

    @Nullable Buffer newHost;
    TierStore.@Nullable Place newPlace;

    /** Where the elements come from and go to, new or not. */
    @Nullable Buffer device;

    @Nullable Buffer host;
    TierStore.@Nullable Place place;

    // Guarded by this.
    private @Nullable Transfer transfer;
    private boolean ending;
    private boolean done;
    private @Nullable Throwable error;

    BufferMove(
            OffloadedBuffer owner, Tiers tiers, Tier target, int priority, @Nullable Event after) {
        this.owner = owner;
        this.tiers = tiers;
        this.target = target;
        this.priority = priority;
        this.after = after;
    }

    /** Starts it; throws if the engine refuses, and has then ended. */
    void start() {
        Transfer t;
        try {
            if (read || write || (!up && !down)) {
                if (!read && !write && (after == null || after.query())) {
                    ended(null); // only drops copies
                } else {
                    Thread.ofVirtual().name("jccl-move-" + owner.name()).start(this::steps);
                }
                return;
            }
            t =
                    tiers.engine()
                            .start(
                                    up,
                                    Objects.requireNonNull(up ? host : device),
                                    Objects.requireNonNull(up ? device : host),
                                    priority,
                                    after,
                                    this::transferred);
        } catch (RuntimeException | Error e) {
            ended(e);
            throw e;
        }
        synchronized (this) {
            transfer = t;
        }
        if (t.isDone()) {
            // It may have ended before it was known here.
            transferred();
        }
    }

    /** For a move of one copy: its result. */
    private void transferred() {
        Transfer t;
        synchronized (this) {
            t = transfer;
        }
        if (t == null) {
            return; // start() checks itself
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
    private void steps() {
        Throwable failure = null;
        try {
            if (after != null) {
                after.synchronize(Deadline.FOREVER);
            }
            if (read) {
                Objects.requireNonNull(place)
                        .read(Objects.requireNonNull(host))
                        .await(Deadline.FOREVER);
            }
            if (up) {
                tiers.engine()
                        .toDevice(
                                Objects.requireNonNull(host),
                                Objects.requireNonNull(device),
                                priority)
                        .await(Deadline.FOREVER);
            }
            if (down) {
                tiers.engine()
                        .toHost(
                                Objects.requireNonNull(device),
                                Objects.requireNonNull(host),
                                priority)
                        .await(Deadline.FOREVER);
            }
            if (write) {
                Objects.requireNonNull(place)
                        .write(Objects.requireNonNull(host))
                        .await(Deadline.FOREVER);
            }
        } catch (Throwable e) {
            failure = e;
        }
        ended(failure);
    }

    private void ended(@Nullable Throwable failure) {
        synchronized (this) {
            if (ending) {
                return;
            }
            ending = true;
        }
        if (failure != null) {
            giveBack();
        }
        owner.ended(this, failure == null);
        finish(failure);
    }

    /** Reports the end to the waiting threads. */
    synchronized void finish(@Nullable Throwable failure) {
        error = failure;
        done = true;
        notifyAll();
    }

    /** Gives back what was taken for the move. */
    void giveBack() {
        if (newDevice != null) {
            newDevice.close();
        }
        if (newHost != null) {
            newHost.close();
        }
        if (newPlace != null) {
            owner.release(newPlace);
        }
    }

    @Override
    public synchronized boolean isDone() {
        return done;
    }

    @Override
    public void await(Duration timeout) {
        awaitEnd(timeout);
        Throwable e;
        synchronized (this) {
            e = error;
        }
        switch (e) {
            case null -> {}
            case CancellationException c -> throw c;
            case OffloadMemoryException o -> throw o;
            default ->
                    throw new JcclException(
                            "%s could not be moved to tier %s and is where it was: %s"
                                    .formatted(owner, target, e.getMessage()),
                            e);
        }
    }

    /** Waits for the end, however the move ends. */
    synchronized void awaitEnd(Duration timeout) {
        long deadline = Deadline.after(timeout);
        while (!done) {
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                throw new JcclTimeoutException(
                        owner + " is not on tier " + target + " after " + timeout);
            }
            Waits.on(this, left);
        }
    }

    /** Makes a stream wait for the copy if that is in the engine, else waits for the end here. */
    void before(Stream stream) {
        Transfer t;
        synchronized (this) {
            t = transfer;
        }
        if (t != null) {
            t.before(stream);
        } else {
            awaitEnd(Deadline.FOREVER);
        }
    }
}
