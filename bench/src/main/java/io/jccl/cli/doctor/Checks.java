package io.jccl.cli.doctor;

import io.jccl.bindings.Version;
import io.jccl.cli.doctor.Facts.ConfigFile;
import io.jccl.cli.doctor.Facts.Gpu;
import io.jccl.cli.doctor.Facts.Library;
import io.jccl.cli.doctor.Facts.Nic;
import io.jccl.cli.doctor.Facts.Space;
import io.jccl.cli.doctor.Facts.Variable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The table of all checks of a machine. An unknown value is not a problem. */
final class Checks {
    private static final long MIB = 1 << 20;
    private static final long GIB = 1 << 30;

    /** Less than this is too little even for small jobs; Docker's default is 64 MiB. */
    private static final long LEAST_SHM = 256 * MIB;

    private static final long LEAST_FILES = 4096;

    /**
     * A row.
     *
     * @param severity how much it matters
     * @param id a stable name
     * @param when whether the machine has the problem
     * @param found what was found, with the value
     * @param action what to do
     */
    private record Check(
            Severity severity,
            String id,
            Predicate<Facts> when,
            Function<Facts, String> found,
            Function<Facts, String> action) {}

    /** Settings that help to find a fault, and cost speed if they are left on. */
    private static final Map<String, String> SLOW =
            Map.of(
                    "NCCL_P2P_DISABLE=1", "GPUs do not reach each other's memory",
                    "NCCL_SHM_DISABLE=1", "processes of one machine talk through the network",
                    "NCCL_IB_DISABLE=1", "InfiniBand and RoCE are not used",
                    "NCCL_NET_GDR_LEVEL=LOC", "network cards do not reach GPU memory",
                    "CUDA_LAUNCH_BLOCKING=1", "every kernel is waited for",
                    "NCCL_DEBUG=TRACE", "every call is logged");

    private static final List<Check> ALL = all();

    private Checks() {}

    /** The most severe first. */
    static List<Problem> problems(Facts facts, List<Requirement.Result> required) {
        Stream<Problem> unmet =
                required.stream()
                        .filter(r -> !r.usable())
                        .map(r ->
                                new Problem(
                                        Severity.ERROR,
                                        "required-" + r.name(),
                                        r.name() + " is required: " + r.reason(),
                                        "see Libraries, NVIDIA driver and the problems below"));
        Stream<Problem> rows =
                ALL.stream()
                        .filter(c -> c.when.test(facts))
                        .map(c ->
                                new Problem(
                                        c.severity,
                                        c.id,
                                        c.found.apply(facts),
                                        c.action.apply(facts)));
        return Stream.concat(unmet, rows).sorted(Comparator.comparing(Problem::severity)).toList();
    }

    private static List<Check> all() {
        List<Check> all = new ArrayList<>();
        hostEngine(all::add);
        java(all::add);
        cpu(all::add);
        memory(all::add);
        driver(all::add);
        gpus(all::add);
        network(all::add);
        libraries(all::add);
        configuration(all::add);
        return List.copyOf(all);
    }

    /** Collects the rows. */
    private interface Table {
        void add(Check check);

        default void row(
                Severity severity,
                String id,
                Predicate<Facts> when,
                Function<Facts, String> found,
                Function<Facts, String> action) {
            add(new Check(severity, id, when, found, action));
        }

        default void row(
                Severity severity,
                String id,
                Predicate<Facts> when,
                Function<Facts, String> found,
                String action) {
            row(severity, id, when, found, f -> action);
        }
    }

    private static void hostEngine(Table t) {
        t.row(
                Severity.ERROR,
                "host-engine-threads",
                f -> !f.hostEngine().threads().works(),
                f -> "the host engine fails with ranks as threads: " + detail(f, true),
                "report it with this report and with what JCCL_DEBUG=1 jccl all_reduce -g 2 prints");
        t.row(
                Severity.ERROR,
                "host-engine-processes",
                f -> !f.hostEngine().processes().works(),
                f -> "ranks as processes cannot share memory: " + detail(f, false),
                "make the folder writable and large enough, or name another one in memory in"
                        + " JCCL_SHM_DIR");
        t.row(
                Severity.WARNING,
                "shm-on-disk",
                f -> f.hostEngine().space().fits(s -> !s.type().matches("tmpfs|ramfs|hugetlbfs")),
                f ->
                        "ranks as processes share memory in "
                                + Texts.text(f.hostEngine().folder())
                                + ", which is not in memory ("
                                + f.hostEngine().space().map(Space::type).orElse("")
                                + ")",
                "mount a tmpfs on /dev/shm, or name a folder of one in JCCL_SHM_DIR");
    }

