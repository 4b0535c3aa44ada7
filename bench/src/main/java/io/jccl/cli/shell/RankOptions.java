package io.jccl.cli.shell;

import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** How many ranks a command starts, and their communication backend. */
public final class RankOptions {
    /** Ranks of one machine on the host engine. */
    public static final int MOST_RANKS = 256;

    @Option(
            names = {"-g", "--ranks"},
            paramLabel = "<count>",
            converter = Count.Positive.class,
            description =
                    "Ranks in this process (default: 2; 1 where a launcher started several"
                            + " processes).")
    private int ranks;

    @Option(
            names = "--engine",
            paramLabel = "<host|nccl|mpi>",
            description =
                    "Communication backend; mpi under mpirun (default: host, or JCCL_ENGINE).")
    private @Nullable Engine engine;

    /** Ranks in this process, where no launcher started it. */
    public int here() {
        return ranks > 0 ? ranks : 2;
    }

    public Engine engine(Map<String, String> environment) {
        return Engine.of(engine, environment);
    }
}
