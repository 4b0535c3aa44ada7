package io.jccl.offload.optim;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.kernel.Chunks;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class WorkersTest {
    private static final Device HOST = Device.host();

    /** Plain SGD with gradient -1 and rate 1 counts how often each element was stepped. */
    @Tag("exhaustive")
    @Test
    @Timeout(60)
    void everyElementOnceFromManyCallers() throws InterruptedException, ExecutionException {
        Sgd count = new Sgd(0, 0, 0, false);
        int n = 4 * Chunks.CHUNK + 1;
        try (Workers w = Workers.of(3);
                OptimizerState s = OptimizerState.allocate(count, HOST, n);
                Buffer g = HOST.allocate(DataType.FLOAT32, n);
                ExecutorService callers = Executors.newFixedThreadPool(4)) {
            for (int i = 0; i < n; i++) {
                g.set(i, -1);
            }
            List<Future<?>> all = new ArrayList<>();
            for (int c = 0; c < 4; c++) {
                all.add(
                        callers.submit(() -> {
                            for (int i = 0; i < 25; i++) {
                                count.step(w, s, 0, g, null, 1, 1, 1);
                            }
                        }));
            }
            for (Future<?> f : all) {
                f.get();
            }
            for (int i = 0; i < n; i++) {
                assertEquals(100, s.parameters().get(i), "element " + i);
            }
        }
    }

    @Test
    @Timeout(60)
    void anInterruptIsKeptForTheCaller() {
        Sgd sgd = new Sgd(0, 0, 0, false);
        int n = 8 * Chunks.CHUNK;
        try (Workers w = Workers.of(4);
                OptimizerState s = OptimizerState.allocate(sgd, HOST, n);
                Buffer g = HOST.allocate(DataType.FLOAT32, n).zero()) {
            Thread.currentThread().interrupt();
            for (int i = 0; i < 20; i++) {
                sgd.step(w, s, 0, g, null, 1, 1, 1);
            }
            assertTrue(Thread.interrupted());
        }
    }
}
