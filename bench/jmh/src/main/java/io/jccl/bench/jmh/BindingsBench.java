package io.jccl.bench.jmh;

import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * The cost of a call of NCCL, measured with the nearly empty {@code ncclGetVersion}: through our
 * table, through jextract's method, and through JNI. {@code bench/peers/bindings} builds the JNI
 * twin and runs this.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(value = 3, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
public class BindingsBench {
    private static final NcclApi NCCL = NativeLibraries.nccl();
    // In the global arena: a shared arena would be acquired and released by every call.
    private static final MemorySegment VERSION = Arena.global().allocate(ValueLayout.JAVA_INT);

    /** Makes NCCL's symbols visible to jextract's methods, and to the twin. */
    @Setup
    @SuppressWarnings("restricted") // the only calls outside the bindings: of what we compare with
    public void load() {
        String path = NCCL.library().path();
        System.load(path);
        JniTwin.load(path);
    }

    /**
     * Through the call table.
     *
     * @return ncclSuccess
     */
    @Benchmark
    public int table() {
        return NCCL.ncclGetVersion(VERSION);
    }

    /**
     * Through the method that jextract wrote.
     *
     * @return ncclSuccess
     */
    @Benchmark
    public int generated() {
        return nccl_h.ncclGetVersion(VERSION);
    }

    /**
     * Through JNI, written by hand.
     *
     * @return ncclSuccess
     */
    @Benchmark
    public int jni() {
        return JniTwin.ncclGetVersion(VERSION.address());
    }

    /** Checks that the calls were real. */
    @TearDown
    public void check() {
        int written = VERSION.get(ValueLayout.JAVA_INT, 0);
        if (written != NCCL.library().version().ncclCode()) {
            throw new AssertionError("ncclGetVersion wrote " + written);
        }
    }
}
