package io.jccl.cli.doctor;

import static io.jccl.cli.doctor.Severity.INFO;
import static io.jccl.cli.doctor.Severity.WARNING;

import io.jccl.bindings.Version;
import io.jccl.cli.doctor.Checks.Table;
import io.jccl.cli.doctor.Facts.Gpu;
import io.jccl.cli.doctor.Facts.Variable;
import io.jccl.cli.shell.Text;
import java.util.List;
import java.util.Objects;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Rows of {@link Checks} on the driver and on GPUs. */
final class GpuChecks {
    private GpuChecks() {}

    static void driver(Table t) {
        t.row(
                WARNING,
                "no-driver",
                f -> !f.gpus().isEmpty() && !f.driver().version().known() && !f.driver().wsl(),
                f ->
                        Text.count(f.gpus().size(), "NVIDIA GPU")
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
                WARNING,
                "no-device-nodes",
                f ->
                        f.driver().version().known()
                                && f.driver().deviceNodes().stream().noneMatch(GpuChecks::isGpu),
                f -> "NVIDIA's driver is loaded, but there is no /dev/nvidia0 or the like",
                "start the container with --gpus all (Kubernetes: limits: nvidia.com/gpu)",
                "nvidia-smi or nvidia-modprobe -c 0 makes them");
        t.row(
                INFO,
                "some-device-nodes",
                f -> visible(f) > 0 && visible(f) < f.gpus().size(),
                f ->
                        visible(f)
                                + " of "
                                + Text.count(f.gpus().size(), "GPU")
                                + " have a device file here",
                "if more are meant to be used, pass them to the container or job");
        t.row(
                WARNING,
                "no-uvm",
                f -> visible(f) > 0 && node(f, "/dev/nvidia-uvm").isEmpty(),
                f -> "there is no /dev/nvidia-uvm, without which CUDA does not start",
                "run nvidia-modprobe -u -c 0 on the host, then restart the container",
                "nvidia-modprobe -u -c 0");
        t.row(
                WARNING,
                "device-permission",
                f -> !forbidden(f).isEmpty(),
                f -> "not allowed to read and write " + forbidden(f),
                "join the group that owns them (ls -l /dev/nvidia*, often video), or chmod 666");
        t.row(
                WARNING,
                "no-libcuda",
                f -> f.driver().version().known() && !f.driver().libcuda().known(),
                f -> "NVIDIA's driver is loaded, but " + unknown(f.driver().libcuda()),
                "start the container by NVIDIA's runtime with"
                        + " NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                "install the user part of the driver (package libcuda1 or libnvidia-compute)");
        t.row(
                WARNING,
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
                WARNING,
                "cuda-fails",
                f -> visible(f) > 0 && f.driver().usableGpus() == 0,
                f ->
                        "there are device files for "
                                + Text.count(visible(f), "GPU")
                                + ", but CUDA finds none"
                                + (f.driver().cuda().known()
                                        ? ""
                                        : ": " + unknown(f.driver().cuda())),
                "see nvidia-smi and dmesg, and the libraries above");
        t.row(
                WARNING,
                "driver-old",
                f -> !runtimeTooNew(f).isEmpty(),
                GpuChecks::runtimeTooNew,
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
        return Math.toIntExact(f.driver().deviceNodes().stream().filter(GpuChecks::isGpu).count());
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

    static void gpus(Table t) {
        t.row(
                WARNING,
                "gpu-unbound",
                f -> f.driver().version().known() && !unbound(f).isEmpty(),
                f -> "NVIDIA's driver is loaded, but does not have GPUs " + unbound(f),
                "see dmesg: the driver may be too old or too new for them, or they have failed");
        t.row(
                WARNING,
                "iommu",
                f -> f.manyGpus() && !virtual(f) && !translated(f).isEmpty(),
                f ->
                        "the IOMMU translates the accesses of GPUs "
                                + translated(f)
                                + ", which makes traffic between GPUs slow or hang",
                "boot with iommu=pt (on ARM with iommu.passthrough=1), or switch the IOMMU (VT-d,"
                        + " AMD-Vi, SMMU) off in the BIOS");
        t.row(
                WARNING,
                "acs",
                f -> f.manyGpus() && !virtual(f) && !redirecting(f).isEmpty(),
                f ->
                        "PCI bridges "
                                + redirecting(f)
                                + " send traffic between GPUs through the processor (ACS)",
                "setpci -s BRIDGE ECAP_ACS+0x6.w=0000 after each boot, or switch ACS off in the BIOS");
        t.row(
                INFO,
                "link-narrow",
                f -> !narrow(f).isEmpty(),
                f -> "fewer PCI lanes than the device has: " + narrow(f),
                "reseat the card, or see what the slot gives");
        t.row(
                INFO,
                "gpu-numa-unknown",
                f ->
                        f.cpu().nodes() > 1
                                && f.gpus().stream().anyMatch(g -> g.numaNode().fits(n -> n < 0)),
                f -> "the firmware does not report which NUMA node the GPUs belong to",
                "in a virtual machine let the hypervisor show the topology, or give NCCL a"
                        + " NCCL_TOPO_FILE");
        t.row(
                INFO,
                "cuda-visible-devices",
                f -> hidesGpus(f.configuration().variables()),
                f ->
                        "CUDA_VISIBLE_DEVICES is '"
                                + value(f, "CUDA_VISIBLE_DEVICES")
                                + "', which hides all GPUs",
                "unset it to use GPUs");
        t.row(
                INFO,
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
}
