package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertFalse;

import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Attention on a device without the tensor cores that it uses. */
@UsesFakes
class OldDeviceAttentionTest extends AttentionTests {
    /** Slices that tensor cores cannot load and older devices: float32, with its own roundings. */
    @Test
    void whereTensorCoresAreNotUsed() {
        AttentionShape s = new AttentionShape(1, 33, 2, 1, 64);
        double[] x = as(DataType.BFLOAT16, tame(random, (int) (s.rows() * s.rowWidth())));
        List<double[]> results = new ArrayList<>();
        on(
                Where.CUDA,
                r -> {
                    for (int e : new int[] {ALIGNED, EDGE}) {
                        edge = e;
                        results.add(compare(r, DataType.BFLOAT16, DataType.BFLOAT16, s, x));
                    }
                });
        TestFake.capability(75);
        edge = ALIGNED;
        Device old = Cuda.view(2);
        try (Compute c = Compute.of(old);
                Stream stream = old.newStream()) {
            DataType products = DataType.FLOAT32;
            results.add(compare(new Run(c, stream), DataType.BFLOAT16, products, s, x));
        }
        assertSame(results.get(1), results.get(2), "misaligned, and compute capability 7.5");
        assertFalse(Arrays.equals(results.get(0), results.get(1)), "tensor cores round more");
    }
}
