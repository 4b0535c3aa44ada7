package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.lower;
import static io.jccl.cli.shell.Text.words;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.PerfConfig;
import io.jccl.bench.PerfConfig.Blocking;
import io.jccl.bench.PerfConfig.Timing;
import io.jccl.bench.Report;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Secrets;
import io.jccl.cli.shell.Version;
import io.jccl.topology.cost.Prediction;
import java.io.IOException;
import java.io.PrintWriter;
import java.time.Instant;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * The results as JSON, under the keys of nccl-tests' {@code -J}. The file appears complete, when
 * the run has ended.
 */
final class JsonReport implements Report {
    private static final int SCHEMA = 1;

    /** Variables that affect a run; others are private. */
    private static final List<String> RECORDED =
            words(
                    "JCCL_ NCCL_ CUDA_ OMPI_ PMI_ PMIX_RANK SLURM_ OMP_ RANK WORLD_SIZE"
                            + " LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
                            + " JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS");

    private final JsonOption json;
    private final HtmlOption html;
    private final PrintWriter out;
    private final ObjectNode root = JsonNodeFactory.instance.objectNode();
    private final ArrayNode results = JsonNodeFactory.instance.arrayNode();
    private final Map<String, String> environment;
    private final @Nullable Forecast forecast;

    JsonReport(
            JsonOption json,
            HtmlOption html,
            PrintWriter out,
            Map<String, String> environment,
            @Nullable Forecast forecast) {
        this.json = json;
        this.html = html;
        this.out = out;
        this.environment = environment;
        this.forecast = forecast;
    }

    @Override
    public void begin(PerfConfig config, String engine, List<RankInfo> ranks) {
        root.put("version", SCHEMA);
        root.put("start_time", now());
        config.arguments().forEach(root.putArray("args")::add);
        Reports.sign(root, config.arguments());
        ArrayNode env = root.putArray("env");
        new TreeMap<>(environment)
                .forEach((name, value) -> {
                    if (RECORDED.stream().anyMatch(name::startsWith)) {
                        env.add(name + "=" + Secrets.hidden(name, value));
                    }
                });
        // The engine is a key of JCCL's own; tools that read the file find the key they expect.
        root.putNull("nccl_version");
        root.put("jccl_version", Version.TEXT);
        ObjectNode c = root.putObject("config");
        c.put("collective", config.collective().command());
        c.put("engine", engine);
        c.put("nranks", ranks.size());
        c.put("nthreads", config.threads());
        c.put("ngpus", config.devices());
        c.put("minimum_bytes", config.minBytes());
        c.put("maximum_bytes", config.maxBytes());
        if (config.stepFactor() > 1) {
            c.put("step_factor", config.stepFactor());
        } else {
            c.put("step_bytes", config.stepBytes());
        }
        Timing t = config.timing();
        c.put("warmup_iters", t.warmups());
        c.put("iterations", t.iterations());
        c.put("iterations_automatic", t.isAutomatic(0));
        c.put("aggregated_iterations", t.aggregated());
        c.put("run_cycles", t.cycles());
        c.put("validation", config.checks());
        c.put("graph", t.graphLaunches());
        c.put("blocking_collectives", t.blocking() != Blocking.NONE);
        c.put("blocking", t.blocking().ordinal());
        c.put("per_iter_timing", t.perIteration());
        c.put("per_iter_skip", t.skipped());
        c.put("average", t.average().ordinal());
        c.put("report_cputime", t.cpuTime());
        c.put("unalign", config.buffers().unalign());
        c.put("local_register", config.buffers().registration());
        c.put("split", config.split().text());
        config.notes().forEach(c.putArray("notes")::add);
        c.put("algorithm", config.options().algorithm().name());
        c.put("timeout_seconds", config.options().timeout().toMillis() / 1000.0);
        ArrayNode devices = root.putArray("devices");
        for (RankInfo r : ranks) {
            ObjectNode d = devices.addObject();
            d.put("rank", r.rank());
            d.put("group", r.group());
            d.put("pid", r.pid());
            d.put("hostname", r.host());
            d.put("device", r.index());
            d.put("device_hex", r.engine());
            d.put("device_info", r.model());
            d.put("cpus", r.cpus());
        }
        if (forecast != null) {
            ObjectNode p = root.putObject("plan");
            p.put("channels", forecast.plan().channels().size());
            p.put("bus_bw", forecast.plan().bandwidthGBps());
            p.put("bound", forecast.plan().boundGBps());
            p.put("steering", lower(forecast.steering().mode()));
            ObjectNode settings = p.putObject("settings");
            forecast.steering()
                    .advice()
                    .settings()
                    .forEach(each -> settings.put(each.variable(), each.value()));
        }
    }

