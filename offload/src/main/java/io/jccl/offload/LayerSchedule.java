package io.jccl.offload;

import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/**
 * Runs a model whose layers do not fit the device together: while one layer computes, the next ones
 * come in and the results of those before go out, through a ring of slots in device memory, each as
 * large as the largest layer.
 *
 * <p>A pass goes through the layers in order, and a {@linkplain Pass#TRAINING training} pass back
 * again. Either the schedule calls the work of each layer ({@link #forward}, {@link #train}), or
 * the caller takes them one by one:
 *
 * {@snippet :
 * schedule.begin(Pass.FORWARD);
 * for (int i = 0; i < layers.size(); i++) {
 *     LayerBuffers b = schedule.acquire(i);
 *     enqueue(b, schedule.compute());
 *     schedule.release();
 * }
 * schedule.end();
 * }
 *
 * <p>All is ordered by streams: between acquire and release the caller enqueues work and need not
 * wait for it. A slot takes its next layer once that work is complete. Layers that are still on the
 * device when the pass turns are not fetched again. At the beginning of a pass everything is,
 * unless the schedule is {@linkplain ScheduleOptions#cyclic cyclic}, since an optimizer may have
 * changed the parameters.
 *
 * <p><b>Errors.</b> When a copy, a drive or the device's work fails, the next call of acquire, or
 * {@link #end}, throws. What was under way is drained then, and a pass can begin anew. Parameters
 * are only ever read; gradients and checkpoints of the failed pass are undefined.
 *
 * <p><b>Garbage.</b> Once each layer has been in each slot, the schedule itself creates no objects;
 * recording and waiting for events of the host device does, and so may a store.
 *
 * <p><b>Threads:</b> one at a time, but {@link #awaitGradients}, {@link #stats} and {@link #close}
 * any. Fetches are started by a thread of the schedule's own, writes to a store by another.
 */
public final class LayerSchedule implements AutoCloseable {
    /** What a pass goes through. */
    public enum Pass {
        /** All layers in order. */
        FORWARD,
        /** All layers in order, then all in reverse order, with gradients and checkpoints. */
        TRAINING
    }

    /** Which way a layer is run. */
    public enum Phase {
        /** In order; writes the checkpoint. */
        FORWARD,
        /** In reverse order; reads the checkpoint, writes the gradients. */
        BACKWARD
    }

    /** The work of a layer. */
    @FunctionalInterface
    public interface Work {
        /**
         * Enqueues what a layer computes. Need not wait for it.
         *
         * @param layer its index
         * @param buffers its tensors on the device
         * @param compute the stream to enqueue on
         */
        void enqueue(int layer, LayerBuffers buffers, Stream compute);
    }

    /**
     * What a schedule has done.
     *
     * @param passes passes that ended well
     * @param fetches layers that were copied to the device
     * @param hits layers that were still there when they were needed
     * @param evictions layers whose memory was given to another one
     * @param bytesIn bytes copied to the device
     * @param bytesOut bytes copied to the host
     * @param slots slots in device memory
     * @param slotBytes bytes of each
     * @param depth layers fetched ahead
     * @param timedPasses passes that the next three are of
     * @param computeNanos time in which the compute stream worked
     * @param stalls layers before which the compute stream had nothing to do
     * @param stallNanos for how long, in all; the first layer of a pass counts from its beginning
     */
    public record Stats(
            long passes,
            long fetches,
            long hits,
            long evictions,
            long bytesIn,
            long bytesOut,
            int slots,
            long slotBytes,
            int depth,
            long timedPasses,
            long computeNanos,
            long stalls,
            long stallNanos) {}

    private final List<Layer> layers;
    private final Stream compute;
    private final ScheduleOptions options;
    private final ScheduleStats stats;

    /** Its monitor guards the ring too. */
    private final ScheduleState state;

    private final SlotRing ring;
    private final WriteBack writeBack;
    private final Prefetcher prefetcher;
    private final ComputeTimer[] begins;
    private final ComputeTimer[] ends;
    private boolean timing;

    private LayerSchedule(ScheduleContext context) {
        this.layers = context.layers();
        this.compute = context.tiers().engine().compute();
        this.options = context.options();
        this.stats = context.stats();
        int n = layers.size();
        int most = (options.depth() == ScheduleOptions.AUTOMATIC ? 2 * n : options.depth()) + 1;
        int window = 2 * most + 2;
        this.state = new ScheduleState(n, window);
        this.ring = new SlotRing(context);
        this.writeBack = new WriteBack(context, ring.writes, state::fail);
        this.prefetcher = new Prefetcher(context, state, ring, writeBack);
        this.begins = new ComputeTimer[window];
        this.ends = new ComputeTimer[window];
        for (int i = 0; i < window; i++) {
            begins[i] = new ComputeTimer(context, null);
            ends[i] = new ComputeTimer(context, begins[i]);
        }
    }

