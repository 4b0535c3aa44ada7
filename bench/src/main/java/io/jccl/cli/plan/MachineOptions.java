package io.jccl.cli.plan;

import static io.jccl.cli.shell.Text.words;

import io.jccl.cli.shell.Text;
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
    private double nic;

    @Option(
            names = "--host-gbps",
            paramLabel = "<rate>",
            description = "GB/s of host memory that the optimizer reaches (default: 150).")
    private double host;

    @Option(
            names = "--nvme-read-gbps",
            paramLabel = "<rate>",
            description = "GB/s that all drives of a machine read (default: 10).")
    private double read;

    @Option(
            names = "--nvme-write-gbps",
            paramLabel = "<rate>",
            description = "GB/s that all drives of a machine write (default: 5).")
    private double write;

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
        Hardware.Given given = new Hardware.Given(nic, host, read, write);
        Path file = Path.of(machine);
        try {
            return Files.isRegularFile(file) ? read(file, given) : Hardware.named(machine, given);
        } catch (IOException e) {
            throw new ParameterException(line, file + " cannot be read: " + Text.reason(e), e);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(line, String.valueOf(e.getMessage()), e);
        }
    }

    private Hardware read(Path file, Hardware.Given given) throws IOException {
        String text = Files.readString(file);
        if (text.stripLeading().startsWith("{")) {
            return ProbedMachine.read(file, given);
        }
        ReadOptions options = ReadOptions.DEFAULT.withName(file.getFileName().toString());
        GpuType named = type == null ? null : GpuType.of(type);
        if (named != null) {
            options = options.withGpuModel(named.model());
        }
        if (nic > 0) {
            options = options.withNicGbps(nic / 8);
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