    @Override
    public void warmed(WarmUp w) {
        ObjectNode o = root.putObject("warm_up");
        o.put("seconds", w.seconds());
        o.put("operations", w.operations());
        o.put("paths", w.paths());
        o.put("steady_paths", w.steady());
        root.set("results", results);
    }

    @Override
    public void line(Line line) {
        ObjectNode o = results.addObject();
        o.put("cycle", line.cycle());
        o.put(
                "timestamp",
                DateTimeFormatter.ISO_LOCAL_DATE_TIME.format(
                        line.time().truncatedTo(ChronoUnit.SECONDS)));
        o.put("size", line.bytes());
        o.put("count", line.count());
        o.put("type", line.type());
        o.put("redop", line.op());
        o.put("root", line.root());
        o.put("algorithm", line.algorithm());
        side(o, "out_of_place", line.outOfPlace());
        side(o, "in_place", line.inPlace());
        Prediction predicted = forecast == null ? null : forecast.at(line.bytes());
        if (predicted != null) {
            ObjectNode p = o.putObject("predicted");
            p.put("algorithm", lower(predicted.algorithm()));
            p.put("protocol", lower(predicted.protocol()));
            p.put("time", predicted.timeUs());
            p.put("bus_bw", predicted.busbwGBps());
        }
    }

    private static void side(ObjectNode to, String key, @Nullable Measurement m) {
        if (m == null) {
            to.putNull(key);
            return;
        }
        ObjectNode o = to.putObject(key);
        o.put("time", m.micros());
        o.put("cpu_time", m.cpuMicros());
        o.put("alg_bw", m.algBw());
        o.put("bus_bw", m.busBw());
        if (m.wrong() < 0) {
            o.putNull("nwrong");
        } else {
            o.put("nwrong", m.wrong());
        }
        Spread s = m.spread();
        o.put("mean", s.mean());
        o.put("median", s.median());
        o.put("min", s.min());
        o.put("max", s.max());
        o.put("q1", s.q1());
        o.put("q3", s.q3());
        o.put("iterations", s.iterations());
        s.times().forEach(o.putArray("batches")::add);
        Iterations i = m.iterations();
        if (i != null) {
            ObjectNode p = to.putObject(key + "_per_iter");
            p.put("skipped_iterations", i.skipped());
            p.put("min_us", i.min());
            p.put("max_us", i.max());
            p.put("avg_us", i.avg());
            p.put("p50_us", i.p50());
            p.put("p95_us", i.p95());
            p.put("p99_us", i.p99());
            p.put("stdev_us", i.stdev());
            p.put("cv_pct", i.cv());
            ArrayNode times = p.putArray("times_us");
            i.times().forEach(times::add);
        }
    }

    @Override
    public void end(Summary summary) throws IOException {
        ObjectNode bounds = root.putObject("out_of_bounds");
        bounds.put("count", summary.outOfBounds());
        bounds.put("okay", summary.outOfBounds() == 0);
        ObjectNode average = root.putObject("average_bus_bandwidth");
        average.put("bandwidth", summary.busBw());
        if (summary.enough() == null) {
            average.put("okay", "unchecked");
        } else {
            average.put("okay", summary.enough());
        }
        MemoryUse m = summary.memory();
        if (m != null) {
            ObjectNode memory = root.putObject("memory");
            memory.put("user_allocated", m.buffers());
            if (m.initialization() >= 0) {
                memory.put("initialization", m.initialization());
                memory.put("collective", m.collective());
            }
        }
        root.put("warning", summary.warning());
        root.put("end_time", now());
        json.write(out, root::toPrettyString);
        Reports.write(html, root);
    }

    private static String now() {
        return Instant.now().truncatedTo(ChronoUnit.SECONDS).toString();
    }
}
