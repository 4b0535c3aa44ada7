package io.jccl.offload.optim;

/** Checks of hyper-parameters. */
final class Checks {
    private Checks() {}

    static void moments(double beta1, double beta2, double epsilon, double weightDecay) {
        fraction("beta1", beta1);
        fraction("beta2", beta2);
        if (!((float) epsilon >= Float.MIN_NORMAL && (float) epsilon <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "epsilon is "
                            + epsilon
                            + ", expected a positive number that float32 holds; 1e-8 is the usual"
                            + " choice");
        }
        notNegative("weight decay", weightDecay);
    }

    static void fraction(String name, double value) {
        // What rounds to 1 in float32 would never forget.
        if (!(value >= 0 && (float) value < 1)) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected 0 or more and less than 1");
        }
    }

    static void notNegative(String name, double value) {
        if (!(value >= 0 && value <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected a finite number, 0 or more");
        }
    }
}
