package io.jccl.bench.probe;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A probe's result as charts of plain numbers, independent of the renderer. All axes are
 * logarithmic.
 *
 * @param charts lines over a size
 * @param roofline ceilings and points: operations per byte across, TFLOP/s up
 */
public record ProbeReport(List<Chart> charts, ProbeResult.Roofline roofline) {
    /**
     * Lines that share their axes.
     *
     * @param title title
     * @param x label of the x axis, with unit
     * @param y label of the y axis, with unit
     * @param lines lines by name
     */
    public record Chart(String title, String x, String y, Map<String, List<Point>> lines) {}

    /**
     * A median and the band between the slowest and the fastest batch.
     *
     * @param x its size
     * @param y the median
     * @param low of the slowest batch; with times, of the fastest
     * @param high the other end of the band
     */
    public record Point(double x, double y, double low, double high) {}

    /**
     * Arranges a result in charts. Missing measurements and empty charts are omitted.
     *
     * @param result the result
     * @return its charts
     */
    public static ProbeReport of(ProbeResult result) {
        List<Chart> charts = new ArrayList<>();
        Lines products = new Lines();
        for (ProbeResult.Product p : result.matmul()) {
            products.rate(p.type(), p.size(), p.outcome(), p.teraflops());
        }
        products.add(charts, "Products of n x n matrices", "n", "TFLOP/s");
        Lines memory = new Lines();
        for (ProbeResult.Access m : result.memory()) {
            String name = m.access() + ", threads: " + m.threads();
            memory.rate(name, (double) m.bytes(), m.outcome(), m.gigabytesPerSecond());
        }
        memory.add(charts, "Memory bandwidth by working set", "bytes", "GB/s");
        Lines elementwise = new Lines();
        for (ProbeResult.Elementwise e : result.elementwise()) {
            elementwise.rate(
                    e.operation(), (double) e.elements(), e.outcome(), e.gigabytesPerSecond());
        }
        elementwise.add(charts, "Elementwise operations", "elements", "GB/s");
        Lines sums = new Lines();
        for (ProbeResult.AllReduce a : result.allReduce()) {
            sums.rate(a.engine(), (double) a.bytes(), a.outcome(), a.busGigabytesPerSecond());
        }
        sums.add(charts, "allReduce, bus bandwidth", "bytes", "GB/s");
        Lines layers = new Lines();
        for (ProbeResult.Layer l : result.layers()) {
            layers.time("forward", l.hidden(), l.forward());
            layers.time("backward", l.hidden(), l.backward());
        }
        layers.add(charts, "A Transformer layer", "hidden", "ms");
        return new ProbeReport(charts, result.roofline());
    }

    private static final class Lines {
        private final Map<String, List<Point>> all = new LinkedHashMap<>();

        void rate(String name, double x, Outcome outcome, @Nullable Double rate) {
            Timing t = outcome.timing();
            if (t != null && rate != null) {
                double low = rate * (t.medianSeconds() / t.maxSeconds());
                double high = rate * (t.medianSeconds() / t.minSeconds());
                add(name, new Point(x, rate, low, high));
            }
        }

        void time(String name, double x, Outcome outcome) {
            Timing t = outcome.timing();
            if (t != null) {
                add(
                        name,
                        new Point(
                                x,
                                t.medianSeconds() * 1e3,
                                t.minSeconds() * 1e3,
                                t.maxSeconds() * 1e3));
            }
        }

        private void add(String name, Point point) {
            all.computeIfAbsent(name, n -> new ArrayList<>()).add(point);
        }

        void add(List<Chart> charts, String title, String x, String y) {
            if (!all.isEmpty()) {
                charts.add(new Chart(title, x, y, all));
            }
        }
    }
}
