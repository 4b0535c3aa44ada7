package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.offload.Completion;
import io.jccl.offload.Tier;
import io.jccl.offload.Transfer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Layers' parameters on the device while the caller computes with them: used where they live, or
 * gathered into windows, with the next layer prefetched.
 */
final class GatherWindows {
    private final ZeroOptions options;
    private final boolean resident;
    private final Communicator comm;
    private final Copies copies;
    private final Ranks ranks;
    private final Stream stream;
    private final Part[] parts;
    private final Window[] windows;
    private int lastGathered = -1;

    /** Why a layer that a stream waited for did not arrive. */
    private @Nullable RuntimeException failure;

    private long uses;

    /** Room on the device for one gathered layer. */
    static final class Window {
        final List<Buffer> all = new ArrayList<>();
        final List<Buffer> own = new ArrayList<>();
        final List<Buffer> visible = new ArrayList<>();

        /** For a layer that comes from a store. */
        final List<Buffer> stage = new ArrayList<>();

        final Event freed;
        final Event ready;

        /** The layer inside, -1 for none. */
        int layer = -1;

        @Nullable Completion read;
        @Nullable Transfer transfer;
        boolean enqueued;
        int held;
        long mark;
        long lastUse;

        Window(ZeroConfig config, List<Part> parts, Memory taken) {
            this.freed = taken.own(config.device().newEvent());
            this.ready = taken.own(config.device().newEvent());
            ZeroOptions options = config.options();
            long most = Part.mostPadded(parts);
            Buffer memory = taken.buffer(Tier.DEVICE, options.type(), most);
            Buffer pinned =
                    options.parameters() == Tier.NVME
                            ? taken.buffer(Tier.PINNED, options.type(), most)
                            : null;
            for (Part p : parts) {
                all.add(memory.slice(0, p.padded));
                visible.add(memory.slice(0, p.count));
                own.add(p.ofRank(memory));
                if (pinned != null) {
                    stage.add(pinned.slice(0, p.parameters.count));
                }
            }
        }
    }

    GatherWindows(ZeroConfig config, Ranks ranks, List<Part> parts, Memory memory) {
        this.options = config.options();
        this.resident = config.resident();
        this.comm = config.comm();
        this.copies = new Copies(config.tiers().engine());
        this.ranks = ranks;
        this.stream = ranks.stream;
        this.parts = parts.toArray(Part[]::new);
        this.windows = new Window[resident ? 0 : 1 + options.prefetch()];
        Arrays.setAll(windows, i -> new Window(config, parts, memory));
    }

    /** As {@link ZeroOptimizer#gather(int)}. */
    Buffer gather(Part p) {
        if (resident) {
            return Objects.requireNonNull(p.visibleParameters);
        }
        Window w = enqueue(p);
        w.held++;
        try {
            ranks.await(w.mark, w.ready);
            if (w.transfer != null) {
                w.transfer.await(FOREVER);
            }
        } catch (RuntimeException e) {
            w.held--;
            w.layer = -1;
            throw e;
        }
        return w.visible.get(p.index);
    }

    /** As {@link ZeroOptimizer#gather(int, Stream)}. */
    Buffer gather(Part p, Stream user) {
        if (resident) {
            return Objects.requireNonNull(p.visibleParameters);
        }
        Window w = enqueue(p);
        w.held++;
        user.waitFor(w.ready);
        return w.visible.get(p.index);
    }

    private Window enqueue(Part p) {
        int direction = p.index >= lastGathered ? 1 : -1;
        Window w = find(p.index);
        if (w == null) {
            w = pick();
            if (w == null) {
                throw new IllegalStateException(
                        ("no window is free for layer %s: %s are held; release one, or raise"
                                        + " prefetch, which is %s")
                                .formatted(p.layer.name(), held(), options.prefetch()));
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
                if (next < 0 || next >= parts.length || find(next) != null) {
                    continue;
                }
                Window other = pick();
                if (other == null) {
                    break;
                }
                Part n = parts[next];
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

    /** Throws if a layer is held. */
    void checkFree() {
        for (Window w : windows) {
            if (w.held > 0) {
                throw new IllegalStateException(held() + " are held: release them before the step");
            }
        }
    }

    private List<String> held() {
        List<String> held = new ArrayList<>();
        for (Window w : windows) {
            if (w.held > 0) {
                held.add(parts[w.layer].layer.name());
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

    /** Waits for what is on its way into a window, however that ends. */
    private void settle(Window w) {
        Completion read = w.read;
        if (read != null) {
            w.read = null;
            try {
                TieredTensor.finish(read);
            } catch (RuntimeException e) {
                // It was for a layer that is no longer needed.
            }
        }
        if (w.enqueued) {
            w.ready.synchronize(FOREVER);
            try {
                if (w.transfer != null) {
                    w.transfer.await(FOREVER);
                }
            } catch (RuntimeException e) {
                failure = failure == null ? e : failure;
            }
        }
    }

    private void finishBegin(Window w, Part p) {
        Buffer to = (options.stage() == 3 ? w.own : w.all).get(p.index);
        try {
            if (p.parameters.inStore()) {
                Completion read = Objects.requireNonNull(w.read);
                w.read = null;
                TieredTensor.finish(read);
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
        w.mark = ranks.mark(w.ready);
        w.enqueued = true;
    }

    private void copyIn(Window w, Buffer from, Buffer to) {
        Transfer t = copies.toDevice(from, to, w.freed);
        w.transfer = t;
        t.before(stream);
    }

    /** Releases a layer. */
    void release(Part p) {
        take(p);
    }

    /** Releases a layer once a stream has reached this point. */
    void release(Part p, Stream user) {
        Window w = take(p);
        if (w != null) {
            w.freed.record(user);
        }
    }

    private @Nullable Window take(Part p) {
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

    /**
     * Forgets all layers, since their parameters change.
     *
     * @return why one of them did not come since the last call; what was computed with it is wrong
     */
    @Nullable RuntimeException drop() {
        settle();
        RuntimeException e = failure;
        failure = null;
        for (Window w : windows) {
            w.layer = -1;
            w.held = 0;
        }
        lastGathered = -1;
        return e;
    }

    /** Waits for what is on its way into windows. */
    void settle() {
        for (Window w : windows) {
            if (w.layer >= 0) {
                settle(w);
            }
        }
    }

    /** A window for other uses while no layer is held. */
    Window any() {
        return windows[0];
    }
}
