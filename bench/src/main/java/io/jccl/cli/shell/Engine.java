package io.jccl.cli.shell;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.rendezvous.LaunchEnvironment;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ParameterException;

/** What a command's ranks run on. */
public enum Engine {
    /** CPU ranks. */
    HOST,
    /** GPUs. */
    NCCL,
    /** CPU ranks of an MPI job, one for each process. */
    MPI;

    /** The variable that chooses where {@code --engine} does not. */
    public static final String VARIABLE = "JCCL_ENGINE";

    /** Allows NCCL to put several ranks on one GPU. */
    private static final String SHARED = "NCCL_MULTI_RANK_GPU_ENABLE";

    public static Engine of(String name) {
        return switch (name) {
            case "host" -> HOST;
            case "nccl" -> NCCL;
            case "mpi" -> MPI;
            default ->
                    throw new IllegalArgumentException(
                            "engine '" + name + "' is unknown, expected host, mpi or nccl");
        };
    }

    /** The value of an option, or without it that of the environment, as programs read it. */
    public static Engine of(@Nullable Engine option, Map<String, String> environment) {
        if (option != null) {
            return option;
        }
        String name = environment.getOrDefault(VARIABLE, "").strip();
        try {
            return name.isEmpty() ? HOST : of(name);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(VARIABLE + ": " + e.getMessage(), e);
        }
    }

    /** The name on the command line. */
    public String text() {
        return name().toLowerCase(Locale.ROOT);
    }

    /** Whether some ranks of this process have the same GPU. */
    public boolean sharesGpus(int ranks) {
        return this == NCCL && ranks > Cuda.deviceCount();
    }

    /** Devices for ranks of this process. */
    public List<? extends Device> devices(int ranks) {
        return devices(ranks, 0);
    }

    /** Devices for ranks of this process, GPUs from a certain one on. */
    public List<? extends Device> devices(int ranks, int first) {
        return this != NCCL
                ? Collections.nCopies(ranks, Device.host())
                : IntStream.range(first, first + ranks).mapToObj(Engine::gpu).toList();
    }

    /** What ranks of this process compute on: the model of its first GPU, or CPU. */
    public String processor() {
        return this == NCCL ? Cuda.info(gpu(0)).model() : "CPU";
    }

    /** The communicator of the one rank that this process is. */
    public Communicator join(Map<String, String> environment, CommunicatorOptions options) {
        return this == MPI
                ? Communicator.mpi(options)
                : Communicator.fromEnvironment(device(environment), options);
    }

    /** The communicator of the one rank that this process is, on a certain GPU. */
    public Communicator join(int gpu, CommunicatorOptions options) {
        return Communicator.fromEnvironment(gpu(gpu), options);
    }

    /**
     * Does what the one rank of this process does, and closes its communicator. The other ranks
     * learn why it failed, unless it is a mistake that each of them finds; those of MPI learn only
     * that it has ended.
     */
    public void run(Communicator comm, Communicator.RankBody body) throws Exception {
        try (comm) {
            try {
                body.run(comm);
            } catch (Throwable t) {
                if (this != MPI
                        && !(t instanceof ParameterException
                                || t instanceof IllegalArgumentException)) {
                    comm.abort(Text.message(t));
                }
                throw t;
            }
        }
    }

    /** The device of the one rank that this process is. */
    Device device(Map<String, String> environment) {
        if (this != NCCL) {
            return Device.host();
        }
        return gpu(Math.max(0, LaunchEnvironment.of(environment).localRank()));
    }

    private static Device gpu(int index) {
        int count = Cuda.deviceCount();
        if (count == 0) {
            throw new IllegalArgumentException(
                    "engine nccl needs a GPU, but this process sees no GPU: CUDA finds none. Use"
                            + " --engine host, or run jccl doctor to learn why there is none");
        }
        boolean shared = "1".equals(System.getenv(SHARED));
        if (index >= count && !shared) {
            throw new IllegalArgumentException(
                    "a rank of this machine needs GPU "
                            + index
                            + ", but the process sees "
                            + count
                            + "; start fewer ranks on it, use --engine host, or with NCCL 2.30 and newer"
                            + " set "
                            + SHARED
                            + "=1 to share");
        }
        return shared ? Cuda.view(index % count) : Cuda.device(index);
    }
}
