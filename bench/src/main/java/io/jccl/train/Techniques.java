package io.jccl.train;

import io.jccl.device.DataType;
import io.jccl.offload.Tier;
import io.jccl.offload.zero.ZeroOptions;
import io.jccl.parallel.Compression;
import io.jccl.parallel.PipelineSchedule;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.function.Function;

/**
 * The techniques that a run uses. Ranks of a tensor group have consecutive numbers, followed by
 * expert groups, data groups and pipeline stages.
 *
 * @param data ranks with different samples, including those of expert parallelism
 * @param tensor ranks that split every matrix
 * @param pipeline pipeline stages
 * @param expert ranks that the experts are distributed over; a divisor of {@code data}
 * @param zero stage of ZeRO; -1 for whole parameters and a gradient reducer
 * @param offload where parameters, gradients and optimizer state are stored
 * @param accumulate micro-batches per rank and step
 * @param precision type of parameters and gradients: float32, or bfloat16 or float16 with float32
 *     master parameters; gradients in float16 have a loss scale
 * @param recompute whether only the blocks' inputs are kept for the backward pass (activation
 *     checkpointing)
 * @param sequenceParallel whether tensor ranks also split the rows between the matrices
 * @param schedule order of micro-batches in the pipeline
 * @param overlap whether the pipeline's communication overlaps computation
 * @param compress compression of gradients between data ranks
 */
