package io.jccl.offload.optim;

import java.util.List;

/**
 * AdamW: Adam with decoupled weight decay (algorithm 2 of arXiv 1711.05101, with the decay scaled
 * by the learning rate as {@code torch.optim.AdamW} does).
 *
 * <p>With gradient g after unscaling, parameter p, moments m and v, step t and learning rate a:
 *
 * <pre>
 * m = beta1 m + (1 - beta1) g
 * v = beta2 v + (1 - beta2) g g
 * p = (1 - a weightDecay) p - a / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
 * </pre>
 *
 * {@snippet class="snippets.Offload" region="optimizer"}
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param beta1 decay of the first moment, in [0, 1)
 * @param beta2 decay of the second moment, in [0, 1)
 * @param epsilon what is added to the denominator, more than 0 and a normal float32
 * @param weightDecay 0 or more
 */
public record AdamW(double beta1, double beta2, double epsilon, double weightDecay)
        implements Optimizer {
    /**
     * Checks the hyper-parameters.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public AdamW {
        Checks.moments(beta1, beta2, epsilon, weightDecay);
    }

    /**
     * The defaults of {@code torch.optim.AdamW}: 0.9, 0.999, 1e-8 and a weight decay of 0.01.
     *
     * @return an optimizer
     */
    public static AdamW defaults() {
        return new AdamW(0.9, 0.999, 1e-8, 0.01);
    }

    @Override
    public String label() {
        return "adamw";
    }

    @Override
    public List<StateTensor> state() {
        return Adam.STATE;
    }

    @Override
    public AdamW withWeightDecay(double decay) {
        return new AdamW(beta1, beta2, epsilon, decay);
    }
}
