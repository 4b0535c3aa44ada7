package io.jccl.topology.read;

import io.jccl.topology.Gpu;
import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Nic;
import io.jccl.topology.Node;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import io.jccl.topology.internal.PciTree;
import io.jccl.topology.internal.PciTree.Item;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The machine that this program runs on.
 *
 * <p>NVLinks and the code of every pair come from {@code nvidia-smi topo -m}, the bandwidth of
 * NVLinks from {@code nvidia-smi nvlink -s} and a query of the GPUs, the PCIe tree with its speeds
 * from {@code /sys}. Codes stay as printed. A missing source gives a warning.
 *
 * {@snippet :
 * Topology machine = ThisMachine.read();
 * int gpus = machine.gpus().size();
 * machine.warnings().forEach(System.out::println); // what could not be read
 * }
 *
 * <p>Stateless, and safe for use by many threads.
 */
public final class ThisMachine {
    /** Timeout of nvidia-smi, which wakes up GPUs; that takes seconds each. */
    public static final Duration LIMIT = Duration.ofSeconds(20);

    private static final String FILE_HINT = "to read another machine or a saved file, use --file";

    private ThisMachine() {}

    /**
     * Reads it.
     *
     * @return the machine
     */
    public static Topology read() {
        return read(ReadOptions.DEFAULT.withName("this machine"));
    }

    /**
     * Reads it.
     *
     * @param options for the output of nvidia-smi; a GPU model or NVLink state in them takes
     *     precedence over the machine's
     * @return the machine
     */
    public static Topology read(ReadOptions options) {
        return read(options, CommandRunner.system(), SysFs.ROOT);
    }

    /**
     * Reads it, with the commands and {@code /sys} from elsewhere.
     *
     * @param options for the output of nvidia-smi
     * @param commands runs nvidia-smi
     * @param sysRoot {@code /sys}, or a copy of it
     * @return the machine
     */
    public static Topology read(ReadOptions options, CommandRunner commands, Path sysRoot) {
        List<Warning> warnings = new ArrayList<>();
        String matrix = run(commands, warnings, "topo", "-m");
        if (matrix == null) {
            return TopologyOverrides.of(SysFs.machine(sysRoot), options, warnings);
        }
        List<Device> devices = devices(commands, warnings);
        ReadOptions refined = refine(options, devices, commands, warnings);
        Topology printed;
        try {
            printed = TopologyReader.topology(matrix, refined);
        } catch (TopologyFormatException e) {
            warnings.add(
                    Warning.of(
                            "nvidia-smi topo -m printed what cannot be read ("
                                    + e.getMessage()
                                    + "): only /sys is used; save its output and see what --file F"
                                    + " --lenient makes of it"));
            return TopologyOverrides.of(SysFs.machine(sysRoot), options, warnings);
        }
        Topology joined = join(printed, devices, sysRoot, options, warnings);
        return joined != null
                ? joined
                : TopologyOverrides.of(printed, options.withGpuModel(null), warnings);
    }

    /** A GPU as nvidia-smi lists it. */
    private record Device(int index, String model, String busId, int sm) {}

    /** Runs nvidia-smi; null, and a warning, if that gives nothing. */
    private static @Nullable String run(
            CommandRunner commands, List<Warning> warnings, String... arguments) {
        List<String> command = new ArrayList<>(List.of("nvidia-smi"));
        command.addAll(List.of(arguments));
        String what = String.join(" ", command);
        String problem;
        try {
            CommandRunner.Output output = commands.run(command, LIMIT);
            if (output.timedOut()) {
                problem =
                        what
                                + " did not end within "
                                + LIMIT.toSeconds()
                                + " s, and was stopped: a GPU or its driver may hang (see dmesg)";
            } else if (output.exit() != 0) {
                String said = output.err().isBlank() ? output.out() : output.err();
                problem = what + " failed with status " + output.exit() + ": " + brief(said);
            } else if (output.out().isBlank()) {
                problem =
                        what
                                + " printed nothing"
                                + (output.err().isBlank() ? "" : " but " + brief(output.err()));
            } else {
                return output.out();
            }
        } catch (IOException e) {
            problem =
                    "%s cannot be run (%s): without NVIDIA's driver nothing is known about GPUs"
                            .formatted(what, brief(String.valueOf(e.getMessage())));
        }
        warnings.add(
                Warning.of(
                        arguments[0].equals("topo")
                                ? problem + "; only /sys is used; " + FILE_HINT
                                : problem));
        return null;
    }

    private static String brief(String text) {
        String line = text.strip().replaceAll("\\s+", " ");
        return line.length() <= 300 ? line : line.substring(0, 297) + "...";
    }

    /** The result of {@code --query-gpu}, by index. */
    private static List<Device> devices(CommandRunner commands, List<Warning> warnings) {
        String csv =
                run(
                        commands,
                        warnings,
                        "--query-gpu=index,name,pci.bus_id,compute_cap",
                        "--format=csv,noheader");
        List<Device> devices = new ArrayList<>();
        if (csv == null) {
            return devices;
        }
        for (String line : csv.split("\\R", -1)) {
            String[] cells = line.split(",", -1);
            if (line.isBlank()) {
                continue;
            }
            if (cells.length != 4
                    || !cells[0].strip().matches("[0-9]{1,6}")
                    || !cells[2].strip().contains(":")) {
                warnings.add(
                        Warning.of(
                                "nvidia-smi --query-gpu printed '"
                                        + brief(line)
                                        + "', expected index, name, bus id and compute capability:"
                                        + " that GPU is not looked up in /sys"));
                continue;
            }
            String capability = cells[3].strip(); // [N/A] with old drivers
            int sm =
                    capability.matches("[0-9]{1,2}\\.[0-9]")
                            ? Integer.parseInt(capability.replace(".", ""))
                            : 0;
            devices.add(
                    new Device(
                            Integer.parseInt(cells[0].strip()),
                            cells[1].strip(),
                            address(cells[2]),
                            sm));
        }
        return devices;
    }

