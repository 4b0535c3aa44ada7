package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.Sgd;
import io.jccl.parallel.Compression;
import io.jccl.parallel.ExpertRouter;
import io.jccl.testkit.AllocationRounds;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Every technique computes what a single rank does. */
@Timeout(value = 180, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TechniquesTest {
    private static final int STEPS = 12;
    private static final int BATCH = 8;

    /** Other orders of sums: a few parts of 2^-24, times the steps' growth. */
    private static final double TOLERANCE = 1e-6;

    /** Bfloat16: every parameter is off by up to 2^-9 of itself. */
    private static final double NARROW = 3e-3;

    /** A rounded gate may send a token to another expert. */
    private static final double NARROW_EXPERTS = 5e-2;

    private static final Corpus CORPUS = Corpus.grammar(1);

    /** Losses of a single rank, by the number of steps. */
    private static final Map<Integer, List<Double>> SINGLE = new HashMap<>();

    @TempDir private static Path folder;

    private static RunSettings settings(
            String techniques, int experts, long seed, Optimizer optimizer, int steps) {
        return settings(techniques, experts, seed, optimizer, steps, null, false);
    }

    private static RunSettings settings(
            String techniques,
            int experts,
            long seed,
            Optimizer optimizer,
            int steps,
            @Nullable Path checkpoint,
            boolean resume) {
        return settings(
                techniques,
                shape(experts, Routing.SWITCH, false),
                seed,
                optimizer,
                steps,
                checkpoint,
                resume);
    }

    private static GptShape shape(int experts, Routing routing, boolean shared) {
        int vocabulary = CORPUS.vocabulary().size();
        return new GptShape(2, 32, 4, 16, vocabulary, experts, routing, 1.5, shared);
    }

    private static RunSettings settings(
            String techniques,
            GptShape shape,
            long seed,
            Optimizer optimizer,
            int steps,
            @Nullable Path checkpoint,
            boolean resume) {
        Techniques t = Techniques.parse(techniques);
        t.check(shape, BATCH);
        return new RunSettings(
                shape,
                t,
                BATCH,
                steps,
                0.003,
                optimizer,
                Recipe.NONE,
                Evaluation.NONE,
                seed,
                1,
                folder,
                checkpoint,
                5,
                resume ? RunSettings.NEWEST : RunSettings.START,
                null,
                null);
    }

    private static List<Double> losses(RunSettings s) {
        return trained(s).losses();
    }

    /** What rank 0 reports. */
    private static TrainResult trained(RunSettings s) {
        int ranks = s.techniques().ranks();
        TrainRun run = new TrainRun(CORPUS, s, ranks);
        AtomicReference<TrainResult> result = new AtomicReference<>();
        Communicator.runLocal(
                ranks,
                comm -> {
                    TrainResult mine = run.run(comm, step -> {});
                    if (comm.rank() == 0) {
                        result.set(mine);
                    }
                });
        return Objects.requireNonNull(result.get());
    }

    private static List<Double> single(int steps) {
        return SINGLE.computeIfAbsent(steps, TechniquesTest::trainedSingle);
    }

    private static List<Double> trainedSingle(int steps) {
        return losses(settings("single", 0, 1, Adam.defaults(), steps));
    }

    private static double difference(List<Double> a, List<Double> b) {
        assertEquals(a.size(), b.size());
        double most = 0;
        for (int i = 0; i < a.size(); i++) {
            most = Math.max(most, Math.abs(a.get(i) - b.get(i)));
        }
        return most;
    }

    @ParameterizedTest
    @ValueSource(strings = "dp=2 zero=3 offload=nvme bf16 recompute")
    void losesAsASingleRankDoes(String techniques) {
        List<Double> expected = single(STEPS);
        RunSettings s = settings(techniques, 0, 1, Adam.defaults(), STEPS);
        double difference = difference(expected, losses(s));
        boolean narrow =
                s.techniques().narrow() || s.techniques().compress() instanceof Compression.Cast;
        double tolerance = narrow ? NARROW : TOLERANCE;
        System.out.printf("%s: differs by %.1e%n", techniques, difference);
        assertTrue(difference <= tolerance, techniques + " differs by " + difference);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "dp=4 accumulate=2 compress=fp16",
                "dp=2 compress=topk:1",
                "dp=2 zero=2 offload=state",
                "tp=2 zero=1 fp16",
                "fp16",
                "offload=host",
                "dp=2",
                "dp=2 compress=bf16",
                "dp=2 zero=0",
                "dp=2 zero=1 accumulate=2",
                "dp=4 zero=3",
                "pp=2 accumulate=4 zero=2 fp16",
                "tp=4 recompute",
                "pp=2 schedule=1f1b accumulate=4 recompute",
                "dp=2 pp=2 accumulate=2 zero=3",
                "dp=2 tp=2 zero=2 sequence-parallel recompute",
                "accumulate=2",
                "recompute",
                "tp=2 pp=2 accumulate=4 sequence-parallel",
                "dp=4",
                "dp=2 accumulate=2",
                "dp=2 zero=2 accumulate=2",
                "dp=2 zero=3 offload=host",
                "tp=2",
                "tp=2 sequence-parallel",
                "pp=2 accumulate=4 bf16",
                "bf16",
                "pp=2 schedule=gpipe accumulate=4"
            })
    void moreLosesAsASingleRankDoes(String techniques) {
        losesAsASingleRankDoes(techniques);
    }

    /** Experts drop tokens by micro-batch, so the single rank computes the same ones. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "dp=2 ep=2 tp=2 zero=2 sequence-parallel",
                "dp=4 ep=4 recompute",
                "dp=2 ep=2 accumulate=2 zero=3",
                "dp=4 ep=2 zero=2 bf16",
                "dp=2 ep=2 tp=2 fp16",
                "dp=2 ep=2 pp=2 accumulate=2",
                "dp=2 ep=2",
                "dp=4 ep=2",
                "dp=2 accumulate=2",
                "tp=2",
                "tp=4 sequence-parallel recompute",
                "dp=2 ep=2 tp=2",
                "tp=2 pp=2 accumulate=4 sequence-parallel"
            })
    void expertsLoseAsOnASingleRank(String techniques) {
        routersLoseAsOnASingleRank(techniques, Routing.SWITCH, false);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("dp=2 ep=2 tp=2 accumulate=2, TOP2, true")
    void routersLoseAsOnASingleRank(String techniques, Routing routing, boolean shared) {
        losesAsOnASingleRank(techniques, shape(4, routing, shared));
    }

    /** A stage in the middle has neither the embedding nor the head. */
    @Test
    void rowsAreSharedInTheMiddleOfAPipelineToo() {
        int vocabulary = CORPUS.vocabulary().size();
        losesAsOnASingleRank(
                "tp=2 pp=3 accumulate=2 sequence-parallel",
                new GptShape(3, 32, 4, 16, vocabulary, 0, Routing.SWITCH, 1.5, false));
    }

    /** Noise, dropout and chance draw by a token's place, wherever it is computed. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "dp=2 ep=2 pp=2 accumulate=2, VMOE, true",
        "dp=2 ep=2 tp=2 sequence-parallel recompute, GSHARD, false",
        "dp=4 ep=4 zero=3, SWITCH, true",
        "tp=4 recompute, TOP2, false",
        "dp=2 ep=2 tp=2 accumulate=2, NO_DROP, false",
        "dp=4 ep=2 zero=1 bf16, NEXT_BEST, true"
    })
    void noiseIsTheSameInAllLayouts(String techniques, Routing routing, boolean adapts) {
        MixtureSettings all = NOISE.withSample(routing.samples()).withMinCapacity(3);
        losesAsOnASingleRank(techniques, noisy(routing, adapts ? -1 : 1.5, all));
    }

    private static final MixtureSettings NOISE = new MixtureSettings(0.1, 0.1, 0.3, 0.2, 0.5, true);

    private static GptShape noisy(Routing routing, double capacityFactor, MixtureSettings m) {
        return tight(routing, capacityFactor, false).with(m);
    }

    /** Each setting has an effect, and a checkpoint in the middle has none. */
    @Tag("exhaustive")
    @Test
    void settingsOfMixturesDifferAndResume(@TempDir Path checkpoint) {
        List<MixtureSettings> all =
                List.of(
                        MixtureSettings.NONE,
                        new MixtureSettings(0.1, 0, 0, 0, 0, false),
                        new MixtureSettings(0, 0.1, 0, 0, 0, false),
                        new MixtureSettings(0, 0, 0.3, 0, 0, false),
                        new MixtureSettings(0, 0, 0, 0.2, 0, false),
                        new MixtureSettings(0, 0, 0, 0, 0.5, false),
                        new MixtureSettings(0, 0, 0, 0, 0, true),
                        MixtureSettings.NONE.withSample(true),
                        MixtureSettings.NONE.withMinCapacity(1000),
                        NOISE);
        Set<List<Double>> losses = new HashSet<>();
        for (MixtureSettings m : all) {
            assertTrue(losses.add(withRouter(noisy(Routing.SWITCH, 1, m)).losses()), m::text);
        }
        GptShape shape = noisy(Routing.GSHARD, 1, NOISE);
        List<Double> whole = losses(settings("single", shape, 1, Adam.defaults(), 6, null, false));
        losses(settings("single", shape, 1, Adam.defaults(), 3, checkpoint, false));
        List<Double> rest =
                losses(settings("single", shape, 1, Adam.defaults(), 6, checkpoint, true));
        assertEquals(whole.subList(3, 6), rest);
    }

    /** What is not trained on meets no noise. */
    @Test
    void evaluationHasNoNoise() {
        // Without residual experts both have the same parameters.
        MixtureSettings noise = new MixtureSettings(0.1, 0.1, 0.3, 0.2, 0, false);
        assertEquals(
                heldOut(noisy(Routing.GSHARD, 1, MixtureSettings.NONE)),
                heldOut(noisy(Routing.GSHARD, 1, noise)));
        for (Routing sampled : List.of(Routing.SWITCH, Routing.TOP2)) {
            assertEquals(
                    heldOut(noisy(sampled, 1, MixtureSettings.NONE)),
                    heldOut(noisy(sampled, 1, noise.withSample(true))));
        }
    }

    /** The loss of the held-out text before the first step, twice. */
    private static List<Double> heldOut(GptShape shape) {
        RunSettings s =
                new RunSettings(
                        shape,
                        Techniques.NONE,
                        BATCH,
                        1,
                        0.003,
                        Adam.defaults(),
                        Recipe.NONE,
                        new Evaluation(1, 0.1, 2, 0),
                        1,
                        1,
                        null,
                        null,
                        5,
                        RunSettings.START,
                        null,
                        null);
        AtomicReference<List<Double>> found = new AtomicReference<>();
        Communicator.runLocal(
                1,
                comm -> {
                    try (GptTrainer trainer = new GptTrainer(comm, CORPUS, s)) {
                        trainer.initialize();
                        double first = trainer.evaluator().loss();
                        found.set(List.of(first, trainer.evaluator().loss()));
                    }
                });
        List<Double> losses = Objects.requireNonNull(found.get());
        assertEquals(losses.getFirst(), losses.getLast());
        return losses;
    }

    /** Logits are not rounded to bfloat16 where parameters are. */
    @Tag("exhaustive")
    @Test
    void routersComputeInFloat32() {
        RunSettings s =
                settings("bf16", shape(4, Routing.TOP2, false), 1, Adam.defaults(), 1, null, false);
        double[] shares = new double[2];
        Communicator.runLocal(
                1,
                comm -> {
                    try (GptTrainer trainer = new GptTrainer(comm, CORPUS, s)) {
                        trainer.initialize();
                        trainer.step();
                        ExpertRouter router = trainer.stage().experts().getFirst().router();
                        for (int t = 0; t < router.tokens(); t++) {
                            double at = Math.log(router.gate(t, 0));
                            double to = Math.log(router.gate(t, 1));
                            shares[0] += onGrid(to - at) ? 1.0 / router.tokens() : 0;
                            double rounded = narrow(to) - narrow(at);
                            shares[1] += onGrid(rounded) ? 1.0 / router.tokens() : 0;
                        }
                    }
                });
        assertTrue(shares[0] < 0.2, "on the grid: " + shares[0]);
        assertTrue(shares[1] > 0.9, "on the grid if rounded: " + shares[1]);
    }

    /** Rounded to bfloat16, halves away from 0. */
    private static double narrow(double x) {
        return Float.intBitsToFloat((Float.floatToRawIntBits((float) x) + 0x8000) & 0xFFFF0000);
    }

    /** Whether a number is a multiple of 2^-12, as of bfloat16 those above 1/16 are. */
    private static boolean onGrid(double x) {
        double steps = x * 0x1p12;
        return Math.abs(steps - Math.rint(steps)) < 0.02;
    }

    private static void losesAsOnASingleRank(String techniques, GptShape shape) {
        Routing routing = shape.routing();
        RunSettings s = settings(techniques, shape, 1, Adam.defaults(), STEPS, null, false);
        String one = s.techniques().reference().toString();
        RunSettings single = settings(one, shape, 1, Adam.defaults(), STEPS, null, false);
        double difference = difference(losses(single), losses(s));
        double tolerance = s.techniques().narrow() ? NARROW_EXPERTS : TOLERANCE;
        System.out.printf(
                "%s with experts by %s: differs by %.1e%n", techniques, routing, difference);
        assertTrue(difference <= tolerance, techniques + " differs by " + difference);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "dp=4 ep=2 zero=3 accumulate=2, EXPERT_CHOICE, false",
        "dp=2 ep=2 tp=2 sequence-parallel, GSHARD, false",
        "dp=4 ep=4 recompute, GSHARD, true",
        "dp=2 ep=2 pp=2 accumulate=2, VMOE, true",
        "dp=2 ep=2 tp=2 sequence-parallel recompute, NEXT_BEST, true",
        "dp=2 ep=2 pp=2 tp=2 accumulate=2, NO_DROP, true",
        "dp=4 ep=4 recompute, NO_DROP, false"
    })
    void routersLoseAsOnASingleRankInMoreCases(String techniques, Routing routing, boolean shared) {
        routersLoseAsOnASingleRank(techniques, routing, shared);
    }

    /** Each router and a shared expert make a model of their own; without a capacity none drops. */
    @Test
    void routersDiffer() {
        Set<List<Double>> all = new HashSet<>();
        for (Routing r : Routing.values()) {
            for (boolean shared : new boolean[] {false, true}) {
                TrainResult result = withRouter(tight(r, 1, shared));
                assertTrue(all.add(result.losses()), r + " loses as another router does");
                List<ExpertLoad> loads = result.experts();
                assertEquals(2, loads.size());
                for (ExpertLoad load : loads) {
                    double sum = load.shares().stream().mapToDouble(Double::doubleValue).sum();
                    assertEquals(4, sum, 1e-9, r::label);
                    assertEquals(r == Routing.EXPERT_CHOICE, load.fullest() == 1, r::label);
                }
                boolean drops = loads.stream().anyMatch(l -> l.droppedChoices() > 0);
                boolean none = r == Routing.NO_DROP || r == Routing.EXPERT_CHOICE;
                assertTrue(r == Routing.NEXT_BEST || drops != none, r::label);
            }
        }
    }

    /** A capacity that adapts drops what its bound does, and nothing without one. */
    @Test
    void capacityThatAdaptsDropsNoMoreThanItsBound() {
        TrainResult all = withRouter(tight(Routing.SWITCH, 0, false));
        assertEquals(withRouter(tight(Routing.NO_DROP, 1, false)).losses(), all.losses());
        TrainResult few = withRouter(tight(Routing.TOP2, 0.5, false));
        TrainResult bounded = withRouter(tight(Routing.TOP2, -0.5, false));
        assertEquals(few.losses(), bounded.losses());
        for (ExpertLoad load : all.experts()) {
            assertEquals(0, load.droppedChoices());
            assertTrue(load.capacity() > 1, "capacity " + load.capacity());
        }
        for (ExpertLoad load : bounded.experts()) {
            assertTrue(load.droppedChoices() > 0);
            assertEquals(0.5, load.capacity(), 0.01);
        }
    }

    /** Blocks of any number of rows compute as those with room for all tokens. */
    @Test
    void roomForAllIsNoCapacity() {
        assertEquals(
                withRouter(tight(Routing.SWITCH, 4, false)).losses(),
                withRouter(tight(Routing.NO_DROP, 1, false)).losses());
    }

    private static GptShape tight(Routing routing, double capacityFactor, boolean shared) {
        int vocabulary = CORPUS.vocabulary().size();
        return new GptShape(2, 32, 4, 16, vocabulary, 4, routing, capacityFactor, shared);
    }

    private static TrainResult withRouter(GptShape shape) {
        return trained(settings("single", shape, 1, Adam.defaults(), 3, null, false));
    }

    /** What the tolerance would not let pass. */
    @Tag("exhaustive")
    @Test
    void otherSamplesOrRatesDifferByMoreThanTheTolerance() {
        List<Double> expected = single(STEPS);
        List<Double> others = losses(settings("single", 0, 2, Adam.defaults(), STEPS));
        assertTrue(difference(expected, others) > 5 * NARROW);
        List<Double> rule = losses(settings("single", 0, 1, Sgd.withMomentum(0.9), STEPS));
        assertTrue(difference(expected, rule) > 5 * NARROW);
    }

    @Test
    void learnsMoreThanTheFrequencyOfCharacters() {
        List<Double> losses = single(80);
        assertEquals(Math.log(CORPUS.vocabulary().size()), losses.getFirst(), 0.3);
        double entropy = CORPUS.unigramEntropy();
        assertTrue(losses.getLast() < 0.75 * entropy, losses.getLast() + " of " + entropy);
    }

    /** Most of each gradient comes late: the loss falls, though not as a single rank's does. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "dp=2 tp=2 compress=powersgd:4")
    void learnsFromWhatCompressionLeaves(String techniques) {
        List<Double> losses = losses(settings(techniques, 0, 1, Adam.defaults(), 80));
        assertTrue(difference(single(80), losses) > 100 * TOLERANCE, techniques);
        double entropy = CORPUS.unigramEntropy();
        assertTrue(losses.getLast() < 0.9 * entropy, losses.getLast() + " of " + entropy);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"dp=2 tp=2 compress=powersgd:4", "dp=2 compress=topk:0.1"})
    void learnsTheSameFromWhatCompressionLeaves(String techniques) {
        assertEquals(
                losses(settings(techniques, 0, 1, Adam.defaults(), 80)),
                losses(settings(techniques, 0, 1, Adam.defaults(), 80)));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "dp=2 compress=topk:0.1")
    void learnsFromWhatSparseGradientsLeave(String techniques) {
        learnsFromWhatCompressionLeaves(techniques);
    }

    @Tag("exhaustive")
    @Test
    void sameSeedSameBits() {
        assertEquals(trainedSingle(STEPS), trainedSingle(STEPS));
        String two = "dp=2 zero=3 accumulate=2";
        assertEquals(
                losses(settings(two, 0, 1, Adam.defaults(), STEPS)),
                losses(settings(two, 0, 1, Adam.defaults(), STEPS)));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"pp=2 accumulate=4 schedule=gpipe bf16", "pp=2 accumulate=4"})
    void messagesBesideComputationChangeNoBit(String techniques) {
        assertEquals(
                losses(settings(techniques + " no-overlap", 0, 1, Adam.defaults(), STEPS)),
                losses(settings(techniques, 0, 1, Adam.defaults(), STEPS)));
    }

    /** Steps 6 to 12 from a checkpoint are those of a run that never stopped, bit for bit. */
    @ParameterizedTest
    @CsvSource({"dp=2 ep=2 tp=2, 4"})
    void resumesToTheSameLosses(String techniques, int experts, @TempDir Path checkpoint) {
        List<Double> whole = losses(settings(techniques, experts, 1, Adam.defaults(), STEPS));
        losses(settings(techniques, experts, 1, Adam.defaults(), 6, checkpoint, false));
        List<Double> rest =
                losses(settings(techniques, experts, 1, Adam.defaults(), STEPS, checkpoint, true));
        assertEquals(whole.subList(6, STEPS), rest);
        assertNotEquals(whole.subList(0, 6), rest);
    }

    /** The pipeline of a run that was finished before has no bubble to report. */
    @Test
    void aFinishedRunResumesToNothing(@TempDir Path checkpoint) {
        String two = "pp=2 accumulate=2";
        TrainResult first = trained(settings(two, 0, 1, Adam.defaults(), 1, checkpoint, false));
        assertEquals(2, first.bubble().size());
        TrainResult again = trained(settings(two, 0, 1, Adam.defaults(), 1, checkpoint, true));
        assertEquals(List.of(), again.losses());
        assertEquals(List.of(), again.bubble());
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "dp=2 zero=3 offload=nvme, 0",
        "pp=2 accumulate=4 bf16, 0",
        "dp=2 compress=topk:0.1, 0",
        "single, 0",
        "dp=2, 0",
        "dp=2 zero=2 bf16, 0",
        "tp=2, 0",
        "dp=2 compress=powersgd:2, 0"
    })
    void resumesToTheSameLossesInMoreCases(
            String techniques, int experts, @TempDir Path checkpoint) {
        resumesToTheSameLosses(techniques, experts, checkpoint);
    }

    /** Replicas may be more or fewer after a checkpoint. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"dp=4 zero=3, dp=2 zero=1", "dp=2 zero=2, offload=host", "dp=2, dp=4"})
    void resumesOnOtherNumbersOfRanks(String before, String after, @TempDir Path checkpoint) {
        List<Double> whole = single(STEPS);
        losses(settings(before, 0, 1, Adam.defaults(), 6, checkpoint, false));
        List<Double> rest = losses(settings(after, 0, 1, Adam.defaults(), STEPS, checkpoint, true));
        assertTrue(difference(whole.subList(6, STEPS), rest) <= TOLERANCE);
    }

    /** A step takes no memory of the Java heap, on any rank. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "single, 0",
        "single, 4",
        "dp=2 accumulate=2, 0",
        "dp=2 compress=bf16, 0",
        "dp=2 ep=2, 4",
        "pp=2 accumulate=4, 0",
        "recompute, 0",
        "tp=2 sequence-parallel, 0",
        "tp=2 sequence-parallel, 4"
    })
    void stepsAllocateNothing(String techniques, int experts) {
        RunSettings s = settings(techniques, experts, 1, Adam.defaults(), 10_000);
        int ranks = s.techniques().ranks();
        // An object of 16 bytes in every other step would fail.
        AllocationRounds rounds = new AllocationRounds(ranks, 8);
        Communicator.runLocal(
                ranks,
                comm -> {
                    try (GptTrainer trainer = new GptTrainer(comm, CORPUS, s)) {
                        trainer.initialize();
                        rounds.repeat(comm.rank(), 100, trainer::step);
                    }
                });
        rounds.assertNone(techniques);
    }
}
