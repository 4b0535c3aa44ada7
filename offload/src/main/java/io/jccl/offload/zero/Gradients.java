package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.Tier;
import io.jccl.offload.Transfer;
import io.jccl.offload.optim.GradientNorm;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Gradients of the micro-steps: added to where they live, and reduced over the ranks through slots
 * on the device, unless the model adds to them where they live.
 */
final class Gradients {
    private static final int SLOTS = 2;

    private final ZeroConfig config;
    private final ZeroOptions options;
    private final boolean direct;
    private final boolean onHost;
    private final Communicator comm;
    private final Copies copies;
    private final Ranks ranks;
    private final Stream stream;
    private final Written written;
    private final Part[] parts;
    private final Slot[] slots;
    private final GradientNorm norm = new GradientNorm(1);

    /** Adds them up if they live on a GPU; else null. */
    private final @Nullable DeviceSums sums;

    /** Micro-steps of each part whose gradients are there. */
    private final int[] done;

    /** Whether a part's gradients were requested and are not complete. */
    private final boolean[] begun;

    /** The slots of those. */
    private final @Nullable Slot[] open;

    private @Nullable RuntimeException failure;
    private long uses;

    /** Room on the device for the gradients of one layer. */
    private static final class Slot {
        final List<Buffer> all = new ArrayList<>();
        final List<Buffer> own = new ArrayList<>();
        final List<Buffer> visible = new ArrayList<>();
        final List<Buffer> wide = new ArrayList<>();
        final List<Buffer> wideOwn = new ArrayList<>();

        /** Receives a GPU's gradients before the CPU adds them. */
        final List<Buffer> staged = new ArrayList<>();

        final Event ready;
        @Nullable Part part;
        boolean reducing;
        boolean first;

        /** Whether it holds accumulators, up to stage 1. */
        boolean sums;

        /** The way of accumulators to the device. */
        @Nullable Transfer in;

        long mark;
        long lastUse;

        Slot(ZeroConfig config, List<Part> parts, Memory taken) {
            this.ready = taken.own(config.device().newEvent());
            DataType type = config.options().type();
            DataType sum = config.options().accumulator();
            long most = Part.mostPadded(parts);
            int bytes = Math.max(type.size(), sum.size());
            Buffer memory = taken.buffer(Tier.DEVICE, DataType.UINT8, most * bytes);
            Buffer narrow = taken.own(memory.lease(0, type, most, () -> {}));
            Buffer broad = taken.own(memory.lease(0, sum, most, () -> {}));
            Buffer pinned =
                    config.onHost() || config.sumsOnDevice()
                            ? null
                            : taken.buffer(Tier.PINNED, type, most);
            for (Part p : parts) {
                all.add(narrow.slice(0, p.padded));
                visible.add(narrow.slice(0, p.count));
                own.add(p.ofRank(narrow));
                wide.add(broad.slice(0, p.padded));
                wideOwn.add(p.ofRank(broad));
                if (pinned != null) {
                    staged.add(pinned.slice(0, p.gradients.count));
                }
            }
        }
    }

    Gradients(
            ZeroConfig config,
            Ranks ranks,
            List<Part> parts,
            Memory memory,
            @Nullable DeviceSums sums) {
        this.config = config;
        this.options = config.options();
        this.direct = config.direct();
        this.onHost = config.onHost();
        this.comm = config.comm();
        this.copies = new Copies(config.tiers().engine());
        this.ranks = ranks;
        this.stream = ranks.stream;
        this.written = new Written(config.device(), stream, parts.size(), memory);
        this.parts = parts.toArray(Part[]::new);
        this.sums = sums;
        this.done = new int[parts.size()];
        this.begun = new boolean[parts.size()];
        this.open = new Slot[parts.size()];
        this.slots = new Slot[direct ? 0 : SLOTS];
        Arrays.setAll(slots, i -> new Slot(config, parts, memory));
        if (options.gradients() == Tier.NVME) {
            long most = Part.most(parts, p -> p.gradients.count);
            Buffer stage = memory.buffer(Tier.PINNED, options.accumulator(), most);
            parts.forEach(p -> p.stageGradients(stage));
        }
    }

    /** As {@link ZeroOptimizer#gradients}. */
    Buffer room(Part p) {
        if (done[p.index] >= options.accumulation()) {
            throw new IllegalStateException(
                    "layer %s has had its %s micro-steps: call step"
                            .formatted(p.layer.name(), options.accumulation()));
        }
        if (direct) {
            Buffer all = p.gradients.memory();
            if (!begun[p.index] && done[p.index] == 0) {
                all.zero();
            }
            begun[p.index] = true;
            return Objects.requireNonNull(p.visibleGradients);
        }
        Slot s = open[p.index];
        if (s == null) {
            s = slot();
            s.part = p;
            s.sums = false;
            s.all.get(p.index).zero();
            open[p.index] = s;
            begun[p.index] = true;
        }
        return s.visible.get(p.index);
    }

