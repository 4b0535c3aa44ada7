package io.jccl.cli.report;

import static io.jccl.cli.shell.Text.words;

import com.fasterxml.jackson.databind.JsonNode;
import io.jccl.bench.report.Axis;
import io.jccl.bench.report.BarChart;
import io.jccl.bench.report.BarChart.Bar;
import io.jccl.bench.report.BarChart.Group;
import io.jccl.bench.report.Chart;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.Page;
import io.jccl.bench.report.Table;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** Bar charts for commands with few result values: one bar per value, one colour per run. */
final class Bars {
    private static final Map<String, String> OFFLOAD = new LinkedHashMap<>();

    static {
        OFFLOAD.put("copy_only_ms", "copies alone");
        OFFLOAD.put("compute_only_ms", "work alone");
        OFFLOAD.put("unrelated_ms", "both at once, neither waits for the other");
        OFFLOAD.put("overlapped_ms", "overlapped, layer by layer");
        OFFLOAD.put("ideal_ms", "ideal: the longer of copies and work");
    }

    /** Values of several runs by name. */
    static final class Chosen {
        private final List<Run> runs;
        private final Map<String, List<Bar>> groups = new LinkedHashMap<>();

        Chosen(List<Run> runs) {
            this.runs = runs;
        }

        void add(Run run, String name, double value, String unit) {
            add(run, name, value, Double.NaN, Double.NaN, unit);
        }

        void add(Run run, String name, double value, double low, double high, String unit) {
            String text = Axis.number(value) + unit;
            String spread =
                    Double.isNaN(low)
                            ? ""
                            : ", " + Axis.number(low) + " to " + Axis.number(high) + unit;
            add(
                    name,
                    new Bar(
                            runs.indexOf(run),
                            value,
                            low,
                            high,
                            text,
                            run.named(name) + ": " + text + spread));
        }

        void add(String name, Bar bar) {
            groups.computeIfAbsent(name, n -> new ArrayList<>()).add(bar);
        }

        void addTo(List<Chart> charts, String title) {
            List<String> names =
                    runs.size() == 1 ? List.of() : runs.stream().map(Run::name).toList();
            BarChart chart =
                    new BarChart(
                            title,
                            names,
                            groups.entrySet().stream()
                                    .map(e -> new Group(e.getKey(), e.getValue()))
                                    .toList());
            if (chart.hasBars()) {
                charts.add(chart);
            }
        }
    }

    private Bars() {}

    static void bandwidth(Page page, List<Run> runs) {
        Chosen speed = new Chosen(runs);
        Chosen latency = new Chosen(runs);
        Table table = table("Copies", runs, List.of("case", "min", "average", "max", "status"));
        List<List<String>> rows = new ArrayList<>();
        for (Run run : runs) {
            for (JsonNode c : run.list(run.root().path("jccl_bandwidth"), "testcases")) {
                String name = c.path("name").asText();
                if (c.has("error")) {
                    page.warning(run.named(name) + " failed: " + c.path("error").asText());
                }
                List<String> row =
                        new ArrayList<>(runs.size() > 1 ? List.of(run.name()) : List.of());
                row.add(name);
                if (c.has("average")) {
                    double low = run.number(c, "min");
                    double high = run.number(c, "max");
                    boolean time = name.contains("_latency_");
                    // A single pair of devices has no spread.
                    (time ? latency : speed)
                            .add(
                                    run,
                                    name,
                                    run.number(c, "average"),
                                    low == high ? Double.NaN : low,
                                    low == high ? Double.NaN : high,
                                    time ? " us" : " GB/s");
                }
                for (String key : List.of("min", "average", "max")) {
                    row.add(Axis.number(Run.optional(c, key)));
                }
                row.add(c.path("status").asText());
                rows.add(row);
            }
        }
        List<Chart> charts = new ArrayList<>();
        speed.addTo(charts, "Bandwidth, GB/s (mean of all pairs of devices)");
        latency.addTo(charts, "Latency of 8 bytes, us");
        page.add(
                new Figure(
                        "Copies between memories",
                        "Where there are several devices, thin lines go from the slowest to the"
                                + " fastest pair.",
                        charts));
        page.add(new Table(table.title(), table.header(), rows));
    }

