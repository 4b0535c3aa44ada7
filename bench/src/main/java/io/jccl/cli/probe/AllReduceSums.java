package io.jccl.cli.probe;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.bench.Collective;
import io.jccl.bench.PerfRun;
import io.jccl.bench.probe.Outcome;
import io.jccl.bench.probe.ProbeConfig;
import io.jccl.bench.probe.ProbeResult;
import io.jccl.bench.probe.ProbeRun;
import io.jccl.bench.probe.Timing;
import io.jccl.cli.perf.PerfCommand;
import io.jccl.cli.shell.Parsed;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import picocli.CommandLine;

/**
 * Measures allReduce by running {@code jccl all_reduce} itself, so that the results are those of
 * its table.
 */
final class AllReduceSums implements ProbeRun.Sums {
    private static final long SMALLEST = 8;
    private static final long LARGEST = 8 << 20;
    private static final String TIMEOUT_SECONDS = "60";

    private final PerfRun.Seam seam;

    /**
     * Measures.
     *
     * @param seam lets a test corrupt results
     */
    AllReduceSums(PerfRun.Seam seam) {
        this.seam = seam;
    }

    @Override
    public List<ProbeResult.AllReduce> run(ProbeConfig config, double seconds) {
        boolean cuda = config.device().kind() == Device.Kind.CUDA;
        String engine = cuda ? "nccl" : "host";
        int ranks = cuda ? Cuda.deviceCount() : Math.max(2, Math.min(config.threads(), cpus()));
        if (cuda && ranks < 2) {
            return List.of(none(engine, ranks, Outcome.Status.LACKING, "needs two GPUs"));
        }
        if (!cuda && cpus() < 2) {
            return List.of(
                    none(
                            engine,
                            ranks,
                            Outcome.Status.SKIPPED,
                            "this process may use one CPU: ranks would take turns"));
        }
        if (seconds < PerfRun.MOST_WARM_UP_SECONDS) {
            return List.of(
                    none(
                            engine,
                            ranks,
                            Outcome.Status.SKIPPED,
                            format(
                                    "its warm-up may take %.0f s, more than the %.1f s left for it;"
                                            + " raise --time-budget",
                                    PerfRun.MOST_WARM_UP_SECONDS, seconds)));
        }
        long most = Math.clamp(config.maxBytes(), SMALLEST * 4, LARGEST);
        int factor = (int) Math.sqrt((double) most / SMALLEST);
        String line =
                "--engine %s -g %s -b %s -e %s -f %s -T %s --json=-"
                        .formatted(engine, ranks, SMALLEST, most, factor, TIMEOUT_SECONDS);
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int status =
                // All ranks are threads of this process, regardless of a launcher's variables.
                Parsed.byType(
                                new CommandLine(
                                        new PerfCommand(Collective.ALL_REDUCE, Map.of(), seam)))
                        .setOut(new PrintWriter(out))
                        .setErr(new PrintWriter(err))
                        .setExecutionExceptionHandler((e, l, r) -> {
                            l.getErr().println(e.getMessage());
                            return 1;
                        })
                        .execute(line.split(" "));
        return rows(engine, ranks, status, out.toString(), err.toString().strip());
    }

    private static int cpus() {
        return Runtime.getRuntime().availableProcessors();
    }

    private static ProbeResult.AllReduce none(
            String engine, int ranks, Outcome.Status status, String note) {
        return new ProbeResult.AllReduce(
                engine, ranks, SMALLEST, null, new Outcome(status, note, null), null);
    }

    private static List<ProbeResult.AllReduce> rows(
            String engine, int ranks, int status, String json, String error) {
        List<ProbeResult.AllReduce> rows = new ArrayList<>();
        try {
            JsonNode top = new ObjectMapper().readTree(json);
            int iterations = top.path("config").path("iterations").asInt();
            for (JsonNode line : top.path("results")) {
                JsonNode side = line.path("out_of_place");
                long wrong = side.path("nwrong").asLong();
                double micros = side.path("time").asDouble();
                Timing timing =
                        new Timing(
                                micros / 1e6,
                                side.path("min").asDouble(micros) / 1e6,
                                side.path("max").asDouble(micros) / 1e6,
                                1,
                                iterations,
                                true);
                Outcome outcome =
                        wrong > 0
                                ? new Outcome(Outcome.Status.WRONG, wrong + " wrong elements", null)
                                : new Outcome(Outcome.Status.MEASURED, null, timing);
                rows.add(
                        new ProbeResult.AllReduce(
                                engine,
                                ranks,
                                line.path("size").asLong(),
                                line.path("algorithm").asText(),
                                outcome,
                                wrong > 0 ? null : side.path("bus_bw").asDouble()));
            }
        } catch (IOException e) {
            rows.clear(); // reported below, like every failure
        }
        if (rows.isEmpty()
                || (status != 0 && rows.stream().allMatch(r -> r.outcome().timing() != null))) {
            rows.add(
                    none(
                            engine,
                            ranks,
                            Outcome.Status.FAILED,
                            "jccl all_reduce ended with status " + status + ": " + error));
        }
        return rows;
    }
}
