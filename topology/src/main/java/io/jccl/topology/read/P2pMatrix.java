package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.Warning;
import java.util.List;

/**
 * The matrix of {@code nvidia-smi topo -p2p r|w|n|a|p}: whether a GPU can access another's memory,
 * but not by which path. The output does not show which of the five options was used. Immutable.
 *
 * @param gpus names of the GPUs, in the order of the header
 * @param codes a row for each GPU with a cell for each GPU: {@code OK}, {@code CNS}, {@code GNS},
 *     {@code TNS}, {@code NS}, {@code DR}, {@code U}
 * @param warnings problems in the text
 */
public record P2pMatrix(List<String> gpus, List<List<PathCode>> codes, List<Warning> warnings)
        implements Dump {
    /** Copies the lists and checks that the matrix is square. */
    public P2pMatrix {
        gpus = List.copyOf(gpus);
        codes = PathMatrix.square(codes, gpus.size());
        warnings = List.copyOf(warnings);
    }

    /**
     * Whether a GPU can access another's memory.
     *
     * @param from index of the GPU, the row
     * @param to index of the other GPU, the column
     * @return true if the cell is {@code OK}
     */
    public boolean ok(int from, int to) {
        return codes.get(from).get(to).text().equals("OK");
    }
}
