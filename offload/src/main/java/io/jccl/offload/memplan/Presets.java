package io.jccl.offload.memplan;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.NavigableSet;
import java.util.TreeSet;

/** Shapes of well-known models, as published. */
public final class Presets {
    private static final Map<String, Model> MODELS = new LinkedHashMap<>();

    static {
        // Radford et al. 2019, table 2.
        gpt2("gpt2-124m", 12, 768, 12);
        gpt2("gpt2-355m", 24, 1024, 16);
        gpt2("gpt2-774m", 36, 1280, 20);
        gpt2("gpt2-1.5b", 48, 1600, 25);
        // arXiv 2005.14165, table 2.1.
        gpt3("gpt3-1.3b", 24, 2048, 16);
        gpt3("gpt3-2.7b", 32, 2560, 32);
        gpt3("gpt3-6.7b", 32, 4096, 32);
        gpt3("gpt3-13b", 40, 5140, 40);
        gpt3("gpt3-175b", 96, 12288, 96);
        // arXiv 1909.08053, table 1.
        MODELS.put("megatron-8.3b", Model.gpt(72, 3072, 32, 51_200, 1024));
        // The blog post on Turing-NLG, Microsoft Research, 2020.
        MODELS.put("turing-nlg-17b", Model.gpt(78, 4256, 28, 51_200, 1024));
        // arXiv 2201.11990.
        MODELS.put("mt-nlg-530b", Model.gpt(105, 20_480, 128, 51_200, 2048));
        // arXiv 2104.04473, table 1.
        MODELS.put("megatron-1t", Model.gpt(128, 25_600, 160, 51_200, 2048));
        // arXiv 2204.06745.
        MODELS.put("gpt-neox-20b", Model.of(44, 6144, 64, 50_432, 2048, 4, false));
        // arXiv 2211.05100, table 3.
        MODELS.put("bloom-176b", Model.gpt(70, 14_336, 112, 250_880, 2048));
        // arXiv 2302.13971, table 2; widths of the gated MLP from its models' configurations.
        llama("llama-7b", 32, 4096, 32, 11_008);
        llama("llama-13b", 40, 5120, 40, 13_824);
        llama("llama-33b", 60, 6656, 52, 17_920);
        llama("llama-65b", 80, 8192, 64, 22_016);
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

    private static void llama(String name, int layers, int hidden, int heads, int width) {
        MODELS.put(
                name, Model.of(layers, hidden, heads, 32_000, 2048, 1.5 * width / hidden, false));
    }
}
