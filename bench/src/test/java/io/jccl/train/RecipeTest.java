package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.offload.optim.Adafactor;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.Adam8bit;
import io.jccl.offload.optim.AdamW;
import io.jccl.offload.optim.Lamb;
import io.jccl.offload.optim.Lion;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.ParameterGroup;
import io.jccl.train.RateSchedule.Shape;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalDouble;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Schedules, clipping, groups and rules of {@code jccl train}, in all layouts. */
@Timeout(300)
class RecipeTest {
    private static final int STEPS = 8;
    private static final double TOLERANCE = 2e-5;
    private static final Corpus CORPUS = Corpus.grammar(1);

    /** Far below the gradients' norm, so that every step is clipped. */
    private static final double CLIP = 0.05;

    @TempDir private static Path folder;

    private static final Recipe ALL =
            new Recipe(
                    new RateSchedule(Shape.COSINE, 3, 0.1, 0.1),
                    CLIP,
                    List.of(
                            new Recipe.Group(
                                    List.of("embedding", "block0.w1"), 1, OptionalDouble.of(0)),
                            new Recipe.Group(List.of("head"), 0.5, OptionalDouble.empty())));

    private static Optimizer rule(String name) {
        return switch (name) {
            case "adam" -> Adam.defaults();
            case "adamw" -> new AdamW(0.9, 0.999, 1e-8, 0.3);
            case "lion" -> new Lion(0.9, 0.99, 0.3);
            case "lamb" -> new Lamb(0.9, 0.999, 1e-6, 0.3);
            case "adafactor" -> Adafactor.defaults().withWeightDecay(0.3);
            default -> new Adam8bit(0.9, 0.999, 1e-8, 0.3);
        };
    }

    private static List<Double> losses(
            String techniques,
            int experts,
            Optimizer optimizer,
            Recipe recipe,
            int until,
            @Nullable Path checkpoint,
            boolean resume) {
        GptShape shape =
                new GptShape(
                        2, 16, 2, 8, CORPUS.vocabulary().size(), experts, Routing.SWITCH, 4, false);
        Techniques t = Techniques.parse(techniques);
        t.check(shape, 8);
        RunSettings s =
                new RunSettings(
                        shape,
                        t,
                        8,
                        until,
                        0.003,
                        optimizer,
                        recipe,
                        Evaluation.NONE,
                        1,
                        1,
                        folder,
                        checkpoint,
                        5,
                        resume ? RunSettings.NEWEST : RunSettings.START,
                        null,
                        null);
        TrainRun run = new TrainRun(CORPUS, s, t.ranks());
        AtomicReference<List<Double>> losses = new AtomicReference<>();
        Communicator.runLocal(
                t.ranks(),
                comm -> {
                    List<Double> mine = run.run(comm, step -> {}).losses();
                    if (comm.rank() == 0) {
                        losses.set(mine);
                    }
                });
        return Objects.requireNonNull(losses.get());
    }

    private static List<Double> losses(
            String techniques, int experts, Optimizer optimizer, Recipe recipe) {
        return losses(techniques, experts, optimizer, recipe, STEPS, null, false);
    }

    private static double difference(List<Double> a, List<Double> b) {
        assertEquals(a.size(), b.size());
        double most = 0;
        for (int i = 0; i < a.size(); i++) {
            most = Math.max(most, Math.abs(a.get(i) - b.get(i)));
        }
        return most;
    }

    /** A name may be that of all biases, of a tensor in all layers, or of a layer. */
    @Test
    void namesChooseTensors() {
        GptShape shape =
                new GptShape(1, 16, 2, 8, 20, Architecture.of(Architecture.Kind.GPT2, 16, 2));
        Recipe.Group group =
                new Recipe.Group(List.of("bias", "norm1", "head"), 1, OptionalDouble.of(0));
        Recipe recipe = new Recipe(RateSchedule.CONSTANT, 1, List.of(group));
        recipe.check(shape);
        Optimizer rule = AdamW.defaults();
        Map<String, String> all = new TreeMap<>();
        for (Part.Layer l : new Part(shape, 0, 1, 0, 1, 0, 0).layers()) {
            for (GptShape.Weight w : l.weights()) {
                boolean decays = recipe.group(rule, l.name(), w.name(), true).optimizer() == rule;
                all.put(l.name() + "." + w.name(), decays ? "decays" : "does not");
            }
        }
        assertEquals("does not", all.get("block0.qkv.bias"));
        assertEquals("does not", all.get("block0.norm1.bias"));
        assertEquals("does not", all.get("block0.norm1"));
        assertEquals("decays", all.get("block0.norm2"));
        assertEquals("decays", all.get("block0.qkv"));
        assertEquals("decays", all.get("embedding.token"));
        assertEquals("does not", all.get("head.norm"));
    }

