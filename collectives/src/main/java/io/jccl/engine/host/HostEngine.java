package io.jccl.engine.host;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.bootstrap.LocalProcessGroup;
import io.jccl.rendezvous.LaunchEnvironment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;

/** Creates communicators of the host engine. */
public final class HostEngine {
    private HostEngine() {}

    /** See {@link Communicator#local(int, CommunicatorOptions)}. */
    public static List<Communicator> local(int size, CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        LocalProcessGroup.checkSize("size", size);
        SharedMemoryTransport fabric = new ThreadTransport(size);
        List<Communicator> ranks = new ArrayList<>(size);
        for (int r = 0; r < size; r++) {
            ranks.add(new HostCommunicator(fabric, r, options));
        }
        return List.copyOf(ranks);
    }

    /** See {@link Communicator#fromEnvironment(CommunicatorOptions)}. */
    public static Communicator fromEnvironment(
            Map<String, String> env, CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        LaunchEnvironment launch = LaunchEnvironment.of(env);
        if (launch.size() == 1) {
            return local(1, options).getFirst();
        }
        LocalProcessGroup.checkOneMachine(launch);
        LocalProcessGroup.checkSize(launch.sizeVariable(), launch.size());
        int size = launch.size();
        int[] members = IntStream.range(0, size).toArray();
        SharedMemoryTransport fabric =
                LocalProcessGroup.join(
                        launch.jobId(),
                        launch.rank(),
                        size,
                        options,
                        false,
                        (job, control, arena) ->
                                new ProcessTransport(
                                        job,
                                        control,
                                        arena,
                                        "0",
                                        members,
                                        launch.rank(),
                                        HostPlan.ownHome()));
        HostCommunicator c;
        try {
            c = new HostCommunicator(fabric, launch.rank(), options);
        } catch (RuntimeException | Error e) {
            fabric.control.abort(launch.rank(), ControlBlock.AbortKind.FAILED, "cannot join: " + e);
            fabric.leave(launch.rank());
            throw e;
        }
        boolean ready = false;
        try {
            // After this synchronization, every rank has published the position of its scratch
            // memory.
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
}
