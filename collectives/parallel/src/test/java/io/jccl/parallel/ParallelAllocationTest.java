package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.parallel.ServerOptions.Consistency;
import io.jccl.testkit.AllocationRounds;
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

    private static boolean works(Thread thread) {
        return thread.getName().startsWith("jccl-stream-")
                || thread.getName().startsWith("jccl-server-");
    }

    @ParameterizedTest
    @MethodSource("forms")
    void reducerAllocatesNothing(ReducerOptions options) {
        List<Parameter> parameters = new ArrayList<>();
        for (int p = 0; p < 6; p++) {
            parameters.add(new Parameter("w" + p, 30, 40, DataType.FLOAT32));
        }
        AllocationRounds rounds = new AllocationRounds(2, MOST, ParallelAllocationTest::works);
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options);
                            Stream compute = c.device().newStream()) {
                        Runnable backward = () -> r.gradient(3).set(7, 1);
                        rounds.repeat(
                                c.rank(),
                                STEPS,
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
        rounds.assertNone(options.toString());
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
        AllocationRounds rounds = new AllocationRounds(2, MOST, ParallelAllocationTest::works);
        Communicator.runLocal(
                3,
                c -> {
                    try (Buffer parameters = c.device().allocate(DataType.FLOAT32, 1000);
                            Buffer gradients = c.device().allocate(DataType.FLOAT32, 1000);
                            ParameterServer server =
                                    ParameterServer.create(c, parameters, gradients, options)) {
                        if (server.isServer()) {
                            server.serve();
                        } else {
                            rounds.repeat(
                                    c.rank(),
                                    STEPS,
                                    () -> {
                                        server.push();
                                        server.pull();
                                    });
                        }
                    }
                });
        rounds.assertNone(consistency.toString());
    }
}
