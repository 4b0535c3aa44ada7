package io.jccl.offload.optim;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.compute.Compute;
import io.jccl.compute.ReusableUpdate;
import io.jccl.compute.Update;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** State on a GPU (a fake one) takes the values that it takes on the CPU. */
@UsesFakes
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class DeviceOptimizerTest {
    private static final int N = 3001;
    private static final double NO_CLIP = Double.POSITIVE_INFINITY;

    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    static List<Optimizer> optimizers() {
        return List.of(
                new Adam(0.9, 0.999, 1e-8, 0.01),
                AdamW.defaults(),
                new Sgd(0, 0, 0.01, false),
                new Sgd(0.9, 0.1, 0, false),
                new Sgd(0.9, 0, 0.01, true),
                new Lion(0.9, 0.99, 0.01));
    }

    private static void assertSame(Buffer expected, Buffer onDevice, String what) {
        try (Buffer copy = Device.host().allocate(expected.dataType(), expected.count())) {
            onDevice.copyTo(copy.asSegment());
            assertEquals(-1, expected.asSegment().mismatch(copy.asSegment()), what);
        }
    }

    static List<Optimizer> someOptimizers() {
        return List.of(optimizers().getFirst(), optimizers().getLast());
    }

    static List<Optimizer> moreOptimizers() {
        return optimizers().stream().filter(o -> !someOptimizers().contains(o)).toList();
    }

    /** A quadratic loss: the gradient is the parameter itself, through a narrow type. */
    @ParameterizedTest
    @MethodSource("someOptimizers")
    void stepsEqualThoseOfTheHost(Optimizer o) {
        Random random = new Random(7);
        Device gpu = TestFake.device(1);
        try (Compute compute = Compute.of(gpu);
                Stream stream = gpu.newStream();
                DeviceOptimizer there = DeviceOptimizer.allocate(o, compute, N);
                OptimizerState here = OptimizerState.allocate(o, Device.host(), N);
                Workers workers = Workers.of(2);
                Buffer narrow = Device.host().allocate(DataType.BFLOAT16, N);
                Buffer narrowThere = gpu.allocate(DataType.BFLOAT16, N);
                Buffer gradients = Device.host().allocate(DataType.BFLOAT16, N);
                Buffer gradientsThere = gpu.allocate(DataType.BFLOAT16, N)) {
            for (int i = 0; i < N; i++) {
                here.parameters().set(i, (float) random.nextGaussian());
                narrow.set(i, here.parameters().get(i));
            }
            there.parameters().copyFrom(here.parameters().asSegment());
            CheckedStep host = new CheckedStep(o, here, workers);
            int taken = 0;
            for (int t = 0; t < 6; t++) {
                double scale = 1024;
                for (int i = 0; i < N; i++) {
                    gradients.set(i, narrow.get(i) * scale);
                }
                if (t == 3) {
                    gradients.set(N - 1, Double.NaN);
                }
                gradientsThere.copyFrom(gradients.asSegment());
                boolean ran = host.run(gradients, narrow, taken + 1, 0.01, scale, NO_CLIP);
                assertEquals(t != 3, ran);
                there.checkedStep(
                        gradientsThere, narrowThere, taken + 1, 0.01, scale, NO_CLIP, stream);
                stream.synchronize();
                assertEquals(!ran, there.wasSkipped());
                taken += ran ? 1 : 0;
                String what = o + ", step " + t;
                assertSame(here.parameters(), there.parameters(), what);
                for (int m = 0; m < o.moments(); m++) {
                    assertSame(here.moment(m), there.moment(m), what + " moment " + m);
                }
                assertSame(narrow, narrowThere, what + " target");
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("moreOptimizers")
    void stepsOfOtherOptimizersEqualThoseOfTheHost(Optimizer o) {
        stepsEqualThoseOfTheHost(o);
    }

    @ParameterizedTest
    @MethodSource("optimizers")
    void oneFormulaTakesTheValuesOfEveryStep(Optimizer o) {
        ReusableUpdate formula = new ReusableUpdate();
        for (int step = 1; step <= 3; step++) {
            o.update(step, 0.1 / step, formula);
            assertEquals(o.update(step, 0.1 / step), formula.copy());
        }
    }

    /** A rule of one's own that has one of the formulas. */
    @Test
    void aRuleWithItsOwnFormulaFillsIt() {
        Update own = new Update(Update.Rule.SGD, 0, 0, 0, 0, 0, 0.5f, 0, 0);
        Optimizer rule =
                new Optimizer() {
                    @Override
                    public String label() {
                        return "own";
                    }

                    @Override
                    public List<StateTensor> state() {
                        return List.of();
                    }

                    @Override
                    public Update update(long step, double learningRate) {
                        return own;
                    }
                };
        ReusableUpdate formula = new ReusableUpdate();
        rule.update(1, 0.1, formula);
        assertEquals(own, formula.copy());
        assertEquals(own.toString(), formula.toString());
    }

    /** Norms differ in the order of a sum, so by a bit or two of the factor. */
    @ParameterizedTest
    @MethodSource("optimizers")
    void clippingIsThatOfTheHost(Optimizer o) {
        Random random = new Random(8);
        Device gpu = TestFake.device(0);
        try (Compute compute = Compute.of(gpu);
                Stream stream = gpu.newStream();
                DeviceOptimizer there = DeviceOptimizer.allocate(o, compute, N);
                OptimizerState here = OptimizerState.allocate(o, Device.host(), N);
                Workers workers = Workers.of(1);
                Buffer gradients = Device.host().allocate(DataType.FLOAT32, N);
                Buffer gradientsThere = gpu.allocate(DataType.FLOAT32, N)) {
            for (int i = 0; i < N; i++) {
                gradients.set(i, random.nextGaussian());
            }
            gradientsThere.copyFrom(gradients.asSegment());
            assertTrue(new CheckedStep(o, here, workers).run(gradients, null, 1, 0.1, 1, 0.5));
            there.checkedStep(gradientsThere, null, 1, 0.1, 1, 0.5, stream);
            stream.synchronize();
            for (int i = 0; i < N; i += 97) {
                double p = here.parameters().get(i);
                assertEquals(p, there.parameters().get(i), Math.abs(p) * 1e-5, o + " at " + i);
            }
            String message =
                    String.valueOf(
                            assertThrows(
                                            IllegalArgumentException.class,
                                            () ->
                                                    there.step(
                                                            gradientsThere,
                                                            null,
                                                            0,
                                                            0.1,
                                                            1,
                                                            stream))
                                    .getMessage());
            assertTrue(message.contains("step is 0"), message);
        }
    }
}
