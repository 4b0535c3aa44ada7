package io.jccl.offload.optim;

import java.util.List;

/**
 * Adam (algorithm 1 of arXiv 1412.6980). Weight decay is added to the gradient, as L2
 * regularization; see {@link AdamW} for decoupled decay.
 *
 * <p>With gradient g after unscaling, parameter p, moments m and v, step t and learning rate a:
 *
 * <pre>
 * g = g + weightDecay p
 * m = beta1 m + (1 - beta1) g
 * v = beta2 v + (1 - beta2) g g
 * p = p - a / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
 * </pre>
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param beta1 decay of the first moment, in [0, 1)
 * @param beta2 decay of the second moment, in [0, 1)
 * @param epsilon what is added to the denominator, more than 0 and a normal float32
 * @param weightDecay 0 or more
 */
public record Adam(double beta1, double beta2, double epsilon, double weightDecay)
        implements Optimizer {
    static final List<StateTensor> STATE =
            List.of(StateTensor.float32("exp_avg"), StateTensor.float32("exp_avg_sq"));

    /**
     * Checks the hyper-parameters.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public Adam {
        Checks.moments(beta1, beta2, epsilon, weightDecay);
    }

    /**
     * The defaults of the paper: 0.9, 0.999 and 1e-8, without weight decay.
     *
     * @return an optimizer
     */
    public static Adam defaults() {
        return new Adam(0.9, 0.999, 1e-8, 0);
    }

    @Override
    public String label() {
        return "adam";
    }

    @Override
    public List<StateTensor> state() {
        return STATE;
    }

    @Override
    public Adam withWeightDecay(double decay) {
        return new Adam(beta1, beta2, epsilon, decay);
    }
}
