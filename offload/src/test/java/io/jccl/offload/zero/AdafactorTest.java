package io.jccl.offload.zero;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.Adafactor;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.TensorShape;
import io.jccl.testkit.Messages;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Adafactor beside PyTorch's steps and its paper's formulas, whole and sharded. */
class AdafactorTest {
    private static final Device HOST = Device.host();
    private static final List<TensorShape> SHAPES =
            List.of(new TensorShape(3, 4), TensorShape.vector(5));

    /** A matrix and a vector in one layer, of which no rank's block is a whole one, and a third. */
    private static final List<ShardedLayer> LAYERS =
            List.of(
                    new ShardedLayer(
                            "first",
                            List.of(
                                    new ShardedLayer.Tensor("w", 12, 4),
                                    new ShardedLayer.Tensor("b", 5))),
                    ShardedLayer.of("last", 1));

    private static final int COUNT = 17;

    /**
     * What torch.optim.Adafactor of PyTorch 2.13.0 (CPU) has after 10 steps of these gradients with
     * weight_decay=0 and lr=0.01, and with 0.1 and 0.5, where the steps' rate falls.
     */
    private static final float[] PLAIN = {
        0.819889f, 0.9916552f, 0.6971674f, 0.053128876f, -0.6268851f, -0.99971277f,
        -0.8801876f, -0.35012195f, 0.32006788f, 0.83060265f, 0.97017604f, 0.67247343f,
        1.0348634f, 0.96650666f, 0.77296495f, 0.657082f, 0.3726768f
    };

    private static final float[] DECAYED = {
        0.32907283f,
        0.78373724f,
        0.6843576f,
        -0.017344747f,
        -0.65463847f,
        -0.7648259f,
        -0.333617f,
        0.055151172f,
        0.119872786f,
        0.17707643f,
        0.4801483f,
        0.66706765f,
        5.249079f,
        -0.89775956f,
        -2.9194508f,
        5.0465436f,
        -1.3257601f
    };

    private static double parameter(int i) {
        return i < 12 ? Math.sin(0.7 * i + 1) : Math.cos(0.3 * (i - 12));
    }

    private static double gradient(int i, int step) {
        return i < 12
                ? Math.sin(1.3 * i + 0.9 * step) * (1 + 0.2 * (i % 4))
                : Math.cos(2.1 * (i - 12) + 0.4 * step);
    }

    private static double[] whole(Adafactor rule, double rate, int steps, DataType type) {
        double[] p = new double[COUNT];
        try (OptimizerState s = OptimizerState.allocate(rule, HOST, SHAPES);
                Buffer g = HOST.allocate(type, COUNT);
                Buffer target = HOST.allocate(type, COUNT)) {
            assertEquals(3 + 4 + 5, s.moment(0).count());
            for (int i = 0; i < COUNT; i++) {
                s.parameters().set(i, parameter(i));
            }
            for (int t = 1; t <= steps; t++) {
                for (int i = 0; i < COUNT; i++) {
                    g.set(i, 8 * gradient(i, t));
                }
                rule.step(s, 0, g.slice(0, 12), target.slice(0, 12), t, rate, 0.125);
                rule.step(s, 12, g.slice(12, 5), target.slice(12, 5), t, rate, 0.125);
            }
            for (int i = 0; i < COUNT; i++) {
                p[i] = s.parameters().get(i);
                double narrow = type == DataType.FLOAT32 ? 0 : 1.0 / 128;
                assertEquals(p[i], target.get(i), Math.abs(p[i]) * narrow);
            }
        }
        return p;
    }

    @Test
    void stepsAreThoseOfPyTorch() {
        assertNear(PLAIN, whole(Adafactor.defaults(), 0.01, 10, DataType.FLOAT32), 1e-6);
        Adafactor decayed = Adafactor.defaults().withWeightDecay(0.1);
        assertNear(DECAYED, whole(decayed, 0.5, 10, DataType.FLOAT32), 3e-6);
        assertNear(PLAIN, whole(Adafactor.defaults(), 0.01, 10, DataType.BFLOAT16), 2e-3);
    }

    private static void assertNear(float[] expected, double[] found, double tolerance) {
        for (int i = 0; i < expected.length; i++) {
            assertEquals(expected[i], found[i], tolerance, "parameter " + i);
        }
    }

