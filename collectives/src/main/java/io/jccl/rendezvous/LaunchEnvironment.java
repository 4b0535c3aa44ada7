package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Rank, size and location of this process according to a launcher's environment variables.
 * docs/launching.md lists the variables; if several launchers' are set, the first launcher in that
 * list whose rank or size is set wins.
 *
 * {@snippet class="snippets.Collectives" region="environment"}
 *
 * @param rank rank of this process
 * @param size number of processes
 * @param localRank rank of this process among those of its machine, which selects its GPU; -1 if
 *     unknown
 * @param localSize number of processes on this machine; -1 if unknown
 * @param machines number of machines; -1 if unknown
 * @param jobId id that all processes of this run share, and no others on the machine
 * @param launcher the launcher whose variables were read
 * @param sizeVariable the variable that gave the size, for messages
 */
public record LaunchEnvironment(
        int rank,
        int size,
        int localRank,
        int localSize,
        int machines,
        String jobId,
        String launcher,
        String sizeVariable) {
    /**
     * Names of the variables that a launcher sets.
     *
     * @param name the launcher
     * @param rank rank
     * @param size size; the first one that is set is used
     * @param localRank rank on the machine, or empty
     * @param localSize number of ranks on the machine, or empty
     * @param machines number of machines; the first one that is set is used
     * @param job what identifies a run
     */
    private record Launcher(
            String name,
            String rank,
            List<String> size,
            String localRank,
            String localSize,
            List<String> machines,
            List<String> job) {
        @Nullable String sizeVariable(Map<String, String> env) {
            return size.stream().filter(env::containsKey).findFirst().orElse(null);
        }
    }

    /** Set by MPICH's launcher; it does not identify the run. */
    private static final String HYDRA = "HYDI_CONTROL_FD";

    private static final String HYDRA_LOCAL_RANK = "MPI_LOCALRANKID";
    private static final String SLURM_RANK = "SLURM_PROCID";

    private static final String LOCAL_RANK = "LOCAL_RANK";
    private static final String LOCAL_SIZE = "LOCAL_WORLD_SIZE";

    private static final String MPICH = "MPICH";

    private static final Launcher KUBERNETES =
            new Launcher(
                    "Kubernetes",
                    "JOB_COMPLETION_INDEX",
                    List.of("JCCL_SIZE", "WORLD_SIZE"),
                    LOCAL_RANK,
                    LOCAL_SIZE,
                    List.of(),
                    List.of("MASTER_ADDR", "MASTER_PORT"));

    /** In order of precedence: a launcher that starts another one comes after it. */
    private static final List<Launcher> LAUNCHERS =
            List.of(
                    new Launcher(
                            "torchrun",
                            "RANK",
                            List.of("WORLD_SIZE"),
                            LOCAL_RANK,
                            LOCAL_SIZE,
                            List.of("GROUP_WORLD_SIZE"),
                            List.of("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
                    new Launcher(
                            "Open MPI",
                            "OMPI_COMM_WORLD_RANK",
                            List.of("OMPI_COMM_WORLD_SIZE"),
                            "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                            List.of(),
                            List.of("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
                    new Launcher(
                            MPICH,
                            "PMI_RANK",
                            List.of("PMI_SIZE"),
                            HYDRA_LOCAL_RANK,
                            "MPI_LOCALNRANKS",
                            List.of(),
                            List.of("PMI_ID_JOB", HYDRA)),
                    new Launcher(
                            "Slurm",
                            SLURM_RANK,
                            List.of("SLURM_NTASKS"),
                            "SLURM_LOCALID",
                            "",
                            List.of("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
                            List.of("SLURM_JOB_ID", "SLURM_STEP_ID")),
                    KUBERNETES);

    private static final String JOB = "JCCL_JOB_ID";
    private static final String STORE = "JCCL_STORE";
    private static final String MASTER = "MASTER_ADDR";
    private static final String MASTER_PORT = "MASTER_PORT";
    private static final String FILE_SCHEME = "file:";

    /**
     * Reads the variables of this process.
     *
     * @return rank and size; 0 of 1 if no launcher's variables are set
     * @throws IllegalArgumentException if they contradict each other; the message names them
     */
    public static LaunchEnvironment current() {
        return of(System.getenv());
    }

    /**
     * Reads variables.
     *
     * @param env names and values
     * @return rank and size; 0 of 1 if no launcher's variables are set
     * @throws IllegalArgumentException if they contradict each other; the message names them
     */
    public static LaunchEnvironment of(Map<String, String> env) {
        for (Launcher l : LAUNCHERS) {
            String rank = env.get(l.rank);
            String sizeVariable = l.sizeVariable(env);
            if (rank == null && (sizeVariable == null || l.equals(KUBERNETES) || isPod(env, l))) {
                continue;
            }
            if (l.name.equals(MPICH) && isSlurms(env)) {
                continue;
            }
            if (rank == null || sizeVariable == null) {
                throw incomplete(l, rank == null ? sizeVariable : l.rank, rank == null);
            }
            int size = number(sizeVariable, env.get(sizeVariable), 1);
            int r = number(l.rank, rank, 0);
            if (r >= size) {
                throw new IllegalArgumentException(
                        "%s is %s, expected less than %s, which is %s"
                                .formatted(l.rank, r, sizeVariable, size));
            }
            return place(env, l, r, size, sizeVariable);
        }
        return new LaunchEnvironment(0, 1, 0, 1, 1, "single", "none", "WORLD_SIZE");
    }

    /**
     * The variables by which a launcher marks this process as one of several ranks.
     *
     * @param env names and values
     * @return the variables for rank and size that are set, in order of precedence
     */
    public static List<String> ranksAndSizes(Map<String, String> env) {
        // A pod's index alone means nothing: most pods are not ranks.
        return LAUNCHERS.stream()
                .filter(l -> !l.equals(KUBERNETES) || l.sizeVariable(env) != null)
                .flatMap(l -> Stream.concat(Stream.of(l.rank), l.size.stream()))
                .distinct()
                .filter(env::containsKey)
                .toList();
    }

    /**
     * Whether this is a pod of an indexed job that sets torchrun's variable for the size, but no
     * rank.
     */
    private static boolean isPod(Map<String, String> env, Launcher l) {
        return KUBERNETES.size.containsAll(l.size) && env.containsKey(KUBERNETES.rank);
    }

    /** Whether Slurm has set the variables of PMI, as {@code srun --mpi=pmi2} does. */
    private static boolean isSlurms(Map<String, String> env) {
        return env.containsKey(SLURM_RANK)
                && !env.containsKey(HYDRA)
                && !env.containsKey(HYDRA_LOCAL_RANK);
    }

    private static IllegalArgumentException incomplete(
            Launcher l, @Nullable String set, boolean noRank) {
        return new IllegalArgumentException(
                set
                        + " is set but "
                        + (noRank ? l.rank : String.join(" or ", l.size))
                        + " is not; "
                        + (l.equals(KUBERNETES)
                                ? "Kubernetes does not pass the number of pods to them: set JCCL_SIZE"
                                        + " in the pod's specification to the job's completions"
                                : "a launcher sets both, so set or unset the two together"));
    }

    private static LaunchEnvironment place(
            Map<String, String> env, Launcher l, int rank, int size, String sizeVariable) {
        int localRank = optional(env, l.localRank, 0);
        int localSize = optional(env, l.localSize, 1);
        int machines = -1;
        for (String name : l.machines) {
            machines = machines < 0 ? optional(env, name, 1) : machines;
        }
        if (l.equals(KUBERNETES)) {
            // Pods do not share memory, even on one machine.
            localRank = Math.max(localRank, 0);
            localSize = Math.max(localSize, 1);
        }
        if (localSize > size) {
            throw new IllegalArgumentException(
                    "%s is %s, expected at most %s, which is %s"
                            .formatted(l.localSize, localSize, sizeVariable, size));
        }
        if (localRank >= 0 && localSize >= 0 && localRank >= localSize) {
            throw new IllegalArgumentException(
                    "%s is %s, expected less than %s, which is %s"
                            .formatted(l.localRank, localRank, l.localSize, localSize));
        }
        if (machines < 0 && localSize > 0) {
            machines = Math.ceilDiv(size, localSize);
        }
        return new LaunchEnvironment(
                rank,
                size,
                localRank,
                localSize < 0 && machines == 1 ? size : localSize,
                machines,
                jobId(env, l, size),
                l.name,
                sizeVariable);
    }

    private static int optional(Map<String, String> env, String name, int from) {
        return env.containsKey(name) ? number(name, env.get(name), from) : -1;
    }

    private static int number(String name, @Nullable String text, int from) {
        try {
            int v = Integer.parseInt(String.valueOf(text).trim());
            if (v >= from) {
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
        if (l.job.contains(HYDRA) && env.containsKey(HYDRA)) {
            id.append(HydraJob.find().orElse(""));
        }
        for (String name : id.isEmpty() ? l.job : List.<String>of()) {
            @Nullable String v = env.get(name);
            if (v != null && !v.isBlank()) {
                id.append(id.isEmpty() ? "" : "-").append(v.trim());
            }
        }
        if (id.isEmpty() && size > 1 && !env.containsKey(STORE)) {
            throw new IllegalArgumentException(
                    ("nothing distinguishes this run from another on the machine: set %s (or %s)"
                                    + " to the same text on all ranks")
                            .formatted(JOB, String.join(", ", l.job)));
        }
        // Folders are per user, and an address contains characters that file names cannot have.
        String user = System.getProperty("user.name", "");
        return (user + "-" + id).replaceAll("[^A-Za-z0-9._-]", "_");
    }

    /**
     * Whether the ranks are on several machines; false if the variables do not show it.
     *
     * @return true for more than one machine
     */
    public boolean isOnSeveralMachines() {
        return machines > 1;
    }

    /**
     * Whether a store is needed or requested to find the other ranks.
     *
     * @param env names and values
     * @return true if ranks are on several machines, or {@code JCCL_STORE} is set
     */
    public boolean meetsInStore(Map<String, String> env) {
        return size > 1 && (isOnSeveralMachines() || env.containsKey(STORE));
    }

    /**
     * Opens the store that the variables name; rank 0 also starts the server if it belongs to this
     * run.
     *
     * @param env names and values
     * @param timeout maximum time to wait for the server
     * @return the store
     * @see Store#fromEnvironment
     */
    Store openStore(Map<String, String> env, Duration timeout) {
        String named = env.get(STORE);
        if (named != null && named.strip().startsWith(FILE_SCHEME)) {
            return folder(named.strip().substring(FILE_SCHEME.length()));
        }
        StoreSecret secret = StoreSecret.fromEnvironment(env, jobId);
        String bind = env.get(ServedStore.BIND);
        if (named != null) {
            return ServedStore.join(
                    TcpAddress.parse(STORE, named), secret, timeout, rank == 0, false, bind);
        }
        String host = env.get(MASTER);
        String port = env.get(MASTER_PORT);
        if (host == null || port == null) {
            if (size == 1) {
                return Store.inMemory();
            }
            throw new IllegalArgumentException(
                    ("no variable specifies where the ranks find each other: set %s to rank 0's"
                                    + " machine and %s to a free port there, or %s to"
                                    + " tcp://host:port or file:/folder-that-all-see, on all"
                                    + " ranks (with mpirun: -x or -genv; docs/launching.md has"
                                    + " examples)")
                            .formatted(MASTER, MASTER_PORT, STORE));
        }
        return ServedStore.join(
                TcpAddress.parse(MASTER + ":" + MASTER_PORT, address(host.strip(), port.strip())),
                secret,
                timeout,
                rank == 0,
                true,
                bind);
    }

    private static String address(String host, String port) {
        boolean bare = host.indexOf(':') >= 0 && !host.startsWith("[");
        return (bare ? "[" + host + "]" : host) + ":" + port;
    }

    private Store folder(String text) {
        Path path = Path.of(text.startsWith("//") ? text.substring(2) : text);
        if (!path.isAbsolute()) {
            throw new IllegalArgumentException(
                    STORE + " is '" + FILE_SCHEME + text + "', expected an absolute path");
        }
        try {
            return Store.folder(path);
        } catch (JcclException e) {
            throw new JcclException(STORE + ": " + e.getMessage(), e);
        }
    }
}
