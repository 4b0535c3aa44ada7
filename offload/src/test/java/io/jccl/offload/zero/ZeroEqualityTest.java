package io.jccl.offload.zero;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.DataType;
import io.jccl.offload.Budgets;
import io.jccl.offload.Tier;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.AdamW;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.Sgd;
import io.jccl.testkit.Pairs;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Every stage and tier gives the parameters of plain data parallelism. */
@Timeout(value = 300, unit = TimeUnit.SECONDS)
class ZeroEqualityTest {
    private static final int STEPS = 5;
    private static final double RATE = 0.01;
    private static final DataType F32 = DataType.FLOAT32;
    private static final DataType BF16 = DataType.BFLOAT16;
    private static final DataType F16 = DataType.FLOAT16;

    /** Each tier at each place at least once. */
    private static final List<List<Tier>> SOME =
            List.of(
                    List.of(Tier.DEVICE, Tier.DEVICE, Tier.DEVICE),
                    List.of(Tier.PINNED, Tier.PINNED, Tier.PINNED),
                    List.of(Tier.NVME, Tier.NVME, Tier.NVME),
                    List.of(Tier.DEVICE, Tier.PINNED, Tier.NVME));

    /** Largest and mean difference where gradients are rounded to 16 bits at other places. */
    private static final double LARGEST = 1e-3;

    private static final double MEAN = 1e-4;

    /** Parameters, gradients, optimizer. */
    private static List<List<Tier>> tiers() {
        List<List<Tier>> all = new ArrayList<>();
        for (Tier p : Tier.values()) {
            for (Tier g : Tier.values()) {
                for (Tier o : Tier.values()) {
                    all.add(List.of(p, g, o));
                }
            }
        }
        return all;
    }

    static Stream<Arguments> runs() {
        List<Arguments> all = new ArrayList<>();
        for (int ranks = 1; ranks <= 4; ranks++) {
            for (int micros : new int[] {1, 4}) {
                all.add(Arguments.of(ranks, micros, F32, F32));
                all.add(Arguments.of(ranks, micros, BF16, BF16));
                all.add(Arguments.of(ranks, micros, BF16, F32));
            }
        }
        all.add(Arguments.of(3, 4, F16, F16));
        all.add(Arguments.of(3, 4, F16, F32));
        return all.stream();
    }

