package io.jccl.cli.doctor;

/** Fields of {@code /proc/self/status} and files like it: a name, a colon, a value. */
final class ProcessStatus {
    private static final String SELF = "/proc/self/status";

    private ProcessStatus() {}

    static Reading<String> field(MachineFiles files, String name) {
        return field(files, SELF, name);
    }

    /** The first field of a name. */
    static Reading<String> field(MachineFiles files, String path, String name) {
        return files.lines(path)
                .flatMap(lines -> {
                    for (String line : lines) {
                        int colon = line.indexOf(':');
                        if (colon > 0 && line.substring(0, colon).strip().equals(name)) {
                            return Reading.known(line.substring(colon + 1).strip());
                        }
                    }
                    return Reading.unknown("no '" + name + "' in " + path);
                });
    }

    /** A field in kB, in bytes. */
    static Reading<Long> kilobytes(MachineFiles files, String path, String name) {
        return field(files, path, name).map(v -> Long.parseLong(v.replaceFirst(" kB$", "")) * 1024);
    }
}
