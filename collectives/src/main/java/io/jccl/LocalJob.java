package io.jccl;

import io.jccl.rendezvous.LaunchEnvironment;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * Helps a launcher to start the ranks of one run as processes of this machine.
 *
 * {@snippet class="snippets.Collectives" region="localJob"}
 *
 * <p><b>Threads:</b> any.
 */
public final class LocalJob {
    private LocalJob() {}

    /**
     * Makes a name for a new run.
     *
     * @return letters, digits and hyphens, unique on this machine
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
     * Joins a run without a launcher's variables, for programs that determine their rank by other
     * means. Ranks are processes of this machine, or threads of such processes.
     *
     * @param id name of the run, the same for all ranks and unique on this machine
     * @param rank this rank, 0 to size - 1
     * @param size number of ranks, 1 to 256
     * @param options settings, the same on all ranks
     * @return this rank's communicator
     * @throws io.jccl.error.JcclException if the other ranks do not join within the timeout, one of
     *     them ends or cannot join, shared memory is too small, or the path of the run's folder is
     *     taken by something that is not a run's folder of this user
     * @see Communicator#fromEnvironment(CommunicatorOptions)
     */
    public static Communicator join(String id, int rank, int size, CommunicatorOptions options) {
        return join(environment(id, rank, size), options);
    }

    /** Joins on the host engine according to a launcher's variables. */
    static Communicator join(Map<String, String> environment, CommunicatorOptions options) {
        LaunchEnvironment launch = LaunchEnvironment.of(environment);
        List<BitSet> shares = RankBinding.shares(options, System.getenv(), launch.size());
        if (launch.size() > 1) {
            RankBinding.bind(shares, launch.rank());
        }
        return EngineProvider.Holder.ENGINES.host(environment, options);
    }

    /**
     * The folder in which the processes of a run share memory: the one that system property {@code
     * jccl.shm.dir} or variable {@code JCCL_SHM_DIR} names, else {@code /dev/shm}, else the folder
     * for temporary files.
     *
     * @return an existing folder
     * @throws IllegalArgumentException if the setting does not name an existing folder
     */
    public static Path sharedFolder() {
        return EngineProvider.Holder.ENGINES.sharedFolder();
    }

    /**
     * Removes the files that a run left in shared memory because all its processes were killed.
     * Does nothing while one of them is alive, if its folder contains files that JCCL does not
     * create, or if there is no {@link #sharedFolder} any more.
     *
     * @param id name of the run
     */
    public static void cleanUp(String id) {
        EngineProvider.Holder.ENGINES.cleanUp(id);
    }
}
