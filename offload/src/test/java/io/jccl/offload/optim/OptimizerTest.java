package io.jccl.offload.optim;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.Templates;
import io.jccl.kernel.UpdateKernel;
import io.jccl.testkit.Pairs;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

class OptimizerTest {
    private static final Device HOST = Device.host();
    private static final DataType[] FLOATS = {
        DataType.FLOAT32, DataType.BFLOAT16, DataType.FLOAT16
    };

    static List<Optimizer> optimizers() {
        return List.of(
                Adam.defaults(),
                new Adam(0.8, 0.99, 1e-6, 0.1),
                AdamW.defaults(),
                new AdamW(0.95, 0.9, 1e-5, 0),
                new Sgd(0, 0, 0, false),
                new Sgd(0, 0, 0.01, false),
                Sgd.withMomentum(0.9),
                new Sgd(0.9, 0.1, 0.01, false),
                new Sgd(0.9, 0, 0.01, true),
                Lion.defaults(),
                new Lion(0.95, 0.98, 0.1));
    }

    /** Each rule once, and what momentum may have. */
    static List<Optimizer> someOptimizers() {
        return List.of(
                new Adam(0.8, 0.99, 1e-6, 0.1),
                AdamW.defaults(),
                new Sgd(0, 0, 0.01, false),
                new Sgd(0.9, 0, 0.01, true),
                Lion.defaults());
    }

    static List<Optimizer> moreOptimizers() {
        return optimizers().stream().filter(o -> !someOptimizers().contains(o)).toList();
    }

    private static Buffer random(Random r, DataType type, long count, double scale) {
        Buffer b = HOST.allocate(type, count);
        for (long i = 0; i < count; i++) {
            b.set(i, r.nextGaussian() * scale);
        }
        return b;
    }

    private static OptimizerState state(Optimizer o, Random r, long count) {
        OptimizerState s = OptimizerState.allocate(o, HOST, count);
        for (long i = 0; i < count; i++) {
            s.parameters().set(i, r.nextGaussian());
        }
        return s;
    }

    private static byte[] bytes(@Nullable Buffer b) {
        return b == null ? new byte[0] : b.asSegment().toArray(ValueLayout.JAVA_BYTE);
    }

    private static void assertSame(OptimizerState a, OptimizerState b, String what) {
        assertArrayEquals(bytes(a.parameters()), bytes(b.parameters()), what + ": parameters");
        for (int i = 0; i < a.moments(); i++) {
            assertArrayEquals(bytes(a.moment(i)), bytes(b.moment(i)), what + ": moment " + i);
        }
    }

    private static void copy(OptimizerState from, OptimizerState to) {
        to.parameters().copyFrom(from.parameters().asSegment());
        for (int i = 0; i < from.moments(); i++) {
            to.moment(i).copyFrom(from.moment(i).asSegment());
        }
    }

    /** By hand, for two steps of one parameter with numbers that float32 holds exactly. */
    @Test
    void handComputedAdam() {
        Adam adam = new Adam(0.5, 0.75, 0.5, 0);
        try (OptimizerState s = OptimizerState.allocate(adam, HOST, 1);
                Buffer g = HOST.allocate(DataType.FLOAT32, 1)) {
            s.parameters().set(0, 3);
            g.set(0, 2);
            adam.step(s, 0, g, null, 1, 0.25, 1);
            // m = 1, v = 1; m / (1 - 0.5) = 2, sqrt(v / (1 - 0.75)) = 2; 3 - 0.25 * 2 / 2.5 = 2.8
            assertEquals(1, s.moment(0).get(0));
            assertEquals(1, s.moment(1).get(0));
            assertEquals(2.8f, (float) s.parameters().get(0));
            g.set(0, 1);
            adam.step(s, 0, g, null, 2, 0.25, 2);
            // The factor makes it 2 again: m = 1.5 and v = 1.75; 1.5 / 0.75 = 2,
            // 1.75 / 0.4375 = 4; 2.8 - 0.25 * 2 / 2.5 = 2.6
            assertEquals(1.5, s.moment(0).get(0));
            assertEquals(1.75, s.moment(1).get(0));
            assertEquals(2.6, s.parameters().get(0), 5e-7);
        }
    }

