package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.testfake.TestFake;
import java.time.Duration;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Rows, columns and time; and what every operation refuses. */
class ComputeRowsTest extends ComputeTests {
    @ParameterizedTest
    @MethodSource("places")
    void rowsAndColumns(Where where) {
        on(
                where,
                r -> {
                    for (DataType type :
                            new DataType[] {
                                DataType.UINT8, DataType.BFLOAT16, NARROW[0], FLOATS[1]
                            }) {
                        for (int width : new int[] {1, 3, 8, 64}) {
                            rows(r, type, width);
                        }
                    }
                });
    }

    private void rows(Run r, DataType type, int width) {
        double[] index = {2, 0, -1, 5, 1, 4, 99};
        int rows = 5;
        double[] source = new double[rows * width];
        for (int i = 0; i < source.length; i++) {
            source[i] = 1 + i % 100;
        }
        String what = type + " rows of " + width;
        // Guards of bytes are the values that -77 becomes.
        Buffer s = of(r.c, type, source);
        Buffer which = of(r.c, DataType.INT32, index);
        Buffer gathered = r.c.device().allocate(type, (long) index.length * width);
        open.add(gathered);
        r.c.gatherRows(s, width, which, gathered, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < index.length * width; i++) {
            int row = (int) index[i / width];
            double expected = row >= 0 && row < rows ? source[row * width + i % width] : 0;
            assertEquals(expected, gathered.get(i), what + " gathered " + i);
        }
        double[] back = {3, -5, 0, 77, 1};
        Buffer where = of(r.c, DataType.INT32, back);
        Buffer scattered = r.c.device().allocate(type, 4L * width);
        open.add(scattered);
        r.c.fill(scattered, 7, r.stream);
        r.c.scatterRows(s, width, where, scattered, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < 4 * width; i++) {
            double expected = 7;
            int row = i / width;
            for (int k = 0; k < rows; k++) {
                expected = back[k] == row ? source[k * width + i % width] : expected;
            }
            assertEquals(expected, scattered.get(i), what + " scattered " + i);
        }
        int wide = width + 5;
        Buffer matrix = r.c.device().allocate(type, (long) rows * wide);
        open.add(matrix);
        r.c.fill(matrix, 9, r.stream);
        r.c.copyColumns(s, width, 0, matrix, wide, 2, width, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < rows * wide; i++) {
            int column = i % wide - 2;
            boolean inside = column >= 0 && column < width;
            double expected = inside ? source[i / wide * width + column] : 9;
            assertEquals(expected, matrix.get(i), what + " column " + i);
        }
        Buffer packed = r.c.device().allocate(type, source.length);
        open.add(packed);
        r.c.copyColumns(matrix, wide, 2, packed, width, 0, width, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < source.length; i++) {
            assertEquals(source[i], packed.get(i), what + " packed " + i);
        }
    }

    @ParameterizedTest
    @MethodSource("places")
    void spinTakesThatLong(Where where) {
        on(
                where,
                r -> {
                    long began = System.nanoTime();
                    r.c.spin(Duration.ofMillis(2), r.stream);
                    r.stream.synchronize();
                    assertTrue(System.nanoTime() - began >= 2_000_000L);
                });
    }

    @ParameterizedTest
    @MethodSource("places")
    void badArgumentsAreNamed(Where where) {
        on(
                where,
                r -> {
                    Buffer f = of(r.c, DataType.FLOAT32, 1, 2, 3);
                    Buffer g = of(r.c, DataType.FLOAT32, 1, 2);
                    Buffer i = of(r.c, DataType.INT32, 1, 2, 3);
                    Buffer d = of(r.c, DataType.FLOAT64, 1, 2, 3);
                    Update sgd = new Update(Update.Rule.SGD, 0, 0, 0, 0, 0, 1, 0, 0);
                    refuses(
                            "the target has 2 elements, but the source has 3",
                            () -> r.c.cast(f, g, r.stream));
                    refuses(
                            "the source is of int32, expected float",
                            () -> r.c.cast(i, f, r.stream));
                    refuses("b is of double, but a of float", () -> r.c.add(f, d, f, r.stream));
                    refuses("x and y share memory", () -> r.c.axpy(1, f, f, r.stream));
                    refuses(
                            "share memory",
                            () -> r.c.add(f.slice(0, 2), f.slice(0, 2), f.slice(1, 2), r.stream));
                    refuses(
                            "the norm has 3 elements",
                            () -> r.c.sumOfSquares(f, d, false, r.stream));
                    refuses(
                            "x is of double, expected float, bfloat16 or half",
                            () -> r.c.sumOfSquares(d, d, false, r.stream));
                    refuses(
                            "the first moment is given, but SGD keeps 0 moments",
                            () -> r.c.update(sgd, f, g, null, f, null, 1, null, r.stream));
                    refuses("the width of a row is 2", () -> r.c.gatherRows(f, 2, i, g, r.stream));
                    refuses(
                            "columns 2 to 4 do not lie within rows of 3",
                            () -> r.c.copyColumns(f, 3, 2, g, 2, 0, 3, r.stream));
                    refuses(
                            "the duration is PT11S",
                            () -> r.c.spin(Duration.ofSeconds(11), r.stream));
                    boolean host = r.c.device().kind() == Device.Kind.HOST;
                    Device other = host ? TestFake.device(0) : Device.host();
                    Buffer elsewhere = other.allocate(DataType.FLOAT32, 3);
                    open.add(elsewhere);
                    refuses("the target is on " + other, () -> r.c.add(f, f, elsewhere, r.stream));
                    refuses("the stream belongs to", () -> r.c.add(f, f, f, other.defaultStream()));
                });
    }

    private static void refuses(String text, Runnable call) {
        String message =
                String.valueOf(
                        assertThrows(IllegalArgumentException.class, call::run).getMessage());
        assertTrue(message.contains(text), message);
    }
}
