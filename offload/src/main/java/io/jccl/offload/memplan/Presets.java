package io.jccl.offload.memplan;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableSet;
import java.util.TreeSet;
import java.util.function.BiFunction;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Shapes of well-known models, as published: papers for the older ones, the {@code config.json} of
 * the released checkpoints from LLaMA on. Vision towers and heads for further tokens are left out.
 *
 * <p><b>Threads:</b> any.
 */
public final class Presets {
    private static final Map<String, Model> MODELS = new LinkedHashMap<>();

    /** Layers, hidden size, heads, vocabulary and sequence of {@link Model#gpt}. */
    private static final String GPT =
            """
            # Radford et al. 2019, table 2.
            gpt2-124m       12   768  12  50257 1024
            gpt2-355m       24  1024  16  50257 1024
            gpt2-774m       36  1280  20  50257 1024
            gpt2-1.5b       48  1600  25  50257 1024
            # arXiv 2005.14165, table 2.1. Its 13B has a width of 5140 there, which 40 heads of
            # 128 and the 12,850 million parameters of its table D.1 contradict.
            gpt3-1.3b       24  2048  16  51200 2048
            gpt3-2.7b       32  2560  32  51200 2048
            gpt3-6.7b       32  4096  32  51200 2048
            gpt3-13b        40  5120  40  51200 2048
            gpt3-175b       96 12288  96  51200 2048
            # arXiv 1909.08053, table 1.
            megatron-8.3b   72  3072  32  51200 1024
            # The blog post on Turing-NLG, Microsoft Research, 2020.
            turing-nlg-17b  78  4256  28  51200 1024
            # arXiv 2201.11990.
            mt-nlg-530b    105 20480 128  51200 2048
            # arXiv 2104.04473, table 1.
            megatron-1t    128 25600 160  51200 2048
            """;

    /**
     * Models with rotary positions, a gated MLP, and neither biases nor dropout. The numbers:
     * layers, hidden size, query heads, key and value heads, size of a head, width of the MLP,
     * vocabulary, sequence. Without key and value heads it is latent attention, and the size is the
     * rank of its queries. The words: biases or norms of queries, keys and values; tied embeddings;
     * Gemma's norms; and the experts: their number, those of a token, the width of one and of the
     * shared ones, the layers without, and 1 if the router has a bias.
     */
    private static final String MODERN =
            """
            # arXiv 2302.13971, table 2.
            llama-7b          32  4096  32  32  128 11008  32000  2048
            llama-13b         40  5120  40  40  128 13824  32000  2048
            llama-33b         60  6656  52  52  128 17920  32000  2048
            llama-65b         80  8192  64  64  128 22016  32000  2048
            # arXiv 2307.09288.
            llama2-7b         32  4096  32  32  128 11008  32000  4096
            llama2-13b        40  5120  40  40  128 13824  32000  4096
            llama2-70b        80  8192  64   8  128 28672  32000  4096
            # arXiv 2407.21783, table 3.
            llama3-8b         32  4096  32   8  128 14336 128256  8192
            llama3-70b        80  8192  64   8  128 28672 128256  8192
            llama3-405b      126 16384 128   8  128 53248 128256  8192
            # arXiv 2310.06825, arXiv 2401.04088, and the release of Mixtral 8x22B.
            mistral-7b        32  4096  32   8  128 14336  32000  8192
            mixtral-8x7b      32  4096  32   8  128 14336  32000 32768 moe:8/2/14336/0/0/0
            mixtral-8x22b     56  6144  48   8  128 16384  32000 65536 moe:8/2/16384/0/0/0
            # arXiv 2412.15115.
            qwen2.5-0.5b      24   896  14   2   64  4864 151936 32768 bias tied
            qwen2.5-1.5b      28  1536  12   2  128  8960 151936 32768 bias tied
            qwen2.5-3b        36  2048  16   2  128 11008 151936 32768 bias tied
            qwen2.5-7b        28  3584  28   4  128 18944 152064 32768 bias
            qwen2.5-14b       48  5120  40   8  128 13824 152064 32768 bias
            qwen2.5-32b       64  5120  40   8  128 27648 152064 32768 bias
            qwen2.5-72b       80  8192  64   8  128 29568 152064 32768 bias
            # arXiv 2505.09388.
            qwen3-0.6b        28  1024  16   8  128  3072 151936 32768 norms tied
            qwen3-1.7b        28  2048  16   8  128  6144 151936 32768 norms tied
            qwen3-4b          36  2560  32   8  128  9728 151936 32768 norms tied
            qwen3-8b          36  4096  32   8  128 12288 151936 32768 norms
            qwen3-14b         40  5120  40   8  128 17408 151936 32768 norms
            qwen3-32b         64  5120  64   8  128 25600 151936 32768 norms
            qwen3-30b-a3b     48  2048  32   4  128  6144 151936 32768 norms moe:128/8/768/0/0/0
            qwen3-235b-a22b   94  4096  64   4  128 12288 151936 32768 norms moe:128/8/1536/0/0/0
            # arXiv 2405.04434 and arXiv 2412.19437.
            deepseek-v2-lite  27  2048  16   0    0 10944 102400  4096 moe:64/6/1408/2816/1/0
            deepseek-v2       60  5120 128   0 1536 12288 102400  4096 moe:160/6/1536/3072/1/0
            deepseek-v3       61  7168 128   0 1536 18432 129280  4096 moe:256/8/2048/2048/3/1
            # arXiv 2408.00118 and arXiv 2503.19786.
            gemma2-2b         26  2304   8   4  256  9216 256000  8192 tied gemma
            gemma2-9b         42  3584  16   8  256 14336 256000  8192 tied gemma
            gemma2-27b        46  4608  32  16  128 36864 256000  8192 tied gemma
            gemma3-1b         26  1152   4   1  256  6912 262144  8192 norms tied gemma
            gemma3-4b         34  2560   8   4  256 10240 262208  8192 norms tied gemma
            gemma3-12b        48  3840  16   8  256 15360 262208  8192 norms tied gemma
            gemma3-27b        62  5376  32  16  128 21504 262208  8192 norms tied gemma
            """;

