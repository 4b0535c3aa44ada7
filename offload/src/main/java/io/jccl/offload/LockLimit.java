package io.jccl.offload;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * How much memory this process may still lock into RAM ({@code RLIMIT_MEMLOCK}, {@code ulimit -l}),
 * from {@code /proc/self/limits} and {@code VmLck} and {@code VmPin} of {@code /proc/self/status}.
 * Source of the formats: man 5 proc.
 *
 * @param limit the soft limit in bytes, {@link Long#MAX_VALUE} if there is none or it is unknown
 * @param hard the hard limit, up to which the process may raise the soft one
 * @param used bytes locked already
 */
record LockLimit(long limit, long hard, long used) {
    private static final LockLimit NONE = new LockLimit(Long.MAX_VALUE, Long.MAX_VALUE, 0);

    /** Reads them. */
    static LockLimit read(Path folder) {
        try {
            long soft = Long.MAX_VALUE;
            long hard = Long.MAX_VALUE;
            for (String line : Files.readAllLines(folder.resolve("limits"))) {
                if (line.startsWith("Max locked memory")) {
                    String[] columns =
                            line.substring("Max locked memory".length()).trim().split(" +", -1);
                    soft = number(columns[0]);
                    hard = number(columns[1]);
                }
            }
            long used = 0;
            for (String line : Files.readAllLines(folder.resolve("status"))) {
                if (line.startsWith("VmLck:") || line.startsWith("VmPin:")) {
                    used += 1024 * number(line.replaceAll("[^0-9]", ""));
                }
            }
            return new LockLimit(soft, hard, used);
        } catch (IOException | RuntimeException e) {
            // Not Linux, or not in the documented format: then the system itself has to refuse.
            return NONE;
        }
    }

    private static long number(String text) {
        return text.equals("unlimited") ? Long.MAX_VALUE : Long.parseLong(text);
    }

    long free() {
        return limit == Long.MAX_VALUE ? Long.MAX_VALUE : Math.max(0, limit - used);
    }

    /** What prevents locking more, and what to do about it. */
    String advice(long needed) {
        if (limit == Long.MAX_VALUE) {
            return "the limit of locked memory (ulimit -l) is unlimited or unknown";
        }
        return ("the limit of locked memory (ulimit -l) is %s bytes, %s of them in use,"
                        + " hard limit %s; raise it to at least %s bytes: ulimit -l %s in the"
                        + " shell, a line '* - memlock unlimited' in /etc/security/limits.conf,"
                        + " or --ulimit memlock=-1 for a container")
                .formatted(
                        limit,
                        used,
                        hard == Long.MAX_VALUE ? "unlimited" : hard,
                        used + needed,
                        (used + needed + 1023) / 1024);
    }
}
