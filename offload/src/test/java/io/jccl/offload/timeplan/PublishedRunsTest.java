package io.jccl.offload.timeplan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.offload.Tier;
import io.jccl.offload.memplan.Batch;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.Machine;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.Model;
import io.jccl.offload.memplan.OptimizerKind;
import io.jccl.offload.memplan.Overheads;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Precision;
import io.jccl.offload.memplan.Presets;
import io.jccl.offload.memplan.Recomputation;
import io.jccl.offload.memplan.ScalingRule;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.memplan.TrainingSystem;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import org.junit.jupiter.api.Test;

/** The tables of docs/plan-time.md are what is predicted. */
class PublishedRunsTest {
    private static final Path PAGE = Path.of("..", "docs", "plan-time.md");

    /** A line for each published run. */
    static List<String> runs() {
        List<String> lines = new ArrayList<>();
        for (PublishedRun r : PublishedRun.all()) {
            double predicted = r.predicted(r.predict());
            lines.add(
                    String.format(
                            Locale.ROOT,
                            "| %s, %s | %d x %s | %,.0f | %,.0f | %+.1f%% | %s |",
                            r.run(),
                            r.setting(),
                            r.gpus(),
                            r.machine().replaceFirst("x\\d+$", ""),
                            r.published(),
                            predicted,
                            100 * r.error(),
                            r.source() + (r.fitted() ? ", fit" : "")));
        }
        return lines;
    }

    /**
     * Median, worst and number of errors: of all, of those that set no constant, of each source.
     */
    static List<String> summary() {
        Map<String, List<Double>> errors = new LinkedHashMap<>();
        for (PublishedRun r : PublishedRun.all()) {
            double error = Math.abs(r.error());
            errors.computeIfAbsent("all", k -> new ArrayList<>()).add(error);
            String used = r.fitted() ? "a constant was set by" : "no constant was set by";
            errors.computeIfAbsent(used, k -> new ArrayList<>()).add(error);
            errors.computeIfAbsent(r.source(), k -> new ArrayList<>()).add(error);
        }
        List<String> lines = new ArrayList<>();
        errors.forEach((what, list) -> {
            List<Double> sorted = list.stream().sorted().toList();
            int n = sorted.size();
            double median = (sorted.get((n - 1) / 2) + sorted.get(n / 2)) / 2;
            lines.add(
                    String.format(
                            Locale.ROOT,
                            "| %s | %d | %.1f%% | %.1f%% |",
                            what,
                            n,
                            100 * median,
                            100 * sorted.getLast()));
        });
        return lines;
    }

    /** Two RTX 3090 of a desktop, whose processor's sixteen lanes are divided between them. */
    private static final String EIGHT_LANES =
            """
            <system version="1">
              <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="33">
                <pci busid="0000:01:00.0" class="0x030000" link_speed="16.0 GT/s PCIe" link_width="8">
                  <gpu dev="0" sm="86" rank="0" gdr="0"/>
                </pci>
                <pci busid="0000:02:00.0" class="0x030000" link_speed="16.0 GT/s PCIe" link_width="8">
                  <gpu dev="1" sm="86" rank="1" gdr="0"/>
                </pci>
              </cpu>
            </system>
            """;

    /** Two RTX 3090: what part of a step gradients take. */
    static List<String> pair() {
        GpuType type = GpuType.of("3090");
        Hardware lanes =
                Hardware.of(
                        "3090x2, eight lanes each",
                        TopologyReader.topology(EIGHT_LANES, ReadOptions.DEFAULT),
                        type,
                        Hardware.Given.NONE);
        List<String> lines = new ArrayList<>();
        for (Hardware hardware :
                List.of(
                        Hardware.named("3090-NVLinkx2", Hardware.Given.NONE),
                        Hardware.named("3090x2", Hardware.Given.NONE),
                        lanes)) {
            for (int accumulation : List.of(1, 4)) {
                Job job =
                        Job.of(
                                        Presets.of("gpt2-355m"),
                                        new Machine(2, hardware.bytes(), 1L << 36, 0, 1))
                                .with(new Batch(2, accumulation));
                StepTime time =
                        TimePlanner.predict(
                                MemoryPlanner.plan(job, Techniques.PLAIN), hardware, false);
                lines.add(
                        String.format(
                                Locale.ROOT,
                                "| %s | %d | %.0f%% |",
                                hardware.name(),
                                accumulation,
                                100 * time.communicationShare()));
            }
        }
        return lines;
    }

