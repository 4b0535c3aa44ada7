package io.jccl.offload.zero;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.Completion;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.Tier;
import io.jccl.offload.TierStore;
import io.jccl.offload.Tiers;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import io.jccl.offload.optim.GradientNorm;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * A perceptron written plainly: y = gain (W2 tanh(W1 x + b1) + b2), squared error. Its layers have
 * counts that few numbers of ranks divide, and one has a single element.
 */
final class Demo {
    static final int IN = 5;
    static final int HIDDEN = 7;
    static final int OUT = 3;
    static final int BATCH = 4;

    static final List<ShardedLayer> LAYERS =
            List.of(
                    new ShardedLayer(
                            "first",
                            List.of(
                                    new ShardedLayer.Tensor("w", IN * HIDDEN),
                                    new ShardedLayer.Tensor("b", HIDDEN))),
                    new ShardedLayer(
                            "second",
                            List.of(
                                    new ShardedLayer.Tensor("w", HIDDEN * OUT),
                                    new ShardedLayer.Tensor("b", OUT))),
                    ShardedLayer.of("gain", 1));

    static final CommunicatorOptions IN_RANK_ORDER =
            CommunicatorOptions.DEFAULT
                    .withAlgorithm(Algorithm.DIRECT)
                    .withTimeout(Duration.ofSeconds(20));

    private Demo() {}

    /** One rank's memory. */
    static final class Memory implements AutoCloseable {
        final Budgets budgets;
        final TransferEngine engine;
        final BufferPool device;
        final BufferPool pinned;
        final Store store = new Store();
        final Tiers tiers;

        Memory(Map<Tier, Long> caps) {
            this(caps, null);
        }

        /** With another store of tier NVME; the caller closes it. */
        Memory(Map<Tier, Long> caps, @Nullable TierStore other) {
            this(Device.host(), caps, other);
        }

        /** Of another device. */
        Memory(Device on, Map<Tier, Long> caps, @Nullable TierStore other) {
            budgets = new Budgets(caps);
            engine = TransferEngine.create(on, TransferOptions.DEFAULT);
            // A slab for each block, so that budgets show what is held.
            PoolOptions exact = new PoolOptions(1, 64);
            device = BufferPool.device(on, budgets, exact);
            pinned = BufferPool.pinned(on, budgets, exact);
            tiers = new Tiers(engine, device, pinned, other != null ? other : store);
        }

        @Override
        public void close() {
            engine.close();
            device.close();
            pinned.close();
        }
    }

    /** Files that are arrays; can be told to fail. */
    static final class Store implements TierStore {
        final Map<String, byte[]> files = new ConcurrentHashMap<>();
        final AtomicInteger writesLeft = new AtomicInteger(Integer.MAX_VALUE);
        final AtomicInteger readsLeft = new AtomicInteger(Integer.MAX_VALUE);

        long bytes() {
            return files.values().stream().mapToLong(b -> b.length).sum();
        }

        @Override
        public Place place(String name, DataType type, long count) {
            byte[] file = files.computeIfAbsent(name, n -> new byte[(int) (count * type.size())]);
            return new Place() {
                @Override
                public Completion read(Buffer pinned) {
                    if (readsLeft.getAndDecrement() <= 0) {
                        return new Ended(new JcclException("tier NVME: cannot read " + name));
                    }
                    pinned.copyFrom(MemorySegment.ofArray(file));
                    return new Ended(null);
                }

                @Override
                public Completion write(Buffer pinned) {
                    if (writesLeft.getAndDecrement() <= 0) {
                        java.util.Arrays.fill(file, (byte) 0x55); // undefined now
                        return new Ended(new JcclException("tier NVME: no room left for " + name));
                    }
                    pinned.copyTo(MemorySegment.ofArray(file));
                    return new Ended(null);
                }

                @Override
                public void close() {}
            };
        }

        private record Ended(@Nullable RuntimeException failure) implements Completion {
            @Override
            public boolean isDone() {
                return true;
            }

            @Override
            public void await(Duration timeout) {
                if (failure != null) {
                    throw failure;
                }
            }
        }
    }

    static double initial(long seed, String layer, String tensor, long i) {
        if (layer.equals("gain")) {
            return 1;
        }
        return new Random(seed * 31 + layer.hashCode() * 7L + tensor.hashCode() * 3L + i)
                        .nextGaussian()
                * 0.4;
    }

    static void initialize(ZeroOptimizer zero, long seed) {
        zero.initialize((layer, tensor, values) -> {
            for (long i = 0; i < values.count(); i++) {
                values.set(i, initial(seed, layer, tensor, i));
            }
        });
    }

