package io.jccl.cli.doctor;

import io.jccl.cli.doctor.Facts.Gpu;
import io.jccl.cli.doctor.Facts.Link;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.TreeSet;

/**
 * Searches for NVIDIA's GPUs on the PCI bus and in the driver's list: the first finds GPUs without
 * a driver, the second finds GPUs in a container without {@code /sys}.
 */
final class GpuBusProbe {
    private static final String BUS = "/sys/bus/pci/devices/";
    private static final String DRIVER = "/proc/driver/nvidia/gpus/";
    private static final String NVIDIA = "0x10de";

    /** VGA and 3D controllers. */
    private static final String DISPLAY = "0x030[02].*";

    private final MachineFiles files;

    private GpuBusProbe(MachineFiles files) {
        this.files = files;
    }

    static List<Gpu> examine(Machine machine) {
        return new GpuBusProbe(machine.files()).gpus();
    }

    private List<Gpu> gpus() {
        TreeSet<String> addresses = new TreeSet<>();
        files.names(DRIVER, ".+").forEach(n -> addresses.add(n.toLowerCase(Locale.ROOT)));
        for (String address : files.names(BUS, ".+")) {
            if (files.text(BUS + address + "/vendor").fits(NVIDIA::equals)
                    && files.text(BUS + address + "/class").fits(c -> c.matches(DISPLAY))) {
                addresses.add(address.toLowerCase(Locale.ROOT));
            }
        }
        return addresses.stream().map(this::gpu).toList();
    }

    private Gpu gpu(String pci) {
        String device = BUS + pci;
        String information = information(pci);
        return new Gpu(
                pci,
                files.text(device + "/vendor")
                        .flatMap(v ->
                                files.text(device + "/device").map(d -> hex(v) + ":" + hex(d))),
                ProcessStatus.field(files, information, "Model"),
                ProcessStatus.field(files, information, "GPU UUID"),
                files.number(device + "/numa_node").map(Math::toIntExact),
                link(device),
                linkOrNone(device, "driver"),
                linkOrNone(device, "iommu_group"),
                iommu(device),
                redirecting(device));
    }

    /** The driver writes addresses like the kernel, except for the case of letters. */
    private String information(String pci) {
        return files.names(DRIVER, ".+").stream()
                .filter(n -> n.equalsIgnoreCase(pci))
                .map(n -> DRIVER + n + "/information")
                .findFirst()
                .orElse(DRIVER + pci + "/information");
    }

    private static String hex(String number) {
        return number.replaceFirst("^0x", "");
    }

    private Reading<Link> link(String device) {
        Reading<String> max = files.text(device + "/max_link_speed");
        Reading<Integer> now = width(device, "current");
        Reading<Integer> most = width(device, "max");
        return files.text(device + "/current_link_speed")
                .flatMap(s ->
                        max.flatMap(m -> now.flatMap(w -> most.map(x -> new Link(s, w, m, x)))));
    }

    private Reading<Integer> width(String device, String which) {
        return files.number(device + "/" + which + "_link_width").map(Math::toIntExact);
    }

    private Reading<String> linkOrNone(String device, String name) {
        if (!files.exists(device)) {
            return Reading.unknown("no " + device);
        }
        return files.exists(device + "/" + name)
                ? files.linkName(device + "/" + name)
                : Reading.known("none");
    }

    private Reading<String> iommu(String device) {
        return linkOrNone(device, "iommu_group")
                .flatMap(group ->
                        group.equals("none")
                                ? Reading.known(group)
                                : files.text("/sys/kernel/iommu_groups/" + group + "/type"));
    }

    /**
     * The bridges between the device and the root whose access control redirects peer-to-peer
     * traffic.
     */
    private Reading<List<String>> redirecting(String device) {
        return files.realPath(device)
                .flatMap(real -> {
                    List<String> bridges = new ArrayList<>();
                    String folder = real.substring(0, real.lastIndexOf('/'));
                    while (folder.matches(".*/[\\da-f]+:[\\da-f]+:[\\da-f]+\\.\\d")) {
                        Reading<Boolean> redirects =
                                files.bytes(folder + "/config").flatMap(PciConfig::redirectsPeers);
                        if (!(redirects instanceof Reading.Known<Boolean>(Boolean on))) {
                            return redirects.map(r -> List.of());
                        }
                        if (on) {
                            bridges.add(folder.substring(folder.lastIndexOf('/') + 1));
                        }
                        folder = folder.substring(0, folder.lastIndexOf('/'));
                    }
                    return Reading.known(List.copyOf(bridges));
                });
    }
}
