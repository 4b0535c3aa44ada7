package io.jccl.cli.train;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.Version;
import io.jccl.internal.Cpus;
import io.jccl.train.Techniques;
import io.jccl.train.fit.Attempt;
import io.jccl.train.fit.Experiment;
import io.jccl.train.fit.Settings;
import io.jccl.train.fit.TechniqueSet;
import java.io.PrintWriter;
import java.util.List;

/** The result of {@code fit-demo} as text and JSON. */
final class FitReport {
    private static final String LINE = "%-32s %10s %8s %10s %10s %10s %10s  %s";

    private final Settings settings;
    private final Engine engine;
    private final List<Experiment.Row> rows;

    FitReport(Settings settings, Engine engine, List<Experiment.Row> rows) {
        this.settings = settings;
        this.engine = engine;
        this.rows = rows;
    }

    /** The settings in one line. */
    String subtitle() {
        return format(
                "%d ranks with %s of device memory each, %s of host memory and %s of NVMe in all;"
                        + " width %d, %d samples of %d tokens a step; %s, %d processors, JDK %s",
                settings.ranks(),
                Amounts.text(settings.deviceBytes()),
                Amounts.text(settings.hostBytes()),
                Amounts.text(settings.nvmeBytes()),
                settings.hidden(),
                settings.batch(),
                settings.context(),
                engine.processor(),
                Cpus.processors(),
                Runtime.version());
    }

    void print(PrintWriter out) {
        out.println("# jccl " + Version.TEXT + " fit-demo");
        out.println("# " + subtitle());
        out.println("# device: peak of the fullest rank; host and NVMe: peak of all ranks");
        out.println(
                format(
                                LINE,
                                "techniques",
                                "largest",
                                "x plain",
                                "samples/s",
                                "device",
                                "host",
                                "NVMe",
                                "what stopped the next size")
                        .stripTrailing());
        for (Experiment.Row row : rows) {
            Attempt.Trained t = row.largest();
            out.println(
                    format(
                            LINE,
                            row.set().title(),
                            Amounts.parameters(t.parameters()),
                            times(row),
                            format("%.0f", t.samplesPerSecond()),
                            Amounts.text(t.deviceBytes()),
                            Amounts.text(t.hostBytes()),
                            Amounts.text(t.nvmeBytes()),
                            stop(row)));
        }
        out.flush();
    }

    private static String stop(Experiment.Row row) {
        Attempt.Refused r = row.next();
        if (r == null) {
            return "--max-blocks";
        }
        return r.asked() == 0
                ? r.tier() + ": full, as a library found"
                : r.tier() + ": " + r.asked() + " bytes asked for, " + r.free() + " free";
    }

    private String times(Experiment.Row row) {
        double x = timesPlain(row);
        return Double.isNaN(x) ? "-" : format("%.1f", x);
    }

    /** Size relative to plain data parallelism; NaN if that did not run. */
    private double timesPlain(Experiment.Row row) {
        return rows.stream()
                .filter(r -> r.set().equals(TechniqueSet.PLAIN))
                .mapToDouble(r -> (double) row.largest().parameters() / r.largest().parameters())
                .findAny()
                .orElse(Double.NaN);
    }

    ObjectNode json() {
        ObjectNode root = new ObjectMapper().createObjectNode();
        ObjectNode top = root.putObject("jccl_fit_demo");
        top.put("schema", 1);
        top.put("version", Version.TEXT);
        top.put("setting", subtitle());
        top.put("engine", engine.text());
        top.put("device", engine.processor());
        top.put("processors", Cpus.processors());
        top.put("java", Runtime.version().toString());
        top.put("ranks", settings.ranks());
        top.put("hidden", settings.hidden());
        top.put("context", settings.context());
        top.put("batch", settings.batch());
        top.put("micro_batches", settings.microBatches());
        top.put("steps", settings.steps());
        top.put("device_bytes", settings.deviceBytes());
        top.put("host_bytes", settings.hostBytes());
        top.put("nvme_bytes", settings.nvmeBytes());
        ArrayNode sets = top.putArray("sets");
        for (Experiment.Row row : rows) {
            ObjectNode n = sets.addObject();
            TechniqueSet set = row.set();
            Techniques t = set.others();
            n.put("name", set.name());
            n.put("title", set.title());
            n.put("zero_stage", t.zero());
            n.put("mixed_precision", t.narrow());
            n.put("accumulation", set.accumulation());
            n.put("recomputation", t.recompute());
            n.put("cpu_offload", t.offload().host());
            n.put("nvme_offload", t.offload().drive());
            n.put("largest_parameters", row.largest().parameters());
            double x = timesPlain(row);
            if (Double.isNaN(x)) {
                n.putNull("times_plain");
            } else {
                n.put("times_plain", x);
            }
            Attempt.Refused r = row.next();
            if (r == null) {
                n.putNull("stopped_by");
            } else {
                ObjectNode stopped = n.putObject("stopped_by");
                stopped.put("parameters", r.parameters());
                stopped.put("tier", r.tier().name());
                stopped.put("asked_bytes", r.asked());
                stopped.put("free_bytes", r.free());
            }
            ArrayNode runs = n.putArray("runs");
            for (Attempt.Trained a : row.runs()) {
                ObjectNode run = runs.addObject();
                run.put("blocks", a.blocks());
                run.put("parameters", a.parameters());
                run.put("samples_per_second", a.samplesPerSecond());
                run.put("first_loss", a.losses().getFirst());
                run.put("last_loss", a.losses().getLast());
                run.put("steps", a.losses().size());
                run.put("device_peak_bytes", a.deviceBytes());
                run.put("host_peak_bytes", a.hostBytes());
                run.put("nvme_peak_bytes", a.nvmeBytes());
            }
        }
        return root;
    }
}
