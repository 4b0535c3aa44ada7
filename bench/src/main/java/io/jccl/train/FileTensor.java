package io.jccl.train;

import io.jccl.train.GptShape.Weight;
import java.util.ArrayList;
import java.util.List;

/**
 * A tensor of a file of weights: some columns of a weight, or all.
 *
 * @param name in the file
 * @param shape in the file
 * @param first first of the weight's columns
 * @param columns number of columns
 * @param transposed whether a row of the file is a column of the weight, as in PyTorch's Linear
 */
record FileTensor(String name, List<Long> shape, int first, int columns, boolean transposed) {
    /** The prefix of GPT-2's names in transformers; files from the first release have none. */
    static final String PREFIX = "transformer.";

    private static final String BIAS = ".bias";

    /** The tensors of a weight, in the order of its columns. */
    static List<FileTensor> of(
            Architecture a, String prefix, Part.Layer layer, Weight w, String suffix) {
        int dot = layer.name().indexOf('.');
        String block = dot < 0 ? layer.name() : layer.name().substring(0, dot);
        if (a.kind() == Architecture.Kind.JCCL) {
            String name = block + "." + w.name() + suffix;
            List<Long> shape = List.of((long) w.rows(), (long) w.columns());
            return List.of(new FileTensor(name, shape, 0, w.columns(), false));
        }
        boolean bias = w.name().endsWith(BIAS);
        String own = bias ? w.name().substring(0, w.name().length() - BIAS.length()) : w.name();
        String end = (bias ? BIAS : ".weight") + suffix;
        String number = block.startsWith("block") ? block.substring("block".length()) : "";
        List<String> names;
        if (a.kind() == Architecture.Kind.GPT2) {
            String in = prefix + (number.isEmpty() ? "" : "h." + number + ".");
            names = List.of(in + gpt2(own));
        } else {
            String in = number.isEmpty() ? "" : "model.layers." + number + ".";
            names = llama(own).stream().map(n -> in + n).toList();
        }
        boolean row = bias || own.startsWith("norm");
        boolean turned = own.equals("logits") || (a.kind() == Architecture.Kind.LLAMA && !row);
        turned &= !own.equals("token");
        List<FileTensor> all = new ArrayList<>();
        int first = 0;
        for (int i = 0; i < names.size(); i++) {
            int columns = names.size() == 1 ? w.columns() : w.groups().get(i);
            List<Long> shape =
                    row
                            ? List.of((long) columns)
                            : turned
                                    ? List.of((long) columns, (long) w.rows())
                                    : List.of((long) w.rows(), (long) columns);
            all.add(new FileTensor(names.get(i) + end, shape, first, columns, turned));
            first += columns;
        }
        return all;
    }

    /** Names of {@code GPT2LMHeadModel}. */
    private static String gpt2(String own) {
        return switch (own) {
            case "token" -> "wte";
            case "position" -> "wpe";
            case "norm1" -> "ln_1";
            case "qkv" -> "attn.c_attn";
            case "out" -> "attn.c_proj";
            case "norm2" -> "ln_2";
            case "w1" -> "mlp.c_fc";
            case "w2" -> "mlp.c_proj";
            case "norm" -> "ln_f";
            default -> throw new IllegalArgumentException("GPT-2 has no tensor " + own);
        };
    }

    /** Names of {@code LlamaForCausalLM}. */
    private static List<String> llama(String own) {
        return switch (own) {
            case "token" -> List.of("model.embed_tokens");
            case "norm1" -> List.of("input_layernorm");
            case "qkv" -> List.of("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj");
            case "out" -> List.of("self_attn.o_proj");
            case "norm2" -> List.of("post_attention_layernorm");
            case "w1" -> List.of("mlp.gate_proj", "mlp.up_proj");
            case "w2" -> List.of("mlp.down_proj");
            case "norm" -> List.of("model.norm");
            case "logits" -> List.of("lm_head");
            default -> throw new IllegalArgumentException("Llama has no tensor " + own);
        };
    }

    /** This tensor's elements of a whole weight, in the file's order. */
    float[] of(float[] whole, Weight w) {
        if (!transposed) {
            return whole;
        }
        int rows = w.rows();
        int stride = w.columns();
        float[] turned = new float[rows * columns];
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < columns; c++) {
                turned[c * rows + r] = whole[r * stride + first + c];
            }
        }
        return turned;
    }
}
