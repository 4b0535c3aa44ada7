package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.Sgd;
import io.jccl.offload.weights.Safetensors;
import io.jccl.offload.weights.SafetensorsWriter;
import io.jccl.offload.weights.WeightTensor;
import io.jccl.offload.weights.WeightType;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Weights from and to PyTorch, and from and to every layout of ranks. */
@Timeout(value = 180, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class WeightFilesTest {
    /** Made by src/test/python/make_weights.py. */
    private static final Path MADE = Path.of("src/test/resources/train");

    private static final int STEPS = 10;
    private static final int HALF = 5;
    private static final double TOLERANCE = 5e-6;

    @TempDir private Path folder;

    private RunSettings settings(
            String techniques,
            int experts,
            Optimizer optimizer,
            int steps,
            Corpus corpus,
            @Nullable Path load,
            @Nullable Path save) {
        return settings(techniques, experts, optimizer, steps, corpus, load, save, Recipe.NONE);
    }

    private RunSettings settings(
            String techniques,
            int experts,
            Optimizer optimizer,
            int steps,
            Corpus corpus,
            @Nullable Path load,
            @Nullable Path save,
            Recipe recipe) {
        GptShape shape =
                new GptShape(
                        2, 16, 2, 8, corpus.vocabulary().size(), experts, Routing.SWITCH, 4, false);
        Techniques t = Techniques.parse(techniques);
        t.check(shape, 4);
        return new RunSettings(
                shape,
                t,
                4,
                steps,
                0.003,
                optimizer,
                recipe,
                Evaluation.NONE,
                1,
                1,
                folder,
                null,
                5,
                RunSettings.START,
                load,
                save);
    }

    static List<Double> losses(RunSettings s, Corpus corpus) {
        TrainRun run = new TrainRun(corpus, s, s.techniques().ranks());
        AtomicReference<List<Double>> losses = new AtomicReference<>();
        Communicator.runLocal(
                s.techniques().ranks(),
                comm -> {
                    List<Double> mine = run.run(comm, step -> {}).losses();
                    if (comm.rank() == 0) {
                        losses.set(mine);
                    }
                });
        return Objects.requireNonNull(losses.get());
    }

    static float[] read(Safetensors in, String name) throws IOException {
        float[] values = new float[(int) in.tensor(name).count()];
        in.read(name, 0, Buffer.wrap(MemorySegment.ofArray(values), DataType.FLOAT32));
        return values;
    }

    private static double[] expectedLosses() throws IOException {
        try (Safetensors in = Safetensors.open(MADE, "after.safetensors")) {
            double[] losses = new double[STEPS];
            in.read("losses", 0, Buffer.wrap(MemorySegment.ofArray(losses), DataType.FLOAT64));
            return losses;
        }
    }

    static double[] array(List<Double> values) {
        return values.stream().mapToDouble(d -> d).toArray();
    }

    @ParameterizedTest
    @CsvSource({"dp=2 tp=2 zero=1"})
    void trainsAsPyTorchFromItsWeights(String techniques) throws IOException {
        Corpus corpus = Corpus.of(MADE.resolve("text.txt"));
        Path saved = folder.resolve("saved");
        RunSettings s =
                settings(
                        techniques,
                        0,
                        Adam.defaults(),
                        STEPS,
                        corpus,
                        MADE.resolve("start.safetensors"),
                        saved);
        assertArrayEquals(expectedLosses(), array(losses(s, corpus)), TOLERANCE);
        try (Safetensors model = Safetensors.open(saved, WeightFiles.MODEL);
                Safetensors state = Safetensors.open(saved, WeightFiles.OPTIMIZER);
                Safetensors theirs = Safetensors.open(MADE, "after.safetensors")) {
            assertEquals(Integer.toString(STEPS), state.metadata().get("jccl.steps"));
            assertEquals(theirs.names().size() - 1, model.names().size() + state.names().size());
            for (String name : theirs.names()) {
                if (!name.equals("losses")) {
                    Safetensors ours = name.contains(".moment") ? state : model;
                    assertEquals(theirs.tensor(name), ours.tensor(name));
                    assertArrayEquals(read(theirs, name), read(ours, name), 2e-4f, name);
                }
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"single", "tp=2 pp=2 accumulate=2", "dp=2 zero=3", "tp=2", "pp=2 accumulate=2"})
    void trainsAsPyTorchInMoreLayouts(String techniques) throws IOException {
        trainsAsPyTorchFromItsWeights(techniques);
    }

    @Test
    void bfloat16IsWidened() throws IOException {
        Corpus corpus = Corpus.of(MADE.resolve("text.txt"));
        Path from = MADE.resolve("start-bf16.safetensors");
        RunSettings s = settings("single", 0, Adam.defaults(), STEPS, corpus, from, null);
        assertArrayEquals(expectedLosses(), array(losses(s, corpus)), 2e-2);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "accumulate=2,dp=2 ep=2 tp=2 zero=1,4,adam,5e-6",
        "dp=2 zero=3 offload=nvme,pp=2 accumulate=2,0,adam,5e-6",
        "single,single,0,adam,0",
        "dp=2 zero=1,dp=2 zero=1,0,adam,0",
        "single,dp=2 tp=2 zero=3,0,adam,5e-6",
        "tp=2 pp=2 accumulate=2,dp=4 zero=3,0,sgd,5e-6",
        "dp=2 ep=2,accumulate=2,4,adam,5e-6",
        "dp=2 ep=2 pp=2 zero=2,dp=2 ep=1,4,adam,5e-6",
        "dp=2 zero=2 offload=host,tp=2 pp=2 accumulate=2,0,adam,5e-6"
    })
    void goesOnInAnotherLayout(
            String first, String then, int experts, String rule, double tolerance) {
        Corpus corpus = Corpus.grammar(1);
        Optimizer o = rule.equals("sgd") ? Sgd.withMomentum(0.9) : Adam.defaults();
        Path saved = folder.resolve("half");
        List<Double> whole = losses(settings(first, experts, o, STEPS, corpus, null, null), corpus);
        List<Double> parts =
                new ArrayList<>(
                        losses(settings(first, experts, o, HALF, corpus, null, saved), corpus));
        parts.addAll(losses(settings(then, experts, o, STEPS, corpus, saved, null), corpus));
        assertArrayEquals(array(whole), array(parts), tolerance);
    }

    /** The scale that a run found goes on, and steps that overflowed are none of the optimizer. */
    @Tag("exhaustive")
    @Test
    void aLossScaleGoesOn() throws IOException {
        Corpus corpus = Corpus.grammar(1);
        Optimizer o = Adam.defaults();
        Path saved = folder.resolve("scaled");
        Recipe high =
                new Recipe(RateSchedule.CONSTANT, Double.POSITIVE_INFINITY, List.of(), 0x1p18);
        String t = "dp=2 zero=1 fp16";
        List<Double> whole = losses(settings(t, 0, o, STEPS, corpus, null, null, high), corpus);
        List<Double> parts =
                new ArrayList<>(losses(settings(t, 0, o, HALF, corpus, null, saved, high), corpus));
        try (Safetensors in = Safetensors.open(saved, WeightFiles.OPTIMIZER)) {
            double scale = Double.parseDouble(in.metadata().get("jccl.loss-scale"));
            int updates = Integer.parseInt(in.metadata().get("jccl.updates"));
            assertTrue(scale < 0x1p18 && updates < HALF, scale + ", " + updates + " updates");
            assertTrue(updates > 0, "no step was taken: begin with a smaller scale");
        }
        parts.addAll(losses(settings(t, 0, o, STEPS, corpus, saved, null, high), corpus));
        assertArrayEquals(array(whole), array(parts), 0);
    }

    private void refused(String expected, RunSettings s, Corpus corpus) {
        Throwable e = assertThrows(Exception.class, () -> losses(s, corpus));
        StringBuilder all = new StringBuilder();
        for (Throwable t = e; t != null; t = t.getCause()) {
            all.append(t.getMessage()).append('\n');
        }
        assertTrue(all.toString().contains(expected), all.toString());
    }

    @Test
    void whatDoesNotFitIsRefusedByName() throws IOException {
        Corpus corpus = Corpus.of(MADE.resolve("text.txt"));
        Path start = MADE.resolve("start.safetensors");
        try (Safetensors in = Safetensors.open(start)) {
            for (String how : List.of("missing", "shape", "type", "nan")) {
                List<WeightTensor> tensors = new ArrayList<>();
                for (String name : in.names()) {
                    WeightTensor t = in.tensor(name);
                    if (!name.equals("block1.w2") || how.equals("nan")) {
                        tensors.add(t);
                    } else if (how.equals("shape")) {
                        tensors.add(new WeightTensor(name, t.type(), List.of(16L, 64L)));
                    } else if (how.equals("type")) {
                        tensors.add(new WeightTensor(name, WeightType.I32, t.shape()));
                    }
                }
                Path file = folder.resolve(how + ".safetensors");
                SafetensorsWriter.write(
                        file,
                        Map.of(),
                        tensors,
                        t -> {
                            Buffer values = zeros(t);
                            if (how.equals("nan") && t.name().equals("block1.w2")) {
                                values.set(77, Double.NaN);
                            }
                            return values;
                        });
                refused(
                        switch (how) {
                            case "missing" -> "has no tensor block1.w2";
                            case "shape" ->
                                    "tensor block1.w2 has the shape [16, 64], expected [64, 16]";
                            case "nan" ->
                                    "tensor block1.w2 cannot be read: it has the value NaN,"
                                            + " expected finite numbers";
                            default -> "tensor block1.w2 is of type I32";
                        },
                        settings("dp=2 zero=1", 0, Adam.defaults(), 1, corpus, file, null),
                        corpus);
            }
        }
        byte[] bytes = Files.readAllBytes(start);
        Path cut =
                Files.write(
                        folder.resolve("cut.safetensors"), Arrays.copyOf(bytes, bytes.length - 1));
        refused(
                "so it was cut",
                settings("single", 0, Adam.defaults(), 1, corpus, cut, null),
                corpus);
    }

    @Test
    void missingFilesAreRefusedByName() throws IOException {
        Corpus corpus = Corpus.of(MADE.resolve("text.txt"));
        RunSettings s = settings("single", 0, Adam.defaults(), 1, corpus, folder, null);
        String part = "model-00001-of-00002.safetensors";
        SafetensorsWriter.writeIndex(
                folder.resolve(WeightFiles.MODEL + Safetensors.INDEX), Map.of("w", part), 4);
        refused(folder.resolve(part) + " is missing, but the index in " + folder, s, corpus);
    }

    private static Buffer zeros(WeightTensor t) {
        int n = (int) t.count();
        return t.type() == WeightType.I32
                ? Buffer.wrap(MemorySegment.ofArray(new int[n]), DataType.INT32)
                : Buffer.wrap(MemorySegment.ofArray(new float[n]), DataType.FLOAT32);
    }

    @Test
    void anotherRuleOrTextIsRefused() throws IOException {
        Corpus corpus = Corpus.of(MADE.resolve("text.txt"));
        Path saved = folder.resolve("saved");
        losses(settings("single", 0, Adam.defaults(), 1, corpus, null, saved), corpus);
        refused(
                "has the optimizer state of adam, this run uses sgd",
                settings("single", 0, Sgd.withMomentum(0.9), 2, corpus, saved, null),
                corpus);
        String alphabet = corpus.vocabulary().id().replace('w', 'x');
        Corpus other = new Corpus(corpus.tokens(), new Vocabulary.Characters(alphabet), "other");
        refused(
                "jccl.alphabet",
                settings("single", 0, Adam.defaults(), 2, other, saved, null),
                other);
        // The parameters alone go on with another rule.
        Path model = saved.resolve(WeightFiles.MODEL);
        RunSettings alone = settings("single", 0, Sgd.withMomentum(0.9), 1, corpus, model, null);
        assertEquals(1, losses(alone, corpus).size());
    }
}
