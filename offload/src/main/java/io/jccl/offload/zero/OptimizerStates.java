package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.offload.Completion;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.OptimizerState;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Master parameters and moments of all parts: in memory, where the update finds them, or in a
 * store, from which they come to one of two stages in pinned memory, the next layer's while one is
 * updated.
 */
final class OptimizerStates {
    private final Part[] parts;
    private final Stream stream;
    private final Event moved;

    /**
     * For each part, pinned memory for a GPU's state that comes to the host; empty if none does.
     */
    private final List<Buffer> hostViews = new ArrayList<>();

    private final Stage[] stages;

    /** Pinned memory for the state of one layer that comes from a store. */
    private static final class Stage {
        final List<OptimizerState> views = new ArrayList<>();
        final List<List<Buffer>> buffers = new ArrayList<>();
        final List<Completion> underWay = new ArrayList<>();

        Stage(ZeroConfig config, List<Part> parts, Memory memory) {
            int moments = config.optimizer().moments();
            List<Buffer> all = new ArrayList<>();
            for (int k = 0; k <= moments; k++) {
                int n = k;
                long most = Part.most(parts, p -> p.stateCount(n));
                all.add(memory.buffer(Tier.PINNED, config.tensor(k).type(), most));
            }
            for (Part p : parts) {
                List<Buffer> some = new ArrayList<>();
                for (int k = 0; k <= moments; k++) {
                    some.add(all.get(k).slice(0, p.stateCount(k)));
                }
                buffers.add(some);
                views.add(
                        OptimizerState.of(
                                config.optimizer(),
                                p.layer.shapes(),
                                p.from,
                                some.getFirst(),
                                some.subList(1, some.size()).toArray(Buffer[]::new)));
            }
        }

        void await() {
            RuntimeException failure = null;
            for (int i = 0; i < underWay.size(); i++) {
                try {
                    TieredTensor.finish(underWay.get(i));
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

    OptimizerStates(ZeroConfig config, Ranks ranks, List<Part> parts, Memory memory) {
        this.parts = parts.toArray(Part[]::new);
        this.stream = ranks.stream;
        this.moved = memory.own(config.device().newEvent());
        if (config.updatesOnDevice()) {
            long most = Part.most(parts, p -> p.updated);
            Buffer stage = memory.buffer(Tier.PINNED, DataType.FLOAT32, most);
            parts.forEach(p -> hostViews.add(stage.slice(0, p.updated)));
        }
        this.stages = new Stage[config.options().optimizer() == Tier.NVME ? 2 : 0];
        Arrays.setAll(stages, i -> new Stage(config, parts, memory));
    }

    // The update, part by part.

    /** Starts reading the first part. */
    void begin() {
        if (stages.length > 0) {
            startRead(parts[0]);
        }
    }

    private Stage stage(Part p) {
        return stages[p.index % stages.length];
    }

    private void startRead(Part p) {
        Stage s = stage(p);
        s.await(); // its writes
        List<Buffer> to = s.buffers.get(p.index);
        for (int k = 0; k < to.size(); k++) {
            s.underWay.add(p.state.get(k).read(to.get(k)));
        }
    }

    /** A part's state in host memory; the next part's begins to be read. */
    OptimizerState take(Part p) {
        if (stages.length == 0) {
            return Objects.requireNonNull(p.inMemory);
        }
        stage(p).await();
        if (p.index + 1 < parts.length) {
            startRead(parts[p.index + 1]);
        }
        return stage(p).views.get(p.index);
    }

    /** Starts writing what was taken and updated. */
    void putBack(Part p) {
        if (stages.length == 0) {
            return;
        }
        Stage s = stage(p);
        List<Buffer> from = s.buffers.get(p.index);
        for (int k = 0; k < from.size(); k++) {
            s.underWay.add(p.state.get(k).write(from.get(k)));
        }
    }

    /** Waits for all reads and writes, also behind an error. */
    @Nullable RuntimeException settle(@Nullable RuntimeException earlier) {
        RuntimeException failure = earlier;
        for (Stage s : stages) {
            try {
                s.await();
            } catch (RuntimeException e) {
                failure = failure == null ? e : failure;
            }
        }
        return failure;
    }

    // Versions.

    /** Keeps a copy of state in memory, if the options or the tiers need one. */
    void keep() {
        for (Part p : parts) {
            for (int k = 0; k < p.previous.size(); k++) {
                copy(p.stateBuffer(k), p.previous.get(k));
            }
        }
    }

    /** What was put back is the state from now on. */
    void commit() {
        for (Part p : parts) {
            for (int k = 0; k < p.state.size(); k++) {
                p.state.get(k).commit();
            }
        }
    }

    /** Forgets what was put back since the last commit. */
    void restore() {
        for (Part p : parts) {
            for (int k = 0; k < p.state.size(); k++) {
                p.state.get(k).forget();
            }
        }
        restoreCopies();
    }

    /** Goes back to before the last commit. */
    void undo() {
        for (Part p : parts) {
            for (int k = 0; k < p.state.size(); k++) {
                p.state.get(k).flip();
            }
        }
        restoreCopies();
    }

    private void restoreCopies() {
        for (Part p : parts) {
            for (int k = 0; k < p.previous.size(); k++) {
                copy(p.previous.get(k), p.stateBuffer(k));
            }
        }
    }

    /** A GPU's state is copied in the order of its updates. */
    private void copy(Buffer from, Buffer to) {
        if (hostViews.isEmpty()) {
            Numbers.copy(from, to);
        } else {
            stream.copy(from, to);
        }
    }

    private void move(Buffer from, Buffer to) {
        stream.copy(from, to);
        moved.record(stream);
        moved.synchronize(FOREVER);
    }

    // Values: master parameters (0) or a moment, of one part.

    /** Host memory for state k of a part: itself, or where it is written from by {@link #put}. */
    Buffer room(Part p, int k) {
        if (!hostViews.isEmpty()) {
            return hostViews.get(p.index);
        }
        return stages.length == 0 ? p.stateBuffer(k) : stages[0].buffers.get(p.index).get(k);
    }

    /** State k of a part in host memory, until the next call. */
    Buffer get(Part p, int k) {
        Buffer to = room(p, k);
        if (!hostViews.isEmpty()) {
            move(p.stateBuffer(k), to);
        } else if (stages.length > 0) {
            TieredTensor.finish(p.state.get(k).read(to));
        }
        return to;
    }

    /** Sets state k of a part to what is in its {@link #room}. */
    void put(Part p, int k) {
        if (!hostViews.isEmpty()) {
            move(room(p, k), p.stateBuffer(k));
        } else if (stages.length > 0) {
            TieredTensor h = p.state.get(k);
            TieredTensor.finish(h.write(room(p, k)));
            h.commit();
        }
    }
}