    /** Random inputs and targets of one micro-step of one rank. */
    static Random data(long seed, long step, int micro, int rank) {
        return new Random(seed * 1_000_003 + step * 10_007 + micro * 101L + rank);
    }

    /**
     * Adds the gradients of the loss times the scale. Arithmetic in float32 and one order, so that
     * equal parameters give equal bits.
     */
    static void gradients(Buffer[] p, Buffer[] g, Random data, double scale) {
        for (int b = 0; b < BATCH; b++) {
            float[] x = new float[IN];
            for (int i = 0; i < IN; i++) {
                x[i] = (float) data.nextGaussian();
            }
            float[] h = new float[HIDDEN];
            for (int j = 0; j < HIDDEN; j++) {
                float sum = (float) p[0].get(IN * HIDDEN + j);
                for (int i = 0; i < IN; i++) {
                    sum += (float) p[0].get(i * HIDDEN + j) * x[i];
                }
                h[j] = (float) StrictMath.tanh(sum);
            }
            float gain = (float) p[2].get(0);
            float[] dh = new float[HIDDEN];
            for (int k = 0; k < OUT; k++) {
                float z = (float) p[1].get(HIDDEN * OUT + k);
                for (int j = 0; j < HIDDEN; j++) {
                    z += (float) p[1].get(j * OUT + k) * h[j];
                }
                float target = (float) StrictMath.sin(x[k] + x[k + 1] * x[k + 2]);
                float d = (gain * z - target) * 2 / (BATCH * OUT) * (float) scale;
                g[2].set(0, (float) g[2].get(0) + d * z);
                float dz = d * gain;
                g[1].set(HIDDEN * OUT + k, (float) g[1].get(HIDDEN * OUT + k) + dz);
                for (int j = 0; j < HIDDEN; j++) {
                    int at = j * OUT + k;
                    g[1].set(at, (float) g[1].get(at) + dz * h[j]);
                    dh[j] += dz * (float) p[1].get(at);
                }
            }
            for (int j = 0; j < HIDDEN; j++) {
                float da = dh[j] * (1 - h[j] * h[j]);
                g[0].set(IN * HIDDEN + j, (float) g[0].get(IN * HIDDEN + j) + da);
                for (int i = 0; i < IN; i++) {
                    int at = i * HIDDEN + j;
                    g[0].set(at, (float) g[0].get(at) + da * x[i]);
                }
            }
        }
    }

    /**
     * One micro-step as a trainer does it: forward with one layer at a time, and backward in
     * reverse. The small model computes all at once, so layers are copied out while they are held.
     */
    static void microStep(ZeroOptimizer zero, Random data) {
        int n = LAYERS.size();
        Buffer[] p = new Buffer[n];
        for (int i = 0; i < n; i++) {
            p[i] = copy(zero.gather(i));
            zero.release(i);
        }
        Buffer[] g = new Buffer[n];
        for (int i = n - 1; i >= 0; i--) {
            Buffer again = zero.gather(i);
            Buffer second = copy(again);
            boolean same = second.asSegment().mismatch(p[i].asSegment()) < 0;
            second.close();
            if (!same) {
                throw new AssertionError("layer " + i + " differs between forward and backward");
            }
            zero.release(i);
            g[i] = Device.host().allocate(p[i].dataType(), p[i].count());
        }
        gradients(p, g, data, zero.lossScale());
        for (int i = n - 1; i >= 0; i--) {
            add(g[i], zero.gradients(i));
            zero.reduce(i);
            g[i].close();
            p[i].close();
        }
    }

    private static Buffer copy(Buffer b) {
        Buffer c = Device.host().allocate(b.dataType(), b.count());
        b.copyTo(c.asSegment());
        return c;
    }

    private static void add(Buffer gradients, Buffer room) {
        if (room.device().kind() == Device.Kind.HOST) {
            Numbers.add(gradients, room);
            return;
        }
        try (Buffer sum = copy(room)) {
            Numbers.add(gradients, sum);
            room.copyFrom(sum.asSegment());
        }
    }

