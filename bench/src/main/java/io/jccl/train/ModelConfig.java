package io.jccl.train;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.internal.FileReads;
import io.jccl.train.Architecture.Kind;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * {@code config.json} of a model in the format of Hugging Face's transformers: GPT-2 or Llama.
 * Unsupported settings that would change the result are rejected by name.
 */
public final class ModelConfig {
    static final String NAME = "config.json";

    /** Names of the numbers: ours, GPT-2's, Llama's. */
    private static final Map<Kind, List<String>> NAMES =
            Map.of(
                    Kind.GPT2,
                    List.of("n_layer", "n_embd", "n_head", "n_positions", "layer_norm_epsilon"),
                    Kind.LLAMA,
                    List.of(
                            "num_hidden_layers",
                            "hidden_size",
                            "num_attention_heads",
                            "max_position_embeddings",
                            "rms_norm_eps"));

    /** Epsilon of the norms of a Llama whose file has none, as in transformers. */
    private static final double LLAMA_EPSILON = 1e-6;

    private final Path file;
    private final JsonNode json;

    private ModelConfig(Path file, JsonNode json) {
        this.file = file;
        this.json = json;
    }

    /**
     * Whether a folder has a configuration.
     *
     * @param folder the folder
     * @return whether {@link #read} finds a file
     */
    public static boolean isIn(Path folder) {
        return Files.isRegularFile(folder.resolve(NAME));
    }

    /**
     * Reads the size of a model.
     *
     * @param folder with the file
     * @return the size; its context is the longest one
     * @throws IOException if it cannot be read, or has an unsupported setting; the message names it
     */
    public static GptShape read(Path folder) throws IOException {
        Path file = folder.resolve(NAME);
        JsonNode json;
        try {
            json = new ObjectMapper().readTree(file.toFile());
        } catch (JsonProcessingException e) {
            throw new IOException(file + " is not JSON: " + e.getOriginalMessage(), e);
        } catch (IOException e) {
            throw FileReads.named(file, e);
        }
        return new ModelConfig(file, json).shape();
    }

    private GptShape shape() throws IOException {
        String type = json.path("model_type").asText("none");
        Kind kind =
                switch (type) {
                    case "gpt2" -> Kind.GPT2;
                    case "llama" -> Kind.LLAMA;
                    default -> throw unsupported("model_type", type, "gpt2 or llama");
                };
        List<String> names = NAMES.getOrDefault(kind, List.of());
        int hidden = number(names.get(1));
        int heads = number(names.get(2));
        if (hidden % heads != 0) {
            throw unsupported(names.get(2), heads, "a divisor of " + names.get(1) + " " + hidden);
        }
        Architecture usual = Architecture.of(kind, hidden, heads);
        boolean gpt2 = kind == Kind.GPT2;
        double epsilon = json.path(names.get(4)).asDouble(gpt2 ? usual.epsilon() : LLAMA_EPSILON);
        int context = number(names.get(3));
        return new GptShape(
                number(names.get(0)),
                hidden,
                heads,
                context,
                number("vocab_size"),
                gpt2
                        ? gpt2(usual, epsilon, context)
                        : llama(usual, hidden / heads, epsilon, context));
    }

    private Architecture gpt2(Architecture usual, double epsilon, int positions)
            throws IOException {
        expect("activation_function", "gelu_new", "gelu_new", "gelu_pytorch_tanh");
        expect("scale_attn_weights", "true", "true");
        expect("scale_attn_by_inverse_layer_idx", "false", "false");
        expect("add_cross_attention", "false", "false");
        expect("tie_word_embeddings", "true", "true");
        int wide = json.path("n_inner").asInt(usual.wide());
        return new Architecture(
                Kind.GPT2, usual.keyHeads(), wide, epsilon, usual.rotaryBase(), true, positions);
    }

    private Architecture llama(Architecture usual, int size, double epsilon, int positions)
            throws IOException {
        expect("hidden_act", "silu", "silu");
        expect("attention_bias", "false", "false");
        expect("mlp_bias", "false", "false");
        expect("head_dim", Integer.toString(size), Integer.toString(size), "null");
        // Release 5 has both in rope_parameters, earlier ones in rope_theta and rope_scaling.
        JsonNode scaling =
                json.hasNonNull("rope_parameters")
                        ? json.path("rope_parameters")
                        : json.path("rope_scaling");
        String how = scaling.path("rope_type").asText(scaling.path("type").asText("default"));
        if (!how.equals("default")) {
            throw unsupported("rope_type", how, "default");
        }
        double base =
                scaling.path("rope_theta")
                        .asDouble(json.path("rope_theta").asDouble(usual.rotaryBase()));
        return new Architecture(
                Kind.LLAMA,
                json.path("num_key_value_heads").asInt(usual.keyHeads()),
                number("intermediate_size"),
                epsilon,
                base,
                json.path("tie_word_embeddings").asBoolean(false),
                positions);
    }

    private int number(String name) throws IOException {
        JsonNode n = json.path(name);
        if (!n.isInt() || n.asInt() < 1) {
            throw unsupported(name, n.isMissingNode() ? "missing" : n, "a number of 1 or more");
        }
        return n.asInt();
    }

    private void expect(String name, String usual, String... supported) throws IOException {
        String there = json.path(name).asText(usual);
        if (!List.of(supported).contains(there)) {
            throw unsupported(name, there, String.join(" or ", supported));
        }
    }

    private IOException unsupported(String name, Object there, String expected) {
        return new IOException(
                "%s: %s is %s, expected %s; load another model"
                        .formatted(file, name, there, expected));
    }

    /**
     * Writes what transformers needs to load a model; nothing for a model that it does not support.
     */
    static void write(Path folder, GptShape shape) throws IOException {
        Architecture a = shape.architecture();
        if (a.kind() == Kind.JCCL) {
            return;
        }
        boolean gpt2 = a.kind() == Kind.GPT2;
        List<String> names = NAMES.getOrDefault(a.kind(), List.of());
        ObjectNode to = new ObjectMapper().createObjectNode();
        to.put("model_type", gpt2 ? "gpt2" : "llama");
        to.putArray("architectures").add(gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM");
        to.put(names.get(0), shape.layers());
        to.put(names.get(1), shape.hidden());
        to.put(names.get(2), shape.heads());
        to.put(names.get(3), shape.positions());
        to.put(names.get(4), a.epsilon());
        to.put("vocab_size", shape.vocabulary());
        to.put("tie_word_embeddings", a.tied());
        if (gpt2) {
            to.put("n_inner", a.wide());
            to.put("activation_function", "gelu_new");
        } else {
            to.put("num_key_value_heads", a.keyHeads());
            to.put("intermediate_size", a.wide());
            to.put("hidden_act", "silu");
            to.put("rope_theta", a.rotaryBase());
        }
        to.put("torch_dtype", "float32");
        Checkpoints.write(folder.resolve(NAME), to.toPrettyString() + "\n");
    }
}
