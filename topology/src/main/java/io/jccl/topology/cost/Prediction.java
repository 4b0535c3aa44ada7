package io.jccl.topology.cost;

import io.jccl.topology.Operation;
import java.util.Objects;

/**
 * The predicted time of an operation with one algorithm and protocol.
 *
 * @param op the operation
 * @param bytes size as nccl-tests prints it: of the whole buffer, all ranks' parts together
 * @param algorithm the algorithm
 * @param protocol the protocol
 * @param timeUs microseconds
 * @param algbwGBps {@code bytes} over time, GB/s (10^9 bytes)
 * @param busbwGBps that times {@link Operation#busFactor}
 * @param spread how far a healthy machine's measurement may be from this, as a share of it: 0.15
 *     for 15 percent more or less; docs/topology-cost.md has what it rests on
 */
public record Prediction(
        Operation op,
        long bytes,
        Algorithm algorithm,
        Protocol protocol,
        double timeUs,
        double algbwGBps,
        double busbwGBps,
        double spread) {
    /** Checks that no argument is null. */
    public Prediction {
        Objects.requireNonNull(op, "op");
        Objects.requireNonNull(algorithm, "algorithm");
        Objects.requireNonNull(protocol, "protocol");
    }
}