    /** A tensor's rate and its decay may be set by different names. */
    @Test
    void rateAndDecayAreChosenApart() {
        Recipe recipe =
                new Recipe(
                        RateSchedule.CONSTANT,
                        1,
                        List.of(
                                new Recipe.Group(List.of("block0"), 0.5, OptionalDouble.empty()),
                                new Recipe.Group(List.of("w1", "head"), 1, OptionalDouble.of(0))));
        AdamW rule = AdamW.defaults();
        Optimizer undecayed = rule.withWeightDecay(0);
        assertEquals(
                new ParameterGroup(undecayed, 0.5, true), recipe.group(rule, "block0", "w1", true));
        assertEquals(new ParameterGroup(rule, 0.5, true), recipe.group(rule, "block0", "w2", true));
        assertEquals(
                new ParameterGroup(undecayed, 1, true), recipe.group(rule, "block1", "w1", true));
        assertEquals(ParameterGroup.of(rule), recipe.group(rule, "block1", "w2", true));
    }

    /**
     * Rates that torch 2.13 gives with CosineAnnealingLR(20, 0.1), LinearLR(1, 0.1, 20), and
     * SequentialLR of LinearLR(0.2, 1, 4) and CosineAnnealingLR(16, 0).
     */
    @Test
    void schedulesAreThoseOfTorch() {
        double[] cosine = {
            1.000000000, 0.994459753, 0.977975432, 0.950952936, 0.914057647, 0.868198052,
            0.814503364, 0.754295725, 0.689057647, 0.620395509, 0.550000000, 0.479604491,
            0.410942353, 0.345704275, 0.285496636, 0.231801948, 0.185942353, 0.149047064,
            0.122024568, 0.105540247
        };
        double[] warm = {
            0.200000000, 0.400000000, 0.600000000, 0.800000000, 1.000000000, 0.990392640,
            0.961939766, 0.915734806, 0.853553391, 0.777785117, 0.691341716, 0.597545161,
            0.500000000, 0.402454839, 0.308658284, 0.222214883, 0.146446609, 0.084265194,
            0.038060234, 0.009607360
        };
        // torch begins a warm-up of four steps at its first factor, and has the highest in the
        // fifth.
        RateSchedule warmed = new RateSchedule(Shape.COSINE, 5, 0, 0.1);
        RateSchedule line = new RateSchedule(Shape.LINEAR, 0, 0.1, 0.1);
        for (int i = 0; i < 20; i++) {
            RateSchedule whole = new RateSchedule(Shape.COSINE, 0, 0.1, 0.1);
            assertEquals(cosine[i], whole.factor(i, 20), 1e-9, "cosine " + i);
            assertEquals(1 - 0.045 * i, line.factor(i, 20), 1e-9, "line " + i);
            if (i < 4) {
                assertEquals(warm[i], warmed.factor(i, 20), 1e-9, "warm-up " + i);
            } else {
                RateSchedule rest = new RateSchedule(Shape.COSINE, 0, 0, 0.1);
                assertEquals(warm[i], rest.factor(i - 4, 16), 1e-9, "after it " + i);
            }
        }
        RateSchedule wsd = new RateSchedule(Shape.WSD, 2, 0.2, 0.5);
        double[] expected = {0.5, 1, 1, 1, 1, 1, 0.84, 0.68, 0.52, 0.36, 0.2};
        for (int i = 0; i < expected.length; i++) {
            assertEquals(expected[i], wsd.factor(i, 10), 1e-12, "wsd " + i);
        }
        assertEquals(1, RateSchedule.CONSTANT.factor(7, 10));
    }

