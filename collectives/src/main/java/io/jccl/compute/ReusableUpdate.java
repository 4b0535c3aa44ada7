package io.jccl.compute;

import java.util.Objects;

/**
 * A mutable {@link Update}, set before each step, so that a step creates no object: bias
 * corrections differ from step to step. {@link Compute#update} has read it when it returns.
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class ReusableUpdate implements UpdateFormula {
    private Update.Rule rule = Update.Rule.SGD;
    private float decay;
    private float keep1;
    private float add1;
    private float keep2;
    private float add2;
    private float rate;
    private float root;
    private float epsilon;

    /** Makes one that changes nothing: SGD with a learning rate of 0. */
    public ReusableUpdate() {}

    /**
     * Sets all values; they are those of {@link Update}.
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
     * @throws NullPointerException if there is no rule
     */
    public void set(
            Update.Rule rule,
            float decay,
            float keep1,
            float add1,
            float keep2,
            float add2,
            float rate,
            float root,
            float epsilon) {
        this.rule = Objects.requireNonNull(rule, "rule");
        this.decay = decay;
        this.keep1 = keep1;
        this.add1 = add1;
        this.keep2 = keep2;
        this.add2 = add2;
        this.rate = rate;
        this.root = root;
        this.epsilon = epsilon;
    }

    /**
     * Copies another's values.
     *
     * @param other the source
     */
    public void set(UpdateFormula other) {
        set(
                other.rule(),
                other.decay(),
                other.keep1(),
                other.add1(),
                other.keep2(),
                other.add2(),
                other.rate(),
                other.root(),
                other.epsilon());
    }

    @Override
    public Update.Rule rule() {
        return rule;
    }

    @Override
    public float decay() {
        return decay;
    }

    @Override
    public float keep1() {
        return keep1;
    }

    @Override
    public float add1() {
        return add1;
    }

    @Override
    public float keep2() {
        return keep2;
    }

    @Override
    public float add2() {
        return add2;
    }

    @Override
    public float rate() {
        return rate;
    }

    @Override
    public float root() {
        return root;
    }

    @Override
    public float epsilon() {
        return epsilon;
    }

    /**
     * The values as they are now.
     *
     * @return a copy that later steps do not change
     */
    public Update copy() {
        return new Update(rule, decay, keep1, add1, keep2, add2, rate, root, epsilon);
    }

    @Override
    public String toString() {
        return copy().toString();
    }
}
