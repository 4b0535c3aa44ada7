package io.jccl.bench.jmh;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/**
 * {@code jccl matmul-loop}: the counterpart of {@code peers/torch_matmul.py}, with the same shapes
 * and statistics. Used by {@code bench/peers/matmul}.
 */
@Command(
        name = "matmul-loop",
        mixinStandardHelpOptions = true,
        description = "Times products on one core as bench/peers/torch_matmul.py does.")
final class MatmulLoop implements Callable<Integer> {
    private static final Pattern SHAPE = Pattern.compile("(\\d{1,6})x(\\d{1,6})x(\\d{1,6})(t?)");

    /** Minimum multiplications in a sample, or elements of b that it reads. */
    private static final double MULTIPLICATIONS = 1e9;

    private static final double ELEMENTS = 1e8;

    /** Products until the code is compiled, however short they are. */
    private static final int WARM_UP = 3000;

    @Option(
            names = "--samples",
            defaultValue = "6",
            description = "the least counts (default: ${DEFAULT-VALUE})")
    private int samples;

    @Parameters(
            arity = "1..*",
            paramLabel = "MxKxN[t]",
            description = "a is M x K, b K x N; t: b is the transpose of a stored N x K")
    private List<String> shapes = List.of();

    @Spec private CommandSpec spec = CommandSpec.create();

    @Override
    public Integer call() {
        PrintWriter out = spec.commandLine().getOut();
        try (Matmul matmul = Matmul.of(Device.host(), 1)) {
            for (String shape : shapes) {
                out.printf(Locale.ROOT, "%s %.3f%n", shape, 1e6 * seconds(matmul, shape));
                out.flush();
            }
        }
        return 0;
    }

    /** Of this thread's CPU time, for one product. */
    private double seconds(Matmul matmul, String shape) {
        Matcher s = SHAPE.matcher(shape);
        if (!s.matches()) {
            throw new ParameterException(
                    spec.commandLine(),
                    "'%s' is not a shape, expected one such as 1x4096x4096 or 64x64x64t"
                            .formatted(shape));
        }
        long m = Long.parseLong(s.group(1));
        long k = Long.parseLong(s.group(2));
        long n = Long.parseLong(s.group(3));
        Device host = Device.host();
        Stream stream = host.defaultStream();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        try (Buffer a = host.allocate(DataType.FLOAT32, m * k);
                Buffer b = host.allocate(DataType.FLOAT32, k * n);
                Buffer c = host.allocate(DataType.FLOAT32, m * n)) {
            fill(a, 17);
            fill(b, 13);
            Matrix x = Matrix.of(a, m, k);
            Matrix y = s.group(4).isEmpty() ? Matrix.of(b, k, n) : Matrix.of(b, n, k).transposed();
            Matrix z = Matrix.of(c, m, n);
            double most = Math.max(MULTIPLICATIONS / (m * k * n), 1);
            long times = (long) Math.ceil(Math.min(most, Math.max(ELEMENTS / (k * n), 1)));
            for (long i = 0; i < Math.max(times, Math.min(WARM_UP, 20 * times)); i++) {
                matmul.multiply(x, y, z, stream);
            }
            double least = Double.MAX_VALUE;
            for (int sample = 0; sample < samples; sample++) {
                long start = threads.getCurrentThreadCpuTime();
                for (long i = 0; i < times; i++) {
                    matmul.multiply(x, y, z, stream);
                }
                double all = threads.getCurrentThreadCpuTime() - start;
                least = Math.min(least, 1e-9 * all / times);
            }
            return least;
        }
    }

    private static void fill(Buffer buffer, int period) {
        for (long i = 0; i < buffer.count(); i++) {
            buffer.set(i, (double) (i % period) / period);
        }
    }
}
