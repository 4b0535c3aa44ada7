package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.jccl.Communicator;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.Sgd;
import io.jccl.parallel.Compression;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CyclicBarrier;
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

    /** What counts as an allocation of each step. */
    private static final int LEAST_BYTES = 16;

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
    @ValueSource(
            strings = {
                "bf16",
                "fp16",
                "offload=host",
                "dp=2",
                "dp=2 compress=bf16",
                "dp=4 accumulate=2 compress=fp16",
                "dp=2 compress=topk:1",
                "dp=2 zero=0",
                "dp=2 zero=1 accumulate=2",
                "dp=4 zero=3",
                "dp=2 zero=3 offload=nvme bf16 recompute",
                "dp=2 zero=2 offload=state",
                "tp=2 zero=1 fp16",
                "pp=2 accumulate=4 zero=2 fp16",
                "tp=4 recompute",
                "pp=2 schedule=gpipe accumulate=4",
                "pp=2 schedule=1f1b accumulate=4 recompute",
                "dp=2 pp=2 accumulate=2 zero=3",
                "tp=2 pp=2 accumulate=4 sequence-parallel",
                "dp=2 tp=2 zero=2 sequence-parallel recompute"
            })
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
                "accumulate=2",
                "recompute",
                "dp=4",
                "dp=2 accumulate=2",
                "dp=2 zero=2 accumulate=2",
                "dp=2 zero=3 offload=host",
                "tp=2",
                "tp=2 sequence-parallel",
                "pp=2 accumulate=4 bf16"
            })
    void moreLosesAsASingleRankDoes(String techniques) {
        losesAsASingleRankDoes(techniques);
    }

    /** Experts drop tokens by micro-batch, so the single rank computes the same ones. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "dp=4 ep=4 recompute",
                "dp=2 ep=2 accumulate=2 zero=3",
                "dp=4 ep=2 zero=2 bf16",
                "dp=2 ep=2 tp=2 fp16",
                "dp=2 ep=2 pp=2 accumulate=2",
                "dp=2 ep=2 tp=2 zero=2 sequence-parallel"
            })
    void expertsLoseAsOnASingleRank(String techniques) {
        routersLoseAsOnASingleRank(techniques, Routing.SWITCH, false);
    }

    @ParameterizedTest
    @CsvSource({
        "dp=2 ep=2 tp=2 accumulate=2, TOP2, true",
        "dp=4 ep=2 zero=3 accumulate=2, EXPERT_CHOICE, false",
        "dp=4 ep=4 recompute, NO_DROP, false"
    })
    void routersLoseAsOnASingleRank(String techniques, Routing routing, boolean shared) {
        GptShape shape = shape(4, routing, shared);
        RunSettings s = settings(techniques, shape, 1, Adam.defaults(), STEPS, null, false);
        String one = s.techniques().reference().toString();
        RunSettings single = settings(one, shape, 1, Adam.defaults(), STEPS, null, false);
        double difference = difference(losses(single), losses(s));
        // Another order of sums changes bits of a gate, by which GShard draws.
        boolean jumps = s.techniques().narrow() || routing == Routing.GSHARD;
        double tolerance = jumps ? NARROW_EXPERTS : TOLERANCE;
        System.out.printf(
                "%s with experts by %s: differs by %.1e%n", techniques, routing, difference);
        assertTrue(difference <= tolerance, techniques + " differs by " + difference);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "dp=4 ep=4 recompute, GSHARD, true",
        "dp=2 ep=2 pp=2 accumulate=2, VMOE, true",
        "dp=2 ep=2 tp=2 sequence-parallel recompute, NEXT_BEST, true",
        "dp=2 ep=2 pp=2 tp=2 accumulate=2, NO_DROP, true"
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

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "dp=2 ep=2",
                "dp=4 ep=2",
                "dp=2 accumulate=2",
                "tp=2",
                "tp=4 sequence-parallel recompute",
                "dp=2 ep=2 tp=2",
                "tp=2 pp=2 accumulate=4 sequence-parallel"
            })
    void moreOfExpertsLosesAsOnASingleRank(String techniques) {
        expertsLoseAsOnASingleRank(techniques);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "dp=2 compress=bf16, 0",
        "tp=2 sequence-parallel, 0",
        "recompute, 0",
        "single, 4",
        "dp=2 ep=2, 4"
    })
    void moreStepsAllocateNothing(String techniques, int experts) {
        stepsAllocateNothing(techniques, experts);
    }

    /** What the tolerance would not let pass. */
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

    @Test
    void sameSeedSameBits() {
        assertEquals(trainedSingle(STEPS), trainedSingle(STEPS));
        String two = "dp=2 zero=3 accumulate=2";
        assertEquals(
                losses(settings(two, 0, 1, Adam.defaults(), STEPS)),
                losses(settings(two, 0, 1, Adam.defaults(), STEPS)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"pp=2 accumulate=4", "pp=2 accumulate=4 schedule=gpipe bf16"})
    void messagesBesideComputationChangeNoBit(String techniques) {
        assertEquals(
                losses(settings(techniques + " no-overlap", 0, 1, Adam.defaults(), STEPS)),
                losses(settings(techniques, 0, 1, Adam.defaults(), STEPS)));
    }

    /** Steps 6 to 12 from a checkpoint are those of a run that never stopped, bit for bit. */
    @ParameterizedTest
    @CsvSource({
        "dp=2 zero=3 offload=nvme, 0",
        "pp=2 accumulate=4 bf16, 0",
        "dp=2 ep=2 tp=2, 4",
        "dp=2 compress=topk:0.1, 0"
    })
    void resumesToTheSameLosses(String techniques, int experts, @TempDir Path checkpoint) {
        List<Double> whole = losses(settings(techniques, experts, 1, Adam.defaults(), STEPS));
        losses(settings(techniques, experts, 1, Adam.defaults(), 6, checkpoint, false));
        List<Double> rest =
                losses(settings(techniques, experts, 1, Adam.defaults(), STEPS, checkpoint, true));
        assertEquals(whole.subList(6, STEPS), rest);
        assertNotEquals(whole.subList(0, 6), rest);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
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
    @ParameterizedTest
    @CsvSource({"dp=2, dp=4", "dp=4 zero=3, dp=2 zero=1", "dp=2 zero=2, offload=host"})
    void resumesOnOtherNumbersOfRanks(String before, String after, @TempDir Path checkpoint) {
        List<Double> whole = single(STEPS);
        losses(settings(before, 0, 1, Adam.defaults(), 6, checkpoint, false));
        List<Double> rest = losses(settings(after, 0, 1, Adam.defaults(), STEPS, checkpoint, true));
        assertTrue(difference(whole.subList(6, STEPS), rest) <= TOLERANCE);
    }

    /** A step takes no memory of the Java heap, on any rank. */
    @ParameterizedTest
    @CsvSource({
        "single, 0",
        "dp=2 accumulate=2, 0",
        "pp=2 accumulate=4, 0",
        "tp=2 sequence-parallel, 4"
    })
    void stepsAllocateNothing(String techniques, int experts) {
        RunSettings s = settings(techniques, experts, 1, Adam.defaults(), 10_000);
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        int ranks = s.techniques().ranks();
        double[] bytes = new double[ranks];
        // Until everything is compiled: two windows in a row on all ranks, or the last.
        int[] clean = new int[1];
        CyclicBarrier allMeasured =
                new CyclicBarrier(
                        ranks,
                        () -> {
                            boolean now = Arrays.stream(bytes).allMatch(b -> b < LEAST_BYTES);
                            clean[0] = now ? clean[0] + 1 : 0;
                        });
        Communicator.runLocal(
                ranks,
                comm -> {
                    try (GptTrainer trainer = new GptTrainer(comm, CORPUS, s)) {
                        trainer.initialize();
                        for (int window = 0; window < 32 && clean[0] < 2; window++) {
                            long before = threads.getCurrentThreadAllocatedBytes();
                            for (int i = 0; i < 50; i++) {
                                trainer.step();
                            }
                            long after = threads.getCurrentThreadAllocatedBytes();
                            bytes[comm.rank()] = (after - before) / 50.0;
                            allMeasured.await(2, TimeUnit.MINUTES);
                        }
                    }
                });
        for (int r = 0; r < ranks; r++) {
            System.out.printf("%s: %.1f bytes a step on rank %d%n", techniques, bytes[r], r);
            assertTrue(
                    bytes[r] < LEAST_BYTES,
                    techniques + ": " + bytes[r] + " bytes a step on rank " + r);
        }
    }
}