public record Techniques(
        int data,
        int tensor,
        int pipeline,
        int expert,
        int zero,
        Offload offload,
        int accumulate,
        DataType precision,
        boolean recompute,
        boolean sequenceParallel,
        PipelineSchedule schedule,
        boolean overlap,
        Compression compress) {
    /** No techniques: one rank, one micro-batch, float32. */
    public static final Techniques NONE = single(1);

    /** Where parameters, gradients and optimizer state are stored. */
    public enum Offload {
        /** On the device. */
        NONE,
        /** In pinned host memory. */
        HOST,
        /** Optimizer state in a file, the rest in pinned host memory. */
        NVME,
        /** Optimizer state in a file, the rest on the device. */
        STATE;

        /** Whether parameters and gradients are in host memory. */
        public boolean host() {
            return this == HOST || this == NVME;
        }

        /** Whether optimizer state is in a file. */
        public boolean drive() {
            return this == NVME || this == STATE;
        }

        /**
         * Returns the value with the given name.
         *
         * @param label such as {@code host}
         * @return the value
         * @throws IllegalArgumentException if the name is unknown; the message contains it
         */
        public static Offload of(String label) {
            for (Offload o : values()) {
                if (o.label().equals(label)) {
                    return o;
                }
            }
            throw new IllegalArgumentException(
                    "--offload is '" + label + "', expected none, host or nvme, or state");
        }

        /**
         * Its name on the command line.
         *
         * @return such as {@code host}
         */
        public String label() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /**
     * Parses the format of {@link #toString}.
     *
     * @param text such as {@code "dp=2 zero=3 bf16"}; empty for none
     * @return the techniques
     * @throws IllegalArgumentException if a word is unknown, or the stage of ZeRO is not 0 to 3;
     *     the message names it
     */
    public static Techniques parse(String text) {
        Map<String, String> words = new LinkedHashMap<>();
        for (String word : text.strip().split("[ ,]+", -1)) {
            if (!word.isEmpty() && !word.equals("single")) {
                words.put(word.split("=", 2)[0], word);
            }
        }
        boolean staged = words.containsKey("zero");
        boolean half = flag(words, "fp16");
        boolean brain = flag(words, "bf16");
        boolean sequence = flag(words, "sequence-parallel");
        Techniques t =
                new Techniques(
                        number(words, "dp", NONE.data),
                        number(words, "tp", NONE.tensor),
                        number(words, "pp", NONE.pipeline),
                        number(words, "ep", NONE.expert),
                        number(words, "zero", NONE.zero),
                        value(words, "offload", Offload::of, NONE.offload),
                        number(words, "accumulate", NONE.accumulate),
                        half ? DataType.FLOAT16 : brain ? DataType.BFLOAT16 : NONE.precision,
                        flag(words, "recompute"),
                        sequence || flag(words, "sp"),
                        value(words, "schedule", PipelineSchedule::of, NONE.schedule),
                        !flag(words, "no-overlap"),
                        value(words, "compress", Techniques::compression, NONE.compress));
        words.values().forEach(Techniques::unknown);
        if (staged && (t.zero < 0 || t.zero > 3)) {
            throw new IllegalArgumentException("--zero is " + t.zero + ", expected 0 to 3");
        }
        return t;
    }

    private static <T> T value(
            Map<String, String> words, String key, Function<String, T> parser, T otherwise) {
        String word = words.remove(key);
        return word == null
                ? otherwise
                : parser.apply(word.substring(Math.min(key.length() + 1, word.length())));
    }

    private static int number(Map<String, String> words, String key, int otherwise) {
        String word = words.get(key);
        try {
            return value(words, key, Integer::valueOf, otherwise);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(
                    "technique '" + word + "' needs a number behind '='", e);
        }
    }

    private static boolean flag(Map<String, String> words, String key) {
        String word = words.remove(key);
        if (word != null && !word.equals(key)) {
            unknown(word);
        }
        return word != null;
    }

    /**
     * Returns the compression with the given name.
     *
     * @param label such as {@code bf16} or {@code topk:0.01}
     * @return the compression
     * @throws IllegalArgumentException if the name is unknown; the message contains it
     */
    public static Compression compression(String label) {
        String[] parts = label.split(":", 2);
        String number = parts.length == 2 ? parts[1] : "";
        try {
            return switch (parts[0]) {
                case "topk" -> new Compression.TopK(Double.parseDouble(number));
                case "powersgd" -> new Compression.PowerSgd(Integer.parseInt(number));
                default -> whole(label);
            };
        } catch (NumberFormatException e) {
            throw noCompression(label, e);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(
                    "--compress is '" + label + "': " + e.getMessage(), e);
        }
    }

    /**
     * Compressions without a parameter; the caller rejects unknown ones as a number format error.
     */
    private static Compression whole(String label) {
        return switch (label) {
            case "none" -> Compression.NONE;
            case "bf16" -> new Compression.Cast(DataType.BFLOAT16);
            case "fp16" -> new Compression.Cast(DataType.FLOAT16);
            default -> throw new NumberFormatException(label);
        };
    }

    private static IllegalArgumentException noCompression(
            String label, NumberFormatException cause) {
        return new IllegalArgumentException(
                ("--compress is '%s', expected none, bf16, fp16, topk:DENSITY such as topk:0.01, or"
                                + " powersgd:RANK such as powersgd:4")
                        .formatted(label),
                cause);
    }

    /**
     * The compression, as on the command line.
     *
     * @return such as {@code topk:0.01}
     */
    public String compressLabel() {
        return switch (compress) {
            case Compression.None none -> "none";
            case Compression.Cast(DataType type) -> type == DataType.BFLOAT16 ? "bf16" : "fp16";
            case Compression.TopK(double density) -> "topk:" + density;
            case Compression.PowerSgd(int rank, long seed) -> "powersgd:" + rank;
        };
    }

    private static void unknown(String word) {
        throw new IllegalArgumentException(
                "technique '"
                        + word
                        + "' is unknown, expected some of dp=N tp=N pp=N ep=N zero=0..3"
                        + " offload=none|host|nvme|state accumulate=N schedule=gpipe|1f1b bf16 fp16 recompute"
                        + " sequence-parallel no-overlap compress=bf16|fp16|topk:D|powersgd:R");
    }

    /**
     * Number of ranks.
     *
     * @return the world size
     */
    public int ranks() {
        return data * tensor * pipeline;
    }

    /** Micro-batches of a step, of all ranks. */
    int microBatches() {
        return data * accumulate;
    }

    /**
     * Whether parameters and gradients are narrower than float32.
     *
     * @return whether they are bfloat16 or float16
     */
    public boolean narrow() {
        return precision != DataType.FLOAT32;
    }

    /**
     * Whether the loss has a scale, since gradients are float16.
     *
     * @return whether steps may be skipped
     */
    public boolean scaled() {
        return precision == DataType.FLOAT16;
    }

    /** Whether the ZeRO optimizer stores the parameters. */
    boolean sharded() {
        return zero >= 0 || narrow() || offload != Offload.NONE;
    }

    /** Options of the ZeRO optimizer. */
    ZeroOptions zeroOptions() {
        Tier near = offload.host() ? Tier.PINNED : Tier.DEVICE;
        return ZeroOptions.stage(Math.max(0, zero))
                .withTypes(precision, precision)
                .withTiers(near, near, offload.drive() ? Tier.NVME : near)
                .withAccumulation(accumulate);
    }

    /**
     * A single-rank run for comparison. With experts, two runs route identically if their
     * micro-batches are the same.
     *
     * @return one rank that computes the same micro-batches
     */
    public Techniques reference() {
        return single(microBatches());
    }

    private static Techniques single(int accumulate) {
        return new Techniques(
                1,
                1,
                1,
                1,
                -1,
                Offload.NONE,
                accumulate,
                DataType.FLOAT32,
                false,
                false,
                PipelineSchedule.ONE_F_ONE_B,
                true,
                Compression.NONE);
    }

    /**
     * Checks that the techniques are compatible with each other and with the model.
     *
     * @param shape the model
     * @param batch sequences per step
     * @throws IllegalArgumentException if they are not; the message names the values
     */
    public void check(GptShape shape, int batch) {
        TechniqueCheck.check(this, shape, batch);
    }

    @Override
    public String toString() {
        StringJoiner s = new StringJoiner(" ");
        s.setEmptyValue("single");
        add(s, "dp", data);
        add(s, "tp", tensor);
        add(s, "pp", pipeline);
        if (pipeline > 1) {
            s.add("schedule=" + schedule.label());
            if (!overlap) {
                s.add("no-overlap");
            }
        }
        add(s, "ep", expert);
        if (zero >= 0) {
            s.add("zero=" + zero);
        }
        if (offload != Offload.NONE) {
            s.add("offload=" + offload.label());
        }
        add(s, "accumulate", accumulate);
        if (narrow()) {
            s.add(scaled() ? "fp16" : "bf16");
        }
        if (recompute) {
            s.add("recompute");
        }
        if (sequenceParallel) {
            s.add("sequence-parallel");
        }
        if (!(compress instanceof Compression.None)) {
            s.add("compress=" + compressLabel());
        }
        return s.toString();
    }

    private static void add(StringJoiner s, String name, int value) {
        if (value != 1) {
            s.add(name + "=" + value);
        }
    }
}
