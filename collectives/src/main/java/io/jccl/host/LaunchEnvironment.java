package io.jccl.host;

import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which rank of how many a launcher's variables say this process is.
 *
 * @param rank this process
 * @param size number of processes
 * @param jobId what all processes of this run, and no others on the machine, have in common
 * @param sizeVariable the variable that gave the size, for messages
 */
record LaunchEnvironment(int rank, int size, String jobId, String sizeVariable) {
    /** Names that one launcher sets; the first whose rank or size is set is used. */
    private record Launcher(String rank, String size, List<String> job) {}

    private static final List<Launcher> LAUNCHERS =
            List.of(
                    new Launcher(
                            "RANK",
                            "WORLD_SIZE",
                            List.of("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
                    new Launcher(
                            "OMPI_COMM_WORLD_RANK",
                            "OMPI_COMM_WORLD_SIZE",
                            List.of("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
                    new Launcher("PMI_RANK", "PMI_SIZE", List.of("PMI_ID_JOB", "HYDI_CONTROL_FD")),
                    new Launcher(
                            "SLURM_PROCID",
                            "SLURM_NTASKS",
                            List.of("SLURM_JOB_ID", "SLURM_STEP_ID")));

    private static final String JOB = "JCCL_JOB_ID";

    static LaunchEnvironment of(Map<String, String> env) {
        for (Launcher l : LAUNCHERS) {
            String rank = env.get(l.rank);
            String size = env.get(l.size);
            if (rank == null && size == null) {
                continue;
            }
            if (rank == null || size == null) {
                throw new IllegalArgumentException(
                        (rank == null ? l.size : l.rank)
                                + " is set but "
                                + (rank == null ? l.rank : l.size)
                                + " is not; a launcher sets both, so set or unset the two together");
            }
            int s = number(l.size, size, 1, Integer.MAX_VALUE);
            int r = number(l.rank, rank, 0, Integer.MAX_VALUE);
            if (r >= s) {
                throw new IllegalArgumentException(
                        l.rank + " is " + r + ", expected less than " + l.size + ", which is " + s);
            }
            return new LaunchEnvironment(r, s, jobId(env, l, s), l.size);
        }
        return new LaunchEnvironment(0, 1, "single", "WORLD_SIZE");
    }

    private static int number(String name, String text, int from, int to) {
        try {
            int v = Integer.parseInt(text.trim());
            if (v >= from && v <= to) {
                return v;
            }
        } catch (NumberFormatException e) {
            // Reported below, as are numbers out of range.
        }
        throw new IllegalArgumentException(
                name + " is '" + text + "', expected a whole number of " + from + " or more");
    }

    private static String jobId(Map<String, String> env, Launcher l, int size) {
        String given = env.get(JOB);
        if (given != null && !given.isBlank()) {
            return given.trim();
        }
        StringBuilder id = new StringBuilder();
        for (String name : l.job) {
            @Nullable String v = env.get(name);
            if (v != null && !v.isBlank()) {
                id.append(id.isEmpty() ? "" : "-").append(v.trim());
            }
        }
        if (id.isEmpty() && size > 1) {
            throw new IllegalArgumentException(
                    "nothing tells this run from another on the machine: set "
                            + JOB
                            + " (or "
                            + String.join(", ", l.job)
                            + ") to the same text on all ranks");
        }
        // Users do not share folders, and an address has characters that a file name has not.
        String user = System.getProperty("user.name", "");
        return (user + "-" + id).replaceAll("[^A-Za-z0-9._-]", "_");
    }
}