    /** A slot that is free, after waiting for the older one if it must. */
    private Slot slot() {
        for (Slot s : slots) {
            if (s.part == null) {
                return s;
            }
        }
        Slot oldest = oldest();
        if (oldest == null) {
            throw new IllegalStateException(
                    "the gradients of "
                            + slots.length
                            + " layers are open: reduce one before asking for another's");
        }
        finish(oldest);
        return oldest;
    }

    /** The slot whose reduction was enqueued first; null if there is none. */
    private @Nullable Slot oldest() {
        Slot oldest = null;
        for (Slot s : slots) {
            if (s.reducing && (oldest == null || s.lastUse < oldest.lastUse)) {
                oldest = s;
            }
        }
        return oldest;
    }

    /** As {@link ZeroOptimizer#reduce(int)}. */
    void reduce(Part p) {
        if (!begun[p.index]) {
            throw new IllegalStateException(
                    "gradients of layer " + p.layer.name() + " were not asked for: there are none");
        }
        begun[p.index] = false;
        done[p.index]++;
        boolean last = done[p.index] == options.accumulation();
        if (direct) {
            if (last) {
                reduceSums(p.gradients.memory());
            }
            return;
        }
        Slot s = Objects.requireNonNull(open[p.index]);
        open[p.index] = null;
        s.first = done[p.index] == 1;
        s.lastUse = ++uses;
        if (config.stage() >= 2) {
            comm.reduceScatter(s.all.get(p.index), ReduceOp.SUM, stream);
            enqueueSum(s, p, s.own.get(p.index));
            s.mark = ranks.mark(s.ready);
            s.reducing = true;
            return;
        }
        if (sums != null) {
            enqueueSum(s, p, s.all.get(p.index));
            s.mark = ranks.mark(s.ready);
            s.reducing = true;
            if (last) {
                reduceSums(p.gradients.memory());
            }
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
        Transfer t = copies.toDevice(sums, wide, null);
        t.before(stream);
        reduceSums(wide);
        s.mark = ranks.mark(s.ready);
        s.reducing = true;
        s.sums = true;
        s.in = t;
        if (p.gradients.inStore()) {
            awaitIn(s); // the stage is the next layer's
        }
    }

    /** Adds a slot's gradients to where they live, if that is on a GPU, once they are there. */
    private void enqueueSum(Slot s, Part p, Buffer from) {
        if (sums != null) {
            try {
                sums.add(from, p.gradients.memory(), s.first);
            } catch (RuntimeException e) {
                lost(e);
            }
        }
    }

    /** The reduction runs also if this fails. */
    private void awaitIn(Slot s) {
        try {
            Objects.requireNonNull(s.in).await(FOREVER);
        } catch (RuntimeException e) {
            lost(e);
        }
    }

    /** As {@link ZeroOptimizer#reduce(int, Stream)}. */
    void reduce(Part p, Stream user) {
        if (config.stage() >= 2 || direct || sums != null) {
            written.follow(p.index, user);
        } else {
            user.synchronize(); // they are added up by the CPU
        }
        reduce(p);
    }

    private void reduceSums(Buffer all) {
        if (config.stage() == 0) {
            comm.allReduce(all, ReduceOp.SUM, stream);
        } else {
            comm.reduceScatter(all, ReduceOp.SUM, stream);
        }
    }

    /** Waits for a slot's reduction, and puts the result where gradients live. */
    private void finish(Slot s) {
        Part p = Objects.requireNonNull(s.part);
        ranks.await(s.mark, s.ready);
        s.reducing = false;
        s.part = null;
        if (sums != null) {
            return; // the stream has added them
        }
        if (!s.sums) {
            addUp(s, p, s.own.get(p.index));
            return;
        }
        awaitIn(s);
        Buffer from = (config.stage() == 0 ? s.wide : s.wideOwn).get(p.index);
        try {
            if (p.gradients.inStore() && config.stage() != 0) {
                TieredTensor.finish(p.gradients.read(Objects.requireNonNull(p.gradientStage)));
            }
            copies.toHost(from, p.updateGradients).await(FOREVER);
            if (p.gradients.inStore()) {
                TieredTensor.finish(p.gradients.write(Objects.requireNonNull(p.gradientStage)));
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
                copies.toHost(from, source).await(FOREVER);
            }
            Buffer sums;
            if (p.gradients.inStore()) {
                sums = Objects.requireNonNull(p.gradientStage);
                if (!s.first) {
                    TieredTensor.finish(p.gradients.read(sums));
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
                TieredTensor.finish(p.gradients.write(sums));
            }
        } catch (RuntimeException e) {
            lost(e);
        }
    }

    /** Collectives continue, since the other ranks wait for them; step notifies all ranks. */
    void lost(RuntimeException e) {
        if (failure == null) {
            failure = e;
        } else if (failure != e) {
            failure.addSuppressed(e);
        }
    }

    /** Forgets all since the last step; the stream is idle. */
    void forget() {
        var unused = written.takeError();
        for (Slot s : slots) {
            s.part = null;
            s.reducing = false;
        }
        for (Part p : parts) {
            done[p.index] = 0;
            begun[p.index] = false;
            open[p.index] = null;
        }
        failure = null;
    }

    /** Throws unless all layers have had all their micro-steps. */
    void checkComplete() {
        for (Part p : parts) {
            if (done[p.index] != options.accumulation()) {
                throw new IllegalStateException(
                        ("layer %s has gradients of %s micro-steps, expected %s: reduce each layer"
                                        + " once a micro-step")
                                .formatted(p.layer.name(), done[p.index], options.accumulation()));
            }
        }
    }

    /** Waits for all reductions, unless a GPU updates: its work is enqueued after them. */
    void finish() {
        if (config.updatesOnDevice()) {
            for (Slot s : slots) {
                s.part = null;
                s.reducing = false;
            }
            return;
        }
        // The first micro-step of a layer sets its sums, to which the others are added.
        for (Slot s = oldest(); s != null; s = oldest()) {
            finish(s);
        }
        ranks.drain();
        JcclException e = written.takeError();
        if (e != null) {
            lost(e);
        }
    }

    /** The norm of the sum of all gradients; the same bits on all ranks and at all stages. */
    double norm(long step) {
        return Math.sqrt(squares(step, false));
    }

    /** The sum of squares over all ranks, or of those that count in the whole model's norm. */
    double squares(long step, boolean counted) {
        RuntimeException local = failure;
        double sum = 0;
        if (local == null) {
            try {
                sum = sums != null ? sums.squares(counted) : squares(counted);
            } catch (RuntimeException e) {
                local = e;
            }
        }
        ranks.vote(sum, status(local));
        agree(local, step);
        return ranks.sum();
    }

    /** This rank's status in a vote, given its error. */
    double status(@Nullable RuntimeException local) {
        if (failure != null) {
            return Ranks.GRADIENTS_LOST;
        }
        return local == null ? Ranks.FINE : Ranks.FAILED;
    }

    /** Throws if a rank's vote was not fine, given this rank's error. */
    void agree(@Nullable RuntimeException local, long step) {
        double worst = ranks.worst();
        if (worst == Ranks.GRADIENTS_LOST) {
            String what = "gradients were lost, do the micro-steps of step " + step + " again";
            RuntimeException e =
                    local == null
                            ? ranks.failed(null, what)
                            : new JcclException(what + ": " + local.getMessage(), local);
            forget();
            throw e;
        }
        if (worst != Ranks.FINE) {
            throw ranks.failed(local, "gradients cannot be read, call step again");
        }
    }

    private double squares(boolean counted) {
        double sum = 0;
        for (Part p : parts) {
            read(p);
            List<Buffer> some = counted ? p.countedGradients() : p.ownGradients();
            for (int i = 0; i < some.size(); i++) {
                norm.add(0, some.get(i));
                sum += norm.sumOfSquares();
            }
        }
        return sum;
    }

    /** The update on the CPU begins. */
    void begin() {
        if (sums != null) {
            sums.begin();
        }
    }

    /** The update on the CPU has ended, however it did. */
    void settle() {
        if (sums != null) {
            sums.settle();
        }
    }

    /** A part's gradients in host memory; the update asks for one part after another. */
    Buffer take(Part p) {
        if (sums != null) {
            return sums.take(p);
        }
        read(p);
        return p.updateGradients;
    }

    private void read(Part p) {
        if (p.gradients.inStore()) {
            TieredTensor.finish(p.gradients.read(Objects.requireNonNull(p.gradientStage)));
        }
    }

    /** Why gradients since the last step cannot be used; null if they can. */
    @Nullable RuntimeException failure() {
        return failure;
    }
}
