package io.jccl.topology.cost;

import java.util.Comparator;
import java.util.Objects;

/**
 * What an algorithm can reach for very large sizes.
 *
 * @param algorithm the algorithm
 * @param busbwGBps predicted bus bandwidth, GB/s (10^9 bytes)
 * @param boundGBps the most that the links allow this algorithm, GB/s
 * @param why what sets that bound
 */
public record AlgorithmBound(Algorithm algorithm, double busbwGBps, double boundGBps, String why) {
    static final Comparator<AlgorithmBound> WIDEST_FIRST =
            Comparator.comparingDouble(AlgorithmBound::busbwGBps).reversed();

    /** Checks that no argument is null. */
    public AlgorithmBound {
        Objects.requireNonNull(algorithm, "algorithm");
        Objects.requireNonNull(why, "why");
    }
}
