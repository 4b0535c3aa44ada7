package io.jccl.bench.jmh;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.PoolOptions;
import java.util.Map;
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

/** Allocating from a pool and freeing, while a thousand other blocks stay allocated. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(value = 3, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
@SuppressWarnings("NullAway.Init") // set by start()
public class PoolBench {
    private static final int SIZES = 64;
    private static final int RESIDENTS = 1000;

    private BufferPool pool;
    private final long[] sizes = new long[SIZES];
    private int next;

    /** Creates a pool with holes of many sizes. */
    @Setup
    public void start() {
        pool = BufferPool.pinned(Device.host(), new Budgets(Map.of()), PoolOptions.DEFAULT);
        for (int i = 0; i < SIZES; i++) {
            sizes[i] = 100L + 977L * i;
        }
        long[] handles = new long[2 * RESIDENTS];
        for (int i = 0; i < handles.length; i++) {
            handles[i] = pool.take(sizes[i % SIZES]);
        }
        for (int i = 0; i < handles.length; i += 2) {
            pool.give(handles[i]);
        }
    }

    private long size() {
        return sizes[next++ & (SIZES - 1)];
    }

    /**
     * By handle, which creates no objects.
     *
     * @return the handle
     */
    @Benchmark
    public long takeAndGive() {
        long handle = pool.take(size());
        pool.give(handle);
        return handle;
    }

    /**
     * As a buffer.
     *
     * @return its address
     */
    @Benchmark
    public long allocateAndClose() {
        try (Buffer b = pool.allocate(DataType.UINT8, size())) {
            return b.address();
        }
    }

    /** Closes the pool. */
    @TearDown
    public void stop() {
        pool.close();
    }
}
