package io.jccl.offload.optim;

import java.util.List;

/**
 * LAMB (algorithm 2 of arXiv 1904.00962): the step of Adam with decoupled weight decay, scaled for
 * each tensor to the norm of its parameters.
 *
 * <p>With gradient g after unscaling, parameter p, moments m and v, step t and learning rate a;
 * norms are those of the whole tensor, on all ranks that share it:
 *
 * <pre>
 * m = beta1 m + (1 - beta1) g
 * v = beta2 v + (1 - beta2) g g
 * r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weightDecay p
 * p = p - a |p| / |r| r, with 1 in place of the quotient if one of the norms is 0
 * </pre>
 *
 * <p>Each {@link Optimizer#step} takes a whole tensor, not a piece of one.
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param beta1 decay of the first moment, in [0, 1)
 * @param beta2 decay of the second moment, in [0, 1)
 * @param epsilon what is added to the denominator, more than 0 and a normal float32
 * @param weightDecay 0 or more
 */
public record Lamb(double beta1, double beta2, double epsilon, double weightDecay)
        implements Optimizer {
    private static final int PARAMETERS = 0;
    private static final int UPDATE = 1;

    /**
     * Checks the hyper-parameters.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public Lamb {
        Checks.moments(beta1, beta2, epsilon, weightDecay);
    }

    /**
     * The defaults of the paper: 0.9, 0.999, 1e-6 and a weight decay of 0.01.
     *
     * @return an optimizer
     */
    public static Lamb defaults() {
        return new Lamb(0.9, 0.999, 1e-6, 0.01);
    }

    @Override
    public String label() {
        return "lamb";
    }

    @Override
    public List<StateTensor> state() {
        return Adam.STATE;
    }

    @Override
    public int sums() {
        return 2;
    }

    @Override
    public Lamb withWeightDecay(double decay) {
        return new Lamb(beta1, beta2, epsilon, decay);
    }

    @Override
    public void apply(Slice s) {
        long t = s.step();
        float correct1 = (float) (1 / (1 - Checks.power(beta1, t)));
        float correct2 = (float) (1 / Math.sqrt(1 - Checks.power(beta2, t)));
        float keep1 = (float) beta1;
        float add1 = (float) (1 - beta1);
        float keep2 = (float) beta2;
        float add2 = (float) (1 - beta2);
        float eps = (float) epsilon;
        float decay = (float) weightDecay;
        if (s.pass() == 0) {
            double parameters = 0;
            double updates = 0;
            for (int i = 0; i < s.count(); i++) {
                float g = s.gradient(i);
                float p = s.parameter(i);
                float m = s.state(0, i) * keep1 + g * add1;
                float v = s.state(1, i) * keep2 + g * add2 * g;
                s.setState(0, i, m);
                s.setState(1, i, v);
                double r = update(m * correct1, v, correct2, eps) + decay * p;
                parameters += (double) p * p;
                updates += r * r;
            }
            s.add(PARAMETERS, parameters);
            s.add(UPDATE, updates);
            return;
        }
        double of = s.sum(PARAMETERS);
        double to = s.sum(UPDATE);
        float rate = (float) (s.learningRate() * (of > 0 && to > 0 ? Math.sqrt(of / to) : 1));
        for (int i = 0; i < s.count(); i++) {
            float p = s.parameter(i);
            float r = update(s.state(0, i) * correct1, s.state(1, i), correct2, eps) + decay * p;
            s.setParameter(i, p - rate * r);
        }
    }

    private static float update(float mean, float square, float correct2, float eps) {
        return mean / ((float) Math.sqrt(square) * correct2 + eps);
    }
}
