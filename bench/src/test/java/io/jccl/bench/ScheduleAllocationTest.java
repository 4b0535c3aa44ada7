package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.Layer;
import io.jccl.offload.LayerSchedule;
import io.jccl.offload.LayerTensor;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.ScheduleOptions;
import io.jccl.offload.Tiers;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** A schedule creates next to no garbage once each layer has been in each slot. */
@Isolated("looks at all threads")
class ScheduleAllocationTest {
    private static final int LAYERS = 5;
    private static final int WARM_UP = 4_000;
    private static final int PASSES = 1_000;
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    @Tag("exhaustive")
    @Test
    void trainingPasses() {
        Device host = Device.host();
        Budgets budgets = new Budgets(Map.of());
        try (TransferEngine engine = TransferEngine.create(host, TransferOptions.DEFAULT);
                BufferPool device = BufferPool.device(host, budgets, PoolOptions.DEFAULT);
                BufferPool pinned = BufferPool.pinned(host, budgets, PoolOptions.DEFAULT)) {
            List<Layer> layers = new ArrayList<>();
            for (int i = 0; i < LAYERS; i++) {
                layers.add(
                        Layer.of("l" + i, tensor(pinned, "p"))
                                .withGradients(tensor(pinned, "g"))
                                .withCheckpoint(tensor(pinned, "c")));
            }
            try (LayerSchedule s =
                    LayerSchedule.create(
                            layers,
                            new Tiers(engine, device, pinned, null),
                            ScheduleOptions.DEFAULT.withDepth(1))) {
                Runnable nothing = () -> {};
                LayerSchedule.Work work = (i, b, stream) -> stream.launchHostFunction(nothing);
                run(s, work, WARM_UP);
                // Up to five times: the JIT may still be at it in the first.
                double each = Double.POSITIVE_INFINITY;
                for (int i = 0; i < 5 && each >= 8; i++) {
                    long before = THREADS.getTotalThreadAllocatedBytes();
                    run(s, work, PASSES);
                    long bytes = THREADS.getTotalThreadAllocatedBytes() - before;
                    each = Math.min(each, bytes / (2.0 * LAYERS * PASSES));
                }
                // The smallest object, 16 bytes, in every other step would fail.
                assertTrue(each < 8, "a step allocates " + each + " bytes");
            }
        }
    }

    private static LayerTensor tensor(BufferPool pinned, String name) {
        return LayerTensor.pinned(name, pinned.allocate(DataType.FLOAT32, 64));
    }

    private static void run(LayerSchedule s, LayerSchedule.Work work, int passes) {
        for (int i = 0; i < passes; i++) {
            s.train(work, work);
        }
    }
}