    private static String detail(Facts f, boolean threads) {
        return (threads ? f.hostEngine().threads() : f.hostEngine().processes()).detail();
    }

    private static void java(Table t) {
        t.row(
                Severity.WARNING,
                "native-access",
                f -> !f.java().nativeAccess(),
                f -> "module io.jccl.bindings is not allowed to call native code",
                "start java with --enable-native-access=io.jccl.bindings (on the class path"
                        + " ALL-UNNAMED)");
        t.row(
                Severity.WARNING,
                "vector-api",
                f -> !f.java().vectorApi(),
                f ->
                        "this JDK has no Vector API, so the host engine reduces several times"
                                + " slower",
                "use a JDK with the module jdk.incubator.vector; a program of your own also needs"
                        + " --add-modules jdk.incubator.vector");
        t.row(
                Severity.INFO,
                "musl",
                f -> f.os().libc().fits("musl"::equals),
                f -> "the C library is musl, and NVIDIA's libraries need glibc",
                "for GPUs use an image based on Debian, Ubuntu or RHEL");
    }

    private static void cpu(Table t) {
        t.row(
                Severity.INFO,
                "one-cpu",
                f -> f.cpu().availableToJava() == 1,
                f -> "Java has one CPU, so ranks take turns",
                "give the process or container more CPUs");
        t.row(
                Severity.WARNING,
                "cpu-limit",
                f ->
                        f.cpu()
                                .limit()
                                .fits(l ->
                                        l > 0
                                                && l
                                                        < f.cpu()
                                                                .affinity()
                                                                .map(Checks::cpus)
                                                                .orElse(0)),
                f ->
                        "control groups grant "
                                + Texts.text(f.cpu().limit())
                                + " CPUs' time on "
                                + Texts.text(f.cpu().affinity().map(Checks::cpus))
                                + " CPUs, and a rank that is stopped stops all",
                "run no more ranks and threads than that, or raise the limit (docker --cpus)");
        t.row(
                Severity.WARNING,
                "numa-balancing",
                f -> f.cpu().numaBalancing().fits(on -> on) && f.cpu().nodes() > 1 && f.hasNvidia(),
                f ->
                        "the kernel moves pages between "
                                + f.cpu().nodes()
                                + " NUMA nodes (numa_balancing is 1), at the expense of page faults",
                "sysctl kernel.numa_balancing=0");
    }

    private static int cpus(String list) {
        return CpuList.parse(list).size();
    }

