package io.jccl.offload.timeplan;

import io.jccl.offload.memplan.Precision;
import io.jccl.topology.Gpu;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Data sheet values of a GPU. The shipped ones are in the resource {@code gpus.tsv} of this
 * package, each with its source.
 *
 * @param name short name, such as {@code H100}
 * @param model name in the topology's readers
 * @param fp8 dense TFLOP/s in 8-bit floats; 0 if the hardware lacks them
 * @param fp16 in float16
 * @param bf16 in bfloat16; 0 if the hardware lacks it
 * @param tf32 of float32 matrices rounded to TF32; 0 if the hardware lacks it
 * @param fp32 in float32
 * @param bytes of memory
 * @param memoryGbps GB/s of that memory
 * @param pcieGbps GB/s to and from the host, one way
 * @param link code between two of them, as {@code nvidia-smi topo -m} prints it
 * @param nicGbit Gbit/s of NIC for each GPU in a typical machine; 0 if there is none
 */
public record GpuType(
        String name,
        String model,
        double fp8,
        double fp16,
        double bf16,
        double tf32,
        double fp32,
        long bytes,
        double memoryGbps,
        double pcieGbps,
        String link,
        double nicGbit) {
    /** The shipped ones. */
    public static final List<GpuType> ALL =
            Resource.lines("gpus.tsv").stream().skip(1).map(GpuType::parse).toList();

    /** Words of a name that make it that of another card, with other memory or speed. */
    private static final Set<String> VARIANTS =
            Set.of("TI", "SUPER", "D", "LAPTOP", "MOBILE", "NVL", "HBM2E", "3E");

    private static final Pattern MEMORY = Pattern.compile("(\\d+)GB?");

    private static GpuType parse(String line) {
        String[] c = line.split("\t", -1);
        return new GpuType(
                c[0],
                c[1],
                Double.parseDouble(c[2]),
                Double.parseDouble(c[3]),
                Double.parseDouble(c[4]),
                Double.parseDouble(c[5]),
                Double.parseDouble(c[6]),
                Long.parseLong(c[7]) << 30,
                Double.parseDouble(c[8]),
                Double.parseDouble(c[9]),
                c[10],
                Double.parseDouble(c[11]));
    }

    /**
     * Finds a type by its short name.
     *
     * @param name such as {@code h100}
     * @return the type
     * @throws IllegalArgumentException if there is none; the message lists them
     */
    public static GpuType of(String name) {
        return find(name)
                .orElseThrow(() ->
                        new IllegalArgumentException(
                                "GPU type '" + name + "' is unknown, expected one of " + names()));
    }

    static Optional<GpuType> find(String name) {
        return ALL.stream().filter(g -> g.name.equalsIgnoreCase(name)).findFirst();
    }

    /**
     * The type of a topology's GPU: by its model if the topology has one, or else the usual one of
     * its compute capability.
     *
     * @param gpu the GPU
     * @return the type
     * @throws IllegalArgumentException if the model is unknown, or there is none and no usual type;
     *     the message names the option
     */
    public static GpuType of(Gpu gpu) {
        String model = gpu.model();
        Optional<GpuType> known = model == null ? usual(gpu.sm()) : ofModel(model);
        return known.orElseThrow(() ->
                new IllegalArgumentException(
                        "the type of "
                                + gpu.name()
                                + (model == null ? "" : ", " + model + ",")
                                + " is not known; give --gpu-type, one of "
                                + names()));
    }

    private static Optional<GpuType> usual(int sm) {
        return switch (sm) {
            case 70 -> find("V100");
            case 80 -> find("A100");
            case 86 -> find("3090");
            case 89 -> find("4090");
            case 90 -> find("H100");
            case 100 -> find("B200");
            default -> Optional.empty();
        };
    }

    /**
     * The type of a GPU by the driver's name for it: the most words that match, H100-PCIe before
     * H100. Memory in the name counts: A100-SXM4-40GB is A100-40.
     *
     * @param model such as {@code NVIDIA H100 80GB HBM3}
     * @return the type, if it is known
     */
    public static Optional<GpuType> ofModel(String model) {
        List<String> words = words(model);
        return ALL.stream()
                .filter(g -> g.isNamedBy(words))
                .max(Comparator.comparingInt(g -> g.words().size()));
    }

    /** The words of the name without the memory. */
    private List<String> words() {
        return words(name.replaceFirst("-\\d+$", ""));
    }

    private boolean isNamedBy(List<String> words) {
        List<String> own = words();
        return words.containsAll(own)
                && words.stream().allMatch(w -> own.contains(w) || !VARIANTS.contains(w))
                && words.stream().allMatch(this::hasMemory);
    }

    /** False if the word is an amount of memory, and not this type's. */
    private boolean hasMemory(String word) {
        Matcher m = MEMORY.matcher(word);
        // The GB of a Grace Hopper are its processor's.
        return !m.matches()
                || (word.endsWith("B") && name.startsWith("GH"))
                || m.group(1).equals(String.valueOf(bytes >> 30));
    }

    /** Compute capability times ten, as far as the constants depend on it. */
    int sm() {
        return model.startsWith("B200")
                ? 100
                : model.startsWith("H") || model.startsWith("GH")
                        ? 90
                        : model.startsWith("V100") ? 70 : 80;
    }

    private static String names() {
        return String.join(", ", ALL.stream().map(GpuType::name).toList());
    }

    private static List<String> words(String text) {
        return List.of(text.toUpperCase(Locale.ROOT).split("[^A-Z0-9]+", -1));
    }

    /**
     * Dense operations per second.
     *
     * @param precision number formats
     * @return TFLOP/s of products
     * @throws IllegalArgumentException if the hardware lacks the type
     */
    public double teraflops(Precision precision) {
        double rate =
                switch (precision) {
                    case FP32 -> fp32;
                    case FP8 -> fp8;
                    case FP16 -> fp16;
                    case BF16, BF16_STATES, BF16_PURE -> bf16;
                };
        if (rate == 0) {
            throw new IllegalArgumentException(
                    "%s has no %s in hardware; give --precision %s"
                            .formatted(name, precision, bf16 > 0 ? "bf16" : "fp16 or fp32"));
        }
        return rate;
    }
}
