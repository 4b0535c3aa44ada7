package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.DataType;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 2, unit = TimeUnit.MINUTES)
class AdasumTest {
    private static final ReducerOptions OPTIONS =
            ReducerOptions.DEFAULT.withBuckets(300, 700).withAdasum(true);

    private static final List<Parameter> PARAMETERS =
            List.of(
                    new Parameter("a", 3, DataType.FLOAT32),
                    new Parameter("b", 100, DataType.FLOAT32),
                    new Parameter("c", 1, DataType.FLOAT32),
                    new Parameter("d", 47, DataType.FLOAT32));

    /** What one step makes of gradients[rank][parameter], on each rank. */
    private static float[][][] reduced(float[][][] gradients) {
        int ranks = gradients.length;
        float[][][] result = new float[ranks][PARAMETERS.size()][];
        Communicator.runLocal(
                ranks,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, PARAMETERS, OPTIONS)) {
                        for (int step = 0; step < 2; step++) {
                            r.begin(true);
                            for (int p = PARAMETERS.size() - 1; p >= 0; p--) {
                                r.gradient(p).copyFrom(gradients[c.rank()][p]);
                                r.ready(p);
                            }
                            r.finish();
                        }
                        for (int p = 0; p < PARAMETERS.size(); p++) {
                            result[c.rank()][p] = new float[(int) PARAMETERS.get(p).count()];
                            r.gradient(p).copyTo(result[c.rank()][p]);
                        }
                    }
                });
        return result;
    }

    /** The definition, pairs first. */
    private static double[] expected(float[][][] gradients, int p, int from, int ranks) {
        if (ranks == 1) {
            double[] own = new double[gradients[from][p].length];
            Arrays.setAll(own, i -> gradients[from][p][i]);
            return own;
        }
        double[] a = expected(gradients, p, from, ranks / 2);
        double[] b = expected(gradients, p, from + ranks / 2, ranks / 2);
        double ab = 0;
        double aa = 0;
        double bb = 0;
        for (int i = 0; i < a.length; i++) {
            ab += a[i] * b[i];
            aa += a[i] * a[i];
            bb += b[i] * b[i];
        }
        double[] sum = new double[a.length];
        for (int i = 0; i < a.length; i++) {
            sum[i] = (1 - ab / (2 * aa)) * a[i] + (1 - ab / (2 * bb)) * b[i];
        }
        return sum;
    }

    private static float[][][] gradients(int ranks, java.util.function.DoubleSupplier values) {
        float[][][] g = new float[ranks][PARAMETERS.size()][];
        for (float[][] of : g) {
            for (int p = 0; p < of.length; p++) {
                of[p] = new float[(int) PARAMETERS.get(p).count()];
                for (int i = 0; i < of[p].length; i++) {
                    of[p][i] = (float) values.getAsDouble();
                }
            }
        }
        return g;
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4, 8})
    void equalsTheDefinition(int ranks) {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("AdasumTest: " + ranks + " ranks, -Djccl.seed=" + seed);
        Random random = new Random(seed);
        float[][][] g = gradients(ranks, random::nextGaussian);
        float[][][] got = reduced(g);
        for (int p = 0; p < PARAMETERS.size(); p++) {
            double[] want = expected(g, p, 0, ranks);
            double largest = Arrays.stream(want).map(Math::abs).max().orElseThrow();
            for (int i = 0; i < want.length; i++) {
                // Each level rounds once, relative to values of this size.
                assertEquals(want[i], got[0][p][i], 1e-6 * ranks * (1 + largest));
            }
            for (int r = 1; r < ranks; r++) {
                assertArrayEquals(got[0][p], got[r][p], "ranks 0 and " + r);
            }
        }
    }

    @Test
    void equalOnesStayAndOrthogonalOnesAreAdded() {
        float[][][] g = gradients(4, () -> 3);
        assertArrayEquals(g[0][1], reduced(g)[2][1]);
        g = gradients(4, () -> 0);
        for (int r = 0; r < 4; r++) {
            g[r][1][10 * r] = r + 1;
        }
        float[] sum = reduced(g)[1][1];
        for (int i = 0; i < sum.length; i++) {
            assertEquals(i < 40 && i % 10 == 0 ? i / 10 + 1 : 0, sum[i]);
        }
    }

    @Test
    void whatCannotBeIsRefused() {
        String ranks = refusal(3, DataType.FLOAT32, OPTIONS);
        assertTrue(ranks.contains("there are 3 ranks, expected a power of two"), ranks);
        String type = refusal(2, DataType.BFLOAT16, OPTIONS);
        assertTrue(type.contains("'w' has the type bfloat16, expected float32"), type);
        Compression narrow = new Compression.Cast(DataType.BFLOAT16);
        String compression =
                String.valueOf(
                        assertThrows(
                                        IllegalArgumentException.class,
                                        () -> OPTIONS.withCompression(narrow))
                                .getMessage());
        assertTrue(compression.contains("Adasum needs whole gradients"), compression);
    }

    private static String refusal(int ranks, DataType type, ReducerOptions options) {
        String[] said = new String[ranks];
        Communicator.runLocal(
                ranks,
                c -> {
                    List<Parameter> one = List.of(new Parameter("w", 5, type));
                    IllegalArgumentException e =
                            assertThrows(
                                    IllegalArgumentException.class,
                                    () -> GradientReducer.create(c, one, options));
                    said[c.rank()] = String.valueOf(e.getMessage());
                });
        return said[0];
    }
}