    /** Eight V100 with 16 GB and 330 GB of host memory: five techniques, each left out in turn. */
    static Map<String, StepTime> eight() {
        Tier host = Tier.PINNED;
        Tier device = Tier.DEVICE;
        Techniques all =
                Techniques.PLAIN
                        .withStage(3)
                        .withState(host, host, host)
                        .withActivations(device, Recomputation.FULL);
        Map<String, Techniques> rows = new LinkedHashMap<>();
        rows.put("all five", all);
        rows.put("no sharding", all.withStage(0));
        rows.put("optimizer and gradients on the GPU", all.withState(device, device, host));
        rows.put("gradients on the GPU", all.withState(host, device, host));
        rows.put("parameters on the GPU", all.withState(host, host, device));
        rows.put("no recomputation", all.withActivations(device, Recomputation.NONE));
        rows.put("none: plain data parallelism", Techniques.PLAIN);
        Hardware hardware = Hardware.named("V100-16x8", Hardware.Given.NONE);
        Model like = Presets.of("gpt3-13b").with(Model.GPT_VOCABULARY, 1024);
        Job job =
                new Job(
                                like,
                                Batch.ONE,
                                Precision.FP16,
                                OptimizerKind.ADAM,
                                new Machine(8, hardware.bytes(), 330_000_000_000L, 0, 1),
                                Overheads.DEFAULT)
                        .with(TrainingSystem.DEEPSPEED);
        List<Model> ladder = ScalingRule.like(like).ladder(Model.MAX_PARAMETERS);
        Map<String, StepTime> times = new LinkedHashMap<>();
        rows.forEach((name, t) -> {
            Plan plan = MemoryPlanner.largest(job, t, ladder);
            times.put(name, TimePlanner.predict(plan, hardware, true));
        });
        return times;
    }

    static List<String> sizes() {
        Map<String, StepTime> times = eight();
        StepTime without = Objects.requireNonNull(times.get("none: plain data parallelism"));
        double plain = without.plan().job().model().parameters();
        List<String> lines = new ArrayList<>();
        times.forEach((name, t) -> {
            double parameters = t.plan().job().model().parameters();
            lines.add(
                    String.format(
                            Locale.ROOT,
                            "| %s | %.2fe9 | %.1f | %,.0f | %.1f | %.0f%% |",
                            name,
                            parameters / 1e9,
                            parameters / plain,
                            t.tokensPerSecond(),
                            t.teraflops(),
                            100 * t.update() / t.seconds()));
        });
        return lines;
    }

    private static void inPage(List<String> lines) throws IOException {
        List<String> page = Files.readAllLines(PAGE);
        int at = page.indexOf(lines.getFirst());
        assertTrue(at >= 0, () -> PAGE + " lacks\n" + String.join("\n", lines));
        assertEquals(lines, page.subList(at, Math.min(page.size(), at + lines.size())));
    }

    @Test
    void publishedRuns() throws IOException {
        inPage(runs());
        inPage(summary());
    }

    @Test
    void twoRtx3090() throws IOException {
        inPage(pair());
    }

    @Test
    void eightV100() throws IOException {
        inPage(sizes());
    }

    /** The promise that the page makes: half of all published runs are closer than a tenth. */
    @Test
    void medianBelowATenth() {
        List<String> cells = List.of(summary().getFirst().split("\\|", -1));
        double median = Double.parseDouble(cells.get(3).replace("%", ""));
        assertTrue(median < 10, () -> "median " + median + "%");
    }
}
