package io.jccl.engine.mpi;

import io.jccl.bindings.internal.ProcessEnvironment;
import io.jccl.error.JcclException;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The variables of this process that MPI reads, and those that its launchers set. */
final class MpiEnvironment {
    /**
     * Variables that make libraries below MPI keep the JVM's signal handlers, unless the user has
     * set them.
     */
    private static final Map<String, String> SIGNALS =
            Map.of("UCX_ERROR_SIGNALS", "", "OMPI_MCA_opal_signal", "");

    /** Variables of MPI's launchers with the number of processes. */
    private static final List<String> SIZES = List.of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");

    private MpiEnvironment() {}

    /** Sets, before MPI is loaded, what the JVM needs. */
    static void prepare(Map<String, String> env) {
        SIGNALS.forEach((name, value) -> setUnlessSet(env, name, value));
        boolean launched =
                env.keySet().stream()
                        .anyMatch(name ->
                                name.startsWith("PMIX_")
                                        || name.startsWith("PMI_")
                                        || name.startsWith("OMPI_COMM_WORLD_")
                                        || name.equals("SLURM_STEP_ID"));
        if (!launched) {
            // Open MPI would start a daemon for a process that needs none.
            setUnlessSet(env, "OMPI_MCA_ess_singleton_isolated", "1");
        }
    }

    private static void setUnlessSet(Map<String, String> env, String name, String value) {
        if (!env.containsKey(name)) {
            ProcessEnvironment.set(name, value);
        }
    }

    /**
     * Refuses to be the only process where a launcher started several: one of another MPI, or of
     * none.
     *
     * @param library the name of MPI's library
     * @param size number of processes that MPI sees
     */
    static void checkLauncher(Map<String, String> env, String library, int size) {
        String name = size == 1 ? sizeVariable(env) : null;
        if (name == null || env.getOrDefault(name, "1").strip().equals("1")) {
            return;
        }
        throw new JcclException(
                ("the launcher started %s processes (%s), but %s sees only this one: %s; start with"
                                + " the library's own mpirun, or %s")
                        .formatted(
                                env.get(name),
                                name,
                                library,
                                SIZES.contains(name)
                                        ? "launcher and library belong to different MPIs"
                                        : "the launcher does not belong to this MPI",
                                SIZES.contains(name)
                                        ? "name the launcher's library with MPI_HOME or"
                                                + " -Djccl.mpi=FILE"
                                        : "with srun --mpi=pmix if MPI was built for it, or choose"
                                                + " another engine than mpi"));
    }

    /** The variable with the number of processes that the innermost launcher started. */
    private static @Nullable String sizeVariable(Map<String, String> env) {
        for (String name : SIZES) {
            if (env.containsKey(name)) {
                return name;
            }
        }
        if (env.containsKey("RANK") && env.containsKey("WORLD_SIZE")) {
            return "WORLD_SIZE";
        }
        // A batch script has a rank too, but is in no step; a step may have fewer tasks than a job.
        if (!env.containsKey("SLURM_PROCID") || !env.containsKey("SLURM_STEP_ID")) {
            return null;
        }
        return env.containsKey("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    }
}
