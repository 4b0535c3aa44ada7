package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.bindings.JcclException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The schedule on the host device, against a model that has all layers in plain memory. */
@Timeout(value = 120, unit = TimeUnit.SECONDS)
class LayerScheduleTest {
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final ScheduleOptions OPTIONS = ScheduleOptions.DEFAULT.withTimeout(WAIT);

    private final List<AutoCloseable> open = new ArrayList<>();

    @AfterEach
    void closeAll() throws Exception {
        for (AutoCloseable c : open.reversed()) {
            c.close();
        }
        open.clear();
    }

    private <T extends AutoCloseable> T closing(T t) {
        open.add(t);
        return t;
    }

    /** Places in plain memory, whose reads and writes end in a thread of their own. */
    private static final class MemoryStore {
        final Map<String, long[]> contents = new HashMap<>();
        volatile @Nullable String failing;
        volatile int delayMicros;

        TierStore.Place place(String name, int count) {
            long[] content = contents.computeIfAbsent(name, n -> new long[count]);
            return new TierStore.Place() {
                @Override
                public Completion read(Buffer pinned) {
                    return start("read " + name, () -> {
                        for (int i = 0; i < content.length; i++) {
                            pinned.setLong(i, content[i]);
                        }
                    });
                }

                @Override
                public Completion write(Buffer pinned) {
                    return start("write " + name, () -> {
                        for (int i = 0; i < content.length; i++) {
                            content[i] = pinned.getLong(i);
                        }
                    });
                }

                @Override
                public void close() {}
            };
        }

