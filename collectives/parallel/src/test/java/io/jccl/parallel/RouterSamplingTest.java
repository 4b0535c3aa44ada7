package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.internal.SplitMix;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import io.jccl.testkit.Messages;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Experts that are sampled, the least capacity of an expert, and noise without garbage. */
@UsesFakes
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class RouterSamplingTest {
    private static final int EXPERTS = 6;
    private static final int TOKENS = 30_000;
    private static final long SEED = 11;

    /** A place beyond what an int holds. */
    private static final long PLACE = 5_000_000_000L;

    private static RouterOptions sampled(int count, int tokens) {
        RouterOptions plain =
                count == 1
                        ? RouterOptions.top1(EXPERTS, tokens)
                        : RouterOptions.top2(EXPERTS, tokens);
        return plain.withOverflow(Overflow.NONE).withSampling(SEED);
    }

    private static Buffer same(int tokens, float... row) {
        Buffer b = Device.host().allocate(DataType.FLOAT32, (long) tokens * row.length);
        for (int i = 0; i < b.count(); i++) {
            b.set(i, row[i % row.length]);
        }
        return b;
    }

    private static Buffer random(int tokens, long seed) {
        Random random = new Random(seed);
        Buffer b = Device.host().allocate(DataType.FLOAT32, (long) tokens * EXPERTS);
        for (int i = 0; i < b.count(); i++) {
            b.set(i, random.nextGaussian());
        }
        return b;
    }

    /** The experts of all tokens, a token's in ascending order. */
    private static int[] experts(ExpertRouter router, int tokens) {
        Assignments all = router.table();
        return Arrays.stream(all.byToken, 0, all.tokenStart[tokens])
                .map(i -> all.expert[i])
                .toArray();
    }

    /** Over tokens with the same logits, each within six deviations; weights have no noise. */
    @Test
    void anExpertIsDrawnWithTheProbabilityOfItsGate() {
        float never = Float.NEGATIVE_INFINITY;
        ExpertRouter router = ExpertRouter.create(sampled(1, TOKENS));
        try (Buffer x = same(TOKENS, 0.5f, -1, 2, never, 0, 1)) {
            router.route(x, TOKENS, PLACE);
            for (int e = 0; e < EXPERTS; e++) {
                double p = router.gate(0, e);
                double deviation = Math.sqrt(TOKENS * p * (1 - p));
                assertEquals(TOKENS * p, router.count(e), 6 * deviation, "expert " + e);
                assertEquals(router.count(e), router.firstChoices(e));
            }
            assertEquals(0, router.count(3));
            for (int i = 0; i < router.assignments(); i++) {
                assertEquals(router.gate(router.token(i), router.expert(i)), router.weight(i));
            }
            // The choice of a token says nothing about the next one's.
            int[] chosen = experts(router, TOKENS);
            int both = 0;
            for (int t = 1; t < TOKENS; t++) {
                both += chosen[t - 1] == 2 && chosen[t] == 2 ? 1 : 0;
            }
            double p = Math.pow(router.gate(0, 2), 2);
            assertEquals(TOKENS * p, both, 10 * Math.sqrt(TOKENS * p * (1 - p)));
        }
    }

    /** The first of two is that of the largest gate, the second one of the others. */
    @Test
    void theSecondExpertIsDrawnAmongTheOthers() {
        ExpertRouter router = ExpertRouter.create(sampled(2, TOKENS));
        try (Buffer x = same(TOKENS, 0.5f, -1, 2, 0.2f, 0, 1)) {
            router.route(x, TOKENS, PLACE);
            assertEquals(TOKENS, router.count(2));
            assertEquals(TOKENS, router.firstChoices(2));
            double first = router.gate(0, 2);
            for (int e = 0; e < EXPERTS; e++) {
                if (e != 2) {
                    double p = router.gate(0, e) / (1 - first);
                    double deviation = Math.sqrt(TOKENS * p * (1 - p));
                    assertEquals(TOKENS * p, router.count(e), 6 * deviation, "expert " + e);
                    int any = router.start(e);
                    float second = router.gate(0, e);
                    assertEquals(second / (first + second), router.weight(any), 1e-6);
                }
            }
            assertEquals(0, router.unsampled());
        }
        // With one expert that is not ruled out there is nothing to draw.
        float never = Float.NEGATIVE_INFINITY;
        try (Buffer x = same(10, never, never, 1, never, never, never)) {
            router.route(x, 10, PLACE);
            assertEquals(10, router.count(2));
            assertEquals(10, router.assignments());
            assertEquals(10, router.unsampled());
        }
    }

    /**
     * Drawn by Gumbel noise on logits, as the definition has it, from the numbers of the places.
     */
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void isTheLargestLogitWithGumbelNoise(int count) {
        int tokens = 2000;
        ExpertRouter router = ExpertRouter.create(sampled(count, tokens));
        long stream = SEED + SplitMix.mix(4);
        try (Buffer x = random(tokens, 1)) {
            router.route(x, tokens, PLACE);
            int[] chosen = experts(router, tokens);
            for (int t = 0; t < tokens; t++) {
                int first = 0;
                for (int e = 1; e < EXPERTS; e++) {
                    first = router.gate(t, e) > router.gate(t, first) ? e : first;
                }
                int drawn = -1;
                double most = Double.NEGATIVE_INFINITY;
                for (int e = 0; e < EXPERTS; e++) {
                    double y = SplitMix.exponential(stream, (PLACE + t) * EXPERTS + e);
                    double noisy = x.get((long) t * EXPERTS + e) - Math.log(y);
                    if (noisy > most && (count == 1 || e != first)) {
                        most = noisy;
                        drawn = e;
                    }
                }
                int[] expected =
                        count == 1
                                ? new int[] {drawn}
                                : new int[] {Math.min(first, drawn), Math.max(first, drawn)};
                assertArrayEquals(
                        expected,
                        Arrays.copyOfRange(chosen, t * count, (t + 1) * count),
                        "token " + t);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void dependsOnSeedAndPlaceAlone(int count) {
        int tokens = 400;
        ExpertRouter router = ExpertRouter.create(sampled(count, tokens));
        ExpertRouter other = ExpertRouter.create(sampled(count, tokens).withSampling(SEED + 1));
        try (Buffer x = random(tokens, 2)) {
            router.route(x, tokens, PLACE);
            int[] whole = experts(router, tokens);
            for (int from = 0; from < tokens; from += 100) {
                router.route(x.slice((long) from * EXPERTS, 100L * EXPERTS), 100, PLACE + from);
                assertArrayEquals(
                        Arrays.copyOfRange(whole, from * count, (from + 100) * count),
                        experts(router, 100));
            }
            router.route(x, tokens, PLACE + 1);
            assertFalse(Arrays.equals(whole, experts(router, tokens)), "places");
            other.route(x, tokens, PLACE);
            assertFalse(Arrays.equals(whole, experts(other, tokens)), "seeds");
        }
    }

    /** As in evaluation. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void withoutAPlaceTheLargestGateDecides(int count) {
        int tokens = 400;
        ExpertRouter router = ExpertRouter.create(sampled(count, tokens));
        RouterOptions plain =
                count == 1
                        ? RouterOptions.top1(EXPERTS, tokens)
                        : RouterOptions.top2(EXPERTS, tokens);
        ExpertRouter largest = ExpertRouter.create(plain.withOverflow(Overflow.NONE));
        try (Buffer x = random(tokens, 3)) {
            largest.route(x, tokens);
            int[] expected = experts(largest, tokens);
            router.route(x, tokens, PLACE);
            assertFalse(Arrays.equals(expected, experts(router, tokens)), "nothing is drawn");
            router.route(x, tokens);
            assertArrayEquals(expected, experts(router, tokens));
            assertEquals(largest.balanceLoss(), router.balanceLoss());
        }
    }

    /** The loss counts what was drawn, and its gradient too. */
    @Test
    void theBalanceLossCountsWhatWasDrawn() {
        int tokens = 500;
        ExpertRouter router = ExpertRouter.create(sampled(1, tokens));
        try (Buffer x = random(tokens, 4);
                Buffer gradient = random(tokens, 5)) {
            router.route(x, tokens, PLACE);
            double expected = 0;
            double[] mean = new double[EXPERTS];
            for (int t = 0; t < tokens; t++) {
                for (int e = 0; e < EXPERTS; e++) {
                    mean[e] += (double) router.gate(t, e) / tokens;
                }
            }
            for (int e = 0; e < EXPERTS; e++) {
                expected += EXPERTS * mean[e] * router.count(e) / tokens;
            }
            assertEquals(expected, router.balanceLoss(), 1e-6);
            router.backward(gradient, 1, 0);
            for (int t = 0; t < tokens; t += 50) {
                double dot = 0;
                for (int e = 0; e < EXPERTS; e++) {
                    dot += (double) router.gate(t, e) * router.count(e);
                }
                for (int e = 0; e < EXPERTS; e++) {
                    double scale = EXPERTS / ((double) tokens * tokens);
                    double want = scale * router.gate(t, e) * (router.count(e) - dot);
                    assertEquals(want, gradient.get((long) t * EXPERTS + e), 1e-8);
                }
            }
        }
    }

    /** The router of a GPU's tokens runs on the host, so fake GPUs draw what the host draws. */
    @Test
    void gpusDrawTheSame() {
        TestFake.use();
        int tokens = 200;
        ExpertRouter router = ExpertRouter.create(sampled(1, tokens));
        Communicator.runLocal(
                List.of(TestFake.device(0)),
                CommunicatorOptions.DEFAULT,
                c -> {
                    ExpertOptions options = ExpertOptions.of(sampled(1, tokens), 4);
                    try (Buffer x = random(tokens, 6);
                            Buffer there = c.device().allocate(DataType.FLOAT32, x.count());
                            ExpertDispatch layer = ExpertDispatch.create(c, options)) {
                        there.copyFrom(x.asSegment());
                        layer.route(there, tokens, PLACE);
                        router.route(x, tokens, PLACE);
                        assertArrayEquals(experts(router, tokens), experts(layer.router(), tokens));
                    }
                });
    }

    @Test
    void capacityIsNoLessThanTheLeast() {
        RouterOptions plain = RouterOptions.top1(64, 4096);
        RouterOptions least = plain.withMinCapacity(4);
        assertEquals(1, plain.minCapacity());
        assertEquals(1, plain.capacity(8));
        assertEquals(4, least.capacity(8));
        assertEquals(3, least.capacity(3), "all tokens");
        assertEquals(0, least.capacity(0));
        assertEquals(80, least.capacity(4096));
        assertEquals(4, least.withCapacityFactor(-1e-9).capacity(4096));
        assertEquals(4096, least.withCapacityFactor(0).capacity(4096));
        assertEquals(4096, least.withOverflow(Overflow.NONE).capacity(4096));
        assertEquals(4, RouterOptions.expertChoice(64, 8).withMinCapacity(4).capacity(8));
        assertEquals(64 * 4, plain.withCapacityFactor(1e-9).withMinCapacity(4).maxAssignments());
        assertEquals(4, least.withBatchPriority(true).withCapacityFactor(2).minCapacity());
        for (RouterOptions o : List.of(plain, least)) {
            ExpertRouter router = ExpertRouter.create(o);
            try (Buffer x = Device.host().allocate(DataType.FLOAT32, 8 * 64)) {
                router.route(x, 8);
                assertEquals(o.minCapacity(), router.count(0), "equal gates: the first expert");
            }
        }
    }

    @Test
    void faultsAreNamed() {
        OptionalLong one = OptionalLong.of(1);
        Map<String, Executable> faults =
                Map.of(
                        "chooses 3 experts, expected 1 or 2",
                        () -> new TokenChoice(3, true, OptionalLong.empty(), one),
                        "both sampled and used by chance",
                        () -> RouterOptions.gshard(4, 8, 1).withSampling(1),
                        "experts choose tokens",
                        () -> RouterOptions.expertChoice(4, 8).withSampling(1),
                        "minCapacity is 0, expected 1",
                        () -> RouterOptions.top1(4, 8).withMinCapacity(0));
        faults.forEach((words, fault) -> {
            String m = Messages.of(IllegalArgumentException.class, fault);
            assertTrue(m.contains(words), m);
        });
    }

    /** All noise there is, in both directions. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void noiseAllocatesNothing(int count) {
        int tokens = 64;
        int features = 16;
        RouterNoise noise = new RouterNoise(SEED, 0.1, 0.1, 0.5);
        AllocationRounds rounds = new AllocationRounds(2);
        Communicator.runLocal(
                2,
                c -> {
                    ExpertOptions options = ExpertOptions.of(sampled(count, tokens), features);
                    try (ExpertDispatch layer = ExpertDispatch.create(c, options);
                            Buffer logits = random(tokens, c.rank());
                            Buffer gradients = random(tokens, 7);
                            Buffer x = same(tokens, new float[features]);
                            Buffer y = same(tokens, new float[features])) {
                        long[] place = {(long) c.rank() * tokens};
                        rounds.repeat(
                                c.rank(),
                                50,
                                () -> {
                                    noise.scale(x, features, place[0], y);
                                    noise.add(logits, EXPERTS, place[0]);
                                    layer.route(logits, tokens, place[0]);
                                    layer.dispatch(x);
                                    layer.combine(y);
                                    layer.combineBackward(y);
                                    layer.dispatchBackward(y);
                                    layer.routeBackward(gradients, 0.01, 0.001);
                                    noise.scale(y, features, place[0], y);
                                    place[0] += 2L * tokens;
                                });
                    }
                });
        rounds.assertNone();
    }
}
