package io.jccl.bench.probe;

import io.jccl.bindings.NativeLibraryUnavailableException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.train.GptShape;
import io.jccl.train.Owned;
import io.jccl.train.TransformerLayer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Forward and backward pass of a Transformer layer by width. */
final class LayerProbe {
    private static final int CONTEXT = 128;
    private static final int SEQUENCES = 4;
    private static final int ROWS = CONTEXT * SEQUENCES;
    private static final int HEAD = 64;
    private static final double COMPILE_SHARE = 0.15;

    /** Tolerance for float32 rounding in a difference of sums over all outputs. */
    private static final double TOLERANCE = 0.05;

    private static final String PRODUCTS_ALONE =
            "products of matrices alone: attention, norms and activations have no kernels on this"
                    + " device yet";

    private final ProbeConfig config;
    private final long room;
    private final Consumer<String> progress;

    /** Floating-point operations per second of the fastest batch so far. */
    private double rate;

    LayerProbe(ProbeConfig config, long room, Consumer<String> progress) {
        this.config = config;
        this.room = room;
        this.progress = progress;
    }

    List<ProbeResult.Layer> run(Budget budget) {
        List<ProbeResult.Layer> rows = new ArrayList<>();
        int rest = config.hidden().size();
        if (!config.cuda()) {
            progress.accept("layer, compiling");
            try (TransformerLayer small = new TransformerLayer(HEAD, 1, CONTEXT / 4, 1, 1)) {
                Meter.compile(
                        times -> {
                            repeat(small::forward, times);
                            repeat(small::backward, times);
                        },
                        budget.left() * COMPILE_SHARE);
            }
        }
        for (int hidden : config.hidden()) {
            progress.accept("layer of width " + hidden);
            rows.add(layer(hidden, budget.share(rest--)));
        }
        return rows;
    }

    private ProbeResult.Layer layer(int hidden, double share) {
        int heads = hidden % HEAD == 0 ? hidden / HEAD : 1;
        long bytes = TransformerLayer.bytes(hidden, ROWS);
        if (bytes > room) {
            return row(
                    hidden,
                    heads,
                    0,
                    Outcome.skipped(
                            "needs "
                                    + bytes
                                    + " bytes, more than the "
                                    + room
                                    + " that may be used"),
                    null);
        }
        // Two forward and two backward passes, the latter with twice the operations, and the check.
        double flops = 24.0 * hidden * hidden * ROWS;
        double seconds = rate == 0 ? 0 : (config.cuda() ? 6 : 12) * flops / rate;
        if (seconds > share) {
            String note =
                    String.format(
                            Locale.ROOT,
                            "would take %.1f s, more than the %.1f s left for it; raise"
                                    + " --time-budget",
                            seconds,
                            share);
            return row(hidden, heads, 0, Outcome.skipped(note), null);
        }
        try {
            return config.cuda() ? products(hidden, heads, share) : whole(hidden, heads, share);
        } catch (NativeLibraryUnavailableException e) {
            return row(hidden, heads, 0, Outcome.lacking(e), null);
        } catch (JcclException e) {
            return row(hidden, heads, 0, Outcome.failed(e), null);
        }
    }

    private ProbeResult.Layer whole(int hidden, int heads, double share) {
        try (TransformerLayer layer =
                new TransformerLayer(hidden, heads, CONTEXT, SEQUENCES, config.threads())) {
            double error = layer.gradientError();
            if (!(error < TOLERANCE)) {
                Outcome wrong =
                        Outcome.wrong(
                                String.format(
                                        Locale.ROOT,
                                        "the gradient differs from a difference of outputs by"
                                                + " %.3g of its length, expected less than %s",
                                        error,
                                        TOLERANCE));
                return row(hidden, heads, layer.flops(), wrong, wrong);
            }
            Timing forward = Meter.measure(times -> repeat(layer::forward, times), share / 3);
            Timing backward = Meter.measure(times -> repeat(layer::backward, times), share / 2);
            rate = Math.max(rate, layer.flops() / forward.minSeconds());
            return row(
                    hidden,
                    heads,
                    layer.flops(),
                    Outcome.measured(forward),
                    Outcome.measured(backward));
        }
    }

