package io.jccl.bindings;

import java.util.Comparator;

/**
 * The version of a native library.
 *
 * @param major first number
 * @param minor second number
 * @param patch third number, or -1 if the library has none
 */
public record Version(int major, int minor, int patch) implements Comparable<Version> {
    private static final Comparator<Version> ORDER =
            Comparator.comparingInt(Version::major)
                    .thenComparingInt(Version::minor)
                    .thenComparingInt(v -> Math.max(v.patch, 0));

    /**
     * Reads a version with one to three numbers.
     *
     * @param text such as {@code 2.30.7} or {@code 13.0}
     * @return the version
     * @throws IllegalArgumentException if the text is anything else
     */
    public static Version of(String text) {
        String[] parts = text.split("\\.", -1);
        try {
            if (parts.length <= 3) {
                return new Version(
                        Integer.parseUnsignedInt(parts[0]),
                        parts.length > 1 ? Integer.parseUnsignedInt(parts[1]) : 0,
                        parts.length > 2 ? Integer.parseUnsignedInt(parts[2]) : -1);
            }
        } catch (NumberFormatException e) {
            // Reported below.
        }
        throw new IllegalArgumentException(
                "version '" + text + "' is not one to three numbers with dots, such as 2.30.7");
    }

    /**
     * Decodes the result of {@code ncclGetVersion}: {@code X*1000 + Y*100 + Z} up to 2.8, {@code
     * X*10000 + Y*100 + Z} from 2.9 (macro {@code NCCL_VERSION} of nccl.h).
     *
     * @param code such as 23007
     * @return such as 2.30.7
     */
    public static Version ofNccl(int code) {
        int unit = code < 10_000 ? 1_000 : 10_000;
        return new Version(code / unit, code % unit / 100, code % 100);
    }

    /**
     * Decodes the result of {@code cudaRuntimeGetVersion} and {@code cudaDriverGetVersion}: {@code
     * X*1000 + Y*10}.
     *
     * @param code such as 13000
     * @return such as 13.0
     */
    public static Version ofCuda(int code) {
        return new Version(code / 1_000, code % 1_000 / 10, -1);
    }

    /**
     * Encodes the version like {@code NCCL_VERSION_CODE}.
     *
     * @return such as 23007
     */
    public int ncclCode() {
        int unit = major <= 2 && minor <= 8 ? 1_000 : 10_000;
        return major * unit + minor * 100 + Math.max(patch, 0);
    }

    /**
     * Whether this version is at least another.
     *
     * @param other the other version
     * @return true if this is the same or later
     */
    public boolean atLeast(Version other) {
        return compareTo(other) >= 0;
    }

    @Override
    public int compareTo(Version other) {
        return ORDER.compare(this, other);
    }

    @Override
    public String toString() {
        return major + "." + minor + (patch < 0 ? "" : "." + patch);
    }
}
