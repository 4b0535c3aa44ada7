package io.jccl.contract;

import io.jccl.CommunicatorOptions;
import io.jccl.device.Cuda;
import io.jccl.engine.host.HostEngine;
import io.jccl.engine.mpi.MpiEngine;
import io.jccl.engine.nccl.NcclEngine;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A rank as a process of its own. Reads cases from a file, one a line, and prints what fails as
 * {@code AT index} before each and {@code FAIL index ends message} for what fails, then {@code
 * DONE}.
 */
public final class ContractWorker {
    private ContractWorker() {}

    /**
     * Runs the cases.
     *
     * @param args the file, the timeout of the communicator in seconds, {@code host}, {@code mpi}
     *     or {@code nccl}, and where to print, if not to the standard output: a file for each rank
     * @throws IOException if the file is not to be read
     */
    public static void main(String[] args) throws IOException {
        List<Case> cases = Files.readAllLines(Path.of(args[0])).stream().map(Case::parse).toList();
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(
                        Duration.ofSeconds(Integer.parseInt(args[1])));
        Map<String, String> environment = System.getenv();
        int rank = Workers.rank(environment);
        if (args.length > 3) {
            System.setOut(new PrintStream(args[3] + "." + rank, StandardCharsets.UTF_8));
        }
        RankLoop.run(
                rank,
                cases,
                (algorithm, opened) -> {
                    // each communicator is a world of its own, as if another job had started it
                    Map<String, String> own = new HashMap<>(environment);
                    own.merge("JCCL_JOB_ID", "-" + opened, String::concat);
                    CommunicatorOptions mine = options.withAlgorithm(algorithm);
                    return switch (args[2]) {
                        case "nccl" -> NcclEngine.fromEnvironment(own, Cuda.device(rank), mine);
                        case "mpi" -> MpiEngine.fromEnvironment(mine);
                        default -> HostEngine.fromEnvironment(own, mine);
                    };
                },
                index -> System.out.println("AT " + index),
                failure ->
                        System.out.println(
                                "FAIL "
                                        + failure.index()
                                        + " "
                                        + failure.ends()
                                        + " "
                                        + failure.message().replace('\n', '\u0001')));
        System.out.println("DONE");
        System.out.flush();
    }
}