    /** A PCI address as /sys has it: nvidia-smi writes longer domains, in upper case. */
    private static String address(String busId) {
        String plain = busId.strip().toLowerCase(Locale.ROOT);
        return plain.length() == 16 && plain.startsWith("0000") ? plain.substring(4) : plain;
    }

    /** Fills the options that the caller left open with what the machine reports. */
    private static ReadOptions refine(
            ReadOptions options,
            List<Device> devices,
            CommandRunner commands,
            List<Warning> warnings) {
        ReadOptions refined = options.withFormat(Format.SMI);
        if (refined.gpuModel() == null && !devices.isEmpty()) {
            String model = devices.getFirst().model;
            if (devices.stream().allMatch(d -> d.model.equals(model))) {
                refined = refined.withGpuModel(model);
            }
        }
        if (refined.nvlinks() == null) {
            String status = run(commands, warnings, "nvlink", "-s");
            if (status != null) {
                try {
                    if (TopologyReader.dump(status, refined) instanceof NvlinkStatus nvlinks) {
                        refined = refined.withNvlinks(nvlinks);
                    }
                } catch (TopologyFormatException e) {
                    // Machines without NVLink print no table; the matrix shows that as well.
                    return refined;
                }
            }
        }
        return refined;
    }

    /**
     * The PCIe side of {@code /sys} with NVLinks and codes as printed; null, and a warning, if not
     * all that was printed is in {@code /sys}.
     */
    private static @Nullable Topology join(
            Topology printed,
            List<Device> devices,
            Path sysRoot,
            ReadOptions options,
            List<Warning> warnings) {
        SysPci pci = new SysPci(sysRoot, SysFs.cpuinfo(sysRoot));
        PciTree tree = pci.read();
        Map<String, Item> found = new HashMap<>();
        tree.gpus.forEach(gpu -> found.put(String.valueOf(gpu.busId), gpu));
        tree.nics.forEach(nic -> found.put("nic " + nic.device, nic));
        Map<Integer, Device> byIndex = new HashMap<>();
        devices.forEach(d -> byIndex.put(d.index, d));
        List<Item> gpus = new ArrayList<>();
        for (Gpu gpu : printed.gpus()) {
            Device device = byIndex.get(gpu.index());
            Item item = device == null ? null : found.remove(device.busId);
            if (device == null || item == null) {
                return missing(gpu, device == null ? "its bus id" : device.busId, warnings);
            }
            item.name = gpu.name();
            item.index = gpu.index();
            boolean told = options.gpuModel() != null;
            boolean own = !told && device.sm > 0;
            item.model = told ? gpu.model() : device.model;
            item.sm = own ? device.sm : gpu.sm();
            item.smSource = own ? Source.DEVICE : gpu.smSource();
            item.printed = gpu;
            gpus.add(item);
        }
        List<Item> nics = new ArrayList<>();
        for (Nic nic : printed.nics()) {
            String device = nic.device() == null ? nic.name() : nic.device();
            Item item = found.remove("nic " + device);
            if (item == null) {
                return missing(nic, device, warnings);
            }
            item.name = nic.name();
            item.device = device;
            item.port =
                    nic.gbps() > 0 ? nic.gbps() : item.port; // what the user gave takes precedence
            nics.add(item);
        }
        tree.gpus.clear();
        tree.gpus.addAll(gpus);
        tree.nics.clear();
        tree.nics.addAll(nics);
        tree.prune();
        Topology.Builder b = tree.build(options.name());
        Map<Integer, Integer> switches = new HashMap<>();
        for (Link link : printed.links()) {
            Node x = printed.nodes().get(link.a());
            Node y = printed.nodes().get(link.b());
            int a = -1;
            int c = -1;
            if (link.kind() == LinkKind.NVLINK) {
                a = end(b, tree, switches, x);
                c = end(b, tree, switches, y);
            } else if (link.kind() == LinkKind.C2C) {
                a = x instanceof Gpu ? x.id() : y.id();
                c = tree.cpu(gpus.get(a)).id;
            }
            if (a >= 0 && c >= 0) {
                b.link(a, c, link.kind(), link.count(), link.gbps(), link.source());
            }
        }
        int n = printed.gpus().size() + printed.nics().size();
        for (int i = 0; i < n; i++) {
            for (int j = i + 1; j < n; j++) {
                b.code(i, j, printed.code(i, j));
            }
        }
        printed.warnings().forEach(b::warn);
        warnings.forEach(b::warn);
        pci.warnings().forEach(b::warn);
        return b.build();
    }

    /** The end of an NVLink in the joined graph: GPUs have their ids, NVSwitches are added. */
    private static int end(
            Topology.Builder b, PciTree tree, Map<Integer, Integer> switches, Node node) {
        return switch (node) {
            case Gpu gpu -> gpu.id();
            case Switch sw when sw.kind() == Switch.Kind.NVSWITCH ->
                    switches.computeIfAbsent(
                            sw.id(), id -> b.addSwitch(tree.unique(sw.name()), sw.kind()));
            default -> -1;
        };
    }

    private static @Nullable Topology missing(Node node, String what, List<Warning> warnings) {
        warnings.add(
                Warning.of(
                        ("%s (%s) is not to be found in /sys, as in some containers and virtual"
                                        + " machines: PCIe bandwidths are estimates")
                                .formatted(node.name(), what)));
        return null;
    }
}
