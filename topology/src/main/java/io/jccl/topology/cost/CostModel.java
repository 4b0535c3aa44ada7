package io.jccl.topology.cost;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Cluster;
import java.util.List;

/**
 * Predicts times as latency + size / bandwidth for each algorithm and protocol, from NCCL's
 * published constants and the bandwidths of JCCL's plans, plus what launching a kernel and filling
 * its pipeline take. Which algorithm is chosen follows NCCL's own model, which has no such terms.
 *
 * {@snippet class="snippets.Topologies" region="cost"}
 *
 * <p>Immutable, and safe for use by many threads.
 *
 * <p>Source: NCCL 2.30, src/graph/tuning.cc. All constants are in the resource {@code
 * nccl.properties} of this package, each with its source.
 */
public final class CostModel {
    /** Smallest size to ask {@link Tuning#crossovers} for. */
    public static final long MIN_BYTES = 8;

    /** Largest size to ask it for: 16 GiB. */
    public static final long MAX_BYTES = 1L << 34;

    private static final CostModel NCCL = new CostModel(Parameters.load("nccl.properties"));

    private final Parameters parameters;

    private CostModel(Parameters parameters) {
        this.parameters = parameters;
    }

    /**
     * The model with NCCL's constants.
     *
     * @return the model
     */
    public static CostModel nccl() {
        return NCCL;
    }

    /**
     * Prepares predictions of many sizes for an operation on some GPUs of a machine.
     *
     * @param t the machine
     * @param gpus the participating GPUs, by rank: indices in {@link Topology#gpus()}; the first is
     *     the root of an operation that has one
     * @param op the operation
     * @return latency and bandwidth of every algorithm and protocol
     * @throws IllegalArgumentException if there are fewer than two GPUs, or a number is wrong
     */
    public Tuning tune(Topology t, List<Integer> gpus, Operation op) {
        return Tuner.tune(parameters, t, gpus, op);
    }

    /**
     * The same for a cluster.
     *
     * @param c the machines
     * @param gpus the participating GPUs of each machine
     * @param op the operation
     * @return latency and bandwidth of every algorithm and protocol
     */
    public Tuning tune(Cluster c, List<Integer> gpus, Operation op) {
        return Tuner.tune(parameters, c, gpus, op);
    }
}
