package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.OffloadConfig;
import io.jccl.bench.OffloadRun;
import io.jccl.cli.shell.Sizes;
import io.jccl.cli.shell.Version;
import io.jccl.device.Cuda;
import java.io.PrintWriter;
import org.jspecify.annotations.Nullable;

/** The result of {@code jccl offload} as a table and as JSON. */
final class OffloadReport {
    private final OffloadConfig c;
    private final OffloadRun.Result r;
    private final String tier;

    OffloadReport(OffloadConfig config, OffloadRun.Result result, String tier) {
        c = config;
        r = result;
        this.tier = tier;
    }

    private String deviceName() {
        return c.isCuda()
                ? Cuda.info(c.device()).model()
                : "host memory; no GPU, so every copy is memory to memory on the CPU";
    }

    private String workName() {
        return c.gemm() > 0
                ? "float32 matrix product of " + c.gemm() + " by " + c.gemm()
                : format("%.1f us of arithmetic", r.workMicros());
    }

    /**
     * Prints the table.
     *
     * @param buffered why the drive is used through the page cache; null if it is not
     */
    void print(PrintWriter out, @Nullable String buffered) {
        out.println("# jccl " + Version.TEXT + " offload");
        out.println("# device: " + deviceName());
        out.println(
                format(
                        "# %s layers of %s bytes on tier %s%s; a layer's work: %s",
                        c.layers(),
                        Sizes.format(c.layerBytes()),
                        tier,
                        c.backward() ? ", forward and backward" : ", forward",
                        workName()));
        if (buffered != null) {
            out.println("# the drive is used through the page cache: " + buffered);
        }
        out.println(
                format(
                        "# a sample: %s passes from an empty device, so that the first layer's"
                                + " copy, which nothing hides, counts; medians of %s samples",
                        c.passes(), c.samples()));
        out.println("# copy-only: the passes without work; compute-only: the work without copies");
        out.println(
                "# unrelated: both at once, neither waiting for the other; overlapped: layer by"
                        + " layer; the four are taken in turn");
        line(out, "copy-only", r.copy(), "ms");
        line(out, "compute-only", r.compute(), "ms");
        line(out, "unrelated", r.unrelated(), "ms");
        line(out, "overlapped", r.overlapped(), "ms");
        line(out, "ideal max(copy, compute)", r.ideal(), "ms");
        out.println(
                format(
                        "%-26s %10.3f    (samples: %.3f to %.3f)",
                        "overlap efficiency", r.efficiency(), r.worst(), r.best()));
        line(out, "  from the shortest times", r.fastest(), "");
        line(out, "unrelated : overlapped", r.unrelated() / r.overlapped(), "");
        line(out, "compute : copy", r.compute() / r.copy(), "");
        if (!c.backward()) {
            // Passes in alternating order find some layers on the device.
            double bytes = (double) c.passes() * c.layers() * c.layerBytes();
            line(out, "copy-only, bandwidth", bytes / r.copy() / 1e6, "GB/s");
        }
        out.println(
                format(
                        "%-26s %10d of %d bytes",
                        "device memory, peak", r.peak(), c.deviceBudget()));
        out.println(format("%-26s %10d", "layers fetched ahead", r.depth()));
        out.println(
                format(
                        "%-26s %10d of %d layers, %.3f ms in all",
                        "stalls",
                        r.stalls(),
                        r.stats().fetches() + r.stats().hits(),
                        r.stallMillis()));
        out.println(
                format(
                        "%-26s %10d layers, %s",
                        "checked",
                        r.checked(),
                        r.wrong() == null ? "all right" : "WRONG: " + r.wrong()));
        if (c.trace() != null) {
            out.println("# trace: " + c.trace());
        }
    }

    private static void line(PrintWriter out, String name, double value, String unit) {
        out.println(format("%-26s %10.3f %s", name, value, unit).stripTrailing());
    }

    /** The result as JSON. */
    ObjectNode document() {
        ObjectNode root = new ObjectMapper().createObjectNode();
        ObjectNode top = root.putObject("jccl_offload");
        top.put("version", Version.TEXT);
        top.put("engine", c.isCuda() ? "cuda" : "host");
        top.put("device", deviceName());
        top.put("layers", c.layers());
        top.put("layer_bytes", c.layerBytes());
        top.put("tier", tier);
        top.put("backward", c.backward());
        if (c.gemm() > 0) {
            top.put("gemm", c.gemm());
        } else {
            top.put("compute_us", r.workMicros());
        }
        top.put("iterations", c.passes());
        top.put("samples", c.samples());
        top.put("depth", r.depth());
        top.put("copy_only_ms", r.copy());
        top.put("compute_only_ms", r.compute());
        top.put("unrelated_ms", r.unrelated());
        top.put("overlapped_ms", r.overlapped());
        top.put("ideal_ms", r.ideal());
        top.put("overlap_efficiency", r.efficiency());
        top.put("overlap_efficiency_of_shortest", r.fastest());
        ArrayNode all = top.putArray("sample_efficiencies");
        r.samples().forEach(s -> all.add(s.efficiency()));
        top.put("device_budget_bytes", c.deviceBudget());
        top.put("device_peak_bytes", r.peak());
        top.put("stalls", r.stalls());
        top.put("stall_ms", r.stallMillis());
        top.put("bytes_to_device", r.stats().bytesIn());
        top.put("bytes_to_host", r.stats().bytesOut());
        top.put("checked_layers", r.checked());
        if (r.wrong() == null) {
            top.putNull("wrong");
        } else {
            top.put("wrong", r.wrong());
        }
        return root;
    }
}
