package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.train.GptShape.Weight;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Initial values. */
class PartTest {
    private static final GptShape PLAIN =
            new GptShape(1, 64, 4, 16, 30, 4, Routing.SWITCH, 1, false);

    /** Standard deviation of the standard normal distribution truncated at two. */
    private static final double TRUNCATED = 0.8796256610342398;

    private static GptShape scaled(double scale) {
        return PLAIN.with(new MixtureSettings(0, 0, 0, 0, scale, true));
    }

    private static float[] values(Part part, Part.Layer layer, Weight w) {
        float[] all = new float[Math.toIntExact(part.count(w))];
        MemorySegment memory = MemorySegment.ofArray(new float[all.length]);
        part.initialize(5, layer, w, memory);
        MemorySegment.copy(memory, JAVA_FLOAT, 0, all, 0, all.length);
        return all;
    }

    @Test
    void matricesAreTruncatedNormalByTheirInputs() {
        Part part = new Part(scaled(0.1), 0, 1, 0, 1, 0, 4);
        Part plain = new Part(PLAIN, 0, 1, 0, 1, 0, 4);
        List<Part.Layer> layers = new ArrayList<>(part.layers());
        layers.addAll(part.expertLayers());
        int matrices = 0;
        for (Part.Layer layer : layers) {
            for (Weight w : layer.weights()) {
                float[] all = values(part, layer, w);
                String name = layer.name() + "." + w.name();
                if (layer.name().equals("embedding")) {
                    assertArrayEquals(values(plain, layer, w), all, name);
                } else if (w.rows() > 1) {
                    double deviation = Math.sqrt(0.1 / w.rows());
                    double sum = 0;
                    double squares = 0;
                    for (float v : all) {
                        assertTrue(Math.abs(v) <= 2 * deviation * (1 + 1e-6), name + " has " + v);
                        sum += v / deviation;
                        squares += v / deviation * v / deviation;
                    }
                    double root = Math.sqrt(all.length);
                    // Six deviations; the fourth moment is below that of the whole distribution.
                    assertEquals(0, sum / all.length, 6 * TRUNCATED / root, name);
                    double square = TRUNCATED * TRUNCATED;
                    assertEquals(square, squares / all.length, 6 * square * 1.5 / root, name);
                    matrices++;
                }
            }
        }
        assertEquals(2 + 2 + 1 + 1 + 8 + 1, matrices, "matrices with the initial values of Switch");
    }

    /** A tensor rank has its columns or rows of the whole matrix. */
    @Test
    void initialValuesDoNotDependOnTheLayout() {
        Part whole = new Part(scaled(0.1), 0, 1, 0, 1, 0, 4);
        Part second = new Part(scaled(0.1), 1, 2, 0, 1, 2, 2);
        Part.Layer of = whole.expertLayers().getFirst();
        Part.Layer own = second.expertLayers().getFirst();
        for (Weight w : own.weights()) {
            Weight same =
                    of.weights().stream()
                            .filter(o -> o.name().equals(w.name()))
                            .findFirst()
                            .orElseThrow();
            float[] all = values(whole, of, same);
            float[] mine = values(second, own, w);
            for (int i = 0; i < mine.length; i++) {
                assertEquals(all[(int) w.index(i, 1, 2)], mine[i], w.name());
            }
        }
    }
}
