package io.jccl.bench.jmh;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.CheckedStep;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.Workers;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** Time of a step of Adam on the CPU by size, types and threads. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 3, time = 2)
@Measurement(iterations = 5, time = 1)
@Fork(
        value = 1,
        jvmArgsAppend = {
            "--add-modules=jdk.incubator.vector",
            "--enable-native-access=ALL-UNNAMED"
        })
public class AdamBench {
    /** Parameters: one size that fits the second-level cache, and one that fits no cache. */
    @Param({"32768", "33554432"})
    public int count;

    /** Type of the gradients. */
    @Param({"FLOAT32", "BFLOAT16", "FLOAT16"})
    public DataType gradients = DataType.FLOAT32;

    /** Whether the parameters are written back as bfloat16 too. */
    @Param({"false", "true"})
    public boolean narrow;

    /** Threads, including the calling one. */
    @Param({"1", "2"})
    public int threads;

    private final Adam adam = Adam.defaults();

    @SuppressWarnings("NullAway.Init") // set by start()
    private Workers workers;

    @SuppressWarnings("NullAway.Init") // set by start()
    private OptimizerState state;

    @SuppressWarnings("NullAway.Init") // set by start()
    private Buffer gradient;

    @SuppressWarnings("NullAway.Init") // set by start()
    private CheckedStep checkedStep;

    private @Nullable Buffer target;
    private long step;

    /** Allocates the state. */
    @Setup
    public void start() {
        Device host = Device.host();
        workers = Workers.of(threads);
        state = OptimizerState.allocate(adam, host, count);
        checkedStep = new CheckedStep(adam, state, workers);
        gradient = host.allocate(gradients, count);
        target = narrow ? host.allocate(DataType.BFLOAT16, count).zero() : null;
        for (int i = 0; i < count; i++) {
            state.parameters().set(i, i % 1000 * 1e-3);
            gradient.set(i, (i % 999 - 499) * 1e-3);
        }
    }

    /** A step. */
    @Benchmark
    public void step() {
        adam.step(workers, state, 0, gradient, target, ++step, 1e-3, 1);
    }

    /**
     * A step after the norm of all gradients, unscaled and clipped.
     *
     * @return whether it was taken
     */
    @Benchmark
    public boolean checked() {
        return checkedStep.run(gradient, target, ++step, 1e-3, 8, 1);
    }

    /** Frees the state. */
    @TearDown
    public void end() {
        workers.close();
        state.close();
        gradient.close();
        if (target != null) {
            target.close();
        }
    }
}
