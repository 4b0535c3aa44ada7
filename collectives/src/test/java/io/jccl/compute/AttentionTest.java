package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.testkit.Messages;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Attention of all kinds of elements, shapes and devices. */
class AttentionTest extends AttentionTests {
    private static final AttentionShape[] SHAPES = {
        new AttentionShape(1, 1, 1, 1, 1),
        new AttentionShape(2, 17, 2, 2, 32),
        new AttentionShape(1, 33, 4, 2, 40),
        new AttentionShape(1, 16, 3, 1, 128),
    };

    private static final DataType[] TENSOR_TYPES = {DataType.BFLOAT16, DataType.FLOAT16};

    /** With more rows than a block or a tile has, and sizes that are filled up with zeros. */
    private static final AttentionShape[] TENSOR_SHAPES = {
        new AttentionShape(1, 1, 1, 1, 8),
        new AttentionShape(2, 17, 2, 2, 32),
        new AttentionShape(1, 150, 2, 1, 40),
        new AttentionShape(1, 66, 1, 1, 64),
        new AttentionShape(2, 33, 4, 2, 96),
        new AttentionShape(1, 40, 2, 1, 128),
    };

    @ParameterizedTest
    @MethodSource("places")
    void equalsTheDirectEvaluation(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (AttentionShape s : SHAPES) {
                            compare(r, type, DataType.FLOAT32, s);
                        }
                    }
                });
    }

    /** A GPU has no kernels for it. */
    @Test
    void aHeadMayBeWiderOnTheHost() {
        AttentionShape wide = new AttentionShape(2, 5, 2, 1, 130);
        on(Where.HOST, r -> compare(r, DataType.FLOAT32, DataType.FLOAT32, wide));
        double[] x = new double[(int) (wide.rows() * wide.rowWidth())];
        on(
                Where.CUDA,
                r -> {
                    String message =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () -> forward(r, DataType.FLOAT32, wide, x));
                    assertTrue(message.contains("the size of a head is 130"), message);
                });
    }

    /** One type for each shape. */
    @ParameterizedTest
    @EnumSource(names = "CUDA")
    void onTensorCores(Where where) {
        on(
                where,
                r -> {
                    edge = ALIGNED;
                    for (int i = 0; i < TENSOR_SHAPES.length; i++) {
                        DataType type = TENSOR_TYPES[i % TENSOR_TYPES.length];
                        compare(r, type, type, TENSOR_SHAPES[i]);
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = {"CUDA", "CUDA_REVERSED"})
    void onTensorCoresWithAllTypes(Where where) {
        on(
                where,
                r -> {
                    edge = ALIGNED;
                    for (DataType type : TENSOR_TYPES) {
                        for (AttentionShape s : TENSOR_SHAPES) {
                            compare(r, type, type, s);
                        }
                    }
                });
    }

    /** More rows than a tile of the host's loops has, and heads that do not fill a vector. */
    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = "HOST_THREADS")
    void inSeveralTiles(Where where) {
        on(
                where,
                r -> {
                    for (int i = 0; i < NARROW.length; i++) {
                        AttentionShape s = new AttentionShape(2, 65 + i, 2, 1, 17);
                        compare(r, NARROW[i], DataType.FLOAT32, s);
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = {"HOST", "HOST_THREADS"})
    void inSeveralTilesWithAllTypes(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (AttentionShape s : severalTiles()) {
                            compare(r, type, DataType.FLOAT32, s);
                        }
                    }
                });
    }

    private static List<AttentionShape> severalTiles() {
        List<AttentionShape> shapes = new ArrayList<>(List.of(TENSOR_SHAPES));
        for (int context : new int[] {63, 64, 65, 128, 131}) {
            shapes.add(new AttentionShape(2, context, 2, 1, 17));
        }
        return shapes;
    }

    @Tag("exhaustive")
    @Test
    void theNumberOfThreadsDoesNotMatter() {
        AttentionShape s = new AttentionShape(5, 100, 6, 3, 24);
        double[] x = as(DataType.FLOAT32, tame(random, (int) (s.rows() * s.rowWidth())));
        double[] first = null;
        for (int threads = 1; threads <= 4; threads++) {
            try (Compute c = Compute.host(threads);
                    Stream stream = c.device().newStream()) {
                DataType type = DataType.FLOAT32;
                double[] gradient = compare(new Run(c, stream), type, type, s, x);
                first = first == null ? gradient : first;
                assertSame(first, gradient, threads + " threads");
            }
        }
    }

    /** What a row must not see does not reach it, not even as 0 times infinity. */
    @ParameterizedTest
    @MethodSource("places")
    void laterRowsAreNotSeen(Where where) {
        on(
                where,
                r -> {
                    laterRowsAreNotSeen(r, DataType.FLOAT32, 19, 5, 1);
                    laterRowsAreNotSeen(r, DataType.FLOAT32, 150, 70, 1);
                });
    }

    /** On tensor cores it may reach rows of its own tile. */
    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = "CUDA")
    void laterTilesAreNotSeen(Where where) {
        on(
                where,
                r -> {
                    edge = ALIGNED;
                    laterRowsAreNotSeen(r, DataType.BFLOAT16, 150, 70, 64);
                });
    }

    private void laterRowsAreNotSeen(Run r, DataType type, int context, int bad, int tile) {
        AttentionShape s = new AttentionShape(2, context, 2, 1, 32);
        int width = (int) s.rowWidth();
        double[] x = as(type, tame(random, (int) s.rows() * width));
        double[] spoilt = x.clone();
        Arrays.fill(spoilt, bad * width + 64, bad * width + 96, Double.NaN);
        int next = bad + 2;
        Arrays.fill(spoilt, next * width + 96, (next + 1) * width, Double.POSITIVE_INFINITY);
        double[] clean = forward(r, type, s, x);
        double[] out = forward(r, type, s, spoilt);
        for (int i = 0; i < out.length; i++) {
            int row = i / (int) s.outputWidth();
            if (row >= bad && row < s.context()) {
                assertTrue(Double.isNaN(out[i]), "row " + row + " is " + out[i]);
            } else if (row < bad / tile * tile || row >= s.context()) {
                assertEquals(clean[i], out[i], "row " + row);
            }
        }
    }

    private double[] forward(Run r, DataType type, AttentionShape s, double[] x) {
        Buffer out = zeros(r, type, (int) (s.rows() * s.outputWidth()));
        Buffer sums = zeros(r, DataType.FLOAT32, (int) s.rows() * s.heads());
        r.c.layers().attention(s, of(r.c, type, x), out, sums, r.stream);
        return get(r, out);
    }
}
