package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.Transfer;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** Memory and transfers create no garbage once they have run for a while. */
@Isolated("looks at all threads")
class OffloadAllocationTest {
    private static final int WARM_UP = 5_000;
    private static final int MEASURED = 5_000;
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    /** All threads count: most of a transfer happens on others. */
    private static void allocatesNothing(String what, Runnable body) {
        repeat(body, WARM_UP);
        // Up to five times: the JIT may still be at it in the first.
        double each = Double.POSITIVE_INFINITY;
        for (int i = 0; i < 5 && each >= 4; i++) {
            long before = THREADS.getTotalThreadAllocatedBytes();
            repeat(body, MEASURED);
            long bytes = THREADS.getTotalThreadAllocatedBytes() - before;
            each = Math.min(each, bytes / (double) MEASURED);
        }
        // One object of the smallest size, 16 bytes, in every fourth round would fail; what the
        // JVM's own threads allocate meanwhile does not.
        assertTrue(each < 4, what + " allocates " + each + " bytes");
    }

    private static void repeat(Runnable body, int times) {
        for (int i = 0; i < times; i++) {
            body.run();
        }
    }

    @Test
    void takingAndGivingMemory() {
        try (BufferPool pool =
                BufferPool.pinned(Device.host(), new Budgets(Map.of()), PoolOptions.DEFAULT)) {
            allocatesNothing(
                    "take and give",
                    () -> {
                        long a = pool.take(1000);
                        long b = pool.take(300_000);
                        pool.give(a);
                        pool.give(b);
                    });
        }
    }

    @Test
    void transfersThatAreStartedAgain() {
        try (TransferEngine engine =
                        TransferEngine.create(
                                Device.host(), TransferOptions.DEFAULT.withChunkBytes(256));
                Buffer host = Device.host().allocate(DataType.FLOAT32, 200);
                Buffer device = Device.host().allocate(DataType.FLOAT32, 200);
                Event computed = Device.host().newEvent()) {
            computed.record(engine.compute());
            Transfer in = engine.toDevice(host, device, 0);
            Transfer out = engine.toHost(device, host, 0, computed);
            in.await(WAIT);
            out.await(WAIT);
            Runnable compute = () -> {};
            allocatesNothing(
                    "a step of two transfers",
                    () -> {
                        in.restart().before(engine.compute());
                        engine.compute().launchHostFunction(compute);
                        computed.record(engine.compute());
                        out.restart().await(WAIT);
                        in.await(WAIT);
                    });
        }
    }
}
