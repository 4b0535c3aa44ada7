package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Closing;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;

/**
 * One direction of a {@link TransferEngine}: a queue by priority, a thread that takes chunks from
 * it, and a stream that holds a bounded number of them. On a GPU another thread waits for their
 * events; on the host device the stream's own thread copies and reports completion.
 */
final class CopyQueue {
    /** How long closing waits for the dispatcher even if the time to close is over. */
    private static final Duration LEAST_JOIN = Duration.ofSeconds(1);

    final String name;
    final long chunkBytes;
    private final boolean cuda;
    private final Device device;
    private final TransferOptions options;
    private final StagingRing ring;
    private final Stream stream;
    private final Dispatcher dispatcher;
    private final ChunkCopier copier;
    private final EventPool events;
    private final @Nullable Reaper reaper;

    // All below is guarded by this.
    private final TransferList waiting = new TransferList();
    private long tickets;
    private final Chunk[] all;
    private final ArrayDeque<Chunk> idle = new ArrayDeque<>();

    /** Completed transfers whose waiters have to be notified, which happens outside the lock. */
    private final ArrayDeque<Transfer> toTell = new ArrayDeque<>();

    private int inFlight;
    private boolean closed;
    private boolean abandoned;
    private long transfers;
    private long bytes;
    private long chunks;
    private long overtakings;
    private long failures;
    private long cancellations;
    private int peakInFlight;

    CopyQueue(boolean toDevice, Device device, TransferOptions options, Budgets budgets) {
        this.name = toDevice ? "host-to-device" : "device-to-host";
        this.device = device;
        this.cuda = device.kind() == Device.Kind.CUDA;
        this.options = options;
        this.chunkBytes = options.chunkBytes();
        this.ring = new StagingRing(name, options, budgets);
        this.stream = device.newStream();
        this.copier = new ChunkCopier(toDevice, stream, ring, options);
        this.events = new EventPool(device);
        this.all = new Chunk[options.depth()];
        for (int i = 0; i < all.length; i++) {
            all[i] = new Chunk(this);
            idle.add(all[i]);
        }
        reaper = cuda ? new Reaper(this) : null;
        dispatcher = new Dispatcher(this, stream, copier, events, reaper);
    }

    void start() {
        dispatcher.start();
        if (reaper != null) {
            reaper.start();
        }
    }

    // ---- what callers do

    void submit(Transfer t) {
        synchronized (this) {
            if (!t.done) {
                throw new IllegalStateException(t + " is still under way: await it first");
            }
            while (!closed && (waiting.size() >= options.queue() || t.users > 0)) {
                pause();
            }
            if (closed) {
                throw new IllegalStateException("the transfer engine of " + device + " is closed");
            }
            if (!t.done) {
                throw new IllegalStateException(t + " was started twice at once");
            }
            t.begin(++tickets);
            transfers++;
            if (t.bytes == 0) {
                finish(t);
            } else {
                waiting.add(t);
            }
            notifyAll();
        }
        tell();
    }

    void await(Transfer t, Duration timeout) {
        Throwable failure;
        synchronized (this) {
            await(t, false, timeout);
            if (t.error == null) {
                if (t.cancelled) {
                    throw new CancellationException(t + " was cancelled");
                }
                return;
            }
            failure = t.error;
        }
        String message =
                t + " failed, so what its target holds is undefined: " + failure.getMessage();
        if (failure instanceof IllegalStateException) {
            throw new IllegalStateException(message, failure);
        }
        throw new JcclException(message, failure);
    }