    @Test
    void handComputedDecay() {
        Adam coupled = new Adam(0.5, 0.75, 0.5, 0.5);
        AdamW decoupled = new AdamW(0.5, 0.75, 0.5, 0.5);
        try (OptimizerState a = OptimizerState.allocate(coupled, HOST, 1);
                OptimizerState w = OptimizerState.allocate(decoupled, HOST, 1);
                Buffer g = HOST.allocate(DataType.FLOAT32, 1)) {
            a.parameters().set(0, 4);
            w.parameters().set(0, 4);
            g.set(0, 2);
            coupled.step(a, 0, g, null, 1, 0.25, 1);
            decoupled.step(w, 0, g, null, 1, 0.25, 1);
            // g = 2 + 0.5 * 4 = 4: m = 2, v = 4; 4 - 0.25 * 4 / (4 + 0.5)
            assertEquals(2, a.moment(0).get(0));
            assertEquals(4, a.moment(1).get(0));
            assertEquals(4 - 1 / 4.5, a.parameters().get(0), 5e-7);
            // The moments do not see the decay: 4 * (1 - 0.25 * 0.5) - 0.25 * 2 / 2.5
            assertEquals(1, w.moment(0).get(0));
            assertEquals(3.3f, (float) w.parameters().get(0));
        }
    }

    @Test
    void handComputedMomentum() {
        Sgd plain = new Sgd(0, 0, 0.5, false);
        Sgd damped = new Sgd(0.5, 0.25, 0, false);
        Sgd nesterov = new Sgd(0.5, 0, 0, true);
        try (OptimizerState p = OptimizerState.allocate(plain, HOST, 1);
                OptimizerState d = OptimizerState.allocate(damped, HOST, 1);
                OptimizerState n = OptimizerState.allocate(nesterov, HOST, 1);
                Buffer g = HOST.allocate(DataType.FLOAT32, 1)) {
            p.parameters().set(0, 2);
            g.set(0, 4);
            plain.step(p, 0, g, null, 1, 0.5, 1);
            assertEquals(2 - 0.5 * (4 + 1), p.parameters().get(0));
            damped.step(d, 0, g, null, 1, 0.5, 1);
            assertEquals(4, d.moment(0).get(0), "the first gradient is not dampened");
            damped.step(d, 0, g, null, 2, 0.5, 1);
            assertEquals(0.5 * 4 + 0.75 * 4, d.moment(0).get(0));
            assertEquals(-0.5 * 4 - 0.5 * 5, d.parameters().get(0));
            nesterov.step(n, 0, g, null, 1, 0.5, 1);
            assertEquals(-0.5 * (4 + 0.5 * 4), n.parameters().get(0));
        }
    }

    /**
     * What the formulas give in float64, element by element, with moments and parameters kept in
     * it.
     */
    private static final class Reference {
        final Optimizer optimizer;
        final double[] p;
        final double[] m;
        final double[] v;

        /** How far the moments have come from terms of one sign, so what errors are relative to. */
        final double[] size;

        final double[] moved;

        Reference(Optimizer optimizer, Buffer parameters) {
            this.optimizer = optimizer;
            int n = Math.toIntExact(parameters.count());
            p = new double[n];
            m = new double[n];
            v = new double[n];
            size = new double[n];
            moved = new double[n];
            for (int i = 0; i < n; i++) {
                p[i] = parameters.get(i);
            }
        }

