package io.jccl.offload.zero;

import io.jccl.Communicator;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Tier;
import io.jccl.offload.Tiers;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.ParameterGroup;
import io.jccl.offload.optim.StateTensor;
import io.jccl.offload.optim.TensorShape;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;

/** The caller's settings on one rank, checked, and values derived from them. */
record ZeroConfig(
        Communicator comm,
        List<ShardedLayer> layers,
        Optimizer optimizer,
        ParameterGroup.Choice groups,
        ZeroOptions options,
        LossScale scale,
        Tiers tiers) {
    static final StateTensor MASTER = StateTensor.float32("master");

    ZeroConfig {
        Objects.requireNonNull(comm, "comm");
        layers = List.copyOf(layers);
        Objects.requireNonNull(optimizer, "optimizer");
        Objects.requireNonNull(groups, "groups");
        Objects.requireNonNull(options, "options");
        Objects.requireNonNull(scale, "scale");
        Objects.requireNonNull(tiers, "tiers");
        checkNames(layers);
        checkDevice(comm, options, tiers.engine().device());
        if (tiers.engine().device().kind() == Device.Kind.CUDA
                && options.optimizer() == Tier.DEVICE) {
            try {
                optimizer.update(1, 0);
            } catch (UnsupportedOperationException e) {
                throw new IllegalArgumentException(
                        "the optimizer's state is on tier DEVICE, so that a GPU updates it, but "
                                + e.getMessage(),
                        e);
            }
        }
    }

    private static void checkNames(List<ShardedLayer> layers) {
        if (layers.isEmpty()) {
            throw new IllegalArgumentException("there are no layers, expected at least one");
        }
        Set<String> names = new HashSet<>();
        for (ShardedLayer l : layers) {
            if (!names.add(l.name())) {
                throw new IllegalArgumentException(
                        "two layers are named " + l.name() + ", expected names that differ");
            }
        }
    }

    private static void checkDevice(Communicator comm, ZeroOptions options, Device device) {
        if (device.kind() != comm.device().kind()
                || (device.kind() == Device.Kind.CUDA && device != comm.device())) {
            throw new IllegalArgumentException(
                    "the tiers are of %s, the communicator is of %s; both need the same"
                            .formatted(device, comm.device()));
        }
        if (device.kind() == Device.Kind.CUDA
                && options.optimizer() == Tier.DEVICE
                && (options.gradients() != Tier.DEVICE || options.parameters() != Tier.DEVICE)) {
            throw new IllegalArgumentException(
                    ("the optimizer's state is on tier DEVICE, so that a GPU updates"
                                    + " it, but gradients are on tier %s and parameters on tier %s:"
                                    + " put both on DEVICE, or the state on PINNED or NVME")
                            .formatted(options.gradients(), options.parameters()));
        }
    }

    /** Elements that the optimizer stores together; blocks of ranks are multiples of it. */
    int unit() {
        int unit = 1;
        for (StateTensor t : optimizer.state()) {
            unit = Math.max(unit, t.unit());
        }
        return unit;
    }

    /** Master parameters (0) or a state tensor. */
    StateTensor tensor(int k) {
        return k == 0 ? MASTER : optimizer.state().get(k - 1);
    }

    /** Most sums of a layer in a pass. */
    int mostSums() {
        int most = 0;
        for (ShardedLayer l : layers) {
            for (int pass = 0; pass < optimizer.passes() - 1; pass++) {
                most = Math.max(most, sums(l, pass, l.tensors().size()));
            }
        }
        return most;
    }

    /** Sums in a pass of the first tensors of a layer. */
    int sums(ShardedLayer layer, int pass, int tensors) {
        int sum = 0;
        for (int t = 0; t < tensors; t++) {
            TensorShape shape = layer.tensors().get(t).shape();
            sum = Math.addExact(sum, optimizer.sums(pass, shape));
        }
        return sum;
    }

    /** Elements of a state tensor for some parameters of a layer. */
    long stateCount(int k, ShardedLayer layer, long parameters) {
        return tensor(k).count(parameters, layer.shapes());
    }

    /** Whether every rank keeps all of a state tensor. */
    boolean replicated(int k) {
        return tensor(k).layout() == StateTensor.Layout.FACTORED;
    }

    int size() {
        return comm.size();
    }

    int rank() {
        return comm.rank();
    }

    int stage() {
        return options.stage();
    }

    Device device() {
        return tiers.engine().device();
    }

    boolean onHost() {
        return device().kind() == Device.Kind.HOST;
    }

    /** Whether a GPU adds gradients up. */
    boolean sumsOnDevice() {
        return !onHost() && options.gradients() == Tier.DEVICE;
    }

    /** Whether a GPU updates. */
    boolean updatesOnDevice() {
        return !onHost() && options.optimizer() == Tier.DEVICE;
    }

    /** Whether parameters are read where they live. */
    boolean resident() {
        return stage() < 3 && options.parameters() == Tier.DEVICE;
    }

    /** Whether the model adds to the accumulators themselves. */
    boolean direct() {
        return stage() <= 1
                && options.gradients() == Tier.DEVICE
                && options.accumulator() == options.type();
    }

    /** Whether float32 parameters are the master parameters. */
    boolean shared() {
        return options.type() == DataType.FLOAT32
                && options.parameters() == options.optimizer()
                && options.optimizer() != Tier.NVME;
    }

    /** Whether each rank updates a block, and the others need it at once. */
    boolean spreads() {
        return stage() == 1 || stage() == 2;
    }

    /**
     * Whether a copy of the previous state is kept in memory. Parameters in a store can fail after
     * the state in memory was updated.
     */
    boolean keeps() {
        return options.optimizer() != Tier.NVME
                && (options.keepPrevious() || options.parameters() == Tier.NVME);
    }

    /** Whether there is a state to go back to. */
    boolean canRestore() {
        return keeps() || options.optimizer() == Tier.NVME;
    }
}