        private Completion start(String what, Runnable body) {
            CountDownLatch done = new CountDownLatch(1);
            boolean fails = what.equals(failing);
            Thread.ofVirtual().start(() -> {
                try {
                    if (delayMicros > 0) {
                        TimeUnit.MICROSECONDS.sleep(delayMicros);
                    }
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
                if (!fails) {
                    body.run();
                }
                done.countDown();
            });
            return new Completion() {
                @Override
                public boolean isDone() {
                    return done.getCount() == 0;
                }

                @Override
                public void await(Duration timeout) {
                    try {
                        if (!done.await(timeout.toNanos(), TimeUnit.NANOSECONDS)) {
                            throw new CollectiveTimeoutException(what);
                        }
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                    if (fails) {
                        throw new JcclException("the drive refused: " + what);
                    }
                }
            };
        }
    }

    /** A model of int64 layers, its homes, and what they should hold. */
    private final class Fixture {
        final Budgets budgets;
        final Tiers tiers;
        final MemoryStore store = new MemoryStore();
        final List<Layer> layers = new ArrayList<>();
        final List<List<@Nullable Buffer>> homes = new ArrayList<>();
        final List<@Nullable Buffer> gradientHomes = new ArrayList<>();
        final ConcurrentLinkedQueue<String> ran = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<String> wrong = new ConcurrentLinkedQueue<>();
        long version;

        Fixture(long deviceBytes, TransferOptions transfers) {
            budgets = new Budgets(Map.of(Tier.DEVICE, deviceBytes));
            TransferEngine engine = closing(TransferEngine.create(Device.host(), transfers));
            PoolOptions slabs = PoolOptions.DEFAULT.withSlabBytes(256);
            tiers =
                    new Tiers(
                            engine,
                            closing(BufferPool.device(Device.host(), budgets, slabs)),
                            closing(BufferPool.pinned(Device.host(), budgets, slabs)),
                            null);
        }

        /** A layer of parameters of these counts; some of its tensors in the store. */
        void add(int[] counts, boolean gradient, boolean checkpoint, Random onNvme) {
            int index = layers.size();
            String name = "layer" + index;
            LayerTensor[] parameters = new LayerTensor[counts.length];
            List<@Nullable Buffer> own = new ArrayList<>();
            for (int i = 0; i < counts.length; i++) {
                boolean nvme = onNvme.nextInt(4) == 0;
                own.add(nvme ? null : ints(counts[i]));
                parameters[i] = tensor("p" + i, name + ".p" + i, counts[i], own.getLast());
            }
            homes.add(own);
            Layer l = Layer.of(name, parameters);
            Buffer g = null;
            if (gradient) {
                g = onNvme.nextInt(4) == 0 ? null : ints(counts[0]);
                l = l.withGradients(tensor("g", name + ".g", counts[0], g));
            }
            gradientHomes.add(g);
            if (checkpoint) {
                Buffer c = onNvme.nextInt(4) == 0 ? null : ints(3);
                l = l.withCheckpoint(tensor("c", name + ".c", 3, c));
            }
            layers.add(l);
        }

        private Buffer ints(int count) {
            return closing(Device.host().allocate(DataType.INT64, count));
        }

        private LayerTensor tensor(String name, String key, int count, @Nullable Buffer home) {
            return home != null
                    ? LayerTensor.pinned(name, home)
                    : LayerTensor.nvme(name, DataType.INT64, count, store.place(key, count));
        }

        /** New parameters everywhere, as after an optimizer's step. */
        void update() {
            version++;
            for (int l = 0; l < layers.size(); l++) {
                for (int t = 0; t < homes.get(l).size(); t++) {
                    int count = (int) layers.get(l).parameters().get(t).count();
                    Buffer home = homes.get(l).get(t);
                    for (int i = 0; i < count; i++) {
                        if (home != null) {
                            home.setLong(i, value(l, t, i));
                        } else {
                            store.contents.get("layer" + l + ".p" + t)[i] = value(l, t, i);
                        }
                    }
                }
            }
        }

        long value(int layer, int tensor, int i) {
            return version * 1_000_000_007L + layer * 1_000_003L + tensor * 10_007L + i;
        }

        /** What runs on the device: checks the layer's data and writes its outputs. */
        void forward(int layer, LayerBuffers b, Stream stream) {
            long v = version;
            stream.launchHostFunction(() -> {
                ran.add("F" + layer);
                check("forward", layer, b);
                if (b.layer().checkpoint() != null) {
                    for (int i = 0; i < 3; i++) {
                        b.checkpoint().setLong(i, v * 31 + layer * 7 + i);
                    }
                }
                assertEquals(v, version);
            });
        }

        void backward(int layer, LayerBuffers b, Stream stream) {
            stream.launchHostFunction(() -> {
                ran.add("B" + layer);
                check("backward", layer, b);
                if (b.layer().checkpoint() != null) {
                    for (int i = 0; i < 3; i++) {
                        if (b.checkpoint().getLong(i) != version * 31 + layer * 7 + i) {
                            wrong.add("checkpoint of " + layer);
                        }
                    }
                }
                for (Buffer g : b.gradients()) {
                    for (int i = 0; i < g.count(); i++) {
                        g.setLong(i, -value(layer, 0, i));
                    }
                }
            });
        }

        private void check(String phase, int layer, LayerBuffers b) {
            for (int t = 0; t < b.parameters().size(); t++) {
                Buffer p = b.parameters().get(t);
                for (int i = 0; i < p.count(); i++) {
                    if (p.getLong(i) != value(layer, t, i)) {
                        wrong.add(phase + " of " + layer + " tensor " + t + " element " + i);
                        return;
                    }
                }
            }
        }

        void checkGradients() {
            for (int l = 0; l < layers.size(); l++) {
                if (layers.get(l).gradients().isEmpty()) {
                    continue;
                }
                Buffer home = gradientHomes.get(l);
                long[] stored = store.contents.get("layer" + l + ".g");
                int count = (int) layers.get(l).gradients().getFirst().count();
                for (int i = 0; i < count; i++) {
                    long is = home != null ? home.getLong(i) : stored[i];
                    int at = l;
                    assertEquals(-value(l, 0, i), is, () -> "gradient of layer " + at);
                }
            }
        }

        void checkRan(boolean training) {
            List<String> expected = new ArrayList<>();
            for (int l = 0; l < layers.size(); l++) {
                expected.add("F" + l);
            }
            for (int l = layers.size() - 1; training && l >= 0; l--) {
                expected.add("B" + l);
            }
            assertEquals(expected, List.copyOf(ran));
            assertEquals(List.of(), List.copyOf(wrong));
            ran.clear();
        }

        long largest() {
            return layers.stream().mapToLong(Layer::deviceBytes).max().orElse(0);
        }
    }

    private Fixture random(Random random, long deviceBytes) {
        Fixture f =
                new Fixture(
                        deviceBytes,
                        TransferOptions.DEFAULT
                                .withChunkBytes(64L << random.nextInt(6))
                                .withDepth(1 + random.nextInt(4)));
        int n = 1 + random.nextInt(9);
        for (int l = 0; l < n; l++) {
            int[] counts = new int[1 + random.nextInt(3)];
            for (int i = 0; i < counts.length; i++) {
                counts[i] = random.nextInt(10) == 0 ? 0 : 1 + random.nextInt(200);
            }
            f.add(counts, random.nextBoolean(), random.nextBoolean(), random);
        }
        return f;
    }

    @Test
    void randomModelsRunAsIfTheyHadAllMemory() throws Exception {
        long seed = System.nanoTime();
        System.out.println("LayerScheduleTest: seed " + seed);
        Random seeds = new Random(seed);
        for (int round = 0; round < 150; round++) {
            long own = seeds.nextLong();
            Random random = new Random(own);
            long slots = 1 + random.nextInt(5);
            Fixture probe = random(new Random(own ^ 1), Budgets.UNLIMITED);
            long budget = probe.largest() * slots + random.nextInt(100);
            Fixture f = random(new Random(own ^ 1), budget);
            f.store.delayMicros = random.nextInt(3) * 100;
            int depth = random.nextInt(6) - 1;
            boolean cyclic = random.nextInt(3) == 0;
            try (LayerSchedule s =
                    LayerSchedule.create(
                            f.layers, f.tiers, OPTIONS.withDepth(depth).withCyclic(cyclic))) {
                f.update();
                for (int pass = 0; pass < 4; pass++) {
                    boolean training = random.nextInt(3) > 0;
                    if (!cyclic) {
                        f.update();
                    }
                    if (training) {
                        s.train(f::forward, f::backward);
                        f.checkGradients();
                    } else {
                        s.forward(f::forward);
                    }
                    f.checkRan(training);
                }
                assertTrue(f.budgets.peak(Tier.DEVICE) <= budget);
                assertTrue(s.stats().slots() <= slots);
                if (depth >= 0) {
                    assertEquals(Math.min(depth + 1, slots), s.stats().slots());
                }
                assertEquals(4, s.stats().passes());
            } catch (Throwable e) {
                throw new AssertionError("seed " + seed + ", round " + round, e);
            }
            closeAll();
            assertEquals(0, f.budgets.used(Tier.DEVICE));
        }
    }
}
