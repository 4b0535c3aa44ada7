package io.jccl.bench.probe;

import io.jccl.bench.probe.ProbeResult.Roofline;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The roofline of the measurements (Williams, Waterman, Patterson: "Roofline: An Insightful Visual
 * Performance Model", CACM 52:4, 2009). Ceilings are measured ones, not the vendor's.
 */
final class Rooflines {
    private Rooflines() {}

    static Roofline of(
            List<ProbeResult.Product> products,
            List<ProbeResult.Elementwise> elementwise,
            List<ProbeResult.Access> memory,
            List<ProbeResult.Layer> layers) {
        Map<String, Double> compute = new LinkedHashMap<>();
        Map<String, Double> bandwidth = new LinkedHashMap<>();
        List<Roofline.Point> points = new ArrayList<>();
        for (ProbeResult.Access m : memory) {
            Double rate = m.gigabytesPerSecond();
            if (rate != null) {
                bandwidth.merge(m.level(), rate, Math::max);
            }
        }
        for (ProbeResult.Product p : products) {
            Double rate = p.teraflops();
            if (rate != null) {
                compute.merge(p.type(), rate, Math::max);
                MatrixType type = MatrixType.valueOf(p.type().toUpperCase(Locale.ROOT));
                double flops = 2.0 * p.size() * p.size() * p.size();
                points.add(
                        new Roofline.Point(
                                "matmul " + p.type() + " " + p.size(),
                                flops / type.bytes(p.size()),
                                rate));
            }
        }
        for (ProbeResult.Elementwise e : elementwise) {
            Double rate = e.gigabytesPerSecond();
            // A cast has no operation, so no place on logarithmic axes.
            if (rate != null && e.flopsPerElement() > 0) {
                double intensity = (double) e.flopsPerElement() / e.bytesPerElement();
                points.add(
                        new Roofline.Point(
                                e.operation() + " " + e.elements(),
                                intensity,
                                rate * intensity / 1e3));
            }
        }
        for (ProbeResult.Layer l : layers) {
            add(points, l, "forward", l.forwardTeraflops(), l.forwardFlops(), 1);
            // The backward pass reads the weights and writes as many gradients.
            add(points, l, "backward", l.backwardTeraflops(), 2 * l.forwardFlops(), 2);
        }
        return new Roofline(
                compute.entrySet().stream()
                        .map(e -> new Roofline.Compute(e.getKey(), e.getValue()))
                        .toList(),
                bandwidth.entrySet().stream()
                        .map(e -> new Roofline.Bandwidth(e.getKey(), e.getValue()))
                        .toList(),
                points);
    }

    /** The minimum data movement of a pass: weights, input and output. */
    private static void add(
            List<Roofline.Point> to,
            ProbeResult.Layer l,
            String pass,
            @Nullable Double rate,
            double flops,
            int times) {
        if (rate != null) {
            double rows = (double) l.context() * l.sequences();
            double bytes = Float.BYTES * (12.0 * l.hidden() * l.hidden() + 2 * rows * l.hidden());
            to.add(
                    new Roofline.Point(
                            l.part() + " " + l.hidden() + " " + pass,
                            flops / (times * bytes),
                            rate));
        }
    }
}
