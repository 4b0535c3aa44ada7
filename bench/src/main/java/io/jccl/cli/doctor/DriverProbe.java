package io.jccl.cli.doctor;

import io.jccl.cli.doctor.Facts.DeviceNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Examines NVIDIA's driver without opening a device, since starting a GPU may take seconds. */
final class DriverProbe {
    private static final String VERSION = "/proc/driver/nvidia/version";
    private static final String LIBCUDA = "libcuda.so.1";
    private static final Pattern KERNEL_MODULE =
            Pattern.compile("Kernel Module.*?\\s(\\d+\\.\\d+(\\.\\d+)?)\\s");
    private static final Pattern IN_CACHE = Pattern.compile("(/[^\\x00]*/libcuda\\.so\\.1)\\x00");
    private static final Pattern NUMBERED = Pattern.compile("libcuda\\.so\\.(\\d+\\.[\\d.]+)");

    /**
     * The folders of the loader and of the container toolkit, used if neither a variable nor the
     * cache names one.
     */
    private static final List<String> USUAL =
            List.of(
                    "/usr/lib/x86_64-linux-gnu",
                    "/usr/lib/aarch64-linux-gnu",
                    "/usr/lib64",
                    "/usr/lib",
                    "/lib64",
                    "/lib",
                    "/usr/local/nvidia/lib64",
                    "/usr/lib/wsl/lib",
                    "/run/opengl-driver/lib");

    private final MachineFiles files;

    private DriverProbe(MachineFiles files) {
        this.files = files;
    }

    static Facts.Driver examine(Machine machine) {
        return new DriverProbe(machine.files()).look(machine);
    }

    private Facts.Driver look(Machine machine) {
        Reading<String> text = files.text(VERSION);
        Reading<String> libcuda = libcuda(machine);
        return new Facts.Driver(
                text.flatMap(DriverProbe::version),
                text.fits(t -> t.contains("Open Kernel Module")),
                cuda(machine),
                libcuda,
                libcuda.flatMap(files::realPath).flatMap(DriverProbe::numbered),
                nodes(),
                files.exists("/sys/module/nvidia_peermem"),
                files.exists("/dev/dxg"));
    }

    private static Reading<Facts.Cuda> cuda(Machine machine) {
        return Bounded.call("CUDA", machine.patience(), machine.gpus()::ask).flatMap(r -> r);
    }

    private static Reading<String> version(String text) {
        Matcher m = KERNEL_MODULE.matcher(text + "\n");
        return m.find()
                ? Reading.known(m.group(1))
                : Reading.unknown("makes no sense: '" + Texts.excerpt(text) + "'");
    }

    private static Reading<String> numbered(String path) {
        Matcher m = NUMBERED.matcher(path.substring(path.lastIndexOf('/') + 1));
        return m.matches()
                ? Reading.known(m.group(1))
                : Reading.unknown(path + " has no version in its name");
    }

    private List<DeviceNode> nodes() {
        List<DeviceNode> nodes = new ArrayList<>();
        for (String name : files.names("/dev", "nvidia.*")) {
            Path path = files.path("/dev/" + name);
            if (!Files.isDirectory(path)) {
                nodes.add(
                        new DeviceNode(
                                "/dev/" + name, Files.isReadable(path), Files.isWritable(path)));
            }
        }
        return List.copyOf(nodes);
    }

    /** In the loader's order: its path variable, its cache, the default folders. */
    private Reading<String> libcuda(Machine machine) {
        Set<String> candidates = new LinkedHashSet<>();
        String path = machine.environment().getOrDefault("LD_LIBRARY_PATH", "");
        Arrays.stream(path.split("[:;]"))
                .filter(folder -> folder.startsWith("/"))
                .forEach(folder -> candidates.add(folder + "/" + LIBCUDA));
        files.bytes("/etc/ld.so.cache")
                .map(b -> IN_CACHE.matcher(new String(b, StandardCharsets.ISO_8859_1)).results())
                .map(r -> r.map(m -> m.group(1)).toList())
                .orElse(List.of())
                .forEach(candidates::add);
        USUAL.forEach(folder -> candidates.add(folder + "/" + LIBCUDA));
        return candidates.stream()
                .filter(c -> files.realPath(c).known())
                .findFirst()
                .map(Reading::known)
                .orElse(Reading.unknown("no " + LIBCUDA + " where the loader looks"));
    }
}
