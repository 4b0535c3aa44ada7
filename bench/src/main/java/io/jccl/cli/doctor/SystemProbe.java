package io.jccl.cli.doctor;

import io.jccl.bindings.NativeLibraries;
import java.lang.module.ModuleFinder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads the operating system and the JVM. */
final class SystemProbe {
    private static final Pattern PRETTY_NAME = Pattern.compile("PRETTY_NAME=\"?([^\"]*)\"?");
    private static final Pattern GLIBC = Pattern.compile("release version (\\d+\\.\\d+)");

    private SystemProbe() {}

    static Facts.Os os(Machine machine) {
        MachineFiles files = machine.files();
        return new Facts.Os(
                machine.property("os.name"),
                files.text("/proc/sys/kernel/osrelease"),
                machine.property("os.arch"),
                files.lines("/etc/os-release").flatMap(SystemProbe::distribution),
                files.lines("/proc/self/maps").flatMap(maps -> libc(files, maps)));
    }

    private static Reading<String> distribution(List<String> lines) {
        return lines.stream()
                .map(PRETTY_NAME::matcher)
                .filter(Matcher::matches)
                .map(m -> Reading.known(m.group(1)))
                .findFirst()
                .orElse(Reading.unknown("no PRETTY_NAME in /etc/os-release"));
    }

    /** The C library of this process, which native libraries use too. */
    private static Reading<String> libc(MachineFiles files, List<String> maps) {
        for (String line : maps) {
            String path = line.substring(line.lastIndexOf(' ') + 1);
            String name = path.substring(path.lastIndexOf('/') + 1);
            if (name.startsWith("ld-musl-")) {
                return Reading.known("musl");
            }
            if (path.startsWith("/") && name.matches("libc(-[\\d.]+)?\\.so(\\.6)?")) {
                // It contains its version in the text that it prints when run as a program.
                return files.bytes(path)
                        .flatMap(bytes -> {
                            Matcher m =
                                    GLIBC.matcher(new String(bytes, StandardCharsets.ISO_8859_1));
                            return m.find()
                                    ? Reading.known("glibc " + m.group(1))
                                    : Reading.unknown(path + " does not say");
                        });
            }
        }
        return Reading.unknown("none is mapped");
    }

    static Facts.Java thisJvm() {
        return new Facts.Java(
                Runtime.version().toString(),
                System.getProperty("java.vendor", ""),
                System.getProperty("java.vm.name", ""),
                System.getProperty("java.home", ""),
                NativeLibraries.class.getModule().isNativeAccessEnabled(),
                ModuleFinder.ofSystem().find("jdk.incubator.vector").isPresent());
    }
}
