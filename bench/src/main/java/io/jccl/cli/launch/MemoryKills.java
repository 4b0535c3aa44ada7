package io.jccl.cli.launch;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Whether a rank may have been ended by the kernel because memory ran out, which it cannot say. */
final class MemoryKills {
    private static final Path COUNTERS = Path.of("/proc/vmstat");
    private static final String NAME = "oom_kill ";
    private static final int KILLED = 128 + 9;

    private final Path counters;
    private final long before;

    /** Counts from here. */
    MemoryKills() {
        this(COUNTERS);
    }

    MemoryKills(Path counters) {
        this.counters = counters;
        this.before = count(counters);
    }

    /** What to add to the report of a rank that ended with this status; often nothing. */
    String note(int status) {
        if (status != KILLED || before < 0) {
            return "";
        }
        long kills = count(counters) - before;
        return kills <= 0
                ? ""
                : "; memory ran out here meanwhile, of the machine or of a container, and the kernel"
                        + " killed "
                        + kills
                        + (kills == 1 ? " process" : " processes")
                        + ": dmesg says which";
    }

    /** How many processes of the machine, those of containers included; -1 if not known. */
    private static long count(Path counters) {
        try {
            for (String line : Files.readAllLines(counters)) {
                if (line.startsWith(NAME)) {
                    return Long.parseLong(line.substring(NAME.length()).strip());
                }
            }
            return -1;
        } catch (IOException | NumberFormatException e) {
            return -1;
        }
    }
}