    /**
     * The same as a trainer on a GPU does it, whose thread enqueues and need not wait: layers are
     * read, and gradients written, by a stream. Pinned memory comes from a pool, since to free it
     * waits for the collectives of all ranks of the process.
     *
     * @param same whether to check that layers are the same in forward and backward
     * @param sums whether gradients are those of earlier micro-steps, to which this one's are added
     */
    static void microStep(
            ZeroOptimizer zero,
            Random data,
            Stream user,
            BufferPool pinned,
            boolean same,
            boolean sums) {
        int n = LAYERS.size();
        Buffer[] p = new Buffer[n];
        Buffer[] g = new Buffer[n];
        for (int i = 0; i < n; i++) {
            p[i] = enqueueCopy(zero, i, user, pinned);
        }
        for (int i = n - 1; i >= 0; i--) {
            g[i] = enqueueCopy(zero, i, user, pinned);
        }
        user.synchronize();
        for (int i = 0; i < n; i++) {
            if (same && g[i].asSegment().mismatch(p[i].asSegment()) >= 0) {
                throw new AssertionError("layer " + i + " differs between forward and backward");
            }
            g[i].zero();
        }
        gradients(p, g, data, zero.lossScale());
        for (int i = n - 1; i >= 0; i--) {
            Buffer room = zero.gradients(i);
            if (sums) {
                try (Buffer before = pinned.allocate(room.dataType(), room.count())) {
                    user.copy(room, before);
                    user.synchronize();
                    Numbers.add(before, g[i]);
                }
            }
            user.copy(g[i], room);
            zero.reduce(i, user);
        }
        user.synchronize();
        for (int i = 0; i < n; i++) {
            g[i].close();
            p[i].close();
        }
    }

    private static Buffer enqueueCopy(
            ZeroOptimizer zero, int layer, Stream user, BufferPool pinned) {
        Buffer there = zero.gather(layer, user);
        Buffer here = pinned.allocate(there.dataType(), there.count());
        user.copy(there, here);
        zero.release(layer, user);
        return here;
    }

    static StepResult step(
            ZeroOptimizer zero, long seed, long step, int micros, int rank, double rate) {
        for (int m = 0; m < micros; m++) {
            microStep(zero, data(seed, step, m, rank));
        }
        return zero.step(rate);
    }

    static float[] parameters(ZeroOptimizer zero) {
        float[] all = new float[(int) LAYERS.stream().mapToLong(ShardedLayer::count).sum()];
        int[] at = {0};
        zero.forEachParameter((layer, tensor, values) -> {
            for (long i = 0; i < values.count(); i++) {
                all[at[0]++] = (float) values.get(i);
            }
        });
        return all;
    }

    /** Plain data parallelism, with nothing of {@link ZeroOptimizer}: every rank has everything. */
    static float[] plain(
            Communicator comm,
            Optimizer optimizer,
            DataType type,
            DataType accumulator,
            int micros,
            int steps,
            long seed,
            double rate,
            double maxNorm) {
        int n = LAYERS.size();
        OptimizerState[] state = new OptimizerState[n];
        Buffer[] p = new Buffer[n];
        Buffer[] g = new Buffer[n];
        Buffer[] sum = new Buffer[n];
        Device host = Device.host();
        for (int i = 0; i < n; i++) {
            ShardedLayer layer = LAYERS.get(i);
            state[i] = OptimizerState.allocate(optimizer, host, layer.count());
            long at = 0;
            for (ShardedLayer.Tensor t : layer.tensors()) {
                for (long j = 0; j < t.count(); j++) {
                    state[i].parameters().set(at++, initial(seed, layer.name(), t.name(), j));
                }
            }
            p[i] = host.allocate(type, layer.count());
            g[i] = host.allocate(type, layer.count());
            sum[i] = host.allocate(accumulator, layer.count());
            Numbers.copy(state[i].parameters(), p[i]);
        }
        for (int s = 0; s < steps; s++) {
            for (int m = 0; m < micros; m++) {
                for (Buffer b : g) {
                    b.zero();
                }
                gradients(p, g, data(seed, s, m, comm.rank()), 1);
                for (int i = 0; i < n; i++) {
                    if (m == 0) {
                        Numbers.copy(g[i], sum[i]);
                    } else {
                        Numbers.add(g[i], sum[i]);
                    }
                }
            }
            GradientNorm norm = new GradientNorm(n);
            for (int i = 0; i < n; i++) {
                comm.allReduce(sum[i], ReduceOp.SUM, host.defaultStream());
                norm.add(i, sum[i]);
            }
            double factor =
                    GradientNorm.factor(norm.norm(), (double) micros * comm.size(), maxNorm);
            for (int i = 0; i < n; i++) {
                optimizer.step(state[i], 0, sum[i], null, s + 1, rate, factor);
                Numbers.copy(state[i].parameters(), p[i]);
            }
        }
        float[] all = new float[(int) LAYERS.stream().mapToLong(ShardedLayer::count).sum()];
        int at = 0;
        for (OptimizerState st : state) {
            for (long j = 0; j < st.count(); j++) {
                all[at++] = (float) st.parameters().get(j);
            }
            st.close();
        }
        return all;
    }

    static LossScale noScale() {
        return LossScale.fixed(1);
    }
}
