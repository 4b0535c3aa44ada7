package io.jccl.topology;

import java.util.Objects;

/**
 * A CPU, as NCCL's topology XML describes it.
 *
 * @param arch {@code x86_64}, {@code arm64}, {@code ppc64}
 * @param vendor {@code GenuineIntel}, {@code AuthenticAMD} or what else the CPU reports; empty if
 *     unknown
 * @param family CPU family, 0 if unknown
 * @param model CPU model, 0 if unknown
 */
public record Processor(String arch, String vendor, int family, int model) {
    /** Checks that no argument is null. */
    public Processor {
        Objects.requireNonNull(arch, "arch");
        Objects.requireNonNull(vendor, "vendor");
    }

    /**
     * Bandwidth of the link to another such CPU, as NCCL assumes it.
     *
     * @return GB/s per direction
     */
    public double smpGbps() {
        return LinkModel.smp(arch, vendor, family, model);
    }
}
