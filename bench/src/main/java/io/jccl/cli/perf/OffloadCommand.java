package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.OffloadConfig;
import io.jccl.bench.OffloadRun;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NativeLibraryUnavailableException;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Drives;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Subcommand;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import io.jccl.offload.TierStore;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** Measures how much of the layers' copies is hidden behind their computation. */
@Command(
        footer = {
            "",
            "With --device host the device's memory is host memory too, and a layer's work is"
                    + " arithmetic in one thread. With CUDA it is a kernel that takes as long, or with"
                    + " --gemm a product by cuBLAS.",
            "Exit status: 0; 1 if a copy failed or a layer was wrong; 2 for a mistake on the command"
                    + " line.",
        })
public final class OffloadCommand extends Subcommand {
    private static final long MAX_LAYERS = 100_000;
    private static final int DEFAULT_SLOTS = 3;

    /** Creates the store in a folder; null if this build has none. */
    private final Function<Path, TierStore> stores;

    private final Consumer<List<Buffer>> afterFill;

    @Option(
            names = "--layers",
            paramLabel = "<n>",
            defaultValue = "16",
            description = "Layers of the model (default: ${DEFAULT-VALUE}).")
    private int layers;

    @Option(
            names = "--layer-bytes",
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            defaultValue = "16M",
            description =
                    "Parameters of a layer, a multiple of 8 bytes (default:"
                            + " ${DEFAULT-VALUE}).")
    private long layerBytes;

    @Option(
            names = "--device-memory",
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            description = "Device memory to use (default: three layers).")
    private @Nullable Long deviceBudget;

    @Option(
            names = "--tier",
            paramLabel = "<pinned|nvme>",
            defaultValue = "pinned",
            description = "Where the layers live (default: ${DEFAULT-VALUE}).")
    private String tier = "pinned";

    @Option(
            names = "--nvme",
            paramLabel = "<folder>",
            description = "A folder on the drive, for --tier nvme; its files are removed.")
    private @Nullable Path nvme;

    @Option(
            names = "--compute-us",
            paramLabel = "<time>",
            description = "Work of a layer, in microseconds.")
    private @Nullable Double computeMicros;

    @Option(
            names = "--ratio",
            paramLabel = "<r>",
            description =
                    "Work of a layer, as a multiple of the time that its copy takes"
                            + " (default: 1).")
    private @Nullable Double ratio;

    @Option(
            names = "--gemm",
            paramLabel = "<n>",
            description = "Work of a layer: a float32 matrix product of n by n.")
    private @Nullable Integer gemm;

    @Option(
            names = "--device",
            paramLabel = "<host|cuda>",
            defaultValue = "host",
            description = "Where the layers compute (default: ${DEFAULT-VALUE}).")
    private String deviceName = "host";

    @Option(
            names = "--iterations",
            paramLabel = "<n>",
            defaultValue = "8",
            description = "Passes over all layers in a sample (default: ${DEFAULT-VALUE}).")
    private int iterations;

    @Option(
            names = "--samples",
            paramLabel = "<n>",
            defaultValue = "5",
            description =
                    "Samples of each time, whose medians are shown (default:"
                            + " ${DEFAULT-VALUE}).")
    private int samples;

    @Option(
            names = "--depth",
            paramLabel = "<n>",
            description =
                    "Layers fetched ahead, within the budget (default: chosen from measured"
                            + " times).")
    private @Nullable Integer depth;

    @Option(
            names = "--chunk",
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            defaultValue = "4M",
            description = "Bytes of a chunk of a copy (default: ${DEFAULT-VALUE}).")
    private long chunk;

    @Option(
            names = "--backward",
            description =
                    "Each pass goes forward and backward, and copies out gradients as large as"
                            + " the parameters.")
    private boolean backward;

    @Mixin private JsonOption json = new JsonOption();

    @Mixin private HtmlOption html = new HtmlOption();

    @Option(
            names = "--trace",
            paramLabel = "<file>",
            description = "Write a timeline, for Perfetto (ui.perfetto.dev).")
    private @Nullable Path trace;

    public OffloadCommand() {
        this(Drives::scratch, homes -> {});
    }

    /**
     * Creates the command.
     *
     * @param stores creates the store in a folder
     * @param afterFill receives the parameters after their checksums are computed; for tests that
     *     corrupt them
     */
    public OffloadCommand(Function<Path, TierStore> stores, Consumer<List<Buffer>> afterFill) {
        this.stores = stores;
        this.afterFill = afterFill;
    }

