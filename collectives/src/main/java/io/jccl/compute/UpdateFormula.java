package io.jccl.compute;

/**
 * A formula of {@link Update} with its coefficients: an {@link Update} that does not change, or a
 * {@link ReusableUpdate} that is set before each step.
 *
 * <p><b>Threads:</b> as documented by the implementation.
 */
public sealed interface UpdateFormula permits Update, ReusableUpdate {
    /**
     * The formula.
     *
     * @return which
     */
    Update.Rule rule();

    /**
     * Weight decay.
     *
     * @return for ADAMW and LION one minus its product with the learning rate
     */
    float decay();

    /**
     * Decay of the first moment.
     *
     * @return beta1 or momentum
     */
    float keep1();

    /**
     * Weight of the gradient in the first moment.
     *
     * @return a factor
     */
    float add1();

    /**
     * Decay of the second moment.
     *
     * @return beta2 or, for NESTEROV, momentum
     */
    float keep2();

    /**
     * Weight of the squared gradient in the second moment.
     *
     * @return a factor
     */
    float add2();

    /**
     * Learning rate.
     *
     * @return for Adam over its bias correction
     */
    float rate();

    /**
     * Factor of the root of the second moment.
     *
     * @return its bias correction
     */
    float root();

    /**
     * Added to the denominator.
     *
     * @return a small number
     */
    float epsilon();
}
