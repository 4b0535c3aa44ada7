package io.jccl.train;

import io.jccl.parallel.ExpertStatistics;
import java.util.ArrayList;
import java.util.List;

/**
 * Load of a block's experts, each figure the mean over the steps of a run: of the last micro-batch
 * of a step, on the ranks that share the experts with rank 0.
 *
 * @param block number of the block
 * @param shares tokens of each expert, 1 for the mean of all
 * @param droppedChoices share of the choices of tokens that found no room
 * @param droppedTokens share of tokens that no expert took
 * @param fullest tokens of a step's fullest expert, 1 for the mean of all
 * @param variation coefficient of variation of the tokens of experts
 * @param entropy of the tokens' distribution over experts, 1 if it is even
 * @param capacity the smallest capacity factor with room for what experts took, on each rank
 */
public record ExpertLoad(
        int block,
        List<Double> shares,
        double droppedChoices,
        double droppedTokens,
        double fullest,
        double variation,
        double entropy,
        double capacity) {
    /** Copies the list. */
    public ExpertLoad {
        shares = List.copyOf(shares);
    }

    /** Sums of the steps so far. */
    static final class Meter {
        private final double[] shares;
        private double choices;
        private double tokens;
        private double fullest;
        private double variation;
        private double entropy;
        private double capacity;
        private int steps;

        Meter(int experts) {
            shares = new double[experts];
        }

        void add(ExpertStatistics s) {
            double mean = (double) s.assignments() / shares.length;
            for (int e = 0; e < shares.length; e++) {
                shares[e] += mean == 0 ? 0 : s.taken(e) / mean;
            }
            choices += s.droppedShare();
            tokens += s.droppedTokenShare();
            fullest += s.maxOverMean();
            variation += s.coefficientOfVariation();
            entropy += s.entropy();
            capacity += s.usedCapacityFactor();
            steps++;
        }

        ExpertLoad load(int block) {
            double by = Math.max(1, steps);
            List<Double> each = new ArrayList<>();
            for (double share : shares) {
                each.add(share / by);
            }
            return new ExpertLoad(
                    block,
                    each,
                    choices / by,
                    tokens / by,
                    fullest / by,
                    variation / by,
                    entropy / by,
                    capacity / by);
        }
    }
}
