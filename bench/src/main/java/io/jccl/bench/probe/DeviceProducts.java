package io.jccl.bench.probe;

import io.jccl.bench.MatmulInputs;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Products of square matrices of all types that a device supports, with inputs and a check. */
final class DeviceProducts implements AutoCloseable {
    private static final MatmulInputs INPUTS = new MatmulInputs(1);

    /** Elements that are filled or read at a time. */
    private static final int CHUNK = 1 << 20;

    /** Size of a product that takes milliseconds even if interpreted. */
    private static final int SMALL = 48;

    private final Device device;
    private final Stream stream;
    private final Matmul matmul;
    private final Consumer<Buffer> afterProduct;
    private @Nullable CublasProducts cublas;

    /**
     * Creates an instance.
     *
     * @param device device to compute on
     * @param threads threads that compute on the host
     * @param afterProduct called with each product before it is checked; for tests that corrupt it
     */
    DeviceProducts(Device device, int threads, Consumer<Buffer> afterProduct) {
        this.device = device;
        this.stream = device.defaultStream();
        this.matmul = Matmul.of(device, threads);
        this.afterProduct = afterProduct;
    }

    /** Why a type is not supported; null if it is. */
    static @Nullable String lack(Device device, MatrixType type) {
        return device.kind() == Device.Kind.CUDA
                        || type == MatrixType.FLOAT32
                        || type == MatrixType.BFLOAT16
                ? null
                : "the host's products take float32 and bfloat16";
    }

    /** Lets the JVM compile the code for products of a type, for at most the given seconds. */
    void compile(MatrixType type, double most) {
        on(
                type,
                SMALL,
                (work, product) -> {
                    Meter.compile(work, most);
                    return null;
                });
    }

    /**
     * Measures one product.
     *
     * @return the outcome, which is wrong if an element is
     */
    Outcome measure(MatrixType type, int n, double share) {
        return Objects.requireNonNull(
                on(
                        type,
                        n,
                        (work, product) -> {
                            Timing timing = Meter.measure(work, share);
                            afterProduct.accept(product);
                            String wrong = wrong(product, n);
                            return wrong == null ? Outcome.measured(timing) : Outcome.wrong(wrong);
                        }));
    }

    private @Nullable Outcome on(
            MatrixType type, int n, BiFunction<Meter.Work, Buffer, @Nullable Outcome> use) {
        long count = (long) n * n;
        try (Buffer a = device.allocate(type.factors(), count);
                Buffer b = device.allocate(type.factors(), count);
                Buffer c = device.allocate(type.result(), count)) {
            fill(a, n, MatmulInputs.A);
            fill(b, n, MatmulInputs.A + 1);
            Runnable one = product(type, n, a, b, c);
            return use.apply(Meter.Work.enqueued(one, stream), c);
        }
    }

    private Runnable product(MatrixType type, int n, Buffer a, Buffer b, Buffer c) {
        if (type == MatrixType.FLOAT32 || type == MatrixType.BFLOAT16) {
            Matrix x = Matrix.of(a, n, n);
            Matrix y = Matrix.of(b, n, n);
            Matrix z = Matrix.of(c, n, n);
            return () -> matmul.multiply(x, y, z, stream);
        }
        CublasProducts products = cublas;
        if (products == null) {
            products = new CublasProducts(device);
            cublas = products;
        }
        CublasProducts all = products;
        return () -> all.multiply(type, n, a, b, c);
    }

    /** Integers from -3 to 3: exact in every type, as are their sums in float32. */
    private static void fill(Buffer to, int n, int which) {
        int rows = Math.max(1, CHUNK / n);
        for (int at = 0; at < n; at += rows) {
            int count = Math.min(rows, n - at);
            MemorySegment chunk = chunk(to, (long) count * n);
            for (int i = 0; i < count; i++) {
                for (int j = 0; j < n; j++) {
                    set(to, chunk, (long) i * n + j, INPUTS.value(which, at + i, j));
                }
            }
            to.slice((long) at * n, (long) count * n).copyFrom(chunk);
        }
    }

    private static MemorySegment chunk(Buffer of, long count) {
        // Heap memory, which copies of the device accept.
        return switch (of.dataType().size()) {
            case 2 -> MemorySegment.ofArray(new short[Math.toIntExact(count)]);
            case 4 -> MemorySegment.ofArray(new float[Math.toIntExact(count)]);
            default -> MemorySegment.ofArray(new double[Math.toIntExact(count)]);
        };
    }

    private static void set(Buffer of, MemorySegment chunk, long at, float value) {
        switch (of.dataType()) {
            case BFLOAT16 ->
                    chunk.setAtIndex(
                            ValueLayout.JAVA_SHORT,
                            at,
                            (short) (Float.floatToRawIntBits(value) >>> 16));
            case FLOAT16 ->
                    chunk.setAtIndex(ValueLayout.JAVA_SHORT, at, Float.floatToFloat16(value));
            case FLOAT32 -> chunk.setAtIndex(ValueLayout.JAVA_FLOAT, at, value);
            default -> chunk.setAtIndex(ValueLayout.JAVA_DOUBLE, at, value);
        }
    }

    /**
     * Compares {@code c x} with {@code a (b x)} for a vector of small integers (Freivalds, MFCS
     * 1979), exactly: a wrong row is missed once in several thousand times.
     *
     * @return the error; null if none
     */
    private static @Nullable String wrong(Buffer c, int n) {
        double[] x = new double[n];
        for (int i = 0; i < n; i++) {
            x[i] = 1 + Math.floorMod(i * 7919L, 4093);
        }
        double[] y = new double[n];
        for (int i = 0; i < n; i++) {
            y[i] = dot(MatmulInputs.A + 1, i, x);
        }
        int rows = Math.max(1, CHUNK / n);
        for (int at = 0; at < n; at += rows) {
            int count = Math.min(rows, n - at);
            MemorySegment chunk = chunk(c, (long) count * n);
            c.slice((long) at * n, (long) count * n).copyTo(chunk);
            for (int i = 0; i < count; i++) {
                double found = 0;
                for (int j = 0; j < n; j++) {
                    long index = (long) i * n + j;
                    found +=
                            x[j]
                                    * (c.dataType().size() == Double.BYTES
                                            ? chunk.getAtIndex(ValueLayout.JAVA_DOUBLE, index)
                                            : chunk.getAtIndex(ValueLayout.JAVA_FLOAT, index));
                }
                double expected = dot(MatmulInputs.A, at + i, y);
                if (found != expected) {
                    return "row "
                            + (at + i)
                            + " of the product times a test vector is "
                            + found
                            + ", expected "
                            + expected;
                }
            }
        }
        return null;
    }

    private static double dot(int which, int row, double[] x) {
        double sum = 0;
        for (int j = 0; j < x.length; j++) {
            sum += INPUTS.value(which, row, j) * x[j];
        }
        return sum;
    }

    @Override
    public void close() {
        try (matmul) {
            if (cublas != null) {
                cublas.close();
            }
        }
    }
}
