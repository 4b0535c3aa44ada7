package io.jccl.topology.cost;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Machines;
import io.jccl.topology.Operation;
import java.util.Arrays;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/**
 * The curve that launch and ring.fill were fitted to: 8x A100-SXM4-40GB, out of place, from
 * microsoft/superbenchmark, tests/data/nccl_allreduce.log. It shows how good the fit is, and is no
 * check of other machines.
 */
class MiddleSizesTest {
    /** Microseconds from 128 KiB on, each for twice the size of the one before. */
    private static final double[] MEASURED = {
        41.19, 47.53, 60.32, 74.78, 93.48, 112.0, 162.0, 226.0, 374.3, 584.5, 1162.2, 2112.2,
        4200.3, 8159.5, 16215, 32070, 63896
    };

    private static final Tuning A100 =
            CostModel.nccl()
                    .tune(
                            Machines.nvswitch(8, 80, 12, 20),
                            IntStream.range(0, 8).boxed().toList(),
                            Operation.ALL_REDUCE);

    @Test
    void theFit() {
        double[] errors = new double[MEASURED.length];
        for (int i = 0; i < MEASURED.length; i++) {
            Prediction p = A100.choose(1L << (17 + i));
            errors[i] = Math.abs(MEASURED[i] / p.timeUs() - 1);
            assertTrue(errors[i] < p.spread(), p + ", measured " + MEASURED[i] + " us");
        }
        // From 1 MiB on.
        double[] large = Arrays.copyOfRange(errors, 3, errors.length);
        Arrays.sort(large);
        assertTrue(large[large.length / 2] < 0.05, Arrays.toString(large));
        assertTrue(large[large.length - 1] < 0.15, Arrays.toString(large));
    }

    @Test
    void theLatencyOfTheSmallestMessage() {
        assertEquals(34.7, A100.choose(8).timeUs(), 1);
    }

    /** What fills a pipeline does not grow without end, and is nothing for nothing. */
    @Test
    void theStart() {
        Start start = Start.pipeline(parameters(), 100, 1000);
        assertEquals(parameters().launch, start.us(0));
        assertEquals(parameters().launch + 50, start.us(1000), 1e-9);
        assertEquals(parameters().launch + 100, start.us(1L << 50), 1e-3);
    }

    private static Parameters parameters() {
        return Parameters.load("nccl.properties");
    }
}