    private static void memory(Table t) {
        t.row(
                Severity.WARNING,
                "shm-small",
                f -> f.memory().devShm().fits(s -> s.totalBytes() < leastShm(f)),
                f ->
                        "/dev/shm has "
                                + Texts.bytes(f.memory().devShm().map(Space::totalBytes).orElse(0L))
                                + ", little for NCCL and for the buffers of ranks as processes",
                f ->
                        f.container().detected()
                                ? "start the container with --shm-size=1g or --ipc=host (Kubernetes:"
                                        + " an emptyDir with medium Memory on /dev/shm)"
                                : "mount -o remount,size=1g /dev/shm");
        t.row(
                Severity.WARNING,
                "shm-full",
                f ->
                        f.memory()
                                .devShm()
                                .fits(s ->
                                        s.totalBytes() >= leastShm(f)
                                                && s.freeBytes() < LEAST_SHM / 4),
                f ->
                        "/dev/shm has only "
                                + Texts.bytes(f.memory().devShm().map(Space::freeBytes).orElse(0L))
                                + " left",
                "delete what dead programs have left there (ls -l /dev/shm)");
        t.row(
                Severity.INFO,
                "shm-over-limit",
                f ->
                        f.memory()
                                .limitBytes()
                                .fits(limit ->
                                        limit > 0
                                                && f.memory()
                                                        .devShm()
                                                        .fits(s -> s.totalBytes() > limit)),
                f ->
                        "/dev/shm may grow to "
                                + Texts.bytes(f.memory().devShm().map(Space::totalBytes).orElse(0L))
                                + ", but its memory counts against the control group's "
                                + Texts.bytes(f.memory().limitBytes().orElse(0L)),
                "expect processes to be killed when both are used up; size them together");
        t.row(
                Severity.WARNING,
                "memlock",
                f ->
                        f.memory().memlockBytes().fits(l -> l.soft() >= 0)
                                && (!f.network().devices().isEmpty()
                                        || (f.container().detected() && f.hasNvidia())),
                f ->
                        "memory that may be locked is limited to "
                                + f.memory()
                                        .memlockBytes()
                                        .map(l -> Texts.bytes(l.soft()))
                                        .orElse("")
                                + ", and network cards need theirs locked",
                f ->
                        f.container().detected()
                                ? "start the container with --ulimit memlock=-1"
                                : "ulimit -l unlimited (in /etc/security/limits.d: * - memlock"
                                        + " unlimited)");
        t.row(
                Severity.WARNING,
                "open-files",
                f ->
                        f.memory().openFiles().fits(l -> l.soft() >= 0 && l.soft() < LEAST_FILES)
                                && f.hasNvidia(),
                f ->
                        "only "
                                + f.memory().openFiles().map(l -> Texts.limit(l.soft())).orElse("")
                                + " files may be open, and NCCL opens many",
                f ->
                        f.container().detected()
                                ? "start the container with --ulimit nofile=131072"
                                : "ulimit -n 131072 (in /etc/security/limits.d: * - nofile 131072)");
        t.row(
                Severity.WARNING,
                "stack-unlimited",
                f -> f.memory().stackBytes().fits(l -> l.soft() < 0) && f.hasNvidia(),
                f ->
                        "the stack limit is unlimited, which makes glibc give threads only 2 MiB,"
                                + " too little for NCCL before 2.28",
                "ulimit -s 8192");
        t.row(
                Severity.INFO,
                "remove-ipc",
                f ->
                        f.container().removeIpc().fits(v -> v.matches("yes|true|1|on|not set"))
                                && f.hasNvidia(),
                f ->
                        "systemd may delete a user's files in /dev/shm when the user logs out"
                                + " (RemoveIPC is "
                                + Texts.text(f.container().removeIpc())
                                + ")",
                "for jobs that outlive the login set RemoveIPC=no in /etc/systemd/logind.conf and"
                        + " restart systemd-logind");
    }

    private static long leastShm(Facts f) {
        return f.manyGpus() ? GIB : LEAST_SHM;
    }

