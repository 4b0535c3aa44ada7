package io.jccl.topology.cost;

import java.util.Objects;

/**
 * A range of sizes for which one choice is the fastest. A list of them has no gaps: the choice
 * changes where one ends and the next starts.
 *
 * @param fromBytes smallest size
 * @param toBytes largest size
 * @param algorithm the choice
 * @param protocol the choice
 */
public record Crossover(long fromBytes, long toBytes, Algorithm algorithm, Protocol protocol) {
    /** Checks that no argument is null. */
    public Crossover {
        Objects.requireNonNull(algorithm, "algorithm");
        Objects.requireNonNull(protocol, "protocol");
    }
}
