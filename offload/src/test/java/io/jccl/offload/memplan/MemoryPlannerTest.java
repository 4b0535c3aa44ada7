package io.jccl.offload.memplan;

import static io.jccl.offload.Tier.DEVICE;
import static io.jccl.offload.Tier.NVME;
import static io.jccl.offload.Tier.PINNED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Traffic.Kind;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.Adam8bit;
import io.jccl.offload.optim.AdamW;
import io.jccl.offload.optim.Lamb;
import io.jccl.offload.optim.Lion;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.Sgd;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import java.util.function.Supplier;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class MemoryPlannerTest {
    private static final Machine MACHINE =
            new Machine(8, 80L << 30, 1000L << 30, 8_000_000_000_000L, 2);

    private static final Model MODEL = Presets.of("gpt3-6.7b");

    /** With DeepSpeed's bytes, which the papers below count. */
    private static Job bare(Model model, Machine machine) {
        return new Job(
                        model,
                        Batch.ONE,
                        Precision.FP16,
                        OptimizerKind.ADAM,
                        machine,
                        Overheads.NONE)
                .with(TrainingSystem.DEEPSPEED);
    }

    private static long traffic(Plan plan, Kind kind, String what) {
        return plan.traffic().stream()
                .filter(t -> t.kind() == kind && t.what().equals(what))
                .mapToLong(Traffic::bytes)
                .sum();
    }

    /** 4.2 + 12/d and so on: arXiv 1910.02054, figure 1, 7.5e9 parameters on 64 GPUs. */
    @ParameterizedTest
    @CsvSource({"0, 120", "1, 31.4", "2, 16.6", "3, 1.9"})
    void zeroAsItsPaperHasIt(int stage, double gigabytes) {
        Model model = MODEL.withParameters(7_500_000_000L);
        Job job = bare(model, new Machine(8, 1L << 40, 0, 0, 8));
        Usage device = MemoryPlanner.plan(job, Techniques.PLAIN.withStage(stage)).device();
        double state = device.parameters() + device.gradients() + device.optimizer();
        assertEquals(gigabytes, state / 1e9, 0.05);
    }

    /** The paper's volumes: 2 P elements up to stage 2, 3 P at stage 3. */
    @ParameterizedTest
    @CsvSource({"0, 2", "1, 2", "2, 2", "3, 3"})
    void volumeAsItsPaperHasIt(int stage, int timesParameters) {
        Plan plan = MemoryPlanner.plan(bare(MODEL, MACHINE), Techniques.PLAIN.withStage(stage));
        double sum = plan.traffic().stream().mapToLong(Traffic::bytes).sum();
        double expected = timesParameters * 15.0 / 16 * 2 * MODEL.parameters();
        assertEquals(expected, sum, 4);
    }

    @ParameterizedTest
    @CsvSource({"0, 1, 0", "1, 1, 1", "2, 4, 1", "3, 4, 8"})
    void accumulationRepeatsWhatIsSharded(int stage, int reductions, int gathers) {
        Job job =
                new Job(
                        MODEL,
                        new Batch(1, 4),
                        Precision.BF16,
                        OptimizerKind.ADAMW,
                        MACHINE,
                        Overheads.DEFAULT);
        Plan plan = MemoryPlanner.plan(job, Techniques.PLAIN.withStage(stage));
        double once = 15.0 / 16 * 2 * MODEL.parameters();
        double reduced =
                traffic(plan, Kind.ALL_REDUCE, "gradients") / 2.0
                        + traffic(plan, Kind.REDUCE_SCATTER, "gradients");
        assertEquals(reductions * once, reduced, 2);
        assertEquals(gathers * once, (double) traffic(plan, Kind.ALL_GATHER, "parameters"), 2);
        assertEquals(64, plan.compute().batch());
    }

    @ParameterizedTest
    @EnumSource(Recomputation.class)
    void activationsAsTheirPaperHasThem(Recomputation recomputation) {
        Job job =
                new Job(
                        Presets.of("gpt3-175b"),
                        new Batch(2, 1),
                        Precision.FP16,
                        OptimizerKind.ADAM,
                        MACHINE,
                        Overheads.NONE);
        double s = 2048;
        double b = 2;
        double h = 12_288;
        double a = 96;
        double v = 51_200;
        double layer =
                switch (recomputation) {
                    case NONE -> s * b * h * (34 + 5 * a * s / h);
                    case SELECTIVE -> 34 * s * b * h;
                    case FULL -> 2 * s * b * h;
                };
        double ends = s * b * h + 4 * s * b * h * (1 + v / h);
        Usage device =
                MemoryPlanner.plan(job, Techniques.PLAIN.withActivations(DEVICE, recomputation))
                        .device();
        assertEquals(96 * layer + ends, (double) device.activations(), 2);
        // Over 8 GPUs of one machine, with sequence parallelism.
        Usage split =
                MemoryPlanner.plan(
                                job,
                                Techniques.PLAIN
                                        .withActivations(DEVICE, recomputation)
                                        .withModelParallel(8, 1))
                        .device();
        assertEquals((96 * layer + ends) / 8, (double) split.activations(), 2);
    }

    /** Those of JCCL, by the planner's names; Adafactor's means count as none. */
    @Test
    void optimizersHaveTheStateThatThePlannerCounts() {
        Map<String, Optimizer> rules = new HashMap<>();
        for (Optimizer rule :
                List.of(
                        Adam.defaults(),
                        AdamW.defaults(),
                        Lion.defaults(),
                        Lamb.defaults(),
                        Adam8bit.defaults(),
                        new Sgd(0, 0, 0, false))) {
            rules.put(rule.label(), rule);
        }
        rules.put("sgd-momentum", Sgd.withMomentum(0.9));
        for (OptimizerKind kind : OptimizerKind.values()) {
            if (kind != OptimizerKind.ADAFACTOR) {
                Optimizer rule =
                        Objects.requireNonNull(
                                rules.get(kind.label()), kind.label() + ": add its rule here");
                assertEquals(rule.moments(), kind.moments(), kind.label());
            }
        }
    }

    @ParameterizedTest
    @CsvSource({
        "FP32, ADAM, 16, 16",
        "FP16, ADAM, 16, 20",
        "BF16, ADAMW, 16, 20",
        "BF16, SGD_MOMENTUM, 12, 16",
        "BF16, SGD, 8, 12",
        "BF16, ADAM_8BIT, 10, 14",
        "BF16, LION, 12, 16",
        "BF16_STATES, ADAMW, 12, 12",
        "BF16_PURE, ADAM, 8, 8",
    })
    void bytesPerParameter(Precision precision, OptimizerKind kind, int device, int offloaded) {
        Job job =
                new Job(MODEL, Batch.ONE, precision, kind, MACHINE, Overheads.NONE)
                        .with(TrainingSystem.DEEPSPEED);
        Techniques sharded = Techniques.PLAIN.withStage(3);
        assertEquals(device, MemoryPlanner.plan(job, sharded).stateBytesPerParameter(), 1e-6);
        for (Tier tier : List.of(PINNED, NVME)) {
            Plan plan = MemoryPlanner.plan(job, sharded.withState(tier, tier, tier));
            assertEquals(offloaded, plan.stateBytesPerParameter(), 1e-6);
            Usage usage = plan.usage(tier);
            double state = usage.parameters() + usage.gradients() + usage.optimizer();
            // Two machines share it.
            assertEquals(offloaded * MODEL.parameters() / 2.0, state, 4);
            assertEquals(0, plan.device().parameters());
            assertEquals(0, plan.device().optimizer());
        }
    }

    @Test
    void withoutShardingEachGpuOfAMachineHasItsOwnCopyOnTheHost() {
        Techniques offload = Techniques.PLAIN.withState(PINNED, PINNED, PINNED);
        Usage whole = MemoryPlanner.plan(bare(MODEL, MACHINE), offload).host();
        Usage shards = MemoryPlanner.plan(bare(MODEL, MACHINE), offload.withStage(3)).host();
        assertEquals(8.0 * 16 * MODEL.parameters(), (double) whole.optimizer(), 8);
        assertEquals(MODEL.parameters() / 2.0 * 16, (double) shards.optimizer(), 8);
    }

    @Test
    void twoVersionsOnNvmeAreParametersAndStateTwice() {
        Overheads two = new Overheads(0, 0, 0, 0, 0, 2, 1);
        Techniques all = Techniques.PLAIN.withStage(3).withState(NVME, NVME, NVME);
        Job job =
                new Job(MODEL, Batch.ONE, Precision.FP16, OptimizerKind.ADAM, MACHINE, two)
                        .with(TrainingSystem.DEEPSPEED);
        Plan plan = MemoryPlanner.plan(job, all);
        // 2 x (2 + 12), and gradients 2 + 4 once.
        assertEquals(34, plan.stateBytesPerParameter(), 1e-6);
    }

    @Test
    void piecesDivideWhatIsInFlight() {
        Job job = bare(Presets.of("gpt3-175b"), MACHINE);
        Techniques sharded = Techniques.PLAIN.withStage(3);
        long whole = MemoryPlanner.plan(job, sharded).device().communication();
        long quarter = MemoryPlanner.plan(job, sharded.withPieces(4)).device().communication();
        assertEquals(
                (double) (whole - Overheads.NCCL_BUFFERS),
                4.0 * (quarter - Overheads.NCCL_BUFFERS),
                8);
        // Two layers of parameters, two of gradients.
        assertEquals(
                8 * job.model().layerParameters(), (double) (whole - Overheads.NCCL_BUFFERS), 2);
    }

    @Test
    void aPipelineSplitsLayersAndKeepsMicroBatches() {
        Job job =
                new Job(
                        Presets.of("gpt3-175b"),
                        new Batch(1, 64),
                        Precision.FP16,
                        OptimizerKind.ADAM,
                        new Machine(8, 80L << 30, 1L << 40, 0, 8),
                        Overheads.NONE);
        Techniques piped = Techniques.PLAIN.withModelParallel(8, 8);
        Plan plan = MemoryPlanner.plan(job, piped);
        double stage = (12 * job.model().layerParameters() + (51_200 + 2048) * 12_288.0) / 8;
        assertEquals(2 * stage, (double) plan.device().parameters(), 1);
        double layer = 2048.0 * 12_288 * (34 + 5 * 96 * 2048 / 12_288.0) / 8;
        assertEquals(
                12 * 8 * layer + 8 * 2048 * 12_288.0 / 8, (double) plan.device().activations(), 2);
        assertEquals(64, plan.compute().batch());
        assertTrue(traffic(plan, Kind.SEND, "activations (pipeline)") > 0);
    }

    @Test
    void selectiveRecomputationComputesTheAttentionAgain() {
        Compute none = Compute.of(MODEL, 8, Recomputation.NONE);
        Compute selective = Compute.of(MODEL, 8, Recomputation.SELECTIVE);
        double attention =
                4.0 * 8 * MODEL.sequence() * MODEL.sequence() * MODEL.hidden() * MODEL.layers();
        assertEquals(attention, selective.flops() - none.flops(), 1e-6 * attention);
    }

    @Test
    void offloadCopiesShardsEachWay() {
        Techniques zero = Techniques.PLAIN.withStage(3).withState(PINNED, PINNED, PINNED);
        Plan plan = MemoryPlanner.plan(bare(MODEL, MACHINE), zero);
        assertEquals(
                2 * 2 * MODEL.parameters() / 16.0,
                (double) traffic(plan, Kind.TO_DEVICE, "parameters"),
                1);
        assertEquals(
                2 * MODEL.parameters() / 16.0,
                (double) traffic(plan, Kind.TO_HOST, "gradients"),
                1);
        assertEquals(0, traffic(plan, Kind.NVME_READ, "parameters"));
    }

    @ParameterizedTest
    @ValueSource(longs = {70_000_000L, 124_000_000L, 1_300_000_000L, 13_000_000_000L})
    void aModelOfANumberOfParameters(long parameters) {
        Model model = Model.ofParameters(parameters);
        assertEquals(parameters, model.parameters());
        double counted =
                Model.gpt(
                                model.layers(),
                                model.hidden(),
                                model.heads(),
                                model.vocabulary(),
                                model.sequence())
                        .parameters();
        assertEquals(1, counted / parameters, 0.15);
    }

    @Test
    void theLadderOnlyGoesUpAndInSmallSteps() {
        for (ScalingRule rule :
                List.of(ScalingRule.GPT, ScalingRule.like(Presets.of("mt-nlg-530b")))) {
            List<Model> ladder = rule.ladder(10_000_000_000_000L);
            for (int i = 1; i < ladder.size(); i++) {
                double ratio = (double) ladder.get(i).parameters() / ladder.get(i - 1).parameters();
                assertTrue(ratio > 1);
                boolean large = ladder.get(i - 1).parameters() > 500_000_000;
                assertTrue(!large || ratio < 1.13, () -> rule + ": " + ratio);
            }
            assertTrue(ladder.getLast().parameters() > 9_800_000_000_000L);
        }
    }

    /** A model whose heads have no whole size, or do not make up the hidden size, cannot exist. */
    @Test
    void headsOfTheLadderAreWhole() {
        for (String name : List.of("gpt3-2.7b", "turing-nlg-17b", "llama3-8b", "qwen3-235b-a22b")) {
            Model like = Presets.of(name);
            for (Model m : ScalingRule.like(like).ladder(1_000_000_000_000L)) {
                Attention.Grouped a = (Attention.Grouped) m.attention();
                assertEquals(Math.rint(a.headSize()), a.headSize(), () -> name + ": " + m);
                if (like.attention().queries() == like.hidden()) {
                    assertEquals(m.hidden(), a.queries(), () -> name + ": " + m);
                }
            }
        }
    }

    /** In the search's order: depth and width of each hidden size's first model only rise. */
    @ParameterizedTest
    @ValueSource(strings = {"gpt3-175b", "llama3-8b", "deepseek-v3", "gemma3-1b", "qwen3-0.6b"})
    void widerModelsBeginNoShallower(String name) {
        Model preset = Presets.of(name);
        List<Model> ladder = ScalingRule.like(preset).ladder(1_000_000_000_000L);
        int depth = 0;
        for (int i = 1; i < ladder.size(); i++) {
            Model model = ladder.get(i);
            assertTrue(model.parameters() > ladder.get(i - 1).parameters());
            if (model.hidden() != ladder.get(i - 1).hidden()) {
                assertTrue(model.layers() >= depth, model::toString);
                depth = model.layers();
            }
            if (model.attention() instanceof Attention.Grouped g) {
                Attention.Grouped like = (Attention.Grouped) preset.attention();
                assertEquals(like.heads() / like.groups(), g.heads() / g.groups());
            }
        }
    }

    private static void assertLargest(Job job, Techniques t, List<Model> ladder) {
        long best = 0;
        for (Model model : ladder) {
            if (Splits.refusal(model, t.split()) == null
                    && MemoryPlanner.plan(job.with(model), t).fits()) {
                best = model.parameters();
            }
        }
        Plan found = MemoryPlanner.largest(job, t, ladder);
        assertEquals(
                best, found.fits() ? found.job().model().parameters() : 0, () -> job + "\n" + t);
    }

    /** Where activations dominate, a wider model needs less than a deeper one before it. */
    @Test
    void theLargestModelMayBeWiderThanOneThatDoesNotFit() {
        Model model = Model.gpt(6, 256, 4, 50_257, 16_384);
        Job job = Job.of(model, new Machine(1, 80L << 30, 1L << 40, 0, 1)).with(new Batch(2, 1));
        Techniques t = Techniques.PLAIN.withState(DEVICE, DEVICE, PINNED).withPieces(8);
        assertTrue(MemoryPlanner.plan(job, t).fits());
        List<Model> ladder = ScalingRule.like(model).ladder(1_000_000_000L);
        assertLargest(job, t, ladder);
        assertTrue(
                MemoryPlanner.largest(job, t, ladder).job().model().parameters()
                        >= model.parameters());
    }

    /** The binary search against trying every model, of all kinds of shapes. */
    @Tag("exhaustive")
    @Test
    void theLargestModelIsTheLargest() {
        long seed = System.nanoTime();
        System.out.println("MemoryPlannerTest.theLargestModelIsTheLargest: seed " + seed);
        Random random = new Random(seed);
        List<String> presets = List.copyOf(Presets.names());
        for (int round = 0; round < 40; round++) {
            Machine machine =
                    new Machine(
                            1 << random.nextInt(4),
                            (2L + random.nextInt(78)) << 30,
                            (16L + random.nextInt(1000)) << 30,
                            random.nextInt(2) * ((100L + random.nextInt(8000)) << 30),
                            1 + random.nextInt(3));
            Model model =
                    random.nextBoolean()
                            ? Presets.of(presets.get(random.nextInt(presets.size())))
                            : shape(random);
            int sequence = 512 << random.nextInt(9);
            Job job =
                    new Job(
                            model.with(model.vocabulary(), sequence),
                            new Batch(1 + random.nextInt(8), 1 + random.nextInt(3)),
                            Precision.values()[random.nextInt(Precision.values().length)],
                            OptimizerKind.ADAM,
                            machine,
                            Overheads.DEFAULT);
            if (random.nextBoolean()) {
                job = job.with(AttentionKernel.FLASH);
            }
            List<Model> ladder = ScalingRule.like(job.model()).ladder(1_000_000_000_000L);
            List<Techniques> all =
                    MemoryPlanner.combinations(
                            job, new MemoryPlanner.Space(true, machine.nvme() > 0, true));
            for (int i = 0; i < 10; i++) {
                assertLargest(job, all.get(random.nextInt(all.size())), ladder);
            }
        }
    }

    /** From flat and wide to deep and narrow. */
    private static Model shape(Random random) {
        int groups = 1 << random.nextInt(4);
        int heads = groups * (1 + random.nextInt(12));
        int hidden = heads * (16 + random.nextInt(112));
        int layers = (int) Math.exp(7 * random.nextDouble());
        return random.nextBoolean()
                ? Model.gpt(layers, hidden, heads, 50_257, 1024)
                : Model.llama(
                        layers,
                        hidden,
                        heads,
                        groups,
                        1 + random.nextInt(5 * hidden),
                        32_000,
                        1024);
    }

    /** A narrow model's MLP is too small to be planned; the ladder begins at wider ones. */
    @Test
    void aLadderBeginsWhereItsModelsHaveAllParts() {
        Model thin = Model.llama(2, 10_000, 100, 100, 1, 51_200, 2048);
        Model narrowest =
                ScalingRule.like(thin.scaled(2, 10_000)).ladder(10_000_000_000L).getFirst();
        assertEquals(128, narrowest.hidden());
        Model wide =
                Model.of(
                        2,
                        10_000,
                        51_200,
                        2048,
                        thin.attention(),
                        new FeedForward(0.01, true, false),
                        null,
                        Norms.LLAMA,
                        false,
                        false,
                        false);
        List<Model> ladder = ScalingRule.like(wide).ladder(10_000_000_000L);
        assertEquals(1024, ladder.getFirst().hidden());
        assertTrue(ladder.getLast().parameters() > wide.parameters());
        refused(() -> ScalingRule.GPT.ladder(1000), "hidden / layers = 128", "up to 1000", "give");
    }

    /** Every rank has as many heads, and at least a token. */
    @Test
    void headsAndTokensAreDivided() {
        Machine machine = new Machine(4, 12L << 30, 0, 0, 1);
        Job job = Job.of(Presets.of("gpt2-1.5b"), machine);
        assertEquals(25, job.model().heads());
        Techniques four = Techniques.PLAIN.withModelParallel(4, 1);
        refused(() -> MemoryPlanner.plan(job, four), "tensor parallel 4", "25 heads", "give");
        MemoryPlanner.Space space = new MemoryPlanner.Space(false, false, true);
        assertTrue(MemoryPlanner.combinations(job, space).stream().allMatch(t -> t.tensor() == 1));
        // Larger ones of the same proportions have heads that divide.
        List<Model> ladder = ScalingRule.like(job.model()).ladder(10_000_000_000L);
        assertLargest(job, four, ladder);
        Plan largest = MemoryPlanner.largest(job, four, ladder);
        assertEquals(0, largest.job().model().heads() % 4);
        assertTrue(
                MemoryPlanner.search(job, space).stream()
                        .anyMatch(p -> p.techniques().tensor() == 4));
        Techniques tokens = Techniques.PLAIN.withSplit(new ModelParallel(1, true, 1, 1, 4, 1));
        refused(
                () -> MemoryPlanner.plan(job.with(job.model().with(50_257, 3)), tokens),
                "context parallel 4",
                "tokens, 3");
    }

    /** Of a deep model's ladder a wider one has many layers less, and needs less than the last. */
    @Test
    void theLargestDeepModelMayBeBehindManyThatDoNotFit() {
        Model deep = Model.gpt(48, 128, 2, 40_000, 4096);
        List<Model> ladder = ScalingRule.like(deep).ladder(200_000_000L);
        for (long gib : new long[] {20, 44, 48}) {
            Job job = Job.of(deep, new Machine(1, gib << 30, 0, 0, 1));
            assertLargest(job, Techniques.PLAIN, ladder);
        }
        Job job = Job.of(deep, new Machine(1, 48L << 30, 0, 0, 1));
        Model largest = MemoryPlanner.largest(job, Techniques.PLAIN, ladder).job().model();
        assertEquals(256, largest.hidden());
    }

    /** Models of fewer layers than stages are left out, whatever model the job has. */
    @Test
    void theLargestModelHasALayerForEveryStage() {
        List<Model> ladder = ScalingRule.GPT.ladder(200_000_000_000L);
        assertEquals(1, ladder.getFirst().layers());
        Techniques four = Techniques.PLAIN.withSplit(new ModelParallel(1, true, 4, 1, 1, 1));
        Job small = Job.of(Model.gpt(1, 128, 1, 100, 10), new Machine(4, 1L << 30, 0, 0, 1));
        Plan none = MemoryPlanner.largest(small, four, ladder);
        assertFalse(none.fits());
        assertEquals(4, none.job().model().layers());
        Machine larger = new Machine(4, 16L << 30, 0, 0, 1);
        assertTrue(MemoryPlanner.largest(small.with(larger), four, ladder).fits());
        refused(
                () -> MemoryPlanner.largest(small, four, ladder.subList(0, 3)),
                "pipeline parallel 4",
                "more stages than the model has layers",
                "give fewer");
    }

    /** Every combination is made once, in order, and each is a valid one. */
    @Test
    void combinationsAreAllDifferentAndInOrder() {
        Job job = Job.of(MODEL, MACHINE);
        List<Techniques> all = MemoryPlanner.combinations(job, MemoryPlanner.Space.of(MACHINE));
        Set<Techniques> different = new HashSet<>(all);
        assertEquals(different.size(), all.size());
        // Stages 4, optimizer with gradients 1 + 2 + 3, activations 3, recomputation 3; pieces 6
        // but
        // for whole parameters on the device.
        assertEquals(3 * 6 * 9 * (1 + 6 + 6) + 6 * 9 * 3 * 6, all.size());
        for (int i = 1; i < all.size(); i++) {
            Techniques before = all.get(i - 1);
            Techniques after = all.get(i);
            assertTrue(
                    before.count() < after.count()
                            || (before.count() == after.count() && before.cost() <= after.cost()));
        }
        for (Techniques t : all) {
            assertEquals(t.names().size(), t.count());
        }
    }

    @Test
    void whatToSwitchOnNext() {
        Job job = Job.of(Presets.of("gpt3-13b"), new Machine(8, 80L << 30, 1L << 40, 0, 1));
        Techniques now = Techniques.PLAIN;
        assertFalse(MemoryPlanner.plan(job, now).fits());
        List<Plan> next =
                MemoryPlanner.next(job, now.withStage(1), MemoryPlanner.Space.of(job.machine()));
        assertFalse(next.isEmpty());
        for (Plan plan : next) {
            assertTrue(plan.fits());
            assertTrue(plan.techniques().includes(now.withStage(1)));
        }
        List<Plan> fitting = MemoryPlanner.fitting(job, MemoryPlanner.Space.of(job.machine()));
        assertEquals(
                fitting.size(),
                MemoryPlanner.next(job, now, MemoryPlanner.Space.of(job.machine())).size());
    }

    /** The split and the pieces in use stay, on the way to a fit and to the largest model. */
    @Test
    void whatIsGivenStays() {
        Job job = Job.of(Presets.of("llama3-70b"), new Machine(8, 80L << 30, 1L << 40, 0, 1));
        MemoryPlanner.Space space = MemoryPlanner.Space.of(job.machine());
        for (ModelParallel split :
                List.of(
                        ModelParallel.of(8, 1),
                        new ModelParallel(4, false, 2, 2, 1, 1),
                        new ModelParallel(1, true, 1, 1, 8, 1))) {
            Techniques now = Techniques.PLAIN.withSplit(split);
            assertFalse(MemoryPlanner.plan(job, now).fits());
            List<Plan> next = MemoryPlanner.next(job, now, space);
            assertFalse(next.isEmpty());
            assertTrue(next.stream().allMatch(p -> p.techniques().split().equals(split)));
            long most =
                    MemoryPlanner.frontier(MemoryPlanner.search(job, now, space))
                            .getLast()
                            .job()
                            .model()
                            .parameters();
            List<Model> ladder = ScalingRule.like(job.model()).ladder(Model.MAX_PARAMETERS);
            for (Plan plan : next.subList(0, 5)) {
                Plan largest = MemoryPlanner.largest(job, plan.techniques(), ladder);
                assertTrue(largest.job().model().parameters() <= most);
            }
        }
        Techniques pieces =
                Techniques.PLAIN
                        .withStage(3)
                        .withPieces(48)
                        .withActivations(DEVICE, Recomputation.SELECTIVE);
        List<Plan> next = MemoryPlanner.next(job, pieces, space);
        assertFalse(next.isEmpty());
        assertTrue(next.stream().allMatch(p -> p.techniques().pieces() == 48));
    }

    /** Flash attention keeps no scores that could be computed again. */
    @Test
    void selectiveRecomputationIsTriedWhereItSaves() {
        Job job = Job.of(MODEL, MACHINE);
        MemoryPlanner.Space space = MemoryPlanner.Space.of(MACHINE);
        long all = MemoryPlanner.combinations(job, space).size();
        List<Techniques> flash = MemoryPlanner.combinations(job.with(AttentionKernel.FLASH), space);
        assertEquals(all * 2 / 3, flash.size());
        assertTrue(flash.stream().noneMatch(t -> t.recomputation() == Recomputation.SELECTIVE));
    }

    @Test
    void theFrontierRises() {
        Job job = Job.of(MODEL, MACHINE);
        List<Plan> found = MemoryPlanner.search(job, MemoryPlanner.Space.of(MACHINE));
        List<Plan> frontier = MemoryPlanner.frontier(found);
        assertSame(found.getFirst(), frontier.getFirst());
        long best = found.stream().mapToLong(p -> p.job().model().parameters()).max().orElse(0);
        assertEquals(best, frontier.getLast().job().model().parameters());
        for (int i = 1; i < frontier.size(); i++) {
            assertTrue(
                    frontier.get(i).job().model().parameters()
                            > frontier.get(i - 1).job().model().parameters());
        }
    }

    /** Volumes are exact up to the most that a long holds; a step with more samples is refused. */
    @Test
    void volumesAreNotClipped() {
        Machine many = new Machine(8, 80L << 30, 1L << 40, 0, 128);
        Job job = Job.of(Presets.of("mt-nlg-530b"), many).with(new Batch(1, 1_000_000));
        Plan plan = MemoryPlanner.plan(job, Techniques.PLAIN.withStage(3));
        double once = 1023.0 / 1024 * 2 * job.model().parameters();
        assertEquals(
                2e6 * once, (double) traffic(plan, Kind.ALL_GATHER, "parameters"), 1e-9 * once);
        Machine vast = new Machine(1024, 80L << 30, 1L << 40, 0, 1_000_000);
        refused(
                () ->
                        MemoryPlanner.plan(
                                job.with(vast).with(new Batch(1_000_000, 1_000_000)),
                                Techniques.PLAIN),
                "samples of a step",
                "1.024E21",
                "fewer machines");
    }

    @Test
    void nothingOverflows() {
        Model vast = Model.gpt(10_000, 90_000, 90_000, 51_200, 100_000_000);
        Job job =
                new Job(
                        vast,
                        new Batch(1_000_000, 1_000_000),
                        Precision.FP32,
                        OptimizerKind.ADAM,
                        MACHINE,
                        Overheads.DEFAULT);
        Plan plan = MemoryPlanner.plan(job, Techniques.PLAIN);
        assertFalse(plan.fits());
        assertTrue(plan.device().total() > 0 && plan.device().missing() > 0);
        assertTrue(plan.compute().flops() > 0);
    }

    private static void refused(Supplier<?> what, String... parts) {
        String message =
                String.valueOf(
                        assertThrows(IllegalArgumentException.class, what::get).getMessage());
        for (String part : parts) {
            assertTrue(message.contains(part), message);
        }
    }

    @Test
    void badInputIsRefusedByName() {
        refused(() -> Model.gpt(0, 128, 1, 100, 10), "layers", "is 0", "expected 1");
        refused(() -> Model.gpt(1, 128, 129, 100, 10), "heads", "129", "128");
        refused(
                () -> Model.gpt(1_000_000, 10_000_000, 1, 100, 10),
                "parameters",
                "1000000000000000");
        refused(() -> MODEL.withParameters(1000), "1000", "embeddings", "51200");
        refused(() -> Model.ofParameters(0), "parameters", "is 0");
        refused(() -> Model.of(1, 128, 1, 100, 10, Double.NaN, true), "NaN");
        refused(() -> new Batch(0, 1), "micro-batch", "is 0");
        refused(() -> new Machine(0, 1, 1, 0, 1), "GPUs", "is 0");
        refused(() -> new Machine(1, 1, -1, 0, 1), "host memory", "-1");
        refused(() -> new Overheads(0, 1, 0, 0, 0, 1, 1), "waste", "1.0", "0.9");
        refused(() -> Techniques.PLAIN.withStage(4), "stage", "is 4", "0 to 3");
        refused(
                () -> Techniques.PLAIN.withState(DEVICE, PINNED, DEVICE),
                "gradients",
                "PINNED",
                "DEVICE");
        refused(() -> Techniques.PLAIN.withPieces(2), "2 pieces", "stage 3");
        refused(() -> Presets.of("gpt5"), "'gpt5'", "gpt3-175b");
        refused(
                () -> Precision.of("int4"),
                "'int4'",
                "fp32, fp16, bf16, fp8, bf16-states, bf16-pure");
        refused(() -> OptimizerKind.of("adagrad"), "'adagrad'", "adamw");
        assertEquals(OptimizerKind.ADAM_8BIT, OptimizerKind.of("adam-8bit"));
        refused(() -> Recomputation.of("some"), "'some'", "none, selective, full");
        refused(
                () ->
                        MemoryPlanner.plan(
                                Job.of(MODEL, MACHINE), Techniques.PLAIN.withModelParallel(3, 1)),
                "3",
                "16 GPUs");
        refused(
                () ->
                        MemoryPlanner.plan(
                                Job.of(Model.gpt(2, 128, 1, 100, 10), MACHINE),
                                Techniques.PLAIN.withModelParallel(1, 8)),
                "pipeline parallel 8",
                "layers, 2");
    }

    @Test
    void formulasNameTheirSources() {
        for (Formula f : Formula.values()) {
            assertFalse(f.title().isBlank() || f.text().isBlank() || f.source().isBlank());
        }
    }

    /** Each can be planned, and each way to split that the job allows is among them. */
    @Test
    void modelsAreSplitInEveryWayThatWorks() {
        Machine machine = new Machine(8, 80L << 30, 0, 0, 4);
        Job job = Job.of(Presets.of("mixtral-8x7b").with(32_000, 8192), machine);
        MemoryPlanner.Space space = new MemoryPlanner.Space(false, false, true);
        Set<ModelParallel> splits = new HashSet<>();
        for (Techniques t : MemoryPlanner.combinations(job, space)) {
            MemoryPlanner.plan(job, t);
            splits.add(t.split());
        }
        assertTrue(splits.contains(ModelParallel.NONE));
        assertTrue(splits.contains(new ModelParallel(2, true, 4, 1, 4, 4)));
        assertTrue(splits.contains(new ModelParallel(1, true, 8, 4, 1, 4)));
        assertTrue(splits.contains(new ModelParallel(1, true, 1, 1, 8, 8)));
        for (ModelParallel s : splits) {
            assertTrue(s.tensor() <= 8 && s.context() <= 8 && s.expert() <= 8, s::toString);
            assertTrue(s.ways() <= 32 && s.pipeline() * s.chunks() <= 32, s::toString);
        }
        // A pipeline has no more stages than the model has layers.
        assertEquals(
                2,
                MemoryPlanner.combinations(job.with(Model.gpt(2, 128, 1, 100, 10)), space).stream()
                        .mapToInt(t -> t.split().pipeline())
                        .max()
                        .orElseThrow());
        // Without experts no ranks share them out; without leave nothing is split.
        Job dense = job.with(Presets.of("llama3-8b"));
        assertTrue(
                MemoryPlanner.combinations(dense, space).stream()
                        .allMatch(t -> t.split().expert() == 1));
        assertTrue(
                MemoryPlanner.combinations(job, new MemoryPlanner.Space(true, true, false)).stream()
                        .allMatch(t -> t.split().equals(ModelParallel.NONE)));
    }
}