    static {
        rows(GPT, (n, words) -> Model.gpt(n[0], n[1], n[2], n[3], n[4]));
        // arXiv 2204.06745: rotary positions.
        MODELS.put("gpt-neox-20b", withoutPositions(44, 6144, 64, 50_432, Norms.GPT, false));
        // arXiv 2211.05100, table 3: ALiBi, and a norm after the embedding.
        Norms bloom = new Norms(2, true, 2);
        MODELS.put("bloom-176b", withoutPositions(70, 14_336, 112, 250_880, bloom, true));
        rows(MODERN, Presets::modern);
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
                    ("model '%s' is unknown, expected one of %s; or give its shape, or its"
                                    + " parameters")
                            .formatted(name, String.join(", ", MODELS.keySet())));
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

    /** Adds the models of a table: a name, numbers, and words, the last of which may be experts. */
    private static void rows(String table, BiFunction<int[], List<String>, Model> shape) {
        for (String line : table.lines().filter(l -> !l.startsWith("#")).toList()) {
            List<String> words = List.of(line.split(" +", -1));
            Predicate<String> number = word -> Character.isDigit(word.charAt(0));
            int[] numbers = words.stream().filter(number).mapToInt(Integer::parseInt).toArray();
            MODELS.put(words.getFirst(), shape.apply(numbers, words));
        }
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

    private static Model modern(int[] n, List<String> words) {
        boolean bias = words.contains("bias");
        boolean norms = words.contains("norms");
        return Model.of(
                n[0],
                n[1],
                n[6],
                n[7],
                n[3] == 0
                        ? new Attention.Latent(n[2], n[4], 512, 128, 64, 128)
                        : new Attention.Grouped(n[2], n[3], n[4], bias, false, norms),
                new FeedForward(n[5], true, false),
                experts(words.getLast()),
                words.contains("gemma") ? Norms.GEMMA : Norms.LLAMA,
                false,
                words.contains("tied"),
                false);
    }

    private static @Nullable Experts experts(String word) {
        if (!word.startsWith("moe:")) {
            return null;
        }
        int[] n = Stream.of(word.split("[:/]", -1)).skip(1).mapToInt(Integer::parseInt).toArray();
        FeedForward expert = new FeedForward(n[2], true, false);
        return new Experts(n[0], n[1], expert, n[3], n[4], n[5] == 1);
    }
}
