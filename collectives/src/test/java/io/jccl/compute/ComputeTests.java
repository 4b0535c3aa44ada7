package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.SharesFakes;
import io.jccl.testfake.TestFake;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;

/** Where computes run in tests, and buffers whose surroundings are looked after. */
@SharesFakes
@Timeout(value = 3, unit = TimeUnit.MINUTES)
abstract class ComputeTests {
    static final DataType[] FLOATS = {
        DataType.FLOAT32, DataType.FLOAT64, DataType.BFLOAT16, DataType.FLOAT16
    };
    static final DataType[] NARROW = {DataType.FLOAT32, DataType.BFLOAT16, DataType.FLOAT16};
    static final int[] SIZES = {0, 1, 3, 255, 256, 257, 4099};
    static final int EDGE = 3;
    static final double GUARD = -77;
    static final double[] SPECIAL = {
        0,
        -0.0,
        1,
        Double.NaN,
        1.0 / 0,
        -1.0 / 0,
        1e-45,
        -1e-40,
        6e-8,
        3e-5,
        -6.1e-5,
        65504,
        65519,
        65520,
        1e30,
        3.4e38,
        -3.4028235677973366e38,
        1.00048828125,
        1.001953125,
        1e-300,
        1e300
    };

    /** Where it runs. */
    enum Where {
        HOST,
        HOST_THREADS,
        CUDA,
        CUDA_REVERSED;

        Compute open() {
            return switch (this) {
                case HOST -> Compute.of(Device.host());
                case HOST_THREADS -> Compute.host(3);
                case CUDA -> Compute.of(TestFake.device(1));
                case CUDA_REVERSED -> {
                    TestFake.threadsReversed(2);
                    yield Compute.of(TestFake.device(2));
                }
            };
        }
    }

    /**
     * On several threads, and on a GPU whose threads run in another order than usual. The places in
     * which less can go wrong are left to the exhaustive run, which takes all with sanitized fakes.
     */
    static List<Where> places() {
        return Boolean.getBoolean("jccl.test.allplaces")
                ? List.of(Where.values())
                : List.of(Where.HOST_THREADS, Where.CUDA_REVERSED);
    }

    /** Elements of 16 bits that are 16 bytes. */
    static final int ALIGNED = 8;

    /** Elements before and after a slice. */
    int edge = EDGE;

    final Random random = new Random(2024);
    final List<Buffer> open = new ArrayList<>();

    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    @AfterEach
    void closeAll() {
        open.forEach(Buffer::close);
    }

    /** A slice of a device's buffer, with guards around it, that holds these values. */
    final Buffer of(Compute c, DataType type, double... values) {
        Buffer all = c.device().allocate(type, values.length + 2 * edge);
        open.add(all);
        try (Buffer host = Device.host().allocate(type, all.count())) {
            for (int i = 0; i < host.count(); i++) {
                boolean guard = i < edge || i >= edge + values.length;
                host.set(i, guard ? GUARD : values[i - edge]);
            }
            all.copyFrom(host.asSegment());
        }
        return all.slice(edge, values.length);
    }

    /** Waits, and reads a slice of {@link #of} back; its guards must be whole. */
    final double[] read(Compute c, Stream stream, Buffer slice) {
        stream.synchronize();
        int n = (int) slice.count();
        for (Buffer all : open) {
            if (all.address() + (long) edge * all.dataType().size() == slice.address()
                    && all.count() == n + 2 * edge) {
                try (Buffer host = Device.host().allocate(all.dataType(), all.count())) {
                    all.copyTo(host.asSegment());
                    for (int i = 0; i < edge; i++) {
                        assertEquals(GUARD, host.get(i), c.device() + ": before the slice");
                        assertEquals(GUARD, host.get(edge + n + i), c.device() + ": after it");
                    }
                    double[] values = new double[n];
                    for (int i = 0; i < n; i++) {
                        values[i] = host.get(edge + i);
                    }
                    return values;
                }
            }
        }
        throw new AssertionError("not a slice of this test: " + slice);
    }

    /** Random values of all magnitudes, with special ones among them, as elements of a type. */
    final double[] values(DataType type, int n) {
        double[] values = new double[n];
        for (int i = 0; i < n; i++) {
            values[i] =
                    random.nextInt(4) == 0
                            ? SPECIAL[random.nextInt(SPECIAL.length)]
                            : random.nextGaussian() * Math.pow(2, random.nextInt(60) - 30);
        }
        return as(type, values);
    }

    static double[] tame(Random random, int n) {
        double[] values = new double[n];
        for (int i = 0; i < n; i++) {
            values[i] = (float) random.nextGaussian();
        }
        return values;
    }

    /** Values rounded to a type. */
    static double[] as(DataType type, double... values) {
        double[] rounded = new double[values.length];
        try (Buffer one = Device.host().allocate(type, 1)) {
            for (int i = 0; i < values.length; i++) {
                one.set(0, values[i]);
                rounded[i] = one.get(0);
            }
        }
        return rounded;
    }

    final void on(Where where, Consumer<Run> body) {
        try (Compute c = where.open();
                Stream stream = c.device().newStream()) {
            body.accept(new Run(c, stream));
        }
    }

    /** With slices that begin anywhere, and on GPUs also with aligned ones. */
    final void onSlices(Where where, Consumer<Run> body) {
        on(where, body);
        if (where == Where.CUDA || where == Where.CUDA_REVERSED) {
            edge = ALIGNED;
            on(where, body);
        }
    }

    /** A compute and a stream of its device. */
    static final class Run {
        final Compute c;
        final Stream stream;

        Run(Compute c, Stream stream) {
            this.c = c;
            this.stream = stream;
        }
    }

    final void assertSame(double[] expected, double[] actual, String what) {
        assertEquals(expected.length, actual.length, what);
        for (int i = 0; i < expected.length; i++) {
            int at = i;
            // Bits, so that -0 differs from 0; NaN equals NaN.
            assertEquals(
                    Double.doubleToLongBits(expected[i]),
                    Double.doubleToLongBits(actual[i]),
                    () -> what + " at " + at + ": " + expected[at] + " but is " + actual[at]);
        }
    }
}
