package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.shell.Text.lower;

import io.jccl.bench.report.Axis;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.LineChart;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import io.jccl.bench.report.Page;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Tuning;
import java.util.ArrayList;
import java.util.List;

/** Predictions by size with their spread, and what was measured. */
final class PredictionPlot {
    private static final Axis SIZE = new Axis("size", Axis.Scale.BYTES);
    private static final Axis BUS = new Axis("bus bandwidth, GB/s", Axis.Scale.LINEAR);
    private static final Axis TIME = new Axis("time, us", Axis.Scale.DECADES);

    private PredictionPlot() {}

    /** An SVG document; empty if nothing is predicted. */
    static String of(Findings f) {
        Tuning tuning = f.tuning();
        if (tuning == null || f.predictions().isEmpty()) {
            return "";
        }
        List<Point> busbw = new ArrayList<>();
        List<Point> time = new ArrayList<>();
        for (int power = 3; power <= 34; power++) {
            Prediction p = tuning.choose(1L << power);
            double more = 1 + p.spread();
            double less = Math.max(0.4, 1 - p.spread());
            String tip =
                    format(
                            "%s, %s %s: %.1f us, %.2f GB/s",
                            Axis.bytes((double) p.bytes()),
                            lower(p.algorithm()),
                            lower(p.protocol()),
                            p.timeUs(),
                            p.busbwGBps());
            // The spread is of the time.
            time.add(
                    new Point(
                            (double) p.bytes(),
                            p.timeUs(),
                            p.timeUs() * less,
                            p.timeUs() * more,
                            tip));
            double bus = p.busbwGBps();
            busbw.add(new Point((double) p.bytes(), bus, bus / more, bus / less, tip));
        }
        List<Series> rates = new ArrayList<>();
        List<Series> times = new ArrayList<>();
        rates.add(new Series("predicted", 0, Line.SOLID, busbw));
        times.add(new Series("predicted", 0, Line.SOLID, time));
        Verdict verdict = f.answers().verdict();
        if (verdict != null) {
            List<Point> busMeasured = new ArrayList<>();
            List<Point> timeMeasured = new ArrayList<>();
            for (Verdict.Size s : verdict.sizes()) {
                MeasuredLog.Line m = s.measured();
                String tip =
                        Axis.bytes((double) m.bytes()) + ", measured: " + m.busbwGBps() + " GB/s";
                busMeasured.add(new Point((double) m.bytes(), m.busbwGBps(), tip));
                timeMeasured.add(new Point((double) m.bytes(), m.timeUs(), tip));
            }
            rates.add(new Series("measured", 1, Line.DASHED, busMeasured));
            times.add(new Series("measured", 1, Line.DASHED, timeMeasured));
        }
        return new Page(f.operation().command() + " on " + f.name())
                .add(
                        new Figure(
                                "Prediction by size" + (verdict == null ? "" : ", and the log"),
                                "What NCCL chooses. The bands are the spread: how far a healthy"
                                        + " machine may be from it.",
                                List.of(
                                        LineChart.of(
                                                "Bus bandwidth by size",
                                                SIZE,
                                                BUS,
                                                rates,
                                                List.of()),
                                        LineChart.of(
                                                "Time by size", SIZE, TIME, times, List.of()))))
                .svg();
    }
}