    private static void driver(Table t) {
        t.row(
                Severity.WARNING,
                "no-driver",
                f -> !f.gpus().isEmpty() && !f.driver().version().known() && !f.driver().wsl(),
                f ->
                        Texts.count(f.gpus().size(), "NVIDIA GPU")
                                + " on the PCI bus, but the driver is not loaded (bound to: "
                                + bound(f)
                                + ")",
                f ->
                        switch (bound(f)) {
                            case "nouveau" ->
                                    "block nouveau (modprobe.d: blacklist nouveau), install NVIDIA's"
                                            + " driver and reboot";
                            case "vfio-pci" ->
                                    "they are set aside for virtual machines; bind them to NVIDIA's"
                                            + " driver if this machine is to use them";
                            default -> "install NVIDIA's driver, or modprobe nvidia and see dmesg";
                        });
        t.row(
                Severity.WARNING,
                "no-device-nodes",
                f ->
                        f.driver().version().known()
                                && f.driver().deviceNodes().stream().noneMatch(Checks::isGpu),
                f -> "NVIDIA's driver is loaded, but there is no /dev/nvidia0 or the like",
                f ->
                        f.container().detected()
                                ? "start the container with --gpus all (Kubernetes: limits:"
                                        + " nvidia.com/gpu)"
                                : "nvidia-smi or nvidia-modprobe -c 0 makes them");
        t.row(
                Severity.INFO,
                "some-device-nodes",
                f -> visible(f) > 0 && visible(f) < f.gpus().size(),
                f ->
                        visible(f)
                                + " of "
                                + Texts.count(f.gpus().size(), "GPU")
                                + " have a device file here",
                "if more are meant to be used, pass them to the container or job");
        t.row(
                Severity.WARNING,
                "no-uvm",
                f -> visible(f) > 0 && node(f, "/dev/nvidia-uvm").isEmpty(),
                f -> "there is no /dev/nvidia-uvm, without which CUDA does not start",
                f ->
                        f.container().detected()
                                ? "run nvidia-modprobe -u -c 0 on the host, then restart the container"
                                : "nvidia-modprobe -u -c 0");
        t.row(
                Severity.WARNING,
                "device-permission",
                f -> !forbidden(f).isEmpty(),
                f -> "not allowed to read and write " + forbidden(f),
                "join the group that owns them (ls -l /dev/nvidia*, often video), or chmod 666");
        t.row(
                Severity.WARNING,
                "no-libcuda",
                f -> f.driver().version().known() && !f.driver().libcuda().known(),
                f -> "NVIDIA's driver is loaded, but " + unknown(f.driver().libcuda()),
                f ->
                        f.container().detected()
                                ? "start the container by NVIDIA's runtime with"
                                        + " NVIDIA_DRIVER_CAPABILITIES=compute,utility"
                                : "install the user part of the driver (package libcuda1 or"
                                        + " libnvidia-compute)");
        t.row(
                Severity.WARNING,
                "driver-mismatch",
                f ->
                        f.driver()
                                .libcudaVersion()
                                .fits(user ->
                                        f.driver().version().fits(kernel -> !kernel.equals(user))
                                                && !Texts.text(f.driver().libcuda())
                                                        .contains("compat")),
                f ->
                        "libcuda is "
                                + Texts.text(f.driver().libcudaVersion())
                                + ", but the loaded driver is "
                                + Texts.text(f.driver().version()),
                "reboot, or reload the kernel modules, after an update of the driver; in a container"
                        + " remove its own libcuda");
        t.row(
                Severity.WARNING,
                "cuda-fails",
                f -> visible(f) > 0 && f.driver().usableGpus() == 0,
                f ->
                        "there are device files for "
                                + Texts.count(visible(f), "GPU")
                                + ", but CUDA finds none"
                                + (f.driver().cuda().known()
                                        ? ""
                                        : ": " + unknown(f.driver().cuda())),
                "see nvidia-smi and dmesg, and the libraries above");
        t.row(
                Severity.WARNING,
                "driver-old",
                f -> !runtimeTooNew(f).isEmpty(),
                Checks::runtimeTooNew,
                "update the driver, or install libraries for the driver's CUDA");
    }

    private static String bound(Facts f) {
        return f.gpus().stream()
                .map(g -> Texts.text(g.driver()))
                .distinct()
                .collect(Collectors.joining(", "));
    }

    private static boolean isGpu(Facts.DeviceNode node) {
        return node.path().matches("/dev/nvidia\\d+");
    }

    private static int visible(Facts f) {
        return Math.toIntExact(f.driver().deviceNodes().stream().filter(Checks::isGpu).count());
    }

    private static List<Facts.DeviceNode> node(Facts f, String path) {
        return f.driver().deviceNodes().stream().filter(n -> n.path().equals(path)).toList();
    }

    private static String forbidden(Facts f) {
        return f.driver().deviceNodes().stream()
                .filter(n -> n.path().matches("/dev/nvidia(\\d+|ctl|-uvm)"))
                .filter(n -> !n.readable() || !n.writable())
                .map(Facts.DeviceNode::path)
                .collect(Collectors.joining(" "));
    }

    private static String unknown(Reading<?> reading) {
        return reading instanceof Reading.Unknown<?>(String reason) ? reason : "";
    }

