package io.jccl.bench.probe;

import io.jccl.bindings.CublasException;
import io.jccl.bindings.NativeLibraryUnavailableException;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.device.Buffer;
import io.jccl.error.JcclException;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Products of square matrices by size and type. */
final class MatmulProbe {
    /** Size of a product whose rate predicts the time of larger ones. */
    private static final int SMALL = 256;

    private static final double SMALL_SECONDS = 0.2;

    /** Share of the time for compilation, per type. */
    private static final double COMPILE_SHARE = 0.15;

    private final ProbeConfig config;
    private final long room;
    private final Consumer<Buffer> afterProduct;
    private final Consumer<String> progress;

    /** Floating-point operations per second of the fastest batch so far, by type. */
    private final Map<MatrixType, Double> rates = new EnumMap<>(MatrixType.class);

    /**
     * Creates the probe.
     *
     * @param room bytes available to matrices
     */
    MatmulProbe(
            ProbeConfig config,
            long room,
            Consumer<Buffer> afterProduct,
            Consumer<String> progress) {
        this.config = config;
        this.room = room;
        this.afterProduct = afterProduct;
        this.progress = progress;
    }

    List<ProbeResult.Product> run(Budget budget) {
        List<ProbeResult.Product> rows = new ArrayList<>();
        List<MatrixType> types = new ArrayList<>(config.types());
        for (MatrixType type : config.types()) {
            String lack = DeviceProducts.lack(config.device(), type);
            if (lack != null) {
                types.remove(type);
                rows.add(row(type, config.sizes().getFirst(), Outcome.lacking(lack)));
            }
        }
        int rest = types.size() * config.sizes().size();
        try (DeviceProducts products =
                new DeviceProducts(config.device(), config.threads(), afterProduct)) {
            if (!config.cuda()) {
                for (MatrixType type : types) {
                    progress.accept("products of " + type + ", compiling");
                    products.compile(type, budget.left() * COMPILE_SHARE);
                }
            }
            for (int n : config.sizes()) {
                for (MatrixType type : types) {
                    rows.add(row(type, n, measure(products, type, n, budget.share(rest--))));
                }
            }
        } catch (NativeLibraryUnavailableException e) {
            for (MatrixType type : types) {
                rows.add(row(type, config.sizes().getFirst(), Outcome.lacking(e)));
            }
        }
        return rows;
    }

    private static ProbeResult.Product row(MatrixType type, int n, Outcome outcome) {
        Double rate = outcome.rate(flops(n) / 1e12);
        return new ProbeResult.Product(type.toString(), n, outcome, rate);
    }

    private static double flops(int n) {
        return 2.0 * n * n * n;
    }

    private Outcome measure(DeviceProducts products, MatrixType type, int n, double share) {
        progress.accept("product of " + n + " x " + n + " " + type);
        try {
            if (n > SMALL && !rates.containsKey(type)) {
                note(type, SMALL, products.measure(type, SMALL, SMALL_SECONDS));
            }
            String excess = excess(type, n, share);
            return excess != null
                    ? Outcome.skipped(excess)
                    : note(type, n, products.measure(type, n, share));
        } catch (CublasException e) {
            return e.status() == cublas_h.CUBLAS_STATUS_NOT_SUPPORTED()
                    ? Outcome.lacking(e)
                    : Outcome.failed(e);
        } catch (JcclException e) {
            return Outcome.failed(e);
        }
    }

    private Outcome note(MatrixType type, int n, Outcome outcome) {
        Timing timing = outcome.timing();
        if (timing != null) {
            rates.merge(type, flops(n) / timing.minSeconds(), Math::max);
        }
        return outcome;
    }

    /** Why a product is skipped; null if it is not. */
    private @Nullable String excess(MatrixType type, int n, double share) {
        long bytes = type.bytes(n);
        if (bytes > room) {
            return "needs " + bytes + " bytes, more than the " + room + " that may be used";
        }
        // Twice: warm-up and measurement. Small ones are fast enough in any case.
        Double rate = rates.get(type);
        double seconds = rate == null || n <= SMALL ? 0 : 2 * flops(n) / rate;
        return seconds > share
                ? String.format(
                        Locale.ROOT,
                        "would take %.1f s, more than the %.1f s left for it; raise --time-budget",
                        seconds,
                        share)
                : null;
    }
}
