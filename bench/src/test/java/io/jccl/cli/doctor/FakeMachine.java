package io.jccl.cli.doctor;

import io.jccl.bindings.Discovery;
import io.jccl.bindings.LoadedLibrary;
import io.jccl.bindings.NativeLibrary;
import io.jccl.bindings.Version;
import io.jccl.cli.doctor.Facts.Cuda;
import io.jccl.cli.doctor.Facts.CudaDevice;
import io.jccl.cli.doctor.Facts.HostEngine;
import io.jccl.cli.doctor.Facts.Java;
import io.jccl.cli.doctor.Facts.Space;
import io.jccl.cli.doctor.Facts.Step;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** A machine made of files in a folder. */
public final class FakeMachine {
    private static final long GIB = 1L << 30;

    private static final List<String> EIGHT =
            List.of("07", "0a", "44", "4a", "84", "8a", "c0", "c3");

    private final Path root;
    private final Map<String, String> environment = new HashMap<>();
    private final Map<String, String> properties =
            new HashMap<>(Map.of("os.name", "Linux", "os.arch", "amd64", "user.home", "/home/ada"));
    private final Map<String, Space> disks = new HashMap<>();
    private final Map<NativeLibrary, Discovery> libraries = new EnumMap<>(NativeLibrary.class);
    private final Map<NativeLibrary, List<Libraries.Copy>> copies =
            new EnumMap<>(NativeLibrary.class);
    private Java java = new Java("25", "a vendor", "a VM", "/opt/jdk", true, true);
    private int processors = 8;
    private GpuProbe gpus = () -> Reading.unknown("no libcudart");
    private HostEngine hostEngine =
            new HostEngine(
                    true,
                    new Step(true, "ran"),
                    new Step(true, "mapped"),
                    Reading.known("/dev/shm"),
                    Reading.known(new Space(16 * GIB, 15 * GIB, "tmpfs")));
    private Duration patience = Duration.ofSeconds(10);

    /** A machine with no files at all. */
    public FakeMachine(Path root) {
        this.root = root;
    }

