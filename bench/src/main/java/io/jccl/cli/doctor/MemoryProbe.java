package io.jccl.cli.doctor;

import io.jccl.cli.doctor.Facts.Limit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads the machine's memory and the process's limits. */
final class MemoryProbe {
    private static final String MEMINFO = "/proc/meminfo";
    private static final String LIMITS = "/proc/self/limits";
    private static final String DEV_SHM = "/dev/shm";

    private MemoryProbe() {}

    static Facts.Memory examine(Machine machine, Cgroups cgroups) {
        MachineFiles files = machine.files();
        return new Facts.Memory(
                ProcessStatus.kilobytes(files, MEMINFO, "MemTotal"),
                ProcessStatus.kilobytes(files, MEMINFO, "MemAvailable"),
                cgroups.memoryLimit(),
                files.exists(DEV_SHM)
                        ? Bounded.call(
                                DEV_SHM, machine.patience(), () -> machine.disks().space(DEV_SHM))
                        : Reading.unknown("no " + DEV_SHM),
                limit(files, "Max locked memory"),
                limit(files, "Max open files"),
                limit(files, "Max stack size"));
    }

    private static Reading<Limit> limit(MachineFiles files, String name) {
        Pattern row = Pattern.compile("(?m)^" + name + "\\s+(\\S+)\\s+(\\S+)");
        return files.text(LIMITS)
                .flatMap(text -> {
                    Matcher m = row.matcher(text);
                    return m.find()
                            ? Reading.known(new Limit(number(m.group(1)), number(m.group(2))))
                            : Reading.unknown("no '" + name + "' in " + LIMITS);
                });
    }

    private static long number(String text) {
        return text.equals("unlimited") ? -1 : Long.parseLong(text);
    }
}
