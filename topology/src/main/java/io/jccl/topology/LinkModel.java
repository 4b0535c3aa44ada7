package io.jccl.topology;

import java.util.Locale;

/**
 * Bandwidths that NCCL plans with, in GB/s (10^9 bytes) per direction. They are achievable rates,
 * not signalling rates.
 *
 * <p>Source: NCCL 2.30, src/graph/topo.h (constants, {@code ncclTopoNVLinkBw}) and
 * src/graph/topo.cc ({@code kvDictPciGen}, {@code ncclTopoGetInterCpuBw}).
 *
 * <p><b>Threads:</b> any.
 */
public final class LinkModel {
    /** A PCIe 3.0 x16 slot. */
    public static final double PCIE_3_X16 = 12;

    /** Assumed for a NIC of unknown speed: 100 Gbit/s. */
    public static final double DEFAULT_NIC = 12;

    /** Assumed for a link between unknown CPUs: Skylake's UPI. */
    public static final double DEFAULT_SMP = 10;

    /** Within a device or a switch: no limit worth modelling. */
    public static final double LOCAL = 5000;

    private LinkModel() {}

    /**
     * One NVLink.
     *
     * @param sm compute capability times ten; 0 if unknown
     * @return GB/s per direction
     */
    public static double nvlink(int sm) {
        if (sm >= 100) {
            // Compute capabilities 11 and 12 have NVLink only to their own CPU.
            return 40.1;
        }
        if (sm >= 90) {
            return 20.6;
        }
        if (sm == 86) {
            return 12;
        }
        if (sm == 60) {
            return 18;
        }
        return 20; // 7.0, 7.5, 8.0, unknown
    }

    /**
     * PCIe by lane speed and width.
     *
     * @param gigatransfers per second and lane: 2.5, 5, 8, 16, 32 or 64
     * @param lanes 1 to 16
     * @return GB/s per direction; 0 if the speed is none of these
     */
    public static double pcie(double gigatransfers, int lanes) {
        int generation = generation(gigatransfers);
        return generation == 0 ? 0 : PCIE_3_X16 / 16 * lanes * Math.pow(2, generation - 3);
    }

    private static int generation(double gigatransfers) {
        double speed = 2.5;
        for (int g = 1; g <= 6; g++) {
            if (Math.abs(gigatransfers - speed) < 0.2) {
                return g;
            }
            speed = g == 2 ? 8 : speed * 2; // 2.5, 5, 8, 16, 32, 64
        }
        return 0;
    }

    /**
     * The x16 PCIe slot that a generation of GPUs is made for.
     *
     * @param sm compute capability times ten; 0 if unknown
     * @return GB/s per direction; that of PCIe 3.0 if unknown
     */
    public static double pcieOf(int sm) {
        if (sm >= 90) {
            return 4 * PCIE_3_X16;
        }
        return sm >= 80 ? 2 * PCIE_3_X16 : PCIE_3_X16;
    }

    /**
     * Link between two CPUs.
     *
     * @param arch {@code x86_64}, {@code arm64}, {@code ppc64}
     * @param vendor {@code GenuineIntel}, {@code AuthenticAMD}, {@code Shanghai} or what else the
     *     CPU reports
     * @param family CPU family, 0 if unknown
     * @param model CPU model, 0 if unknown
     * @return GB/s per direction
     */
    public static double smp(String arch, String vendor, int family, int model) {
        return switch (arch.toLowerCase(Locale.ROOT)) {
            case "ppc64", "ppc64le" -> 32;
            case "arm64", "aarch64" -> 6;
            default ->
                    switch (vendor) {
                        case "AuthenticAMD" -> amd(family);
                        case "Shanghai", "CentaurHauls" -> family == 7 && model == 0x5b ? 9 : 6;
                        case "GenuineIntel" -> intel(family, model);
                        default -> DEFAULT_SMP;
                    };
        };
    }

    /**
     * NCCL 2.31 (src/graph/topo.h, {@code AMD_ZEN12_BW} and the next two lines); earlier ones plan
     * with 16 for all.
     */
    private static double amd(int family) {
        return switch (family) {
            // Up to 2.30 NCCL adds 16 times the extended family to the family (xml.cc, 555), so its
            // files have 143, 175 and 191 where the CPU has 23, 25 and 26.
            case 25, 175 -> 24; // Zen 3 and 4
            case 26, 191 -> 32; // Zen 5
            default -> 16;
        };
    }

    private static double intel(int family, int model) {
        if (family != 6) {
            return DEFAULT_SMP;
        }
        if (model >= 0xCF) {
            return 40; // Emerald Rapids
        }
        if (model >= 0x8F) {
            return 22; // Sapphire Rapids
        }
        return model >= 0x55 ? 10 : 6; // Skylake, Broadwell
    }
}
