package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.ServerOptions.Consistency;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import java.util.Arrays;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The parameter server with buffers of workers, of servers, or of both on (fake) GPUs. */
@UsesFakes
@Timeout(120)
class DeviceServerTest {
    private static final int COUNT = 1234;
    private static final int STEPS = 4;
    private static final float RATE = 0.3f;

    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    /** A device that only some ranks use: of a worker, or of a server. */
    private static Device device(boolean gpu, int rank) {
        return gpu ? TestFake.device(rank) : Device.host();
    }

    private static double gradient(int rank, int step, int i) {
        return (float) ((i % 7 - 3) * 0.1 + rank + step * 0.01);
    }

    private static float[] host(Buffer b) {
        float[] values = new float[(int) b.count()];
        for (int i = 0; i < values.length; i++) {
            values[i] = (float) b.get(i);
        }
        return values;
    }

    /** Gradient descent with the mean over the workers, added in rank order. */
    private static double step(DataType type, double parameter, int workers, int step, int i) {
        if (type == DataType.FLOAT64) {
            double sum = 0;
            for (int r = 0; r < workers; r++) {
                sum += gradient(r, step, i);
            }
            return parameter - (double) RATE * (sum / workers);
        }
        float sum = 0;
        for (int r = 0; r < workers; r++) {
            sum += (float) gradient(r, step, i);
        }
        float mean = sum / workers;
        float change = RATE * mean;
        return (float) parameter - change;
    }

    @ParameterizedTest
    @CsvSource({
        "true, false, 1, FLOAT32",
        "true, true, 2, FLOAT32",
        "false, true, 1, FLOAT64",
        "true, true, 1, FLOAT64"
    })
    void inStepIsTheSingleRankRun(
            boolean workerGpus, boolean serverGpus, int servers, DataType type) {
        int workers = 3;
        Communicator.runLocal(
                workers + servers,
                c -> {
                    boolean server = c.rank() >= workers;
                    Device own = device(server ? serverGpus : workerGpus, c.rank());
                    try (Compute compute = Compute.of(own);
                            Buffer parameters = own.allocate(type, COUNT);
                            Buffer gradients = own.allocate(type, COUNT)) {
                        ServerOptions options =
                                ServerOptions.synchronous(RATE)
                                        .withServers(servers)
                                        .withDevice(server ? own : Device.host());
                        if (own.kind() == Device.Kind.CUDA) {
                            options = options.withUpdate(Update.sgd(RATE, compute));
                        }
                        compute.fill(parameters, c.rank() == 0 ? 5 : -1, own.defaultStream());
                        try (ParameterServer ps =
                                ParameterServer.create(c, parameters, gradients, options)) {
                            if (ps.isServer()) {
                                assertEquals(own, ps.part().device());
                                ps.serve();
                                return;
                            }
                            run(ps, c.rank(), workers, type, own, parameters, gradients);
                        }
                    }
                });
    }

    private static void run(
            ParameterServer ps,
            int rank,
            int workers,
            DataType type,
            Device own,
            Buffer parameters,
            Buffer gradients) {
        double[] expected = new double[COUNT];
        Arrays.fill(expected, 5);
        for (int step = 0; step < STEPS; step++) {
            ps.pull();
            try (Buffer copy = Device.host().allocate(type, COUNT)) {
                parameters.copyTo(copy.asSegment());
                for (int i = 0; i < COUNT; i++) {
                    assertEquals(expected[i], copy.get(i), "step " + step + ", element " + i);
                    expected[i] = step(type, expected[i], workers, step, i);
                    copy.set(i, gradient(rank, step, i));
                }
                own.defaultStream().copy(copy, gradients);
                ps.push();
            }
        }
    }

    /** One worker: each gradient is an update, in the order of its steps. */
    @Test
    void boundedStalenessOnGpus() {
        Communicator.runLocal(
                2,
                c -> {
                    Device own = TestFake.device(c.rank());
                    try (Compute compute = Compute.of(own);
                            Buffer parameters = own.allocate(DataType.FLOAT32, COUNT).zero();
                            Buffer gradients = own.allocate(DataType.FLOAT32, COUNT)) {
                        ServerOptions options =
                                ServerOptions.synchronous(RATE)
                                        .withConsistency(new Consistency.BoundedStaleness(1))
                                        .withDevice(own)
                                        .withUpdate(Update.sgd(RATE, compute));
                        try (ParameterServer ps =
                                ParameterServer.create(c, parameters, gradients, options)) {
                            if (ps.isServer()) {
                                ps.serve();
                                return;
                            }
                            float expected = 0;
                            for (int step = 0; step < STEPS; step++) {
                                compute.fill(gradients, step + 1, own.defaultStream());
                                ps.push();
                                ps.pull();
                                expected -= RATE * (step + 1);
                                for (float p : host(parameters)) {
                                    assertEquals(expected, p);
                                }
                            }
                        }
                    }
                });
    }

    @Test
    void aWorkersStepAllocatesNothing() {
        AllocationRounds rounds = new AllocationRounds(1);
        Communicator.runLocal(
                2,
                c -> {
                    Device own = TestFake.device(c.rank());
                    try (Compute compute = Compute.of(own);
                            Buffer parameters = own.allocate(DataType.FLOAT32, 100).zero();
                            Buffer gradients = own.allocate(DataType.FLOAT32, 100).zero()) {
                        ServerOptions options =
                                ServerOptions.synchronous(RATE)
                                        .withDevice(own)
                                        .withUpdate(Update.sgd(RATE, compute));
                        try (ParameterServer ps =
                                ParameterServer.create(c, parameters, gradients, options)) {
                            if (ps.isServer()) {
                                ps.serve();
                                return;
                            }
                            rounds.repeat(
                                    0,
                                    5,
                                    () -> {
                                        ps.push();
                                        ps.pull();
                                    });
                            rounds.assertNone();
                        }
                    }
                });
    }

    @Test
    void aCommunicatorOfNcclIsRefused() {
        Communicator.runLocal(
                TestFake.ranks(2),
                CommunicatorOptions.DEFAULT,
                c -> {
                    try (Buffer b = c.device().allocate(DataType.FLOAT32, 4)) {
                        String message =
                                String.valueOf(
                                        assertThrows(
                                                        IllegalArgumentException.class,
                                                        () ->
                                                                ParameterServer.create(
                                                                        c,
                                                                        b,
                                                                        b,
                                                                        ServerOptions.synchronous(
                                                                                1)))
                                                .getMessage());
                        assertTrue(message.contains("use a communicator of the host"), message);
                    }
                });
    }
}
