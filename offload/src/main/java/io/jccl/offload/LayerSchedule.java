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
 * Runs a model that is larger than device memory. While one layer computes, the next ones are
 * copied in and the results of earlier ones are copied out, through a ring of slots in device
 * memory, each as large as the largest layer.
 *
 * {@snippet class="snippets.Offload" region="schedule"}
 *
 * <p>A pass runs the layers in order; a {@linkplain Pass#TRAINING training} pass then runs them in
 * reverse order. Either the schedule calls the work of each layer ({@link #forward}, {@link
 * #train}), or the caller takes them one by one:
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
 * <p>Everything is ordered by streams: between acquire and release the caller enqueues work and
 * does not have to wait for it. A slot takes its next layer once that work is complete. Layers that
 * are still on the device when backward begins are not fetched again. A new pass fetches all layers
 * again, since an optimizer may have changed the parameters, unless the schedule is {@linkplain
 * ScheduleOptions#cyclic cyclic}.
 *
 * <p><b>Errors.</b> When a copy, a drive or the device's work fails, the next call of acquire, or
 * {@link #end}, throws. Pending work is then drained, and a new pass can begin. Parameters are only
 * ever read; gradients and checkpoints of the failed pass are undefined.
 *
 * <p><b>Garbage.</b> Once each layer has been in each slot, the schedule itself creates no objects.
 * Recording and waiting for events of the host device does, and a store may.
 *
 * <p><b>Threads:</b> one at a time, except {@link #awaitGradients}, {@link #stats} and {@link
 * #close}, which any thread may call. Fetches are started by a thread of the schedule's own, writes
 * to a store by another.
 */
public final class LayerSchedule implements AutoCloseable {
    /** The kinds of passes. */
    public enum Pass {
        /** All layers in order. */
        FORWARD,
        /** All layers in order, then all in reverse order, with gradients and checkpoints. */
        TRAINING;

        int steps(int layers) {
            return this == TRAINING ? 2 * layers : layers;
        }
    }

    /** The direction in which a layer is run. */
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
         * Enqueues a layer's computation. Does not have to wait for it.
         *
         * @param layer its index
         * @param buffers its tensors on the device
         * @param compute the stream to enqueue on
         */
        void enqueue(int layer, LayerBuffers buffers, Stream compute);
    }

    /**
     * Statistics of a schedule.
     *
     * @param passes passes that succeeded
     * @param fetches layers that were copied to the device
     * @param hits layers that were still on the device when they were needed
     * @param evictions layers whose memory was given to another one
     * @param bytesIn bytes copied to the device
     * @param bytesOut bytes copied to the host
     * @param slots slots in device memory
     * @param slotBytes bytes of each
     * @param depth layers fetched ahead
     * @param timedPasses passes that the next three numbers cover
     * @param computeNanos time in which the compute stream was busy
     * @param stalls layers before which the compute stream was idle
     * @param stallNanos total time it was idle; for the first layer of a pass, since the pass began
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
    private final ScheduleState state;
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
        SlotRing ring = new SlotRing(context);
        this.state = new ScheduleState(context, ring, window);
        this.writeBack = new WriteBack(context, ring.writes, state::fail);
        this.prefetcher = new Prefetcher(context, state, writeBack, ring.stageBytes > 0);
        this.begins = new ComputeTimer[window];
        this.ends = new ComputeTimer[window];
        for (int i = 0; i < window; i++) {
            begins[i] = new ComputeTimer(context, null);
            ends[i] = new ComputeTimer(context, begins[i]);
        }
    }

    /**
     * Creates a schedule. It takes device memory for one layer and for as many more as the depth
     * requests and the budget allows; with room for one layer it works, but overlaps nothing.
     *
     * @param layers the model, in the order of forward; one or more
     * @param tiers the engine, the pool of device memory, and the pool of pinned memory through
     *     which tensors in a store pass; they stay open as long as the schedule is used
     * @param options depth and what is recorded
     * @return the schedule
     * @throws OffloadMemoryException if there is no room for the largest layer; the message states
     *     the missing bytes
     */
    public static LayerSchedule create(List<Layer> layers, Tiers tiers, ScheduleOptions options) {
        LayerSchedule s = new LayerSchedule(new ScheduleContext(layers, tiers, options));
        s.state.takeSlots();
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
     * Runs all layers forward and backward, and waits until gradients and checkpoints are in their
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
        } catch (Throwable e) {
            abortAfter(e);
            throw e;
        }
    }

    /**
     * Begins a pass, and starts to fetch its first layers.
     *
     * @param kind the kind of pass
     * @throws IllegalStateException if a pass is in progress or the schedule is closed
     */
    public void begin(Pass kind) {
        Objects.requireNonNull(kind, "kind");
        boolean goOn = state.canContinue(kind);
        if (!goOn && options.cyclic()) {
            drain(); // fetches for another kind of pass
        }
        timing =
                options.timing()
                        || options.trace() != null
                        || ScheduleEvents.compute()
                        || ScheduleEvents.stalls()
                        || (options.depth() == ScheduleOptions.AUTOMATIC && stats.learning());
        state.begin(kind, goOn);
    }

    /**
     * Waits until a layer's tensors are on the device, or until the compute stream is ordered after
     * their copies. Work that the caller enqueues from now on can use them.
     *
     * @param layer its index: the next one of the pass
     * @return its tensors on the device, for work enqueued before {@link #release}
     * @throws IllegalArgumentException if it is not its turn
     * @throws IllegalStateException if no pass was begun, or a layer is held
     * @throws JcclTimeoutException if the options' timeout expires first; the pass is aborted
     * @throws JcclException if a copy failed; the pass is aborted
     */
    public LayerBuffers acquire(int layer) {
        long step = state.checkTurn(layer);
        Phase phase = state.phaseAt(step);
        try {
            LoadedLayer r = state.awaitFed(step);
            if (state.wasFetched(step)) {
                r.orderBefore(compute, phase, options.timeout());
            }
            state.hold();
            if (timing) {
                mark(begins, step, layer, phase);
            }
            return r.buffers;
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
    }

    private void mark(ComputeTimer[] timers, long step, int layer, Phase phase) {
        ComputeTimer m = timers[(int) (step % timers.length)];
        m.set(layer, phase);
        compute.launchHostFunction(m);
    }

    /**
     * Ends the use of the layer that is held. Once the work enqueued so far is complete, its
     * outputs are copied out and its memory is used for other layers.
     *
     * @throws IllegalStateException if none is held
     * @throws JcclException if the stream failed; the pass is aborted
     */
    public void release() {
        long step = state.checkHeld();
        int layer = state.layerAt(step);
        Phase phase = state.phaseAt(step);
        Slot slot = state.slotOf(step);
        try {
            if (timing) {
                mark(ends, step, layer, phase);
            }
            LoadedLayer r = Objects.requireNonNull(slot.loadedLayers[layer]);
            SlotTensor[] out = state.isTraining() ? r.outputs(phase) : null;
            if (out != null) {
                writeBack.await(layer, phase); // of the pass before, to the same home
            }
            Event worked = slot.worked[phase.ordinal()];
            worked.record(compute);
            if (out != null) {
                writeBack.send(r, phase, out, worked);
            }
            state.release(worked);
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
    }

    /**
     * Ends a pass: waits until all work is complete, and all outputs have been written back.
     *
     * @throws IllegalStateException if layers have not run yet
     * @throws JcclException if a copy or the work failed; the pass is aborted
     */
    public void end() {
        state.checkComplete();
        try {
            compute.synchronize(options.timeout());
            state.checkFetches();
            writeBack.awaitAll();
            state.throwFailure();
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
        state.end();
        stats.end(timing);
    }

    /**
     * Waits until the gradients of a layer's last backward have been written back, for example to
     * run its optimizer while other layers still compute. Call it after that layer's {@link
     * LoadedLayer} was released; for a layer without gradient elements it returns at once.
     *
     * @param layer its index
     * @param timeout how long to wait at most
     * @throws JcclTimeoutException if the timeout expires first
     * @throws JcclException if the copy failed
     */
    public void awaitGradients(int layer, Duration timeout) {
        Objects.checkIndex(layer, layers.size());
        writeBack.await(layer, Phase.BACKWARD, timeout);
    }

    /**
     * Aborts a pass: drops what is not in the streams yet, and waits for the rest. Does nothing if
     * no pass is in progress.
     */
    public void abort() {
        if (state.giveUp()) {
            drain();
        }
    }

    /**
     * Discards the layers that a cyclic schedule has fetched for the next pass. Call it before or
     * after the parameters where they are kept change.
     *
     * @throws IllegalStateException if a pass is in progress
     */
    public void invalidate() {
        state.invalidate();
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
        boolean clean = state.drain(deadline);
        try {
            compute.synchronize(Deadline.left(deadline));
        } catch (JcclTimeoutException e) {
            clean = false;
        } catch (RuntimeException e) {
            // The pass has failed already.
        }
        clean &= writeBack.settle(deadline);
        state.drained(clean);
        if (!clean) {
            throw new JcclException(
                    "the schedule's pending work did not end within "
                            + options.timeout()
                            + ": the schedule can no longer be used, and its memory is not freed");
        }
    }

    /**
     * The stream on which the layers' work runs: the engine's compute stream.
     *
     * @return the stream
     */
    public Stream compute() {
        return compute;
    }

    /**
     * The layers of the model.
     *
     * @return the layers, in the order of forward
     */
    public List<Layer> layers() {
        return layers;
    }

    /**
     * The number of layers fetched ahead of the one that computes.
     *
     * @return 0 if nothing overlaps
     */
    public int depth() {
        return state.slots() - 1;
    }

    /**
     * Statistics so far.
     *
     * @return a snapshot
     */
    public Stats stats() {
        return stats.stats(state.slots(), state.slotBytes());
    }

    /**
     * Aborts a pass in progress and frees the memory. If work in the streams does not end within
     * the options' timeout, the memory is not freed. Closing twice does nothing.
     */
    @Override
    public void close() {
        if (state.isClosed()) {
            return;
        }
        if (state.isBroken()) {
            closeThreads();
            return;
        }
        state.giveUp();
        JcclException stuck = null;
        try {
            drain();
        } catch (JcclException e) {
            stuck = e;
        }
        closeThreads();
        prefetcher.join(Duration.ofSeconds(1));
        writeBack.join(Duration.ofSeconds(1));
        if (stuck != null) {
            throw stuck;
        }
        state.free();
    }

    private void closeThreads() {
        state.close();
        writeBack.close();
    }

    @Override
    public String toString() {
        return "schedule of " + layers.size() + " layers in " + state.slots() + " slots";
    }
}
