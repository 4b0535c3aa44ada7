package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;

/**
 * One direction of a {@link TransferEngine}: a queue by priority, a thread that takes chunks from
 * it, and a stream that holds a bounded number of them. On a GPU another thread waits for their
 * events; on the host device the stream's own thread copies and says when it is done.
 */
final class CopyQueue {
    /** How long a thread waits for an event before it looks whether the queue is given up. */
    private static final Duration LOOK = Duration.ofMillis(200);

    /** How long closing waits for the dispatcher even if the time to close is over. */
    private static final Duration LEAST_JOIN = Duration.ofSeconds(1);

    final String name;
    final long chunkBytes;
    private final boolean toDevice;
    private final boolean cuda;
    private final Device device;
    private final TransferOptions options;
    private final StagingRing ring;
    private final Stream stream;
    private final Thread dispatcher;
    private final @Nullable Thread reaper;

    // All below is guarded by this.
    private @Nullable Transfer first;
    private @Nullable Transfer last;
    private int queued;

    /** How many of those have chunks in the stream, or had. */
    private int begun;

    private long tickets;
    private final Chunk[] all;
    private final ArrayDeque<Chunk> idle = new ArrayDeque<>();

    /** Transfers that are done and have somebody to tell, which happens outside the lock. */
    private final ArrayDeque<Transfer> toTell = new ArrayDeque<>();

    /** Chunks in the stream of a GPU, oldest first. */
    private final ArrayDeque<Chunk> pending = new ArrayDeque<>();

    private final ArrayDeque<Event> events = new ArrayDeque<>();

    private int inFlight;
    private boolean closed;
    private boolean abandoned;
    private long transfers;
    private long bytes;
    private long chunks;
    private long overtakings;
    private long failures;
    private long cancellations;
    private long stagedChunks;
    private int peakInFlight;

    /** The part of a transfer that is one operation of the stream. */
    private final class Chunk implements Runnable {
        @Nullable Transfer transfer;
        int run;
        long from;
        long size;
        boolean isLast;
        boolean waitFirst;
        @Nullable Event event;
        @Nullable Buffer slot;
        @Nullable Throwable error;

        /** Runs in the stream: the copy of the host device, or that from or to a slot. */
        @Override
        public void run() {
            Transfer t = Objects.requireNonNull(transfer);
            try {
                if (cuda) {
                    stage();
                } else {
                    began(t);
                    MemorySegment.copy(
                            t.source.asSegment(), from, t.target.asSegment(), from, size);
                }
            } catch (Throwable e) {
                error = e;
            }
            if (!cuda) {
                complete(this, error);
                tell();
            }
        }

        /** Copies between the host's memory and the slot. */
        void stage() {
            Transfer t = Objects.requireNonNull(transfer);
            MemorySegment pinned = Objects.requireNonNull(slot).asSegment();
            if (toDevice) {
                MemorySegment.copy(t.source.asSegment(), from, pinned, 0, size);
            } else {
                MemorySegment.copy(pinned, 0, t.target.asSegment(), from, size);
            }
        }
    }

    CopyQueue(boolean toDevice, Device device, TransferOptions options, Budgets budgets) {
        this.toDevice = toDevice;
        this.name = toDevice ? "host-to-device" : "device-to-host";
        this.device = device;
        this.cuda = device.kind() == Device.Kind.CUDA;
        this.options = options;
        this.chunkBytes = options.chunkBytes();
        this.ring = new StagingRing(name, options, budgets);
        this.stream = device.newStream();
        this.all = new Chunk[options.depth()];
        for (int i = 0; i < all.length; i++) {
            all[i] = new Chunk();
            idle.add(all[i]);
        }
        dispatcher = thread("jccl-" + name, this::dispatch);
        reaper = cuda ? thread("jccl-" + name + "-done", this::reap) : null;
    }

    void start() {
        dispatcher.start();
        if (reaper != null) {
            reaper.start();
        }
    }

    private static Thread thread(String name, Runnable body) {
        return Thread.ofPlatform().daemon().name(name).unstarted(body);
    }

    // ---- what callers do

