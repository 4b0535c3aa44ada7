package io.jccl.cli.probe;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.PerfRun;
import io.jccl.bench.probe.MatrixType;
import io.jccl.bench.probe.ProbeConfig;
import io.jccl.bench.probe.ProbeJson;
import io.jccl.bench.probe.ProbeResult;
import io.jccl.bench.probe.ProbeRun;
import io.jccl.bench.probe.ProbeSection;
import io.jccl.cli.doctor.Hardware;
import io.jccl.cli.doctor.Machine;
import io.jccl.cli.report.Reports;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Subcommand;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.rendezvous.LaunchEnvironment;
import java.io.PrintWriter;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** Measures compute, memory and links of this machine. */
@Command(
        footer = {
            "",
            "Every figure is the median of batches after the operation has become steady, and what"
                    + " was computed is checked.",
            "Exit status: 0; 1 if a result was wrong or a measurement failed; 2 for a mistake on"
                    + " the command line.",
        })
public final class ProbeCommand extends Subcommand {
    /** Limit of n, since n^2 elements must fit into an int. */
    private static final int LARGEST = 32_768;

    private static final int LARGEST_HIDDEN = 16_384;
    private static final int MOST_THREADS = 1024;
    private static final Pattern DEVICE = Pattern.compile("host|cuda(?::(\\d{1,4}))?");

    private final Map<String, String> environment;
    private final Consumer<Buffer> afterProduct;

    @Option(
            names = "--device",
            paramLabel = "<host|cuda>",
            defaultValue = "host",
            description =
                    "What is measured; cuda:1 is the GPU of that number, cuda the first"
                            + " (default: ${DEFAULT-VALUE}).")
    private String deviceName = "host";

    @Option(
            names = "--only",
            paramLabel = "<part>",
            split = ",",
            description =
                    "Parts to run: memory, elementwise, matmul, latency, copy, allreduce, layer"
                            + " (default: all).")
    private List<String> only = List.of();

    @Option(
            names = "--sizes",
            paramLabel = "<n>",
            split = ",",
            converter = Count.class,
            defaultValue = "128,256,512,1024,2048,4096,8192",
            description = "Rows and columns of the products' matrices (default: ${DEFAULT-VALUE}).")
    private List<Integer> sizes = List.of();

    @Option(
            names = "--types",
            paramLabel = "<type>",
            split = ",",
            description =
                    "Types of the products: float32, tf32, bfloat16, float16, float64"
                            + " (default: all).")
    private List<String> types = List.of();

    @Option(
            names = "--hidden",
            paramLabel = "<n>",
            split = ",",
            converter = Count.class,
            defaultValue = "128,256,512,1024,2048",
            description = "Widths of the Transformer layer (default: ${DEFAULT-VALUE}).")
    private List<Integer> hidden = List.of();

    @Option(
            names = "--max-bytes",
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            defaultValue = "256M",
            description =
                    "Largest tensor, working set, copy and message (default: ${DEFAULT-VALUE}).")
    private long maxBytes;

    @Option(
            names = "--threads",
            paramLabel = "<count>",
            converter = Count.class,
            description = "Threads that compute on the host (default: the CPUs it may use).")
    private @Nullable Integer threads;

    @Option(
            names = "--time-budget",
            paramLabel = "<seconds>",
            defaultValue = "60",
            description =
                    "Approximate time limit; measurements that exceed it are skipped and reported"
                            + " as such (default: ${DEFAULT-VALUE}).")
    private double seconds;

    @Mixin private JsonOption json = new JsonOption();

    @Mixin private HtmlOption html = new HtmlOption();

    public ProbeCommand() {
        this(System.getenv(), product -> {});
    }

    /**
     * Creates the command.
     *
     * @param environment environment variables, including those of launchers
     * @param afterProduct called with each matrix product before it is checked; for tests that
     *     corrupt it
     */
    public ProbeCommand(Map<String, String> environment, Consumer<Buffer> afterProduct) {
        this.environment = environment;
        this.afterProduct = afterProduct;
    }

