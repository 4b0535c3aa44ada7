package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.offload.LayerSchedule.Pass;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/** The schedule on the host device, against a model that has all layers in plain memory. */
@Isolated("records all events of the JVM")
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

        /** A read or write that does not end: awaiting it times out once {@link #timeout} opens. */
        volatile @Nullable String stalled;

        /** Opens when the read or write that does not end is started. */
        final CountDownLatch stalls = new CountDownLatch(1);

        final CountDownLatch timeout = new CountDownLatch(1);

        TierStore.Place place(String name, int count) {
            long[] content = contents.computeIfAbsent(name, n -> new long[count]);
            return new TierStore.Place() {
                @Override
                public Completion read(Buffer pinned) {
                    return start(
                            "read " + name,
                            () -> {
                                for (int i = 0; i < content.length; i++) {
                                    pinned.setLong(i, content[i]);
                                }
                            });
                }

                @Override
                public Completion write(Buffer pinned) {
                    return start(
                            "write " + name,
                            () -> {
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
            if (what.equals(stalled)) {
                stalls.countDown();
                return new Completion() {
                    @Override
                    public boolean isDone() {
                        return false;
                    }

                    @Override
                    public void await(Duration ignored) {
                        gate(timeout);
                        throw new JcclTimeoutException(what);
                    }
                };
            }
            Thread.ofVirtual()
                    .start(() -> {
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
                            throw new JcclTimeoutException(what);
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
                            Objects.requireNonNull(store.contents.get("layer" + l + ".p" + t))[i] =
                                    value(l, t, i);
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
                        b.checkpoint().setLong(i, v * 31 + layer * 7L + i);
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
                        if (b.checkpoint().getLong(i) != version * 31 + layer * 7L + i) {
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
                    long is = home != null ? home.getLong(i) : Objects.requireNonNull(stored)[i];
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
        randomModels(12);
    }

    @Tag("exhaustive")
    @Test
    void manyMoreRandomModels() throws Exception {
        randomModels(300);
    }

    private void randomModels(int rounds) throws Exception {
        long seed = System.nanoTime();
        System.out.println("LayerScheduleTest: seed " + seed);
        Random seeds = new Random(seed);
        for (int round = 0; round < rounds; round++) {
            long own = seeds.nextLong();
            Random random = new Random(own);
            long slots = 1L + random.nextInt(5);
            Fixture probe = random(new Random(own ^ 1), Budgets.UNLIMITED);
            // A slot takes that much even if all layers are empty.
            long slot = Math.max(Layer.ALIGNMENT, probe.largest());
            long budget = slot * slots + random.nextInt(100);
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

    /** A model of six layers with gradients and checkpoints, all in memory or all in the store. */
    private Fixture six(boolean nvme, int slots) {
        Fixture f =
                new Fixture(
                        slots * (2560 + 2560 + 256L), // 300 int64 twice, three once, padded
                        TransferOptions.DEFAULT.withChunkBytes(1024));
        Random homes =
                new Random(0) {
                    private static final long serialVersionUID = 1;

                    @Override
                    public int nextInt(int bound) {
                        return nvme ? 0 : 1;
                    }
                };
        for (int i = 0; i < 6; i++) {
            f.add(new int[] {300}, true, true, homes);
        }
        f.update();
        return f;
    }

    private LayerSchedule schedule(Fixture f, ScheduleOptions options) {
        return closing(LayerSchedule.create(f.layers, f.tiers, options));
    }

    private static void gate(CountDownLatch latch) {
        try {
            if (!latch.await(WAIT.toSeconds(), TimeUnit.SECONDS)) {
                throw new AssertionError("nobody opened the gate");
            }
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** The pass fails with this in its message, and runs well afterwards. */
    private static void failsOnce(Fixture f, LayerSchedule s, String message, Runnable pass) {
        Throwable e = assertThrows(RuntimeException.class, pass::run);
        assertTrue(String.valueOf(e.getMessage()).contains(message), e::toString);
        f.ran.clear();
        f.wrong.clear();
        s.train(f::forward, f::backward);
        f.checkRan(true);
        f.checkGradients();
        f.update();
    }

    @Test
    void anErrorAnywhereLeavesAScheduleThatRunsAgain() {
        for (boolean cyclic : new boolean[] {false, true}) {
            for (int slots = 1; slots <= 3; slots++) {
                Fixture f = six(slots == 2, slots);
                LayerSchedule s = schedule(f, OPTIONS.withDepth(slots - 1).withCyclic(cyclic));
                assertEquals(slots, s.stats().slots());
                for (int l = 0; l < 6; l++) {
                    int at = l;
                    // In the caller's code.
                    failsOnce(
                            f,
                            s,
                            "forward " + at,
                            () ->
                                    s.train(
                                            (i, b, c) -> {
                                                f.forward(i, b, c);
                                                if (i == at) {
                                                    throw new IllegalStateException(
                                                            "forward " + at);
                                                }
                                            },
                                            f::backward));
                    failsOnce(
                            f,
                            s,
                            "backward " + at,
                            () ->
                                    s.train(
                                            f::forward,
                                            (i, b, c) -> {
                                                if (i == at) {
                                                    throw new IllegalStateException(
                                                            "backward " + at);
                                                }
                                                f.backward(i, b, c);
                                            }));
                    // On the stream.
                    failsOnce(
                            f,
                            s,
                            "stream " + at,
                            () ->
                                    s.train(
                                            f::forward,
                                            (i, b, c) -> {
                                                f.backward(i, b, c);
                                                if (i == at) {
                                                    c.launchHostFunction(() -> {
                                                        throw new JcclException("stream " + at);
                                                    });
                                                }
                                            }));
                    if (slots == 2) {
                        for (String what :
                                List.of(
                                        "read layer%d.p0",
                                        "read layer%d.c", "write layer%d.g", "write layer%d.c")) {
                            if (what.equals("read layer%d.c") && at > 3) {
                                continue; // still on the device when the pass turns
                            }
                            f.store.failing = String.format(what, at);
                            Throwable e =
                                    assertThrows(
                                            JcclException.class,
                                            () -> s.train(f::forward, f::backward),
                                            f.store.failing);
                            assertTrue(
                                    String.valueOf(e.getMessage()).contains("the drive refused"),
                                    e::toString);
                            f.store.failing = null;
                            f.ran.clear();
                            f.wrong.clear();
                            s.train(f::forward, f::backward);
                            f.checkRan(true);
                            f.checkGradients();
                        }
                    }
                    if (cyclic) {
                        s.invalidate();
                    }
                }
            }
        }
    }

    private static void assertUnusable(LayerSchedule s, Throwable e) {
        assertTrue(
                String.valueOf(e.getSuppressed()[0].getMessage()).contains("no longer be used"),
                e::toString);
        e = assertThrows(IllegalStateException.class, () -> s.begin(Pass.FORWARD));
        assertTrue(String.valueOf(e.getMessage()).contains("create another"), e::toString);
    }

    /** It may still write to the memory of a slot, or read it. */
    @Test
    void aReadOrWriteThatDoesNotEndMakesTheScheduleUnusable() {
        for (String what : List.of("read layer3.p0", "write layer4.g", "write layer2.c")) {
            Fixture f = six(true, 1);
            f.store.stalled = what;
            f.store.timeout.countDown();
            LayerSchedule s = schedule(f, OPTIONS.withDepth(0));
            Throwable e =
                    assertThrows(JcclException.class, () -> s.train(f::forward, f::backward), what);
            f.store.stalled = null;
            assertUnusable(s, e);
        }
    }

    @Test
    void aWriteThatWasStartedIsAwaitedEvenIfTheNextGradientFails() {
        Fixture f = new Fixture(Budgets.UNLIMITED, TransferOptions.DEFAULT);
        f.store.stalled = "write a";
        f.store.timeout.countDown();
        Buffer home = f.ints(300);
        f.layers.add(
                Layer.of("layer", LayerTensor.pinned("p", f.ints(300)))
                        .withGradients(
                                f.tensor("a", "a", 300, null), LayerTensor.pinned("b", home)));
        LayerSchedule s = schedule(f, OPTIONS.withDepth(0));
        Throwable e =
                assertThrows(
                        RuntimeException.class,
                        () -> s.train((i, b, c) -> {}, (i, b, c) -> home.close()));
        assertTrue(String.valueOf(e.getMessage()).contains("closed"), e::toString);
        assertUnusable(s, e);
    }

    @Test
    void theErrorOfTheWorkIsThrownEvenIfDrainingFails() {
        Fixture f = six(true, 2);
        f.store.stalled = "read layer1.p0";
        LayerSchedule s = schedule(f, OPTIONS.withDepth(1));
        Throwable e =
                assertThrows(
                        IllegalStateException.class,
                        () ->
                                s.forward((i, b, c) -> {
                                    // What the prefetcher has not begun by now, draining leaves
                                    // out.
                                    gate(f.store.stalls);
                                    f.store.timeout.countDown();
                                    throw new IllegalStateException("mine");
                                }));
        assertEquals("mine", e.getMessage());
        assertUnusable(s, e);
    }

    @Test
    void acquireTimesOutBehindWorkThatHangs() {
        Fixture f =
                new Fixture(2 * 2560, TransferOptions.DEFAULT.withChunkBytes(1024).withDepth(1));
        for (int i = 0; i < 3; i++) {
            f.add(new int[] {300}, false, false, new Random(1));
        }
        LayerSchedule s = schedule(f, OPTIONS.withDepth(1).withTimeout(Duration.ofMillis(50)));
        CountDownLatch hanging = new CountDownLatch(1);
        try {
            assertThrows(
                    JcclTimeoutException.class,
                    () -> s.forward((i, b, c) -> c.launchHostFunction(() -> gate(hanging))));
        } finally {
            hanging.countDown();
        }
    }

    @Test
    void aHomeThatIsClosedFailsThePass() {
        Fixture f = six(false, 2);
        LayerSchedule s = schedule(f, OPTIONS.withDepth(1));
        s.train(f::forward, f::backward);
        Objects.requireNonNull(f.homes.get(3).getFirst()).close();
        Throwable e = assertThrows(RuntimeException.class, () -> s.train(f::forward, f::backward));
        assertTrue(String.valueOf(e.getMessage()).contains("closed"), e::toString);
    }

    @Test
    void aBudgetForLessThanALayerSaysWhatIsMissing() {
        Fixture f = new Fixture(1000, TransferOptions.DEFAULT);
        f.add(new int[] {10}, false, false, new Random(1));
        f.add(new int[] {300}, false, false, new Random(1));
        OffloadMemoryException e =
                assertThrows(OffloadMemoryException.class, () -> schedule(f, OPTIONS));
        assertTrue(
                String.valueOf(e.getMessage()).contains("layer 'layer1' needs 2560 bytes"),
                e::toString);
        assertTrue(String.valueOf(e.getMessage()).contains("1560 bytes are missing"), e::toString);
        assertEquals(0, f.budgets.used(Tier.DEVICE));
        Fixture wide = six(false, 3);
        OffloadMemoryException limited =
                assertThrows(
                        OffloadMemoryException.class,
                        () -> schedule(wide, OPTIONS.withDeviceBytes(5000)));
        assertTrue(
                String.valueOf(limited.getMessage()).contains("376 bytes are missing"),
                limited::toString);
        assertEquals(
                2, schedule(wide, OPTIONS.withDepth(5).withDeviceBytes(11_000)).stats().slots());
    }

    @Test
    void callsOutOfTurnSayWhatIsExpected() {
        Fixture f = six(false, 2);
        LayerSchedule s = schedule(f, OPTIONS.withDepth(1));
        assertThrows(IllegalStateException.class, () -> s.acquire(0));
        s.begin(Pass.FORWARD);
        assertThrows(IllegalStateException.class, () -> s.begin(Pass.FORWARD));
        assertThrows(IllegalStateException.class, s::release);
        Throwable e = assertThrows(IllegalArgumentException.class, () -> s.acquire(2));
        assertTrue(String.valueOf(e.getMessage()).contains("layer is 2, expected 0"), e::toString);
        f.forward(0, s.acquire(0), s.compute());
        e = assertThrows(IllegalStateException.class, () -> s.acquire(1));
        assertTrue(String.valueOf(e.getMessage()).contains("layer 0 is held"), e::toString);
        s.release();
        e = assertThrows(IllegalStateException.class, s::end);
        assertTrue(String.valueOf(e.getMessage()).contains("layer 1 has not run"), e::toString);
        s.abort();
        s.abort();
        f.ran.clear();
        s.forward(f::forward);
        f.checkRan(false);
        s.begin(Pass.TRAINING);
        s.acquire(0);
        s.close();
        s.close();
        assertThrows(IllegalStateException.class, () -> s.begin(Pass.FORWARD));
    }

    @Test
    void gradientsAreOutWhileOtherLayersStillCompute() {
        Fixture f = six(false, 3);
        LayerSchedule s = schedule(f, OPTIONS.withDepth(2));
        CountDownLatch gradientsSeen = new CountDownLatch(1);
        s.train(
                f::forward,
                (i, b, c) -> {
                    if (i == 3) {
                        c.launchHostFunction(() -> gate(gradientsSeen));
                    }
                    f.backward(i, b, c);
                    if (i == 3) {
                        s.awaitGradients(5, WAIT);
                        s.awaitGradients(4, WAIT);
                        Buffer home = f.gradientHomes.get(5);
                        assertEquals(-f.value(5, 0, 7), Objects.requireNonNull(home).getLong(7));
                        gradientsSeen.countDown();
                    }
                });
        f.checkGradients();
    }

    private record Span(String track, String name, double start, double end) {}

    private static final Pattern EVENT =
            Pattern.compile(
                    "\\{\"ph\":\"X\",\"pid\":1,\"tid\":(\\d+),\"name\":\"(.*)\",\"cat\":\"(.*)\","
                            + "\"ts\":([0-9.]+),\"dur\":([0-9.]+),\"args\":\\{\"bytes\":(\\d+)}},?");

    private static List<Span> spans(Path file) throws IOException {
        List<String> lines = Files.readAllLines(file);
        assertEquals("[", lines.getFirst());
        assertEquals("]", lines.getLast());
        List<Span> spans = new ArrayList<>();
        for (String line : lines) {
            Matcher m = EVENT.matcher(line);
            if (m.matches()) {
                double start = Double.parseDouble(m.group(4));
                spans.add(
                        new Span(
                                m.group(1),
                                m.group(2),
                                start,
                                start + Double.parseDouble(m.group(5))));
            } else if (line.startsWith("{\"ph\":\"X\"")) {
                throw new AssertionError("cannot read " + line);
            }
        }
        Map<String, Double> ends = new HashMap<>();
        for (Span span : spans) {
            assertTrue(
                    span.start >= ends.getOrDefault(span.track, 0.0) - 0.0015,
                    () -> span + " overlaps the event before");
            ends.put(span.track, span.end);
        }
        return spans;
    }

    @Test
    void theTraceShowsTheNextLayerComeInDuringWork(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("trace.json");
        Fixture f = six(false, 2);
        try (ChromeTrace trace = ChromeTrace.open(file)) {
            LayerSchedule s = schedule(f, OPTIONS.withDepth(1).withTrace(trace));
            s.begin(Pass.FORWARD);
            for (int i = 0; i < 6; i++) {
                LayerBuffers b = s.acquire(i);
                int layer = i;
                long next = Math.min(6, i + 2) * 2400L;
                CountDownLatch started = new CountDownLatch(1);
                s.compute()
                        .launchHostFunction(() -> {
                            started.countDown();
                            // Work that lasts until the next layer is there.
                            long deadline = System.nanoTime() + WAIT.toNanos();
                            while (s.stats().bytesIn() < next && System.nanoTime() < deadline) {
                                Thread.onSpinWait();
                            }
                            if (s.stats().bytesIn() < next) {
                                throw new JcclException("layer " + layer + " + 1 did not come in");
                            }
                        });
                f.forward(i, b, s.compute());
                gate(started);
                s.release();
            }
            s.end();
            assertFalse(Files.exists(file));
        }
        List<Span> spans = spans(file);
        String compute = Integer.toString(ChromeTrace.Track.COMPUTE.ordinal() + 1);
        String in = Integer.toString(ChromeTrace.Track.TO_DEVICE.ordinal() + 1);
        List<Span> works = spans.stream().filter(x -> x.track.equals(compute)).toList();
        List<Span> fetches = spans.stream().filter(x -> x.track.equals(in)).toList();
        assertEquals(6, works.size());
        assertEquals(6, fetches.size());
        for (int i = 1; i < 5; i++) {
            Span work = works.get(i);
            Span fetch = fetches.get(i + 1);
            assertEquals("layer" + i, work.name);
            assertEquals("layer" + (i + 1), fetch.name);
            // It may begin in the gap before the work, as the slot is free from then on.
            double free = works.get(i - 1).end - 0.0015;
            assertTrue(
                    fetch.start >= free && fetch.end <= work.end,
                    () -> fetch + " is not within " + work + ", slot free at " + free);
        }
    }

    @Test
    void aTraceIsBoundedAndAppearsWhole(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("trace.json");
        Files.writeString(file, "old");
        try (ChromeTrace trace = ChromeTrace.open(file, 9000)) {
            for (int i = 0; i < 10_000; i++) {
                trace.record(
                        ChromeTrace.Track.COMPUTE, "a \"name\"\n", "x\\y", i * 10L, i * 10L + 5, i);
            }
            assertEquals(1000, trace.dropped());
            assertEquals("old", Files.readString(file));
        }
        assertEquals(9000, spans(file).size());
        assertEquals("a \\\"name\\\"\\u000a", spans(file).getFirst().name);
        try (var files = Files.list(folder)) {
            assertEquals(1, files.count());
        }
        Path other = Files.createFile(folder.resolve("other"));
        assertEquals(Files.getPosixFilePermissions(other), Files.getPosixFilePermissions(file));
        assertThrows(IOException.class, () -> ChromeTrace.open(folder));
        assertThrows(IOException.class, () -> ChromeTrace.open(folder.resolve("no").resolve("t")));
    }

    @Test
    void aTraceGoesWhereALinkLeads(@TempDir Path folder) throws Exception {
        Path file = Files.writeString(folder.resolve("trace.json"), "old");
        Path link = Files.createSymbolicLink(folder.resolve("link"), file);
        try (ChromeTrace trace = ChromeTrace.open(link)) {
            trace.record(ChromeTrace.Track.COMPUTE, "a", "b", 0, 5, 1);
        }
        assertEquals(1, spans(file).size());
        assertEquals(file, Files.readSymbolicLink(link));
    }

    @Test
    void aFlightRecordingHasTheEvents(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("schedule.jfr");
        Fixture f = six(false, 2);
        LayerSchedule s = schedule(f, OPTIONS.withDepth(1));
        try (Recording recording = new Recording()) {
            for (String kind : List.of("Transfer", "Compute", "Stall", "Evict")) {
                recording.enable("io.jccl.offload." + kind).withoutThreshold();
            }
            recording.start();
            s.train(f::forward, f::backward);
            recording.stop();
            recording.dump(file);
        }
        Map<String, Integer> counts = new HashMap<>();
        for (RecordedEvent e : RecordingFile.readAllEvents(file)) {
            counts.merge(e.getEventType().getName(), 1, Integer::sum);
            if (e.getEventType().getName().equals("io.jccl.offload.Transfer")) {
                assertTrue(e.getLong("bytes") > 0);
            }
        }
        LayerSchedule.Stats stats = s.stats();
        // Parameters and checkpoints in; checkpoints and gradients out.
        assertEquals((int) stats.fetches() + 4 + 6 + 6, counts.get("io.jccl.offload.Transfer"));
        assertEquals(12, counts.get("io.jccl.offload.Compute"));
        assertEquals((int) stats.evictions(), counts.get("io.jccl.offload.Evict"));
        assertEquals(10, stats.fetches());
        assertEquals(2, stats.hits());
    }

    @Test
    void depthFollowsTimes() {
        long[] even = {10, 10, 10, 10, 10, 10};
        assertEquals(60 * 3, DepthModel.time(even, new long[6], 0, false));
        assertEquals(120 * 3, DepthModel.time(even, even, 0, false));
        assertEquals(70 * 3, DepthModel.time(even, even, 1, false));
        assertEquals(60 * 3 + 10, DepthModel.time(even, even, 1, true));
        assertEquals(1, DepthModel.choose(even, even, 5, true));
        assertEquals(0, DepthModel.choose(even, new long[6], 5, true));
        // One long layer in front of short ones: the short ones' copies need more room.
        long[] work = {60, 1, 1, 1, 1, 1};
        assertTrue(DepthModel.choose(even, work, 5, true) > 2);
    }

    @Test
    void anAutomaticDepthTakesWhatPays() {
        Fixture f = new Fixture(6 * 2560, TransferOptions.DEFAULT);
        for (int i = 0; i < 6; i++) {
            f.add(new int[] {300}, false, false, new Random(1));
        }
        f.update();
        LayerSchedule s = schedule(f, OPTIONS.withCyclic(true));
        assertEquals(1, s.depth());
        for (int i = 0; i < 6; i++) {
            s.forward(f::forward);
            f.checkRan(false);
            assertTrue(s.depth() >= 1 && s.depth() <= 5, () -> s + " " + s.stats());
        }
    }
}
