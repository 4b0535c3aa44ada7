package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Device;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A layer by itself. */
@Timeout(value = 60, unit = TimeUnit.SECONDS)
class TransformerLayerTest {
    @ParameterizedTest
    @CsvSource({"16, 2, 8, 3, 1", "48, 3, 5, 2, 2", "64, 1, 128, 4, 1"})
    void theGradientIsADifferenceOfOutputs(
            int hidden, int heads, int context, int sequences, int threads) {
        try (TransformerLayer layer =
                new TransformerLayer(Device.host(), hidden, heads, context, sequences, threads)) {
            double error = layer.gradientError();
            assertTrue(error < 0.02, () -> "" + error);
            // The input is as it was.
            assertEquals(error, layer.gradientError(), 1e-6);
        }
    }

    @Test
    void operationsAreCounted() {
        try (TransformerLayer layer = new TransformerLayer(Device.host(), 32, 2, 10, 3, 1)) {
            assertEquals(2.0 * 30 * 12 * 32 * 32 + 2.0 * 30 * 10 * 32, layer.flops());
        }
    }
}
