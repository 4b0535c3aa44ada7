package io.jccl.offload.zero;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
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
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** State that GPUs (fake ones) update: decisions, skipped steps, faults and files. */
@UsesFakes
@Timeout(value = 120, unit = TimeUnit.SECONDS)
class ZeroDeviceTest {
    private static final double RATE = 0.01;
    private static final int STEPS = 5;

    /** The step in which a gradient is infinite. */
    private static final int BAD = 2;

    @TempDir Path folder = Path.of("");

    @BeforeEach
    void useFakes() {
        TestFake.use();
    }

    @AfterEach
    void reset() {
        TestFake.reset();
    }

    private static ZeroOptions onDevice(int stage) {
        return ZeroOptions.stage(stage)
                .withTiers(Tier.DEVICE, Tier.DEVICE, Tier.DEVICE)
                .withMaxNorm(0.5);
    }

    private static ZeroOptimizer create(
            Communicator c, ZeroOptions o, LossScale scale, Demo.Memory memory) {
        return ZeroOptimizer.create(c, Demo.LAYERS, Adam.defaults(), o, scale, memory.tiers);
    }

    private record Outcome(float[] parameters, double scale, double norms) {}

    private static Outcome trainWithInfinity(boolean gpus, ZeroOptions o) throws Exception {
        AtomicReferenceArray<Outcome> results = new AtomicReferenceArray<>(2);
        ZeroCudaTest.onRanks(
                2,
                gpus,
                null,
                (c, memory) -> {
                    LossScale scale = new LossScale(256, 2, 0.5, 2);
                    try (ZeroOptimizer zero = create(c, o, scale, memory)) {
                        Demo.initialize(zero, 3);
                        double norms = 0;
                        for (int s = 0; s < STEPS; s++) {
                            boolean bad = s == BAD;
                            for (int m = 0; m < o.accumulation(); m++) {
                                if (bad) {
                                    spoil(zero, c.rank());
                                } else {
                                    Demo.microStep(zero, Demo.data(3, s, m, c.rank()));
                                }
                            }
                            float[] before = Demo.parameters(zero);
                            StepResult step = zero.step(RATE);
                            assertEquals(!bad, step.taken());
                            if (bad) {
                                assertArrayEquals(before, Demo.parameters(zero));
                            } else {
                                norms += step.gradientNorm();
                            }
                        }
                        assertEquals(STEPS - 1, zero.steps());
                        results.set(
                                c.rank(), new Outcome(Demo.parameters(zero), scale.value(), norms));
                    }
                });
        Outcome first = results.get(0);
        assertArrayEquals(first.parameters, results.get(1).parameters);
        assertEquals(first.norms, results.get(1).norms);
        return first;
    }

    /** Gradients with an infinity on rank 1. */
    private static void spoil(ZeroOptimizer zero, int rank) {
        for (int i = Demo.LAYERS.size() - 1; i >= 0; i--) {
            Buffer g = zero.gradients(i);
            g.set(g.count() - 1, rank == 1 ? Double.POSITIVE_INFINITY : 1);
            zero.reduce(i);
        }
    }

