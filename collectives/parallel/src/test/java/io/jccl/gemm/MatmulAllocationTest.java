package io.jccl.gemm;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testkit.AllocationRounds;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.parallel.Isolated;

/** No product on the host allocates on the Java heap, on any thread. */
@Isolated("looks at all threads")
class MatmulAllocationTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final Device host = Device.host();

    @Test
    void allocatesNothingPerProduct() {
        try (Matmul matmul = Matmul.of(host, 2);
                Stream stream = host.newStream();
                Buffer a = host.allocate(DataType.BFLOAT16, 130 * 140);
                Buffer b = host.allocate(DataType.FLOAT32, 140 * 150);
                Buffer c = host.allocate(DataType.FLOAT32, 130 * 150)) {
            Matrix x = Matrix.of(a, 130, 140);
            Matrix y = Matrix.of(b, 140, 150);
            Matrix z = Matrix.of(c, 130, 150);
            for (Stream on : List.of(stream, host.defaultStream())) {
                // A step is 50 products and the wait for the threads that compute them.
                AllocationRounds rounds =
                        new AllocationRounds(1, 50, t -> t.getName().startsWith("jccl-"));
                rounds.repeat(
                        0,
                        1,
                        () -> {
                            for (int i = 0; i < 50; i++) {
                                matmul.multiply(x, y, z, 1, on);
                            }
                            on.synchronize(LIMIT);
                        });
                rounds.assertNone("products on " + on);
            }
        }
    }
}
