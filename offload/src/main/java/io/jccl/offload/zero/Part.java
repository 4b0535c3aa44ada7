package io.jccl.offload.zero;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.StateTensor;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;

/** A layer on one rank: its elements on their tiers, and views of them. */
final class Part {
    private final ZeroConfig config;
    final int index;
    final ShardedLayer layer;
    final long count;
    final long padded;
    final long block;

    /** What this rank updates: all at stage 0, else its block. */
    final long from;

    final long updated;

    /** What each rule updates of that. */
    final List<Segment> segments;

    /** For each pass of an update but the last, the index of each tensor's first sum. */
    final int[][] sums;

    /** The rule of each tensor. */
    final List<Optimizer> rules;

    final TieredTensor parameters;
    final TieredTensor gradients;

    /** Master parameters, unless shared, and moments. */
    final List<TieredTensor> state = new ArrayList<>();

    /** The state of before the last step, if it is kept in memory. */
    final List<Buffer> previous = new ArrayList<>();

    /** What the model reads and adds to, if it does so where they live. */
    @Nullable Buffer visibleParameters;

    @Nullable Buffer visibleGradients;

    /** All elements, if they are in memory up to stage 2. */
    @Nullable Buffer allParameters;

    /** Those this rank updates, if they are in memory. */
    @Nullable Buffer ownParameters;

    /** State that the CPU updates in memory. */
    @Nullable OptimizerState inMemory;

    /** Pinned memory for what the store holds of parameters and gradients. */
    @Nullable Buffer parameterStage;

    @Nullable Buffer ownParameterStage;
    @Nullable Buffer gradientStage;

    /** This rank's block of gradients, and what it updates with, in memory or in the stage. */
    Buffer normGradients;

    Buffer updateGradients;

    private final List<Buffer> own = new ArrayList<>(1);
    private final List<Buffer> counted = new ArrayList<>();

    Part(ZeroConfig config, Memory memory, int index) {
        ZeroOptions options = config.options();
        int stage = config.stage();
        this.config = config;
        this.index = index;
        this.layer = config.layers().get(index);
        this.count = layer.count();
        long unit = (long) config.unit();
        long share = (count + config.size() - 1) / config.size();
        this.block = (share + unit - 1) / unit * unit;
        this.padded = block * config.size();
        this.from = stage == 0 ? 0 : config.rank() * block;
        this.updated = stage == 0 ? padded : block;
        this.segments = Segment.of(config, layer, from, updated);
        this.rules =
                layer.tensors().stream()
                        .map(t -> config.groups().of(layer.name(), t.name()).optimizer())
                        .toList();
        this.sums = new int[config.optimizer().passes() - 1][layer.tensors().size() + 1];
        for (int pass = 0; pass < sums.length; pass++) {
            int of = pass;
            Arrays.setAll(sums[pass], t -> config.sums(layer, of, t));
        }
        String name = "layer " + layer.name();
        this.parameters =
                memory.home(
                        options.parameters(),
                        options.type(),
                        stage == 3 ? block : padded,
                        name + " parameters",
                        2,
                        Memory.Kind.PARAMETERS);
        this.gradients =
                memory.home(
                        options.gradients(),
                        options.accumulator(),
                        stage >= 2 ? block : padded,
                        name + " gradients",
                        1,
                        Memory.Kind.GRADIENTS);
        int moments = config.optimizer().moments();
        if (!config.shared()) {
            state.add(stateTensor(memory, name + " master", 0));
        }
        for (int m = 0; m < moments; m++) {
            state.add(stateTensor(memory, name + " moment " + m, m + 1));
        }
        // Views; those of a stage follow when it is allocated.
        if (!parameters.inStore()) {
            Buffer all = parameters.memory();
            allParameters = all;
            ownParameters = stage == 3 ? all : all.slice(from, updated);
            visibleParameters = config.resident() ? all.slice(0, count) : null;
        }
        Buffer g = gradients.inStore() ? none() : gradients.memory();
        normGradients = g;
        updateGradients = g;
        if (!gradients.inStore()) {
            visibleGradients = config.direct() ? g.slice(0, count) : null;
            viewGradients(g);
        }
        if (options.optimizer() != Tier.NVME) {
            inMemory = config.updatesOnDevice() ? null : stateInMemory(moments);
            for (int k = 0; config.keeps() && k <= moments; k++) {
                StateTensor t = config.tensor(k);
                previous.add(memory.buffer(Tier.PINNED, t.type(), stateCount(k)));
            }
        }
    }

