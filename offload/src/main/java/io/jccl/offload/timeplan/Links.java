package io.jccl.offload.timeplan;

import io.jccl.topology.Operation;
import java.util.List;

/**
 * How long collectives take.
 *
 * <p><b>Threads:</b> any number may ask at once.
 */
public interface Links {
    /**
     * The time of one operation.
     *
     * @param op the operation
     * @param gpus the members on the first machine: indices of its GPUs
     * @param machines number of machines, each with as many members
     * @param bytes size as nccl-tests defines it: of all ranks' parts together
     * @return seconds
     */
    double seconds(Operation op, List<Integer> gpus, int machines, long bytes);
}
