package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.BandwidthCase;
import io.jccl.bench.BandwidthRun;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Drives;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Subcommand;
import io.jccl.cli.shell.Verdict;
import io.jccl.cli.shell.Version;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.offload.TierStore;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** Measures copies between memories; cases and layout are those of nvbandwidth. */
@Command(
        footer = {
            "",
            "With --device host the device's memory is host memory too.",
            "Exit status: 0, 1 if a copy failed or was wrong, 2 for a mistake on the command line.",
        })
public final class BandwidthCommand extends Subcommand {
    private static final long HOST_BYTES = 64L << 20;
    private static final long CUDA_BYTES = 512L << 20;

    /** Creates the store in a folder; null if this build has none. */
    private final Function<Path, TierStore> stores;

    @Option(
            names = "--device",
            paramLabel = "<host|cuda>",
            description =
                    "host: memory to memory on the CPU; cuda: all GPUs that this process"
                            + " sees (default: cuda if there is a GPU).")
    private @Nullable String engine;

    @Option(
            names = {"-b", "--bufferSize"},
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            description = "Bytes of a copy (default: 512M with GPUs, 64M without).")
    private @Nullable Long bytes;

    @Option(
            names = {"-i", "--testSamples"},
            paramLabel = "<n>",
            defaultValue = "3",
            description =
                    "Samples of each case, whose median is shown (default:" + " ${DEFAULT-VALUE}).")
    private int samples;

    @Option(
            names = {"-n", "--loopCount"},
            paramLabel = "<n>",
            defaultValue = "16",
            description = "Copies in a sample (default: ${DEFAULT-VALUE}).")
    private int copies;

    @Option(
            names = {"-t", "--testcase"},
            paramLabel = "<name>",
            split = ",",
            description = "Cases to run, by name or number of --list (default: all).")
    private List<String> cases = List.of();

    @Option(
            names = {"-l", "--list"},
            description = "List the cases.")
    private boolean list;

    @Mixin private JsonOption json = new JsonOption();

    @Mixin private HtmlOption html = new HtmlOption();

    @Option(
            names = "--nvme",
            paramLabel = "<folder>",
            description =
                    "A folder on the drive for the cases nvme_read and nvme_write, which are left"
                            + " out without it.")
    private @Nullable Path nvme;

    public BandwidthCommand() {
        this(Drives::scratch);
    }

    /**
     * Creates the command.
     *
     * @param stores creates the measured store in a folder
     */
    public BandwidthCommand(Function<Path, TierStore> stores) {
        this.stores = stores;
    }

    /** One case and its result. */
    private record Result(BandwidthCase test, double[][] matrix, @Nullable String error) {
        String status() {
            return error != null ? "Error" : matrix.length == 0 ? "Waived" : "Passed";
        }

        double[] numbers() {
            return Arrays.stream(matrix)
                    .flatMapToDouble(Arrays::stream)
                    .filter(v -> !Double.isNaN(v))
                    .toArray();
        }
    }

    @Override
    public Integer call() throws Exception {
        PrintWriter out = out();
        if (list) {
            for (BandwidthCase c : BandwidthCase.values()) {
                out.println(c.ordinal() + ", " + c.label());
            }
            out.flush();
            return 0;
        }
        List<BandwidthCase> chosen = chosen();
        List<? extends Device> devices = devices();
        boolean cuda = devices.getFirst().kind() == Device.Kind.CUDA;
        long size = bytes != null ? bytes : cuda ? CUDA_BYTES : HOST_BYTES;
        checkPositive("-b", size);
        checkPositive("-i", samples);
        checkPositive("-n", copies);
        TierStore store = null;
        if (nvme != null) {
            Drives.checkFolder(line(), "--nvme", nvme);
            store = stores.apply(nvme);
        }
        try {
            ObjectNode root = new ObjectMapper().createObjectNode();
            new OutputFiles(line()).add(json).add(html);
            Reports.sign(root, line());
            PrintWriter text = json.text(out);
            ArrayNode testcases = header(root, text, devices, size);
            String buffered = Drives.bufferedBecause(store);
            if (buffered != null) {
                text.println("The drive is used through the page cache: " + buffered);
            }
            BandwidthRun run = new BandwidthRun(devices, size, samples, copies, store);
            boolean failed = measure(run, chosen, testcases, text);
            out.flush();
            json.write(out, root::toPrettyString);
            Reports.write(html, root);
            return failed ? 1 : 0;
        } finally {
            Drives.close(store);
        }
    }

    private boolean measure(
            BandwidthRun run, List<BandwidthCase> chosen, ArrayNode testcases, PrintWriter out) {
        boolean failed = false;
        Progress progress = Progress.to(err());
        for (BandwidthCase c : chosen) {
            progress.at("bandwidth, " + c.label(), testcases.size(), chosen.size(), "cases");
            Result r = measure(run, c);
            progress.erase();
            failed |= r.error != null;
            add(testcases.addObject(), r);
            print(out, r);
        }
        return failed;
    }

