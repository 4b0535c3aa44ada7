package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.offload.optim.Adam;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The loss of held-out text, and what a model writes. */
class EvaluationTest {
    private static final int CONTEXT = 8;

    @TempDir private Path folder;

    /** A text of eight letters in turn, whose last tenth has eight others. */
    private static Corpus twoTexts() {
        Vocabulary vocabulary = new Vocabulary.Characters("abcdefghijklmnop");
        Tokens tokens = new Tokens(vocabulary.size());
        for (int i = 0; i < 2000; i++) {
            tokens.add(i % 8 + (i < 1800 ? 0 : 8));
        }
        return new Corpus(tokens, vocabulary, "two texts");
    }

    private TrainResult train(
            Corpus corpus, String techniques, int experts, int steps, Evaluation evaluation) {
        Techniques t = Techniques.parse(techniques);
        RunSettings s =
                new RunSettings(
                        new GptShape(
                                2,
                                16,
                                2,
                                CONTEXT,
                                corpus.vocabulary().size(),
                                experts,
                                Routing.SWITCH,
                                8,
                                false),
                        t,
                        8,
                        steps,
                        0.01,
                        Adam.defaults(),
                        Recipe.NONE,
                        evaluation,
                        1,
                        1,
                        folder,
                        null,
                        5,
                        RunSettings.START,
                        null,
                        null);
        AtomicReference<TrainResult> first = new AtomicReference<>();
        TrainRun run = new TrainRun(corpus, s, t.ranks());
        Communicator.runLocal(
                t.ranks(),
                comm -> {
                    try {
                        TrainResult r = run.run(comm, step -> {});
                        if (comm.rank() == 0) {
                            first.set(r);
                        }
                    } catch (IOException e) {
                        throw new AssertionError(e);
                    }
                });
        return Objects.requireNonNull(first.get());
    }

    @ParameterizedTest
    @ValueSource(strings = {"pp=2 accumulate=4"})
    void lossesAreThoseOfASingleRank(String techniques) {
        Corpus corpus = Corpus.grammar(1);
        Evaluation evaluation = new Evaluation(4, 0.1, 3, 12);
        TrainResult many = train(corpus, techniques, 0, 10, evaluation);
        TrainResult one = train(corpus, "single", 0, 10, evaluation);
        assertEquals(Set.of(4, 8, 10), many.validation().keySet());
        assertEquals(0, many.difference(one), 1e-5);
        assertEquals(one.sample(), many.sample());
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "dp=2 accumulate=2 offload=host zero=2",
                "dp=2",
                "tp=2",
                "tp=2 sequence-parallel",
                "dp=2 zero=3 recompute"
            })
    void lossesAreThoseOfASingleRankInMoreCases(String techniques) {
        lossesAreThoseOfASingleRank(techniques);
    }

    @Tag("exhaustive")
    @Test
    void expertsOfSeveralRanksAgreeToo() {
        Corpus corpus = Corpus.grammar(1);
        Evaluation evaluation = new Evaluation(4, 0.1, 3, 12);
        TrainResult many = train(corpus, "dp=2 ep=2", 4, 10, evaluation);
        TrainResult one = train(corpus, "accumulate=2", 4, 10, evaluation);
        assertEquals(0, many.difference(one), 1e-5);
        assertEquals(one.sample(), many.sample());
    }

    @Tag("exhaustive")
    @Test
    void trainingDoesNotDependOnIt() {
        Corpus corpus = Corpus.grammar(1);
        for (String techniques : List.of("single", "dp=2 zero=1", "pp=2 accumulate=2")) {
            TrainResult often = train(corpus, techniques, 4, 10, new Evaluation(1, 0.1, 2, 5));
            TrainResult once = train(corpus, techniques, 4, 10, new Evaluation(100, 0.1, 7, 0));
            assertEquals(once.losses(), often.losses());
            assertEquals(10, often.validation().size());
            assertEquals(Set.of(10), once.validation().keySet());
        }
    }

    @Tag("exhaustive")
    @Test
    void heldOutTextIsNotTrainedOn() {
        TrainResult r = train(twoTexts(), "dp=2", 0, 60, new Evaluation(60, 0.1, 2, 40));
        assertTrue(r.losses().getLast() < 0.05, r.losses()::toString);
        assertTrue(r.validation().getOrDefault(60, 0.0) > 2, r.validation()::toString);
        // What is written is what was trained on, also past the end of the context.
        String text = r.sample();
        assertEquals(40, text.length());
        int wrong = 0;
        for (int i = 1; i < 40; i++) {
            int before = "abcdefgh".indexOf(text.charAt(i - 1));
            wrong += text.charAt(i) == "bcdefgha".charAt(Math.max(0, before)) ? 0 : 1;
        }
        assertTrue(wrong <= 4, text);
        // Otherwise all of the text is.
        TrainResult whole = train(twoTexts(), "dp=2", 0, 60, Evaluation.NONE);
        assertEquals(Map.of(), whole.validation());
        assertEquals("", whole.sample());
    }

    @Test
    void charactersAreDrawnByTheirProbabilities() {
        float[] logits = {
            (float) Math.log(0.5),
            Float.NEGATIVE_INFINITY,
            (float) Math.log(0.3),
            (float) Math.log(0.2)
        };
        assertEquals(0, Evaluator.draw(logits, 0));
        assertEquals(0, Evaluator.draw(logits, 0.49));
        assertEquals(2, Evaluator.draw(logits, 0.51));
        assertEquals(2, Evaluator.draw(logits, 0.79));
        assertEquals(3, Evaluator.draw(logits, 0.81));
        assertEquals(3, Evaluator.draw(logits, 1));
        float[] large = {1000, 1000.5f, -1000};
        assertEquals(1, Evaluator.draw(large, 0.5));
        assertEquals(1, Evaluator.draw(large, 1));
    }

    @Test
    void textsThatAreTooShortAreRefused() {
        Evaluation tenth = new Evaluation(10, 0.1, 1, 0);
        tenth.check(100, 8);
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> tenth.check(100, 9));
        assertTrue(
                String.valueOf(e.getMessage()).contains("100 tokens, 10 of them held out"),
                e::toString);
        Evaluation.NONE.check(11, 9);
        assertThrows(IllegalArgumentException.class, () -> Evaluation.NONE.check(10, 9));
        assertThrows(IllegalArgumentException.class, () -> new Evaluation(1, 1, 1, 0));
        assertThrows(IllegalArgumentException.class, () -> new Evaluation(-1, 0.5, 1, 0));
        assertThrows(IllegalArgumentException.class, () -> new Evaluation(1, 0.5, 0, 0));
    }
}
