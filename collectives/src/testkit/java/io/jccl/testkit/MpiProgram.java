package io.jccl.testkit;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Assumptions;

/** Where the launchers of the MPIs on this machine are. */
public enum MpiProgram {
    /** Open MPI's, here as root and on few cores too. */
    OPEN_MPI(
            "mpirun.openmpi",
            "Open MPI",
            List.of("--oversubscribe", "--mca", "btl", "self,vader,tcp"),
            "mpi"),
    /** MPICH's. */
    MPICH("mpirun.mpich", "HYDRA", List.of(), "mpich");

    private final String name;
    private final String says;
    private final List<String> flags;
    private final String need;

    MpiProgram(String name, String says, List<String> flags, String need) {
        this.name = name;
        this.says = says;
        this.flags = flags;
        this.need = need;
    }

    /** Skips the test if there is none, unless {@code JCCL_TEST_REQUIRE} names it. */
    public void assume() {
        if (find().isEmpty()) {
            String reason = "no " + name + " nor an mpirun of " + this + " on the PATH";
            String required = System.getenv().getOrDefault("JCCL_TEST_REQUIRE", "");
            if (Arrays.asList(required.split(",", -1)).contains(need)) {
                throw new AssertionError(reason + ", and JCCL_TEST_REQUIRE names " + need);
            }
            Assumptions.abort(reason);
        }
    }

    /** Whether it is on this machine. */
    public boolean isHere() {
        return find().isPresent();
    }

    /** Its path; there is one. */
    public String path() {
        return find().orElseThrow();
    }

    /** A command under the launcher, with more flags of its own. */
    public List<String> command(int ranks, List<String> more, List<String> command) {
        List<String> all = new ArrayList<>();
        all.add(path());
        all.addAll(flags);
        all.addAll(more);
        all.addAll(List.of("-n", Integer.toString(ranks)));
        all.addAll(command);
        return all;
    }

    /** Lets Open MPI start ranks as root. */
    public static void allowRoot(Map<String, String> environment) {
        environment.put("OMPI_ALLOW_RUN_AS_ROOT", "1");
        environment.put("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }

    private Optional<String> find() {
        return onPath(name).or(() -> onPath("mpirun").filter(this::isOurs));
    }

    private boolean isOurs(String program) {
        try {
            Process p = new ProcessBuilder(program, "--version").redirectErrorStream(true).start();
            String text = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            return text.contains(says);
        } catch (IOException e) {
            return false;
        }
    }

    private static Optional<String> onPath(String program) {
        return Arrays.stream(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator, -1))
                .map(folder -> Path.of(folder, program))
                .filter(Files::isExecutable)
                .map(Path::toString)
                .findFirst();
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