    void submit(Transfer t) {
        boolean interrupted = false;
        synchronized (this) {
            if (!t.done) {
                throw new IllegalStateException(t + " is still under way: await it first");
            }
            while (!closed && (queued >= options.queue() || t.users > 0)) {
                try {
                    wait();
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            if (closed) {
                throw new IllegalStateException("the transfer engine of " + device + " is closed");
            }
            if (!t.done) {
                throw new IllegalStateException(t + " was started twice at once");
            }
            t.run++;
            t.taken = 0;
            t.waited = false;
            t.enqueued = false;
            t.event = null;
            t.done = false;
            t.cancelled = false;
            t.error = null;
            t.startedNanos = 0;
            t.finishedNanos = 0;
            t.ticket = ++tickets;
            transfers++;
            if (t.bytes == 0) {
                finish(t);
            } else {
                link(t);
            }
            notifyAll();
        }
        tell();
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    void await(Transfer t, Duration timeout) {
        Throwable failure;
        synchronized (this) {
            if (!awaitDone(t, Deadline.after(timeout))) {
                throw new JcclTimeoutException(
                        t
                                + " is not done after "
                                + timeout
                                + ": "
                                + t.taken
                                + " bytes are in the stream or copied, "
                                + queued
                                + " transfers wait in this direction");
            }
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

    private synchronized boolean awaitDone(Transfer t, long deadline) {
        boolean interrupted = false;
        try {
            while (!t.done) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    return false;
                }
                try {
                    wait(left / 1_000_000, (int) (left % 1_000_000));
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            return true;
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
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
        unlink(t);
        if (t.inFlight == 0) {
            finish(t);
        }
        notifyAll();
    }

    void before(Transfer t, Stream follower) {
        Event event;
        boolean interrupted = false;
        synchronized (this) {
            while (!t.done && !t.enqueued) {
                try {
                    wait();
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            event = t.done ? null : t.event;
            if (event != null) {
                t.users++;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
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
                        events.push(event);
                        t.event = null;
                    }
                    notifyAll();
                }
            }
        }
    }

    // ---- the queue, by falling priority and rising ticket

    private synchronized void link(Transfer t) {
        Transfer before = last;
        while (before != null && before.priority < t.priority) {
            before = before.previous;
        }
        Transfer behind = before == null ? first : before.next;
        t.previous = before;
        t.next = behind;
        if (before == null) {
            first = t;
        } else {
            before.next = t;
        }
        if (behind == null) {
            last = t;
        } else {
            behind.previous = t;
        }
        t.queued = true;
        queued++;
    }

    private synchronized void unlink(Transfer t) {
        Transfer before = t.previous;
        Transfer behind = t.next;
        if (before == null) {
            first = behind;
        } else {
            before.next = behind;
        }
        if (behind == null) {
            last = before;
        } else {
            behind.previous = before;
        }
        t.previous = null;
        t.next = null;
        t.queued = false;
        queued--;
        if (t.begun) {
            t.begun = false;
            begun--;
        }
    }

    // ---- the dispatcher

    private void dispatch() {
        while (true) {
            Chunk c;
            synchronized (this) {
                while (true) {
                    if (closed) {
                        return;
                    }
                    c = take();
                    if (c != null) {
                        break;
                    }
                    try {
                        wait();
                    } catch (InterruptedException e) {
                        // Only close() ends this thread.
                    }
                }
            }
            enqueue(c);
        }
    }

    /** The next chunk that may go into the stream, or null. */
    private synchronized @Nullable Chunk take() {
        if (idle.isEmpty()) {
            return null;
        }
        Transfer t = first;
        while (t != null && !isReady(t)) {
            t = t.next;
        }
        boolean mustWait = false;
        if (t == null) {
            // The stream waits for an event only if it has nothing better to do.
            if (first == null || inFlight > 0) {
                return null;
            }
            t = first;
            mustWait = true;
            t.waited = true;
        }
        if (begun > (t.begun ? 1 : 0)) {
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
            unlink(t);
            notifyAll();
        } else if (!t.begun) {
            t.begun = true;
            begun++;
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

    private void enqueue(Chunk c) {
        Transfer t = Objects.requireNonNull(c.transfer);
        int run = c.run;
        boolean isLast = c.isLast;
        Event event = null;
        boolean inStream = false;
        try {
            if (cuda || isLast) {
                event = event();
                synchronized (this) {
                    c.event = event;
                    if (isLast) {
                        t.event = event;
                    }
                }
            }
            Event after = t.after;
            if (c.waitFirst && after != null) {
                stream.waitFor(after);
            } else if (after != null && c.from == 0) {
                after.query();
            }
            if (cuda) {
                inStream = true;
                copy(c, t);
            } else {
                stream.launchHostFunction(c);
                inStream = true;
            }
            if (event != null) {
                event.record(stream);
            }
        } catch (Throwable e) {
            if (inStream && !cuda) {
                // The chunk completes by itself; only the event is missing, and the transfer's
                // followers wait for its end instead.
                return;
            }
            if (inStream) {
                settle();
            }
            complete(c, e);
            tell();
            return;
        }
        synchronized (this) {
            // On the host device the transfer may be over by now, and started again.
            if (isLast && t.run == run && !t.done) {
                t.enqueued = true;
            }
            if (cuda) {
                pending.add(c);
            }
            notifyAll();
        }
    }

    /** A GPU's copy of one chunk, by way of a slot if the host's memory is not pinned. */
    private void copy(Chunk c, Transfer t) {
        began(t);
        if (t.staged == null) {
            Buffer host = toDevice ? t.source : t.target;
            t.staged = !Cuda.isPinned(host);
        }
        if (!t.staged) {
            stream.copy(t.piece(false, c.from, c.size), t.piece(true, c.from, c.size));
            return;
        }
        Buffer slot = ring.take();
        synchronized (this) {
            c.slot = slot;
            stagedChunks++;
        }
        DataType type = t.source.dataType();
        if (toDevice) {
            Event after = t.after;
            if (t.waited && after != null && !after.query()) {
                stream.launchHostFunction(c);
            } else {
                c.stage();
            }
            Buffer target = t.piece(true, c.from, c.size);
            stream.copy(StagingRing.view(slot, type, target.count()), target);
        } else {
            Buffer source = t.piece(false, c.from, c.size);
            stream.copy(source, StagingRing.view(slot, type, source.count()));
            stream.launchHostFunction(c);
        }
    }

    private synchronized void began(Transfer t) {
        if (t.startedNanos == 0) {
            t.startedNanos = System.nanoTime();
        }
    }

    /** Waits for what may have got into the stream without an event behind it. */
    private void settle() {
        try {
            stream.synchronize(options.closeTimeout());
        } catch (RuntimeException e) {
            // The transfer fails with the error that led here.
        }
    }

    private Event event() {
        synchronized (this) {
            if (!events.isEmpty()) {
                return events.pop();
            }
        }
        return device.newEvent();
    }

    // ---- completion

    private void reap() {
        while (true) {
            Chunk c;
            synchronized (this) {
                while (pending.isEmpty()) {
                    if ((closed && inFlight == 0) || abandoned) {
                        return;
                    }
                    try {
                        wait();
                    } catch (InterruptedException e) {
                        // Only close() ends this thread.
                    }
                }
                c = pending.getFirst();
            }
            Throwable error = null;
            try {
                while (true) {
                    try {
                        Objects.requireNonNull(c.event).synchronize(LOOK);
                        break;
                    } catch (JcclTimeoutException e) {
                        synchronized (this) {
                            if (abandoned) {
                                return;
                            }
                        }
                    }
                }
            } catch (Throwable e) {
                error = e;
            }
            synchronized (this) {
                if (abandoned) {
                    return;
                }
                pending.removeFirst();
                complete(c, error == null ? c.error : error);
            }
            tell();
        }
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
                unlink(t);
            }
        }
        Buffer slot = c.slot;
        if (slot != null) {
            ring.give(slot);
        }
        Event event = c.event;
        if (event != null && (event != t.event || t.users == 0)) {
            events.push(event);
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

    /** Runs what transfers do when done. Not under the lock: it takes locks of its own. */
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
                stagedChunks,
                overtakings,
                failures,
                cancellations,
                queued,
                peakInFlight);
    }

    // ---- the end

    /** Cancels what waits; {@link #finishClose} waits for the rest. */
    void beginClose() {
        synchronized (this) {
            closed = true;
            while (first != null) {
                cancelQueued(first);
            }
            notifyAll();
        }
        tell();
    }

    void finishClose(long deadline) {
        boolean interrupted = false;
        boolean clean;
        synchronized (this) {
            while (inFlight > 0) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    break;
                }
                try {
                    wait(left / 1_000_000 + 1);
                } catch (InterruptedException e) {
                    interrupted = true;
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
        try {
            // It may be about to record an event, or be telling of a transfer. On a busy machine
            // it ends late, and without waiting for that nothing would ever be freed.
            if (Thread.currentThread() != dispatcher) {
                long left = Math.max(deadline - System.nanoTime(), LEAST_JOIN.toNanos());
                dispatcher.join(Duration.ofNanos(left));
            }
        } catch (InterruptedException e) {
            interrupted = true;
        }
        clean &= !dispatcher.isAlive() || Thread.currentThread() == dispatcher;
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        if (!clean) {
            // Memory that a copy may still touch is better leaked than freed.
            return;
        }
        stream.close();
        synchronized (this) {
            events.forEach(Event::close);
            events.clear();
        }
        ring.close();
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
