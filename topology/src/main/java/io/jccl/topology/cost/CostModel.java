package io.jccl.topology.cost;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Cluster;
import java.util.List;

/**
 * Predicts times as latency + size / bandwidth, for each algorithm and protocol, with NCCL's
 * published constants over the bandwidths of our own plans.
 *
 * <p>Immutable, and safe for use by many threads.
 *
 * <p>Source: NCCL 2.30, src/graph/tuning.cc. All numbers stand in the resource {@code
 * nccl.properties} of this package, each with its source.
 */
public final class CostModel {
    /** Smallest size of {@link #crossovers}. */
    public static final long MIN_BYTES = 8;

    /** Largest size of {@link #crossovers}: 16 GiB. */
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
     * What the model knows of an operation on some GPUs of a machine, for predictions of many
     * sizes.
     *
     * @param t the machine
     * @param gpus those that take part, by rank: places in {@link Topology#gpus()}
     * @param op what is done
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
     * @param gpus those of each machine that take part
     * @param op what is done
     * @return latency and bandwidth of every algorithm and protocol
     */
    public Tuning tune(Cluster c, List<Integer> gpus, Operation op) {
        return Tuner.tune(parameters, c, gpus, op);
    }

    /**
     * Predicts a time for each algorithm and protocol that can be used.
     *
     * @param t the machine
     * @param gpus those that take part, by rank
     * @param op what is done
     * @param bytes size, see {@link Prediction}
     * @return the predictions, fastest first
     */
    public List<Prediction> predict(Topology t, List<Integer> gpus, Operation op, long bytes) {
        return tune(t, gpus, op).predict(bytes);
    }

    /**
     * The same for a cluster.
     *
     * @param c the machines
     * @param gpus those of each machine that take part
     * @param op what is done
     * @param bytes size, see {@link Prediction}
     * @return the predictions, fastest first
     */
    public List<Prediction> predict(Cluster c, List<Integer> gpus, Operation op, long bytes) {
        return tune(c, gpus, op).predict(bytes);
    }

    /**
     * The fastest way.
     *
     * @param t the machine
     * @param gpus those that take part, by rank
     * @param op what is done
     * @param bytes size, see {@link Prediction}
     * @return the prediction
     */
    public Prediction choose(Topology t, List<Integer> gpus, Operation op, long bytes) {
        return tune(t, gpus, op).choose(bytes);
    }

    /**
     * The same for a cluster.
     *
     * @param c the machines
     * @param gpus those of each machine that take part
     * @param op what is done
     * @param bytes size, see {@link Prediction}
     * @return the prediction
     */
    public Prediction choose(Cluster c, List<Integer> gpus, Operation op, long bytes) {
        return tune(c, gpus, op).choose(bytes);
    }

    /**
     * Where the choice changes, from {@value #MIN_BYTES} bytes to 16 GiB.
     *
     * @param t the machine
     * @param gpus those that take part, by rank
     * @param op what is done
     * @return ranges of sizes, ascending, without gaps
     */
    public List<Crossover> crossovers(Topology t, List<Integer> gpus, Operation op) {
        return tune(t, gpus, op).crossovers(MIN_BYTES, MAX_BYTES);
    }

    /**
     * The same for a cluster.
     *
     * @param c the machines
     * @param gpus those of each machine that take part
     * @param op what is done
     * @return ranges of sizes, ascending, without gaps
     */
    public List<Crossover> crossovers(Cluster c, List<Integer> gpus, Operation op) {
        return tune(c, gpus, op).crossovers(MIN_BYTES, MAX_BYTES);
    }
}
