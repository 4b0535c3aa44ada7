package io.jccl.offload.zero;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.bindings.JcclException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.offload.Completion;
import io.jccl.offload.Tier;
import io.jccl.offload.Tiers;
import io.jccl.offload.Transfer;
import io.jccl.offload.optim.GradientNorm;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32C;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part of training whose optimizer state, gradients and parameters are sharded over the
 * ranks of a communicator, and live on any tier. With <i>n</i> ranks each layer is cut into n
 * blocks of the same count, of which rank i owns block i.
 *
 * <p>A step goes so, on every rank in the same order: {@link #gather} a layer before its forward or
 * backward computation and {@link #release} it after; {@link #gradients} gives room to which
 * gradients are added, {@link #reduce} says that they are there; after all micro-steps {@link
 * #step} updates parameters. What each stage does:
 *
 * <ul>
 *   <li>0: gradients are added up locally, and by allReduce after the last micro-step; every rank
 *       updates all parameters.
 *   <li>1: the same with reduceScatter; each rank updates its block, and allGather spreads it.
 *   <li>2: reduceScatter after every micro-step, into an accumulator of this rank's block.
 *   <li>3: parameters too exist only as this rank's block, and are gathered layer by layer.
 * </ul>
 *
 * <p>Gradients count as the mean over ranks and micro-steps. They are added up as they are, and
 * divided, in the same multiplication as loss scale and clipping, in the update. The update runs on
 * the CPU; so on a GPU gradients and optimizer state live on another tier than {@link Tier#DEVICE}.
 *
 * <p><b>Memory:</b> all of it is taken when the optimizer is made, see {@link #usage}, except for
 * one layer in float32 during {@link #initialize} and {@link #forEachParameter}.
 *
 * <p><b>Errors:</b> if a step fails, state is as before it or as after it, never between; {@link
 * #steps} tells. If the communicator lives (a store fails, on any rank), all ranks get an error and
 * are back before the step, and {@link #step} may be called again. If it is broken, only {@link
 * #saveAlone}, {@link #undoStep} and {@link #close} are left; state is as before the step if the
 * failure came before the update, or if the previous state is kept.
 *
 * <p><b>Threads:</b> one at a time, the one that uses the communicator.
 */
public final class ZeroOptimizer implements AutoCloseable {
    private static final Duration FOREVER = Duration.ofDays(36_500);
    private static final int GRADIENT_SLOTS = 2;

    /** What a rank reports in a vote: a number, and how it went. */
    private static final int VOTE = 2;

    private static final double FINE = 0;
    private static final double FAILED = 1;
    private static final double GRADIENTS_LOST = 2;

    private final Communicator comm;
    private final int size;
    private final int rank;
    private final List<Layer> layers;
    private final Optimizer optimizer;
    private final ZeroOptions options;
    private final LossScale scale;
    private final Tiers tiers;
    private final boolean onHost;
    private final boolean keep;

    /** Whether the model adds to the accumulators themselves. */
    private final boolean direct;

    /** Whether parameters are read where they live. */
    private final boolean resident;

    /** Whether float32 parameters are the master parameters. */
    private final boolean shared;

    private final Stream stream;
    private final Event written;
    private final List<Part> parts = new ArrayList<>();
    private final List<Window> windows = new ArrayList<>();
    private final List<Slot> slots = new ArrayList<>();

    /** Pinned memory for state in a store: two sets of master parameters and moments. */
    private final List<StateStage> stateStages = new ArrayList<>();

    private final Deque<AutoCloseable> owned = new ArrayDeque<>();
    private final Map<Tier, Usage> usage = new EnumMap<>(Tier.class);
    private final Buffer votes;
    private final Buffer myVote;
    private final double[] received;
    private final MemorySegment receivedSegment;
    private final GradientNorm norm;
    private final double[] mine = new double[VOTE];
    private final MemorySegment mineSegment = MemorySegment.ofArray(mine);

    // Marks in the stream: one that is dropped behind an error is never counted.
    private final AtomicLong reached = new AtomicLong();
    private final Runnable reach = reached::incrementAndGet;
    private long marks;

    private long steps;
    private int lastGathered = -1;
    private @Nullable RuntimeException gradientFailure;

    /** Whether parameters may differ from the master parameters. */
    private boolean stale;

    /** Whether there is no state, or what an initialize or load that failed has left. */
    private boolean unset = true;

    private boolean canUndo;
    private double previousScale;
    private int previousGood;
    private boolean closed;

    /** A layer on this rank. */
    private final class Part {
        final int index;
        final Layer layer;
        final long count;
        final long padded;
        final long block;

        /** What this rank updates: all at stage 0, else its block. */
        final long from;

        final long updated;
        @Nullable Buffer visibleParameters;
        @Nullable Buffer visibleGradients;
        final Home parameters;
        final Home gradients;

        /** Master parameters, unless shared, and moments. */
        final List<Home> state = new ArrayList<>();

        final List<Buffer> previous = new ArrayList<>();

        /** All elements, if they are in memory up to stage 2. */
        @Nullable Buffer allParameters;

        /** Those this rank updates, if they are in memory. */
        @Nullable Buffer ownParameters;

        @Nullable OptimizerState inMemory;

        /** Pinned memory for what the store holds of parameters and gradients. */
        @Nullable Buffer parameterStage;

        @Nullable Buffer ownParameterStage;
        @Nullable Buffer gradientStage;

        /** This rank's block of gradients, and what it updates with, in memory or in the stage. */
        Buffer normGradients;

        Buffer updateGradients;

        /** Micro-steps whose gradients are there. */
        int done;

        boolean begun;
        @Nullable Slot open;

        Part(int index, Layer layer) {
            this.index = index;
            this.layer = layer;
            this.count = layer.count();
            this.block = (count + size - 1) / size;
            this.padded = block * size;
            int stage = options.stage();
            this.from = stage == 0 ? 0 : rank * block;
            this.updated = stage == 0 ? padded : block;
            String name = "layer " + layer.name();
            this.parameters =
                    home(
                            options.parameters(),
                            options.type(),
                            stage == 3 ? block : padded,
                            name + " parameters",
                            2,
                            Kind.PARAMETERS);
            this.gradients =
                    home(
                            options.gradients(),
                            options.accumulator(),
                            stage >= 2 ? block : padded,
                            name + " gradients",
                            1,
                            Kind.GRADIENTS);
            if (!shared) {
                state.add(stateHome(name + " master"));
            }
            for (int m = 0; m < optimizer.moments(); m++) {
                state.add(stateHome(name + " moment " + m));
            }
            // Views; those of a stage follow when it is allocated.
            if (!parameters.inStore()) {
                Buffer all = parameters.memory();
                allParameters = all;
                ownParameters = stage == 3 ? all : all.slice(from, updated);
                visibleParameters = resident ? all.slice(0, count) : null;
            }
            Buffer g = gradients.inStore() ? none() : gradients.memory();
            normGradients = g;
            updateGradients = g;
            if (!gradients.inStore()) {
                visibleGradients = direct ? g.slice(0, count) : null;
                gradientViews(g);
            }
            if (options.optimizer() != Tier.NVME) {
                Buffer master =
                        shared ? Objects.requireNonNull(ownParameters) : state.getFirst().memory();
                Buffer[] moments = new Buffer[optimizer.moments()];
                for (int m = 0; m < moments.length; m++) {
                    moments[m] = state.get(m + (shared ? 0 : 1)).memory();
                }
                inMemory = OptimizerState.of(master, moments);
                if (keep) {
                    for (int k = 0; k <= moments.length; k++) {
                        previous.add(memory(Tier.PINNED, DataType.FLOAT32, updated, Kind.BUFFERS));
                    }
                }
            }
        }

        private Home stateHome(String name) {
            return home(options.optimizer(), DataType.FLOAT32, updated, name, 2, Kind.OPTIMIZER);
        }

        void gradientViews(Buffer g) {
            if (options.stage() >= 2) {
                normGradients = g;
                updateGradients = g;
            } else {
                normGradients = g.slice(rank * block, block);
                updateGradients = options.stage() == 0 ? g : normGradients;
            }
        }

        /** Host memory where the update writes parameters besides the master ones; null if none. */
        @Nullable Buffer target() {
            if (shared) {
                return null;
            }
            return ownParameterStage != null ? ownParameterStage : ownParameters;
        }

        Buffer stateBuffer(int k) {
            OptimizerState s = Objects.requireNonNull(inMemory);
            return k == 0 ? s.parameters() : s.moment(k - 1);
        }
    }

    private static Buffer none() {
        return Buffer.wrap(MemorySegment.ofArray(new float[0]), DataType.FLOAT32);
    }

    private enum Kind {
        PARAMETERS,
        GRADIENTS,
        OPTIMIZER,
        BUFFERS
    }

    /** Room on the device for one gathered layer. */
    private final class Window {
        final List<Buffer> all = new ArrayList<>();
        final List<Buffer> own = new ArrayList<>();
        final List<Buffer> visible = new ArrayList<>();

        /** For a layer that comes from a store. */
        final List<Buffer> stage = new ArrayList<>();

        final Event freed = own(tiers.engine().device().newEvent());
        final Event ready = own(tiers.engine().device().newEvent());

        /** The layer inside, -1 for none. */
        int layer = -1;

        @Nullable Completion read;
        @Nullable Transfer transfer;
        boolean enqueued;
        int held;
        long mark;
        long lastUse;

        Window(long most) {
            Buffer memory = memory(Tier.DEVICE, options.type(), most, Kind.BUFFERS);
            Buffer pinned =
                    options.parameters() == Tier.NVME
                            ? memory(Tier.PINNED, options.type(), most, Kind.BUFFERS)
                            : null;
            for (Part p : parts) {
                all.add(memory.slice(0, p.padded));
                visible.add(memory.slice(0, p.count));
                own.add(memory.slice(rank * p.block, p.block));
                if (pinned != null) {
                    stage.add(pinned.slice(0, p.parameters.count));
                }
            }
        }
    }

    /** Room on the device for the gradients of one layer. */
    private final class Slot {
        final List<Buffer> all = new ArrayList<>();
        final List<Buffer> own = new ArrayList<>();
        final List<Buffer> visible = new ArrayList<>();
        final List<Buffer> wide = new ArrayList<>();
        final List<Buffer> wideOwn = new ArrayList<>();

        /** Where a GPU's gradients come to before they are added. */
        final List<Buffer> staged = new ArrayList<>();

        final Event ready = own(tiers.engine().device().newEvent());
        @Nullable Part part;
        boolean reducing;
        boolean first;

        /** Whether it holds accumulators, up to stage 1. */
        boolean sums;

        long mark;
        long lastUse;

        Slot(long most) {
            DataType type = options.type();
            DataType sum = options.accumulator();
            int bytes = Math.max(type.size(), sum.size());
            Buffer memory = memory(Tier.DEVICE, DataType.UINT8, most * bytes, Kind.BUFFERS);
            Buffer narrow = own(memory.lease(0, type, most, () -> {}));
            Buffer broad = own(memory.lease(0, sum, most, () -> {}));
            Buffer pinned = onHost ? null : memory(Tier.PINNED, type, most, Kind.BUFFERS);
            for (Part p : parts) {
                all.add(narrow.slice(0, p.padded));
                visible.add(narrow.slice(0, p.count));
                own.add(narrow.slice(rank * p.block, p.block));
                wide.add(broad.slice(0, p.padded));
                wideOwn.add(broad.slice(rank * p.block, p.block));
                if (pinned != null) {
                    staged.add(pinned.slice(0, p.gradients.count));
                }
            }
        }
    }

    /** Pinned memory for the state of one layer that comes from a store. */
    private final class StateStage {
        final List<OptimizerState> views = new ArrayList<>();
        final List<List<Buffer>> buffers = new ArrayList<>();
        final List<Completion> underWay = new ArrayList<>();

        StateStage(long most) {
            List<Buffer> memory = new ArrayList<>();
            for (int k = 0; k <= optimizer.moments(); k++) {
                memory.add(memory(Tier.PINNED, DataType.FLOAT32, most, Kind.BUFFERS));
            }
            for (Part p : parts) {
                List<Buffer> some = memory.stream().map(b -> b.slice(0, p.updated)).toList();
                buffers.add(some);
                views.add(
                        OptimizerState.of(
                                some.getFirst(),
                                some.subList(1, some.size()).toArray(Buffer[]::new)));
            }
        }

        void await() {
            RuntimeException failure = null;
            for (Completion c : underWay) {
                try {
                    c.await(FOREVER);
                } catch (RuntimeException e) {
                    failure = failure == null ? e : failure;
                }
            }
            underWay.clear();
            if (failure != null) {
                throw failure;
            }
        }
    }

    private ZeroOptimizer(
            Communicator comm,
            List<Layer> layers,
            Optimizer optimizer,
            ZeroOptions options,
            LossScale scale,
            Tiers tiers) {
        this.comm = Objects.requireNonNull(comm, "comm");
        this.size = comm.size();
        this.rank = comm.rank();
        this.layers = List.copyOf(layers);
        this.optimizer = Objects.requireNonNull(optimizer, "optimizer");
        this.options = Objects.requireNonNull(options, "options");
        this.scale = Objects.requireNonNull(scale, "scale");
        this.tiers = Objects.requireNonNull(tiers, "tiers");
        check();
        Device device = tiers.engine().device();
        this.onHost = device.kind() == Device.Kind.HOST;
        this.resident = options.stage() < 3 && options.parameters() == Tier.DEVICE;
        this.direct =
                options.stage() <= 1
                        && options.gradients() == Tier.DEVICE
                        && options.accumulator() == options.type();
        this.shared =
                options.type() == DataType.FLOAT32
                        && options.parameters() == options.optimizer()
                        && options.optimizer() != Tier.NVME;
        // Parameters in a store can fail after the state in memory was updated.
        this.keep =
                options.optimizer() != Tier.NVME
                        && (options.keepPrevious() || options.parameters() == Tier.NVME);
        for (Tier t : Tier.values()) {
            usage.put(t, Usage.NONE);
        }
        this.norm = new GradientNorm(layers.size());
        this.received = new double[VOTE * size];
        this.receivedSegment = MemorySegment.ofArray(received);
        try {
            this.stream = own(device.newStream());
            this.written = own(device.newEvent());
            this.votes = own(device.allocate(DataType.FLOAT64, (long) VOTE * size));
            this.myVote = votes.slice((long) VOTE * rank, VOTE);
            long most = 0;
            for (Layer l : this.layers) {
                Part p = new Part(parts.size(), l);
                parts.add(p);
                most = Math.max(most, p.padded);
            }
            buffers(most);
        } catch (RuntimeException | Error e) {
            close();
            throw e;
        }
    }

    private void check() {
        if (layers.isEmpty()) {
            throw new IllegalArgumentException("there are no layers, expected at least one");
        }
        Set<String> names = new HashSet<>();
        for (Layer l : layers) {
            if (!names.add(l.name())) {
                throw new IllegalArgumentException(
                        "two layers are named " + l.name() + ", expected names that differ");
            }
        }
        Device device = tiers.engine().device();
        if (device.kind() != comm.device().kind()
                || (device.kind() == Device.Kind.CUDA && device != comm.device())) {
            throw new IllegalArgumentException(
                    "the tiers are of "
                            + device
                            + ", the communicator is of "
                            + comm.device()
                            + "; both need the same");
        }
        if (device.kind() == Device.Kind.CUDA
                && (options.gradients() == Tier.DEVICE || options.optimizer() == Tier.DEVICE)) {
            throw new IllegalArgumentException(
                    "gradients are on tier "
                            + options.gradients()
                            + " and the optimizer's state on tier "
                            + options.optimizer()
                            + ", but the update runs on the CPU: for a GPU put both on PINNED or"
                            + " NVME");
        }
    }

    /** What parts share: windows, slots and stages. */
    private void buffers(long most) {
        if (!resident) {
            for (int i = 0; i <= options.prefetch(); i++) {
                windows.add(new Window(most));
            }
        }
        if (!direct) {
            for (int i = 0; i < GRADIENT_SLOTS; i++) {
                slots.add(new Slot(most));
            }
        }
        boolean stageParameters =
                options.parameters() == Tier.NVME
                        || (!onHost && options.parameters() == Tier.DEVICE);
        if (stageParameters) {
            long count = 0;
            for (Part p : parts) {
                count = Math.max(count, p.parameters.count);
            }
            Buffer memory = memory(Tier.PINNED, options.type(), count, Kind.BUFFERS);
            for (Part p : parts) {
                Buffer all = memory.slice(0, p.parameters.count);
                p.parameterStage = all;
                p.ownParameterStage = options.stage() == 3 ? all : all.slice(p.from, p.updated);
            }
        }
        if (options.gradients() == Tier.NVME) {
            long count = 0;
            for (Part p : parts) {
                count = Math.max(count, p.gradients.count);
            }
            Buffer memory = memory(Tier.PINNED, options.accumulator(), count, Kind.BUFFERS);
            for (Part p : parts) {
                Buffer all = memory.slice(0, p.gradients.count);
                p.gradientStage = all;
                p.gradientViews(all);
            }
        }
        if (options.optimizer() == Tier.NVME) {
            long count = 0;
            for (Part p : parts) {
                count = Math.max(count, p.updated);
            }
            stateStages.add(new StateStage(count));
            stateStages.add(new StateStage(count));
        }
    }

    /**
     * Takes memory for one rank. All ranks pass the same but for communicator, loss scale and
     * tiers. Then {@link #initialize} or {@link #load} sets the parameters.
     *
     * @param comm this rank's end
     * @param layers the model's parameters, in the order of the forward computation
     * @param optimizer the update rule
     * @param options what is sharded, and where it lives
     * @param scale the loss scale; an object of this rank's own, which {@link #step} adapts
     * @param tiers memory of this rank; the caller closes it afterwards
     * @return this rank's optimizer
     * @throws io.jccl.offload.OffloadMemoryException if a tier has no room; all is given back then
     * @throws IllegalArgumentException if layers, options and device do not fit together
     */
    public static ZeroOptimizer create(
            Communicator comm,
            List<Layer> layers,
            Optimizer optimizer,
            ZeroOptions options,
            LossScale scale,
            Tiers tiers) {
        return new ZeroOptimizer(comm, layers, optimizer, options, scale, tiers);
    }

    private <T extends AutoCloseable> T own(T resource) {
        owned.push(resource);
        return resource;
    }

    private Home home(Tier tier, DataType type, long count, String name, int versions, Kind kind) {
        Home h = own(new Home(tiers, tier, type, count, name + " rank " + rank, versions));
        account(tier, kind, h.bytes());
        return h;
    }

    private Buffer memory(Tier tier, DataType type, long count, Kind kind) {
        Buffer b =
                own(
                        (tier == Tier.DEVICE ? tiers.device() : tiers.pinned())
                                .allocate(type, count)
                                .zero());
        account(tier, kind, b.byteSize());
        return b;
    }

    private void account(Tier tier, Kind kind, long bytes) {
        Usage u = usage(tier);
        usage.put(
                tier,
                new Usage(
                        u.parameters() + (kind == Kind.PARAMETERS ? bytes : 0),
                        u.gradients() + (kind == Kind.GRADIENTS ? bytes : 0),
                        u.optimizer() + (kind == Kind.OPTIMIZER ? bytes : 0),
                        u.buffers() + (kind == Kind.BUFFERS ? bytes : 0)));
    }

    /**
     * What this rank holds on a tier.
     *
     * @param tier which
     * @return bytes; those in a store count each version
     */
    public Usage usage(Tier tier) {
        return Objects.requireNonNull(usage.get(Objects.requireNonNull(tier, "tier")));
    }

    /**
     * Steps that were taken, those that were skipped left out.
     *
     * @return 0 or more
     */
    public long steps() {
        return steps;
    }

    /**
     * What the loss is to be multiplied by now.
     *
     * @return the loss scale
     */
    public double lossScale() {
        return scale.value();
    }

    /**
     * The layers.
     *
     * @return as they were passed to {@link #create}
     */
    public List<Layer> layers() {
        return layers;
    }

    // The stream: marks tell whether work ran or was dropped behind an error.

    private long mark(Event ready) {
        stream.launchHostFunction(reach);
        ready.record(stream);
        return ++marks;
    }

    private void await(long mark, Event ready) {
        ready.synchronize(FOREVER);
        if (reached.get() < mark) {
            drain();
        }
    }

    /** Waits for the stream; throws the communicator's error if there is one. */
    private void drain() {
        stream.synchronize();
        if (reached.get() < marks) {
            throw new JcclException(
                    "the communicator of rank "
                            + rank
                            + " failed in an earlier operation: save what this rank holds with"
                            + " saveAlone, and begin anew with another communicator");
        }
    }

    /** Exchanges a number and a status with all ranks; they are in {@link #received} then. */
    private void vote(double number, double status) {
        mine[0] = number;
        mine[1] = status;
        myVote.copyFrom(mineSegment);
        comm.allGather(votes, stream);
        stream.launchHostFunction(reach);
        marks++;
        drain();
        votes.copyTo(receivedSegment);
    }

    /** The worst status among the ranks. */
    private double worst() {
        double w = FINE;
        for (int r = 0; r < size; r++) {
            w = Math.max(w, received[VOTE * r + 1]);
        }
        return w;
    }

    private String failedRanks() {
        List<Integer> failed = new ArrayList<>();
        for (int r = 0; r < size; r++) {
            if (received[VOTE * r + 1] != FINE) {
                failed.add(r);
            }
        }
        return (failed.size() == 1 ? "rank " + failed.getFirst() : "ranks " + failed);
    }

    /** This rank's own error, or one that names the others. */
    private RuntimeException failed(@Nullable RuntimeException local, String what) {
        return local != null
                ? local
                : new JcclException(failedRanks() + " failed: " + what + "; see the error there");
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the optimizer of rank " + rank + " is closed");
        }
    }

    private Part part(int layer) {
        checkOpen();
        if (layer < 0 || layer >= parts.size()) {
            throw new IndexOutOfBoundsException(
                    "layer is " + layer + ", expected 0 to " + (parts.size() - 1));
        }
        return parts.get(layer);
    }

    // Parameters.

    /**
     * Makes a layer's parameters ready on the device and waits for them; those of the next layer,
     * in the direction of the last two calls, begin to come. At stage 3 this is a collective: all
     * ranks gather and release in the same order.
     *
     * @param layer index of the layer
     * @return its parameters, to read only, until {@link #release}: {@link Layer#count} elements
     * @throws IllegalStateException if too many layers are held
     * @throws JcclException if a rank failed or a store cannot be read; in the latter case the call
     *     can be made again
     */
    public Buffer gather(int layer) {
        Part p = part(layer);
        checkFresh();
        if (resident) {
            return Objects.requireNonNull(p.visibleParameters);
        }
        Window w = enqueue(p);
        w.held++;
        try {
            await(w.mark, w.ready);
            if (w.transfer != null) {
                w.transfer.await(FOREVER);
            }
        } catch (RuntimeException e) {
            w.held--;
            w.layer = -1;
            throw e;
        }
        return w.visible.get(layer);
    }

    /**
     * As {@link #gather(int)}, but lets a stream wait instead of the calling thread.
     *
     * @param layer index of the layer
     * @param user a stream of the device; work enqueued there from now on may read the parameters
     * @return the parameters
     * @throws IllegalStateException if too many layers are held
     */
    public Buffer gather(int layer, Stream user) {
        Part p = part(layer);
        checkFresh();
        if (resident) {
            return Objects.requireNonNull(p.visibleParameters);
        }
        Window w = enqueue(p);
        w.held++;
        user.waitFor(w.ready);
        return w.visible.get(layer);
    }

    private void checkFresh() {
        checkState();
        if (stale) {
            throw new IllegalStateException(
                    "the parameters on rank "
                            + rank
                            + " are not those of the optimizer's state: call refresh on all ranks,"
                            + " or load with another communicator if this one is broken");
        }
    }

    private void checkState() {
        if (unset) {
            throw new IllegalStateException(
                    "rank " + rank + " has no state: call initialize or load on all ranks first");
        }
    }

    private Window enqueue(Part p) {
        int direction = p.index >= lastGathered ? 1 : -1;
        Window w = find(p.index);
        if (w == null) {
            w = pick();
            if (w == null) {
                throw new IllegalStateException(
                        "no window is free for layer "
                                + p.layer.name()
                                + ": "
                                + heldLayers()
                                + " are held; release one, or raise prefetch, which is "
                                + options.prefetch());
            }
            begin(w, p);
        }
        if (!w.enqueued) {
            finishBegin(w, p);
        }
        w.lastUse = ++uses;
        lastGathered = p.index;
        // Held while the others are picked.
        w.held++;
        try {
            for (int i = 1; i <= options.prefetch(); i++) {
                int next = p.index + i * direction;
                if (next < 0 || next >= parts.size() || find(next) != null) {
                    continue;
                }
                Window other = pick();
                if (other == null) {
                    break;
                }
                Part n = parts.get(next);
                begin(other, n);
                other.lastUse = ++uses;
                // A store is read ahead, but collectives must come in one order on all ranks, and
                // the read may fail on one.
                if (options.parameters() != Tier.NVME) {
                    finishBegin(other, n);
                }
            }
        } finally {
            w.held--;
        }
        return w;
    }

    private long uses;

    private @Nullable Window find(int layer) {
        for (Window w : windows) {
            if (w.layer == layer) {
                return w;
            }
        }
        return null;
    }

    /** An empty window, or the one that was used longest ago. */
    private @Nullable Window pick() {
        Window best = null;
        for (Window w : windows) {
            if (w.held == 0
                    && (best == null
                            || (w.layer < 0 && best.layer >= 0)
                            || ((w.layer < 0) == (best.layer < 0) && w.lastUse < best.lastUse))) {
                best = w;
            }
        }
        return best;
    }

    private List<String> heldLayers() {
        List<String> held = new ArrayList<>();
        for (Window w : windows) {
            if (w.held > 0) {
                held.add(parts.get(w.layer).layer.name());
            }
        }
        return held;
    }

    private void begin(Window w, Part p) {
        // What was on its way into the window must have come, since it writes there.
        if (w.layer >= 0) {
            settle(w);
        }
        w.layer = -1;
        w.enqueued = false;
        w.transfer = null;
        w.read = null;
        if (p.parameters.inStore()) {
            w.read = p.parameters.read(w.stage.get(p.index));
        }
        w.layer = p.index;
    }

    private void settle(Window w) {
        if (w.read != null && !w.read.isDone()) {
            try {
                w.read.await(FOREVER);
            } catch (RuntimeException e) {
                // It was for a layer that nobody wants any more.
                w.read = null;
            }
        }
        if (w.enqueued) {
            w.ready.synchronize(FOREVER);
        }
    }

    private void finishBegin(Window w, Part p) {
        Buffer to = (options.stage() == 3 ? w.own : w.all).get(p.index);
        try {
            if (p.parameters.inStore()) {
                Objects.requireNonNull(w.read).await(FOREVER);
                copyIn(w, w.stage.get(p.index), to);
            } else if (p.parameters.tier == Tier.PINNED) {
                copyIn(w, p.parameters.memory(), to);
            } else {
                stream.waitFor(w.freed);
                stream.copy(p.parameters.memory(), to);
            }
        } catch (RuntimeException e) {
            w.layer = -1;
            throw e;
        }
        if (options.stage() == 3) {
            comm.allGather(w.all.get(p.index), stream);
        }
        w.mark = mark(w.ready);
        w.enqueued = true;
    }

    private void copyIn(Window w, Buffer from, Buffer to) {
        Transfer t = tiers.engine().toDevice(from, to, 0, w.freed);
        w.transfer = t;
        t.before(stream);
    }

    /**
     * Lets go of a layer's parameters.
     *
     * @param layer index of the layer; nothing reads its parameters any more
     * @throws IllegalStateException if it is not held
     */
    public void release(int layer) {
        held(part(layer));
    }

    /**
     * Lets go of a layer's parameters once a stream has come so far.
     *
     * @param layer index of the layer; work enqueued on the stream so far may read its parameters
     * @param user the stream
     * @throws IllegalStateException if it is not held
     */
    public void release(int layer, Stream user) {
        Window w = held(part(layer));
        if (w != null) {
            w.freed.record(user);
        }
    }

    private @Nullable Window held(Part p) {
        if (resident) {
            return null;
        }
        Window w = find(p.index);
        if (w == null || w.held == 0) {
            throw new IllegalStateException(
                    "layer " + p.layer.name() + " is not held: release it once for each gather");
        }
        w.held--;
        return w;
    }

    private void dropWindows() {
        for (Window w : windows) {
            if (w.layer >= 0) {
                settle(w);
            }
            w.layer = -1;
            w.held = 0;
        }
        lastGathered = -1;
    }

    // Gradients.

    /**
     * Room for a layer's gradients of this micro-step. The model adds to what is there; at the
     * first call it is zero, unless earlier micro-steps have added to it.
     *
     * @param layer index of the layer
     * @return its gradients, until {@link #reduce}: {@link Layer#count} elements
     * @throws IllegalStateException if the layer had all its micro-steps
     */
    public Buffer gradients(int layer) {
        Part p = part(layer);
        if (p.done >= options.accumulation()) {
            throw new IllegalStateException(
                    "layer "
                            + p.layer.name()
                            + " has had its "
                            + options.accumulation()
                            + " micro-steps: call step");
        }
        if (direct) {
            Buffer all = p.gradients.memory();
            if (!p.begun && p.done == 0) {
                all.zero();
            }
            p.begun = true;
            return Objects.requireNonNull(p.visibleGradients);
        }
        Slot s = p.open;
        if (s == null) {
            s = slot();
            s.part = p;
            s.sums = false;
            s.all.get(layer).zero();
            p.open = s;
            p.begun = true;
        }
        return s.visible.get(layer);
    }

    /** A slot that is free, after waiting for the older one if it must. */
    private Slot slot() {
        Slot oldest = null;
        for (Slot s : slots) {
            if (s.part == null) {
                return s;
            }
            if (s.reducing && (oldest == null || s.lastUse < oldest.lastUse)) {
                oldest = s;
            }
        }
        if (oldest == null) {
            throw new IllegalStateException(
                    "the gradients of "
                            + slots.size()
                            + " layers are open: reduce one before asking for another's");
        }
        finish(oldest);
        return oldest;
    }

    /**
     * Says that a layer's gradients of this micro-step are complete; they begin to be reduced where
     * the stage has it. All ranks reduce layers in the same order.
     *
     * @param layer index of the layer
     * @throws IllegalStateException if {@link #gradients} was not called before
     * @throws JcclException if a rank failed
     */
    public void reduce(int layer) {
        Part p = part(layer);
        if (!p.begun) {
            throw new IllegalStateException(
                    "gradients of layer " + p.layer.name() + " were not asked for: there are none");
        }
        p.begun = false;
        p.done++;
        boolean last = p.done == options.accumulation();
        if (direct) {
            if (last) {
                reduceSums(p.gradients.memory());
            }
            return;
        }
        Slot s = Objects.requireNonNull(p.open);
        p.open = null;
        s.first = p.done == 1;
        s.lastUse = ++uses;
        if (options.stage() >= 2) {
            comm.reduceScatter(s.all.get(p.index), ReduceOp.SUM, stream);
            s.mark = mark(s.ready);
            s.reducing = true;
            return;
        }
        addUp(s, p, s.all.get(p.index));
        if (!last) {
            s.part = null;
            return;
        }
        if (p.gradients.tier == Tier.DEVICE) {
            s.part = null;
            reduceSums(p.gradients.memory());
            return;
        }
        // The sums go to the device and come back reduced.
        Buffer wide = s.wide.get(p.index);
        Buffer sums =
                p.gradients.inStore()
                        ? Objects.requireNonNull(p.gradientStage)
                        : p.gradients.memory();
        Transfer t = tiers.engine().toDevice(sums, wide, 0);
        t.before(stream);
        reduceSums(wide);
        s.mark = mark(s.ready);
        s.reducing = true;
        s.sums = true;
        if (p.gradients.inStore()) {
            t.await(FOREVER); // the stage is the next layer's
        }
    }

    /**
     * As {@link #reduce(int)}, of gradients that a stream writes.
     *
     * @param layer index of the layer
     * @param user a stream of the device; work enqueued there so far writes the gradients
     */
    public void reduce(int layer, Stream user) {
        part(layer);
        if (options.stage() >= 2 || direct) {
            written.record(user);
            stream.waitFor(written);
        } else {
            user.synchronize(); // they are added up by the CPU
        }
        reduce(layer);
    }

    private void reduceSums(Buffer all) {
        if (options.stage() == 0) {
            comm.allReduce(all, ReduceOp.SUM, stream);
        } else {
            comm.reduceScatter(all, ReduceOp.SUM, stream);
        }
    }

    private long marksBehind() {
        stream.launchHostFunction(reach);
        return ++marks;
    }

    /** Waits for a slot's reduction, and puts the result where gradients live. */
    private void finish(Slot s) {
        Part p = Objects.requireNonNull(s.part);
        await(s.mark, s.ready);
        s.reducing = false;
        s.part = null;
        if (!s.sums) {
            addUp(s, p, s.own.get(p.index));
            return;
        }
        Buffer from = (options.stage() == 0 ? s.wide : s.wideOwn).get(p.index);
        try {
            if (p.gradients.inStore() && options.stage() != 0) {
                p.gradients.read(Objects.requireNonNull(p.gradientStage)).await(FOREVER);
            }
            tiers.engine().toHost(from, p.updateGradients, 0).await(FOREVER);
            if (p.gradients.inStore()) {
                p.gradients.write(Objects.requireNonNull(p.gradientStage)).await(FOREVER);
            }
        } catch (RuntimeException e) {
            lost(e);
        }
    }

    /** Adds a slot's gradients to where they live. */
    private void addUp(Slot s, Part p, Buffer from) {
        try {
            Buffer source = from;
            if (!onHost) {
                source = s.staged.get(p.index);
                tiers.engine().toHost(from, source, 0).await(FOREVER);
            }
            Buffer sums;
            if (p.gradients.inStore()) {
                sums = Objects.requireNonNull(p.gradientStage);
                if (!s.first) {
                    p.gradients.read(sums).await(FOREVER);
                }
            } else {
                sums = p.gradients.memory();
            }
            if (s.first) {
                Numbers.copy(source, sums);
            } else {
                Numbers.add(source, sums);
            }
            if (p.gradients.inStore()) {
                p.gradients.write(sums).await(FOREVER);
            }
        } catch (RuntimeException e) {
            lost(e);
        }
    }

    /** Collectives go on, since the other ranks wait for them; step tells everyone. */
    private void lost(RuntimeException e) {
        if (gradientFailure == null) {
            gradientFailure = e;
        } else {
            gradientFailure.addSuppressed(e);
        }
    }

    /**
     * Forgets all gradients since the last step, so that its micro-steps can be done again. All
     * ranks call it at the same place.
     *
     * @throws JcclException if a rank failed
     */
    public void clearGradients() {
        checkOpen();
        drain();
        forgetGradients();
    }

    private void forgetGradients() {
        for (Slot s : slots) {
            s.part = null;
            s.reducing = false;
        }
        for (Part p : parts) {
            p.done = 0;
            p.begun = false;
            p.open = null;
        }
        gradientFailure = null;
    }

    // The step.

    /**
     * Updates the parameters with the gradients of all micro-steps, unless one of them, on any
     * rank, is infinite or not a number. No layer is held.
     *
     * @param learningRate 0 or more
     * @return how it ended
     * @throws IllegalStateException if micro-steps are missing, or a layer is held
     * @throws JcclException if a rank or a tier failed; see the class about what is left
     */
    public StepResult step(double learningRate) {
        checkStep(learningRate);
        for (Slot s : slots) {
            if (s.part != null) {
                finish(s);
            }
        }
        drain();
        dropWindows();
        double norm = totalNorm();
        double count = (double) size * options.accumulation();
        double lossScale = scale.value();
        double factor = GradientNorm.factor(norm, lossScale * count, options.maxNorm());
        double mean = norm / (lossScale * count);
        if (Double.isNaN(factor)) {
            forgetGradients();
            scale.update(false);
            return new StepResult(false, mean, scale.value());
        }
        update(learningRate, factor);
        forgetGradients();
        scale.update(true);
        return new StepResult(true, mean, scale.value());
    }

    private void checkStep(double learningRate) {
        checkOpen();
        checkState(); // stale parameters are written anew
        if (!(learningRate >= 0 && learningRate <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the learning rate is " + learningRate + ", expected 0 or more");
        }
        for (Part p : parts) {
            if (p.done != options.accumulation()) {
                throw new IllegalStateException(
                        "layer "
                                + p.layer.name()
                                + " has gradients of "
                                + p.done
                                + " micro-steps, expected "
                                + options.accumulation()
                                + ": reduce each layer once a micro-step");
            }
        }
        List<String> held = heldLayers();
        if (!held.isEmpty()) {
            throw new IllegalStateException(held + " are held: release them before the step");
        }
    }

    /** The norm of the sum of all gradients; the same bits on all ranks and at all stages. */
    private double totalNorm() {
        double status = FINE;
        RuntimeException local = gradientFailure;
        double sum = 0;
        if (local != null) {
            status = GRADIENTS_LOST;
        } else {
            try {
                norm.reset();
                for (Part p : parts) {
                    readGradients(p);
                    norm.add(p.index, p.normGradients);
                }
                sum = norm.sumOfSquares();
            } catch (RuntimeException e) {
                local = e;
                status = FAILED;
            }
        }
        vote(sum, status);
        double w = worst();
        if (w == GRADIENTS_LOST) {
            RuntimeException e =
                    failed(
                            local,
                            "gradients were lost, do the micro-steps of step "
                                    + (steps + 1)
                                    + " again");
            forgetGradients();
            throw e;
        }
        if (w != FINE) {
            throw failed(local, "gradients cannot be read, call step again");
        }
        double total = 0;
        for (int r = 0; r < size; r++) {
            total += received[VOTE * r];
        }
        return Math.sqrt(total);
    }

    private void readGradients(Part p) {
        if (p.gradients.inStore()) {
            p.gradients.read(Objects.requireNonNull(p.gradientStage)).await(FOREVER);
        }
    }

    private void update(double learningRate, double factor) {
        RuntimeException local = null;
        boolean voted = false;
        // From here on the copy is that of this step.
        canUndo = false;
        previousScale = scale.value();
        previousGood = scale.goodSteps();
        try {
            if (keep) {
                for (Part p : parts) {
                    for (int k = 0; k < p.previous.size(); k++) {
                        Numbers.copy(p.stateBuffer(k), p.previous.get(k));
                    }
                }
            }
            try {
                if (!stateStages.isEmpty()) {
                    startRead(parts.getFirst());
                }
            } catch (RuntimeException e) {
                local = e;
            }
            for (Part p : parts) {
                if (local == null) {
                    try {
                        updatePart(p, learningRate, factor);
                    } catch (RuntimeException e) {
                        local = e;
                    }
                }
                local = publish(p, local);
            }
            for (StateStage s : stateStages) {
                try {
                    s.await();
                } catch (RuntimeException e) {
                    local = local == null ? e : local;
                }
            }
            drain();
            vote(0, local == null ? FINE : FAILED);
            voted = true;
            if (worst() != FINE) {
                throw failed(
                        local,
                        "all are back at step "
                                + steps
                                + "; once the cause is gone, call step again");
            }
        } catch (RuntimeException e) {
            settleStages(e);
            if (voted || canRestore()) {
                restore(e, voted);
            } else {
                // All of this rank's state is updated, or none.
                commit();
                stale = options.stage() == 1 || options.stage() == 2;
            }
            throw e;
        }
        commit();
    }

    private void settleStages(RuntimeException e) {
        for (StateStage s : stateStages) {
            try {
                s.await();
            } catch (RuntimeException second) {
                if (second != e) {
                    e.addSuppressed(second);
                }
            }
        }
    }

    private boolean canRestore() {
        return keep || options.optimizer() == Tier.NVME;
    }

    private void commit() {
        stale = false;
        for (Part p : parts) {
            p.parameters.commit();
            for (Home h : p.state) {
                h.commit();
            }
        }
        steps++;
        canUndo = canRestore();
    }

    private StateStage stage(Part p) {
        return stateStages.get(p.index % stateStages.size());
    }

    private void startRead(Part p) {
        StateStage s = stage(p);
        s.await(); // its writes
        List<Buffer> to = s.buffers.get(p.index);
        for (int k = 0; k < to.size(); k++) {
            s.underWay.add(p.state.get(k).read(to.get(k)));
        }
    }

    private void updatePart(Part p, double learningRate, double factor) {
        OptimizerState state;
        if (stateStages.isEmpty()) {
            state = Objects.requireNonNull(p.inMemory);
        } else {
            stage(p).await();
            state = stage(p).views.get(p.index);
            if (p.index + 1 < parts.size()) {
                startRead(parts.get(p.index + 1));
            }
        }
        readGradients(p);
        optimizer.step(state, 0, p.updateGradients, p.target(), steps + 1, learningRate, factor);
        if (!stateStages.isEmpty()) {
            StateStage s = stage(p);
            List<Buffer> from = s.buffers.get(p.index);
            for (int k = 0; k < from.size(); k++) {
                s.underWay.add(p.state.get(k).write(from.get(k)));
            }
        }
        storeOwnParameters(p);
    }

    /**
     * From the stage to where parameters live. At stages 1 and 2 a store gets them whole, later.
     */
    private void storeOwnParameters(Part p) {
        Buffer staged = p.ownParameterStage;
        if (staged == null) {
            return;
        }
        if (!p.parameters.inStore()) {
            tiers.engine()
                    .toDevice(staged, Objects.requireNonNull(p.ownParameters), 0)
                    .await(FOREVER);
        } else if (options.stage() == 0 || options.stage() == 3) {
            p.parameters.write(Objects.requireNonNull(p.parameterStage)).await(FOREVER);
        }
    }

    /**
     * Gives all ranks a layer's updated parameters, at stages 1 and 2.
     *
     * @return this rank's error; it takes part in the collective all the same
     */
    private @Nullable RuntimeException publish(Part p, @Nullable RuntimeException earlier) {
        if (options.stage() == 0 || options.stage() == 3) {
            return earlier;
        }
        if (resident) {
            comm.allGather(Objects.requireNonNull(p.allParameters), stream);
            marksBehind();
            return earlier;
        }
        RuntimeException failure = earlier;
        Window w = windows.getFirst();
        Buffer all = w.all.get(p.index);
        Buffer from =
                p.ownParameterStage != null
                        ? p.ownParameterStage
                        : Objects.requireNonNull(p.ownParameters);
        tiers.engine().toDevice(from, w.own.get(p.index), 0).before(stream);
        comm.allGather(all, stream);
        long mark = mark(w.ready);
        await(mark, w.ready);
        Buffer to =
                p.parameterStage != null
                        ? p.parameterStage
                        : Objects.requireNonNull(p.allParameters);
        tiers.engine().toHost(all, to, 0).await(FOREVER);
        if (p.parameters.inStore() && failure == null) {
            try {
                p.parameters.write(to).await(FOREVER);
            } catch (RuntimeException e) {
                failure = e;
            }
        }
        return failure;
    }

    /** Back to the state of before the step; the error goes to the caller afterwards. */
    private void restore(RuntimeException cause, boolean alive) {
        for (Part p : parts) {
            p.parameters.forget();
            for (Home h : p.state) {
                h.forget();
            }
            for (int k = 0; k < p.previous.size(); k++) {
                Numbers.copy(p.previous.get(k), p.stateBuffer(k));
            }
        }
        if (options.parameters() == Tier.NVME) {
            return; // the version of before the step is there
        }
        try {
            refresh(alive);
        } catch (RuntimeException e) {
            cause.addSuppressed(e);
        }
    }

    /**
     * Makes the parameters anew from the master parameters. It is needed only where an error says
     * so: after a step failed, and putting back the parameters failed too. All ranks call it.
     *
     * @throws JcclException if a rank or a tier failed; the call can be made again
     */
    public void refresh() {
        checkOpen();
        checkState();
        dropWindows();
        refresh(true);
    }

    private void refresh(boolean alive) {
        stale = true;
        RuntimeException local = null;
        for (Part p : parts) {
            try {
                if (!shared) {
                    Buffer master;
                    if (stateStages.isEmpty()) {
                        master = p.stateBuffer(0);
                    } else {
                        master = stateStages.getFirst().buffers.get(p.index).getFirst();
                        p.state.getFirst().read(master).await(FOREVER);
                    }
                    Numbers.copy(master, Objects.requireNonNull(p.target()));
                    storeOwnParameters(p);
                }
            } catch (RuntimeException e) {
                local = local == null ? e : local;
            }
            if (alive) {
                local = publish(p, local);
            }
        }
        if (alive) {
            drain();
            vote(0, local == null ? FINE : FAILED);
            if (worst() != FINE) {
                throw failed(local, "the parameters could not be written");
            }
        } else if (local != null) {
            throw local;
        }
        for (Part p : parts) {
            p.parameters.commit();
        }
        stale = !alive && (options.stage() == 1 || options.stage() == 2);
    }

    /**
     * Goes back to the state of before the last step that was taken, such as when another rank died
     * in it and this one did not. All ranks call it that are left; it does not communicate.
     * Afterwards save what there is with {@link #saveAlone}; training goes on after {@link #load}.
     *
     * @throws IllegalStateException if that state is not kept, or this was called for the step
     *     already
     */
    public void undoStep() {
        checkOpen();
        if (!canUndo) {
            throw new IllegalStateException(
                    "the state of before step "
                            + steps
                            + (canRestore()
                                    ? " is not there: there was no step, or it was undone"
                                    : " is not kept: set keepPrevious"));
        }
        canUndo = false;
        for (Part p : parts) {
            for (Home h : p.state) {
                h.flip();
            }
            for (int k = 0; k < p.previous.size(); k++) {
                Numbers.copy(p.previous.get(k), p.stateBuffer(k));
            }
        }
        steps--;
        scale.restore(previousScale, previousGood);
        forgetGradients();
        stale = true;
    }

    // Values in and out.

    /** Gives the initial values of a tensor. */
    @FunctionalInterface
    public interface Initializer {
        /**
         * Fills one tensor.
         *
         * @param layer the layer's name
         * @param tensor the tensor's name
         * @param values float32 in host memory, all zero
         */
        void fill(String layer, String tensor, Buffer values);
    }

    /** Gets the values of a tensor. */
    @FunctionalInterface
    public interface Visitor {
        /**
         * Reads one tensor.
         *
         * @param layer the layer's name
         * @param tensor the tensor's name
         * @param values float32 in host memory, until the call returns
         */
        void visit(String layer, String tensor, Buffer values);
    }

    /**
     * Sets all parameters; moments become zero, and the steps begin at 0. All ranks call it.
     *
     * @param initializer gives the values, the same on all ranks
     * @throws JcclException if values differ between ranks, or a rank failed
     * @throws io.jccl.offload.OffloadMemoryException if tier {@link Tier#PINNED} has no room for
     *     one layer in float32
     */
    public void initialize(Initializer initializer) {
        checkOpen();
        forgetGradients();
        dropWindows();
        unset = true;
        CRC32C crc = new CRC32C();
        try (Buffer whole = tiers.pinned().allocate(DataType.FLOAT32, mostPadded())) {
            for (Part p : parts) {
                whole.zero();
                long at = 0;
                for (Layer.Tensor t : p.layer.tensors()) {
                    initializer.fill(p.layer.name(), t.name(), whole.slice(at, t.count()));
                    at += t.count();
                }
                MemorySegment values = whole.slice(0, p.count).asSegment();
                for (long i = 0; i < values.byteSize(); i += 1 << 30) {
                    crc.update(
                            values.asSlice(i, Math.min(1 << 30, values.byteSize() - i))
                                    .asByteBuffer());
                }
                put(p, 0, whole.slice(p.from, p.updated));
                for (int m = 1; m <= optimizer.moments(); m++) {
                    put(p, m, null);
                }
            }
        }
        vote((double) crc.getValue(), FINE);
        for (int r = 1; r < size; r++) {
            if (received[VOTE * r] != received[0]) {
                throw new JcclException(
                        "the initial values on rank "
                                + r
                                + " differ from those on rank 0: give all ranks the same, such as"
                                + " from one seed");
            }
        }
        steps = 0;
        canUndo = false;
        unset = false;
        refresh(true);
    }

    private long mostPadded() {
        long most = 0;
        for (Part p : parts) {
            most = Math.max(most, p.padded);
        }
        return most;
    }

    /** Sets state k of a part; null for zeros. */
    private void put(Part p, int k, @Nullable Buffer values) {
        Buffer to =
                stateStages.isEmpty()
                        ? p.stateBuffer(k)
                        : stateStages.getFirst().buffers.get(p.index).get(k);
        if (values == null) {
            to.zero();
        } else {
            Numbers.copy(values, to);
        }
        if (!stateStages.isEmpty()) {
            Home h = p.state.get(k);
            h.write(to).await(FOREVER);
            h.commit();
        }
    }

    /** State k of a part in host memory, until the next call. */
    private Buffer get(Part p, int k) {
        if (stateStages.isEmpty()) {
            return p.stateBuffer(k);
        }
        Buffer to = stateStages.getFirst().buffers.get(p.index).get(k);
        p.state.get(k).read(to).await(FOREVER);
        return to;
    }

    /**
     * Shows every rank all master parameters, one layer after the other. All ranks call it.
     *
     * @param visitor gets them
     * @throws JcclException if a rank failed
     * @throws io.jccl.offload.OffloadMemoryException if tier {@link Tier#DEVICE} (or on a GPU
     *     {@link Tier#PINNED}) has no room for one layer in float32
     */
    public void forEachParameter(Visitor visitor) {
        checkOpen();
        checkState();
        long most = mostPadded();
        try (Buffer device = tiers.device().allocate(DataType.FLOAT32, most);
                Buffer host = tiers.pinned().allocate(DataType.FLOAT32, onHost ? 0 : most)) {
            for (Part p : parts) {
                Buffer values = onHost ? device : host;
                if (options.stage() == 0) {
                    values = get(p, 0);
                } else {
                    Buffer all = device.slice(0, p.padded);
                    tiers.engine()
                            .toDevice(get(p, 0), all.slice(rank * p.block, p.block), 0)
                            .await(FOREVER);
                    comm.allGather(all, stream);
                    marksBehind();
                    drain();
                    if (!onHost) {
                        tiers.engine().toHost(all, host.slice(0, p.padded), 0).await(FOREVER);
                    }
                }
                long at = 0;
                for (Layer.Tensor t : p.layer.tensors()) {
                    visitor.visit(p.layer.name(), t.name(), values.slice(at, t.count()));
                    at += t.count();
                }
            }
        }
    }

    /**
     * Saves parameters and moments in float32, each rank its block, to a new file in {@code
     * folder/step-N}. All ranks call it, with one folder that all can reach. What is there stays; a
     * file gets its name once all of it is on the disk, and a step of which files are missing is
     * not loaded.
     *
     * @param folder where; it is made if it is not there
     * @throws IOException if this rank cannot write
     * @throws JcclException if another rank failed; the files are no checkpoint then
     */
    public void save(Path folder) throws IOException {
        checkOpen();
        checkState();
        // One number for the files of all ranks, so that those of different calls are not mixed.
        vote(rank == 0 ? (double) Checkpoint.newId() : 0, FINE);
        long id = (long) received[0];
        IOException failure = null;
        try {
            write(folder, id, false);
        } catch (IOException e) {
            failure = e;
        }
        vote(0, failure == null ? FINE : FAILED);
        if (failure != null) {
            throw failure;
        }
        if (worst() != FINE) {
            throw new JcclException(
                    failedRanks()
                            + " could not save step "
                            + steps
                            + " to "
                            + folder
                            + "; see the error there");
        }
    }

    /**
     * Saves what this rank holds, without the others: at stage 0 all state, else its block, which
     * {@link #load} takes once all other blocks of this step are there too.
     *
     * @param folder as for {@link #save}
     * @throws IOException if writing fails
     */
    public void saveAlone(Path folder) throws IOException {
        checkOpen();
        checkState();
        write(folder, Checkpoint.ALONE, true);
    }

    private void write(Path folder, long id, boolean all) throws IOException {
        List<Checkpoint.Range> ranges = new ArrayList<>();
        for (Part p : parts) {
            boolean whole = all && options.stage() == 0;
            long from = whole ? 0 : Math.min(p.count, rank * p.block);
            long to = whole ? p.count : Math.min(p.count, (rank + 1) * p.block);
            ranges.add(new Checkpoint.Range(p.layer, from, to - from));
        }
        Checkpoint.Header header =
                new Checkpoint.Header(
                        id,
                        steps,
                        scale.value(),
                        scale.goodSteps(),
                        rank,
                        size,
                        optimizer.label(),
                        optimizer.moments(),
                        ranges);
        Checkpoint.write(
                folder,
                header,
                (layer, k) -> {
                    Part p = parts.get(layer);
                    Checkpoint.Range r = ranges.get(layer);
                    // A block may be padding alone, behind the last element.
                    return get(p, k).slice(r.count() == 0 ? 0 : r.from() - p.from, r.count());
                });
    }

    /**
     * Loads the newest step of which all files are there, saved by any number of ranks at any stage
     * and from any tier. All ranks call it. Everything is checked before anything is changed.
     *
     * @param folder that was passed to {@link #save}
     * @return the number of steps taken when it was saved
     * @throws IOException if there is no whole step, or a file is damaged or of another model; the
     *     message names it
     * @throws JcclException if another rank failed
     */
    public long load(Path folder) throws IOException {
        checkOpen();
        Checkpoint checkpoint = null;
        IOException failure = null;
        try {
            checkpoint = Checkpoint.newest(folder, layers, optimizer.label(), optimizer.moments());
            checkpoint.verify();
        } catch (IOException e) {
            failure = e;
        }
        vote(
                checkpoint == null ? -1 : (double) checkpoint.steps(),
                failure == null ? FINE : FAILED);
        if (failure != null) {
            throw failure;
        }
        if (worst() != FINE || checkpoint == null) {
            throw new JcclException(
                    failedRanks() + " could not load from " + folder + "; see the error there");
        }
        for (int r = 0; r < size; r++) {
            if (received[VOTE * r] != checkpoint.steps()) {
                throw new JcclException(
                        "rank "
                                + r
                                + " finds step "
                                + (long) received[VOTE * r]
                                + " in "
                                + folder
                                + ", rank "
                                + rank
                                + " step "
                                + checkpoint.steps()
                                + ": give all ranks one folder");
            }
        }
        forgetGradients();
        dropWindows();
        unset = true;
        canUndo = false;
        RuntimeException local = null;
        try {
            for (Part p : parts) {
                for (int k = 0; k <= optimizer.moments(); k++) {
                    Buffer to =
                            stateStages.isEmpty()
                                    ? p.stateBuffer(k)
                                    : stateStages.getFirst().buffers.get(p.index).get(k);
                    to.zero(); // the padding
                    long real = Math.max(0, Math.min(p.updated, p.count - p.from));
                    checkpoint.read(p.index, k, p.from, to.slice(0, real));
                    if (!stateStages.isEmpty()) {
                        p.state.get(k).write(to).await(FOREVER);
                        p.state.get(k).commit();
                    }
                }
            }
        } catch (IOException | RuntimeException e) {
            local =
                    e instanceof RuntimeException x
                            ? x
                            : new JcclException("cannot read " + folder + ": " + e, e);
        }
        vote(0, local == null ? FINE : FAILED);
        if (worst() != FINE) {
            throw failed(local, "state could not be read; load again");
        }
        steps = checkpoint.steps();
        scale.restore(checkpoint.lossScale(), checkpoint.goodSteps());
        unset = false;
        refresh(true);
        return steps;
    }

    /** Gives all memory back. Closing twice does nothing. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        for (Window w : windows) {
            if (w.layer >= 0) {
                settle(w);
            }
        }
        while (!owned.isEmpty()) {
            try {
                owned.pop().close();
            } catch (RuntimeException e) {
                throw e;
            } catch (Exception e) {
                throw new JcclException("cannot close a part of the optimizer: " + e, e);
            }
        }
    }

    @Override
    public String toString() {
        return "ZeRO stage "
                + options.stage()
                + " on rank "
                + rank
                + " of "
                + size
                + ", step "
                + steps;
    }
}