    /** Loss scale, clipping and a skipped step have the host device's results bit for bit. */
    @ParameterizedTest
    @CsvSource({
        "0, FLOAT32, FLOAT32, false",
        "1, BFLOAT16, BFLOAT16, false",
        "2, FLOAT16, FLOAT16, true",
        "3, BFLOAT16, FLOAT32, false"
    })
    void skipsAndScalesAsTheHostDoes(int stage, DataType type, DataType sum, boolean keep)
            throws Exception {
        ZeroOptions o =
                onDevice(stage).withTypes(type, sum).withAccumulation(2).withKeepPrevious(keep);
        Outcome expected = trainWithInfinity(false, o);
        Outcome actual = trainWithInfinity(true, o);
        assertArrayEquals(expected.parameters, actual.parameters);
        assertEquals(expected.scale, actual.scale);
        assertEquals(expected.norms, actual.norms, 1e-12 * expected.norms);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "0, FLOAT16, FLOAT32, true",
        "1, BFLOAT16, FLOAT32, true",
        "2, FLOAT16, FLOAT32, false",
        "3, FLOAT32, FLOAT32, true"
    })
    void skipsAndScalesAsTheHostDoesInMoreCases(
            int stage, DataType type, DataType sum, boolean keep) throws Exception {
        skipsAndScalesAsTheHostDoes(stage, type, sum, keep);
    }

    /** The whole update is enqueued before the gradients that decide about it are there. */
    @Test
    void nothingWaitsForTheDecision() throws Exception {
        ZeroCudaTest.onRanks(
                1,
                true,
                null,
                (c, memory) -> {
                    CountDownLatch gate = new CountDownLatch(1);
                    try (ZeroOptimizer zero = create(c, onDevice(0), Demo.noScale(), memory);
                            Stream user = c.device().newStream()) {
                        Demo.initialize(zero, 3);
                        Demo.step(zero, 3, 0, 1, 0, RATE); // the first launches of all load
                        Demo.microStep(zero, Demo.data(3, 1, 0, 0));
                        long first = TestFake.calls("cuLaunchKernel");
                        assertTrue(zero.step(RATE).taken());
                        long all = TestFake.calls("cuLaunchKernel") - first;
                        assertTrue(all > 2L * Demo.LAYERS.size(), "norm and update: " + all);
                        for (int i = Demo.LAYERS.size() - 1; i >= 0; i--) {
                            zero.gradients(i);
                        }
                        user.launchHostFunction(() -> await(gate));
                        for (int i = Demo.LAYERS.size() - 1; i >= 0; i--) {
                            zero.reduce(i, user);
                        }
                        long before = TestFake.calls("cuLaunchKernel");
                        AtomicInteger seen = new AtomicInteger();
                        Thread watch =
                                Thread.ofPlatform()
                                        .start(() -> {
                                            seen.set(launches(before, all));
                                            gate.countDown();
                                        });
                        assertTrue(zero.step(RATE).taken());
                        assertTrue(watch.join(Duration.ofSeconds(30)));
                        assertEquals(all, seen.get(), "launched behind the closed gate");
                    } finally {
                        gate.countDown();
                    }
                });
    }

    private static void await(CountDownLatch gate) {
        try {
            assertTrue(gate.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Launches since a count, once there are so many or none came for long. */
    private static int launches(long before, long expected) {
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        long now = 0;
        while (now < expected && System.nanoTime() < deadline) {
            Thread.onSpinWait();
            now = TestFake.calls("cuLaunchKernel") - before;
        }
        return (int) now;
    }

    /**
     * A kernel that cannot be launched, wherever in a step on one rank: with a copy of the state
     * before the step, the step can be repeated; without, the state is either untouched or refused.
     */
    @ParameterizedTest
    @CsvSource({"3, false"})
    void launchesThatFail(int stage, boolean keep) throws Exception {
        ZeroOptions o = onDevice(stage).withKeepPrevious(keep);
        AtomicReferenceArray<float[]> expected = new AtomicReferenceArray<>(2);
        ZeroCudaTest.onRanks(
                2, true, null, (c, memory) -> expected.set(c.rank(), twoSteps(c, o, memory, 0)));
        AtomicInteger repeated = new AtomicInteger();
        AtomicInteger refused = new AtomicInteger();
        for (int which = 2; which <= 11; which += 3) {
            int failing = which;
            ZeroCudaTest.onRanks(
                    2,
                    true,
                    null,
                    (c, memory) -> {
                        try {
                            float[] actual = twoSteps(c, o, memory, failing);
                            assertArrayEquals(expected.get(0), actual, "launch " + failing);
                            repeated.incrementAndGet();
                        } catch (JcclException e) {
                            String message = String.valueOf(e.getMessage());
                            assertFalse(keep, message);
                            assertTrue(message.contains("keepPrevious"), message);
                            refused.incrementAndGet();
                        }
                    });
            TestFake.reset();
        }
        System.out.println(
                "launchesThatFail stage " + stage + ": " + repeated + " ended, " + refused);
        assertTrue(repeated.get() > 0);
        assertEquals(keep, refused.get() == 0);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, true", "0, true", "2, true", "3, true", "0, false", "2, false"})
    void launchesThatFailInMoreCases(int stage, boolean keep) throws Exception {
        launchesThatFail(stage, keep);
    }

    /** The vote of a rank gets through if a copy of it fails once, on its way out or back. */
    @ParameterizedTest
    @CsvSource({"2", "3"})
    void aVoteThatCannotBeCopiedOnce(int which) throws Exception {
        ZeroCudaTest.onRanks(
                1,
                true,
                null,
                (c, memory) -> {
                    try (ZeroOptimizer zero = create(c, onDevice(0), Demo.noScale(), memory)) {
                        Demo.initialize(zero, 9);
                        Demo.microStep(zero, Demo.data(9, 0, 0, c.rank()));
                        // The first copy is that of the decision.
                        TestFake.inject("cudaMemcpyAsync:" + which + ":error=1");
                        assertTrue(zero.step(RATE).taken());
                        assertEquals(1, zero.steps());
                    }
                });
    }

    /** Two steps; in the second a launch fails on rank 1. */
    private static float[] twoSteps(
            Communicator c, ZeroOptions o, Demo.Memory memory, int failing) {
        try (ZeroOptimizer zero = create(c, o, Demo.noScale(), memory)) {
            Demo.initialize(zero, 9);
            Demo.microStep(zero, Demo.data(9, 0, 0, c.rank()));
            assertTrue(zero.step(RATE).taken());
            Demo.microStep(zero, Demo.data(9, 1, 0, c.rank()));
            if (failing > 0 && c.rank() == 1) {
                TestFake.inject("cuLaunchKernel@1:" + failing + ":error=1");
            }
            if (failing > 0) {
                JcclException e = assertThrows(JcclException.class, () -> zero.step(RATE));
                if (String.valueOf(e.getMessage()).contains("keepPrevious would")) {
                    IllegalStateException gone =
                            assertThrows(IllegalStateException.class, () -> zero.gather(0));
                    assertTrue(String.valueOf(gone.getMessage()).contains("no state"));
                    throw e;
                }
                assertEquals(1, zero.steps());
            }
            assertTrue(zero.step(RATE).taken());
            return Demo.parameters(zero);
        }
    }

    /** What a GPU updated is saved, and continued by the CPU, and the other way round. */
    @Test
    void filesMoveBetweenDeviceAndHost() throws Exception {
        AtomicReferenceArray<float[]> results = new AtomicReferenceArray<>(2);
        for (int part = 0; part < 4; part++) {
            boolean gpus = part % 2 == 0;
            int begin = part;
            ZeroCudaTest.onRanks(
                    2,
                    gpus,
                    null,
                    (c, memory) -> {
                        ZeroOptions o = onDevice(begin);
                        try (ZeroOptimizer zero = create(c, o, Demo.noScale(), memory)) {
                            if (begin == 0) {
                                Demo.initialize(zero, 5);
                            } else {
                                assertEquals(begin, zero.load(folder));
                            }
                            Demo.step(zero, 5, begin, 1, c.rank(), RATE);
                            zero.save(folder);
                            results.set(c.rank(), Demo.parameters(zero));
                        }
                    });
        }
        ZeroCudaTest.onRanks(
                2,
                false,
                null,
                (c, memory) -> {
                    try (ZeroOptimizer zero = create(c, onDevice(1), Demo.noScale(), memory)) {
                        Demo.initialize(zero, 5);
                        for (int s = 0; s < 4; s++) {
                            Demo.step(zero, 5, s, 1, c.rank(), RATE);
                        }
                        assertArrayEquals(Demo.parameters(zero), results.get(c.rank()));
                    }
                });
    }

    /** The state of before the last step that was taken, even behind one that was skipped. */
    @ParameterizedTest
    @CsvSource({"1", "3"})
    void undoesTheLastStep(int stage) throws Exception {
        ZeroOptions o = onDevice(stage).withKeepPrevious(true);
        ZeroCudaTest.onRanks(
                2,
                true,
                null,
                (c, memory) -> {
                    try (ZeroOptimizer zero = create(c, o, Demo.noScale(), memory)) {
                        Demo.initialize(zero, 5);
                        Demo.step(zero, 5, 0, 1, c.rank(), RATE);
                        float[] one = Demo.parameters(zero);
                        Demo.step(zero, 5, 1, 1, c.rank(), RATE);
                        float[] two = Demo.parameters(zero);
                        spoil(zero, c.rank());
                        assertFalse(zero.step(RATE).taken());
                        zero.undoStep();
                        assertEquals(1, zero.steps());
                        zero.refresh();
                        assertArrayEquals(one, Demo.parameters(zero));
                        Demo.step(zero, 5, 1, 1, c.rank(), RATE);
                        assertArrayEquals(two, Demo.parameters(zero));
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"0", "2"})
    void undoesTheLastStepInMoreStages(int stage) throws Exception {
        undoesTheLastStep(stage);
    }

    /**
     * The CPU updates, a copy of the new parameters to a GPU fails, and no copy of the state is
     * kept: the step must not be repeated, since its gradients would be applied twice.
     */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"0, 1", "3, 1", "0, 2", "3, 2"})
    void withoutACopyAFailedUpdateIsNotRepeated(int stage, int ranks) throws Exception {
        ZeroOptions o = ZeroOptions.stage(stage).withTiers(Tier.DEVICE, Tier.PINNED, Tier.PINNED);
        float[] expected = ZeroCudaTest.train(ranks, false, false, null, o);
        AtomicInteger refused = new AtomicInteger();
        for (int which = 1; which <= 16; which++) {
            String rule = "cudaMemcpyAsync:" + which + ":error=1";
            ZeroCudaTest.onRanks(
                    ranks,
                    true,
                    null,
                    (c, memory) -> {
                        try (ZeroOptimizer zero = ZeroCudaTest.create(c, o, memory)) {
                            Demo.initialize(zero, 17);
                            Demo.microStep(zero, Demo.data(17, 0, 0, c.rank()));
                            if (c.rank() == ranks - 1) {
                                TestFake.inject(rule);
                            }
                            try {
                                zero.step(RATE);
                                return;
                            } catch (JcclException e) {
                                if (String.valueOf(e.getMessage()).contains("mixture now: load")) {
                                    refused.incrementAndGet();
                                } else {
                                    throw e;
                                }
                            }
                            assertThrows(IllegalStateException.class, () -> zero.step(RATE));
                            Demo.initialize(zero, 17);
                            for (int s = 0; s < 3; s++) {
                                Demo.step(zero, 17, s, 1, c.rank(), RATE);
                            }
                            assertArrayEquals(expected, Demo.parameters(zero));
                        } catch (JcclException e) {
                            // Another copy failed, such as one of the gradients.
                            c.abort(rule + ": " + e.getMessage());
                        }
                    });
            TestFake.reset();
        }
        assertTrue(refused.get() > 0, "no update failed");
    }
}
