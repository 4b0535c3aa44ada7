package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The schedule on the fake of libcudart. Work is a copy on the device, which reads all of it. */
@UsesFakes
@Timeout(value = 120, unit = TimeUnit.SECONDS)
class CudaScheduleTest {
    private static final int LAYERS = 7;
    private static final int COUNT = 1000;
    private static final ScheduleOptions OPTIONS =
            ScheduleOptions.DEFAULT.withTimeout(Duration.ofSeconds(30));

    private final List<AutoCloseable> open = new ArrayList<>();
    private final List<Layer> layers = new ArrayList<>();
    private final List<Buffer> parameters = new ArrayList<>();
    private final List<Buffer> gradients = new ArrayList<>();
    private final List<Buffer> checkpoints = new ArrayList<>();

    @BeforeEach
    void useTheDouble() throws Exception {
        TestFake.use();
    }

    @AfterEach
    void closeAll() throws Exception {
        TestFake.reset();
        for (AutoCloseable c : open.reversed()) {
            c.close();
        }
    }

    private <T extends AutoCloseable> T closing(T t) {
        open.add(t);
        return t;
    }

    private Tiers tiers(long budget, boolean pinned) {
        Device device = TestFake.device(0);
        Budgets budgets = new Budgets(Map.of(Tier.DEVICE, budget));
        TransferOptions small = TransferOptions.DEFAULT.withChunkBytes(1024).withDepth(3);
        TransferEngine engine = closing(TransferEngine.create(device, small));
        PoolOptions slabs = PoolOptions.DEFAULT.withSlabBytes(4096);
        Tiers tiers =
                new Tiers(
                        engine,
                        closing(BufferPool.device(device, budgets, slabs)),
                        closing(BufferPool.pinned(device, budgets, slabs)),
                        null);
        for (int i = 0; i < LAYERS; i++) {
            parameters.add(home(tiers, pinned));
            gradients.add(home(tiers, pinned));
            checkpoints.add(home(tiers, pinned));
            layers.add(
                    Layer.of("layer" + i, LayerTensor.pinned("p", parameters.get(i)))
                            .withGradients(LayerTensor.pinned("g", gradients.get(i)))
                            .withCheckpoint(LayerTensor.pinned("c", checkpoints.get(i))));
        }
        return tiers;
    }

    private Buffer home(Tiers tiers, boolean pinned) {
        return closing(
                pinned
                        ? tiers.pinned().allocate(DataType.INT32, COUNT)
                        : Device.host().allocate(DataType.INT32, COUNT));
    }

    private static void forward(int layer, LayerBuffers b, Stream stream) {
        stream.copy(b.parameters().getFirst(), b.checkpoint());
    }

    private static void backward(int layer, LayerBuffers b, Stream stream) {
        stream.copy(b.checkpoint(), b.gradients().getFirst());
    }

    private void train(LayerSchedule s, int version) {
        for (int l = 0; l < LAYERS; l++) {
            for (int i = 0; i < COUNT; i++) {
                parameters.get(l).setLong(i, version * 1_000_000L + l * 10_000L + i);
            }
        }
        s.train(CudaScheduleTest::forward, CudaScheduleTest::backward);
        for (int l = 0; l < LAYERS; l++) {
            for (int i = 0; i < COUNT; i++) {
                long expected = version * 1_000_000L + l * 10_000L + i;
                String where = "layer " + l + " element " + i;
                assertEquals(expected, checkpoints.get(l).getLong(i), where);
                assertEquals(expected, gradients.get(l).getLong(i), where);
            }
        }
    }

    @Test
    void layersPassThroughTheDeviceFromPinnedMemoryAndFromOther() {
        for (boolean pinned : new boolean[] {true, false}) {
            for (int slots = 1; slots <= 4; slots++) {
                layers.clear();
                parameters.clear();
                gradients.clear();
                checkpoints.clear();
                Tiers tiers = tiers(slots * 3L * 4096, pinned);
                try (LayerSchedule s =
                        LayerSchedule.create(layers, tiers, OPTIONS.withDepth(slots - 1))) {
                    assertEquals(slots, s.stats().slots());
                    for (int version = 1; version <= 3; version++) {
                        train(s, version);
                    }
                    assertEquals(3L * slots, s.stats().hits());
                    assertEquals(3L * (2 * LAYERS - slots), s.stats().fetches());
                }
            }
        }
    }

    @Test
    void anErrorOfTheRuntimeFailsThePassAndTheNextOneRuns() {
        Tiers tiers = tiers(2 * 3 * 4096L, true);
        try (LayerSchedule s = LayerSchedule.create(layers, tiers, OPTIONS.withDepth(1))) {
            train(s, 1);
            for (int which : new int[] {1, 5, 17, 40}) {
                TestFake.inject("cudaMemcpyAsync:" + which + ":error=1");
                Throwable e = assertThrows(JcclException.class, () -> train(s, 2));
                assertTrue(String.valueOf(e.getMessage()).contains("cudaMemcpy"), e::toString);
                TestFake.reset();
                train(s, 3 + which);
            }
        }
    }
}