    /**
     * A schedule. It takes device memory for one layer and as many more as the depth asks for and
     * the budget has; with room for one only it works, and overlaps nothing.
     *
     * @param layers the model, in the order of forward; one or more
     * @param tiers the engine, the pool of device memory, and the pool of pinned memory through
     *     which tensors in a store pass; open as long as the schedule is
     * @param options depth and what is recorded
     * @return the schedule
     * @throws OffloadMemoryException if there is no room for the largest layer; the message says
     *     how much is missing
     */
    public static LayerSchedule create(List<Layer> layers, Tiers tiers, ScheduleOptions options) {
        LayerSchedule s = new LayerSchedule(new ScheduleContext(layers, tiers, options));
        synchronized (s.state) {
            s.ring.take();
        }
        s.prefetcher.start();
        s.writeBack.start();
        return s;
    }

    /**
     * Runs all layers in order, and waits for the end.
     *
     * @param work enqueues a layer's work
     * @throws JcclException if a copy or the work failed; the pass can be run again
     */
    public void forward(Work work) {
        run(Pass.FORWARD, work, work);
    }

    /**
     * Runs all layers in order and back, and waits until gradients and checkpoints are in their
     * homes.
     *
     * @param forward enqueues a layer's forward
     * @param backward enqueues a layer's backward
     * @throws JcclException if a copy or the work failed; the pass can be run again
     */
    public void train(Work forward, Work backward) {
        run(Pass.TRAINING, forward, backward);
    }

    private void run(Pass kind, Work forward, Work backward) {
        Objects.requireNonNull(forward, "forward");
        Objects.requireNonNull(backward, "backward");
        begin(kind);
        boolean done = false;
        try {
            int n = layers.size();
            for (int i = 0; i < n; i++) {
                forward.enqueue(i, acquire(i), compute);
                release();
            }
            if (kind == Pass.TRAINING) {
                for (int i = n - 1; i >= 0; i--) {
                    backward.enqueue(i, acquire(i), compute);
                    release();
                }
            }
            end();
            done = true;
        } finally {
            if (!done) {
                abort();
            }
        }
    }

    /**
     * Begins a pass: its first layers are fetched from now on.
     *
     * @param kind what it goes through
     * @throws IllegalStateException if a pass is under way, or the schedule closed
     */
    public void begin(Pass kind) {
        Objects.requireNonNull(kind, "kind");
        boolean goOn;
        synchronized (state) {
            state.checkOpen();
            if (state.pass != null) {
                throw new IllegalStateException(
                        "a pass is under way: end or abort it before the next");
            }
            goOn =
                    options.cyclic()
                            && state.length == state.lengthOf(kind)
                            && state.base + state.length == state.released
                            && !state.startsAnew;
            if (goOn) {
                state.base += state.length;
            }
        }
        if (!goOn && options.cyclic()) {
            drain(); // fetches for another kind of pass
        }
        synchronized (state) {
            state.length = state.lengthOf(kind);
            if (!goOn) {
                state.base = state.released;
                state.fed = state.released;
                ring.reset();
            }
            state.startsAnew = false;
            state.limit = state.base + (options.cyclic() ? 2L : 1L) * state.length;
            boolean automatic = options.depth() == ScheduleOptions.AUTOMATIC;
            if (automatic) {
                ring.grow(stats.depth(state, layers.size(), options.cyclic()) + 1);
            }
            state.pass = kind;
            timing =
                    options.timing()
                            || options.trace() != null
                            || ScheduleEvents.COMPUTE.isEnabled()
                            || ScheduleEvents.STALL.isEnabled()
                            || (automatic && stats.learning());
            stats.begin();
            state.notifyAll();
        }
    }

