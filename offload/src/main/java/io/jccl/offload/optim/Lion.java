package io.jccl.offload.optim;

import java.util.List;

/**
 * Lion (algorithm 2 of arXiv 2302.06675): the sign of a momentum, with decoupled weight decay. Its
 * learning rate is usually 3 to 10 times smaller than AdamW's, and its weight decay as many times
 * larger.
 *
 * <p>With gradient g after unscaling, parameter p, momentum m and learning rate a:
 *
 * <pre>
 * u = sign(beta1 m + (1 - beta1) g)
 * p = (1 - a weightDecay) p - a u
 * m = beta2 m + (1 - beta2) g
 * </pre>
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param beta1 weight of the momentum in the update, in [0, 1)
 * @param beta2 decay of the momentum, in [0, 1)
 * @param weightDecay 0 or more
 */
public record Lion(double beta1, double beta2, double weightDecay) implements Optimizer {
    private static final List<StateTensor> STATE = List.of(StateTensor.float32("exp_avg"));

    /**
     * Checks the hyper-parameters.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public Lion {
        Checks.fraction("beta1", beta1);
        Checks.fraction("beta2", beta2);
        Checks.notNegative("weight decay", weightDecay);
    }

    /**
     * The defaults of the paper: 0.9 and 0.99, without weight decay.
     *
     * @return an optimizer
     */
    public static Lion defaults() {
        return new Lion(0.9, 0.99, 0);
    }

    @Override
    public String label() {
        return "lion";
    }

    @Override
    public List<StateTensor> state() {
        return STATE;
    }

    @Override
    public Lion withWeightDecay(double decay) {
        return new Lion(beta1, beta2, decay);
    }
}
