package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * What follows from the name of a GPU, or from its NVLinks if the name is not known.
 *
 * <p>Sources: compute capabilities from NVIDIA's list of CUDA GPUs
 * (developer.nvidia.com/cuda-gpus); links and rates from NVIDIA's data sheets and the GA102
 * whitepaper, as collected in stas00/ml-engineering, network/README.md; raw rates as {@code
 * nvidia-smi nvlink -s} prints them (docs.nvidia.com/health-validation for Hopper and Blackwell).
 */
final class GpuModels {
    /** The most NVLinks of a GPU on the market, for GPUs of unknown model. */
    static final int MAX_LINKS = 18;

    /**
     * A kind of GPU.
     *
     * @param name regular expression for the marketing name
     * @param sm compute capability times ten
     * @param links most NVLinks to other GPUs or switches
     * @param advertised GB/s per NVLink and direction in the data sheet; 0 without NVLinks
     * @param c2c GB/s per direction of NVLink-C2C to its CPU; 0 if it has none
     */
    record Model(Pattern name, int sm, int links, double advertised, double c2c) {
        Model(String name, int sm, int links, double advertised) {
            this(name, sm, links, advertised, 0);
        }

        Model(String name, int sm, int links, double advertised, double c2c) {
            this(Pattern.compile(name), sm, links, advertised, c2c);
        }
    }

    /** The first that matches the name counts. */
    private static final List<Model> MODELS =
            List.of(
                    new Model("\\bGB300\\b", 103, 18, 50, 450),
                    new Model("\\bB300\\b", 103, 18, 50),
                    new Model("\\bGB200\\b", 100, 18, 50, 450),
                    new Model("\\bB[12]00\\b", 100, 18, 50),
                    new Model("\\bGB10\\b", 121, 0, 0),
                    new Model("\\bRTX PRO \\d{4}\\b|\\bRTX 50[5-9]0", 120, 0, 0),
                    new Model("\\bGH200\\b", 90, 18, 25, 450),
                    new Model("\\bH800\\b", 90, 8, 25),
                    new Model("\\bH100 (PCIE|NVL)\\b", 90, 12, 25),
                    new Model("\\bH(100|200|20)\\b", 90, 18, 25),
                    new Model("\\bA800\\b", 80, 8, 25),
                    new Model("\\bA100\\b", 80, 12, 25),
                    new Model("\\bA30\\b", 80, 4, 25),
                    new Model(
                            "\\bRTX (3090|A5500|A5000|A4500)\\b|\\bA(40|6000)\\b", 86, 4, 14.0625),
                    new Model("\\bRTX (30[5-8]0|A4000|A2000)|\\bA(10|10G|16|2)\\b", 86, 0, 0),
                    new Model("\\bL(40S?|4|20|2)\\b|\\bRTX 40[5-9]0|\\bADA\\b", 89, 0, 0),
                    new Model("\\bV100S?\\b", 70, 6, 25),
                    new Model("\\bGV100\\b", 70, 4, 25),
                    new Model("\\bTITAN V\\b", 70, 0, 0),
                    new Model("\\b2080 TI\\b|\\bRTX [68]000\\b|\\bTITAN RTX\\b", 75, 2, 25),
                    new Model("\\bRTX (2080|5000)\\b", 75, 1, 25),
                    new Model("\\bT4\\b|\\bRTX (20[67]0|[34]000)\\b", 75, 0, 0),
                    new Model("\\bP100\\b", 60, 4, 20),
                    new Model("\\bP(4|40)\\b|\\bGTX 10[5-8]0", 61, 0, 0),
                    new Model("\\bM(40|60|4|10)\\b", 52, 0, 0),
                    new Model("\\bK80\\b", 37, 0, 0));

    private static final Pattern SM = Pattern.compile("SM_?(\\d{2,3})");

    /** Raw GB/s of a link as printed, and the compute capability that has it. */
    private static final double[][] RAW = {
        {25.781, 70}, {25, 80}, {14.062, 86}, {26.562, 90}, {53.125, 100}
    };

    private GpuModels() {}

