package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.DeviceOptimizer;
import io.jccl.parallel.ParameterServer;
import io.jccl.parallel.ServerOptions;
import io.jccl.parallel.Update;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A parameter server whose update is a step of an optimizer with its state on a (fake) GPU. */
@UsesFakes
@Timeout(120)
class OptimizerOnServerTest {
    private static final int COUNT = 700;
    private static final int STEPS = 5;
    private static final double RATE = 0.125;

    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    /** Of a constant gradient, each step of Adam is the rate in its direction, but for epsilon. */
    @Test
    void adamGoesTheRateInEachStep() {
        Communicator.runLocal(
                3,
                c -> {
                    Device own = Cuda.device(c.rank());
                    try (Compute compute = Compute.of(own);
                            DeviceOptimizer adam =
                                    DeviceOptimizer.allocate(
                                            new Adam(0.9, 0.999, 1e-8, 0), compute, COUNT);
                            Buffer parameters = own.allocate(DataType.FLOAT32, COUNT);
                            Buffer gradients = own.allocate(DataType.FLOAT32, COUNT)) {
                        ServerOptions options =
                                ServerOptions.synchronous(1)
                                        .withDevice(own)
                                        .withUpdate(update(adam, own.defaultStream()));
                        compute.fill(parameters, 3, own.defaultStream());
                        try (ParameterServer ps =
                                ParameterServer.create(c, parameters, gradients, options)) {
                            if (ps.isServer()) {
                                ps.serve();
                                return;
                            }
                            float[] values = new float[COUNT];
                            for (int i = 0; i < COUNT; i++) {
                                // The mean of both workers is 1 + i, or the opposite.
                                values[i] = (i % 2 == 0 ? 1 : -1) * (i + 2 * c.rank());
                            }
                            gradients.copyFrom(values);
                            for (int s = 1; s <= STEPS; s++) {
                                ps.push();
                                ps.pull();
                                parameters.copyTo(values);
                                for (int i = 0; i < COUNT; i++) {
                                    double moved = (i % 2 == 0 ? -1 : 1) * s * RATE;
                                    assertEquals(3 + moved, values[i], 1e-5, s + ": " + i);
                                }
                            }
                        }
                    }
                });
    }

    private static Update update(DeviceOptimizer state, Stream stream) {
        return (parameters, gradient, first, step) -> {
            if (step == 0) {
                stream.copy(parameters, state.parameters());
            }
            state.step(gradient, parameters, step + 1, RATE, 1, stream);
        };
    }
}