    private static void repeat(Runnable pass, int times) {
        for (int i = 0; i < times; i++) {
            pass.run();
        }
    }

    /** The four products of a layer, on a device without the layer's other kernels. */
    private ProbeResult.Layer products(int hidden, int heads, double share) {
        Device device = config.device();
        Stream stream = device.defaultStream();
        int[][] weights = {
            {hidden, 3 * hidden},
            {hidden, hidden},
            {hidden, GptShape.WIDTH * hidden},
            {GptShape.WIDTH * hidden, hidden},
        };
        List<Runnable> forward = new ArrayList<>();
        List<Runnable> backward = new ArrayList<>();
        List<Buffer> outputs = new ArrayList<>();
        try (Owned owned = new Owned()) {
            Matmul matmul = owned.add(Matmul.of(device, 1));
            double flops = 0;
            for (int[] w : weights) {
                flops += 2.0 * ROWS * w[0] * w[1];
                Matrix x = ones(owned, ROWS, w[0]);
                Matrix values = ones(owned, w[0], w[1]);
                Matrix y = ones(owned, ROWS, w[1]);
                Matrix dx = ones(owned, ROWS, w[0]);
                Matrix dw = ones(owned, w[0], w[1]);
                Matrix dy = ones(owned, ROWS, w[1]);
                outputs.add(y.buffer());
                forward.add(() -> matmul.multiply(x, values, y, stream));
                backward.add(() -> matmul.multiply(x.transposed(), dy, dw, 0, stream));
                backward.add(() -> matmul.multiply(dy, values.transposed(), dx, 0, stream));
            }
            Timing f = Meter.measure(times -> enqueue(forward, times, stream), share / 3);
            Timing b = Meter.measure(times -> enqueue(backward, times, stream), share / 2);
            rate = Math.max(rate, flops / f.minSeconds());
            for (int i = 0; i < weights.length; i++) {
                float[] found = new float[Math.toIntExact(outputs.get(i).count())];
                outputs.get(i).copyTo(found);
                for (float v : found) {
                    if (v != weights[i][0]) {
                        Outcome wrong =
                                Outcome.wrong(
                                        "a product of ones is "
                                                + v
                                                + ", expected "
                                                + weights[i][0]);
                        return row(hidden, heads, flops, wrong, wrong);
                    }
                }
            }
            return row(
                    hidden,
                    heads,
                    flops,
                    Outcome.measured(f).withNote(PRODUCTS_ALONE),
                    Outcome.measured(b).withNote(PRODUCTS_ALONE));
        }
    }

    private static void enqueue(List<Runnable> products, int times, Stream stream) {
        for (int i = 0; i < times; i++) {
            products.forEach(Runnable::run);
        }
        stream.synchronize();
    }

    private Matrix ones(Owned owned, int rows, int columns) {
        Buffer b = owned.add(config.device().allocate(DataType.FLOAT32, (long) rows * columns));
        float[] values = new float[rows * columns];
        Arrays.fill(values, 1);
        b.copyFrom(values);
        return Matrix.of(b, rows, columns);
    }

    private ProbeResult.Layer row(
            int hidden, int heads, double flops, Outcome forward, @Nullable Outcome backward) {
        Outcome back = backward == null ? forward : backward;
        return new ProbeResult.Layer(
                hidden,
                heads,
                CONTEXT,
                SEQUENCES,
                DataType.FLOAT32.label(),
                config.cuda() ? "products" : "layer",
                flops,
                forward,
                back,
                forward.rate(flops / 1e12),
                back.rate(2 * flops / 1e12));
    }
}
