package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Distributions of the noise, and that it depends on places alone. */
@UsesFakes
class RouterNoiseTest {
    private static final int TOKENS = 2000;
    private static final int WIDTH = 20;
    private static final int COUNT = TOKENS * WIDTH;

    /** A place beyond what an int holds. */
    private static final long PLACE = 5_000_000_000L;

    private static Buffer filled(float value) {
        Buffer b = Device.host().allocate(DataType.FLOAT32, COUNT);
        for (int i = 0; i < COUNT; i++) {
            b.set(i, value);
        }
        return b;
    }

    /** What becomes of rows of ones, or of zeros for logits, computed in so many parts. */
    private static float[] noisy(RouterNoise noise, boolean logits, int parts, long place) {
        try (Buffer x = filled(logits ? 0 : 1)) {
            int tokens = TOKENS / parts;
            for (int p = 0; p < parts; p++) {
                Buffer part = x.slice((long) p * tokens * WIDTH, (long) tokens * WIDTH);
                if (logits) {
                    noise.add(part, WIDTH, place + (long) p * tokens);
                } else {
                    noise.scale(part, WIDTH, place + (long) p * tokens, part);
                }
            }
            float[] all = new float[COUNT];
            x.copyTo(all);
            return all;
        }
    }

    /** The mean of powers about a middle. */
    private static double moment(float[] x, double middle, int power) {
        double sum = 0;
        for (float v : x) {
            sum += Math.pow(v - middle, power);
        }
        return sum / x.length;
    }

    @Test
    void jitterIsUniformAboutOne() {
        float[] f = noisy(new RouterNoise(4, 0.1, 0, 0), false, 1, PLACE);
        for (float v : f) {
            assertTrue(v >= 0.9f && v <= 1.1f, "factor " + v);
        }
        // Six deviations of the mean, of the mean square, and of the mean fourth power.
        double root = Math.sqrt(COUNT);
        assertEquals(1, moment(f, 0, 1), 6 * 0.1 / Math.sqrt(3) / root);
        assertEquals(0.01 / 3, moment(f, 1, 2), 6 * 0.01 * Math.sqrt(1 / 5.0 - 1 / 9.0) / root);
        assertEquals(1e-4 / 5, moment(f, 1, 4), 6 * 1e-4 * Math.sqrt(1 / 9.0 - 1 / 25.0) / root);
    }

    @Test
    void dropoutKeepsTheMean() {
        double rate = 0.3;
        float[] f = noisy(new RouterNoise(4, 0, rate, 0), false, 1, PLACE);
        int dropped = 0;
        for (float v : f) {
            assertTrue(v == 0 || v == (float) (1 / 0.7), "factor " + v);
            dropped += v == 0 ? 1 : 0;
        }
        assertEquals(rate, (double) dropped / COUNT, 6 * Math.sqrt(rate * (1 - rate) / COUNT));
        // With jitter both factors are there.
        float[] both = noisy(new RouterNoise(4, 0.1, rate, 0), false, 1, PLACE);
        float[] jitter = noisy(new RouterNoise(4, 0.1, 0, 0), false, 1, PLACE);
        for (int i = 0; i < COUNT; i++) {
            assertEquals(f[i] * jitter[i], both[i]);
        }
    }

    @Test
    void noiseOfLogitsIsNormal() {
        float[] x = noisy(new RouterNoise(4, 0, 0, 0.5), true, 1, PLACE);
        double root = Math.sqrt(COUNT);
        assertEquals(0, moment(x, 0, 1), 6 * 0.5 / root);
        assertEquals(0.25, moment(x, 0, 2), 6 * 0.25 * Math.sqrt(2) / root);
        assertEquals(0, moment(x, 0, 3), 6 * 0.125 * Math.sqrt(15) / root);
        assertEquals(3 * 0.0625, moment(x, 0, 4), 6 * 0.0625 * Math.sqrt(96) / root);
        // The share within one deviation.
        int within = 0;
        for (float v : x) {
            within += Math.abs(v) < 0.5 ? 1 : 0;
        }
        assertEquals(0.6827, (double) within / COUNT, 6 * Math.sqrt(0.6827 * 0.3173) / root);
    }

