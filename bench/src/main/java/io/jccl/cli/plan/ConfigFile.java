package io.jccl.cli.plan;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.topo.TopologyText;
import io.jccl.offload.memplan.Attention;
import io.jccl.offload.memplan.Experts;
import io.jccl.offload.memplan.FeedForward;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.Norms;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * A model's shape from the {@code config.json} of a Hugging Face checkpoint. Fields that a file
 * leaves out have the defaults of the Transformers library's configuration classes. A separate
 * class, so that nothing else loads Jackson.
 */
final class ConfigFile {
    /** By {@code model_type}. */
    private static final Map<String, Function<ConfigFile, Model>> TYPES = new TreeMap<>();

    static {
        TYPES.put("gpt2", ConfigFile::gpt2);
        TYPES.put("gpt_neox", ConfigFile::neox);
        TYPES.put("bloom", ConfigFile::bloom);
        TYPES.put("llama", c -> c.modern(c.biased("attention_bias"), Norms.LLAMA, null, false));
        TYPES.put(
                "mistral", c -> c.modern(c.grouped(false, false, false), Norms.LLAMA, null, false));
        TYPES.put("mixtral", ConfigFile::mixtral);
        TYPES.put("qwen2", c -> c.modern(c.grouped(true, false, false), Norms.LLAMA, null, false));
        TYPES.put("qwen3", c -> c.modern(c.qwen3Attention(), Norms.LLAMA, null, false));
        TYPES.put("qwen3_moe", ConfigFile::qwen3Experts);
        TYPES.put("deepseek_v2", c -> c.deepseek(false));
        TYPES.put("deepseek_v3", c -> c.deepseek(true));
        TYPES.put("gemma", c -> c.modern(c.grouped(false, false, false), Norms.LLAMA, null, true));
        TYPES.put("gemma2", c -> c.modern(c.grouped(false, false, false), Norms.GEMMA, null, true));
        TYPES.put(
                "gemma3_text",
                c -> c.modern(c.grouped(false, false, true), Norms.GEMMA, null, true));
    }

    private final Path file;
    private final JsonNode root;

    private ConfigFile(Path file, JsonNode root) {
        this.file = file;
        this.root = root;
    }

    /** The file, if it is given by its folder. */
    static Path in(Path file) {
        return Files.isDirectory(file) ? file.resolve("config.json") : file;
    }

    /**
     * Reads a file.
     *
     * @param file the file, or the folder that has it
     * @return the model, trained on its longest sample
     * @throws IllegalArgumentException if it cannot be read, is of another type of model, or lacks
     *     a field; the message suggests a remedy
     */
    static Model read(Path file) {
        Path path = in(file);
        if (Files.notExists(path)) {
            throw new IllegalArgumentException(
                    path + " does not exist; give the config.json of a checkpoint");
        }
        JsonNode node;
        try {
            node = new ObjectMapper().readTree(TopologyText.read("--config", path));
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(
                    format(
                            "%s is not JSON (%s); give a model's config.json",
                            path, e.getOriginalMessage()));
        } catch (IOException e) {
            throw new IllegalArgumentException(e.getMessage(), e);
        }
        // Models of several parts have that of the text apart.
        JsonNode text = node.path("text_config");
        if (text.isObject() && !node.has("num_hidden_layers")) {
            node = text;
        }
        String type = node.path("model_type").asText("").toLowerCase(Locale.ROOT);
        Function<ConfigFile, Model> reader = TYPES.get(type);
        if (reader == null) {
            throw new IllegalArgumentException(
                    path
                            + (type.isEmpty()
                                    ? " has no model_type"
                                    : " is of model_type '" + type + "', which is unknown")
                            + ", expected one of "
                            + String.join(", ", TYPES.keySet())
                            + "; give the shape with --layers and --hidden instead");
        }
        return reader.apply(new ConfigFile(path, node));
    }

    private Model gpt2() {
        int h = need("n_embd");
        return Model.of(
                need("n_layer"),
                h,
                need("vocab_size"),
                or(1024, "n_positions"),
                Attention.Grouped.gpt(need("n_head"), h),
                new FeedForward(or(4 * h, "n_inner"), false, true),
                null,
                Norms.GPT,
                true,
                tied(true),
                true);
    }

    private Model neox() {
        int h = need("hidden_size");
        return Model.of(
                need("num_hidden_layers"),
                h,
                need("vocab_size"),
                or(2048, "max_position_embeddings"),
                Attention.Grouped.gpt(need("num_attention_heads"), h),
                new FeedForward(need("intermediate_size"), false, true),
                null,
                Norms.GPT,
                false,
                tied(false),
                true);
    }