    /** A library built for a newer major version of CUDA needs a driver of that version. */
    private static String runtimeTooNew(Facts f) {
        if (!(f.driver().cuda() instanceof Reading.Known<Facts.Cuda>(Facts.Cuda cuda))) {
            return "";
        }
        return Stream.of("cudart", "cublas")
                .map(f::library)
                .filter(l -> l.version() != null)
                .filter(l ->
                        Version.of(Objects.requireNonNull(l.version())).major()
                                > cuda.driverVersion().major())
                .map(l ->
                        l.title()
                                + " "
                                + l.version()
                                + " is too new for the driver, which serves CUDA "
                                + cuda.driverVersion())
                .collect(Collectors.joining("; "));
    }

    private static void gpus(Table t) {
        t.row(
                Severity.WARNING,
                "gpu-unbound",
                f -> f.driver().version().known() && !unbound(f).isEmpty(),
                f -> "NVIDIA's driver is loaded, but does not have GPUs " + unbound(f),
                "see dmesg: the driver may be too old or too new for them, or they have failed");
        t.row(
                Severity.WARNING,
                "iommu",
                f -> f.manyGpus() && !virtual(f) && !translated(f).isEmpty(),
                f ->
                        "the IOMMU translates the accesses of GPUs "
                                + translated(f)
                                + ", which makes traffic between GPUs slow or hang",
                "boot with iommu=pt, or switch the IOMMU (VT-d, AMD-Vi) off in the BIOS");
        t.row(
                Severity.WARNING,
                "acs",
                f -> f.manyGpus() && !virtual(f) && !redirecting(f).isEmpty(),
                f ->
                        "PCI bridges "
                                + redirecting(f)
                                + " send traffic between GPUs through the processor (ACS)",
                "setpci -s BRIDGE ECAP_ACS+0x6.w=0000 after each boot, or switch ACS off in the BIOS");
        t.row(
                Severity.INFO,
                "link-narrow",
                f -> !narrow(f).isEmpty(),
                f -> "fewer PCI lanes than the device has: " + narrow(f),
                "reseat the card, or see what the slot gives");
        t.row(
                Severity.INFO,
                "gpu-numa-unknown",
                f ->
                        f.cpu().nodes() > 1
                                && f.gpus().stream().anyMatch(g -> g.numaNode().fits(n -> n < 0)),
                f -> "the firmware does not say which NUMA node the GPUs belong to",
                "in a virtual machine let the hypervisor show the topology, or give NCCL a"
                        + " NCCL_TOPO_FILE");
        t.row(
                Severity.INFO,
                "cuda-visible-devices",
                f -> hidesGpus(f.configuration().variables()),
                f ->
                        "CUDA_VISIBLE_DEVICES is '"
                                + value(f, "CUDA_VISIBLE_DEVICES")
                                + "', which hides all GPUs",
                "unset it to use GPUs");
        t.row(
                Severity.INFO,
                "numa-policy",
                f ->
                        f.container().detected()
                                && visible(f) > 0
                                && f.container().seccomp().fits("filter"::equals)
                                && f.container().sysNice().fits(can -> !can),
                f ->
                        "system calls are filtered and CAP_SYS_NICE is missing, so NCCL may not"
                                + " place its shared host memory by NUMA node",
                "start the container with --cap-add SYS_NICE (for NCCL before 2.26.5 otherwise set"
                        + " NCCL_CUMEM_HOST_ENABLE=0)");
    }

    private static boolean virtual(Facts f) {
        return f.cpu().virtualMachine().orElse(false);
    }

    private static String unbound(Facts f) {
        return addresses(f, g -> g.driver().fits(d -> !d.equals("nvidia")));
    }

    private static String translated(Facts f) {
        return addresses(f, g -> g.iommu().fits(i -> i.startsWith("DMA")));
    }

    private static String addresses(Facts f, Predicate<Gpu> which) {
        return f.gpus().stream().filter(which).map(Gpu::pci).collect(Collectors.joining(" "));
    }

    private static String redirecting(Facts f) {
        return f.gpus().stream()
                .flatMap(g -> g.redirecting().orElse(List.of()).stream())
                .distinct()
                .collect(Collectors.joining(" "));
    }

