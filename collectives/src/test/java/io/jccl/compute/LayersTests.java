package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;

/** Comparison with float64, within a bound for each element. */
abstract class LayersTests extends ComputeTests {
    /** A step of float32, relative to its number. */
    static final double STEP = 0x1p-23;

    final Buffer tame(Run r, DataType type, int n) {
        return of(r.c, type, as(type, tame(random, n)));
    }

    final double[] get(Run r, Buffer b) {
        return read(r.c, r.stream, b);
    }

    final Buffer zeros(Run r, DataType type, int n) {
        return of(r.c, type, new double[n]);
    }

    /** What one rounding to a type moves a number by, at most. */
    static double rounding(DataType type, double x) {
        return switch (type) {
            case FLOAT32 -> Math.abs(x) * 0x1p-24 + 0x1p-149;
            case BFLOAT16 -> Math.abs(x) * 0x1p-8 + 0x1p-133;
            default -> Math.abs(x) * 0x1p-11 + 0x1p-24;
        };
    }

    static void assertClose(
            DataType type, double[] expected, double[] bound, double[] actual, String what) {
        assertEquals(expected.length, actual.length, what);
        for (int i = 0; i < expected.length; i++) {
            double e = expected[i];
            double a = actual[i];
            boolean same = Double.compare(e + 0.0, a + 0.0) == 0;
            double within = bound[i] + rounding(type, e) + rounding(type, bound[i]);
            int at = i;
            assertTrue(
                    same || Math.abs(e - a) <= within,
                    () -> what + " at " + at + ": " + e + " +- " + within + " but is " + a);
        }
    }
}
