package io.jccl.offload.optim;

import java.util.List;

/**
 * Stochastic gradient descent, with or without momentum, in the form of {@code torch.optim.SGD}.
 *
 * <p>With gradient g after unscaling, parameter p, momentum buffer b and learning rate a:
 *
 * <pre>
 * g = g + weightDecay p
 * b = g in step 1, else momentum b + (1 - dampening) g
 * p = p - a b, or p - a (g + momentum b) with nesterov, or p - a g without momentum
 * </pre>
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param momentum in [0, 1); 0 means none, and no state
 * @param dampening in [0, 1]; 0 without momentum
 * @param weightDecay 0 or more
 * @param nesterov whether to use Nesterov momentum, which needs momentum and no dampening
 */
public record Sgd(double momentum, double dampening, double weightDecay, boolean nesterov)
        implements Optimizer {
    private static final List<StateTensor> STATE = List.of(StateTensor.float32("momentum_buffer"));

    /**
     * Checks the hyper-parameters.
     *
     * @throws IllegalArgumentException if one is out of range, or they contradict each other
     */
    public Sgd {
        Checks.fraction("momentum", momentum);
        if (!(dampening >= 0 && dampening <= 1)) {
            throw new IllegalArgumentException(
                    "dampening is " + dampening + ", expected 0 to 1; 0 is the usual choice");
        }
        Checks.notNegative("weight decay", weightDecay);
        if (nesterov && (momentum == 0 || dampening != 0)) {
            throw new IllegalArgumentException(
                    "nesterov needs momentum and no dampening, but momentum is %s and dampening %s"
                            .formatted(momentum, dampening));
        }
        if (momentum == 0 && dampening != 0) {
            throw new IllegalArgumentException(
                    "dampening is "
                            + dampening
                            + " but there is no momentum to dampen; set it to 0, or the momentum");
        }
    }

    /**
     * Plain momentum: no dampening, no weight decay.
     *
     * @param momentum in [0, 1)
     * @return an optimizer
     */
    public static Sgd withMomentum(double momentum) {
        return new Sgd(momentum, 0, 0, false);
    }

    @Override
    public String label() {
        return "sgd";
    }

    @Override
    public List<StateTensor> state() {
        return momentum == 0 ? List.of() : STATE;
    }

    @Override
    public Sgd withWeightDecay(double decay) {
        return new Sgd(momentum, dampening, decay, nesterov);
    }
}