    /**
     * Algorithms 4 and 5 of arXiv 1804.04235 in float64, with absolute steps and tight clipping.
     */
    @Test
    void stepsAreThoseOfThePaper() {
        Adafactor rule = new Adafactor(0.7, 1e-3, 0.5, 0.25, true, false, 0.2);
        double[] p = new double[COUNT];
        double[] row = new double[3];
        double[] column = new double[4];
        double[] v = new double[5];
        for (int i = 0; i < COUNT; i++) {
            p[i] = (float) parameter(i);
        }
        for (int t = 1; t <= 12; t++) {
            double keep = 1 - Math.pow(t, -0.7);
            double[] g = new double[COUNT];
            for (int i = 0; i < COUNT; i++) {
                g[i] = (float) (8 * gradient(i, t)) / 8;
            }
            double[] rows = new double[3];
            double[] columns = new double[4];
            for (int i = 0; i < 12; i++) {
                rows[i / 4] += (g[i] * g[i] + 1e-3) / 4;
                columns[i % 4] += (g[i] * g[i] + 1e-3) / 3;
            }
            double all = 0;
            for (int r = 0; r < 3; r++) {
                row[r] = keep * row[r] + (1 - keep) * rows[r];
                all += row[r] / 3;
            }
            for (int c = 0; c < 4; c++) {
                column[c] = keep * column[c] + (1 - keep) * columns[c];
            }
            double[] u = new double[COUNT];
            for (int i = 0; i < COUNT; i++) {
                if (i < 12) {
                    u[i] = g[i] / Math.sqrt(row[i / 4] * column[i % 4] / all);
                } else {
                    v[i - 12] = keep * v[i - 12] + (1 - keep) * (g[i] * g[i] + 1e-3);
                    u[i] = g[i] / Math.sqrt(v[i - 12]);
                }
            }
            step(p, u, 0, 12);
            step(p, u, 12, COUNT);
        }
        double[] found = whole(rule, 0.03, 12, DataType.FLOAT32);
        assertArrayEquals(p, found, 1e-6);
    }

    /** A new thread has no memory from the sums of larger tensors. */
    @Test
    void aTensorOfOneElement() throws InterruptedException {
        Adafactor rule = Adafactor.defaults();
        try (OptimizerState s =
                        OptimizerState.allocate(rule, HOST, List.of(TensorShape.vector(1)));
                Buffer g = HOST.allocate(DataType.FLOAT32, 1)) {
            s.parameters().set(0, 1);
            g.set(0, 0.5);
            Thread t = new Thread(() -> rule.step(s, 0, g, null, 1, 0.01, 1));
            t.start();
            t.join();
            assertEquals(0.99, s.parameters().get(0), 1e-6);
        }
    }

    private static void step(double[] p, double[] u, int from, int to) {
        double of = 0;
        double by = 0;
        for (int i = from; i < to; i++) {
            of += p[i] * p[i] / (to - from);
            by += u[i] * u[i] / (to - from);
        }
        double scale = 0.03 * Math.max(0.5, Math.sqrt(of)) / Math.max(1, Math.sqrt(by) / 0.25);
        for (int i = from; i < to; i++) {
            p[i] = p[i] * (1 - 0.03 * 0.2) - scale * u[i];
        }
    }

    /** One rank's optimizer, and what is done with it. */
    @FunctionalInterface
    private interface Work {
        void run(ZeroOptimizer zero, int rank) throws Exception;
    }

