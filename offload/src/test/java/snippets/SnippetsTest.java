package snippets;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.Tier;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Examples of the Javadoc do what their comments say. */
class SnippetsTest {
    private static final Map<Tier, Long> CAPS =
            Map.of(Tier.DEVICE, 1L << 20, Tier.PINNED, 16L << 20, Tier.NVME, 16L << 20);

    @Test
    void schedule() {
        List<Buffer> weights = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            weights.add(Device.host().allocate(DataType.FLOAT32, 100_000));
            weights.get(i).set(0, i + 1);
        }
        assertEquals(15, Offload.sums(Device.host(), weights));
        weights.forEach(Buffer::close);
    }

    @Test
    void optimizer() {
        try (Buffer gradients = Device.host().allocate(DataType.FLOAT32, 2)) {
            gradients.set(0, 65536.0 / 4);
            // Whatever its size, the first step of Adam is that of the learning rate.
            assertEquals(-0.01, Offload.step(gradients), 1e-6);
            gradients.set(1, Float.POSITIVE_INFINITY);
            assertEquals(Double.NaN, Offload.step(gradients));
        }
    }

    @Test
    void transfer() {
        try (Buffer source = Device.host().allocate(DataType.FLOAT32, 1000);
                Buffer target = Device.host().allocate(DataType.FLOAT32, 1000)) {
            source.set(999, 3);
            Offload.copy(Device.host(), source, target);
            assertEquals(3, target.get(999));
        }
    }

    @Test
    void zero() {
        double[] first = new double[2];
        double[] last = new double[2];
        Communicator.runLocal(
                2,
                comm -> {
                    first[comm.rank()] = Offload.train(comm, 1);
                    last[comm.rank()] = Offload.train(comm, 60);
                });
        assertEquals(1500, first[0], 1e-6);
        assertEquals(last[0], last[1]);
        assertTrue(last[0] < 15, "the loss is " + last[0]);
    }

    @Test
    void memory(@TempDir Path folder) {
        try (NvmeStore drive = NvmeStore.open(folder, new Budgets(CAPS), NvmeOptions.DEFAULT)) {
            assertTrue(Offload.taken(Device.host(), drive) >= 4000);
        }
    }

    @Test
    void plan() {
        assertFalse(Offload.fits());
    }

    @Test
    void time() {
        assertTrue(Offload.predictedSeconds() > 0);
    }

    @Test
    void weights(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("a.safetensors");
        try (Buffer values = Device.host().allocate(DataType.FLOAT32, 2)) {
            values.set(0, 1.5 + 1e-6);
            Offload.save(file, values);
        }
        assertEquals(1.5, Offload.firstElement(file, "w"));
    }

    @Test
    void onDevice() {
        try (Compute compute = Compute.of(Device.host());
                Buffer gradients = Device.host().allocate(DataType.FLOAT32, 2)) {
            gradients.set(0, 1024);
            assertTrue(Offload.step(compute, gradients));
            gradients.set(1, Float.NaN);
            assertFalse(Offload.step(compute, gradients));
        }
    }

    @Test
    void nvme(@TempDir Path folder) throws IOException {
        Budgets budgets = new Budgets(CAPS);
        try (BufferPool pool = BufferPool.pinned(Device.host(), budgets, PoolOptions.DEFAULT);
                Buffer pinned = pool.allocate(DataType.FLOAT32, 1000)) {
            pinned.set(0, 9);
            assertEquals(9, Offload.store(folder, budgets, pinned));
        }
    }
}
