package io.jccl.offload.zero;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.LossScale;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 240, unit = TimeUnit.SECONDS)
class ZeroFaultTest {
    private static final double RATE = 0.01;
    private static final int RANKS = 3;

    @TempDir Path folder;

    private static ZeroOptimizer create(Communicator comm, ZeroOptions o, Demo.Memory memory) {
        return ZeroOptimizer.create(
                comm, Demo.LAYERS, Adam.defaults(), o, Demo.noScale(), memory.tiers);
    }

    /** Parameters after so many steps without a fault. */
    private static float[] undisturbed(ZeroOptions o, int steps) {
        AtomicReferenceArray<float[]> result = new AtomicReferenceArray<>(RANKS);
        Communicator.runLocal(
                RANKS,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero = create(comm, o, memory)) {
                        Demo.initialize(zero, 1);
                        for (int s = 0; s < steps; s++) {
                            Demo.step(zero, 1, s, o.accumulation(), comm.rank(), RATE);
                        }
                        result.set(comm.rank(), Demo.parameters(zero));
                    }
                });
        return result.get(0);
    }

    private static final Set<String> COLLECTIVES =
            Set.of("allReduce", "reduceScatter", "allGather");

    /** A communicator that closes itself in place of its n-th collective. */
    private static Communicator dying(Communicator comm, AtomicInteger left) {
        return (Communicator)
                Proxy.newProxyInstance(
                        Communicator.class.getClassLoader(),
                        new Class<?>[] {Communicator.class},
                        (proxy, method, arguments) -> {
                            if (COLLECTIVES.contains(method.getName())
                                    && left.getAndDecrement() == 0) {
                                comm.close();
                                throw new JcclException("rank " + comm.rank() + " dies");
                            }
                            try {
                                return method.invoke(comm, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    /** Wherever in a step a rank dies, the others have the state of before it or of after it. */
    @ParameterizedTest
    @ValueSource(ints = {3})
    void aRankThatDiesInAStep(int stage) throws Exception {
        ZeroOptions o =
                ZeroOptions.stage(stage)
                        .withTypes(DataType.BFLOAT16, DataType.FLOAT32)
                        .withTiers(Tier.DEVICE, Tier.PINNED, Tier.PINNED)
                        .withKeepPrevious(true);
        float[] one = undisturbed(o, 1);
        float[] three = undisturbed(o, 3);
        int died = 0;
        for (int at = 0; ; at++) {
            int when = at;
            Path here = folder.resolve("died-" + at);
            AtomicInteger errors = new AtomicInteger();
            List<Communicator> comms = Communicator.local(RANKS, Demo.IN_RANK_ORDER);
            Thread[] threads = new Thread[RANKS];
            AtomicReferenceArray<Throwable> thrown = new AtomicReferenceArray<>(RANKS);
            for (int r = 0; r < RANKS; r++) {
                int rank = r;
                threads[r] =
                        Thread.ofPlatform()
                                .start(() -> {
                                    try {
                                        dieInStep(comms.get(rank), o, when, here, errors);
                                    } catch (Throwable e) {
                                        thrown.set(rank, e);
                                    }
                                });
            }
            for (Thread t : threads) {
                t.join();
            }
            for (int r = 0; r < RANKS; r++) {
                if (thrown.get(r) != null) {
                    throw new AssertionError("rank " + r + ", died at " + at, thrown.get(r));
                }
            }
            if (errors.get() == 0) {
                break; // a step has no more collectives
            }
            assertEquals(RANKS, errors.get(), "died at " + at);
            died++;
            // All files are of the step before; training goes on from there.
            Communicator.runLocal(
                    RANKS,
                    Demo.IN_RANK_ORDER,
                    comm -> {
                        try (Demo.Memory memory = new Demo.Memory(Map.of());
                                ZeroOptimizer zero = create(comm, o, memory)) {
                            assertEquals(1, zero.load(here));
                            assertArrayEquals(one, Demo.parameters(zero), "died at " + when);
                            for (int s = 1; s < 3; s++) {
                                Demo.step(zero, 1, s, 1, comm.rank(), RATE);
                            }
                            assertArrayEquals(three, Demo.parameters(zero), "died at " + when);
                        }
                    });
        }
        // At least: gradients of 3 layers, and two votes.
        assertTrue(died >= 5, "" + died);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2})
    void aRankThatDiesInAStepInMoreCases(int stage) throws Exception {
        aRankThatDiesInAStep(stage);
    }

    private static void dieInStep(
            Communicator comm, ZeroOptions o, int when, Path folder, AtomicInteger errors)
            throws Exception {
        AtomicInteger left = new AtomicInteger(Integer.MAX_VALUE);
        boolean dies = comm.rank() == 1;
        try (comm;
                Demo.Memory memory = new Demo.Memory(Map.of());
                ZeroOptimizer zero = create(dies ? dying(comm, left) : comm, o, memory)) {
            Demo.initialize(zero, 1);
            Demo.step(zero, 1, 0, 1, comm.rank(), RATE);
            left.set(when);
            try {
                Demo.step(zero, 1, 1, 1, comm.rank(), RATE);
                if (left.get() >= 0) {
                    return; // it lives, so that all have taken the step
                }
            } catch (JcclException e) {
                assertNotNull(e.getMessage());
                assertThrows(RuntimeException.class, () -> Demo.step(zero, 1, 1, 1, 0, RATE));
            }
            errors.incrementAndGet();
            // Those who passed the last vote have taken the step, and can go back.
            if (zero.steps() == 2) {
                zero.undoStep();
            }
            assertEquals(1, zero.steps());
            zero.saveAlone(folder);
        }
    }

    /**
     * Without a copy, a rank that lost the others between two layers' updates refuses its state;
     * any other has that of before or of after the step.
     */
    @Tag("exhaustive")
    @Test
    void aRankThatDiesBetweenLayersLeavesNoMixture() throws Exception {
        ZeroOptions o = ZeroOptions.stage(1).withTiers(Tier.PINNED, Tier.PINNED, Tier.PINNED);
        Path reference = folder.resolve("reference");
        Communicator.runLocal(
                RANKS,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero = create(comm, o, memory)) {
                        Demo.initialize(zero, 1);
                        for (int s = 0; s < 2; s++) {
                            Demo.step(zero, 1, s, 1, comm.rank(), RATE);
                            zero.saveAlone(reference);
                        }
                    }
                });
        AtomicInteger refused = new AtomicInteger();
        AtomicInteger deaths = new AtomicInteger(1);
        for (int at = 0; deaths.get() > 0; at++) {
            deaths.set(0);
            int when = at;
            Path here = folder.resolve("between-" + at);
            List<Communicator> comms = Communicator.local(RANKS, Demo.IN_RANK_ORDER);
            try (var threads = java.util.concurrent.Executors.newFixedThreadPool(RANKS)) {
                List<java.util.concurrent.Future<?>> all = new java.util.ArrayList<>();
                for (Communicator comm : comms) {
                    all.add(
                            threads.submit(() -> {
                                dieBetween(comm, o, when, here, reference, deaths, refused);
                                return null;
                            }));
                }
                for (java.util.concurrent.Future<?> f : all) {
                    f.get();
                }
            }
        }
        assertTrue(refused.get() > 0, "no rank failed between two layers");
    }

    private static void dieBetween(
            Communicator comm,
            ZeroOptions o,
            int when,
            Path here,
            Path reference,
            AtomicInteger deaths,
            AtomicInteger refused)
            throws Exception {
        AtomicInteger left = new AtomicInteger(Integer.MAX_VALUE);
        boolean dies = comm.rank() == 1;
        try (comm;
                Demo.Memory memory = new Demo.Memory(Map.of());
                ZeroOptimizer zero = create(dies ? dying(comm, left) : comm, o, memory)) {
            Demo.initialize(zero, 1);
            Demo.step(zero, 1, 0, 1, comm.rank(), RATE);
            left.set(when);
            try {
                Demo.step(zero, 1, 1, 1, comm.rank(), RATE);
            } catch (JcclException e) {
                deaths.incrementAndGet();
                if (e.getMessage() != null && e.getMessage().contains("mixture")) {
                    refused.incrementAndGet();
                    assertThrows(IllegalStateException.class, () -> zero.saveAlone(here));
                    return;
                }
            }
            zero.saveAlone(here);
            String file =
                    String.format(
                            "step-%012d/%013x-%05d-of-%05d.shard",
                            zero.steps(), 0, comm.rank(), RANKS);
            assertEquals(
                    -1,
                    Files.mismatch(reference.resolve(file), here.resolve(file)),
                    file + ", died at " + when);
        }
    }

    /** Without the copy too, if the others fail before the update. */
    @ParameterizedTest
    @CsvSource({"0, DEVICE", "3, NVME"})
    void aRankThatDoesNotComeToTheStep(int stage, Tier tier) {
        ZeroOptions o = ZeroOptions.stage(stage).withTiers(tier, tier, tier);
        float[] one = undisturbed(o, 1);
        AtomicInteger survivors = new AtomicInteger();
        try {
            Communicator.runLocal(
                    RANKS,
                    Demo.IN_RANK_ORDER,
                    comm -> {
                        try (Demo.Memory memory = new Demo.Memory(Map.of());
                                ZeroOptimizer zero = create(comm, o, memory)) {
                            Demo.initialize(zero, 1);
                            Demo.step(zero, 1, 0, 1, comm.rank(), RATE);
                            if (comm.rank() == 2) {
                                zero.saveAlone(folder);
                                comm.close();
                                return;
                            }
                            assertThrows(
                                    JcclException.class,
                                    () -> Demo.step(zero, 1, 1, 1, comm.rank(), RATE));
                            assertEquals(1, zero.steps());
                            zero.saveAlone(folder);
                            survivors.incrementAndGet();
                        }
                    });
        } catch (JcclException e) {
            throw new AssertionError(e);
        }
        assertEquals(2, survivors.get());
        Communicator.runLocal(
                2,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero = create(comm, ZeroOptions.stage(2), memory)) {
                        assertEquals(1, zero.load(folder));
                        assertArrayEquals(one, Demo.parameters(zero));
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, PINNED", "2, PINNED", "3, PINNED"})
    void aRankThatDoesNotComeToTheStepInMoreCases(int stage, Tier tier) {
        aRankThatDoesNotComeToTheStep(stage, tier);
    }

    /** A store without room, wherever in the step: all ranks know, and the step can be repeated. */
    @ParameterizedTest
    @CsvSource({"2, NVME, DEVICE, DEVICE"})
    void aStoreThatFailsInAStep(int stage, Tier parameters, Tier gradients, Tier state) {
        ZeroOptions o =
                ZeroOptions.stage(stage)
                        .withTypes(DataType.BFLOAT16, DataType.FLOAT32)
                        .withAccumulation(2)
                        .withTiers(parameters, gradients, state);
        float[] one = undisturbed(o, 1);
        float[] three = undisturbed(o, 3);
        AtomicInteger failures = new AtomicInteger();
        Communicator.runLocal(
                2 + 1,
                Demo.IN_RANK_ORDER,
                comm -> {
                    for (int after = 0; after < 40; after++) {
                        try (Demo.Memory memory = new Demo.Memory(Map.of());
                                ZeroOptimizer zero = create(comm, o, memory)) {
                            Demo.initialize(zero, 1);
                            Demo.step(zero, 1, 0, 2, comm.rank(), RATE);
                            if (comm.rank() == 1) {
                                memory.store.writesLeft.set(after);
                            }
                            boolean failed = false;
                            try {
                                Demo.step(zero, 1, 1, 2, comm.rank(), RATE);
                            } catch (JcclException e) {
                                failed = true;
                                failures.incrementAndGet();
                                String m = String.valueOf(e.getMessage());
                                assertTrue(
                                        m.contains(comm.rank() == 1 ? "tier NVME" : "rank 1"), m);
                                assertEquals(1, zero.steps());
                                memory.store.writesLeft.set(Integer.MAX_VALUE);
                                assertArrayEquals(one, Demo.parameters(zero));
                                zero.clearGradients();
                                Demo.step(zero, 1, 1, 2, comm.rank(), RATE);
                            }
                            memory.store.writesLeft.set(Integer.MAX_VALUE);
                            Demo.step(zero, 1, 2, 2, comm.rank(), RATE);
                            assertArrayEquals(three, Demo.parameters(zero), "after " + after);
                            if (!failed) {
                                return; // on every rank alike
                            }
                        }
                    }
                    throw new AssertionError("always fails");
                });
        assertTrue(failures.get() >= 2 * RANKS, "" + failures);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "0, NVME, NVME, NVME",
        "1, NVME, NVME, NVME",
        "2, DEVICE, PINNED, NVME",
        "3, DEVICE, NVME, DEVICE",
        "3, NVME, NVME, NVME",
        "3, NVME, PINNED, PINNED"
    })
    void aStoreThatFailsInAStepInMoreCases(int stage, Tier parameters, Tier gradients, Tier state) {
        aStoreThatFailsInAStep(stage, parameters, gradients, state);
    }

    /** Reduced gradients are still there if only the update failed. */
    @Test
    void theStepAloneCanBeRepeated() {
        ZeroOptions o = ZeroOptions.stage(3).withTiers(Tier.DEVICE, Tier.PINNED, Tier.NVME);
        float[] two = undisturbed(o, 2);
        Communicator.runLocal(
                RANKS,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero = create(comm, o, memory)) {
                        Demo.initialize(zero, 1);
                        Demo.step(zero, 1, 0, 1, comm.rank(), RATE);
                        Demo.microStep(zero, Demo.data(1, 1, 0, comm.rank()));
                        for (int k = 0; k < 3; k++) {
                            if (comm.rank() == k) {
                                memory.store.writesLeft.set(2 * k);
                                memory.store.readsLeft.set(4);
                            }
                            assertThrows(JcclException.class, () -> zero.step(RATE));
                            memory.store.writesLeft.set(Integer.MAX_VALUE);
                            memory.store.readsLeft.set(Integer.MAX_VALUE);
                        }
                        assertTrue(zero.step(RATE).taken());
                        assertArrayEquals(two, Demo.parameters(zero));
                    }
                });
    }

    @Test
    void aLayerThatCannotBeReadCanBeGatheredAgain() {
        ZeroOptions o = ZeroOptions.stage(3).withTiers(Tier.NVME, Tier.PINNED, Tier.PINNED);
        Communicator.runLocal(
                RANKS,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero = create(comm, o, memory)) {
                        Demo.initialize(zero, 1);
                        if (comm.rank() == 1) {
                            memory.store.readsLeft.set(0);
                            assertThrows(JcclException.class, () -> zero.gather(1));
                            memory.store.readsLeft.set(Integer.MAX_VALUE);
                        }
                        assertEquals(
                                (float) Demo.initial(1, "second", "w", 0), zero.gather(1).get(0));
                        zero.release(1);
                    }
                });
    }

    /** One rank's infinity, and all skip the step and lower the scale. */
    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void overflowOnOneRankSkipsTheStepOnAll(int stage) {
        ZeroOptions o = ZeroOptions.stage(stage).withTypes(DataType.FLOAT16, DataType.FLOAT32);
        float[] two = undisturbed(o, 2);
        Communicator.runLocal(
                RANKS,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero =
                                    ZeroOptimizer.create(
                                            comm,
                                            Demo.LAYERS,
                                            Adam.defaults(),
                                            o,
                                            new LossScale(2, 2, 0.5, 1000),
                                            memory.tiers)) {
                        Demo.initialize(zero, 1);
                        for (float bad : new float[] {Float.POSITIVE_INFINITY, Float.NaN}) {
                            for (int i = Demo.LAYERS.size() - 1; i >= 0; i--) {
                                Buffer g = zero.gradients(i);
                                if (i == 1 && comm.rank() == 2) {
                                    g.set(g.count() - 1, bad);
                                }
                                zero.reduce(i);
                            }
                            StepResult r = zero.step(RATE);
                            assertFalse(r.taken());
                            assertEquals(zero.lossScale(), r.lossScale());
                            assertEquals(0, zero.steps());
                        }
                        assertEquals(0.5, zero.lossScale());
                        // With a power of two as the scale, and no numbers too small, the same
                        // bits but for what float16 loses below its normal range.
                        for (int s = 0; s < 2; s++) {
                            assertTrue(Demo.step(zero, 1, s, 1, comm.rank(), RATE).taken());
                        }
                        assertArrayEquals(two, Demo.parameters(zero), 2e-5f);
                    }
                });
    }

    /** Work of one rank's stream fails: no rank takes the step, and all can do it again. */
    @ParameterizedTest
    @ValueSource(ints = {0, 3})
    void anErrorOnAStreamThatWritesGradientsIsOneOfAllRanks(int stage) {
        ZeroOptions o = ZeroOptions.stage(stage).withTypes(DataType.FLOAT32, DataType.FLOAT32);
        float[] one = undisturbed(o, 1);
        Communicator.runLocal(
                RANKS,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            Stream user = comm.device().newStream();
                            Stream other = comm.device().newStream();
                            ZeroOptimizer zero = create(comm, o, memory)) {
                        Demo.initialize(zero, 1);
                        for (int i = Demo.LAYERS.size() - 1; i >= 0; i--) {
                            zero.gradients(i);
                            if (i == 1 && comm.rank() == 2) {
                                user.launchHostFunction(() -> {
                                    throw new IllegalArgumentException("no loss");
                                });
                            }
                            zero.reduce(i, i == 1 ? user : other);
                        }
                        JcclException e = assertThrows(JcclException.class, () -> zero.step(RATE));
                        assertTrue(String.valueOf(e.getMessage()).contains("lost"), e::toString);
                        if (comm.rank() == 2) {
                            assertTrue(String.valueOf(e).contains("no loss"), e::toString);
                            assertThrows(JcclException.class, user::synchronize);
                        }
                        reduce(zero, comm, user, other);
                        zero.clearGradients();
                        assertTrue(Demo.step(zero, 1, 0, 1, comm.rank(), RATE).taken());
                        assertArrayEquals(one, Demo.parameters(zero));
                    }
                });
    }

    /** One micro-step; a stream of rank 2 fails before a layer. */
    private static void reduce(ZeroOptimizer zero, Communicator comm, Stream user, Stream other) {
        for (int i = Demo.LAYERS.size() - 1; i >= 0; i--) {
            zero.gradients(i);
            if (i == 1 && comm.rank() == 2) {
                user.launchHostFunction(() -> {
                    throw new IllegalArgumentException("no loss");
                });
            }
            zero.reduce(i, i == 1 ? user : other);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0, 2})
    void overflowOnOneRankSkipsTheStepOnAllInMoreStages(int stage) {
        overflowOnOneRankSkipsTheStepOnAll(stage);
    }

    /** Memory is not freed while a gather may write to it. */
    @Tag("exhaustive") // an interrupted thread still waits a second
    @Test
    void closingOnAnInterruptedThreadCanBeRepeated() {
        CountDownLatch interrupted = new CountDownLatch(1);
        Communicator.runLocal(
                2,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            Stream user = comm.device().newStream()) {
                        ZeroOptimizer zero = create(comm, ZeroOptions.stage(3), memory);
                        Demo.initialize(zero, 1);
                        if (comm.rank() == 0) {
                            zero.gather(0, user);
                            Thread.currentThread().interrupt();
                            contains(zero::close, "was interrupted");
                            assertTrue(Thread.interrupted());
                            assertTrue(memory.device.stats().blocks() > 0);
                            interrupted.countDown();
                        } else {
                            assertTrue(interrupted.await(20, TimeUnit.SECONDS));
                            zero.gather(0, user);
                        }
                        zero.close();
                        assertEquals(0, memory.device.stats().blocks());
                    }
                });
    }

    /** Faulty calls say what was expected, and change nothing. */
    @Test
    void faultyCalls() {
        ZeroOptions o = ZeroOptions.stage(3).withPrefetch(0);
        try (Communicator comm = Communicator.local(1).getFirst();
                Demo.Memory memory = new Demo.Memory(Map.of())) {
            ZeroOptimizer zero = create(comm, o, memory);
            Demo.initialize(zero, 1);
            contains(() -> zero.step(1), "layer first", "0 micro-steps", "expected 1");
            contains(() -> zero.step(-1), "learning rate is -1");
            contains(() -> zero.reduce(0), "layer first", "not asked for");
            contains(() -> zero.release(0), "layer first", "not held");
            contains(() -> zero.gather(3), "3", "0 to 2");
            zero.gather(0);
            contains(() -> zero.gather(1), "second", "[first]", "prefetch");
            for (int i = 0; i < 3; i++) {
                zero.gradients(i).zero();
                zero.reduce(i);
            }
            contains(() -> zero.gradients(2), "layer gain", "call step");
            contains(() -> zero.step(1), "[first]", "release");
            zero.release(0);
            zero.gather(1);
            zero.release(1);
            assertTrue(zero.step(RATE).taken());
            contains(zero::undoStep, "not kept", "keepPrevious");
            zero.close();
            zero.close();
            contains(() -> zero.gather(0), "closed");
        }
        contains(() -> ZeroOptions.stage(4), "stage is 4", "0 to 3");
        contains(() -> o.withAccumulation(0), "accumulation is 0");
        contains(() -> o.withPrefetch(-1), "prefetch is -1");
        contains(() -> o.withMaxNorm(0), "0.0", "infinity");
        contains(() -> o.withTypes(DataType.INT8, DataType.INT8), "int8");
        contains(() -> o.withTypes(DataType.FLOAT16, DataType.BFLOAT16), "bfloat16", "half");
        contains(() -> new ShardedLayer("x", List.of()), "x", "no tensors");
        contains(() -> ShardedLayer.of("x", 0), "0 elements");
        contains(() -> Demo.LAYERS.getFirst().offset("q"), "no tensor q");
    }

    private static void contains(org.junit.jupiter.api.function.Executable call, String... texts) {
        RuntimeException e = assertThrows(RuntimeException.class, call);
        for (String t : texts) {
            assertTrue(String.valueOf(e.getMessage()).contains(t), e + " lacks " + t);
        }
    }

    @Test
    void ranksThatDisagreeAboutInitialValues() {
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () ->
                                Communicator.runLocal(
                                        2,
                                        comm -> {
                                            try (Demo.Memory memory = new Demo.Memory(Map.of());
                                                    ZeroOptimizer zero =
                                                            create(
                                                                    comm,
                                                                    ZeroOptions.stage(1),
                                                                    memory)) {
                                                Demo.initialize(zero, comm.rank());
                                            }
                                        }));
        assertTrue(String.valueOf(e.getCause()).contains("rank 1 differ"), e + " " + e.getCause());
    }
}
