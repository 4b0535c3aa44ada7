package io.jccl;

import io.jccl.rendezvous.LaunchEnvironment;
import java.nio.file.Path;
import java.util.Map;
import java.util.UUID;

/**
 * What a launcher needs to start the ranks of one run as processes of this machine.
 *
 * <p><b>Threads:</b> any.
 */
public final class LocalJob {
    private LocalJob() {}

    /**
     * A new name for a run.
     *
     * @return letters and digits that no other run on this machine uses
     */
    public static String newId() {
        return UUID.randomUUID().toString();
    }

    /**
     * The variables that {@link Communicator#fromEnvironment()} reads.
     *
     * @param id name of the run, the same for all ranks
     * @param rank the process to start, 0 to size - 1
     * @param size number of processes
     * @return variables to add to the process's environment
     */
    public static Map<String, String> environment(String id, int rank, int size) {
        if (rank < 0 || rank >= size) {
            throw new IllegalArgumentException(
                    "rank is " + rank + ", expected 0 to " + (size - 1) + " of " + size);
        }
        return Map.of(
                "JCCL_JOB_ID", id,
                "RANK", Integer.toString(rank),
                "WORLD_SIZE", Integer.toString(size),
                "LOCAL_RANK", Integer.toString(rank),
                "LOCAL_WORLD_SIZE", Integer.toString(size));
    }

    /**
     * Joins a run without a launcher's variables, for programs that know by other means which rank
     * they are. Ranks are processes of this machine, or several of them are threads of one.
     *
     * @param id name of the run, the same for all ranks and used by no other on this machine
     * @param rank this rank, 0 to size - 1
     * @param size number of ranks, 1 to 256
     * @param options settings, the same on all ranks
     * @return this rank's end
     * @throws io.jccl.error.JcclException if the other ranks do not come within the timeout, one of
     *     them ends or cannot join, there is too little shared memory, or something that is not a
     *     run's folder of this user is in its place
     * @see Communicator#fromEnvironment(CommunicatorOptions)
     */
    public static Communicator join(String id, int rank, int size, CommunicatorOptions options) {
        return join(environment(id, rank, size), options);
    }

    /** Joins on the host engine by a launcher's variables. */
    static Communicator join(Map<String, String> environment, CommunicatorOptions options) {
        LaunchEnvironment launch = LaunchEnvironment.of(environment);
        if (launch.size() > 1) {
            RankBinding.bind(
                    RankBinding.shares(options, System.getenv(), launch.size()), launch.rank());
        }
        return EngineProvider.Holder.ENGINES.host(environment, options);
    }

    /**
     * Where the processes of a run share memory: what system property {@code jccl.shm.dir} or
     * variable {@code JCCL_SHM_DIR} names, or else {@code /dev/shm}, or else the folder for
     * temporary files.
     *
     * @return an existing folder
     * @throws IllegalArgumentException if the setting names none
     */
    public static Path sharedFolder() {
        return EngineProvider.Holder.ENGINES.sharedFolder();
    }

    /**
     * Removes what a run left in shared memory because all its processes were killed. Does nothing
     * while one of them lives, or if anything is in its folder that JCCL does not make.
     *
     * @param id name of the run
     */
    public static void cleanUp(String id) {
        EngineProvider.Holder.ENGINES.cleanUp(id);
    }
}