    private static float[] sharded(
            int ranks, ZeroOptions options, Optimizer optimizer, int steps, long seed) {
        AtomicReferenceArray<float[]> results = new AtomicReferenceArray<>(ranks);
        Communicator.runLocal(
                ranks,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero =
                                    ZeroOptimizer.create(
                                            comm,
                                            Demo.LAYERS,
                                            optimizer,
                                            options,
                                            Demo.noScale(),
                                            memory.tiers)) {
                        Demo.initialize(zero, seed);
                        for (int s = 0; s < steps; s++) {
                            StepResult r =
                                    Demo.step(
                                            zero,
                                            seed,
                                            s,
                                            options.accumulation(),
                                            comm.rank(),
                                            RATE);
                            assertTrue(r.taken());
                        }
                        assertEquals(steps, zero.steps());
                        results.set(comm.rank(), Demo.parameters(zero));
                    }
                });
        for (int r = 1; r < ranks; r++) {
            assertArrayEquals(results.get(0), results.get(r), "rank " + r);
        }
        return results.get(0);
    }

    private static float[] plain(int ranks, ZeroOptions o, Optimizer optimizer, long seed) {
        AtomicReferenceArray<float[]> result = new AtomicReferenceArray<>(ranks);
        Communicator.runLocal(
                ranks,
                Demo.IN_RANK_ORDER,
                comm ->
                        result.set(
                                comm.rank(),
                                Demo.plain(
                                        comm,
                                        optimizer,
                                        o.type(),
                                        o.accumulator(),
                                        o.accumulation(),
                                        STEPS,
                                        seed,
                                        RATE,
                                        o.maxNorm())));
        return result.get(0);
    }

    private static double largest(float[] a, float[] b) {
        double most = 0;
        for (int i = 0; i < a.length; i++) {
            most = Math.max(most, Math.abs((double) a[i] - b[i]));
        }
        return most;
    }

    private static double mean(float[] a, float[] b) {
        double sum = 0;
        for (int i = 0; i < a.length; i++) {
            sum += Math.abs((double) a[i] - b[i]);
        }
        return sum / a.length;
    }

    /** A stage on a tier each for parameters, gradients and optimizer state. */
    private record Place(int stage, List<Tier> tiers) {}

    private static List<Place> places(Object[] run) {
        List<List<Tier>> tiers = run[0].equals(3) && run[1].equals(4) ? tiers() : SOME;
        return Stream.of(0, 1, 2, 3)
                .flatMap(stage -> tiers.stream().map(t -> new Place(stage, t)))
                .toList();
    }

    /**
     * Runs in which each stage has each tier for each kind of state, each number of ranks each of
     * micro-steps, and each pair of types is added up in both orders.
     */
    static List<Arguments> someRuns() {
        List<Object[]> all =
                runs().map(Arguments::get)
                        .flatMap(r ->
                                places(r).stream()
                                        .map(p -> new Object[] {r[0], r[1], r[2], r[3], p}))
                        .toList();
        return Pairs.selected(all, ZeroEqualityTest::features).stream().map(Arguments::of).toList();
    }

    private static Set<?> features(Object[] run) {
        Place p = (Place) run[4];
        return Set.of(
                List.of("ranks", run[0], run[1]),
                List.of("types", run[2], run[3], p.stage > 1),
                List.of("parameters", p.stage, p.tiers.get(0)),
                List.of("gradients", p.stage, p.tiers.get(1)),
                List.of("state", p.stage, p.tiers.get(2)));
    }

    @ParameterizedTest
    @MethodSource("someRuns")
    void givesTheParametersOfPlainDataParallelism(
            int ranks, int micros, DataType type, DataType accumulator, Place place) {
        equalsPlain(ranks, micros, type, accumulator, List.of(place));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("runs")
    void givesTheParametersOfPlainDataParallelismOnAllTiers(
            int ranks, int micros, DataType type, DataType accumulator) {
        List<Place> all = places(new Object[] {ranks, micros});
        equalsPlain(ranks, micros, type, accumulator, all);
    }

    /**
     * The same bits wherever gradients are rounded and added in the same order: everywhere without
     * accumulation in a wider type; else up to stage 1. Stages 2 and 3 add up over ranks first and
     * over micro-steps after that.
     */
    private static void equalsPlain(
            int ranks, int micros, DataType type, DataType accumulator, List<Place> places) {
        long seed = 17;
        Optimizer optimizer = Adam.defaults();
        ZeroOptions base =
                ZeroOptions.stage(0).withTypes(type, accumulator).withAccumulation(micros);
        float[] expected = plain(ranks, base, optimizer, seed);
        Map<String, Double> worst = new HashMap<>();
        for (Place place : places) {
            int stage = place.stage;
            List<Tier> t = place.tiers;
            String what = "stage " + stage + " on " + t + ", seed " + seed;
            ZeroOptions o =
                    ZeroOptions.stage(stage)
                            .withTypes(type, accumulator)
                            .withAccumulation(micros)
                            .withTiers(t.get(0), t.get(1), t.get(2));
            float[] actual = sharded(ranks, o, optimizer, STEPS, seed);
            if (stage <= 1 || ranks == 1 || (micros == 1 && accumulator == type)) {
                assertArrayEquals(expected, actual, what);
                continue;
            }
            worst.merge("largest", largest(expected, actual), Math::max);
            worst.merge("mean", mean(expected, actual), Math::max);
            assertTrue(largest(expected, actual) <= (type == F32 ? 1e-6 : LARGEST), what);
            assertTrue(mean(expected, actual) <= (type == F32 ? 1e-7 : MEAN), what);
        }
        System.out.println(
                ranks
                        + " ranks, "
                        + micros
                        + " micro-steps, "
                        + type
                        + "/"
                        + accumulator
                        + ": "
                        + worst);
    }

    /** What the tolerance is for would be seen: a micro-step of one rank that is lost. */
    @Test
    void theToleranceSeesALostMicroStep() {
        ZeroOptions four = ZeroOptions.stage(0).withTypes(BF16, F32).withAccumulation(4);
        float[] all = plain(3, four, Adam.defaults(), 17);
        float[] lost = plain(3, four.withAccumulation(3), Adam.defaults(), 17);
        assertTrue(largest(all, lost) > 5 * LARGEST, () -> "" + largest(all, lost));
        assertTrue(mean(all, lost) > 5 * MEAN, () -> "" + mean(all, lost));
    }

    static Stream<Arguments> rules() {
        return Stream.of(
                Arguments.of(new AdamW(0.9, 0.95, 1e-8, 0.1)),
                Arguments.of(Adam.defaults()),
                Arguments.of(new Sgd(0.9, 0, 0.01, false)));
    }

    /**
     * With clipping, the norm is that of all ranks. The sum of squares is added in another order.
     */
    @ParameterizedTest
    @MethodSource("rules")
    void clipsByTheNormOfAllRanks(Optimizer optimizer) {
        ZeroOptions base = ZeroOptions.stage(0).withMaxNorm(0.05);
        float[] free = plain(3, ZeroOptions.stage(0), optimizer, 5);
        float[] expected = plain(3, base, optimizer, 5);
        if (optimizer instanceof Sgd) { // Adam does not see the size of gradients
            assertTrue(largest(free, expected) > 1e-4);
        }
        float[] first = sharded(3, base, optimizer, STEPS, 5);
        assertEquals(0, largest(expected, first), 1e-6);
        for (int stage = 1; stage <= 3; stage++) {
            ZeroOptions o = ZeroOptions.stage(stage).withMaxNorm(0.05);
            assertArrayEquals(first, sharded(3, o, optimizer, STEPS, 5), "stage " + stage);
        }
    }

    /** A layer's second micro-step may be in another slot than its first, and is added to it. */
    @Test
    void microStepsOfLayersMayOverlap() {
        Communicator.runLocal(
                1,
                comm -> {
                    try (ZeroOptimizer zero =
                            ZeroOptimizer.create(
                                    comm,
                                    List.of(ShardedLayer.of("x", 4), ShardedLayer.of("y", 4)),
                                    new Sgd(0, 0, 0, false),
                                    ZeroOptions.stage(2).withAccumulation(2))) {
                        zero.initialize((layer, tensor, values) -> {});
                        zero.gradients(1).set(0, 1);
                        zero.gradients(0).set(0, 1);
                        zero.reduce(1);
                        zero.gradients(1).set(0, 3);
                        zero.reduce(1);
                        zero.reduce(0);
                        zero.gradients(0).set(0, 3);
                        zero.reduce(0);
                        zero.step(1);
                        for (int layer = 0; layer < 2; layer++) {
                            assertEquals(-2, zero.gather(layer).get(0), "layer " + layer);
                            zero.release(layer);
                        }
                    }
                });
    }

    /** Moments that are not zero, more layers than the window holds, and no prefetch. */
    @Test
    void windowsMakeNoDifference() {
        float[] expected = sharded(2, ZeroOptions.stage(3), Adam.defaults(), STEPS, 3);
        for (int prefetch : new int[] {0, 2, 5}) {
            for (Tier tier : Tier.values()) {
                ZeroOptions o =
                        ZeroOptions.stage(3)
                                .withPrefetch(prefetch)
                                .withTiers(tier, Tier.DEVICE, Tier.DEVICE);
                assertArrayEquals(
                        expected, sharded(2, o, Adam.defaults(), STEPS, 3), "" + prefetch + tier);
            }
        }
    }

    /** The drive instead of arrays, and a checkpoint beside it. */
    @ParameterizedTest
    @ValueSource(ints = 3)
    void onARealDrive(int stage, @TempDir Path folder) {
        ZeroOptions o =
                ZeroOptions.stage(stage).withTypes(BF16, F32).withAccumulation(2).withMaxNorm(1);
        float[] expected = sharded(3, o, Adam.defaults(), STEPS, 8);
        ZeroOptions nvme = o.withTiers(Tier.NVME, Tier.NVME, Tier.NVME);
        Communicator.runLocal(
                3,
                Demo.IN_RANK_ORDER,
                comm -> {
                    Path mine = Files.createDirectories(folder.resolve("rank" + comm.rank()));
                    for (int begin = 0; begin < STEPS; begin += 3) {
                        try (NvmeStore store =
                                        NvmeStore.open(
                                                mine,
                                                new Budgets(Map.of()),
                                                NvmeOptions.DEFAULT
                                                        .withBlockBytes(4096)
                                                        .withScratch(true));
                                Demo.Memory memory = new Demo.Memory(Map.of(), store);
                                ZeroOptimizer zero =
                                        ZeroOptimizer.create(
                                                comm,
                                                Demo.LAYERS,
                                                Adam.defaults(),
                                                nvme,
                                                Demo.noScale(),
                                                memory.tiers)) {
                            if (begin == 0) {
                                Demo.initialize(zero, 8);
                            } else {
                                assertEquals(begin, zero.load(folder.resolve("saved")));
                            }
                            for (int s = begin; s < Math.min(STEPS, begin + 3); s++) {
                                Demo.step(zero, 8, s, 2, comm.rank(), RATE);
                            }
                            zero.save(folder.resolve("saved"));
                            if (zero.steps() == STEPS) {
                                assertArrayEquals(expected, Demo.parameters(zero));
                            }
                        }
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2})
    void onARealDriveInMoreStages(int stage, @TempDir Path folder) {
        onARealDrive(stage, folder);
    }
}