    /** By name: {@code NVIDIA H100 80GB HBM3}, {@code h100}, {@code sm_90}. */
    static Optional<Model> find(String name) {
        String upper = name.toUpperCase(Locale.ROOT).strip().replace('-', ' ').replace('_', ' ');
        for (Model model : MODELS) {
            if (model.name.matcher(upper).find()) {
                return Optional.of(model);
            }
        }
        Matcher m = SM.matcher(name.toUpperCase(Locale.ROOT).strip());
        if (m.matches()) {
            int sm = Integer.parseInt(m.group(1));
            return Optional.of(new Model("", sm, MAX_LINKS, 0));
        }
        return Optional.empty();
    }

    /**
     * The model in the options; null if there is none.
     *
     * @throws IllegalArgumentException if it is not known
     */
    static @Nullable Model given(ReadOptions options) {
        String name = options.gpuModel();
        if (name == null) {
            return null;
        }
        return find(name)
                .orElseThrow(() ->
                        new IllegalArgumentException(
                                "GPU model "
                                        + name
                                        + " is not known: expected a name such as H100,"
                                        + " A100-SXM4-80GB or RTX 3090, or a compute capability"
                                        + " such as sm_90"));
    }

    /** Compute capability times ten of the GPUs whose links run at a raw rate; 0 if none does. */
    static int smOfRate(double raw) {
        for (double[] r : RAW) {
            if (Math.abs(raw - r[0]) < 0.01 * r[0]) {
                return (int) r[1];
            }
        }
        return 0;
    }

    /**
     * How a link that runs at a raw rate compares to one at full speed. The planning figure of a
     * generation is for links at full speed; it is scaled by this.
     */
    static double speed(int sm, double raw) {
        double full = 0;
        for (double[] r : RAW) {
            full = (sm == 75 ? 70 : Math.min(sm, 100)) == r[1] ? r[0] : full;
        }
        double ratio = full == 0 ? 1 : raw / full;
        return Math.abs(ratio - 1) < 0.05 ? 1 : ratio;
    }

    /**
     * A guess by the counts of the NVLinks.
     *
     * @param min smallest count it is for
     * @param max largest
     * @param minGroup fewest GPUs that are joined pair by pair
     * @param maxGroup most
     * @param sm compute capability times ten that is taken
     * @param links most NVLinks of such a GPU
     * @param who what the counts fit
     */
    record Guess(int min, int max, int minGroup, int maxGroup, int sm, int links, String who) {}

    private static final int ANY = Integer.MAX_VALUE;

    /** Counts by machine as seen in the field; the first that fits is taken. */
    private static final List<Guess> GUESSES =
            List.of(
                    new Guess(1, 1, 2, ANY, 60, 18, "P100, or a part of a V100 cube mesh"),
                    new Guess(1, 3, 2, ANY, 70, 18, "V100, or RTX 2080 Ti if it is a pair"),
                    new Guess(4, 4, 3, ANY, 80, 18, "A100 on a board of four"),
                    new Guess(4, 4, 2, 2, 86, 18, "RTX 3090, A6000 or A40, or two of four A100"),
                    new Guess(6, 6, 4, 4, 90, 18, "GH200, or GB200 on a board of four"),
                    new Guess(
                            6, 6, 2, ANY, 70, 18, "V100 on NVSwitches, or a part of a GH200 node"),
                    new Guess(8, 8, 2, ANY, 80, 8, "A800 and H800"),
                    new Guess(12, 12, 2, ANY, 80, 12, "A100, or an H100 PCIe pair"),
                    new Guess(13, 18, 2, ANY, 90, 18, "H100, H200 and H20, and B200 and newer"),
                    new Guess(19, ANY, 2, ANY, 100, 36, "what is newer than B300"));

    /**
     * Guesses the generation.
     *
     * @param smallest smallest count of NVLinks of a pair
     * @param largest largest count
     * @param group GPUs in the largest set that is joined
     * @return the guess; null if nothing fits
     */
    static @Nullable Guess guess(int smallest, int largest, int group) {
        for (Guess g : GUESSES) {
            if (smallest >= g.min
                    && largest <= g.max
                    && group >= g.minGroup
                    && group <= g.maxGroup) {
                return g;
            }
        }
        return null;
    }

    /** What a pair's code shows of NVLinks. */
    static int links(PathCode code) {
        return code.kind() == PathCode.Kind.NV ? code.count() : 0;
    }
}
