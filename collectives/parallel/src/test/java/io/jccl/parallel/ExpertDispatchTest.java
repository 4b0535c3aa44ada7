package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import io.jccl.testkit.Messages;
import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@UsesFakes
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class ExpertDispatchTest {
    private static final Duration PATIENCE = Duration.ofSeconds(150);

    private final long seed = Long.getLong("jccl.seed", System.nanoTime());

    @TempDir Path folder = Path.of("");

    private void seeded(String what, int ranks) {
        System.out.println(
                "ExpertDispatchTest." + what + ": " + ranks + " ranks, -Djccl.seed=" + seed);
    }

    @ParameterizedTest
    @ValueSource(ints = 2)
    void threads(int ranks) {
        threads(ranks, 2);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4})
    void moreThreads(int ranks) {
        threads(ranks, 6);
    }

    private void threads(int ranks, int rounds) {
        seeded("threads", ranks);
        Communicator.runLocal(ranks, c -> ExpertBodies.layers(c, seed, rounds));
    }

    /** Two processes, and MPI, are also in {@link ParallelEnginesTest}, with all else. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2, 4})
    void processes(int ranks) {
        seeded("processes", ranks);
        String job = Workers.newJobId();
        try (Workers workers = new Workers(ranks, job, List.of(), Map.of())) {
            workers.startAll(ParallelWorker.class, "experts", Long.toString(seed), "100", "host");
            for (Worker worker : workers.all()) {
                worker.await("OK", PATIENCE);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"OPEN_MPI, 2"})
    void mpi(MpiLauncher launcher, int ranks) throws IOException {
        launcher.assume();
        seeded(launcher.name(), ranks);
        String out = folder.resolve("out").toString();
        Worker job =
                launcher.start(
                        ranks,
                        List.of(),
                        ParallelWorker.class,
                        "experts",
                        Long.toString(seed),
                        "100",
                        "mpi",
                        out);
        int exit;
        try {
            exit = job.join(PATIENCE);
        } finally {
            job.kill();
        }
        for (int rank = 0; rank < ranks; rank++) {
            List<String> lines = Files.readAllLines(Path.of(out + "." + rank));
            assertTrue(
                    lines.contains("OK") && lines.getLast().equals("CLOSED"),
                    () -> lines + "\n" + job.lines());
        }
        assertEquals(0, exit, () -> String.join("\n", job.lines()));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"MPICH, 3"})
    void otherMpi(MpiLauncher launcher, int ranks) throws IOException {
        mpi(launcher, ranks);
    }

    /** Several thousand rows of 2 KiB, each way. */
    @Tag("exhaustive")
    @Test
    void largeLayers() {
        seeded("largeLayers", 2);
        Communicator.runLocal(
                2,
                c -> {
                    ExpertBodies.largeLayer(
                            c, seed, RouterOptions.top2(16, 3000).withBatchPriority(true));
                    ExpertBodies.largeLayer(c, seed, RouterOptions.expertChoice(8, 2000));
                });
    }

    @Test
    void ordersLikeAComparisonSort() {
        seeded("order", 1);
        Random random = new Random(seed);
        DescendingOrder order = new DescendingOrder(5000);
        for (int n : new int[] {0, 1, 2, 100, 5000}) {
            float[] numbers = new float[n];
            order.begin();
            for (int i = 0; i < n; i++) {
                numbers[i] =
                        switch (random.nextInt(6)) {
                            case 0 -> 0;
                            case 1 -> 1;
                            case 2 -> Float.MIN_VALUE * random.nextInt(5);
                            case 3 -> random.nextInt(10) / 10f;
                            default -> random.nextFloat();
                        };
                order.add(numbers[i]);
            }
            order.sort();
            List<Integer> expected =
                    IntStream.range(0, n)
                            .boxed()
                            .sorted(Comparator.comparingDouble(i -> -(double) numbers[i]))
                            .toList();
            assertEquals(expected, IntStream.range(0, n).map(order::get).boxed().toList());
        }
    }

    /** The example of the documentation: a token goes round experts that its logits rule out. */
    @Test
    void minusInfinityRulesExpertsOut() {
        ExpertRouter router = ExpertRouter.create(RouterOptions.top2(3, 2));
        float never = Float.NEGATIVE_INFINITY;
        try (Buffer x = Device.host().allocate(DataType.FLOAT32, 6)) {
            x.copyFrom(new float[] {never, 1, 2, 3, never, 1});
            router.route(x, 2);
            assertEquals(0, router.gate(0, 0));
            assertEquals(
                    List.of(1, 1, 2), List.of(router.count(0), router.count(1), router.count(2)));
            router.backward(x, 0.01, 0.001);
            for (int i = 0; i < 6; i++) {
                assertTrue(Double.isFinite(x.get(i)), "gradient " + i);
            }
        }
    }

    /** Slots are for tokens with a gate, by first or second choice or rerouted. */
    @ParameterizedTest
    @EnumSource
    void excludedExpertsGiveNoSlot(Overflow overflow) {
        RouterOptions options = RouterOptions.top2(4, 2).withCapacityFactor(1);
        float never = Float.NEGATIVE_INFINITY;
        // One slot of each expert. Token 0 has expert 0 alone, by its logits or by gates that round
        // to 0; expert 1 is the next in order, and token 1's second choice.
        float[][] cases = {
            {1, never, never, never, never, 1, 2, never},
            {200, 1, 2, 3, never, 1, 2, never}
        };
        for (float[] logits : cases) {
            ExpertRouter router = ExpertRouter.create(options.withOverflow(overflow));
            try (Buffer x = Device.host().allocate(DataType.FLOAT32, 8)) {
                x.copyFrom(logits);
                router.route(x, 2);
                assertEquals(List.of(1, 1, 1, 0), counts(router));
                assertEquals(1, router.token(1));
                assertEquals(1, router.unsampled());
                // Both want expert 0 and nothing else.
                x.copyFrom(new float[] {1, never, never, never, 2, never, never, never});
                router.route(x, 2);
                boolean all = overflow == Overflow.NONE;
                assertEquals(List.of(all ? 2 : 1, 0, 0, 0), counts(router));
                assertEquals(all ? 0 : 1, router.droppedTokens());
                router.backward(x, 0.01, 0.001);
                for (int i = 0; i < 8; i++) {
                    assertTrue(Double.isFinite(x.get(i)), "gradient " + i);
                }
            }
        }
    }

    private static List<Integer> counts(ExpertRouter router) {
        return IntStream.range(0, router.options().experts()).mapToObj(router::count).toList();
    }

    @Test
    void faultyOptionsAreNamed() {
        RouterOptions top1 = RouterOptions.top1(4, 8);
        Map<String, Executable> faults =
                Map.ofEntries(
                        Map.entry("0 experts", () -> RouterOptions.top1(0, 8)),
                        Map.entry("at most 0 tokens", () -> RouterOptions.top1(4, 0)),
                        Map.entry(
                                "capacityFactor is 0.0, but with ExpertChoice",
                                () -> RouterOptions.expertChoice(4, 8).withCapacityFactor(0)),
                        Map.entry(
                                "capacityFactor is -Infinity",
                                () -> top1.withCapacityFactor(Double.NEGATIVE_INFINITY)),
                        Map.entry(
                                "with a capacityFactor of -1.5",
                                () ->
                                        ExpertOptions.of(top1.withCapacityFactor(-1.5), 8)
                                                .withFixedBlocks(true)),
                        Map.entry(
                                "capacityFactor is NaN", () -> top1.withCapacityFactor(Double.NaN)),
                        Map.entry("chooses 2 of 1 experts", () -> RouterOptions.top2(1, 8)),
                        Map.entry("chooses 0 experts", () -> new TokenChoice(0, false)),
                        Map.entry("always 1", () -> new TokenChoice(1, true)),
                        Map.entry(
                                "chooses 3 experts and normalised is true, expected 2",
                                () -> new TokenChoice(3, true, OptionalLong.of(1))),
                        Map.entry(
                                "batchPriority is set",
                                () -> top1.withOverflow(Overflow.NONE).withBatchPriority(true)),
                        Map.entry(
                                "overflow is NEXT_BEST",
                                () ->
                                        RouterOptions.expertChoice(4, 8)
                                                .withOverflow(Overflow.NEXT_BEST)),
                        Map.entry("2^31", () -> RouterOptions.top1(1 << 16, 1 << 16)),
                        Map.entry("0 features", () -> ExpertOptions.of(top1, 0)),
                        Map.entry(
                                "type half",
                                () -> ExpertOptions.of(top1, 8).withType(DataType.FLOAT16)),
                        Map.entry("maxRows is -1", () -> ExpertOptions.of(top1, 8).withMaxRows(-1)),
                        Map.entry(
                                "maxRows is 9",
                                () ->
                                        ExpertOptions.of(top1, 8)
                                                .withMaxRows(9)
                                                .withFixedBlocks(true)),
                        Map.entry(
                                "fixedBlocks is set",
                                () ->
                                        ExpertOptions.of(top1.withOverflow(Overflow.NONE), 8)
                                                .withFixedBlocks(true)));
        faults.forEach((words, fault) -> {
            String m = Messages.of(IllegalArgumentException.class, fault);
            assertTrue(m.contains(words), m);
        });
    }

    @Test
    void ranksThatDisagreeOrDoNotDivideTheExpertsAreToldSo() {
        Communicator.runLocal(
                2,
                c -> {
                    String odd =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () ->
                                            ExpertDispatch.create(
                                                    c,
                                                    ExpertOptions.of(RouterOptions.top1(3, 8), 4)));
                    assertTrue(odd.contains("3 experts") && odd.contains("2 ranks"), odd);
                    // Also if only one of them could divide the experts.
                    ExpertOptions some = ExpertOptions.of(RouterOptions.top1(4 - c.rank(), 8), 4);
                    assertThrows(
                            CollectiveMismatchException.class,
                            () -> ExpertDispatch.create(c, some));
                    ExpertOptions own = ExpertOptions.of(RouterOptions.top1(4, 8 + c.rank()), 4);
                    String m =
                            Messages.of(
                                    CollectiveMismatchException.class,
                                    () -> ExpertDispatch.create(c, own));
                    assertTrue(m.contains("maxTokens=8") && m.contains("maxTokens=9"), m);
                });
    }

    /** One rank's fault is an error of all, and the next step works. */
    @Test
    void aFaultyStepEndsOnAllRanksAlike() {
        Communicator.runLocal(
                3,
                c -> {
                    RouterOptions router = RouterOptions.top1(6, 8).withOverflow(Overflow.NONE);
                    ExpertOptions options = ExpertOptions.of(router, 2).withMaxRows(10);
                    try (ExpertDispatch layer = ExpertDispatch.create(c, options);
                            Buffer logits = floats(48, new Random(c.rank()));
                            Buffer x = floats(16, new Random(c.rank()))) {
                        for (double bad : new double[] {Double.NaN, Double.POSITIVE_INFINITY}) {
                            double before = logits.get(3 * 6 + 4);
                            if (c.rank() == 1) {
                                logits.set(3 * 6 + 4, bad);
                            }
                            String m =
                                    Messages.of(
                                            IllegalArgumentException.class,
                                            () -> layer.route(logits, 8));
                            assertTrue(
                                    m.contains("rank 1") && m.contains("token 3 for expert 4"), m);
                            logits.set(3 * 6 + 4, before);
                        }
                        // All to expert 2, on rank 1: 24 tokens where 10 have room.
                        try (Buffer skewed = floats(48, new Random(1))) {
                            for (int t = 0; t < 8; t++) {
                                skewed.set(t * 6 + 2, 100);
                            }
                            String m =
                                    Messages.of(
                                            IllegalStateException.class,
                                            () -> layer.route(skewed, 8));
                            assertTrue(m.contains("rank 1") && m.contains("24 tokens"), m);
                        }
                        assertThrows(IllegalStateException.class, () -> layer.dispatch(x));
                        layer.route(logits, 3);
                        layer.dispatch(x);
                        pass(c, layer, layer.inputs(), layer.outputs());
                        layer.combine(x);
                        assertEquals(9, layer.statistics().tokens());
                        assertEquals(0, layer.statistics().droppedShare());
                    }
                });
    }

    @Test
    void callsOutOfOrderAndWrongBuffersAreRefused() {
        Communicator.runLocal(
                1,
                c -> {
                    ExpertOptions options =
                            ExpertOptions.of(RouterOptions.top1(2, 4), 3).withBackward(false);
                    ExpertDispatch layer = ExpertDispatch.create(c, options);
                    try (Buffer logits = floats(8, new Random(1));
                            Buffer x = floats(12, new Random(1));
                            Buffer few = floats(11, new Random(1));
                            Buffer narrow = c.device().allocate(DataType.BFLOAT16, 12)) {
                        refused("next one of the step is route", () -> layer.combine(x));
                        wrong("5 tokens", () -> layer.route(logits, 5));
                        wrong("-1 tokens", () -> layer.route(logits, -1));
                        wrong("7 elements", () -> layer.route(logits.slice(0, 7), 4));
                        wrong("bfloat16", () -> layer.route(narrow, 4));
                        layer.route(logits, 4);
                        refused("is dispatch", () -> layer.combine(x));
                        wrong("11 elements", () -> layer.dispatch(few));
                        wrong("bfloat16", () -> layer.dispatch(narrow));
                        layer.dispatch(x);
                        wrong("11 elements", () -> layer.combine(few));
                        layer.combine(x);
                        refused("withBackward(true)", () -> layer.combineBackward(x));
                        refused("withBackward(true)", layer::inputGradients);
                        refused("is combineBackward", () -> layer.routeBackward(logits, 0, 0));
                        refused("withFixedBlocks", layer::blockRows);
                        layer.close();
                        refused("closed", () -> layer.route(logits, 4));
                        layer.close();
                    }
                });
    }

    private static void refused(String words, Executable call) {
        String m = Messages.of(IllegalStateException.class, call);
        assertTrue(m.contains(words), m);
    }

    private static void wrong(String words, Executable call) {
        String m = Messages.of(IllegalArgumentException.class, call);
        assertTrue(m.contains(words) && m.contains("expected"), m);
    }

    /** Fake GPUs: kernels, and NCCL between them. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4})
    void gpus(int ranks) {
        seeded("gpus", ranks);
        TestFake.use();
        Communicator.runLocal(
                IntStream.range(0, ranks).mapToObj(TestFake::device).toList(),
                CommunicatorOptions.DEFAULT,
                c -> ExpertBodies.layers(c, seed, 2, 40));
    }

    /**
     * Tokens, results, gradients of a GPU are those of the host bit by bit: sums have one order.
     */
    @Test
    void gpusMoveTheSameRows() {
        seeded("gpusMoveTheSameRows", 2);
        TestFake.use();
        List<float[]> onHost = new ArrayList<>();
        Communicator.runLocal(2, c -> keep(onHost, pass(c)));
        List<float[]> onGpus = new ArrayList<>();
        Communicator.runLocal(
                TestFake.ranks(2), CommunicatorOptions.DEFAULT, c -> keep(onGpus, pass(c)));
        assertEquals(2, onHost.size());
        Comparator<float[]> byRank = Comparator.comparingDouble(x -> x[0]);
        onHost.sort(byRank);
        onGpus.sort(byRank);
        for (int r = 0; r < 2; r++) {
            assertArrayEquals(onHost.get(r), onGpus.get(r), "rank " + r);
        }
    }

    private static void keep(List<float[]> all, float[] one) {
        synchronized (all) {
            all.add(one);
        }
    }

    /** The rank, then result and gradient of tokens that pass experts which are the identity. */
    private float[] pass(Communicator c) {
        int tokens = 11;
        int features = 7;
        ExpertOptions options =
                ExpertOptions.of(RouterOptions.top2(4, tokens), features).withFixedBlocks(true);
        float[] all = new float[1 + 2 * tokens * features];
        all[0] = c.rank();
        Random random = new Random(seed + c.rank());
        try (Buffer logits = c.device().allocate(DataType.FLOAT32, 4L * tokens);
                Buffer x = c.device().allocate(DataType.FLOAT32, (long) tokens * features);
                ExpertDispatch layer = ExpertDispatch.create(c, options)) {
            logits.copyFrom(gaussian(random, 4 * tokens));
            x.copyFrom(gaussian(random, tokens * features));
            layer.route(logits, tokens);
            layer.dispatch(x);
            c.device().defaultStream().copy(layer.inputs(), layer.outputs());
            layer.combine(x);
            float[] part = new float[tokens * features];
            c.device().defaultStream().synchronize();
            x.copyTo(part);
            System.arraycopy(part, 0, all, 1, part.length);
            layer.combineBackward(x);
            c.device().defaultStream().copy(layer.outputGradients(), layer.inputGradients());
            layer.dispatchBackward(x);
            c.device().defaultStream().synchronize();
            x.copyTo(part);
            System.arraycopy(part, 0, all, 1 + part.length, part.length);
        }
        return all;
    }

    private static float[] gaussian(Random random, int n) {
        float[] values = new float[n];
        for (int i = 0; i < n; i++) {
            values[i] = (float) random.nextGaussian();
        }
        return values;
    }

    @Test
    void gpusNameABadLogitAndBuffersOfTheHost() {
        TestFake.use();
        Communicator.runLocal(
                TestFake.ranks(2),
                CommunicatorOptions.DEFAULT,
                c -> {
                    ExpertOptions options = ExpertOptions.of(RouterOptions.top1(2, 8), 4);
                    ExpertRouter router = ExpertRouter.create(options.router());
                    try (Buffer logits = c.device().allocate(DataType.FLOAT32, 16);
                            Buffer x = c.device().allocate(DataType.FLOAT32, 32).zero();
                            Buffer host = Device.host().allocate(DataType.FLOAT32, 32);
                            ExpertDispatch layer = ExpertDispatch.create(c, options)) {
                        String r =
                                Messages.of(
                                        IllegalArgumentException.class,
                                        () -> router.route(logits, 8));
                        assertTrue(r.contains("host memory"), r);
                        logits.zero();
                        wrong("the logits is on", () -> layer.route(host, 8));
                        wrong(
                                "the logits are 15 elements",
                                () -> layer.route(logits.slice(0, 15), 8));
                        float[] bad = new float[16];
                        bad[7] = c.rank() == 1 ? Float.NaN : 0;
                        logits.copyFrom(bad);
                        wrong("on rank 1 the logit of token 3", () -> layer.route(logits, 8));
                        logits.zero();
                        layer.route(logits, 8);
                        wrong("the tokens is on", () -> layer.dispatch(host));
                        layer.dispatch(x);
                        c.device().defaultStream().synchronize();
                    }
                });
    }

    /** GShard's second expert: as often as its weight says, the first one's weight as it was. */
    @Test
    void secondExpertsAreUsedByChance() {
        seeded("chance", 1);
        int tokens = 20_000;
        int experts = 6;
        RouterOptions options =
                RouterOptions.gshard(experts, tokens, seed).withOverflow(Overflow.NONE);
        ExpertRouter router = ExpertRouter.create(options);
        ExpertRouter other =
                ExpertRouter.create(
                        RouterOptions.gshard(experts, tokens, ~seed).withOverflow(Overflow.NONE));
        ExpertRouter both =
                ExpertRouter.create(
                        RouterOptions.top2(experts, tokens).withOverflow(Overflow.NONE));
        try (Buffer logits = floats(tokens * experts, new Random(seed));
                Buffer gradient = floats(tokens * experts, new Random(1))) {
            router.route(logits, tokens);
            other.route(logits, tokens);
            both.route(logits, tokens);
            double expected = 0;
            double variance = 0;
            int differ = 0;
            for (int t = 0; t < tokens; t++) {
                int all = both.table().tokenStart[t];
                double weight = 1;
                for (int k = all; k < both.table().tokenStart[t + 1]; k++) {
                    weight = Math.min(weight, both.weight(both.table().byToken[k]));
                }
                double used = Math.min(1, 2 * weight);
                expected += used;
                variance += used * (1 - used);
                int from = router.table().tokenStart[t];
                int count = router.table().tokenStart[t + 1] - from;
                differ +=
                        count == other.table().tokenStart[t + 1] - other.table().tokenStart[t]
                                ? 0
                                : 1;
                assertTrue(count == 1 || count == 2, "assignments " + count);
                for (int k = from; k < from + count; k++) {
                    int i = router.table().byToken[k];
                    boolean found = false;
                    for (int l = all; l < all + 2; l++) {
                        int j = both.table().byToken[l];
                        found |=
                                both.expert(j) == router.expert(i)
                                        && both.weight(j) == router.weight(i);
                    }
                    assertTrue(found, "token " + t);
                    // The one that is always used is the first.
                    assertTrue(count == 2 || router.weight(i) >= 0.5f, "token " + t);
                }
            }
            int seconds = router.assignments() - tokens;
            assertEquals(tokens - seconds, router.unsampled());
            assertEquals(expected, seconds, 6 * Math.sqrt(variance) + 1, "second experts");
            assertTrue(differ > 0, "seeds make no difference");
            float[] before = weights(router);
            router.route(logits, tokens);
            assertArrayEquals(before, weights(router), "the same gates, the same outcome");

            // dp_m = (g_m - sum_j g_j w_j) / S over both, with no gradient from what was left out.
            for (int i = 0; i < router.assignments(); i++) {
                router.setWeightGradient(i, (float) Math.sin(i));
            }
            router.backward(gradient, 0, 0);
            for (int t = 0; t < tokens; t += 97) {
                double[] g = new double[experts];
                double sum = 0;
                double divisor = 0;
                for (int k = router.table().tokenStart[t];
                        k < router.table().tokenStart[t + 1];
                        k++) {
                    int i = router.table().byToken[k];
                    g[router.expert(i)] = (float) Math.sin(i);
                    sum += g[router.expert(i)] * router.weight(i);
                }
                double[] p = new double[experts];
                double dot = 0;
                for (int k = both.table().tokenStart[t]; k < both.table().tokenStart[t + 1]; k++) {
                    divisor += router.gate(t, both.expert(both.table().byToken[k]));
                }
                for (int k = both.table().tokenStart[t]; k < both.table().tokenStart[t + 1]; k++) {
                    int e = both.expert(both.table().byToken[k]);
                    p[e] = (g[e] - sum) / divisor;
                    dot += router.gate(t, e) * p[e];
                }
                for (int e = 0; e < experts; e++) {
                    double want = router.gate(t, e) * (p[e] - dot);
                    assertEquals(want, gradient.get((long) t * experts + e), 1e-5, "token " + t);
                }
            }
        }
    }

    /** What is drawn for a token depends on its place alone, and is what the formula says. */
    @Test
    void secondExpertsAreDrawnByThePlaceOfTheToken() {
        int tokens = 400;
        int experts = 5;
        long place = 1L << 40;
        RouterOptions options = RouterOptions.gshard(experts, tokens, 3).withCapacityFactor(0);
        ExpertRouter router = ExpertRouter.create(options);
        ExpertRouter part = ExpertRouter.create(options);
        try (Buffer logits = floats(tokens * experts, new Random(5));
                Buffer near = floats(tokens * experts, new Random(5))) {
            router.route(logits, tokens, place);
            Assignments all = router.table();
            for (int t = 0; t < tokens; t++) {
                double[] p = new double[experts];
                for (int e = 0; e < experts; e++) {
                    p[e] = router.gate(t, e);
                    near.set((long) t * experts + e, near.get((long) t * experts + e) + 1e-6);
                }
                Arrays.sort(p);
                // The generator of the JDK is the same one, at its next state.
                long state = 3 + 0x9E3779B97F4A7C15L * (place + t - 1);
                double drawn = (new SplittableRandom(state).nextLong() >>> 11) * 0x1p-53;
                double first = p[experts - 1];
                double second = p[experts - 2];
                boolean used = drawn < Math.min(1, 2 * second / (first + second));
                assertEquals(used ? 2 : 1, all.tokenStart[t + 1] - all.tokenStart[t], "token " + t);
            }
            for (int from = 0; from < tokens; from += 100) {
                // Another part of the tokens, with other roundings.
                part.route(near.slice((long) from * experts, 100L * experts), 100, place + from);
                for (int t = 0; t < 100; t++) {
                    for (int k = 0;
                            k < part.table().tokenStart[t + 1] - part.table().tokenStart[t];
                            k++) {
                        int i = part.table().byToken[part.table().tokenStart[t] + k];
                        int j = all.byToken[all.tokenStart[from + t] + k];
                        assertEquals(router.expert(j), part.expert(i));
                    }
                    assertEquals(
                            all.tokenStart[from + t + 1] - all.tokenStart[from + t],
                            part.table().tokenStart[t + 1] - part.table().tokenStart[t]);
                }
            }
            float[] before = weights(router);
            router.route(logits, tokens, place + 1);
            assertFalse(Arrays.equals(before, weights(router)), "another place, the same draw");
            wrong("first token is -1", () -> router.route(logits, tokens, -1));
        }
    }

    /** With 0 as without a capacity, with -f as with f; the capacity is what that needs. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aCapacityThatAdaptsHasRoomForWhatIsTaken(boolean normalised) {
        int tokens = 300;
        RouterOptions options =
                normalised ? RouterOptions.top2(6, tokens) : RouterOptions.top1(6, tokens);
        ExpertRouter adapts = ExpertRouter.create(options.withCapacityFactor(0));
        ExpertRouter unlimited = ExpertRouter.create(options.withOverflow(Overflow.NONE));
        assertEquals(tokens, adapts.options().capacity(tokens));
        try (Buffer logits = floats(tokens * 6, new Random(2))) {
            adapts.route(logits, tokens);
            unlimited.route(logits, tokens);
            assertArrayEquals(weights(unlimited), weights(adapts));
            int fullest = IntStream.range(0, 6).map(adapts::count).max().orElseThrow();
            assertEquals(fullest, adapts.capacity());
            assertTrue(fullest < tokens);
            double enough = (double) fullest * 6 / tokens / (normalised ? 2 : 1);
            for (double factor : new double[] {0.3, 0.9 * enough, 1.1 * enough, 100}) {
                ExpertRouter bounded = ExpertRouter.create(options.withCapacityFactor(-factor));
                ExpertRouter fixed = ExpertRouter.create(options.withCapacityFactor(factor));
                bounded.route(logits, tokens);
                fixed.route(logits, tokens);
                assertArrayEquals(weights(fixed), weights(bounded), "factor " + factor);
                assertEquals(fixed.options().capacity(tokens), bounded.options().capacity(tokens));
                assertEquals(Math.min(fullest, fixed.capacity()), bounded.capacity());
            }
            adapts.route(logits, 0);
            assertEquals(0, adapts.capacity());
        }
    }

    private static float[] weights(ExpertRouter router) {
        return Arrays.copyOf(router.table().weight, router.assignments());
    }

    /** Those that chance leaves out take no room, and do not count as dropped. */
    @Test
    void chanceLeavesRoom() {
        seeded("chanceLeavesRoom", 2);
        Communicator.runLocal(
                2,
                c -> {
                    int tokens = 500;
                    ExpertOptions options =
                            ExpertOptions.of(
                                    RouterOptions.gshard(4, tokens, seed).withCapacityFactor(4), 3);
                    try (Buffer logits = floats(tokens * 4, new Random(seed + c.rank()));
                            ExpertDispatch layer = ExpertDispatch.create(c, options)) {
                        layer.route(logits, tokens);
                        ExpertStatistics s = layer.statistics();
                        assertTrue(s.unsampled() > 0);
                        assertEquals(4L * tokens - s.unsampled(), s.assignments());
                        assertEquals(0, s.droppedShare());
                    }
                });
    }

    /**
     * Without a capacity no token is in another's way, so the spread over ranks does not matter.
     */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void droplessResultsAreTheSameBitByBitOnAnyNumberOfRanks(boolean chance) {
        seeded("dropless", 4);
        int tokens = 96;
        RouterOptions router =
                (chance ? RouterOptions.gshard(8, tokens, seed) : RouterOptions.top2(8, tokens))
                        .withOverflow(Overflow.NONE);
        ExpertOptions options = ExpertOptions.of(router, 33);
        float[][] found = new float[5][];
        for (int ranks : new int[] {1, 2, 4}) {
            float[] all = new float[2 * tokens * 33];
            found[ranks] = all;
            Communicator.runLocal(
                    ranks,
                    c -> {
                        Random random = new Random(seed);
                        int share = tokens / ranks;
                        try (Buffer logits = floats(tokens * 8, random);
                                Buffer x = floats(tokens * 33, random);
                                Buffer g = floats(tokens * 33, random);
                                Buffer y = floats(share * 33, random);
                                ExpertDispatch layer = ExpertDispatch.create(c, options)) {
                            int from = c.rank() * share;
                            layer.route(logits.slice(from * 8L, share * 8L), share);
                            layer.dispatch(x.slice(from * 33L, share * 33L));
                            pass(c, layer, layer.inputs(), layer.outputs());
                            layer.combine(y);
                            for (int i = 0; i < share * 33; i++) {
                                all[from * 33 + i] = (float) y.get(i);
                            }
                            layer.combineBackward(g.slice(from * 33L, share * 33L));
                            pass(c, layer, layer.outputGradients(), layer.inputGradients());
                            layer.dispatchBackward(y);
                            for (int i = 0; i < share * 33; i++) {
                                all[(tokens + from) * 33 + i] = (float) y.get(i);
                            }
                        }
                    });
        }
        assertArrayEquals(found[1], found[2]);
        assertArrayEquals(found[1], found[4]);
    }

    private static Buffer floats(int count, Random random) {
        Buffer b = Device.host().allocate(DataType.FLOAT32, count);
        for (int i = 0; i < count; i++) {
            b.set(i, random.nextGaussian());
        }
        return b;
    }

    private static void pass(Communicator c, ExpertDispatch layer, Buffer from, Buffer to) {
        long features = from.count() / layer.maxRows();
        for (int l = 0; l < layer.localExperts(); l++) {
            int e = c.rank() * layer.localExperts() + l;
            long end = (layer.firstRow(l) + layer.rowCount(l)) * features;
            for (long i = layer.firstRow(l) * features; i < end; i++) {
                to.set(i, from.get(i) * (e + 1));
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"2, true"})
    void aStepAllocatesNothing(int ranks, boolean priority) {
        AllocationRounds rounds = new AllocationRounds(ranks);
        Communicator.runLocal(
                ranks,
                c -> {
                    RouterOptions router =
                            RouterOptions.top2(4, 64)
                                    .withBatchPriority(priority)
                                    .withOverflow(priority ? Overflow.NEXT_BEST : Overflow.NONE);
                    ExpertOptions options = ExpertOptions.of(router, 48).withFixedBlocks(priority);
                    try (ExpertDispatch layer = ExpertDispatch.create(c, options);
                            Buffer logits = floats(64 * 4, new Random(c.rank()));
                            Buffer dlogits = floats(64 * 4, new Random(1));
                            Buffer x = floats(64 * 48, new Random(1));
                            Buffer y = floats(64 * 48, new Random(2))) {
                        double[] sum = new double[1];
                        rounds.repeat(
                                c.rank(),
                                50,
                                () -> {
                                    layer.route(logits, 64);
                                    layer.dispatch(x);
                                    layer.combine(y);
                                    layer.combineBackward(x);
                                    layer.dispatchBackward(y);
                                    layer.routeBackward(dlogits, 0.01, 0.001);
                                    sum[0] += layer.statistics().entropy();
                                    sum[0] += layer.router().zLoss();
                                });
                        assertTrue(sum[0] > 0);
                    }
                });
        rounds.assertNone();
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, true", "2, false"})
    void aStepAllocatesNothingInMoreCases(int ranks, boolean priority) {
        aStepAllocatesNothing(ranks, priority);
    }
}