    static void offload(Page page, List<Run> runs) {
        Chosen times = new Chosen(runs);
        Chosen share = new Chosen(runs);
        for (Run run : runs) {
            JsonNode top = run.root().path("jccl_offload");
            OFFLOAD.forEach((key, name) -> times.add(run, name, run.number(top, key), " ms"));
            double[] samples =
                    doubles(run.list(top, "sample_efficiencies")).map(v -> 100 * v).toArray();
            boolean several = samples.length > 1;
            share.add(
                    run,
                    "overlap efficiency: ideal by overlapped time",
                    100 * run.number(top, "overlap_efficiency"),
                    several ? Arrays.stream(samples).min().orElse(0) : Double.NaN,
                    several ? Arrays.stream(samples).max().orElse(0) : Double.NaN,
                    " %");
            share.add(
                    run,
                    "stalls, of the overlapped time",
                    100 * run.number(top, "stall_ms") / run.number(top, "overlapped_ms"),
                    " %");
            if (top.path("wrong").isTextual()) {
                page.warning(run.named("wrong data: ") + top.path("wrong").asText());
            }
        }
        List<Chart> charts = new ArrayList<>();
        times.addTo(charts, "Time of all passes, ms");
        share.addTo(charts, "Overlap, %");
        page.add(
                new Figure(
                        "Copies hidden behind work",
                        "Medians of the samples; thin lines go from the worst to the best sample.",
                        charts));
        page.add(
                values(
                        runs,
                        r -> r.root().path("jccl_offload"),
                        words(
                                "device layers layer_bytes tier backward depth overlap_efficiency"
                                        + " device_peak_bytes stalls checked_layers")));
    }

    static void matmul(Page page, List<Run> runs) {
        Chosen speed = new Chosen(runs);
        Chosen shares = new Chosen(runs);
        Chosen bytes = new Chosen(runs);
        for (Run run : runs) {
            JsonNode m = run.root();
            speed.add(run, "product", run.number(m, "gigaflops"), " GFLOP/s");
            shares.add(run, "products", 100 * run.number(m, "computeShare"), " %");
            shares.add(
                    run,
                    "communication, waits included, mostly overlapping products",
                    100 * run.number(m, "communicationShare"),
                    " %");
            shares.add(
                    run, "not hidden: no product ran", 100 * run.number(m, "notHiddenShare"), " %");
            for (String key : List.of("receivedBytes", "toDeviceBytes")) {
                String name = key.startsWith("r") ? "received" : "to the device";
                bytes.add(run, name, run.number(m, key), "B");
                bytes.add(run, name + ", predicted", run.number(m.path("plan"), key), "B");
            }
            if (run.number(m, "wrongRanks") > 0) {
                page.warning(run.named("the product is wrong"));
            }
        }
        List<Chart> charts = new ArrayList<>();
        speed.addTo(charts, "Speed, GFLOP/s");
        shares.addTo(charts, "Shares of the time, %");
        bytes.addTo(charts, "Bytes of rank 0");
        page.add(new Figure("Product of matrices", "", charts));
        page.add(
                values(
                        runs,
                        Run::root,
                        words(
                                "size ranks engine threads tier seconds gigaflops devicePeakBytes"
                                        + " deviceBudgetBytes")));
    }

    private static java.util.stream.DoubleStream doubles(JsonNode list) {
        return java.util.stream.StreamSupport.stream(list.spliterator(), false)
                .mapToDouble(JsonNode::asDouble);
    }

    private static Table table(String title, List<Run> runs, List<String> header) {
        List<String> all = new ArrayList<>(runs.size() > 1 ? List.of("run") : List.of());
        all.addAll(header);
        return new Table(title, all, List.of());
    }

    /** Values with their names in the JSON, one column per run. */
    private static Table values(List<Run> runs, Function<Run, JsonNode> of, List<String> keys) {
        List<String> header = new ArrayList<>(List.of("value"));
        runs.forEach(r -> header.add(r.name().isEmpty() ? "" : r.name()));
        List<List<String>> rows = new ArrayList<>();
        for (String key : keys) {
            List<String> row = new ArrayList<>(List.of(key));
            runs.forEach(r -> row.add(text(of.apply(r).get(key))));
            rows.add(row);
        }
        return new Table("Settings and results", header, rows);
    }

    private static String text(@Nullable JsonNode n) {
        return n == null ? "-" : n.isFloatingPointNumber() ? Axis.number(n.asDouble()) : n.asText();
    }
}
