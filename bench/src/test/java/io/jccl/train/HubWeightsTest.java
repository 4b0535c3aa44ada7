package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.weights.Safetensors;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** GPT-2 and Llama beside transformers, on every layout of ranks. */
@Timeout(value = 180, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class HubWeightsTest {
    /** Made by src/test/python/make_hub_weights.py. */
    private static final Path MADE = Path.of("src/test/resources/hub");

    private static final Path TEXT = Path.of("src/test/resources/train/text.txt");
    private static final int CONTEXT = 8;
    private static final int BATCH = 4;
    private static final int STEPS = 10;
    private static final int HALF = 5;
    private static final double TOLERANCE = 5e-6;
    private static final float LOGITS = 1e-5f;
    private static final float WEIGHTS = 2e-4f;

    @TempDir private Path folder;

    private static GptShape shape(Path from) throws IOException {
        GptShape s = ModelConfig.read(from);
        return new GptShape(
                s.layers(), s.hidden(), s.heads(), CONTEXT, s.vocabulary(), s.architecture());
    }

    private RunSettings settings(
            GptShape shape,
            String techniques,
            int steps,
            @Nullable Path load,
            @Nullable Path save) {
        Techniques t = Techniques.parse(techniques);
        t.check(shape, BATCH);
        return new RunSettings(
                shape,
                t,
                BATCH,
                steps,
                0.003,
                Adam.defaults(),
                Recipe.NONE,
                Evaluation.NONE,
                1,
                1,
                folder,
                null,
                HALF,
                RunSettings.START,
                load,
                save);
    }

    private static double[] losses(RunSettings s) throws IOException {
        return WeightFilesTest.array(WeightFilesTest.losses(s, Corpus.of(TEXT)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"gpt2", "llama", "llama-tied"})
    void logitsAreThoseOfTransformers(String model) throws IOException {
        Path from = MADE.resolve(model);
        GptShape shape = shape(from);
        Corpus corpus = Corpus.of(TEXT);
        try (GptTrainer trainer =
                        new GptTrainer(
                                Communicator.local(1).getFirst(),
                                corpus,
                                settings(shape, "single", 1, from, null));
                Safetensors theirs = Safetensors.open(from, "expected.safetensors")) {
            trainer.load(from);
            float[] expected = WeightFilesTest.read(theirs, "logits");
            for (int s = 0; s < BATCH; s++) {
                int place = Corpus.place(1, s, 0, corpus.length() - CONTEXT);
                int[] tokens = new int[CONTEXT];
                for (int i = 0; i < CONTEXT; i++) {
                    tokens[i] = corpus.tokens().get(place + i);
                }
                List<float[]> ours = trainer.evaluator().predict(tokens);
                for (int i = 0; i < CONTEXT; i++) {
                    float[] row = new float[shape.vocabulary()];
                    System.arraycopy(expected, (s * CONTEXT + i) * row.length, row, 0, row.length);
                    assertArrayEquals(row, ours.get(i), LOGITS, "sequence " + s + ", row " + i);
                }
            }
        }
    }

    @ParameterizedTest
    @CsvSource({"llama,tp=2 pp=2 accumulate=2"})
    void trainsAsTransformers(String model, String techniques) throws IOException {
        Path from = MADE.resolve(model);
        Path saved = folder.resolve("saved");
        GptShape shape = shape(from);
        double[] losses = losses(settings(shape, techniques, STEPS, from, saved));
        try (Safetensors theirs = Safetensors.open(from, "expected.safetensors");
                Safetensors ours = Safetensors.open(saved, WeightFiles.MODEL)) {
            double[] expected = new double[STEPS];
            in(theirs, expected);
            assertArrayEquals(expected, losses, TOLERANCE);
            // What is saved has the names of transformers, and no others.
            assertEquals(theirs.names().size() - 2, ours.names().size());
            for (String name : ours.names()) {
                float[] a = WeightFilesTest.read(theirs, name);
                float[] b = WeightFilesTest.read(ours, name);
                if (name.endsWith("c_attn.bias")) {
                    // Softmax does not change with the keys' bias: its gradient is rounding alone.
                    System.arraycopy(a, a.length / 3, b, a.length / 3, a.length / 3);
                }
                assertArrayEquals(a, b, WEIGHTS, name);
            }
        }
        assertEquals(ModelConfig.read(from), ModelConfig.read(saved));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "gpt2,dp=2 tp=2 zero=1",
        "llama-tied,dp=2 tp=2 zero=3 recompute offload=nvme",
        "gpt2,single",
        "gpt2,dp=2 zero=3 offload=host",
        "gpt2,tp=2 recompute",
        "gpt2,tp=2 sequence-parallel accumulate=2",
        "llama,single",
        "llama,tp=2 sequence-parallel",
        "llama,dp=2 zero=3",
        "llama-tied,dp=2",
        "llama-tied,tp=2 zero=2"
    })
    void trainsAsTransformersInMoreCases(String model, String techniques) throws IOException {
        trainsAsTransformers(model, techniques);
    }

    private static void in(Safetensors from, double[] losses) throws IOException {
        from.read("losses", 0, Buffer.wrap(MemorySegment.ofArray(losses), DataType.FLOAT64));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("llama,dp=2 zero=2,tp=2 pp=2 accumulate=2")
    void goesOnInAnotherLayout(String model, String first, String then) throws IOException {
        Path from = MADE.resolve(model);
        GptShape shape = shape(from);
        double[] whole = losses(settings(shape, first, STEPS, from, null));
        Path half = folder.resolve("half");
        List<Double> parts = new ArrayList<>();
        for (double l : losses(settings(shape, first, HALF, from, half))) {
            parts.add(l);
        }
        for (double l : losses(settings(shape, then, STEPS, half, null))) {
            parts.add(l);
        }
        assertArrayEquals(whole, parts.stream().mapToDouble(d -> d).toArray(), TOLERANCE);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("gpt2,tp=2,dp=2 zero=3")
    void moreGoesOnInAnotherLayout(String model, String first, String then) throws IOException {
        goesOnInAnotherLayout(model, first, then);
    }

    @Test
    void bfloat16StaysNear() throws IOException {
        Path from = MADE.resolve("llama");
        GptShape shape = shape(from);
        double[] wide = losses(settings(shape, "single", STEPS, from, null));
        assertArrayEquals(wide, losses(settings(shape, "bf16", STEPS, from, null)), 2e-2);
    }

    /** Files of GPT-2's first release have no prefix. */
    @Test
    void namesWithoutPrefixAreFound() throws IOException {
        Path from = MADE.resolve("gpt2");
        Path bare = Files.createDirectories(folder.resolve("bare"));
        byte[] file = Files.readAllBytes(from.resolve(WeightFiles.MODEL));
        String text = new String(file, StandardCharsets.ISO_8859_1);
        // As many bytes, so that the header's length stays.
        text = text.replaceAll("\"transformer\\.([^\"]+)\":", "            \"$1\":");
        Files.write(bare.resolve(WeightFiles.MODEL), text.getBytes(StandardCharsets.ISO_8859_1));
        double[] a = losses(settings(shape(from), "single", 2, from, null));
        double[] b = losses(settings(shape(from), "single", 2, bare, null));
        assertArrayEquals(a, b, 0);
    }

    /** transformers has these in place of what a file lacks. */
    @ParameterizedTest
    @CsvSource({"gpt2,layer_norm_epsilon,1e-5", "llama,rms_norm_eps,1e-6"})
    void aMissingEpsilonIsThatOfTransformers(String model, String key, double expected)
            throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        Path made = MADE.resolve(model).resolve(ModelConfig.NAME);
        ObjectNode json = (ObjectNode) mapper.readTree(made.toFile());
        json.remove(key);
        mapper.writeValue(folder.resolve(ModelConfig.NAME).toFile(), json);
        assertEquals(expected, ModelConfig.read(folder).architecture().epsilon());
    }

    @ParameterizedTest
    @CsvSource({
        "gpt2,model_type,bert,expected gpt2 or llama",
        "gpt2,activation_function,relu,activation_function is relu",
        "gpt2,n_layer,two,n_layer is \"two\"",
        "gpt2,n_head,5,a divisor of n_embd 16",
        "llama,hidden_act,gelu,hidden_act is gelu",
        "llama,attention_bias,true,attention_bias is true",
        "llama,head_dim,32,head_dim is 32",
        "llama,rope_parameters,llama3,rope_type is llama3"
    })
    void whatIsNotSupportedIsRefused(String model, String key, String value, String expected)
            throws IOException {
        ObjectMapper mapper = new ObjectMapper();
        Path made = MADE.resolve(model).resolve(ModelConfig.NAME);
        ObjectNode json = (ObjectNode) mapper.readTree(made.toFile());
        if (key.startsWith("rope")) {
            json.putObject(key).put("rope_type", value);
        } else if (value.matches("\\d+")) {
            json.put(key, Integer.parseInt(value));
        } else {
            json.put(key, value);
        }
        mapper.writeValue(folder.resolve(ModelConfig.NAME).toFile(), json);
        IOException e = assertThrows(IOException.class, () -> ModelConfig.read(folder));
        String said = Objects.toString(e.getMessage());
        assertTrue(said.contains(expected) && said.contains(ModelConfig.NAME), said);
    }

    @ParameterizedTest
    @CsvSource({
        "gpt2,pp=2 accumulate=2,--pp is 2",
        "llama,tp=4,--key-heads is 2",
        "gpt2,tp=8,--tp is 8"
    })
    void layoutsThatDoNotFitAreRefused(String model, String techniques, String expected)
            throws IOException {
        GptShape shape = shape(MADE.resolve(model));
        Techniques t = Techniques.parse(techniques);
        Exception e = assertThrows(IllegalArgumentException.class, () -> t.check(shape, 2 * BATCH));
        assertTrue(Objects.toString(e.getMessage()).contains(expected), e.getMessage());
    }
}