        void step(Buffer gradients, double t, double rate, double factor) {
            for (int i = 0; i < p.length; i++) {
                double g = gradients.get(i) * factor;
                switch (optimizer) {
                    case Adam a ->
                            adam(
                                    i,
                                    g + a.weightDecay() * p[i],
                                    a.beta1(),
                                    a.beta2(),
                                    a.epsilon(),
                                    t,
                                    rate);
                    case AdamW a -> {
                        p[i] -= rate * a.weightDecay() * p[i];
                        adam(i, g, a.beta1(), a.beta2(), a.epsilon(), t, rate);
                    }
                    case Sgd s -> {
                        g += s.weightDecay() * p[i];
                        m[i] = t == 1 ? g : s.momentum() * m[i] + (1 - s.dampening()) * g;
                        size[i] = Math.max(size[i], Math.abs(m[i]) + Math.abs(g));
                        double d =
                                s.momentum() == 0
                                        ? g
                                        : s.nesterov() ? g + s.momentum() * m[i] : m[i];
                        p[i] -= rate * d;
                        moved[i] += rate * size[i] * 2;
                    }
                    case Lion l -> {
                        p[i] -= rate * l.weightDecay() * p[i];
                        p[i] -= rate * Math.signum(l.beta1() * m[i] + (1 - l.beta1()) * g);
                        m[i] = l.beta2() * m[i] + (1 - l.beta2()) * g;
                        size[i] = Math.max(size[i], Math.abs(g));
                        moved[i] += rate;
                    }
                    default -> throw new AssertionError(optimizer);
                }
            }
        }

        private void adam(int i, double g, double b1, double b2, double e, double t, double rate) {
            m[i] = b1 * m[i] + (1 - b1) * g;
            v[i] = b2 * v[i] + (1 - b2) * g * g;
            size[i] = Math.max(size[i], Math.abs(g));
            double d = Math.sqrt(v[i] / (1 - Math.pow(b2, t))) + e;
            p[i] -= rate * (m[i] / (1 - Math.pow(b1, t))) / d;
            moved[i] += rate * size[i] / (1 - Math.pow(b1, t)) / d;
        }
    }

