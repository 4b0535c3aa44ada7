package io.jccl.topology.read;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How a text is read, and additional facts known to the caller. Immutable; start with {@link
 * #DEFAULT}.
 *
 * @param format the format of the text
 * @param lenient whether a damaged text gives warnings and a partial result instead of an error
 * @param name a display name, of a file or a host
 * @param gpuModel the model of the GPUs, such as {@code H100}; null if not known
 * @param nvlinkGbps bandwidth of one NVLink in GB/s (10^9 bytes) per direction; 0 if not known
 * @param nicGbps bandwidth of one NIC in GB/s (10^9 bytes) per direction; 0 if not known
 * @param nvlinks output of {@code nvidia-smi nvlink -s} on the same machine; null if not known
 */
public record ReadOptions(
        Format format,
        boolean lenient,
        String name,
        @Nullable String gpuModel,
        double nvlinkGbps,
        double nicGbps,
        @Nullable NvlinkStatus nvlinks) {
    /** Strict, any format, no additional facts. */
    public static final ReadOptions DEFAULT =
            new ReadOptions(Format.AUTO, false, "machine", null, 0, 0, null);

    /** Checks the values. */
    public ReadOptions {
        Objects.requireNonNull(format, "format");
        Objects.requireNonNull(name, "name");
        check("nvlinkGbps", nvlinkGbps);
        check("nicGbps", nicGbps);
    }

    private static void check(String what, double gbps) {
        if (!(gbps >= 0) || gbps > 100_000) {
            throw new IllegalArgumentException(
                    what + " is " + gbps + ": expected GB/s above 0, or 0 for unknown");
        }
    }

    /**
     * These options with another format.
     *
     * @param format the format of the text
     * @return the options
     */
    public ReadOptions withFormat(Format format) {
        return new ReadOptions(format, lenient, name, gpuModel, nvlinkGbps, nicGbps, nvlinks);
    }

    /**
     * These options, lenient or strict.
     *
     * @param lenient whether damage gives warnings instead of an error
     * @return the options
     */
    public ReadOptions withLenient(boolean lenient) {
        return new ReadOptions(format, lenient, name, gpuModel, nvlinkGbps, nicGbps, nvlinks);
    }

    /**
     * These options with another name.
     *
     * @param name a display name
     * @return the options
     */
    public ReadOptions withName(String name) {
        return new ReadOptions(format, lenient, name, gpuModel, nvlinkGbps, nicGbps, nvlinks);
    }

    /**
     * These options with the model of the GPUs.
     *
     * @param gpuModel such as {@code H100} or {@code NVIDIA A100-SXM4-80GB}; null for unknown
     * @return the options
     */
    public ReadOptions withGpuModel(@Nullable String gpuModel) {
        return new ReadOptions(format, lenient, name, gpuModel, nvlinkGbps, nicGbps, nvlinks);
    }

    /**
     * These options with the bandwidth of an NVLink.
     *
     * @param nvlinkGbps GB/s per direction and link; 0 for unknown
     * @return the options
     */
    public ReadOptions withNvlinkGbps(double nvlinkGbps) {
        return new ReadOptions(format, lenient, name, gpuModel, nvlinkGbps, nicGbps, nvlinks);
    }

    /**
     * These options with the bandwidth of a NIC.
     *
     * @param nicGbps GB/s per direction and NIC; 0 for unknown
     * @return the options
     */
    public ReadOptions withNicGbps(double nicGbps) {
        return new ReadOptions(format, lenient, name, gpuModel, nvlinkGbps, nicGbps, nvlinks);
    }

    /**
     * These options with the state of the NVLinks.
     *
     * @param nvlinks output of {@code nvidia-smi nvlink -s}; null for unknown
     * @return the options
     */
    public ReadOptions withNvlinks(@Nullable NvlinkStatus nvlinks) {
        return new ReadOptions(format, lenient, name, gpuModel, nvlinkGbps, nicGbps, nvlinks);
    }
}