    @Test
    void dependsOnSeedAndPlaceAlone() {
        RouterNoise noise = new RouterNoise(9, 0.2, 0.1, 1);
        for (boolean logits : new boolean[] {false, true}) {
            float[] whole = noisy(noise, logits, 1, PLACE);
            assertArrayEquals(whole, noisy(noise, logits, 4, PLACE));
            float[] next = noisy(noise, logits, 1, PLACE + 1);
            assertArrayEquals(
                    Arrays.copyOfRange(whole, WIDTH, COUNT),
                    Arrays.copyOfRange(next, 0, COUNT - WIDTH));
            float[] other = noisy(new RouterNoise(10, 0.2, 0.1, 1), logits, 1, PLACE);
            assertFalse(Arrays.equals(whole, other), "seeds make no difference");
        }
    }

    /** Kernels draw the same; normal numbers are off by a bit of float64 at most. */
    @Test
    void drawsTheSameOnADevice() {
        TestFake.use();
        RouterNoise noise = new RouterNoise(9, 0.2, 0.1, 1);
        for (Device device : List.of(Device.host(), TestFake.device(0))) {
            for (boolean logits : new boolean[] {false, true}) {
                float[] expected = noisy(noise, logits, 1, PLACE);
                float[] actual = new float[COUNT];
                Stream stream = device.defaultStream();
                try (Compute compute = Compute.of(device);
                        Buffer from = filled(logits ? 0 : 1);
                        Buffer x = device.allocate(DataType.FLOAT32, COUNT)) {
                    x.copyFrom(from.asSegment());
                    if (logits) {
                        noise.add(compute, x, WIDTH, PLACE, stream);
                    } else {
                        noise.scale(compute, x, WIDTH, PLACE, x, stream);
                    }
                    stream.synchronize();
                    x.copyTo(actual);
                }
                for (int i = 0; i < COUNT; i++) {
                    float most = logits ? Math.ulp(expected[i]) : 0;
                    assertEquals(expected[i], actual[i], most, device + " at " + i);
                }
                String m =
                        Messages.of(
                                IllegalArgumentException.class,
                                () -> atMinusThree(noise, device, logits));
                assertTrue(m.contains("is -3"), m);
            }
        }
    }

    private static void atMinusThree(RouterNoise noise, Device device, boolean logits) {
        Stream stream = device.defaultStream();
        try (Compute compute = Compute.of(device);
                Buffer x = device.allocate(DataType.FLOAT32, COUNT)) {
            if (logits) {
                noise.add(compute, x, WIDTH, -3, stream);
            } else {
                noise.scale(compute, x, WIDTH, -3, x, stream);
            }
        }
    }

    @Test
    void noNoiseChangesNothingAndExcludedExpertsStaySo() {
        RouterNoise none = new RouterNoise(1, 0, 0, 0);
        assertFalse(none.scales());
        float[] ones = new float[COUNT];
        Arrays.fill(ones, 1);
        assertArrayEquals(ones, noisy(none, false, 1, 0));
        assertArrayEquals(new float[COUNT], noisy(none, true, 1, 0));
        try (Buffer x = filled(Float.NEGATIVE_INFINITY)) {
            new RouterNoise(1, 0, 0, 2).add(x, WIDTH, 0);
            assertEquals(Double.NEGATIVE_INFINITY, x.get(7));
        }
    }

    @Test
    void faultsAreNamed() {
        RouterNoise noise = new RouterNoise(1, 0.1, 0, 0);
        try (Buffer x = filled(1);
                Buffer narrow = Device.host().allocate(DataType.BFLOAT16, COUNT)) {
            Map<String, Executable> faults =
                    Map.of(
                            "jitter is 1.0", () -> new RouterNoise(1, 1, 0, 0),
                            "jitter is -0.1", () -> new RouterNoise(1, -0.1, 0, 0),
                            "dropout is NaN", () -> new RouterNoise(1, 0, Double.NaN, 0),
                            "deviation is -1.0", () -> new RouterNoise(1, 0, 0, -1),
                            "first token is -3", () -> noise.scale(x, WIDTH, -3, x),
                            "rows of 7", () -> noise.add(x, 7, 0),
                            "bfloat16", () -> noise.scale(narrow, WIDTH, 0, narrow),
                            "20 elements", () -> noise.scale(x.slice(0, 20), WIDTH, 0, x));
            faults.forEach((words, fault) -> {
                String m = Messages.of(IllegalArgumentException.class, fault);
                assertTrue(m.contains(words), m);
            });
        }
    }
}