    private static void world(int ranks, ZeroOptions options, Work work) {
        Communicator.runLocal(
                ranks,
                c -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero =
                                    ZeroOptimizer.create(
                                            c,
                                            LAYERS,
                                            Adafactor.defaults(),
                                            options,
                                            LossScale.fixed(1),
                                            memory.tiers)) {
                        work.run(zero, c.rank());
                    }
                });
    }

    private static void initialize(ZeroOptimizer zero) {
        zero.initialize((layer, tensor, values) -> {
            int first = tensor.equals("b") ? 12 : 0;
            for (int i = 0; i < values.count(); i++) {
                values.set(i, parameter(first + i));
            }
        });
    }

    /** Ranks have gradients of different sizes, whose mean is that of one rank alone. */
    private static void step(ZeroOptimizer zero, int rank, int ranks, int step) {
        for (int l = LAYERS.size() - 1; l >= 0; l--) {
            Buffer g = zero.gradients(l);
            for (int i = 0; i < g.count(); i++) {
                double share = 2.0 * (rank + 1) / (ranks + 1);
                g.set(i, share * gradient(i, step));
            }
            zero.reduce(l);
        }
        assertTrue(zero.step(0.01).taken());
    }

    private static float[] parameters(ZeroOptimizer zero) {
        List<Float> all = new ArrayList<>();
        zero.forEachParameter((layer, tensor, values) -> {
            for (int i = 0; layer.equals("first") && i < values.count(); i++) {
                all.add((float) values.get(i));
            }
        });
        float[] p = new float[all.size()];
        for (int i = 0; i < p.length; i++) {
            p[i] = all.get(i);
        }
        return p;
    }

    @ParameterizedTest
    @CsvSource({
        "0, 2, DEVICE",
        "1, 3, PINNED",
        "2, 4, NVME",
        "3, 5, DEVICE",
        "3, 2, NVME",
        "1, 1, DEVICE"
    })
    void shardedStepsAreThoseOfWholeTensors(int stage, int ranks, Tier tier) {
        ZeroOptions options = ZeroOptions.stage(stage).withTiers(tier, tier, tier);
        world(
                ranks,
                options,
                (zero, rank) -> {
                    initialize(zero);
                    for (int t = 1; t <= 10; t++) {
                        step(zero, rank, ranks, t);
                    }
                    float[] found = parameters(zero);
                    for (int i = 0; i < COUNT; i++) {
                        assertEquals(PLAIN[i], found[i], 2e-6, "parameter " + i);
                    }
                });
    }

    /**
     * Files of any number of ranks are read by any other, and values by name give the state too.
     */
    @Test
    void stateIsSavedAndDividedAgain(@TempDir Path folder) {
        world(
                2,
                ZeroOptions.stage(2),
                (zero, rank) -> {
                    initialize(zero);
                    for (int t = 1; t <= 4; t++) {
                        step(zero, rank, 2, t);
                    }
                    zero.save(folder);
                });
        List<float[]> moment = new ArrayList<>();
        List<float[]> parameter = new ArrayList<>();
        world(
                3,
                ZeroOptions.stage(3).withTiers(Tier.PINNED, Tier.PINNED, Tier.NVME),
                (zero, rank) -> {
                    assertEquals(4, zero.load(folder));
                    if (rank == 0) {
                        zero.forEachMoment(0, (l, t, v) -> moment.add(floats(v)));
                        zero.forEachParameter((l, t, v) -> parameter.add(floats(v)));
                    } else {
                        zero.forEachMoment(0, (l, t, v) -> {});
                        zero.forEachParameter((l, t, v) -> {});
                    }
                    finish(zero, rank, 3, 2e-6);
                });
        world(
                2,
                ZeroOptions.stage(1),
                (zero, rank) -> {
                    int[] next = {0, 0};
                    zero.restore(
                            4,
                            (layer, tensor, m, to) -> {
                                List<float[]> all = m < 0 ? parameter : moment;
                                float[] values = all.get(next[m + 1]++);
                                for (int i = 0; i < values.length; i++) {
                                    to.set(i, values[i]);
                                }
                            });
                    finish(zero, rank, 2, 2e-6);
                });
    }

    /** Means of rows and columns are as many as the shapes say: the model is compared first. */
    @Test
    void filesOfAnotherModelAreNotCalledDamaged(@TempDir Path folder) {
        for (int rows : new int[] {16, 32}) {
            Communicator.runLocal(
                    1,
                    c -> {
                        try (ZeroOptimizer zero =
                                ZeroOptimizer.create(
                                        c,
                                        List.of(
                                                new ShardedLayer(
                                                        "layer",
                                                        List.of(
                                                                new ShardedLayer.Tensor(
                                                                        "w", 8L * rows, 8)))),
                                        Adafactor.defaults(),
                                        ZeroOptions.stage(1))) {
                            if (rows == 16) {
                                zero.initialize((layer, tensor, values) -> {});
                                zero.save(folder);
                            } else {
                                String m = Messages.of(IOException.class, () -> zero.load(folder));
                                assertTrue(m.contains("of another model"), m);
                            }
                        }
                    });
        }
    }

    private static void ofColumns(int columns, Consumer<ZeroOptimizer> work) {
        ShardedLayer layer =
                new ShardedLayer("l", List.of(new ShardedLayer.Tensor("w", 12, columns)));
        Communicator.runLocal(
                1,
                c -> {
                    try (ZeroOptimizer zero =
                            ZeroOptimizer.create(
                                    c,
                                    List.of(layer),
                                    Adafactor.defaults(),
                                    ZeroOptions.stage(0))) {
                        work.accept(zero);
                    }
                });
    }

    /** With 3 columns there are as many means as with 4, with 6 more. */
    @Test
    void filesOfAnotherShapeAreRefused(@TempDir Path folder) {
        ofColumns(
                4,
                zero -> {
                    zero.initialize((layer, tensor, values) -> {});
                    assertDoesNotThrow(() -> zero.save(folder));
                    assertDoesNotThrow(() -> zero.load(folder));
                });
        for (int columns : new int[] {3, 6, 12}) {
            ofColumns(
                    columns,
                    zero -> {
                        String m = Messages.of(IOException.class, () -> zero.load(folder));
                        assertTrue(
                                m.contains("of another model, with tensors of another shape"), m);
                    });
        }
    }

    /** A file without columns, as they were written first. */
    @Test
    void filesOfTheFirstVersionAreRead(@TempDir Path folder) throws IOException {
        Path step = Files.createDirectory(folder.resolve("step-000000000005"));
        Files.write(
                step.resolve("0000000000000-00000-of-00001.shard"),
                Base64.getDecoder()
                        .decode(
                                "SkNDTFpFUjFZAAAAv2e+iAAAAAAAAAAAAAAAAAAAAAU/8AAAAAAAAAAAAAAAAAAA"
                                        + "AAAAAQAJYWRhZmFjdG9yAAAAAQAAAAEAAWwAAAABAAF3AAAAAAAA"
                                        + "AAwAAAAAAAAAAAAAAAAAAAAMAAAAAAAAgD8AAABAAABAQAAAgEAA"
                                        + "AKBAAADAQAAA4EAAAABBAAAQQQAAIEEAADBBAACAPwAAAEAAAEBA"
                                        + "AAAAQAAAAEAAAABAAAAAQOUpmbs="));
        ofColumns(
                4,
                zero -> {
                    assertEquals(5, assertDoesNotThrow(() -> zero.load(folder)));
                    zero.forEachParameter((l, t, v) -> assertEquals(11, v.get(11)));
                    zero.forEachMoment(0, (l, t, v) -> assertEquals(3, v.get(11)));
                });
    }

    private static void finish(ZeroOptimizer zero, int rank, int ranks, double tolerance) {
        for (int t = 5; t <= 10; t++) {
            step(zero, rank, ranks, t);
        }
        float[] found = parameters(zero);
        for (int i = 0; i < COUNT; i++) {
            assertEquals(PLAIN[i], found[i], tolerance, "parameter " + i);
        }
    }

    private static float[] floats(Buffer b) {
        float[] x = new float[(int) b.count()];
        for (int i = 0; i < x.length; i++) {
            x[i] = (float) b.get(i);
        }
        return x;
    }

    @Test
    void aStepIsUndone() {
        world(
                2,
                ZeroOptions.stage(1).withKeepPrevious(true),
                (zero, rank) -> {
                    initialize(zero);
                    for (int t = 1; t <= 4; t++) {
                        step(zero, rank, 2, t);
                    }
                    step(zero, rank, 2, 9);
                    zero.undoStep();
                    zero.refresh();
                    finish(zero, rank, 2, 2e-6);
                });
    }

    @Test
    void whatItCannotDoIsRefused() {
        Adafactor rule = Adafactor.defaults();
        String m =
                Messages.of(
                        IllegalArgumentException.class,
                        () -> OptimizerState.allocate(rule, HOST, 12));
        assertTrue(m.contains("TensorShape"), m);
        try (OptimizerState s = OptimizerState.allocate(rule, HOST, SHAPES);
                Buffer g = HOST.allocate(DataType.FLOAT32, 11)) {
            m =
                    Messages.of(
                            IllegalArgumentException.class,
                            () -> rule.step(s, 0, g, null, 1, 0.01, 1));
            assertTrue(m.contains("whole tensor"), m);
        }
        assertThrows(IllegalArgumentException.class, () -> new ShardedLayer.Tensor("w", 12, 5));
        assertThrows(UnsupportedOperationException.class, () -> rule.update(1, 0.01));
    }
}