    @Override
    public Integer call() throws Exception {
        checkAlone();
        new OutputFiles(line()).add(json).add(html);
        ProbeConfig config = config();
        PrintWriter out = out();
        Progress progress = Progress.to(err());
        ProbeResult result;
        try {
            Hardware machine =
                    Hardware.of(Machine.local(), config.device().kind() == Device.Kind.CUDA);
            result =
                    new ProbeRun(
                                    config,
                                    machine,
                                    new AllReduceSums(PerfRun.Seam.NONE),
                                    afterProduct,
                                    progress)
                            .run();
        } finally {
            progress.erase();
        }
        json.text(out).print(ProbeText.of(result));
        out.flush();
        ObjectNode document = ProbeJson.of(result);
        Reports.sign(document, line());
        json.write(out, document::toPrettyString);
        Reports.write(html, document);
        return result.faults().isEmpty() ? 0 : 1;
    }

    private void checkAlone() {
        Map<String, String> launch = new HashMap<>(environment);
        // Slurm also sets these in a batch script, where no ranks were started.
        launch.keySet().removeIf(name -> name.startsWith("SLURM_"));
        int ranks = LaunchEnvironment.of(launch).size();
        require(
                ranks <= 1,
                "a launcher started "
                        + ranks
                        + " ranks, which would slow each other; start jccl probe by itself, once"
                        + " on each machine");
    }

    private ProbeConfig config() {
        if (maxBytes < 64 || maxBytes > 1L << 40) {
            throw mistake("--max-bytes is " + maxBytes + ", expected 64 to 1T");
        }
        require(
                seconds >= 0.1 && seconds <= 86_400,
                "--time-budget is " + seconds + ", expected 0.1 to 86400 seconds");
        int count = threads == null ? Runtime.getRuntime().availableProcessors() : threads;
        require(
                count >= 1 && count <= MOST_THREADS,
                "--threads is " + count + ", expected 1 to " + MOST_THREADS);
        return new ProbeConfig(
                device(),
                named("--only", only, ProbeSection.class),
                ascending("--sizes", sizes, LARGEST),
                List.copyOf(named("--types", types, MatrixType.class)),
                ascending("--hidden", hidden, LARGEST_HIDDEN),
                maxBytes,
                count,
                seconds,
                line().getParseResult().originalArgs());
    }

    private List<Integer> ascending(String option, List<Integer> values, int most) {
        for (int v : values) {
            require(
                    v >= 1 && v <= most,
                    option + " has " + v + ", expected 1 to " + most + " of each");
        }
        return values.stream().sorted().distinct().toList();
    }

    /** Constants by the names of their {@code toString}; all if none are given. */
    private <E extends Enum<E>> Set<E> named(String option, List<String> names, Class<E> type) {
        EnumSet<E> all = EnumSet.noneOf(type);
        for (String name : names) {
            String wanted = name.strip().toLowerCase(Locale.ROOT);
            all.add(
                    Arrays.stream(type.getEnumConstants())
                            .filter(e -> e.toString().equals(wanted))
                            .findFirst()
                            .orElseThrow(() ->
                                    mistake(
                                            option
                                                    + " has '"
                                                    + name
                                                    + "', expected "
                                                    + Arrays.stream(type.getEnumConstants())
                                                            .map(E::toString)
                                                            .collect(Collectors.joining(", ")))));
        }
        return names.isEmpty() ? EnumSet.allOf(type) : all;
    }

    private Device device() {
        Matcher m = DEVICE.matcher(deviceName);
        require(
                m.matches(),
                "--device is '" + deviceName + "', expected host, cuda or cuda:NUMBER");
        if (deviceName.equals("host")) {
            return Device.host();
        }
        int index = m.group(1) == null ? 0 : Integer.parseInt(m.group(1));
        int count = Cuda.deviceCount();
        require(
                index < count,
                "--device is "
                        + deviceName
                        + ", but this process sees "
                        + (count == 0
                                ? "no GPU; use --device host, or run jccl doctor"
                                : count + " GPUs, numbered from 0"));
        return Cuda.device(index);
    }
}