    @Override
    public Integer call() throws Exception {
        OffloadConfig config = config();
        new OutputFiles(line()).add(json).add(html).add("--trace", trace);
        TierStore store = store();
        String buffered = Drives.bufferedBecause(store);
        OffloadRun.Result result;
        try (OffloadRun run = new OffloadRun(config, store, afterFill)) {
            result = run.run(Progress.to(err()));
        } catch (OffloadMemoryException e) {
            if (e.tier() != Tier.DEVICE) {
                throw e;
            }
            throw mistake("--device-memory: " + e.getMessage(), e);
        } finally {
            Drives.close(store);
        }
        PrintWriter out = out();
        OffloadReport report = new OffloadReport(config, result, tier);
        report.print(json.text(out), buffered);
        out.flush();
        ObjectNode document = report.document();
        Reports.sign(document, line());
        json.write(out, document::toPrettyString);
        Reports.write(html, document);
        if (result.wrong() != null) {
            PrintWriter err = err();
            err.println(
                    format(
                            "%s: wrong data: %s; please report it with this command line",
                            line().getCommandName(), result.wrong()));
            err.flush();
            return 1;
        }
        return 0;
    }

    private OffloadConfig config() {
        range("--layers", layers, 1, MAX_LAYERS);
        range("--layer-bytes", layerBytes, 64, 1L << 40);
        range("--iterations", iterations, 1, 1_000_000);
        range("--samples", samples, 1, 10_000);
        require(
                layerBytes % 8 == 0,
                "--layer-bytes is " + layerBytes + ", expected a multiple of 8");
        require(
                chunk >= 64 && chunk % 64 == 0,
                "--chunk is " + chunk + ", expected a multiple of 64");
        if (depth != null) {
            range("--depth", depth, 0, 1024);
        }
        int kinds =
                (computeMicros != null ? 1 : 0) + (ratio != null ? 1 : 0) + (gemm != null ? 1 : 0);
        require(
                kinds <= 1,
                "--compute-us, --ratio and --gemm each define a layer's work; give one of them");
        if (computeMicros != null && !(computeMicros >= 0 && computeMicros <= 60e6)) {
            throw mistake("--compute-us is " + computeMicros + ", expected 0 to 60000000");
        }
        if (ratio != null && !(ratio >= 0 && ratio <= 1000)) {
            throw mistake("--ratio is " + ratio + ", expected 0 to 1000");
        }
        if (gemm != null) {
            range("--gemm", gemm, 1, 16_384);
        }
        Device device = isCuda(deviceName) ? Cuda.device(0) : Device.host();
        long slot = OffloadConfig.slotBytes(layerBytes, backward);
        long budget = deviceBudget == null ? DEFAULT_SLOTS * slot : deviceBudget;
        require(
                budget >= slot,
                format(
                        "--device-memory is %s bytes, but one layer needs %s%s: %s bytes are"
                                + " missing; raise it, or lower --layer-bytes",
                        budget, slot, backward ? " with its gradients" : "", slot - budget));
        if (device.kind() == Device.Kind.CUDA && gemm != null) {
            try {
                NativeLibraries.cublas();
            } catch (NativeLibraryUnavailableException e) {
                throw new IllegalStateException(
                        "--gemm with --device cuda needs cuBLAS: "
                                + e.getMessage()
                                + "; or use --compute-us",
                        e);
            }
        }
        return new OffloadConfig(
                device,
                layers,
                layerBytes,
                budget,
                nvme,
                computeMicros == null ? -1 : computeMicros,
                ratio == null ? 1 : ratio,
                gemm == null ? 0 : gemm,
                iterations,
                samples,
                depth == null ? -1 : depth,
                backward,
                chunk,
                trace);
    }

    private @Nullable TierStore store() {
        switch (tier) {
            case "pinned" -> {
                if (nvme != null) {
                    throw mistake("--nvme is for --tier nvme; give both, or neither");
                }
                return null;
            }
            case "nvme" -> {
                if (nvme == null) {
                    throw mistake("--tier nvme needs a folder on the drive; give --nvme <folder>");
                }
                Drives.checkFolder(line(), "--nvme", nvme);
                return stores.apply(nvme);
            }
            default -> throw mistake("--tier is '" + tier + "', expected pinned or nvme");
        }
    }
}
