package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;
import org.jspecify.annotations.Nullable;

/**
 * Template of the loops on the Vector API; see {@link UpdateKernel}. Loaded only where {@code
 * jdk.incubator.vector} is resolved. The operations and their order are those of {@link
 * PlainUpdate}.
 */
final class VectorUpdate extends UpdateKernel {
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();
    private static final VectorSpecies<Float> SPECIES = FloatVector.SPECIES_PREFERRED;
    private static final int LANES = SPECIES.length();
    private static final Rule RULE;
    private static final DataType GRADIENTS;
    private static final @Nullable DataType TARGET;
    private static final int GRADIENT_SIZE;
    private static final int TARGET_SIZE;
    private static final UpdateKernel REST;
    private static final float[] NONE = {};

    /** Elements that are converted at a time: gradients in scratch, new parameters after them. */
    private static final int BLOCK = NarrowVectors.SCRATCH / 2;

    static {
        try {
            Data data = MethodHandles.classData(MethodHandles.lookup(), "_", Data.class);
            RULE = data.spec().rule();
            GRADIENTS = data.spec().gradients();
            TARGET = data.spec().target();
            GRADIENT_SIZE = GRADIENTS.size();
            TARGET_SIZE = TARGET == null ? 0 : TARGET.size();
            REST = data.rest();
        } catch (IllegalAccessException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    VectorUpdate() {}

    @Override
    public void run(UpdateWork c, long s, long g, long t, int n) {
        int whole = SPECIES.loopBound(n);
        if (GRADIENTS == DataType.FLOAT32 && (TARGET == null || TARGET == DataType.FLOAT32)) {
            update(c, s, g, t, whole, NONE);
        } else {
            float[] wide = NarrowVectors.scratch();
            for (int from = 0; from < whole; from += BLOCK) {
                int count = Math.min(BLOCK, whole - from);
                long source = g + (long) from * GRADIENT_SIZE;
                long target = t + (long) from * TARGET_SIZE;
                if (GRADIENTS != DataType.FLOAT32) {
                    NarrowVectors.widen(GRADIENTS, c.gradients, source, wide, 0, count);
                }
                update(c, s + (long) from * Float.BYTES, source, target, count, wide);
                if (TARGET != null && TARGET != DataType.FLOAT32) {
                    NarrowVectors.round(wide, BLOCK, TARGET, c.target, target, count);
                }
            }
        }
        if (whole < n) {
            REST.run(
                    c,
                    s + (long) whole * Float.BYTES,
                    g + (long) whole * GRADIENT_SIZE,
                    t + (long) whole * TARGET_SIZE,
                    n - whole);
        }
    }

    /** Whole vectors; what is narrow in memory is float32 in an array here. */
    private static void update(UpdateWork c, long s, long g, long t, int n, float[] wide) {
        MemorySegment ps = c.parameters;
        MemorySegment ms = c.first;
        MemorySegment vs = c.second;
        MemorySegment gs = c.gradients;
        MemorySegment ts = c.target;
        float factor = c.factor;
        float decay = c.decay;
        float keep1 = c.keep1;
        float add1 = c.add1;
        float keep2 = c.keep2;
        float add2 = c.add2;
        float rate = c.rate;
        float root = c.root;
        float epsilon = c.epsilon;
        for (int i = 0; i < n; i += LANES) {
            long at = (long) i * Float.BYTES;
            long x = s + at;
            FloatVector gradient =
                    GRADIENTS == DataType.FLOAT32
                            ? FloatVector.fromMemorySegment(SPECIES, gs, g + at, ORDER)
                            : FloatVector.fromArray(SPECIES, wide, i);
            gradient = gradient.mul(factor);
            FloatVector p = FloatVector.fromMemorySegment(SPECIES, ps, x, ORDER);
            if (RULE == Rule.ADAMW || RULE == Rule.LION) {
                p = p.mul(decay);
            } else {
                gradient = gradient.add(p.mul(decay));
            }
            if (RULE == Rule.SGD) {
                p = p.sub(gradient.mul(rate));
            } else if (RULE == Rule.LION) {
                FloatVector m = FloatVector.fromMemorySegment(SPECIES, ms, x, ORDER);
                FloatVector u = m.mul(keep1).add(gradient.mul(add1));
                p = p.sub(rate, u.compare(VectorOperators.GT, 0f));
                p = p.add(rate, u.compare(VectorOperators.LT, 0f));
                m.mul(keep2).add(gradient.mul(add2)).intoMemorySegment(ms, x, ORDER);
            } else {
                FloatVector m =
                        FloatVector.fromMemorySegment(SPECIES, ms, x, ORDER)
                                .mul(keep1)
                                .add(gradient.mul(add1));
                m.intoMemorySegment(ms, x, ORDER);
                if (RULE == Rule.MOMENTUM) {
                    p = p.sub(m.mul(rate));
                } else if (RULE == Rule.NESTEROV) {
                    p = p.sub(gradient.add(m.mul(keep2)).mul(rate));
                } else {
                    FloatVector v =
                            FloatVector.fromMemorySegment(SPECIES, vs, x, ORDER)
                                    .mul(keep2)
                                    .add(gradient.mul(add2).mul(gradient));
                    v.intoMemorySegment(vs, x, ORDER);
                    FloatVector d = v.sqrt().mul(root).add(epsilon);
                    p = p.sub(m.mul(rate).div(d));
                }
            }
            p.intoMemorySegment(ps, x, ORDER);
            if (TARGET == DataType.FLOAT32) {
                p.intoMemorySegment(ts, t + at, ORDER);
            } else if (TARGET != null) {
                p.intoArray(wide, BLOCK + i);
            }
        }
    }
}
