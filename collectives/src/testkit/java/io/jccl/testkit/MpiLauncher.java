package io.jccl.testkit;

import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The launchers of the MPIs on this machine. */
public enum MpiLauncher {
    /** Open MPI's, here as root and on few cores too. */
    OPEN_MPI(MpiProgram.OPEN_MPI),
    /** MPICH's. */
    MPICH(MpiProgram.MPICH);

    private final MpiProgram program;

    MpiLauncher(MpiProgram program) {
        this.program = program;
    }

    /** Skips the test if there is none, unless {@code JCCL_TEST_REQUIRE} names it. */
    public void assume() {
        program.assume();
    }

    /** Whether it is on this machine. */
    public boolean isHere() {
        return program.isHere();
    }

    /** The C compiler's wrapper beside the launcher. */
    public String compiler() {
        return program.path().replaceFirst("mpirun(?=[^/]*$)", "mpicc");
    }

    /** A command under the launcher. */
    public List<String> command(int ranks, List<String> more, List<String> command) {
        return program.command(ranks, more, command);
    }

    /** Starts ranks, each with a JVM. */
    public Worker start(int ranks, List<String> jvmFlags, Class<?> main, String... args) {
        return start(command(ranks, List.of(), Workers.command(jvmFlags, main, args)), Map.of());
    }

    /** Starts what {@link #command} made. */
    public Worker start(List<String> command, Map<String, String> more) {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        Map<String, String> env = builder.environment();
        env.keySet().removeIf(Workers::isLauncherVariable);
        MpiProgram.allowRoot(env);
        env.putAll(more);
        try {
            return new Worker(-1, builder.start());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
