package io.jccl.offload.memplan;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.NavigableSet;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * Shapes of well-known models, as published: papers for the older ones, the {@code config.json} of
 * the released checkpoints from LLaMA on. Vision towers and heads for further tokens are left out.
 */
public final class Presets {
    private static final Map<String, Model> MODELS = new LinkedHashMap<>();

    static {
        // Radford et al. 2019, table 2.
        gpt2("gpt2-124m", 12, 768, 12);
        gpt2("gpt2-355m", 24, 1024, 16);
        gpt2("gpt2-774m", 36, 1280, 20);
        gpt2("gpt2-1.5b", 48, 1600, 25);
        // arXiv 2005.14165, table 2.1. Its 13B has a width of 5140 there, which 40 heads of 128 and
        // the 12,850 million parameters of its table D.1 contradict.
        gpt3("gpt3-1.3b", 24, 2048, 16);
        gpt3("gpt3-2.7b", 32, 2560, 32);
        gpt3("gpt3-6.7b", 32, 4096, 32);
        gpt3("gpt3-13b", 40, 5120, 40);
        gpt3("gpt3-175b", 96, 12288, 96);
        // arXiv 1909.08053, table 1.
        MODELS.put("megatron-8.3b", Model.gpt(72, 3072, 32, 51_200, 1024));
        // The blog post on Turing-NLG, Microsoft Research, 2020.
        MODELS.put("turing-nlg-17b", Model.gpt(78, 4256, 28, 51_200, 1024));
        // arXiv 2201.11990.
        MODELS.put("mt-nlg-530b", Model.gpt(105, 20_480, 128, 51_200, 2048));
        // arXiv 2104.04473, table 1.
        MODELS.put("megatron-1t", Model.gpt(128, 25_600, 160, 51_200, 2048));
        // arXiv 2204.06745: rotary positions.
        MODELS.put("gpt-neox-20b", withoutPositions(44, 6144, 64, 50_432, Norms.GPT, false));
        // arXiv 2211.05100, table 3: ALiBi, and a norm after the embedding.
        MODELS.put(
                "bloom-176b",
                withoutPositions(70, 14_336, 112, 250_880, new Norms(2, true, 2), true));
        // arXiv 2302.13971, table 2.
        llama("llama-7b", 32, 4096, 32, 32, 11_008, 32_000, 2048);
        llama("llama-13b", 40, 5120, 40, 40, 13_824, 32_000, 2048);
        llama("llama-33b", 60, 6656, 52, 52, 17_920, 32_000, 2048);
        llama("llama-65b", 80, 8192, 64, 64, 22_016, 32_000, 2048);
        // arXiv 2307.09288.
        llama("llama2-7b", 32, 4096, 32, 32, 11_008, 32_000, 4096);
        llama("llama2-13b", 40, 5120, 40, 40, 13_824, 32_000, 4096);
        llama("llama2-70b", 80, 8192, 64, 8, 28_672, 32_000, 4096);
        // arXiv 2407.21783, table 3.
        llama("llama3-8b", 32, 4096, 32, 8, 14_336, 128_256, 8192);
        llama("llama3-70b", 80, 8192, 64, 8, 28_672, 128_256, 8192);
        llama("llama3-405b", 126, 16_384, 128, 8, 53_248, 128_256, 8192);
        // arXiv 2310.06825, arXiv 2401.04088, and the release of Mixtral 8x22B.
        llama("mistral-7b", 32, 4096, 32, 8, 14_336, 32_000, 8192);
        mixtral("mixtral-8x7b", 32, 4096, 32, 14_336, 32_000, 32_768);
        mixtral("mixtral-8x22b", 56, 6144, 48, 16_384, 32_000, 65_536);
        // arXiv 2412.15115.
        qwen2("qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151_936, true);
        qwen2("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 151_936, true);
        qwen2("qwen2.5-3b", 36, 2048, 16, 2, 11_008, 151_936, true);
        qwen2("qwen2.5-7b", 28, 3584, 28, 4, 18_944, 152_064, false);
        qwen2("qwen2.5-14b", 48, 5120, 40, 8, 13_824, 152_064, false);
        qwen2("qwen2.5-32b", 64, 5120, 40, 8, 27_648, 152_064, false);
        qwen2("qwen2.5-72b", 80, 8192, 64, 8, 29_568, 152_064, false);
        // arXiv 2505.09388.
        qwen3("qwen3-0.6b", 28, 1024, 16, 3072, true, null);
        qwen3("qwen3-1.7b", 28, 2048, 16, 6144, true, null);
        qwen3("qwen3-4b", 36, 2560, 32, 9728, true, null);
        qwen3("qwen3-8b", 36, 4096, 32, 12_288, false, null);
        qwen3("qwen3-14b", 40, 5120, 40, 17_408, false, null);
        qwen3("qwen3-32b", 64, 5120, 64, 25_600, false, null);
        qwen3("qwen3-30b-a3b", 48, 2048, 32, 6144, false, experts(128, 8, 768, 0, 0, false));
        qwen3("qwen3-235b-a22b", 94, 4096, 64, 12_288, false, experts(128, 8, 1536, 0, 0, false));
        // arXiv 2405.04434 and arXiv 2412.19437.
        deepseek("deepseek-v2-lite", 27, 2048, 16, 0, 10_944, experts(64, 6, 1408, 2816, 1, false));
        deepseek("deepseek-v2", 60, 5120, 128, 1536, 12_288, experts(160, 6, 1536, 3072, 1, false));
        modern(
                "deepseek-v3",
                61,
                7168,
                129_280,
                4096,
                new Attention.Latent(128, 1536, 512, 128, 64, 128),
                18_432,
                experts(256, 8, 2048, 2048, 3, true),
                Norms.LLAMA,
                false);
        // arXiv 2408.00118 and arXiv 2503.19786.
        gemma("gemma2-2b", 26, 2304, 8, 4, 256, 9216, 256_000, false);
        gemma("gemma2-9b", 42, 3584, 16, 8, 256, 14_336, 256_000, false);
        gemma("gemma2-27b", 46, 4608, 32, 16, 128, 36_864, 256_000, false);
        gemma("gemma3-1b", 26, 1152, 4, 1, 256, 6912, 262_144, true);
        gemma("gemma3-4b", 34, 2560, 8, 4, 256, 10_240, 262_208, true);
        gemma("gemma3-12b", 48, 3840, 16, 8, 256, 15_360, 262_208, true);
        gemma("gemma3-27b", 62, 5376, 32, 16, 128, 21_504, 262_208, true);
    }

    private Presets() {}

    /**
     * Finds a model by name.
     *
     * @param name such as {@code gpt3-175b}
     * @return the model
     * @throws IllegalArgumentException if there is none; the message lists them
     */
    public static Model of(String name) {
        Model model = MODELS.get(name);
        if (model == null) {
            throw new IllegalArgumentException(
                    "model '"
                            + name
                            + "' is unknown, expected one of "
                            + String.join(", ", MODELS.keySet())
                            + "; or give its shape, or its parameters");
        }
        return model;
    }

    /**
     * All names.
     *
     * @return the names in alphabetical order
     */
    public static NavigableSet<String> names() {
        return new TreeSet<>(MODELS.keySet());
    }

    private static void gpt2(String name, int layers, int hidden, int heads) {
        MODELS.put(name, Model.gpt(layers, hidden, heads, 50_257, 1024));
    }

    private static void gpt3(String name, int layers, int hidden, int heads) {
        MODELS.put(name, Model.gpt(layers, hidden, heads, Model.GPT_VOCABULARY, 2048));
    }

    private static Model withoutPositions(
            int layers, int hidden, int heads, int vocabulary, Norms norms, boolean tied) {
        return Model.of(
                layers,
                hidden,
                vocabulary,
                2048,
                Attention.Grouped.gpt(heads, hidden),
                new FeedForward(4.0 * hidden, false, true),
                null,
                norms,
                false,
                tied,
                true);
    }

    private static void llama(
            String name,
            int layers,
            int hidden,
            int heads,
            int groups,
            int width,
            int vocabulary,
            int sequence) {
        MODELS.put(name, Model.llama(layers, hidden, heads, groups, width, vocabulary, sequence));
    }

    private static Experts experts(
            int count, int active, int width, int shared, int dense, boolean routerBias) {
        return new Experts(
                count, active, new FeedForward(width, true, false), shared, dense, routerBias);
    }

    private static void mixtral(
            String name,
            int layers,
            int hidden,
            int heads,
            int width,
            int vocabulary,
            int sequence) {
        modern(
                name,
                layers,
                hidden,
                vocabulary,
                sequence,
                new Attention.Grouped(heads, 8, 128, false, false, false),
                width,
                experts(8, 2, width, 0, 0, false),
                Norms.LLAMA,
                false);
    }

    private static void qwen2(
            String name,
            int layers,
            int hidden,
            int heads,
            int groups,
            int width,
            int vocabulary,
            boolean tied) {
        modern(
                name,
                layers,
                hidden,
                vocabulary,
                32_768,
                new Attention.Grouped(heads, groups, (double) hidden / heads, true, false, false),
                width,
                null,
                Norms.LLAMA,
                tied);
    }

    private static void qwen3(
            String name,
            int layers,
            int hidden,
            int heads,
            int width,
            boolean tied,
            @Nullable Experts experts) {
        int groups = experts == null ? 8 : 4;
        modern(
                name,
                layers,
                hidden,
                151_936,
                32_768,
                new Attention.Grouped(heads, groups, 128, false, false, true),
                width,
                experts,
                Norms.LLAMA,
                tied);
    }

    private static void deepseek(
            String name,
            int layers,
            int hidden,
            int heads,
            int queryRank,
            int width,
            Experts experts) {
        modern(
                name,
                layers,
                hidden,
                102_400,
                4096,
                new Attention.Latent(heads, queryRank, 512, 128, 64, 128),
                width,
                experts,
                Norms.LLAMA,
                false);
    }

    private static void gemma(
            String name,
            int layers,
            int hidden,
            int heads,
            int groups,
            int headSize,
            int width,
            int vocabulary,
            boolean norms) {
        modern(
                name,
                layers,
                hidden,
                vocabulary,
                8192,
                new Attention.Grouped(heads, groups, headSize, false, false, norms),
                width,
                null,
                Norms.GEMMA,
                true);
    }

    /** Rotary positions, a gated MLP without biases, no dropout. */
    private static void modern(
            String name,
            int layers,
            int hidden,
            int vocabulary,
            int sequence,
            Attention attention,
            int width,
            @Nullable Experts experts,
            Norms norms,
            boolean tied) {
        MODELS.put(
                name,
                Model.of(
                        layers,
                        hidden,
                        vocabulary,
                        sequence,
                        attention,
                        new FeedForward(width, true, false),
                        experts,
                        norms,
                        false,
                        tied,
                        false));
    }
}
