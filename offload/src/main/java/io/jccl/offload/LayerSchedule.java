package io.jccl.offload;

import io.jccl.CollectiveTimeoutException;
import io.jccl.bindings.JcclException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.offload.ChromeTrace.Track;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

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

    private static final Duration FOREVER = Duration.ofDays(36_500);
    private static final Phase[] PHASES = Phase.values();

    /** Passes after which an automatic depth is looked at again. */
    private static final int LEARNING = 4;

    /** A shorter gap before a layer is the stream's own hand-over. */
    private static final long STALL_NANOS = 20_000;

    private final List<Layer> layers;
    private final Tiers tiers;
    private final TransferEngine engine;
    private final Stream compute;
    private final ScheduleOptions options;
    private final @Nullable ChromeTrace trace;
    private final long slotBytes;
    private final long stageBytes;
    private final Thread feeder;
    private final @Nullable Thread writer;

    // All below is guarded by this.
    private final List<Slot> slots = new ArrayList<>();
    private @Nullable Pass pass;

    /** Steps are counted on and on: the first of this pass, and how many it has. */
    private long base;

    private int length;
    private long fed;
    private long limit;
    private long released;
    private boolean held;
    private boolean feeding;
    private boolean draining;
    private boolean closed;
    private boolean broken;
    private boolean startsAnew;
    private @Nullable Throwable failure;

    /** The slot of each step that is fed and not released, and whether it was fetched for it. */
    private final Slot[] slotOf;

    private final boolean[] fetched;
    private final int window;

    /** Where a layer's outputs of a phase last went out from; null if they never did. */
    private final @Nullable Resident[][] lastOut;

    /** Outputs that the writer has yet to write. */
    private final @Nullable Resident[] toWrite;

    private int toWriteHead;
    private int toWriteCount;

    // Measured.
    private final long[] fetchNanos;
    private final long[][] workNanos;
    private final Marker[] begins;
    private final Marker[] ends;
    private boolean timing;
    private long lastWorked;
    private long passes;
    private long fetches;
    private long hits;
    private long evictions;
    private long bytesIn;
    private long bytesOut;
    private long timedPasses;
    private long computeNanos;
    private long stalls;
    private long stallNanos;

    /** A part of device memory that holds one layer at a time. */
    private static final class Slot {
        final Buffer memory;
        final @Nullable Buffer stage;

        /** Behind the last work of each phase. */
        final Event[] worked;

        final @Nullable Resident[] residents;

        /** The layer it is meant for, and the last step that will use it; -1 for none. */
        int layer = -1;

        long lastStep = -1;

        /** What was last fetched into it, for which step, and whether that is known to be good. */
        @Nullable Resident loaded;

        long loadedFor = -1;

        /** The event behind the work of the last released step; null if none since a reset. */
        @Nullable Event free;

        Slot(Buffer memory, @Nullable Buffer stage, Event[] worked, int layers) {
            this.memory = memory;
            this.stage = stage;
            this.worked = worked;
            this.residents = new Resident[layers];
        }
    }

    /** One tensor in one slot: its memory, its home, and the transfers between them. */
    private final class Seat {
        final Layer layer;
        final int index;
        final LayerTensor tensor;
        final Buffer onDevice;

        /** Its home, or where it stops between a store and the device. */
        final Buffer onHost;

        final Transfer in;
        final Transfer out;
        private @Nullable Completion io;
        private long ioBegan;
        private ScheduleEvents.@Nullable TransferEvent inEvent;
        private ScheduleEvents.@Nullable TransferEvent outEvent;

        Seat(Layer layer, int index, LayerTensor tensor, Buffer onDevice, Buffer onHost) {
            this.layer = layer;
            this.index = index;
            this.tensor = tensor;
            this.onDevice = onDevice;
            this.onHost = onHost;
            this.in = engine.prepare(true, onHost, onDevice, 0, this::cameIn);
            this.out = engine.prepare(false, onDevice, onHost, 0, this::wentOut);
        }

        void fetch(@Nullable Event after) {
            inEvent = event("in");
            restart(in, after);
        }

        void sendOut(Event after) {
            outEvent = event("out");
            restart(out, after);
        }

        private void restart(Transfer t, @Nullable Event after) {
            synchronized (t.lane) {
                t.after = after;
            }
            t.restart();
        }

        private ScheduleEvents.@Nullable TransferEvent event(String direction) {
            if (!ScheduleEvents.TRANSFER.isEnabled()) {
                return null;
            }
            ScheduleEvents.TransferEvent e = new ScheduleEvents.TransferEvent();
            e.layer = layer.name();
            e.tensor = tensor.name();
            e.direction = direction;
            e.bytes = tensor.byteSize();
            e.begin();
            return e;
        }

        private void cameIn() {
            long took = report(Track.TO_DEVICE, in, inEvent);
            synchronized (LayerSchedule.this) {
                fetchNanos[index] += took;
                bytesIn += in.bytes;
            }
        }

        private void wentOut() {
            report(Track.TO_HOST, out, outEvent);
            synchronized (LayerSchedule.this) {
                bytesOut += out.bytes;
            }
        }

        private long report(Track track, Transfer t, ScheduleEvents.@Nullable TransferEvent event) {
            long began = t.startedNanos();
            long ended = t.finishedNanos();
            if (began == 0) {
                return 0;
            }
            if (trace != null) {
                trace.record(track, layer.name(), tensor.name(), began, ended, t.bytes);
            }
            if (event != null) {
                event.copyTime = ended - began;
                event.commit();
            }
            return ended - began;
        }

        void startRead() {
            ioBegan = System.nanoTime();
            io = Objects.requireNonNull(tensor.place()).read(onHost);
        }

        void startWrite() {
            ioBegan = System.nanoTime();
            io = Objects.requireNonNull(tensor.place()).write(onHost);
        }

        /** Waits for a read, however it ends. */
        void endIo() {
            Completion c = io;
            io = null;
            if (c != null) {
                try {
                    c.await(options.timeout());
                } catch (RuntimeException e) {
                    // The pass has failed already.
                }
            }
        }

        void awaitIo(Track track) {
            Completion c = io;
            if (c != null) {
                c.await(options.timeout());
                io = null;
                long ended = System.nanoTime();
                if (trace != null) {
                    trace.record(
                            track, layer.name(), tensor.name(), ioBegan, ended, tensor.byteSize());
                }
                if (track == Track.NVME_READ) {
                    synchronized (LayerSchedule.this) {
                        fetchNanos[index] += ended - ioBegan;
                    }
                }
            }
        }
    }

    /** A layer in a slot. */
    private final class Resident {
        final int layer;
        final LayerBuffers buffers;
        final Seat[] parameters;
        final Seat[] gradients;
        final Seat @Nullable [] checkpoint;

        /** Whether the outputs of a phase are on their way to a store; guarded by the schedule. */
        final boolean[] writing = new boolean[PHASES.length];

        Resident(int layer, Slot slot) {
            Layer l = layers.get(layer);
            this.layer = layer;
            long[] at = new long[2];
            this.parameters = seats(l, l.parameters(), slot, at);
            this.gradients = seats(l, l.gradients(), slot, at);
            LayerTensor c = l.checkpoint();
            this.checkpoint = c == null ? null : seats(l, List.of(c), slot, at);
            this.buffers =
                    new LayerBuffers(
                            l,
                            Arrays.stream(parameters).map(s -> s.onDevice).toList(),
                            Arrays.stream(gradients).map(s -> s.onDevice).toList(),
                            checkpoint == null ? null : checkpoint[0].onDevice);
        }

        private Seat[] seats(Layer l, List<LayerTensor> tensors, Slot slot, long[] at) {
            Seat[] all = new Seat[tensors.size()];
            for (int i = 0; i < all.length; i++) {
                LayerTensor t = tensors.get(i);
                Buffer onDevice = slot.memory.lease(at[0], t.type(), t.count(), () -> {});
                at[0] += Layer.padded(t);
                Buffer onHost = t.host();
                if (onHost == null) {
                    onHost =
                            Objects.requireNonNull(slot.stage)
                                    .lease(at[1], t.type(), t.count(), () -> {});
                    at[1] += stagePadded(t);
                }
                all[i] = new Seat(l, layer, t, onDevice, onHost);
            }
            return all;
        }

        Seat @Nullable [] outputs(Phase phase) {
            return phase == Phase.FORWARD ? checkpoint : gradients;
        }
    }

    /** What runs on the compute stream before or behind a layer's work, to take its time. */
    private final class Marker implements Runnable {
        final boolean isEnd;
        int layer;
        Phase phase = Phase.FORWARD;
        long began;
        long before;
        ScheduleEvents.@Nullable ComputeEvent event;
        @Nullable Marker begin;

        Marker(boolean isEnd) {
            this.isEnd = isEnd;
        }

        @Override
        public void run() {
            long now = System.nanoTime();
            String name = layers.get(layer).name();
            if (!isEnd) {
                began = now;
                synchronized (LayerSchedule.this) {
                    before = lastWorked;
                    if (now - before >= STALL_NANOS) {
                        stalls++;
                        stallNanos += now - before;
                    }
                }
                if (ScheduleEvents.COMPUTE.isEnabled()) {
                    event = new ScheduleEvents.ComputeEvent();
                    event.layer = name;
                    event.phase = phase.name();
                    event.begin();
                }
                return;
            }
            Marker b = Objects.requireNonNull(begin);
            synchronized (LayerSchedule.this) {
                lastWorked = now;
                computeNanos += now - b.began;
                workNanos[phase.ordinal()][layer] += now - b.began;
            }
            boolean stalled = b.began - b.before >= STALL_NANOS;
            if (trace != null) {
                if (stalled) {
                    trace.record(Track.STALL, name, "stall", b.before, b.began, 0);
                }
                trace.record(Track.COMPUTE, name, phase.name(), b.began, now, 0);
            }
            if (stalled && ScheduleEvents.STALL.isEnabled()) {
                ScheduleEvents.StallEvent e = new ScheduleEvents.StallEvent();
                e.layer = name;
                e.stallTime = b.began - b.before;
                e.commit();
            }
            ScheduleEvents.ComputeEvent e = b.event;
            if (e != null) {
                e.commit();
                b.event = null;
            }
        }
    }

    private LayerSchedule(List<Layer> layers, Tiers tiers, ScheduleOptions options) {
        this.layers = List.copyOf(layers);
        this.tiers = Objects.requireNonNull(tiers, "tiers");
        this.engine = tiers.engine();
        this.compute = engine.compute();
        this.options = Objects.requireNonNull(options, "options");
        this.trace = options.trace();
        int n = this.layers.size();
        if (n == 0) {
            throw new IllegalArgumentException("there are no layers, expected one or more");
        }
        long largest = 0;
        long largestStage = 0;
        boolean writes = false;
        for (Layer l : this.layers) {
            largest = Math.max(largest, l.deviceBytes());
            long stage = 0;
            for (LayerTensor t : l.parameters()) {
                stage += t.place() == null ? 0 : stagePadded(t);
            }
            for (LayerTensor t : l.gradients()) {
                stage += t.place() == null ? 0 : stagePadded(t);
                writes |= t.place() != null;
            }
            LayerTensor c = l.checkpoint();
            if (c != null && c.place() != null) {
                stage += stagePadded(c);
                writes = true;
            }
            largestStage = Math.max(largestStage, stage);
        }
        this.slotBytes = Math.max(Layer.ALIGNMENT, largest);
        this.stageBytes = largestStage;
        int most = (options.depth() == ScheduleOptions.AUTOMATIC ? 2 * n : options.depth()) + 1;
        this.window = 2 * most + 2;
        this.slotOf = new Slot[window];
        this.fetched = new boolean[window];
        this.lastOut = new Resident[PHASES.length][n];
        this.toWrite = new Resident[2 * n];
        this.fetchNanos = new long[n];
        this.workNanos = new long[PHASES.length][n];
        this.begins = new Marker[window];
        this.ends = new Marker[window];
        for (int i = 0; i < window; i++) {
            begins[i] = new Marker(false);
            ends[i] = new Marker(true);
            ends[i].begin = begins[i];
        }
        this.feeder = Thread.ofPlatform().daemon().name("jccl-layers").unstarted(this::feed);
        this.writer =
                writes
                        ? Thread.ofPlatform()
                                .daemon()
                                .name("jccl-layer-writes")
                                .unstarted(this::write)
                        : null;
    }

    /** Reads and writes of drives want whole pages. */
    private static long stagePadded(LayerTensor t) {
        return Math.max(1, (t.byteSize() + 4095) / 4096) * 4096;
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
        LayerSchedule s = new LayerSchedule(layers, tiers, options);
        s.takeSlots();
        s.feeder.start();
        if (s.writer != null) {
            s.writer.start();
        }
        return s;
    }

    private synchronized void takeSlots() {
        try {
            addSlot();
        } catch (OffloadMemoryException e) {
            Layer largest = layers.getFirst();
            for (Layer l : layers) {
                largest = l.deviceBytes() > largest.deviceBytes() ? l : largest;
            }
            throw new OffloadMemoryException(
                    e.tier(),
                    e.asked(),
                    e.free(),
                    "layer '"
                            + largest.name()
                            + "' needs "
                            + slotBytes
                            + " bytes of device memory by itself; "
                            + (e.asked() - e.free())
                            + " bytes are missing: raise the budget, or split the layer",
                    e);
        }
        int wanted = options.depth() == ScheduleOptions.AUTOMATIC ? 1 : options.depth();
        grow(wanted + 1);
    }

    /** Takes more slots, as far as there is room. */
    private synchronized void grow(int wanted) {
        while (slots.size() < wanted) {
            try {
                addSlot();
            } catch (OffloadMemoryException e) {
                return; // less overlap, and that is all
            }
        }
    }

    private synchronized void addSlot() {
        long free = options.deviceBytes() - slots.size() * slotBytes;
        if (slotBytes > free) {
            throw new OffloadMemoryException(
                    Tier.DEVICE, slotBytes, free, "the schedule's limit is reached", null);
        }
        Buffer memory = tiers.device().allocate(DataType.UINT8, slotBytes);
        Buffer stage = null;
        boolean done = false;
        try {
            if (stageBytes > 0) {
                stage = tiers.pinned().allocate(DataType.UINT8, stageBytes);
            }
            Event[] worked = {engine.device().newEvent(), engine.device().newEvent()};
            slots.add(new Slot(memory, stage, worked, layers.size()));
            done = true;
        } finally {
            if (!done) {
                memory.close();
                if (stage != null) {
                    stage.close();
                }
            }
        }
    }

    // ---- steps

    private int place(long step) {
        return (int) Math.floorMod(step - base, (long) length);
    }

    private int layerAt(long step) {
        int at = place(step);
        return at < layers.size() ? at : 2 * layers.size() - 1 - at;
    }

    private Phase phaseAt(long step) {
        return place(step) < layers.size() ? Phase.FORWARD : Phase.BACKWARD;
    }

    private int index(long step) {
        return (int) (step % window);
    }

    // ---- what callers do

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
        synchronized (this) {
            checkOpen();
            if (pass != null) {
                throw new IllegalStateException(
                        "a pass is under way: end or abort it before the next");
            }
            int n = kind == Pass.TRAINING ? 2 * layers.size() : layers.size();
            goOn = options.cyclic() && length == n && base + length == released && !startsAnew;
            if (goOn) {
                base += length;
            }
        }
        if (!goOn && options.cyclic()) {
            drain(); // fetches for another kind of pass
        }
        synchronized (this) {
            length = kind == Pass.TRAINING ? 2 * layers.size() : layers.size();
            if (!goOn) {
                base = released;
                fed = released;
                for (int i = 0; i < slots.size(); i++) { // no iterator: no garbage
                    Slot s = slots.get(i);
                    s.layer = -1;
                    s.lastStep = -1;
                    s.free = null;
                    s.loaded = null;
                }
            }
            startsAnew = false;
            limit = base + (options.cyclic() ? 2L : 1L) * length;
            learn();
            pass = kind;
            timing =
                    options.timing()
                            || trace != null
                            || ScheduleEvents.COMPUTE.isEnabled()
                            || ScheduleEvents.STALL.isEnabled()
                            || (options.depth() == ScheduleOptions.AUTOMATIC && passes < LEARNING);
            lastWorked = System.nanoTime();
            notifyAll();
        }
    }

    /** Takes as many slots as measured times make worthwhile. */
    private synchronized void learn() {
        if (options.depth() != ScheduleOptions.AUTOMATIC || timedPasses == 0 || passes > LEARNING) {
            return;
        }
        long[] fetch = new long[length];
        long[] work = new long[length];
        for (int i = 0; i < length; i++) {
            int layer = layerAt(base + i);
            long came = Math.max(1, fetches) / layers.size();
            fetch[i] = fetchNanos[layer] / Math.max(1, came);
            work[i] = workNanos[phaseAt(base + i).ordinal()][layer] / timedPasses;
        }
        // A slot that holds a layer more than there are would never be used.
        int most = Math.max(0, layers.size() - 1);
        grow(DepthModel.choose(fetch, work, most, options.cyclic()) + 1);
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
        Slot slot;
        Resident r;
        synchronized (this) {
            checkRunning();
            if (held) {
                throw new IllegalStateException(
                        "layer " + layerAt(released) + " is held: release it first");
            }
            if (released == base + length) {
                throw new IllegalStateException(
                        "all layers of the pass have run: end it, and begin another");
            }
            step = released;
            if (layer != layerAt(step)) {
                throw new IllegalArgumentException(
                        "layer is "
                                + layer
                                + ", expected "
                                + layerAt(step)
                                + ", which is the next one of the pass ("
                                + phaseAt(step)
                                + ")");
            }
            phase = phaseAt(step);
        }
        try {
            awaitFed(step);
            boolean wasFetched;
            synchronized (this) {
                slot = slotOf[index(step)];
                wasFetched = fetched[index(step)];
                r = Objects.requireNonNull(slot.residents[layer]);
            }
            if (wasFetched) {
                // The last transfer of a direction's queue is behind the others.
                orderBehind(r.parameters);
                if (phase == Phase.BACKWARD && r.checkpoint != null) {
                    orderBehind(r.checkpoint);
                }
            }
            boolean timed;
            synchronized (this) {
                timed = timing;
                held = true;
            }
            if (timed) {
                Marker m = begins[index(step)];
                m.layer = layer;
                m.phase = phase;
                compute.launchHostFunction(m);
            }
            return r.buffers;
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
    }

    private void orderBehind(Seat[] seats) {
        for (Seat s : seats) {
            s.in.before(compute);
        }
    }

    private void awaitFed(long step) {
        long deadline = deadline();
        boolean interrupted = false;
        synchronized (this) {
            while (fed <= step && failure == null && !closed) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new CollectiveTimeoutException(
                            "layer '"
                                    + layers.get(layerAt(step)).name()
                                    + "' could not be fetched within "
                                    + options.timeout()
                                    + ": its slot, its drive or the copies before it are busy");
                }
                try {
                    wait(left / 1_000_000 + 1);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        throwFailure();
        synchronized (this) {
            checkOpen();
        }
    }

    private void throwFailure() {
        Throwable e;
        synchronized (this) {
            e = failure;
        }
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
        Resident r;
        boolean timed;
        synchronized (this) {
            checkRunning();
            if (!held) {
                throw new IllegalStateException("no layer is held: acquire one first");
            }
            step = released;
            layer = layerAt(step);
            phase = phaseAt(step);
            slot = slotOf[index(step)];
            r = Objects.requireNonNull(slot.residents[layer]);
            timed = timing;
        }
        try {
            if (timed) {
                Marker m = ends[index(step)];
                m.layer = layer;
                m.phase = phase;
                compute.launchHostFunction(m);
            }
            Seat[] outputs = isTraining() ? r.outputs(phase) : null;
            if (outputs != null) {
                awaitOut(layer, phase); // of the pass before, to the same home
            }
            Event worked = slot.worked[phase.ordinal()];
            worked.record(compute);
            if (outputs != null) {
                synchronized (this) {
                    lastOut[phase.ordinal()][layer] = r;
                }
                boolean store = false;
                for (Seat s : outputs) {
                    s.sendOut(worked);
                    store |= s.tensor.place() != null;
                }
                synchronized (this) {
                    if (store) {
                        r.writing[phase.ordinal()] = true;
                        toWrite[(toWriteHead + toWriteCount++) % toWrite.length] = r;
                    }
                }
            }
            synchronized (this) {
                slot.free = worked;
                held = false;
                released++;
                notifyAll();
            }
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
    }

    private synchronized boolean isTraining() {
        return length > layers.size();
    }

    /**
     * Ends a pass: waits until all work is complete, and all outputs are in their homes.
     *
     * @throws IllegalStateException if layers have not run yet
     * @throws JcclException if a copy or the work failed; the pass is aborted
     */
    public void end() {
        long last;
        synchronized (this) {
            checkRunning();
            if (held || released < base + length) {
                throw new IllegalStateException(
                        "layer "
                                + layerAt(released)
                                + (held ? " is held" : " has not run")
                                + ": run all layers, or abort the pass");
            }
            last = base + length;
        }
        try {
            compute.synchronize(options.timeout());
            for (int i = 0; i < slots(); i++) {
                Resident loaded;
                Phase phase;
                synchronized (this) {
                    Slot s = slots.get(i);
                    loaded = s.loadedFor < last ? s.loaded : null;
                    phase = loaded == null ? Phase.FORWARD : phaseAt(s.loadedFor);
                }
                if (loaded != null) {
                    checkFetched(loaded, phase);
                }
            }
            for (Phase phase : PHASES) {
                for (int layer = 0; layer < layers.size(); layer++) {
                    awaitOut(layer, phase);
                }
            }
            throwFailure();
        } catch (RuntimeException | Error e) {
            abortAfter(e);
            throw e;
        }
        synchronized (this) {
            pass = null;
            passes++;
            if (timing) {
                timedPasses++;
            }
            notifyAll();
        }
    }

    private synchronized int slots() {
        return slots.size();
    }

    /** Throws if a fetch failed; waits for it if it is under way. */
    private void checkFetched(Resident r, Phase phase) {
        for (Seat s : r.parameters) {
            s.in.await(options.timeout());
        }
        Seat[] checkpoint = r.checkpoint;
        if (phase == Phase.BACKWARD && checkpoint != null) {
            checkpoint[0].in.await(options.timeout());
        }
    }

    /**
     * Waits until the gradients that a layer's last backward wrote are in their homes, such as to
     * run its optimizer while other layers still compute.
     *
     * @param layer its index
     * @param timeout how long to wait at most
     * @throws CollectiveTimeoutException if the time passes first
     * @throws JcclException if the copy failed
     */
    public void awaitGradients(int layer, Duration timeout) {
        Objects.checkIndex(layer, layers.size());
        awaitOut(layer, Phase.BACKWARD, timeout);
    }

    private void awaitOut(int layer, Phase phase) {
        awaitOut(layer, phase, options.timeout());
    }

    private void awaitOut(int layer, Phase phase, Duration timeout) {
        Resident r;
        synchronized (this) {
            r = lastOut[phase.ordinal()][layer];
        }
        Seat[] outputs = r == null ? null : r.outputs(phase);
        if (r == null || outputs == null) {
            return;
        }
        for (Seat s : outputs) {
            s.out.await(timeout);
        }
        awaitWritten(r, phase, timeout);
    }

    /** Waits until the writer has no more to do with a layer's outputs, however that ends. */
    private void awaitWritten(Resident r, Phase phase, Duration timeout) {
        long deadline = System.nanoTime() + nanos(timeout);
        boolean interrupted = false;
        synchronized (this) {
            while (r.writing[phase.ordinal()]) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new CollectiveTimeoutException(
                            "the outputs of layer '"
                                    + layers.get(r.layer).name()
                                    + "' were not written within "
                                    + timeout);
                }
                try {
                    wait(left / 1_000_000 + 1);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Gives a pass up: drops what is not in the streams yet, and waits for the rest. Does nothing
     * if none is under way.
     */
    public void abort() {
        synchronized (this) {
            if (pass == null) {
                return;
            }
            pass = null;
            held = false;
            startsAnew = true;
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
        synchronized (this) {
            checkOpen();
            if (pass != null) {
                throw new IllegalStateException(
                        "a pass is under way and reads the parameters: end or abort it first");
            }
            startsAnew = true;
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

    /** Stops the feeder, and waits for all that is in the streams. */
    private void drain() {
        long deadline = deadline();
        boolean clean;
        synchronized (this) {
            draining = true;
            limit = fed;
            notifyAll();
        }
        // What the feeder waits for ends by itself.
        clean = awaitFeeder(deadline);
        for (int i = 0; i < slots(); i++) {
            Resident r;
            synchronized (this) {
                r = slots.get(i).loaded;
            }
            if (r != null) {
                clean &= settle(r.parameters, true, deadline);
                if (r.checkpoint != null) {
                    clean &= settle(r.checkpoint, true, deadline);
                }
            }
        }
        try {
            compute.synchronize(left(deadline));
        } catch (CollectiveTimeoutException e) {
            clean = false;
        } catch (RuntimeException e) {
            // The pass has failed already.
        }
        for (Phase phase : PHASES) {
            for (int layer = 0; layer < layers.size(); layer++) {
                Resident r;
                synchronized (this) {
                    r = lastOut[phase.ordinal()][layer];
                }
                Seat[] outputs = r == null ? null : r.outputs(phase);
                if (r != null && outputs != null) {
                    clean &= settle(outputs, false, deadline);
                    try {
                        awaitWritten(r, phase, left(deadline));
                    } catch (CollectiveTimeoutException e) {
                        clean = false;
                    }
                }
                synchronized (this) {
                    lastOut[phase.ordinal()][layer] = null;
                }
            }
        }
        synchronized (this) {
            if (!clean) {
                broken = true;
                throw new JcclException(
                        "what the schedule had under way did not end within "
                                + options.timeout()
                                + ": it cannot be used any more, and its memory is not freed");
            }
            draining = false;
            failure = null;
            for (Slot s : slots) {
                s.layer = -1;
                s.lastStep = -1;
                s.loaded = null;
                s.free = null;
            }
            fed = released;
            base = released;
            length = Math.max(length, 1);
            limit = fed;
        }
    }

    private boolean awaitFeeder(long deadline) {
        boolean interrupted = false;
        boolean clean = true;
        synchronized (this) {
            while (feeding) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    clean = false;
                    break;
                }
                try {
                    wait(left / 1_000_000 + 1);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return clean;
    }

    /** Waits for transfers, however they end; tells whether they did. */
    private static boolean settle(Seat[] seats, boolean in, long deadline) {
        boolean ended = true;
        for (Seat s : seats) {
            Transfer t = in ? s.in : s.out;
            t.cancel();
            try {
                t.await(left(deadline));
            } catch (CollectiveTimeoutException e) {
                ended = false;
            } catch (RuntimeException e) {
                // The pass has failed already.
            }
        }
        return ended;
    }

    private long deadline() {
        return System.nanoTime() + nanos(options.timeout());
    }

    private static Duration left(long deadline) {
        return Duration.ofNanos(Math.max(1, deadline - System.nanoTime()));
    }

    private static long nanos(Duration timeout) {
        return timeout.compareTo(FOREVER) > 0 ? Long.MAX_VALUE / 2 : Math.max(0, timeout.toNanos());
    }

    private synchronized void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the schedule is closed");
        }
        if (broken) {
            throw new IllegalStateException(
                    "the schedule could not be drained after an error: create another");
        }
    }

    private synchronized void checkRunning() {
        checkOpen();
        if (pass == null) {
            throw new IllegalStateException("no pass is under way: begin one first");
        }
    }

    // ---- the feeder

    private void feed() {
        while (true) {
            synchronized (this) {
                feeding = false;
                notifyAll();
                while (!closed && (draining || fed >= limit || fed - released >= window)) {
                    await();
                }
                if (closed) {
                    return;
                }
                feeding = true;
            }
            try {
                feedOne();
            } catch (Throwable e) {
                synchronized (this) {
                    if (failure == null) {
                        failure = e;
                    }
                    limit = fed;
                }
            }
        }
    }

    /** Waits once; whoever calls it loops. */
    @SuppressWarnings("WaitNotInLoop")
    private synchronized void await() {
        try {
            wait();
        } catch (InterruptedException e) {
            // Only close() ends these threads.
        }
    }

    /** Brings the next step's layer in, unless it is there. */
    private void feedOne() {
        long step;
        int layer;
        Phase phase;
        Slot slot;
        int old;
        long lastStep;
        Resident loaded;
        Phase loadedPhase;
        synchronized (this) {
            step = fed;
            layer = layerAt(step);
            phase = phaseAt(step);
            slot = slots.getFirst();
            for (Slot s : slots) {
                if (s.layer == layer) {
                    s.lastStep = step;
                    ready(step, s, false);
                    hits++;
                    return;
                }
                if (s.lastStep < slot.lastStep) {
                    slot = s;
                }
            }
            old = slot.layer;
            lastStep = slot.lastStep;
            loaded = slot.loaded;
            loadedPhase = loaded == null ? Phase.FORWARD : phaseAt(slot.loadedFor);
            slot.layer = layer;
            slot.lastStep = step;
        }
        if (loaded != null) {
            // Its copies are long over; this is where their errors are seen.
            checkFetched(loaded, loadedPhase);
        }
        Resident r = slot.residents[layer];
        if (r == null) {
            r = new Resident(layer, slot);
            slot.residents[layer] = r;
        }
        boolean done = false;
        try {
            done = bringIn(step, slot, r, phase, old, lastStep);
        } finally {
            if (!done) {
                // A read under way must not meet the next one into the same memory.
                endReads(r);
            }
        }
    }

    private boolean bringIn(long step, Slot slot, Resident r, Phase phase, int old, long lastStep) {
        int layer = r.layer;
        Seat[] checkpoint = phase == Phase.BACKWARD ? r.checkpoint : null;
        if (stageBytes > 0) {
            if (old >= 0) {
                awaitStage(old, lastStep);
            }
            if (checkpoint != null) {
                awaitOut(layer, Phase.FORWARD);
                read(checkpoint);
            }
            read(r.parameters);
        }
        // From here on the slot's last work must be in the compute stream.
        Event free;
        synchronized (this) {
            while (!draining && !closed && lastStep >= released) {
                await();
            }
            if (draining || closed) {
                return false;
            }
            free = slot.free;
            if (old >= 0) {
                evictions++;
            }
        }
        if (old >= 0) {
            evicted(old, layer);
            for (Phase p : PHASES) {
                Resident out;
                synchronized (this) {
                    out = lastOut[p.ordinal()][old];
                }
                if (out != null && out == slot.residents[old]) {
                    awaitOut(old, p);
                }
            }
        }
        if (checkpoint != null) {
            awaitOut(layer, Phase.FORWARD);
        }
        awaitRead(r.parameters);
        synchronized (this) {
            slot.loaded = r;
            slot.loadedFor = step;
        }
        for (Seat s : r.parameters) {
            s.fetch(free);
        }
        if (checkpoint != null) {
            awaitRead(checkpoint);
            for (Seat s : checkpoint) {
                s.fetch(free);
            }
        }
        synchronized (this) {
            fetches++;
            ready(step, slot, true);
        }
        return true;
    }

    private static void endReads(Resident r) {
        for (Seat s : r.parameters) {
            s.endIo();
        }
        if (r.checkpoint != null) {
            for (Seat s : r.checkpoint) {
                s.endIo();
            }
        }
    }

    /** Waits until what the slot's stage holds for its last layer is needed no more. */
    private void awaitStage(int old, long lastStep) {
        synchronized (this) {
            while (!draining && !closed && lastStep >= released) {
                Layer l = layers.get(old);
                if (l.gradients().isEmpty() && l.checkpoint() == null) {
                    return;
                }
                await();
            }
        }
        for (Phase p : PHASES) {
            awaitOut(old, p);
        }
    }

    private static void read(Seat[] seats) {
        for (Seat s : seats) {
            if (s.tensor.place() != null) {
                s.startRead();
            }
        }
    }

    private static void awaitRead(Seat[] seats) {
        for (Seat s : seats) {
            s.awaitIo(Track.NVME_READ);
        }
    }

    private synchronized void ready(long step, Slot slot, boolean wasFetched) {
        slotOf[index(step)] = slot;
        fetched[index(step)] = wasFetched;
        fed = step + 1;
        notifyAll();
    }

    private void evicted(int old, int layer) {
        Layer l = layers.get(old);
        if (trace != null) {
            long now = System.nanoTime();
            trace.record(Track.EVICT, l.name(), "evict", now, now, l.deviceBytes());
        }
        if (ScheduleEvents.EVICT.isEnabled()) {
            ScheduleEvents.EvictEvent e = new ScheduleEvents.EvictEvent();
            e.layer = l.name();
            e.forLayer = layers.get(layer).name();
            e.bytes = l.deviceBytes();
            e.commit();
        }
    }

    // ---- the writer

    private void write() {
        while (true) {
            Resident r;
            Phase phase;
            synchronized (this) {
                while (!closed && toWriteCount == 0) {
                    await();
                }
                if (toWriteCount == 0) {
                    return;
                }
                r = Objects.requireNonNull(toWrite[toWriteHead]);
                toWrite[toWriteHead] = null;
                toWriteHead = (toWriteHead + 1) % toWrite.length;
                toWriteCount--;
                phase = r.writing[Phase.FORWARD.ordinal()] ? Phase.FORWARD : Phase.BACKWARD;
            }
            Throwable error = null;
            try {
                Seat[] outputs = Objects.requireNonNull(r.outputs(phase));
                for (Seat s : outputs) {
                    s.out.await(options.timeout());
                    if (s.tensor.place() != null) {
                        s.startWrite();
                    }
                }
                for (Seat s : outputs) {
                    s.awaitIo(Track.NVME_WRITE);
                }
            } catch (Throwable e) {
                error = e;
            }
            synchronized (this) {
                if (error != null && failure == null) {
                    failure = error;
                }
                r.writing[phase.ordinal()] = false;
                notifyAll();
            }
        }
    }

    // ---- what it is

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
    public synchronized int depth() {
        return slots.size() - 1;
    }

    /**
     * What was done so far.
     *
     * @return numbers of this moment
     */
    public synchronized Stats stats() {
        return new Stats(
                passes,
                fetches,
                hits,
                evictions,
                bytesIn,
                bytesOut,
                slots.size(),
                slotBytes,
                slots.size() - 1,
                timedPasses,
                computeNanos,
                stalls,
                stallNanos);
    }

    /**
     * Aborts a pass that is under way, and gives the memory back. If something in the streams does
     * not end within the options' timeout, the memory is left to it. Closing twice does nothing.
     */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            if (broken) {
                closed = true;
                notifyAll();
                return;
            }
            pass = null;
            held = false;
        }
        JcclException stuck = null;
        try {
            drain();
        } catch (JcclException e) {
            stuck = e;
        }
        synchronized (this) {
            closed = true;
            notifyAll();
        }
        boolean interrupted = false;
        try {
            feeder.join(Duration.ofSeconds(1));
            if (writer != null) {
                writer.join(Duration.ofSeconds(1));
            }
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        if (stuck != null) {
            throw stuck;
        }
        synchronized (this) {
            for (Slot s : slots.reversed()) {
                for (Event e : s.worked) {
                    e.close();
                }
                s.memory.close();
                if (s.stage != null) {
                    s.stage.close();
                }
            }
        }
    }

    @Override
    public String toString() {
        return "schedule of " + layers.size() + " layers in " + slots() + " slots";
    }
}