    private static String narrow(Facts f) {
        return f.gpus().stream()
                .flatMap(g ->
                        g.link() instanceof Reading.Known<Facts.Link>(Facts.Link l)
                                        && l.width() > 0
                                        && l.width() < l.maxWidth()
                                ? Stream.of(g.pci() + " x" + l.width() + " of x" + l.maxWidth())
                                : Stream.empty())
                .collect(Collectors.joining(", "));
    }

    private static boolean hidesGpus(List<Variable> variables) {
        return variables.stream()
                .anyMatch(v ->
                        v.name().equals("CUDA_VISIBLE_DEVICES")
                                && v.value().strip().matches("|-1.*|NoDevFiles"));
    }

    private static String value(Facts f, String name) {
        return f.configuration().variables().stream()
                .filter(v -> v.name().equals(name))
                .map(Variable::value)
                .findFirst()
                .orElse("");
    }

    private static void network(Table t) {
        t.row(
                Severity.WARNING,
                "no-verbs",
                f -> !f.network().devices().isEmpty() && f.network().verbs().isEmpty(),
                f ->
                        "InfiniBand or RoCE devices are there ("
                                + f.network().devices().stream()
                                        .map(Nic::name)
                                        .collect(Collectors.joining(" "))
                                + "), but no /dev/infiniband/uverbs0 or the like",
                f ->
                        f.container().detected()
                                ? "start the container with --device=/dev/infiniband"
                                : "modprobe ib_uverbs");
        t.row(
                Severity.INFO,
                "port-down",
                f -> !down(f).isEmpty(),
                f -> "network ports are not active: " + down(f),
                "leave them out (NCCL_IB_HCA), or see the cable and the subnet manager");
        t.row(
                Severity.INFO,
                "no-peer-memory",
                f ->
                        f.hasNvidia()
                                && !f.network().devices().isEmpty()
                                && f.driver().version().known()
                                && !f.driver().openModule()
                                && !f.driver().peerMemory(),
                f ->
                        "network cards cannot reach GPU memory: module nvidia_peermem is not loaded,"
                                + " and only the open driver does without",
                "modprobe nvidia-peermem");
    }

    private static String down(Facts f) {
        return f.network().devices().stream()
                .flatMap(n ->
                        n.ports().stream()
                                .filter(p -> p.state().fits(s -> !s.equals("ACTIVE")))
                                .map(p ->
                                        n.name() + "/" + p.number() + " " + Texts.text(p.state())))
                .collect(Collectors.joining(", "));
    }

    private static void libraries(Table t) {
        t.row(
                Severity.WARNING,
                "no-nccl",
                f -> f.driver().version().known() && !f.library("nccl").found(),
                f -> "NCCL is not usable: " + f.library("nccl").reason(),
                "install libnccl2 or the wheel nvidia-nccl-cu13, or name its folder in NCCL_HOME");
        t.row(
                Severity.WARNING,
                "no-cudart",
                f -> f.driver().version().known() && !f.library("cudart").found(),
                f -> "the CUDA runtime is not usable: " + f.library("cudart").reason(),
                "install CUDA or the wheel nvidia-cuda-runtime, or name its folder in CUDA_HOME");
        t.row(
                Severity.WARNING,
                "several-nccl",
                f -> !otherNccl(f).isEmpty(),
                f ->
                        (f.library("nccl").found()
                                        ? "NCCL "
                                                + f.library("nccl").version()
                                                + " is loaded from "
                                                + f.library("nccl").path()
                                                + ", but there are other copies: "
                                        : "several versions of NCCL: ")
                                + otherNccl(f),
                "remove all but one, or name the right one in NCCL_HOME: another part of the program"
                        + " may load the wrong one");
    }

    /** Copies of the same version as the loaded one are harmless. */
    private static String otherNccl(Facts f) {
        Library nccl = f.library("nccl");
        List<Libraries.Copy> copies =
                nccl.otherCopies().orElse(List.of()).stream()
                        .filter(c -> !nccl.found() || !Objects.equals(c.version(), nccl.version()))
                        .toList();
        boolean several =
                nccl.found()
                        ? !copies.isEmpty()
                        : copies.stream().map(Libraries.Copy::version).distinct().count() > 1;
        return !several
                ? ""
                : copies.stream()
                        .map(c ->
                                (c.version() == null ? "unknown version" : c.version())
                                        + " in "
                                        + c.path())
                        .collect(Collectors.joining(", "));
    }

