package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * The inner loop for one element type and one operation.
 *
 * <p>All share one source, {@link VectorKernel}, or {@link ScalarKernel} if the Vector API's module
 * is absent. Each type and operation gets a hidden copy of that class with its own static finals,
 * so the compiler sees constants and a separate type profile instead of a switch per element.
 *
 * <p>Offsets are bytes; n counts elements.
 */
public abstract class Kernel {
    /** The operation on two elements. */
    public enum Op {
        ADD,
        MUL,
        MIN,
        MAX,
        DIV
    }

    /** The type and operation of a hidden copy. */
    record Spec(DataType type, Op op) {}

    private static final int OPS = Op.values().length;
    private static final @Nullable Kernel[] CACHE = new Kernel[DataType.values().length * OPS];

    /** {@code o[i] = a[i] op b[i]}; o may be a or b. */
    public abstract void combine(
            MemorySegment a, long ao, MemorySegment b, long bo, MemorySegment o, long oo, int n);

    /**
     * {@code o[i] = p[i] = a[i] op b[i]}; o and p may be a or b. One pass, since four steady
     * streams use the memory bus better than two passes over blocks.
     */
    abstract void combine2(
            MemorySegment a,
            long ao,
            MemorySegment b,
            long bo,
            MemorySegment o,
            long oo,
            MemorySegment p,
            long po,
            int n);

    /** {@code o[i] = a[i] op scalar}; o may be a. The scalar is passed as the type's bits. */
    public abstract void apply(
            MemorySegment a, long ao, long scalar, MemorySegment o, long oo, int n);

    /** The kernel for a type that is reduced without widening, which excludes narrow floats. */
    public static Kernel of(DataType type, Op op) {
        // Kernels have no fields, so they can be read without a lock.
        Kernel k = CACHE[type.ordinal() * OPS + op.ordinal()];
        return k != null ? k : make(type, op);
    }

    private static synchronized Kernel make(DataType type, Op op) {
        // Sum and product of integers do not depend on the sign.
        DataType t =
                (op == Op.ADD || op == Op.MUL) && type.isUnsigned()
                        ? DataType.ofCode(type.code() - 1)
                        : type;
        int key = t.ordinal() * OPS + op.ordinal();
        Kernel k = CACHE[key];
        if (k == null) {
            // Neither integer division nor 8-bit products have vector instructions.
            boolean none = t.isInteger() && (op == Op.DIV || (op == Op.MUL && t.size() == 1));
            boolean vector = Templates.VECTOR && !none;
            Kernel scalar = Templates.copy(Kernel.class, "ScalarKernel", new Spec(t, op));
            k =
                    vector
                            ? Templates.copy(
                                    Kernel.class, "VectorKernel", new Data(new Spec(t, op), scalar))
                            : scalar;
            CACHE[key] = k;
        }
        CACHE[type.ordinal() * OPS + op.ordinal()] = k;
        return k;
    }

    /** Source of a vector kernel; the scalar one handles the elements that do not fill a vector. */
    record Data(Spec spec, Kernel rest) {}
}
