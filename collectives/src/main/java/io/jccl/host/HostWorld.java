package io.jccl.host;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.rendezvous.LaunchEnvironment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Makes communicators of the host engine. */
public final class HostWorld {
    private HostWorld() {}

    /** See {@link Communicator#local(int, CommunicatorOptions)}. */
    public static List<Communicator> local(int size, CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        checkSize("size", size);
        Fabric fabric = new Fabric.Threads(size);
        List<Communicator> ranks = new ArrayList<>(size);
        for (int r = 0; r < size; r++) {
            ranks.add(new HostCommunicator(fabric, r, options));
        }
        return List.copyOf(ranks);
    }

    static void checkSize(String name, int size) {
        if (size < 1 || size > Control.MAX_RANKS) {
            throw new IllegalArgumentException(
                    name
                            + " is "
                            + size
                            + ", expected 1 to "
                            + Control.MAX_RANKS
                            + " ranks on one machine");
        }
    }

    static void checkOneMachine(LaunchEnvironment launch) {
        if (launch.isOnSeveralMachines()) {
            throw new IllegalArgumentException(
                    "the "
                            + launch.size()
                            + " ranks are on "
                            + launch.machines()
                            + " machines, as the variables of "
                            + launch.launcher()
                            + " say: the host engine is one machine's; use JCCL_ENGINE=mpi or nccl,"
                            + " or start all ranks on one machine");
        }
    }

    /** See {@link Communicator#fromEnvironment(CommunicatorOptions)}. */
    public static Communicator fromEnvironment(
            Map<String, String> env, CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        LaunchEnvironment launch = LaunchEnvironment.of(env);
        if (launch.size() == 1) {
            return local(1, options).getFirst();
        }
        checkOneMachine(launch);
        checkSize(launch.sizeVariable(), launch.size());
        Fabric fabric = ProcessJob.join(launch.jobId(), launch.rank(), launch.size(), options);
        HostCommunicator c;
        try {
            c = new HostCommunicator(fabric, launch.rank(), options);
        } catch (RuntimeException | Error e) {
            fabric.control.abort(launch.rank(), Control.AbortKind.FAILED, "cannot join: " + e);
            fabric.leave(launch.rank());
            throw e;
        }
        boolean ready = false;
        try {
            // Everyone has written where its scratch memory is when all have come here.
            c.barrier(c.device().defaultStream());
            c.plan(fabric.plan());
            ready = true;
        } finally {
            if (!ready) {
                c.close();
            }
        }
        return c;
    }

    /** See {@link io.jccl.LocalJob#sharedFolder}. */
    public static Path sharedFolder() {
        return SharedFolder.root();
    }

    /** See {@link io.jccl.LocalJob#cleanUp}. */
    public static void cleanUp(String jobId) {
        SharedFolder.removeJob(jobId);
    }
}
