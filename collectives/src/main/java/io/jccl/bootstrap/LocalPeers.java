package io.jccl.bootstrap;

import io.jccl.CommunicatorOptions;
import io.jccl.rendezvous.LaunchEnvironment;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The processes of a job on one machine, for an engine with its own data transport: this process's
 * rank, which ranks are alive, and a shared folder that is deleted when they have ended, for
 * whatever reason.
 *
 * <p><b>Threads:</b> any.
 */
public final class LocalPeers implements AutoCloseable {
    private final int rank;
    private final int size;
    private final @Nullable LocalProcessGroup job;

    LocalPeers(int rank, int size, @Nullable LocalProcessGroup job) {
        this.rank = rank;
        this.size = size;
        this.job = job;
    }

    /**
     * Waits until all processes of a job are present.
     *
     * @param env variables of the launcher
     * @param options for the timeout
     * @return this process's view of the job
     */
    public static LocalPeers join(Map<String, String> env, CommunicatorOptions options) {
        LaunchEnvironment launch = LaunchEnvironment.of(env);
        if (launch.size() == 1) {
            return new LocalPeers(0, 1, null);
        }
        LocalProcessGroup.checkOneMachine(launch);
        LocalProcessGroup.checkSize(launch.sizeVariable(), launch.size());
        return LocalProcessGroup.meet(launch.jobId(), launch.rank(), launch.size(), options);
    }

    /** This process. */
    public int rank() {
        return rank;
    }

    /** Number of processes. */
    public int size() {
        return size;
    }

    /** A folder for the store of this run only; null for a single process. */
    public @Nullable Path folder() {
        return job == null ? null : job.store();
    }

    /** Whether a process is alive. */
    public boolean isAlive(int rank) {
        return job == null || job.isAlive(rank);
    }

    /** Deletes the folder; only when no process uses it any more. */
    public void deleteFolder() {
        if (job != null) {
            job.folder().deleteStore(job.store());
        }
    }

    /** Leaves; once. */
    @Override
    public void close() {
        if (job != null) {
            job.release();
        }
    }
}
