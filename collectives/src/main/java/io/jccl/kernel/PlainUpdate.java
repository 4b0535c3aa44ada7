package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import org.jspecify.annotations.Nullable;

/** Template of the loops in plain Java; see {@link UpdateKernel}. The switches fold away. */
final class PlainUpdate extends UpdateKernel {
    private static final Rule RULE;
    private static final DataType GRADIENTS;
    private static final @Nullable DataType TARGET;
    private static final int GRADIENT_SIZE;
    private static final int TARGET_SIZE;

    static {
        try {
            Spec spec = MethodHandles.classData(MethodHandles.lookup(), "_", Spec.class);
            RULE = spec.rule();
            GRADIENTS = spec.gradients();
            TARGET = spec.target();
            GRADIENT_SIZE = GRADIENTS.size();
            TARGET_SIZE = TARGET == null ? 0 : TARGET.size();
        } catch (IllegalAccessException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    PlainUpdate() {}

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
        for (int i = 0; i < n; i++) {
            long x = s + (long) i * Float.BYTES;
            float gradient = gradient(gs, g + (long) i * GRADIENT_SIZE) * factor;
            float p = ps.get(JAVA_FLOAT_UNALIGNED, x);
            if (RULE == Rule.ADAMW || RULE == Rule.LION) {
                p = p * decay;
            } else {
                gradient = gradient + p * decay;
            }
            if (RULE == Rule.SGD) {
                p = p - gradient * rate;
            } else if (RULE == Rule.LION) {
                float m = ms.get(JAVA_FLOAT_UNALIGNED, x);
                float u = m * keep1 + gradient * add1;
                p = u > 0 ? p - rate : u < 0 ? p + rate : p;
                ms.set(JAVA_FLOAT_UNALIGNED, x, m * keep2 + gradient * add2);
            } else {
                float m = ms.get(JAVA_FLOAT_UNALIGNED, x) * keep1 + gradient * add1;
                ms.set(JAVA_FLOAT_UNALIGNED, x, m);
                switch (RULE) {
                    case MOMENTUM -> p = p - m * rate;
                    case NESTEROV -> p = p - (gradient + m * keep2) * rate;
                    default -> {
                        float v =
                                vs.get(JAVA_FLOAT_UNALIGNED, x) * keep2
                                        + gradient * add2 * gradient;
                        vs.set(JAVA_FLOAT_UNALIGNED, x, v);
                        // The root of a float32 rounded via float64 is correctly rounded.
                        float d = (float) Math.sqrt(v) * root + epsilon;
                        p = p - m * rate / d;
                    }
                }
            }
            ps.set(JAVA_FLOAT_UNALIGNED, x, p);
            if (TARGET != null) {
                target(ts, t + (long) i * TARGET_SIZE, p);
            }
        }
    }

    private static float gradient(MemorySegment gs, long at) {
        return switch (GRADIENTS) {
            case FLOAT32 -> gs.get(JAVA_FLOAT_UNALIGNED, at);
            case BFLOAT16 -> Bfloat16.toFloat(gs.get(JAVA_SHORT_UNALIGNED, at));
            default -> Float.float16ToFloat(gs.get(JAVA_SHORT_UNALIGNED, at));
        };
    }

    private static void target(MemorySegment ts, long at, float p) {
        if (TARGET == DataType.FLOAT32) {
            ts.set(JAVA_FLOAT_UNALIGNED, at, p);
        } else if (TARGET == DataType.BFLOAT16) {
            ts.set(JAVA_SHORT_UNALIGNED, at, Bfloat16.of(p));
        } else {
            ts.set(JAVA_SHORT_UNALIGNED, at, Float.floatToFloat16(p));
        }
    }
}
