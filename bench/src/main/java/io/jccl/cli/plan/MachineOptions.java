package io.jccl.cli.plan;

import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.shell.Text.words;

import io.jccl.cli.topo.TopologyText;
import io.jccl.offload.timeplan.GpuType;
import io.jccl.offload.timeplan.Hardware;
import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** The options that describe the machine whose times are predicted. */
final class MachineOptions {
    /** What is for predicted times alone. */
    private static final List<String> TIMES =
            words(
                    "--gpu-type --nic-gbit --host-gbps --nvme-read-gbps --nvme-write-gbps"
                            + " --no-overlap --html");

    /** Bounds of a rate: beyond what any machine has, and times stay numbers. */
    private static final double LEAST = 0.001;

    private static final double MOST = 1e6;

    @Option(
            names = "--machine",
            paramLabel = "<machine>",
            description =
                    "Predict the time of a step on such machines: GPUs by type and number, such as"
                            + " H100x8; or a file: nvidia-smi topo -m's output, an NCCL topology XML, or"
                            + " the JSON of jccl probe.")
    private @Nullable String machine;

    @Option(
            names = "--gpu-type",
            paramLabel = "<name>",
            description = "With a file: the type of the GPUs, such as A100 (default: by the file).")
    private @Nullable String type;

    @Option(
            names = "--nic-gbit",
            paramLabel = "<rate>",
            description = "Gbit/s of NIC for each GPU (default: the usual machine's).")
    private @Nullable Double nic;

    @Option(
            names = "--host-gbps",
            paramLabel = "<rate>",
            description = "GB/s of host memory that the optimizer reaches (default: 150).")
    private @Nullable Double host;

    @Option(
            names = "--nvme-read-gbps",
            paramLabel = "<rate>",
            description = "GB/s that all drives of a machine read (default: 10).")
    private @Nullable Double read;

    @Option(
            names = "--nvme-write-gbps",
            paramLabel = "<rate>",
            description = "GB/s that all drives of a machine write (default: 5).")
    private @Nullable Double write;

    @Option(names = "--no-overlap", description = "Predict without any transfer behind compute.")
    private boolean serial;

    boolean overlap() {
        return !serial;
    }

    /** The machine; null if none was named. */
    @Nullable Hardware hardware(CommandLine line) {
        if (machine == null) {
            List<String> alone =
                    line.getParseResult().matchedOptions().stream()
                            .map(o -> o.names()[0])
                            .filter(TIMES::contains)
                            .toList();
            if (!alone.isEmpty()) {
                throw new ParameterException(
                        line,
                        alone.getFirst()
                                + " is for predicted times, and no machine is given; add --machine,"
                                + " such as --machine H100x8");
            }
            return null;
        }
        Hardware.Given given =
                new Hardware.Given(
                        checkedRate(line, "--nic-gbit", nic),
                        checkedRate(line, "--host-gbps", host),
                        checkedRate(line, "--nvme-read-gbps", read),
                        checkedRate(line, "--nvme-write-gbps", write));
        Path file = Path.of(machine);
        try {
            // A pipe is a file too.
            return Files.exists(file) && !Files.isDirectory(file)
                    ? read(line, file, given)
                    : named(machine, given);
        } catch (IOException | IllegalArgumentException e) {
            throw new ParameterException(line, String.valueOf(e.getMessage()), e);
        }
    }

    /** A rate that was given; 0 if none was. */
    private static double checkedRate(CommandLine line, String option, @Nullable Double value) {
        if (value == null) {
            return 0;
        }
        if (!(value >= LEAST && value <= MOST)) {
            throw new ParameterException(
                    line,
                    format(
                            "%s is %s, expected %s to %.0f; leave it out for the default",
                            option, value, LEAST, MOST));
        }
        return value;
    }

    private Hardware named(String name, Hardware.Given given) {
        Hardware hardware = Hardware.named(name, given);
        if (type != null) {
            throw new IllegalArgumentException(
                    "--gpu-type is for a file, and --machine "
                            + name
                            + " names the GPUs; leave it out");
        }
        return hardware;
    }

    private Hardware read(CommandLine line, Path file, Hardware.Given given) throws IOException {
        String text = TopologyText.read("--machine", file);
        GpuType named = type == null ? null : GpuType.of(type);
        if (text.stripLeading().startsWith("{")) {
            int ranks = line.getParseResult().matchedOptionValue("--gpus", 0);
            return ProbedMachine.read(file, text, given, named, ranks);
        }
        ReadOptions options = ReadOptions.DEFAULT.withName(file.getFileName().toString());
        if (named != null) {
            options = options.withGpuModel(named.model());
        }
        if (given.nicGbit() > 0) {
            options = options.withNicGbps(given.nicGbit() / 8);
        }
        Topology topology;
        try {
            topology = TopologyReader.topology(text, options);
        } catch (TopologyFormatException e) {
            throw new IllegalArgumentException(
                    file
                            + " is neither nvidia-smi topo -m's output, nor an NCCL topology, nor the"
                            + " JSON of jccl probe: "
                            + e.getMessage(),
                    e);
        }
        if (topology.gpus().isEmpty()) {
            throw new IllegalArgumentException(file + " has no GPU; give a machine that has");
        }
        return named == null
                ? Hardware.of(options.name(), topology, given)
                : Hardware.of(options.name(), topology, named, given);
    }
}
