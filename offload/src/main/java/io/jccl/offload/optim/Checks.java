package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;

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

    /** A power by squaring: the same bits on every machine, and unlike StrictMath's no garbage. */
    static double power(double base, long exponent) {
        double product = 1;
        double square = base;
        for (long n = exponent; n > 0; n >>= 1) {
            if ((n & 1) != 0) {
                product *= square;
            }
            square *= square;
        }
        return product;
    }

    static void notNegative(String name, double value) {
        if (!(value >= 0 && value <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected a finite number, 0 or more");
        }
    }

    /** The memory of gradients, of a type that the kernels read. */
    static MemorySegment gradients(Buffer gradients) {
        DataType type = gradients.dataType();
        if (type != DataType.FLOAT32 && type != DataType.BFLOAT16 && type != DataType.FLOAT16) {
            throw new IllegalArgumentException(
                    "gradients are of "
                            + type.label()
                            + ", expected float, bfloat16 or half; convert them first");
        }
        return gradients.asSegment();
    }
}
