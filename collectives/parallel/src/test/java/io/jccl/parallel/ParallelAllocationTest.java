package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.parallel.ServerOptions.Consistency;
import io.jccl.testkit.AllocatedBytes;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** No step allocates on the Java heap, on any thread, once it has run for a while. */
@Isolated("looks at all threads")
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class ParallelAllocationTest {
    private static final int STEPS = 100;
    private static final int ROUNDS = 800;

    /** One object of 16 bytes in a step, on one of the threads, would fail. */
    private static final double MOST = 12;

    private static final ReducerOptions OPTIONS = ReducerOptions.DEFAULT.withBuckets(4000, 9000);

    private static List<ReducerOptions> forms() {
        return List.of(
                OPTIONS.withFindUnused(true), OPTIONS.withCompression(new Compression.TopK(0.01)));
    }

    private static List<ReducerOptions> moreForms() {
        return List.of(
                OPTIONS,
                OPTIONS.withCompression(new Compression.PowerSgd(2)),
                OPTIONS.withAdasum(true),
                OPTIONS.withTuning(new BucketTuning(List.of(4000L, 9000L), 2)),
                OPTIONS.withCompression(new Compression.Cast(DataType.BFLOAT16)));
    }

    private static boolean worksForSteps(Thread thread) {
        return thread.getName().startsWith("jccl-stream-")
                || thread.getName().startsWith("jccl-server-");
    }

    /** Until it allocates nothing, for on a busy machine compilation takes its time. */
    private static void measure(Communicator pause, String what, Runnable step) {
        double bytes = Double.MAX_VALUE;
        for (int round = 0; round < ROUNDS && bytes >= MOST; round++) {
            // Threads of both ranks are looked at, while both do nothing else.
            ConsistencyCheck.gather(pause, 1);
            AllocatedBytes own = AllocatedBytes.own();
            AllocatedBytes all = AllocatedBytes.from(ParallelAllocationTest::worksForSteps);
            for (int i = 0; i < STEPS; i++) {
                step.run();
            }
            long before = own.since();
            ConsistencyCheck.gather(pause, 1);
            long pausing = own.since() - before;
            double mine = (all.since() - pausing) / (double) STEPS;
            bytes = 0;
            for (long of : ConsistencyCheck.gather(pause, Double.doubleToRawLongBits(mine))) {
                bytes = Math.max(bytes, Double.longBitsToDouble(of));
            }
        }
        assertTrue(bytes < MOST, what + " allocates " + bytes + " bytes a step");
    }

    @ParameterizedTest
    @MethodSource("forms")
    void reducerAllocatesNothing(ReducerOptions options) {
        List<Parameter> parameters = new ArrayList<>();
        for (int p = 0; p < 6; p++) {
            parameters.add(new Parameter("w" + p, 30, 40, DataType.FLOAT32));
        }
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options);
                            Stream compute = c.device().newStream()) {
                        Runnable backward = () -> r.gradient(3).set(7, 1);
                        measure(
                                c,
                                options.toString(),
                                () -> {
                                    r.begin(false);
                                    r.ready(0, compute);
                                    r.finish();
                                    r.begin(true);
                                    for (int p = 5; p >= 0; p--) {
                                        compute.launchHostFunction(backward);
                                        r.ready(p, compute);
                                    }
                                    r.finish();
                                });
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("moreForms")
    void reducerOfMoreFormsAllocatesNothing(ReducerOptions options) {
        reducerAllocatesNothing(options);
    }

    private static List<Consistency> consistencies() {
        return List.of(new Consistency.Synchronous(), new Consistency.BoundedStaleness(1));
    }

    @ParameterizedTest
    @MethodSource("consistencies")
    void serverAllocatesNothing(Consistency consistency) {
        ServerOptions options = ServerOptions.synchronous(0.1f).withConsistency(consistency);
        Communicator.runLocal(
                3,
                c -> {
                    Communicator workers = c.split(c.rank() / 2, 0);
                    try (Buffer parameters = c.device().allocate(DataType.FLOAT32, 1000);
                            Buffer gradients = c.device().allocate(DataType.FLOAT32, 1000);
                            ParameterServer server =
                                    ParameterServer.create(c, parameters, gradients, options)) {
                        if (server.isServer()) {
                            server.serve();
                        } else if (workers != null) {
                            measure(
                                    workers,
                                    consistency.toString(),
                                    () -> {
                                        server.push();
                                        server.pull();
                                    });
                        }
                    } finally {
                        if (workers != null) {
                            workers.close();
                        }
                    }
                });
    }
}