    @ParameterizedTest
    @CsvSource({"dp=2 zero=3 offload=nvme, 0"})
    void theNormIsThatOfTheWholeModel(String techniques, int experts) {
        String one = "accumulate=" + Techniques.parse(techniques).microBatches();
        Optimizer adamw = rule("adamw");
        List<Double> single = losses(one, experts, adamw, ALL);
        assertTrue(difference(single, losses(techniques, experts, adamw, ALL)) <= TOLERANCE);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "dp=2 ep=2 tp=2 zero=1, 4",
        "dp=2, 0",
        "dp=2 zero=0 accumulate=2, 0",
        "dp=2 zero=1, 0",
        "dp=2 zero=2, 0",
        "tp=2, 0",
        "tp=2 sequence-parallel, 0",
        "dp=2 ep=2, 4",
        "tp=2 dp=2 zero=3, 0",
        "pp=2 accumulate=4, 0"
    })
    void theNormIsThatOfTheWholeModelInMoreCases(String techniques, int experts) {
        theNormIsThatOfTheWholeModel(techniques, experts);
    }

    /** Plain gradient descent sees every change of a gradient, which Adam's quotient hides. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"tp=2"})
    void clippingScalesTheGradients(String techniques) {
        Optimizer sgd = new io.jccl.offload.optim.Sgd(0, 0, 0, false);
        Recipe loose = new Recipe(RateSchedule.CONSTANT, 1e6, List.of());
        Recipe tight = new Recipe(RateSchedule.CONSTANT, CLIP, List.of());
        List<Double> free = losses(techniques, 0, sgd, Recipe.NONE);
        assertEquals(0, difference(free, losses(techniques, 0, sgd, loose)));
        List<Double> clipped = losses(techniques, 0, sgd, tight);
        assertTrue(difference(free, clipped) > 1e-4, "clipping changed nothing");
        String one = "accumulate=" + Techniques.parse(techniques).microBatches();
        assertTrue(difference(losses(one, 0, sgd, tight), clipped) <= 1e-6);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"single", "dp=2 zero=2", "pp=2 accumulate=2"})
    void clippingScalesTheGradientsInMoreCases(String techniques) {
        clippingScalesTheGradients(techniques);
    }

    @Test
    void groupsAndSchedulesChangeTheResult() {
        Optimizer adamw = rule("adamw");
        List<Double> plain = losses("single", 0, adamw, Recipe.NONE);
        Recipe group = new Recipe(RateSchedule.CONSTANT, 1e9, ALL.groups());
        Recipe schedule = new Recipe(ALL.schedule(), 1e9, List.of());
        assertTrue(difference(plain, losses("single", 0, adamw, group)) > 1e-4);
        assertTrue(difference(plain, losses("single", 0, adamw, schedule)) > 1e-3);
    }

    @ParameterizedTest
    @CsvSource({"adam8bit, dp=2 zero=3 offload=nvme"})
    void rulesGiveTheLossesOfASingleRank(String name, String techniques) {
        Techniques t = Techniques.parse(techniques.replace("dp=3", "dp=4"));
        Optimizer o = rule(name);
        List<Double> single = losses("accumulate=" + t.microBatches(), 0, o, ALL);
        // A code or a sign that lies on an edge may go to either side.
        double tolerance = name.equals("lamb") || name.equals("adafactor") ? TOLERANCE : 2e-3;
        assertTrue(difference(single, losses(t.toString(), 0, o, ALL)) <= tolerance, name);
        assertTrue(single.getLast() < single.getFirst(), name + " does not learn: " + single);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "lamb, dp=3 zero=1 accumulate=1",
        "adafactor, pp=2 accumulate=4",
        "lion, dp=2 zero=3 offload=host",
        "lamb, dp=2",
        "lamb, dp=2 zero=0",
        "lamb, dp=2 zero=3 offload=nvme",
        "lamb, pp=2 accumulate=4",
        "adafactor, dp=2",
        "adafactor, dp=2 zero=1",
        "adafactor, dp=2 zero=3 offload=nvme",
        "adam8bit, dp=2",
        "adam8bit, dp=2 zero=0",
        "adam8bit, dp=2 zero=1",
        "lion, tp=2"
    })
    void rulesGiveTheLossesOfASingleRankInMoreCases(String name, String techniques) {
        rulesGiveTheLossesOfASingleRank(name, techniques);
    }

    /** Steps from a checkpoint are those of a run that never stopped, bit for bit. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "adam8bit, dp=2 zero=2 bf16",
        "lamb, dp=2 zero=1",
        "adafactor, single",
        "adam8bit, single",
        "adam8bit, dp=2 zero=3 offload=nvme",
        "lion, single",
        "adafactor, dp=2 zero=2 bf16"
    })
    void resumesToTheSameLosses(String name, String techniques, @TempDir Path checkpoint) {
        Optimizer o = rule(name);
        Recipe recipe = new Recipe(new RateSchedule(Shape.CONSTANT, 6, 0, 0.1), CLIP, ALL.groups());
        List<Double> whole = losses(techniques, 0, o, recipe);
        losses(techniques, 0, o, recipe, 5, checkpoint, false);
        List<Double> rest = losses(techniques, 0, o, recipe, STEPS, checkpoint, true);
        assertEquals(whole.subList(5, STEPS), rest);
        assertNotEquals(whole.subList(0, 3), rest);
        Recipe other = new Recipe(ALL.schedule(), CLIP, ALL.groups());
        RuntimeException e =
                assertThrows(
                        RuntimeException.class,
                        () -> losses(techniques, 0, o, other, STEPS, checkpoint, true));
        assertTrue(String.valueOf(e).contains("recipe"), String.valueOf(e));
    }

    @Test
    void aNameWithoutATensorIsRefused() {
        GptShape shape = new GptShape(2, 16, 2, 8, 20, 0, Routing.SWITCH, 4, false);
        ALL.check(shape);
        Recipe wrong =
                new Recipe(
                        RateSchedule.CONSTANT,
                        1,
                        List.of(new Recipe.Group(List.of("embeding"), 1, OptionalDouble.empty())));
        String message =
                String.valueOf(
                        assertThrows(IllegalArgumentException.class, () -> wrong.check(shape))
                                .getMessage());
        assertTrue(message.contains("'embeding'"), message);
        assertThrows(
                IllegalArgumentException.class,
                () -> new Recipe(RateSchedule.CONSTANT, 0, List.of()));
        assertThrows(IllegalArgumentException.class, () -> new RateSchedule(Shape.WSD, 0, 0, 0));
    }
}
