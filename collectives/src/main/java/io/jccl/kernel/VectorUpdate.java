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
    private static final int WIDTH = SPECIES.vectorByteSize();
    private static final Rule RULE;
    private static final DataType GRADIENTS;
    private static final @Nullable DataType TARGET;
    private static final int GRADIENT_SIZE;
    private static final int TARGET_SIZE;
    private static final UpdateKernel REST;

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
        int vectors = n / LANES;
        for (int i = 0; i < vectors; i++) {
            long x = s + (long) i * WIDTH;
            FloatVector gradient =
                    NarrowVectors.load(GRADIENTS, gs, g + (long) i * LANES * GRADIENT_SIZE)
                            .mul(factor);
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
            if (TARGET != null) {
                NarrowVectors.store(p, TARGET, ts, t + (long) i * LANES * TARGET_SIZE);
            }
        }
        int done = vectors * LANES;
        if (done < n) {
            REST.run(
                    c,
                    s + (long) done * Float.BYTES,
                    g + (long) done * GRADIENT_SIZE,
                    t + (long) done * TARGET_SIZE,
                    n - done);
        }
    }
}