    private Model bloom() {
        int h = need("hidden_size", "n_embed");
        return Model.of(
                need("n_layer", "num_hidden_layers"),
                h,
                need("vocab_size"),
                or(2048, "seq_length"),
                Attention.Grouped.gpt(need("n_head", "num_attention_heads"), h),
                new FeedForward(4.0 * h, false, true),
                null,
                new Norms(2, true, 2),
                false,
                tied(true),
                true);
    }

    private Model mixtral() {
        Experts experts =
                new Experts(
                        need("num_local_experts"),
                        or(2, "num_experts_per_tok"),
                        mlp("intermediate_size"),
                        0,
                        0,
                        false);
        return modern(grouped(false, false, false), Norms.LLAMA, experts, false);
    }

    private Model qwen3Experts() {
        refuse("decoder_sparse_step", 1);
        if (!root.path("mlp_only_layers").isEmpty()) {
            throw new IllegalArgumentException(
                    file
                            + " has mlp_only_layers "
                            + root.path("mlp_only_layers")
                            + ", which is not supported; give a model with experts in every layer");
        }
        Experts experts =
                new Experts(
                        need("num_experts"),
                        or(8, "num_experts_per_tok"),
                        mlp("moe_intermediate_size"),
                        0,
                        0,
                        false);
        return modern(qwen3Attention(), Norms.LLAMA, experts, false);
    }

    private Model deepseek(boolean routerBias) {
        refuse("moe_layer_freq", 1);
        FeedForward expert = mlp("moe_intermediate_size");
        Experts experts =
                new Experts(
                        need("n_routed_experts"),
                        need("num_experts_per_tok"),
                        expert,
                        or(0, "n_shared_experts") * expert.width(),
                        or(0, "first_k_dense_replace"),
                        routerBias);
        return modern(
                new Attention.Latent(
                        need("num_attention_heads"),
                        or(0, "q_lora_rank"),
                        need("kv_lora_rank"),
                        need("qk_nope_head_dim"),
                        need("qk_rope_head_dim"),
                        need("v_head_dim")),
                Norms.LLAMA,
                experts,
                false);
    }

    /** Rotary positions, a gated MLP, no dropout. */
    private Model modern(
            Attention attention, Norms norms, @Nullable Experts experts, boolean tiedByDefault) {
        return Model.of(
                need("num_hidden_layers"),
                need("hidden_size"),
                need("vocab_size"),
                need("max_position_embeddings"),
                attention,
                mlp("intermediate_size"),
                experts,
                norms,
                false,
                tied(tiedByDefault),
                false);
    }

    private FeedForward mlp(String width) {
        return new FeedForward(need(width), true, root.path("mlp_bias").asBoolean(false));
    }

    private Attention qwen3Attention() {
        boolean bias = root.path("attention_bias").asBoolean(false);
        return grouped(bias, bias, true);
    }

    private Attention biased(String field) {
        boolean bias = root.path(field).asBoolean(false);
        return grouped(bias, bias, false);
    }

    private Attention grouped(boolean inputBias, boolean outputBias, boolean norms) {
        int heads = need("num_attention_heads");
        double size =
                root.hasNonNull("head_dim")
                        ? need("head_dim")
                        : (double) need("hidden_size") / heads;
        return new Attention.Grouped(
                heads, or(heads, "num_key_value_heads"), size, inputBias, outputBias, norms);
    }

    private boolean tied(boolean otherwise) {
        return root.path("tie_word_embeddings").asBoolean(otherwise);
    }

    private void refuse(String field, int expected) {
        int value = or(expected, field);
        if (value != expected) {
            throw new IllegalArgumentException(
                    format(
                            "%s has %s %s, expected %s: other layouts of experts are not supported",
                            file, field, value, expected));
        }
    }

    /** The first of the fields that there is. */
    private int need(String... names) {
        for (String name : names) {
            if (root.hasNonNull(name)) {
                return number(name);
            }
        }
        throw new IllegalArgumentException(
                format(
                        "%s has no field '%s', which a model of type %s needs; add it",
                        file, names[0], root.path("model_type").asText()));
    }

    private int or(int otherwise, String name) {
        return root.hasNonNull(name) ? number(name) : otherwise;
    }

    private int number(String name) {
        JsonNode value = root.get(name);
        if (!value.isIntegralNumber() || !value.canConvertToInt()) {
            throw new IllegalArgumentException(
                    file + " has " + name + " " + value + ", expected a whole number");
        }
        return value.intValue();
    }
}