    private static Result measure(BandwidthRun run, BandwidthCase c) {
        try {
            return new Result(c, run.measure(c), null);
        } catch (RuntimeException e) {
            return new Result(
                    c, new double[0][], e.getMessage() == null ? e.toString() : e.getMessage());
        }
    }

    private List<BandwidthCase> chosen() {
        if (cases.isEmpty()) {
            return Arrays.stream(BandwidthCase.values())
                    .filter(c -> !c.isNvme() || nvme != null)
                    .toList();
        }
        return cases.stream().map(name -> parse(name.strip())).toList();
    }

    private BandwidthCase parse(String name) {
        if (name.matches("[0-9]{1,3}")) {
            int number = Integer.parseInt(name);
            if (number < BandwidthCase.values().length) {
                return BandwidthCase.values()[number];
            }
        }
        try {
            return BandwidthCase.of(name);
        } catch (IllegalArgumentException e) {
            throw mistake("-t: " + e.getMessage(), e);
        }
    }

    private List<? extends Device> devices() {
        String name = engine;
        if (name == null) {
            name = gpus() > 0 ? "cuda" : "host";
        }
        return isCuda(name)
                ? IntStream.range(0, Cuda.deviceCount()).mapToObj(Cuda::device).toList()
                : List.of(Device.host());
    }

    private static int gpus() {
        try {
            return Cuda.deviceCount();
        } catch (RuntimeException e) {
            return 0; // no CUDA runtime
        }
    }

    private void checkPositive(String name, long value) {
        require(value >= 1, name + " is " + value + ", expected 1 or more");
    }

    private ArrayNode header(
            ObjectNode root, PrintWriter out, List<? extends Device> devices, long size) {
        boolean cuda = devices.getFirst().kind() == Device.Kind.CUDA;
        ObjectNode top = root.putObject("jccl_bandwidth");
        top.put("version", Version.TEXT);
        top.put("engine", cuda ? "cuda" : "host");
        top.put("buffer_bytes", size);
        top.put("samples", samples);
        top.put("copies", copies);
        ArrayNode names = top.putArray("devices");
        for (int i = 0; i < devices.size(); i++) {
            Device d = devices.get(i);
            String name =
                    cuda
                            ? Cuda.info(d).model() + " (" + Cuda.info(d).pciBusId() + ")"
                            : "host memory; no GPU, so every copy is memory to memory on the CPU";
            names.add(name);
            out.println(
                    format(
                            "%sDevice %s: %s",
                            i == 0 ? "jccl bandwidth " + Version.TEXT + "\n" : "", i, name));
        }
        out.println("Copies of " + size + " bytes, " + copies + " a sample, median of " + samples);
        out.println();
        out.flush();
        return top.putArray("testcases");
    }

    private static void print(PrintWriter out, Result r) {
        String name = r.test.label();
        out.println("Running " + name + ".");
        if (r.error != null) {
            out.println(Verdict.bad("ERROR") + ": " + r.error);
        } else if (r.matrix.length == 0) {
            out.println(
                    "WAIVED: "
                            + (r.test.isNvme()
                                    ? "no drive was given, see --nvme"
                                    : "needs two GPUs in this process"));
        } else {
            out.println(r.test.heading());
            StringBuilder line = new StringBuilder("  ");
            for (int j = 0; j < r.matrix[0].length; j++) {
                line.append(format("%10d", j));
            }
            out.println(line);
            for (int i = 0; i < r.matrix.length; i++) {
                line.setLength(0);
                line.append(format("%2d", i));
                for (double v : r.matrix[i]) {
                    line.append(Double.isNaN(v) ? format("%10s", "N/A") : format("%10.2f", v));
                }
                out.println(line);
            }
            out.println();
            if (!r.test.isLatency()) {
                out.println(format("SUM %s %.2f", name, Arrays.stream(r.numbers()).sum()));
            }
        }
        out.println();
        out.flush();
    }

    private static void add(ObjectNode node, Result r) {
        node.put("name", r.test.label());
        node.put("status", r.status());
        if (r.error != null) {
            node.put("error", r.error);
            return;
        }
        if (r.matrix.length == 0) {
            return;
        }
        node.put("bandwidth_description", r.test.heading());
        ArrayNode rows = node.putArray("bandwidth_matrix");
        for (double[] row : r.matrix) {
            ArrayNode line = rows.addArray();
            for (double v : row) {
                if (Double.isNaN(v)) {
                    line.addNull();
                } else {
                    line.add(v);
                }
            }
        }
        double[] all = r.numbers();
        node.put("min", Arrays.stream(all).min().orElse(0));
        node.put("max", Arrays.stream(all).max().orElse(0));
        node.put("average", Arrays.stream(all).average().orElse(0));
        node.put("sum", Arrays.stream(all).sum());
    }
}
