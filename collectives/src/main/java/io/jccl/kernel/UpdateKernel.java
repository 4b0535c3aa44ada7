package io.jccl.kernel;

import io.jccl.device.DataType;
import org.jspecify.annotations.Nullable;

/**
 * The loop of one update rule for one type of gradients and one of the target.
 *
 * <p>Each combination gets a hidden copy of {@link VectorUpdate}, or of {@link PlainUpdate} where
 * the Vector API's module is absent, whose static finals select it: the compiler folds the
 * differences, and a combination's code does not depend on which others have run.
 */
public abstract class UpdateKernel {
    /** The rule by which an element is updated. */
    public enum Rule {
        ADAM,
        ADAMW,
        SGD,
        MOMENTUM,
        NESTEROV,
        LION
    }

    /** The combination that a copy is for; a null target means that there is none. */
    public record Spec(Rule rule, DataType gradients, @Nullable DataType target) {}

    /**
     * The data that a copy on vectors is created from: the plain one handles elements that do not
     * fill a vector.
     */
    record Data(Spec spec, UpdateKernel rest) {}

    private static final int TYPES = DataType.values().length;
    private static final @Nullable UpdateKernel[] CACHE =
            new UpdateKernel[Rule.values().length * TYPES * (TYPES + 1)];

    /**
     * Updates elements.
     *
     * @param c memory and coefficients
     * @param s offset in bytes in parameters and moments
     * @param g offset in bytes in the gradients
     * @param t offset in bytes in the target
     * @param n number of elements
     */
    public abstract void run(UpdateWork c, long s, long g, long t, int n);

    /** The kernel for a rule, and types of gradients and target. */
    public static UpdateKernel of(Rule rule, DataType gradients, @Nullable DataType target) {
        int to = target == null ? TYPES : target.ordinal();
        int key = (rule.ordinal() * TYPES + gradients.ordinal()) * (TYPES + 1) + to;
        // Kernels have no fields, so reading one without a lock is safe.
        UpdateKernel k = CACHE[key];
        if (k == null) {
            synchronized (CACHE) {
                k = CACHE[key];
                if (k == null) {
                    k = make(new Spec(rule, gradients, target), Templates.VECTOR);
                    CACHE[key] = k;
                }
            }
        }
        return k;
    }

    /** A new copy, on vectors or not. */
    public static UpdateKernel make(Spec spec, boolean vector) {
        UpdateKernel plain = Templates.copy(UpdateKernel.class, "PlainUpdate", spec);
        return vector
                ? Templates.copy(UpdateKernel.class, "VectorUpdate", new Data(spec, plain))
                : plain;
    }
}
