package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.Warning;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The matrix of {@code nvidia-smi topo -m} or {@code -mp}. Immutable.
 *
 * @param gpus the GPUs, in the order of the header
 * @param nics the NICs, in the order of the header
 * @param codes a row for each GPU, then for each NIC, with a cell for each GPU, then for each NIC;
 *     symmetric; {@link #MISSING} where the text has no code
 * @param warnings problems in the text
 */
public record PathMatrix(
        List<GpuRow> gpus, List<NicRow> nics, List<List<PathCode>> codes, List<Warning> warnings)
        implements Dump {
    /** Used where the text has no code: a row or cell was cut off or is damaged. */
    public static final PathCode MISSING = new PathCode("?", PathCode.Kind.UNKNOWN, 0);

    /**
     * A GPU of the matrix. Lists are as printed: empty if the cell was empty, and null if there is
     * no such column or the cell could not be read.
     *
     * @param name as printed: {@code GPU0}
     * @param index the number in the name
     * @param cpuAffinity list of CPUs: {@code 0-31,64-95}
     * @param numaAffinity list of NUMA nodes, or {@code N/A}
     * @param gpuNumaId NUMA node of the GPU's own memory, or {@code N/A}
     */
    public record GpuRow(
            String name,
            int index,
            @Nullable String cpuAffinity,
            @Nullable String numaAffinity,
            @Nullable String gpuNumaId) {
        /** Checks that the name is not null. */
        public GpuRow {
            Objects.requireNonNull(name, "name");
        }
    }

    /**
     * A NIC of the matrix.
     *
     * @param name as printed in the header: {@code NIC0} or {@code mlx5_0}
     * @param device the device that the NIC legend gives for it; null if it gives none
     */
    public record NicRow(String name, @Nullable String device) {
        /** Checks that the name is not null. */
        public NicRow {
            Objects.requireNonNull(name, "name");
        }
    }

    /** Copies the lists and checks that the matrix is square. */
    public PathMatrix {
        gpus = List.copyOf(gpus);
        nics = List.copyOf(nics);
        codes = square(codes, gpus.size() + nics.size());
        warnings = List.copyOf(warnings);
    }

    static boolean isMissing(PathCode code) {
        return code.equals(MISSING);
    }

    static List<List<PathCode>> square(List<List<PathCode>> codes, int size) {
        List<List<PathCode>> copy = new ArrayList<>(codes.size());
        for (List<PathCode> row : codes) {
            copy.add(List.copyOf(row));
        }
        if (copy.size() != size || copy.stream().anyMatch(row -> row.size() != size)) {
            throw new IllegalArgumentException(
                    "a matrix of " + size + " devices needs as many rows and columns");
        }
        return List.copyOf(copy);
    }

    /**
     * The code of a pair.
     *
     * @param a index of a device: GPUs first, then NICs
     * @param b index of another
     * @return the code; {@link #MISSING} if the text has none
     */
    public PathCode code(int a, int b) {
        return codes.get(a).get(b);
    }
}