    /**
     * Waits until a layer's tensors are on the device, or in the copy stream before the compute
     * stream, and lets the work that the caller enqueues from now on use them.
     *
     * @param layer its index: the next one of the pass
     * @return its tensors on the device, for work enqueued before {@link #release}
     * @throws IllegalArgumentException if it is not its turn
     * @throws IllegalStateException if no pass was begun, or a layer is held
     * @throws JcclException if a copy failed; the pass is aborted
     */
    public LayerBuffers acquire(int layer) {
        long step;
        Phase phase;
        boolean timed;
        synchronized (state) {
            state.checkRunning();
            step = state.released;
            if (state.held) {
                throw new IllegalStateException(
                        "layer " + state.layerAt(step) + " is held: release it first");
            }
            if (step == state.base + state.length) {
                throw new IllegalStateException(
                        "all layers of the pass have run: end it, and begin another");
            }
            phase = state.phaseAt(step);
            if (layer != state.layerAt(step)) {
                throw new IllegalArgumentException(
                        "layer is "
                                + layer
                                + ", expected "
                                + state.layerAt(step)
                                + ", which is the next one of the pass ("
                                + phase
                                + ")");
            }
            timed = timing;
        }
        try {
            awaitFed(step);
            LoadedLayer r = Objects.requireNonNull(state.slotOf(step).loadedLayers[layer]);
            if (state.wasFetched(step)) {
                r.orderBefore(compute, phase);
            }
            synchronized (state) {
                state.held = true;
            }
            if (timed) {
                mark(begins, step, layer, phase);
            }
            return r.buffers;
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
    }

    private void mark(ComputeTimer[] timers, long step, int layer, Phase phase) {
        ComputeTimer m = timers[state.index(step)];
        m.set(layer, phase);
        compute.launchHostFunction(m);
    }

    private void awaitFed(long step) {
        long deadline = Deadline.after(options.timeout());
        boolean interrupted = false;
        synchronized (state) {
            while (state.fed <= step && state.failure == null && !state.closed) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new JcclTimeoutException(
                            "layer '"
                                    + layers.get(state.layerAt(step)).name()
                                    + "' could not be fetched within "
                                    + options.timeout()
                                    + ": its slot, its drive or the copies before it are busy");
                }
                try {
                    state.wait(left / 1_000_000 + 1);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        throwFailure();
        state.checkOpen();
    }

    private void throwFailure() {
        Throwable e = state.failure();
        switch (e) {
            case null -> {}
            case Error error -> throw error;
            case OffloadMemoryException o -> throw o;
            default ->
                    throw new JcclException(
                            "the pass failed, and can be begun again: " + e.getMessage(), e);
        }
    }

    /**
     * Ends the use of the layer that is held. Its outputs go out once the work enqueued so far is
     * complete, and its memory is for other layers then.
     *
     * @throws IllegalStateException if none is held
     * @throws JcclException if the stream refused; the pass is aborted
     */
    public void release() {
        long step;
        int layer;
        Phase phase;
        Slot slot;
        boolean timed;
        boolean training;
        synchronized (state) {
            state.checkRunning();
            if (!state.held) {
                throw new IllegalStateException("no layer is held: acquire one first");
            }
            step = state.released;
            layer = state.layerAt(step);
            phase = state.phaseAt(step);
            slot = state.slotOf(step);
            timed = timing;
            training = state.isTraining();
        }
        try {
            if (timed) {
                mark(ends, step, layer, phase);
            }
            LoadedLayer r = Objects.requireNonNull(slot.loadedLayers[layer]);
            SlotTensor[] out = training ? r.outputs(phase) : null;
            if (out != null) {
                writeBack.await(layer, phase); // of the pass before, to the same home
            }
            Event worked = slot.worked[phase.ordinal()];
            worked.record(compute);
            if (out != null) {
                writeBack.send(r, phase, out, worked);
            }
            synchronized (state) {
                slot.free = worked;
                state.held = false;
                state.released++;
                state.notifyAll();
            }
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
    }

    /**
     * Ends a pass: waits until all work is complete, and all outputs are in their homes.
     *
     * @throws IllegalStateException if layers have not run yet
     * @throws JcclException if a copy or the work failed; the pass is aborted
     */
    public void end() {
        long last;
        synchronized (state) {
            state.checkRunning();
            last = state.base + state.length;
            if (state.held || state.released < last) {
                throw new IllegalStateException(
                        "layer "
                                + state.layerAt(state.released)
                                + (state.held ? " is held" : " has not run")
                                + ": run all layers, or abort the pass");
            }
        }
        try {
            compute.synchronize(options.timeout());
            for (int i = 0; i < slots(); i++) {
                LoadedLayer loaded;
                Phase phase;
                synchronized (state) {
                    Slot s = ring.get(i);
                    loaded = s.loadedFor < last ? s.loaded : null;
                    phase = loaded == null ? Phase.FORWARD : state.phaseAt(s.loadedFor);
                }
                if (loaded != null) {
                    loaded.checkFetched(phase, options.timeout());
                }
            }
            writeBack.awaitAll();
            throwFailure();
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
        synchronized (state) {
            state.pass = null;
            stats.end(timing);
            state.notifyAll();
        }
    }

    private int slots() {
        synchronized (state) {
            return ring.size();
        }
    }

    /**
     * Waits until the gradients that a layer's last backward wrote are in their homes, such as to
     * run its optimizer while other layers still compute.
     *
     * @param layer its index
     * @param timeout how long to wait at most
     * @throws JcclTimeoutException if the time passes first
     * @throws JcclException if the copy failed
     */
    public void awaitGradients(int layer, Duration timeout) {
        Objects.checkIndex(layer, layers.size());
        writeBack.await(layer, Phase.BACKWARD, timeout);
    }

    /**
     * Gives a pass up: drops what is not in the streams yet, and waits for the rest. Does nothing
     * if none is under way.
     */
    public void abort() {
        synchronized (state) {
            if (state.pass == null) {
                return;
            }
            state.pass = null;
            state.held = false;
            state.startsAnew = true;
        }
        drain();
    }

    /**
     * Forgets what a cyclic schedule has fetched for the next pass, because the parameters in their
     * homes have changed or are about to.
     *
     * @throws IllegalStateException if a pass is under way
     */
    public void invalidate() {
        synchronized (state) {
            state.checkOpen();
            if (state.pass != null) {
                throw new IllegalStateException(
                        "a pass is under way and reads the parameters: end or abort it first");
            }
            state.startsAnew = true;
        }
        drain();
    }

    private void abortAfter(Throwable e) {
        try {
            abort();
        } catch (RuntimeException again) {
            if (again != e) {
                e.addSuppressed(again);
            }
        }
    }

    /** Stops the prefetcher, and waits for all that is in the streams. */
    private void drain() {
        long deadline = Deadline.after(options.timeout());
        synchronized (state) {
            state.draining = true;
            state.limit = state.fed;
            state.notifyAll();
        }
        // What the prefetcher waits for ends by itself.
        boolean clean = prefetcher.awaitIdle(deadline);
        for (int i = 0; i < slots(); i++) {
            LoadedLayer r;
            synchronized (state) {
                r = ring.get(i).loaded;
            }
            clean &= r == null || r.settleFetches(deadline);
        }
        try {
            compute.synchronize(Deadline.left(deadline));
        } catch (JcclTimeoutException e) {
            clean = false;
        } catch (RuntimeException e) {
            // The pass has failed already.
        }
        clean &= writeBack.settle(deadline);
        synchronized (state) {
            if (!clean) {
                state.broken = true;
                throw new JcclException(
                        "what the schedule had under way did not end within "
                                + options.timeout()
                                + ": it cannot be used any more, and its memory is not freed");
            }
            state.draining = false;
            state.failure = null;
            ring.reset();
            state.fed = state.released;
            state.base = state.released;
            state.length = Math.max(state.length, 1);
            state.limit = state.fed;
        }
    }

    /**
     * The stream on which the layers' work runs: the engine's.
     *
     * @return the stream
     */
    public Stream compute() {
        return compute;
    }

    /**
     * The model.
     *
     * @return its layers, in the order of forward
     */
    public List<Layer> layers() {
        return layers;
    }

    /**
     * Layers that are fetched ahead of the one that computes.
     *
     * @return 0 if nothing overlaps
     */
    public int depth() {
        return slots() - 1;
    }

    /**
     * What was done so far.
     *
     * @return numbers of this moment
     */
    public Stats stats() {
        return stats.stats(slots(), ring.slotBytes);
    }

    /**
     * Aborts a pass that is under way, and gives the memory back. If something in the streams does
     * not end within the options' timeout, the memory is left to it. Closing twice does nothing.
     */
    @Override
    public void close() {
        synchronized (state) {
            if (state.closed) {
                return;
            }
            if (state.broken) {
                closeThreads();
                return;
            }
            state.pass = null;
            state.held = false;
        }
        JcclException stuck = null;
        try {
            drain();
        } catch (JcclException e) {
            stuck = e;
        }
        closeThreads();
        boolean interrupted = false;
        try {
            prefetcher.join(Duration.ofSeconds(1));
            writeBack.join(Duration.ofSeconds(1));
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        if (stuck != null) {
            throw stuck;
        }
        synchronized (state) {
            ring.close();
        }
    }

    private void closeThreads() {
        synchronized (state) {
            state.closed = true;
            state.notifyAll();
        }
        writeBack.close();
    }

    @Override
    public String toString() {
        return "schedule of " + layers.size() + " layers in " + slots() + " slots";
    }
}
