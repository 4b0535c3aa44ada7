package io.jccl.offload.optim;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.NormKernel;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class GradientNormTest {
    private static final Device HOST = Device.host();

    private static Buffer random(Random r, DataType type, long count) {
        Buffer b = HOST.allocate(type, count);
        for (long i = 0; i < count; i++) {
            b.set(i, r.nextGaussian() * 10);
        }
        return b;
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT32", "BFLOAT16", "FLOAT16"})
    void sameBitsForAnyNumberOfThreads(DataType type) {
        long seed = 5L + type.ordinal();
        System.out.println("sameBitsForAnyNumberOfThreads seed " + seed);
        int n = 3 * Chunks.CHUNK + 777;
        try (Buffer g = random(new Random(seed), type, n)) {
            double exact = 0;
            for (int i = 0; i < n; i++) {
                exact += g.get(i) * g.get(i);
            }
            GradientNorm norm = new GradientNorm(1);
            norm.add(0, g);
            double one = norm.sumOfSquares();
            assertEquals(exact, one, 1e-12 * exact);
            for (int threads : new int[] {1, 2, 3, 7}) {
                try (Workers w = Workers.of(threads)) {
                    norm.reset();
                    norm.add(w, 0, g);
                    assertEquals(one, norm.sumOfSquares(), threads + " threads");
                }
            }
            NormKernel vector = NormKernel.make(type, true);
            NormKernel plain = NormKernel.make(type, false);
            double[] sums = new double[NormKernel.LANES];
            for (int length : new int[] {0, 1, 15, 16, 17, 4096, 4097, 9999, Chunks.CHUNK}) {
                long at = 3L * type.size();
                assertEquals(
                        plain.sum(g.asSegment(), at, length, sums),
                        vector.sum(g.asSegment(), at, length, sums),
                        "vector and plain loops, length " + length);
            }
        }
    }

    @Test
    void orderOfArrivalDoesNotMatter() {
        long seed = 77;
        System.out.println("orderOfArrivalDoesNotMatter seed " + seed);
        Random r = new Random(seed);
        try (Buffer a = random(r, DataType.FLOAT32, 1000);
                Buffer b = random(r, DataType.FLOAT16, 77);
                Buffer c = random(r, DataType.BFLOAT16, 70_000)) {
            GradientNorm x = new GradientNorm(3);
            x.add(0, a);
            x.add(1, b);
            assertThrows(IllegalStateException.class, x::norm);
            x.add(2, c);
            GradientNorm y = new GradientNorm(3);
            y.add(2, c);
            y.add(0, a);
            y.add(1, b);
            assertEquals(x.norm(), y.norm());
            y.reset();
            assertThrows(IllegalStateException.class, y::norm);
            assertThrows(IndexOutOfBoundsException.class, () -> y.add(3, a));
        }
        assertThrows(IllegalArgumentException.class, () -> new GradientNorm(0));
    }

    @Test
    void handComputedFactor() {
        try (Buffer g = HOST.allocate(DataType.FLOAT32, 2)) {
            g.set(0, 3 * 64);
            g.set(1, 4 * 64);
            GradientNorm n = new GradientNorm(1);
            n.add(0, g);
            assertEquals(320, n.norm());
            assertEquals(1.0 / 64, GradientNorm.factor(n.norm(), 64, Double.POSITIVE_INFINITY));
            assertEquals(1.0 / 64, GradientNorm.factor(n.norm(), 64, 6));
            assertEquals(0.5 / 64, GradientNorm.factor(n.norm(), 64, 2.5), 1e-8);
            g.set(0, Float.MAX_VALUE);
            n.add(0, g);
            assertTrue(Double.isFinite(n.norm()), "large is not infinite");
            assertTrue(Double.isNaN(GradientNorm.factor(n.norm(), 0.5, 1)), "unscaling overflows");
        }
        assertThrows(IllegalArgumentException.class, () -> GradientNorm.factor(1, 0, 1));
        assertThrows(IllegalArgumentException.class, () -> GradientNorm.factor(1, 1, 0));
    }

    /** One bad value at any place of a vector, a chunk or the rest: nothing may change. */
    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT32", "BFLOAT16", "FLOAT16"})
    void stepWithABadGradientIsLeftOut(DataType type) {
        long seed = 13;
        System.out.println("stepWithABadGradientIsLeftOut seed " + seed);
        Random r = new Random(seed);
        int n = Chunks.CHUNK + 1003;
        AdamW o = AdamW.defaults();
        try (Workers w = Workers.of(2);
                OptimizerState s = OptimizerState.allocate(o, HOST, n);
                Buffer g = random(r, type, n);
                Buffer t = HOST.allocate(DataType.BFLOAT16, n).zero()) {
            CheckedStep step = new CheckedStep(o, s, w);
            assertTrue(step.run(g, t, 1, 0.1, 8, 1));
            byte[] p = s.parameters().asSegment().toArray(ValueLayout.JAVA_BYTE);
            byte[] m = s.moment(0).asSegment().toArray(ValueLayout.JAVA_BYTE);
            byte[] v = s.moment(1).asSegment().toArray(ValueLayout.JAVA_BYTE);
            byte[] x = t.asSegment().toArray(ValueLayout.JAVA_BYTE);
            double[] bad = {
                Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY,
            };
            for (int at : new int[] {0, 5, 17, 4096, Chunks.CHUNK - 1, Chunks.CHUNK, n - 1}) {
                for (double b : bad) {
                    double before = g.get(at);
                    g.set(at, b);
                    assertFalse(step.run(g, t, 2, 0.1, 8, 1), b + " at " + at);
                    assertFalse(Double.isFinite(step.lastNorm()));
                    g.set(at, before);
                }
            }
            assertArrayEquals(p, s.parameters().asSegment().toArray(ValueLayout.JAVA_BYTE));
            assertArrayEquals(m, s.moment(0).asSegment().toArray(ValueLayout.JAVA_BYTE));
            assertArrayEquals(v, s.moment(1).asSegment().toArray(ValueLayout.JAVA_BYTE));
            assertArrayEquals(x, t.asSegment().toArray(ValueLayout.JAVA_BYTE));
            assertTrue(step.run(g, t, 2, 0.1, 8, 1), "and can be repeated");
            assertThrows(
                    IllegalArgumentException.class,
                    () -> step.run(g.slice(0, 5), null, 3, 0.1, 1, 1));
        }
    }

    /** Rules with sums take each tensor for itself, as with a state of its own. */
    @Test
    void rulesWithSumsTakeTensorsOneByOne() {
        long seed = 17;
        System.out.println("rulesWithSumsTakeTensorsOneByOne seed " + seed);
        Random r = new Random(seed);
        List<TensorShape> shapes =
                List.of(new TensorShape(3, 5), TensorShape.vector(7), new TensorShape(2, 4));
        for (Optimizer o : List.of(Lamb.defaults(), Adafactor.defaults())) {
            try (Workers w = Workers.of(2);
                    OptimizerState all = OptimizerState.allocate(o, HOST, shapes);
                    Buffer t = HOST.allocate(DataType.BFLOAT16, all.count())) {
                for (int i = 0; i < all.count(); i++) {
                    all.parameters().set(i, (1 + i / 15) * r.nextGaussian());
                }
                float[] before = new float[(int) all.count()];
                all.parameters().copyTo(before);
                CheckedStep step = new CheckedStep(o, all, w);
                try (Buffer one = random(r, DataType.FLOAT32, before.length);
                        Buffer two = random(r, DataType.FLOAT32, before.length)) {
                    assertTrue(step.run(one, t, 1, 0.01, 8, Double.POSITIVE_INFINITY));
                    assertTrue(step.run(two, t, 2, 0.01, 8, Double.POSITIVE_INFINITY));
                    long from = 0;
                    for (TensorShape s : shapes) {
                        try (OptimizerState own = OptimizerState.allocate(o, HOST, List.of(s))) {
                            for (int i = 0; i < s.count(); i++) {
                                own.parameters().set(i, before[(int) from + i]);
                            }
                            o.step(own, 0, one.slice(from, s.count()), null, 1, 0.01, 0.125);
                            o.step(own, 0, two.slice(from, s.count()), null, 2, 0.01, 0.125);
                            for (int i = 0; i < s.count(); i++) {
                                double p = own.parameters().get(i);
                                assertEquals(p, all.parameters().get(from + i), o + ", " + s);
                                assertEquals(p, t.get(from + i), Math.abs(p) / 256, "target");
                            }
                        }
                        from += s.count();
                    }
                }
            }
        }
    }

    /** A step's arguments are checked also if it is skipped. */
    @Test
    void aSkippedStepsArgumentsAreChecked() {
        Adam o = Adam.defaults();
        try (Workers w = Workers.of(1);
                OptimizerState s = OptimizerState.allocate(o, HOST, 3);
                Buffer g = HOST.allocate(DataType.FLOAT32, 3).zero();
                Buffer t = HOST.allocate(DataType.FLOAT32, 2)) {
            g.set(1, Double.NaN);
            CheckedStep step = new CheckedStep(o, s, w);
            assertFalse(step.run(g, null, 1, 0.1, 1, 1));
            assertThrows(IllegalArgumentException.class, () -> step.run(g, null, 0, 0.1, 1, 1));
            assertThrows(IllegalArgumentException.class, () -> step.run(g, null, 1, -0.1, 1, 1));
            assertThrows(IllegalArgumentException.class, () -> step.run(g, t, 1, 0.1, 1, 1));
        }
    }

    /** A power of two as loss scale changes nothing at all, as long as nothing underflows. */
    @Test
    void lossScaleIsTakenOffExactly() {
        long seed = 4711;
        System.out.println("lossScaleIsTakenOffExactly seed " + seed);
        Random r = new Random(seed);
        int n = 1000;
        Adam o = Adam.defaults();
        try (Workers w = Workers.of(1);
                OptimizerState a = OptimizerState.allocate(o, HOST, n);
                OptimizerState b = OptimizerState.allocate(o, HOST, n);
                Buffer g = random(r, DataType.FLOAT32, n);
                Buffer scaled = HOST.allocate(DataType.FLOAT32, n)) {
            for (int i = 0; i < n; i++) {
                scaled.set(i, g.get(i) * 65536);
            }
            CheckedStep x = new CheckedStep(o, a, w);
            CheckedStep y = new CheckedStep(o, b, w);
            double none = Double.POSITIVE_INFINITY;
            assertTrue(x.run(g, null, 1, 0.1, 1, none));
            assertTrue(y.run(scaled, null, 1, 0.1, 65536, none));
            assertEquals(x.lastNorm(), y.lastNorm());
            assertArrayEquals(
                    a.parameters().asSegment().toArray(ValueLayout.JAVA_BYTE),
                    b.parameters().asSegment().toArray(ValueLayout.JAVA_BYTE));
        }
    }

    @Test
    void lossScaleAdapts() {
        LossScale s = new LossScale(1024, 2, 0.5, 3);
        s.update(true);
        s.update(true);
        assertEquals(1024, s.value());
        s.update(true);
        assertEquals(2048, s.value());
        s.update(true);
        s.update(true);
        s.update(false);
        assertEquals(1024, s.value());
        s.update(true);
        s.update(true);
        assertEquals(1024, s.value(), "a bad step starts the count again");
        LossScale fixed = LossScale.fixed(8);
        fixed.update(false);
        fixed.update(true);
        assertEquals(8, fixed.value());
        assertEquals(65536, LossScale.dynamic().value());
        assertThrows(IllegalArgumentException.class, () -> new LossScale(0, 2, 0.5, 1));
        assertThrows(IllegalArgumentException.class, () -> new LossScale(1, 0.5, 0.5, 1));
        assertThrows(IllegalArgumentException.class, () -> new LossScale(1, 2, 2, 1));
        assertThrows(IllegalArgumentException.class, () -> new LossScale(1, 2, 0.5, 0));
    }
}
