package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.optim.Adam8bit;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.ParameterGroup;
import io.jccl.offload.optim.TensorShape;
import java.util.List;
import org.junit.jupiter.api.Test;

class WeightsTest {
    /** State in blocks of 256, and weights that end within one. */
    @Test
    void weightsOfAnyCountHaveBlocksOfTheirOwn() {
        Optimizer o = Adam8bit.defaults();
        List<Long> counts = List.of(300L, 100L);
        long[] places = Weights.places(o, counts);
        List<TensorShape> shapes = counts.stream().map(TensorShape::vector).toList();
        try (Weights weights = Weights.allocate(o, Device.host(), places, shapes);
                Buffer gradients = Device.host().allocate(DataType.FLOAT32, 400)) {
            for (int i = 0; i < 2; i++) {
                Buffer squares = weights.values(2, places[i], counts.get(i));
                for (long k = 0; k < counts.get(i); k++) {
                    squares.set(k, i + 1);
                }
                weights.set(2, places[i], squares);
            }
            for (int i = 0; i < 2; i++) {
                Buffer squares = weights.values(2, places[i], counts.get(i));
                for (long k = 0; k < counts.get(i); k++) {
                    assertEquals(i + 1, squares.get(k));
                }
            }
            for (int k = 0; k < 400; k++) {
                gradients.set(k, 1);
            }
            ParameterGroup group = ParameterGroup.of(o);
            double norm =
                    weights.step(
                            List.of(gradients.slice(0, 300), gradients.slice(300, 100)),
                            new ParameterGroup[] {group, group},
                            1,
                            0.01,
                            1);
            assertEquals(20, norm, 1e-6);
            for (int i = 0; i < 2; i++) {
                Buffer values = weights.values(0, places[i], counts.get(i));
                for (long k = 0; k < counts.get(i); k++) {
                    assertTrue(values.get(k) < 0);
                }
            }
        }
    }
}