    FakeMachine file(String path, String text) {
        try {
            Path file = root.resolve(path.substring(1));
            Files.createDirectories(file.getParent());
            Files.writeString(file, text);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return this;
    }

    FakeMachine bytes(String path, byte[] bytes) {
        file(path, "");
        try {
            Files.write(root.resolve(path.substring(1)), bytes);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return this;
    }

    FakeMachine folder(String path) {
        try {
            Files.createDirectories(root.resolve(path.substring(1)));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return this;
    }

    /** A relative link between two places below the root. */
    FakeMachine link(String path, String target) {
        Path from = root.resolve(path.substring(1));
        Path to = root.resolve(target.substring(1));
        try {
            Files.createDirectories(from.getParent());
            Path folder = Objects.requireNonNull(from.getParent());
            Files.createSymbolicLink(from, folder.relativize(to));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return this;
    }

    FakeMachine variable(String name, String value) {
        environment.put(name, value);
        return this;
    }

    FakeMachine property(String name, String value) {
        properties.put(name, value);
        return this;
    }

    FakeMachine shm(long total, long free) {
        disks.put("/dev/shm", new Space(total, free, "tmpfs"));
        return folder("/dev/shm");
    }

    FakeMachine jvm(boolean nativeAccess, boolean vectorApi) {
        java = new Java("25", "a vendor", "a VM", "/opt/jdk", nativeAccess, vectorApi);
        return this;
    }

    FakeMachine processors(int count) {
        processors = count;
        return this;
    }

    FakeMachine patience(Duration patience) {
        this.patience = patience;
        return this;
    }

    /** Makes the host engine fail. */
    public FakeMachine brokenHostEngine() {
        hostEngine =
                new HostEngine(
                        false,
                        new Step(true, "ran"),
                        new Step(false, "No space left on device"),
                        Reading.known("/dev/shm"),
                        Reading.unknown("no file store"));
        return this;
    }

    FakeMachine hostEngine(HostEngine engine) {
        hostEngine = engine;
        return this;
    }

    /** Installs a library. */
    public FakeMachine found(NativeLibrary library, String version, String path) {
        libraries.put(
                library,
                new Discovery.Found(
                        new LoadedLibrary(library, Version.of(version), path, "the OS loader"),
                        List.of(new Discovery.Attempt("the OS loader", path, "loaded"))));
        return this;
    }

    FakeMachine missing(NativeLibrary library, String reason, Discovery.Attempt... attempts) {
        libraries.put(library, new Discovery.Missing(library, reason, List.of(attempts)));
        return this;
    }

    FakeMachine copies(NativeLibrary library, Libraries.Copy... all) {
        copies.put(library, List.of(all));
        return this;
    }

    /** Lets CUDA report GPUs. */
    public FakeMachine cuda(String version, int devices) {
        List<CudaDevice> all = new ArrayList<>();
        for (int i = 0; i < devices; i++) {
            all.add(new CudaDevice(i, "a GPU", "0000:0" + i + ":00.0"));
        }
        gpus = () -> Reading.known(new Cuda(Version.of(version), all));
        return this;
    }

    FakeMachine cuda(GpuProbe probe) {
        gpus = probe;
        return this;
    }

    /** The machine. */
    public Machine build() {
        return new Machine(
                new MachineFiles(root),
                environment,
                properties,
                java,
                processors,
                folder -> {
                    Space space = disks.get(folder);
                    if (space == null) {
                        throw new NoSuchFileException(folder);
                    }
                    return space;
                },
                () -> hostEngine,
                new Libraries() {
                    @Override
                    public Discovery discover(NativeLibrary library) {
                        Discovery d = libraries.get(library);
                        if (d == null) {
                            throw new UnsupportedOperationException("nobody looks for it");
                        }
                        return d;
                    }

                    @Override
                    public Reading<List<Copy>> copies(NativeLibrary library) {
                        return Reading.known(copies.getOrDefault(library, List.of()));
                    }
                },
                gpus,
                patience);
    }

    Report report(Requirement... required) {
        return Doctor.examine("1.2.3", build(), List.of(required));
    }

    Facts facts() {
        return report().facts();
    }

    List<String> problems() {
        return report().problems().stream().map(Problem::id).toList();
    }

    /** A plain machine on which nothing is wrong. */
    public FakeMachine healthy() {
        file("/proc/sys/kernel/osrelease", "6.8.0-50-generic\n");
        file("/etc/os-release", "ID=ubuntu\nPRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n");
        file(
                "/proc/self/maps",
                "7f00-7f01 r--p 00000000 08:01 1234    /usr/lib/x86_64-linux-gnu/libc.so.6\n");
        file(
                "/usr/lib/x86_64-linux-gnu/libc.so.6",
                "\0\0GNU C Library (Ubuntu GLIBC 2.39) stable release version 2.39.\n\0");
        file(
                "/proc/self/status",
                "Name:\tjava\nCapEff:\t0\nSeccomp:\t0\nCpus_allowed_list:\t0-7\n");
        file("/proc/meminfo", "MemTotal: 65536000 kB\nMemAvailable: 60000000 kB\n");
        limits("8388608", "1048576", "8388608");
        file("/proc/self/cgroup", "0::/user.slice/user-1000.slice\n");
        file("/proc/sys/kernel/numa_balancing", "0\n");
        folder("/sys/fs/cgroup/user.slice/user-1000.slice");
        cpus(1, 4, 2);
        shm(32 * GIB, 31 * GIB);
        return this;
    }

    FakeMachine limits(String memlock, String files, String stack) {
        return file(
                "/proc/self/limits",
                """
                Limit                     Soft Limit           Hard Limit           Units
                Max stack size            %s              unlimited            bytes
                Max open files            %s              1048576              files
                Max locked memory         %s              %s              bytes
                """
                        .formatted(stack, files, memlock, memlock));
    }

    /** Sockets with a NUMA node each; the hyperthreads come after all cores, as Linux has it. */
    FakeMachine cpus(int sockets, int coresEach, int threadsEach) {
        int cores = sockets * coresEach;
        int cpus = cores * threadsEach;
        StringBuilder info = new StringBuilder();
        for (int cpu = 0; cpu < cpus; cpu++) {
            int core = cpu % cores;
            int socket = core / coresEach;
            info.append("processor\t: ").append(cpu).append('\n');
            info.append("model name\t: A CPU\nflags\t\t: fpu sse2\n\n");
            String topology = "/sys/devices/system/cpu/cpu" + cpu + "/topology/";
            file(topology + "physical_package_id", socket + "\n");
            StringBuilder siblings = new StringBuilder();
            for (int t = 0; t < threadsEach; t++) {
                siblings.append(t == 0 ? "" : ",").append(core + t * cores);
            }
            file(topology + "core_cpus_list", siblings + "\n");
        }
        file("/proc/cpuinfo", info.toString());
        file("/sys/devices/system/cpu/online", "0-" + (cpus - 1) + "\n");
        for (int s = 0; s < sockets; s++) {
            String node = "/sys/devices/system/node/node" + s;
            file(node + "/cpulist", s * coresEach + "-" + ((s + 1) * coresEach - 1) + "\n");
            file(
                    node + "/meminfo",
                    "Node %d MemTotal:  1048576 kB\nNode %d MemFree:   524288 kB\n"
                            .formatted(s, s));
        }
        return processors(cpus);
    }

    /** An NVIDIA GPU behind a bridge, driven by something or nothing. */
    FakeMachine gpu(String bus, int numaNode, String driver) {
        String address = "0000:" + bus + ":00.0";
        String device = "/sys/devices/pci0000:00/0000:00:" + bus.charAt(1) + "1.0/" + address;
        file(device + "/vendor", "0x10de\n");
        file(device + "/class", "0x030200\n");
        file(device + "/device", "0x2330\n");
        file(device + "/numa_node", numaNode + "\n");
        file(device + "/current_link_speed", "32.0 GT/s PCIe\n");
        file(device + "/max_link_speed", "32.0 GT/s PCIe\n");
        file(device + "/current_link_width", "16\n");
        file(device + "/max_link_width", "16\n");
        link("/sys/bus/pci/devices/" + address, device);
        if (!driver.isEmpty()) {
            folder("/sys/bus/pci/drivers/" + driver);
            link(device + "/driver", "/sys/bus/pci/drivers/" + driver);
        }
        return this;
    }

    /** NVIDIA's driver with device files for some GPUs. */
    FakeMachine driver(String version, int devices) {
        file(
                "/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                        + version
                        + "  Release Build  (root@build)  Tue Jul 22 12:00:00 UTC 2025\n"
                        + "GCC version:  gcc version 13.3.0\n");
        String lib = "/usr/lib/x86_64-linux-gnu/libcuda.so.";
        file(lib + version, "");
        link(lib + "1", lib + version);
        for (int i = 0; i < devices; i++) {
            file("/dev/nvidia" + i, "");
        }
        file("/dev/nvidiactl", "");
        file("/dev/nvidia-uvm", "");
        return folder("/dev/nvidia-caps");
    }

    /** Two sockets, eight GPUs, a network card, driver and libraries: all well. */
    public FakeMachine eightGpus() {
        healthy().cpus(2, 4, 2).limits("unlimited", "1048576", "8388608");
        for (int i = 0; i < EIGHT.size(); i++) {
            gpu(EIGHT.get(i), i / 4, "nvidia");
            file(
                    "/proc/driver/nvidia/gpus/0000:" + EIGHT.get(i) + ":00.0/information",
                    "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 100\nGPU UUID: \t GPU-"
                            + i
                            + "\nBus Type: \t PCIe\n");
        }
        driver("580.65.06", EIGHT.size());
        String nic = "/sys/devices/pci0000:00/0000:00:05.0/0000:05:00.0";
        file(nic + "/numa_node", "0\n");
        link("/sys/class/infiniband/mlx5_0/device", nic);
        file("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
        file("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
        file("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
        file("/dev/infiniband/uverbs0", "");
        file("/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n");
        cuda("13.0", EIGHT.size());
        found(NativeLibrary.NCCL, "2.30.7", "/usr/lib/x86_64-linux-gnu/libnccl.so.2.30.7");
        found(NativeLibrary.CUDART, "13.0", "/usr/local/cuda/lib64/libcudart.so.13");
        found(NativeLibrary.CUBLAS, "13.1.1", "/usr/local/cuda/lib64/libcublas.so.13");
        return found(NativeLibrary.MPI, "4.1.4", "/usr/lib/x86_64-linux-gnu/libmpi.so.40");
    }
}
