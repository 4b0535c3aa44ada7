package io.jccl.engine.mpi;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Creates communicators of the MPI engine. */
public final class MpiEngine {
    /** The variable that chooses the engine of ranks on the host. */
    public static final String ENGINE = "JCCL_ENGINE";

    /**
     * Number of processes of the job on this machine, and in total, as launchers of MPI report
     * them.
     */
    private static final List<List<String>> SPREAD =
            List.of(
                    List.of("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
                    List.of("MPI_LOCALNRANKS", "PMI_SIZE"));

    private MpiEngine() {}

    /**
     * Whether to use MPI: {@code JCCL_ENGINE} requests it, or is not set and a launcher of MPI has
     * started the processes on several machines.
     */
    public static boolean isChosen(Map<String, String> env) {
        String engine = env.getOrDefault(ENGINE, "").strip();
        return switch (engine) {
            case "mpi" -> true;
            case "host", "nccl" -> false;
            case "" -> SPREAD.stream().anyMatch(s -> isLess(env.get(s.get(0)), env.get(s.get(1))));
            default ->
                    throw new IllegalArgumentException(
                            ENGINE + " is '" + engine + "', expected host, mpi or nccl");
        };
    }

    private static boolean isLess(
            @org.jspecify.annotations.Nullable String here,
            @org.jspecify.annotations.Nullable String all) {
        return here != null
                && all != null
                && here.matches("\\d{1,9}")
                && all.matches("\\d{1,9}")
                && Integer.parseInt(here) < Integer.parseInt(all);
    }

    /**
     * Joins all processes of the MPI job that this one belongs to; a process started without a
     * launcher is a job of size 1.
     */
    public static Communicator fromEnvironment(CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        return MpiCommunicator.world(options);
    }
}
