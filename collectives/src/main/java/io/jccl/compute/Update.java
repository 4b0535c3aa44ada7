package io.jccl.compute;

import java.util.Objects;

/**
 * One optimizer step of an element, with gradient g, parameter p and moments m and v, all in
 * float32 and each operation rounded by itself:
 *
 * <pre>
 * g = g factor
 * ADAMW, LION:  p = p decay    all others:  g = g + p decay
 * SGD:    p = p - g rate
 * LION:   p = p - sign(m keep1 + g add1) rate;  m = m keep2 + g add2
 * else    m = m keep1 + g add1
 *   MOMENTUM: p = p - m rate
 *   NESTEROV: p = p - (g + m keep2) rate
 *   ADAM, ADAMW: v = v keep2 + g add2 g;  p = p - m rate / (sqrt(v) root + epsilon)
 * </pre>
 *
 * <p>{@code Optimizer.update} of module {@code io.jccl.offload} makes it from hyper-parameters and
 * the number of a step; a {@link ReusableUpdate} takes the values of every step.
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param rule which formula
 * @param decay weight decay; for ADAMW and LION one minus its product with the learning rate
 * @param keep1 beta1 or momentum
 * @param add1 weight of the gradient in m
 * @param keep2 beta2 or, for NESTEROV, momentum
 * @param add2 weight of the squared gradient in v
 * @param rate learning rate, for Adam over its bias correction
 * @param root what the root of v is multiplied by: its bias correction
 * @param epsilon added to the denominator
 */
public record Update(
        Rule rule,
        float decay,
        float keep1,
        float add1,
        float keep2,
        float add2,
        float rate,
        float root,
        float epsilon)
        implements UpdateFormula {
    /** Formulas. */
    public enum Rule {
        /** Adam with weight decay in the gradient. */
        ADAM(2),
        /** Adam with decoupled weight decay. */
        ADAMW(2),
        /** Plain gradient descent. */
        SGD(0),
        /** Gradient descent with momentum. */
        MOMENTUM(1),
        /** Gradient descent with Nesterov's momentum. */
        NESTEROV(1),
        /** The sign of a momentum, with decoupled weight decay. */
        LION(1);

        private final int moments;

        Rule(int moments) {
            this.moments = moments;
        }

        /**
         * How many moments it keeps.
         *
         * @return 0 to 2
         */
        public int moments() {
            return moments;
        }
    }

    /**
     * Checks that there is a rule.
     *
     * @throws NullPointerException if there is none
     */
    public Update {
        Objects.requireNonNull(rule, "rule");
    }
}