    @ParameterizedTest
    @MethodSource("someOptimizers")
    void nearTheFloat64Reference(Optimizer o) {
        long seed = 20260711;
        System.out.println("nearTheFloat64Reference " + o + " seed " + seed);
        Random r = new Random(seed);
        int n = 1000;
        int steps = 50;
        double eps = Math.ulp(1f) / 2;
        for (DataType type : FLOATS) {
            try (OptimizerState s = state(o, r, n)) {
                Reference ref = new Reference(o, s.parameters());
                for (int t = 1; t <= steps; t++) {
                    try (Buffer g = random(r, type, n, 1024)) {
                        o.step(s, 0, g, null, t, 1e-3, 1.0 / 1024);
                        ref.step(g, t, 1e-3, 1.0 / 1024);
                    }
                }
                for (int i = 0; i < n; i++) {
                    // A step rounds the parameter once or twice, and its update some 10 times; the
                    // moments forget their errors as they forget gradients.
                    double bound =
                            2 * eps * steps * (Math.abs(ref.p[i]) + ref.moved[i])
                                    + 40 * eps * ref.moved[i];
                    int at = i;
                    assertEquals(
                            ref.p[i], s.parameters().get(i), bound, () -> o + " element " + at);
                    if (s.moments() > 0) {
                        assertEquals(
                                ref.m[i], s.moment(0).get(i), 50 * eps * ref.size[i], "m " + i);
                    }
                    if (s.moments() > 1) {
                        // All terms are positive, so this error is relative.
                        assertEquals(
                                ref.v[i], s.moment(1).get(i), 4 * steps * eps * ref.v[i], "v " + i);
                    }
                }
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("moreOptimizers")
    void moreAreNearTheFloat64Reference(Optimizer o) {
        nearTheFloat64Reference(o);
    }

    private static Stream<UpdateKernel.Spec> specs() {
        List<UpdateKernel.Spec> all = new ArrayList<>();
        for (UpdateKernel.Rule rule : UpdateKernel.Rule.values()) {
            for (DataType g : FLOATS) {
                all.add(new UpdateKernel.Spec(rule, g, null));
                for (DataType t : FLOATS) {
                    all.add(new UpdateKernel.Spec(rule, g, t));
                }
            }
        }
        return all.stream();
    }

    /** Each two of rule, gradients and target. */
    private static List<UpdateKernel.Spec> someSpecs() {
        return Pairs.covering(
                specs().toList(),
                s -> List.of(s.rule(), s.gradients(), Optional.ofNullable(s.target())));
    }

    private static List<UpdateKernel.Spec> moreSpecs() {
        List<UpdateKernel.Spec> some = someSpecs();
        return specs().filter(s -> !some.contains(s)).toList();
    }

    private static Optimizer of(UpdateKernel.Rule rule) {
        return switch (rule) {
            case ADAM -> new Adam(0.9, 0.999, 1e-8, 0.02);
            case ADAMW -> AdamW.defaults();
            case SGD -> new Sgd(0, 0, 0.01, false);
            case MOMENTUM -> new Sgd(0.9, 0.1, 0.01, false);
            case NESTEROV -> new Sgd(0.9, 0, 0.01, true);
            case LION -> new Lion(0.9, 0.99, 0.01);
        };
    }

    /** All lengths up to some vectors, with every kind of number but NaN. */
    @ParameterizedTest
    @MethodSource("someSpecs")
    void vectorAndPlainLoopsAgreeBitByBit(UpdateKernel.Spec spec) {
        assertTrue(Templates.VECTOR, "run with --add-modules jdk.incubator.vector");
        long seed = spec.toString().hashCode();
        System.out.println("vectorAndPlainLoops " + spec + " seed " + seed);
        Random r = new Random(seed);
        UpdateKernel vector = UpdateKernel.make(spec, true);
        UpdateKernel plain = UpdateKernel.make(spec, false);
        Optimizer o = of(spec.rule());
        double[] special = {0, -0.0, 1e-45, -1e-40, 1e-7, 3e-5, -6.1e-5, 65519, 65520, 1e30, 3e38};
        for (int n : new int[] {0, 1, 7, 15, 16, 17, 33, 100, 1031}) {
            try (OptimizerState a = state(o, r, n + 3);
                    OptimizerState b = OptimizerState.allocate(o, HOST, n + 3);
                    Buffer g = random(r, spec.gradients(), n, 1);
                    Buffer x = HOST.allocate(target(spec), n);
                    Buffer y = HOST.allocate(target(spec), n)) {
                for (int i = 0; i < n; i++) {
                    if (r.nextInt(3) == 0) {
                        a.parameters().set(3 + i, special[r.nextInt(special.length)]);
                    }
                    if (r.nextInt(3) == 0) {
                        g.set(i, special[r.nextInt(6)]);
                    }
                }
                copy(a, b);
                x.zero();
                y.zero();
                Buffer none = spec.target() == null ? null : x;
                for (int t = 1; t <= 3; t++) {
                    StepWork w = new StepWork(1);
                    w.prepare(o, a, 3, g, none, t, 1e-2, 0.7);
                    vector.run(w.work, 12, 0, 0, n);
                    w.prepare(o, b, 3, g, spec.target() == null ? null : y, t, 1e-2, 0.7);
                    plain.run(w.work, 12, 0, 0, n);
                    assertSame(a, b, "n " + n + " step " + t);
                    assertArrayEquals(bytes(x), bytes(y), "target, n " + n + " step " + t);
                }
                for (int i = 0; i < 3; i++) {
                    assertEquals(a.parameters().get(i), b.parameters().get(i));
                    if (a.moments() > 0) {
                        assertEquals(0, a.moment(0).get(i), "before the piece");
                    }
                }
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("moreSpecs")
    void moreVectorAndPlainLoopsAgreeBitByBit(UpdateKernel.Spec spec) {
        vectorAndPlainLoopsAgreeBitByBit(spec);
    }

    private static DataType target(UpdateKernel.Spec spec) {
        DataType t = spec.target();
        return t == null ? DataType.FLOAT32 : t;
    }

    /**
     * All 65536 codes through the gradient, and all roundings of their neighbours to the target.
     */
    @ParameterizedTest
    @ValueSource(ints = {0x1000, 0x7fff, 0x8000})
    void narrowTypesAreConvertedAsJavaDoes(int offset) {
        Sgd copy = new Sgd(0, 0, 0, false);
        for (DataType type : new DataType[] {DataType.BFLOAT16, DataType.FLOAT16}) {
            int n = 1 << 16;
            try (OptimizerState s = OptimizerState.allocate(copy, HOST, n);
                    Buffer g = HOST.allocate(type, n);
                    Buffer t = HOST.allocate(type, n)) {
                for (int i = 0; i < n; i++) {
                    g.asSegment().setAtIndex(ValueLayout.JAVA_SHORT_UNALIGNED, i, (short) i);
                }
                // 0 - g * 1
                copy.step(s, 0, g, t, 1, 1, 1);
                for (int i = 0; i < n; i++) {
                    double expected = 0.0f - (float) g.get(i);
                    int code = i;
                    assertEquals(expected, s.parameters().get(i), () -> type + " code " + code);
                    assertEquals(expected, t.get(i), () -> type + " back to code " + code);
                }
                g.zero();
                for (int i = 0; i < n; i++) {
                    int bits = (i << 16) + offset;
                    s.parameters().asSegment().setAtIndex(ValueLayout.JAVA_INT_UNALIGNED, i, bits);
                }
                copy.step(s, 0, g, t, 1, 1, 1);
                try (Buffer one = HOST.allocate(type, 1)) {
                    for (int i = 0; i < n; i++) {
                        double p = s.parameters().get(i);
                        one.set(0, p);
                        assertEquals(one.get(0), t.get(i), () -> type + " of " + p);
                    }
                }
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {-1, 1, 0xfff, 0x1001, 0x8001})
    void moreNarrowValuesAreConvertedAsJavaDoes(int offset) {
        narrowTypesAreConvertedAsJavaDoes(offset);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("optimizers")
    void anyNumberOfThreadsAndAnyPiecesGiveTheSameBits(Optimizer o) {
        long seed = o.toString().hashCode();
        System.out.println("anyNumberOfThreads " + o + " seed " + seed);
        Random r = new Random(seed);
        int n = 5 * Chunks.CHUNK + 12345;
        try (OptimizerState start = state(o, r, n);
                Buffer g = random(r, DataType.BFLOAT16, n, 100);
                OptimizerState one = OptimizerState.allocate(o, HOST, n);
                OptimizerState two = OptimizerState.allocate(o, HOST, n);
                Buffer x = HOST.allocate(DataType.BFLOAT16, n);
                Buffer y = HOST.allocate(DataType.BFLOAT16, n)) {
            copy(start, one);
            for (int t = 1; t <= 3; t++) {
                o.step(one, 0, g, x, t, 1e-3, 0.01);
            }
            for (int threads : new int[] {1, 2, 3, 8}) {
                copy(start, two);
                y.zero();
                try (Workers w = Workers.of(threads)) {
                    for (int t = 1; t <= 3; t++) {
                        o.step(w, two, 0, g, y, t, 1e-3, 0.01);
                    }
                }
                assertSame(one, two, threads + " threads");
                assertArrayEquals(bytes(x), bytes(y), threads + " threads");
            }
            copy(start, two);
            y.zero();
            try (Workers w = Workers.of(2)) {
                for (int t = 1; t <= 3; t++) {
                    int end = n;
                    while (end > 0) {
                        int from = Math.max(0, end - 1 - r.nextInt(n / 3));
                        Buffer gs = g.slice(from, end - from);
                        Buffer ys = y.slice(from, end - from);
                        if (r.nextBoolean()) {
                            o.step(two, from, gs, ys, t, 1e-3, 0.01);
                        } else {
                            o.step(w, two, from, gs, ys, t, 1e-3, 0.01);
                        }
                        end = from;
                    }
                }
            }
            assertSame(one, two, "pieces from the end");
            assertArrayEquals(bytes(x), bytes(y), "pieces from the end");
        }
    }

    @Test
    void javaArraysWork() {
        Adam adam = Adam.defaults();
        float[] p = {1, 2, 3};
        Buffer[] m = new Buffer[2];
        for (int i = 0; i < 2; i++) {
            m[i] = Buffer.wrap(MemorySegment.ofArray(new float[3]), DataType.FLOAT32);
        }
        OptimizerState s =
                OptimizerState.of(Buffer.wrap(MemorySegment.ofArray(p), DataType.FLOAT32), m);
        try (Buffer g = HOST.allocate(DataType.FLOAT32, 2)) {
            g.set(0, 1);
            g.set(1, -1);
            adam.step(s, 1, g, null, 1, 0.5, 1);
        }
        assertArrayEquals(new float[] {1, 1.5f, 3.5f}, p, 1e-6f);
    }

    @Test
    @SuppressWarnings("try") // closed early, on purpose
    void badInputNamesTheValue() {
        fails("beta1 is 1.0", () -> new Adam(1, 0.9, 1e-8, 0));
        fails("beta2 is NaN", () -> new AdamW(0.9, Double.NaN, 1e-8, 0));
        fails("beta2 is 0.9999999999", () -> new AdamW(0.9, 0.9999999999, 1e-8, 0));
        fails("epsilon is 0.0", () -> new Adam(0.9, 0.9, 0, 0));
        fails("weight decay is -0.1", () -> new Adam(0.9, 0.9, 1e-8, -0.1));
        fails("momentum is -0.5", () -> new Sgd(-0.5, 0, 0, false));
        fails("dampening is 2.0", () -> new Sgd(0.5, 2, 0, false));
        fails("nesterov needs", () -> new Sgd(0, 0, 0, true));
        fails("no momentum to dampen", () -> new Sgd(0, 0.5, 0, false));
        fails("threads is 0", () -> Workers.of(0));
        Adam adam = Adam.defaults();
        try (OptimizerState s = OptimizerState.allocate(adam, HOST, 4);
                OptimizerState sgd = OptimizerState.allocate(Sgd.withMomentum(0.9), HOST, 4);
                Buffer g = HOST.allocate(DataType.FLOAT32, 4).zero();
                Buffer i8 = HOST.allocate(DataType.INT8, 4);
                Buffer short3 = HOST.allocate(DataType.BFLOAT16, 3)) {
            fails("step is 0", () -> adam.step(s, 0, g, null, 0, 0.1, 1));
            fails("learning rate is -1.0", () -> adam.step(s, 0, g, null, 1, -1, 1));
            fails("gradient factor is NaN", () -> adam.step(s, 0, g, null, 1, 1, Double.NaN));
            fails("gradients are of int8", () -> adam.step(s, 0, i8, null, 1, 1, 1));
            fails("target is of int8", () -> adam.step(s, 0, g, i8, 1, 1, 1));
            fails("target has 3", () -> adam.step(s, 0, g, short3, 1, 1, 1));
            fails("holds 1 moments", () -> adam.step(sgd, 0, g, null, 1, 1, 1));
            assertThrows(IndexOutOfBoundsException.class, () -> adam.step(s, 1, g, null, 1, 1, 1));
            assertThrows(IndexOutOfBoundsException.class, () -> adam.step(s, -1, g, null, 1, 1, 1));
            fails("moment 0 are of int8", () -> OptimizerState.of(g, i8));
            fails("moment 0 shares memory", () -> OptimizerState.of(g, g));
            fails(
                    "moment 1 shares memory with moment 0",
                    () -> OptimizerState.of(g, s.moment(0), s.moment(0)));
            fails("moment 0 has 2", () -> OptimizerState.of(g, s.moment(0).slice(0, 2)));
            Workers w = Workers.of(2);
            w.close();
            w.close();
            assertThrows(IllegalStateException.class, () -> adam.step(w, s, 0, g, null, 1, 1, 1));
            s.close();
            assertThrows(IllegalStateException.class, () -> adam.step(s, 0, g, null, 1, 1, 1));
        }
    }

    private static void fails(String message, org.junit.jupiter.api.function.Executable e) {
        String m = String.valueOf(assertThrows(IllegalArgumentException.class, e).getMessage());
        assertTrue(m.contains(message), m);
    }
}
