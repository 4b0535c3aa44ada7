package io.jccl.bench;

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
import io.jccl.testkit.AllocationRounds;
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
                // An object of 16 bytes in every other of a pass's steps, two for each layer, would
                // fail.
                AllocationRounds rounds = new AllocationRounds(1, 8 * 2 * LAYERS, t -> true);
                rounds.repeat(0, 1000, () -> s.train(work, work));
                rounds.assertNone();
            }
        }
    }

    private static LayerTensor tensor(BufferPool pinned, String name) {
        return LayerTensor.pinned(name, pinned.allocate(DataType.FLOAT32, 64));
    }
}