    /** Waits until a transfer is done, or all of it is in the stream. */
    private synchronized void await(Transfer t, boolean orEnqueued, Duration timeout) {
        long deadline = Deadline.after(timeout);
        while (!t.done && !(orEnqueued && t.enqueued)) {
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                throw new JcclTimeoutException(
                        ("%s is not %s after %s: %s bytes are in the stream or copied, %s"
                                        + " transfers wait in this direction")
                                .formatted(
                                        t,
                                        orEnqueued ? "in its stream" : "done",
                                        timeout,
                                        t.taken,
                                        waiting.size()));
            }
            Waits.on(this, left);
        }
    }

    boolean cancel(Transfer t) {
        boolean cancelled;
        synchronized (this) {
            if (t.queued) {
                cancelQueued(t);
            }
            cancelled = t.cancelled;
        }
        tell();
        return cancelled;
    }

    private synchronized void cancelQueued(Transfer t) {
        t.cancelled = true;
        waiting.remove(t);
        if (t.inFlight == 0) {
            finish(t);
        }
        notifyAll();
    }

    void before(Transfer t, Stream follower, Duration timeout) {
        Event event;
        synchronized (this) {
            await(t, true, timeout);
            event = t.done ? null : t.event;
            if (event != null) {
                t.users++;
            }
        }
        if (event == null) {
            return;
        }
        // Outside the lock: the follower may be full, and waits for room.
        try {
            follower.waitFor(event);
        } finally {
            synchronized (this) {
                if (--t.users == 0) {
                    if (t.done) {
                        events.give(event);
                        t.event = null;
                    }
                    notifyAll();
                }
            }
        }
    }

    /** Waits once for any change; an interrupt is kept for later. Callers loop. */
    @SuppressWarnings("WaitNotInLoop")
    private synchronized void pause() {
        boolean interrupted = Thread.interrupted();
        try {
            wait();
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    // ---- the dispatcher

    /** Waits for a chunk that may go into the stream; returns null once the queue is closed. */
    synchronized @Nullable Chunk next() {
        while (!closed) {
            Chunk c = take();
            if (c != null) {
                return c;
            }
            pause(); // only close() ends the dispatcher
        }
        return null;
    }

    /** The next chunk that may go into the stream, or null. */
    private synchronized @Nullable Chunk take() {
        if (idle.isEmpty()) {
            return null;
        }
        Transfer t = waiting.first();
        while (t != null && !isReady(t)) {
            t = t.next;
        }
        boolean mustWait = false;
        if (t == null) {
            // The stream waits for an event only if it has nothing better to do.
            t = waiting.first();
            if (t == null || inFlight > 0) {
                return null;
            }
            mustWait = true;
            t.waited = true;
        }
        if (waiting.overtakes(t)) {
            overtakings++;
        }
        Chunk c = idle.pop();
        c.transfer = t;
        c.run = t.run;
        c.from = t.taken;
        c.size = Math.min(chunkBytes, t.bytes - t.taken);
        c.waitFirst = mustWait;
        c.error = null;
        t.taken += c.size;
        c.isLast = t.taken == t.bytes;
        t.inFlight++;
        if (++inFlight > peakInFlight) {
            peakInFlight = inFlight;
        }
        if (c.isLast) {
            waiting.remove(t);
            notifyAll();
        } else {
            waiting.begin(t);
        }
        return c;
    }

    private boolean isReady(Transfer t) {
        Event event = t.after;
        if (event == null || t.waited) {
            return true;
        }
        try {
            return event.query();
        } catch (RuntimeException e) {
            // Its first chunk meets the same error and fails the transfer.
            return true;
        }
    }

    /** The event that will be recorded after a chunk. */
    synchronized void follow(Chunk c, Transfer t, Event event) {
        c.event = event;
        if (c.isLast) {
            t.event = event;
        }
    }

    /** The last chunk of a run of a transfer is in the stream, and its event recorded after it. */
    synchronized void enqueued(Transfer t, int run) {
        // On the host device the transfer may be over by now, and started again.
        if (t.run == run && !t.done) {
            t.enqueued = true;
        }
        notifyAll();
    }

    /** Runs in the stream: the copy of the host device, or a GPU's from or to a slot. */
    void run(Chunk c) {
        Transfer t = Objects.requireNonNull(c.transfer);
        try {
            if (cuda) {
                copier.stage(c, t);
            } else {
                began(t);
                MemorySegment.copy(
                        t.source.asSegment(), c.from, t.target.asSegment(), c.from, c.size);
            }
        } catch (Throwable e) {
            c.error = e;
        }
        if (!cuda) {
            complete(c, c.error);
            tell();
        }
    }

    synchronized void began(Transfer t) {
        if (t.startedNanos == 0) {
            t.startedNanos = System.nanoTime();
        }
    }

    // ---- completion

    /** A chunk could not be enqueued. */
    void failed(Chunk c, Throwable error) {
        complete(c, error);
        tell();
    }

    /** A chunk in a GPU's stream has ended. */
    void reaped(Chunk c, @Nullable Throwable error) {
        synchronized (this) {
            if (abandoned) {
                return;
            }
            complete(c, error == null ? c.error : error);
        }
        tell();
    }

    private synchronized void complete(Chunk c, @Nullable Throwable error) {
        Transfer t = Objects.requireNonNull(c.transfer);
        inFlight--;
        t.inFlight--;
        chunks++;
        if (error == null) {
            bytes += c.size;
        } else {
            if (t.error == null) {
                t.error = error;
            }
            if (t.queued) {
                waiting.remove(t);
            }
        }
        Buffer slot = c.slot;
        if (slot != null) {
            ring.give(slot);
        }
        Event event = c.event;
        if (event != null && (event != t.event || t.users == 0)) {
            events.give(event);
            if (event == t.event) {
                t.event = null;
            }
        }
        c.transfer = null;
        c.event = null;
        c.slot = null;
        c.error = null;
        idle.push(c);
        if (t.inFlight == 0 && !t.queued && !t.done) {
            finish(t);
        }
        notifyAll();
    }

    private synchronized void finish(Transfer t) {
        t.done = true;
        t.finishedNanos = System.nanoTime();
        if (t.error != null) {
            failures++;
        } else if (t.cancelled) {
            cancellations++;
        }
        if (t.whenDone != null) {
            toTell.add(t);
        }
        notifyAll();
    }

    /** Runs the completion actions of transfers. Not under the lock: it takes other locks. */
    private void tell() {
        while (true) {
            Runnable whenDone;
            synchronized (this) {
                Transfer t = toTell.poll();
                if (t == null) {
                    return;
                }
                whenDone = Objects.requireNonNull(t.whenDone);
            }
            whenDone.run();
        }
    }

    synchronized TransferEngine.Stats stats() {
        return new TransferEngine.Stats(
                transfers,
                bytes,
                chunks,
                copier.stagedChunks(),
                overtakings,
                failures,
                cancellations,
                waiting.size(),
                peakInFlight);
    }

    // ---- the end

    /** Cancels what waits; {@link #finishClose} waits for the rest. */
    void beginClose() {
        synchronized (this) {
            closed = true;
            for (Transfer t = waiting.first(); t != null; t = waiting.first()) {
                cancelQueued(t);
            }
            notifyAll();
        }
        tell();
    }

    void finishClose(long deadline) {
        boolean clean;
        synchronized (this) {
            for (long left = 1; inFlight > 0 && left > 0; ) {
                left = deadline - System.nanoTime();
                if (left > 0) {
                    Waits.on(this, left);
                }
            }
            clean = inFlight == 0;
            if (!clean) {
                abandoned = true;
                abandon();
            }
            notifyAll();
        }
        tell();
        if (reaper != null) {
            reaper.stop();
        }
        // On a busy machine it ends late, and without waiting for that nothing would ever be freed.
        clean &= dispatcher.join(Math.max(deadline - System.nanoTime(), LEAST_JOIN.toNanos()));
        if (!clean) {
            // Memory that a copy may still touch is better leaked than freed.
            return;
        }
        Closing.all(List.<AutoCloseable>of(stream, events::close, ring::close));
    }

    /** Ends the transfers whose chunks do not come back. */
    private synchronized void abandon() {
        for (Chunk c : all) {
            Transfer t = c.transfer;
            if (t != null && !t.done) {
                t.error =
                        new JcclException(
                                "the engine was closed, and its "
                                        + name
                                        + " stream did not complete within "
                                        + options.closeTimeout());
                finish(t);
            }
        }
    }
}
