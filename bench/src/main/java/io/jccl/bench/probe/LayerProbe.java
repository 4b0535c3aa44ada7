package io.jccl.bench.probe;

import static io.jccl.cli.shell.Text.format;

import io.jccl.bindings.NativeLibraryUnavailableException;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.train.TransformerLayer;
import java.util.ArrayList;
import java.util.List;
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
            try (TransformerLayer small =
                    new TransformerLayer(config.device(), HEAD, 1, CONTEXT / 4, 1, 1)) {
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
                            format(
                                    "needs %s bytes, more than the %s that may be used",
                                    bytes, room)),
                    null);
        }
        // Two forward and two backward passes, the latter with twice the operations, and the check.
        double flops = 24.0 * hidden * hidden * ROWS;
        double seconds = rate == 0 ? 0 : 12 * flops / rate;
        if (seconds > share) {
            String note =
                    format(
                            "would take %.1f s, more than the %.1f s left for it; raise"
                                    + " --time-budget",
                            seconds, share);
            return row(hidden, heads, 0, Outcome.skipped(note), null);
        }
        try {
            return measure(hidden, heads, share);
        } catch (NativeLibraryUnavailableException
                | UnsupportedOperationException
                | IllegalArgumentException e) {
            // No cuBLAS, no kernels, or heads that are too wide for them.
            return row(hidden, heads, 0, Outcome.lacking(e), null);
        } catch (JcclException e) {
            return row(hidden, heads, 0, Outcome.failed(e), null);
        }
    }

    private ProbeResult.Layer measure(int hidden, int heads, double share) {
        try (TransformerLayer layer =
                new TransformerLayer(
                        config.device(), hidden, heads, CONTEXT, SEQUENCES, config.threads())) {
            double error = layer.gradientError();
            if (!(error < TOLERANCE)) {
                Outcome wrong =
                        Outcome.wrong(
                                format(
                                        "the gradient differs from a difference of outputs by"
                                                + " %.3g of its length, expected less than %s",
                                        error, TOLERANCE));
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

    private void repeat(Runnable pass, int times) {
        for (int i = 0; i < times; i++) {
            pass.run();
        }
        config.device().defaultStream().synchronize();
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
                "layer",
                flops,
                forward,
                back,
                forward.rate(flops / 1e12),
                back.rate(2 * flops / 1e12));
    }
}
