package io.jccl.cli.doctor;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Detects a container and what it restricts. */
final class ContainerProbe {
    private static final String LOGIND = "/etc/systemd/logind.conf";
    private static final int CAP_SYS_NICE = 23;

    /** Files that exist only in containers. */
    private static final Map<String, String> FILES =
            table(
                    "/.dockerenv", "Docker",
                    "/run/.containerenv", "Podman",
                    "/.singularity.d", "Apptainer");

    /** Variables that are set only in containers. */
    private static final Map<String, String> VARIABLES =
            table(
                    "KUBERNETES_SERVICE_HOST", "Kubernetes",
                    "APPTAINER_CONTAINER", "Apptainer",
                    "SINGULARITY_CONTAINER", "Singularity",
                    "ENROOT_ROOTFS", "Enroot");

    private ContainerProbe() {}

    private static Map<String, String> table(String... pairs) {
        Map<String, String> table = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            table.put(pairs[i], pairs[i + 1]);
        }
        return table;
    }

    static Facts.Container examine(Machine machine, Cgroups cgroups) {
        MachineFiles files = machine.files();
        List<String> signs = signs(machine);
        return new Facts.Container(
                !signs.isEmpty(),
                signs,
                cgroups.version(),
                ProcessStatus.field(files, "Seccomp").map(ContainerProbe::seccomp),
                ProcessStatus.field(files, "CapEff")
                        .map(c -> (Long.parseUnsignedLong(c, 16) >> CAP_SYS_NICE & 1) == 1),
                files.number("/proc/sys/kernel/yama/ptrace_scope"),
                removeIpc(files));
    }

    private static List<String> signs(Machine machine) {
        MachineFiles files = machine.files();
        List<String> signs = new ArrayList<>();
        FILES.forEach((path, what) -> {
            if (files.exists(path)) {
                signs.add(what + ": " + path);
            }
        });
        VARIABLES.forEach((name, what) -> {
            if (machine.environment().containsKey(name)) {
                signs.add(what + ": variable " + name);
            }
        });
        String kind = machine.environment().getOrDefault("container", "");
        if (!kind.isEmpty()) {
            signs.add(kind + ": variable container");
        }
        files.lines("/proc/1/cgroup").orElse(List.of()).stream()
                .filter(l -> l.matches(".*(docker|kubepods|containerd|libpod|lxc).*"))
                .findFirst()
                .ifPresent(l -> signs.add("/proc/1/cgroup: " + l));
        files.lines("/proc/self/mountinfo").orElse(List.of()).stream()
                .filter(l -> l.matches("\\S+ \\S+ \\S+ \\S+ / .* - overlay .*"))
                .findFirst()
                .ifPresent(l -> signs.add("the root file system is an overlay"));
        return List.copyOf(signs);
    }

    private static String seccomp(String mode) {
        return switch (mode) {
            case "0" -> "off";
            case "1" -> "strict";
            case "2" -> "filter";
            default -> throw new IllegalArgumentException(mode);
        };
    }

    /** The last value counts: the main file comes first, then the folder's files in order. */
    private static Reading<String> removeIpc(MachineFiles files) {
        List<String> sources = new ArrayList<>(List.of(LOGIND));
        for (String name : files.names(LOGIND + ".d", ".*\\.conf")) {
            sources.add(LOGIND + ".d/" + name);
        }
        String set = "";
        boolean read = false;
        for (String source : sources) {
            Reading<List<String>> lines = files.lines(source);
            read |= lines.known();
            for (String line : lines.orElse(List.of())) {
                if (line.matches("\\s*RemoveIPC\\s*=.*")) {
                    set = line.substring(line.indexOf('=') + 1).strip();
                }
            }
        }
        if (!read) {
            return Reading.unknown("no readable " + LOGIND);
        }
        return Reading.known(set.isEmpty() ? "not set" : set);
    }
}
