package io.jccl.bench;

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
import io.jccl.testkit.AllocationRounds;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** Memory and transfers create no garbage once they have run for a while. */
@Isolated("looks at all threads")
class OffloadAllocationTest {
    private static final Duration WAIT = Duration.ofSeconds(30);

    /**
     * All threads count: most of a transfer happens on others. One object of the smallest size, 16
     * bytes, in every fourth step would fail; what the JVM's own threads allocate meanwhile does
     * not.
     */
    private static void allocatesNothing(Runnable step) {
        AllocationRounds rounds = new AllocationRounds(1, 4, t -> true);
        rounds.repeat(0, 5000, step);
        rounds.assertNone();
    }

    @Test
    void takingAndGivingMemory() {
        try (BufferPool pool =
                BufferPool.pinned(Device.host(), new Budgets(Map.of()), PoolOptions.DEFAULT)) {
            allocatesNothing(() -> {
                long a = pool.take(1000);
                long b = pool.take(300_000);
                pool.give(a);
                pool.give(b);
            });
        }
    }

    @Tag("exhaustive")
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
            allocatesNothing(() -> {
                in.restart().before(engine.compute());
                engine.compute().launchHostFunction(compute);
                computed.record(engine.compute());
                out.restart().await(WAIT);
                in.await(WAIT);
            });
        }
    }
}
