package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.lower;

import io.jccl.bench.PerfConfig;
import io.jccl.bench.Report;
import io.jccl.topology.cost.Prediction;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** Prediction next to measurement, as comments that readers of nccl-tests' table skip. */
final class ForecastReport implements Report {
    private final Forecast forecast;
    private final PrintWriter out;
    private final List<Line> lines = new ArrayList<>();

    ForecastReport(Forecast forecast, PrintWriter out) {
        this.forecast = forecast;
        this.out = out;
    }

    @Override
    public void begin(PerfConfig config, String engine, List<RankInfo> ranks) {}

    @Override
    public void warmed(WarmUp warmUp) {}

    @Override
    public void line(Line line) {
        lines.add(line);
    }

    @Override
    public void end(Summary summary) {
        print(
                "# Plan: %d channels on %s, bus bandwidth %.1f GB/s of at most %.1f (%s)",
                forecast.plan().channels().size(),
                forecast.plan().topology().name(),
                forecast.plan().bandwidthGBps(),
                forecast.plan().boundGBps(),
                forecast.plan().bound());
        for (String advice : forecast.steering().advice().text().split("\n", -1)) {
            if (!advice.isBlank()) {
                print("# NCCL %s: %s", forecast.steering().mode(), advice.strip());
            }
        }
        print("# Predicted (by NCCL's constants) and measured, out-of-place:");
        print(
                "# %12s  %10s  %8s  %12s  %12s  %10s",
                "size", "algorithm", "protocol", "predicted us", "measured us", "ratio");
        for (Line line : lines) {
            Prediction p = forecast.at(line.bytes());
            if (p != null) {
                double measured = line.outOfPlace().micros();
                print(
                        "# %12d  %10s  %8s  %12.1f  %12.1f  %10.2f",
                        line.bytes(),
                        lower(p.algorithm()),
                        lower(p.protocol()),
                        p.timeUs(),
                        measured,
                        measured / p.timeUs());
            }
        }
        out.flush();
    }

    @SuppressWarnings("AnnotateFormatMethod") // the annotation would be a dependency
    private void print(String pattern, Object... values) {
        out.print(String.format(Locale.ROOT, pattern, values) + "\n");
    }
}