    private static void configuration(Table t) {
        t.row(
                Severity.WARNING,
                "library-setting",
                f -> !brokenSettings(f).isEmpty(),
                Checks::brokenSettings,
                "correct the setting or unset it; it is not passed over, so that no other copy is"
                        + " taken instead");
        t.row(
                Severity.WARNING,
                "nccl-conf-unreadable",
                f -> !unreadable(f).isEmpty(),
                f -> "NCCL cannot read its settings: " + unreadable(f),
                "correct NCCL_CONF_FILE or the file's permissions; NCCL passes over it silently");
        t.row(
                Severity.INFO,
                "nccl-conf",
                f -> !inFiles(f).isEmpty(),
                f -> "NCCL takes settings from files: " + inFiles(f),
                "see that they are meant for this NCCL: a forgotten file can keep it from starting");
        t.row(
                Severity.WARNING,
                "nccl-conf-names",
                f -> !spaced(f).isEmpty(),
                f ->
                        "lines without effect in NCCL's files, because of a blank beside '=': "
                                + spaced(f),
                "write NAME=value without blanks");
        t.row(
                Severity.WARNING,
                "slow-setting",
                f -> !slow(f).isEmpty(),
                f -> "settings that cost speed: " + slow(f),
                "unset them unless they are meant");
        t.row(
                Severity.INFO,
                "nccl-comm-id",
                f -> settings(f).anyMatch(v -> v.name().equals("NCCL_COMM_ID")),
                f -> "NCCL_COMM_ID is set, so all communicators meet at one address, one at a time",
                "unset it; JCCL exchanges the ids itself");
    }

    /** A variable or property that names a library's location, where the library is not. */
    private static String brokenSettings(Facts f) {
        return f.libraries().stream()
                .filter(l -> !l.found())
                .filter(l -> l.attempts().stream().anyMatch(a -> isSetting(a.how())))
                .map(l -> l.title() + ": " + l.reason())
                .collect(Collectors.joining("; "));
    }

    private static boolean isSetting(String how) {
        return how.matches("(system property jccl|environment variable NCCL_HOME).*");
    }

    private static String unreadable(Facts f) {
        return f.configuration().files().stream()
                .filter(c ->
                        c.state().equals(ConfigFile.ABSENT)
                                ? c.origin().equals("NCCL_CONF_FILE")
                                : !c.state().equals(ConfigFile.READ))
                .map(c ->
                        c.state().equals(ConfigFile.ABSENT)
                                ? "NCCL_CONF_FILE names " + c.path() + ", which does not exist"
                                : c.state())
                .collect(Collectors.joining("; "));
    }

    private static String inFiles(Facts f) {
        return f.configuration().files().stream()
                .filter(c -> c.settings().stream().anyMatch(s -> s.overriddenBy() == null))
                .map(c ->
                        c.path()
                                + " ("
                                + c.settings().stream()
                                        .filter(s -> s.overriddenBy() == null)
                                        .map(s -> s.name() + "=" + s.value())
                                        .collect(Collectors.joining(" "))
                                + ")")
                .collect(Collectors.joining(", "));
    }

    private static String spaced(Facts f) {
        return f.configuration().files().stream()
                .flatMap(c -> c.settings().stream())
                .map(Facts.Setting::name)
                .filter(n -> !n.strip().equals(n))
                .map(String::strip)
                .collect(Collectors.joining(" "));
    }

    private static String slow(Facts f) {
        return settings(f)
                .map(v -> v.name() + "=" + v.value().strip())
                .distinct()
                .filter(SLOW::containsKey)
                .map(v -> v + " (" + SLOW.get(v) + ")")
                .collect(Collectors.joining(", "));
    }

    /** The settings that NCCL will use: the environment and what its configuration files add. */
    private static Stream<Variable> settings(Facts f) {
        return Stream.concat(
                f.configuration().variables().stream(),
                f.configuration().files().stream()
                        .flatMap(c -> c.settings().stream())
                        .filter(s -> s.overriddenBy() == null)
                        .map(s -> new Variable(s.name(), s.value())));
    }
}