    /** Elements of the largest layer, with padding. */
    static long mostPadded(List<Part> parts) {
        return most(parts, p -> p.padded);
    }

    static long most(List<Part> parts, ToLongFunction<Part> count) {
        return parts.stream().mapToLong(count).max().orElse(0);
    }

    private TieredTensor stateTensor(Memory memory, String name, int k) {
        StateTensor t = config.tensor(k);
        return memory.home(
                config.options().optimizer(),
                t.type(),
                stateCount(k),
                name,
                2,
                Memory.Kind.OPTIMIZER);
    }

    private OptimizerState stateInMemory(int count) {
        Buffer[] moments = new Buffer[count];
        for (int m = 0; m < count; m++) {
            moments[m] = stateBuffer(m + 1);
        }
        return OptimizerState.of(config.optimizer(), layer.shapes(), from, stateBuffer(0), moments);
    }

    /** Elements of master parameters (0) or a moment on this rank. */
    long stateCount(int k) {
        return config.stateCount(k, layer, updated);
    }

    private static Buffer none() {
        return Buffer.wrap(MemorySegment.ofArray(new float[0]), DataType.FLOAT32);
    }

    private void viewGradients(Buffer g) {
        if (config.stage() >= 2) {
            normGradients = g;
            updateGradients = g;
        } else {
            normGradients = ofRank(g);
            updateGradients = config.stage() == 0 ? g : normGradients;
        }
    }

    /** Gradients that live in a store come and go through this memory. */
    void stageGradients(Buffer memory) {
        Buffer all = memory.slice(0, gradients.count);
        gradientStage = all;
        viewGradients(all);
    }

    /** Parameters that the CPU cannot write where they live come and go through this memory. */
    void stageParameters(Buffer memory) {
        Buffer all = memory.slice(0, parameters.count);
        parameterStage = all;
        ownParameterStage = config.stage() == 3 ? all : all.slice(from, updated);
    }

    /** This rank's block of gradients, with padding. */
    List<Buffer> ownGradients() {
        if (own.isEmpty()) {
            own.add(normGradients);
        }
        return own;
    }

    /** This rank's gradients that count in the norm of the whole model. */
    List<Buffer> countedGradients() {
        if (counted.isEmpty()) {
            long at = -config.rank() * block;
            for (ShardedLayer.Tensor t : layer.tensors()) {
                long begin = Math.clamp(at, 0, block);
                long end = Math.clamp(at + t.count(), 0, block);
                if (end > begin && config.groups().of(layer.name(), t.name()).counted()) {
                    counted.add(normGradients.slice(begin, end - begin));
                }
                at += t.count();
            }
            if (counted.isEmpty()) {
                counted.add(normGradients.slice(0, 0));
            }
        }
        return counted;
    }

    /** This rank's block of memory that has all blocks. */
    Buffer ofRank(Buffer all) {
        return all.slice(config.rank() * block, block);
    }

    /** Where the update writes parameters in addition to the master ones; null if nowhere. */
    @Nullable Buffer target() {
        if (config.shared()) {
            return null;
        }
        return ownParameterStage != null ? ownParameterStage : ownParameters;
    }

    /** Master parameters (0) or a moment, of state in memory or on a GPU. */
    Buffer stateBuffer(int k) {
        if (!config.shared()) {
            return state.get(k).memory();
        }
        return k == 0 ? Objects.requireNonNull(ownParameters) : state.get(k - 1).memory();
    }
}
