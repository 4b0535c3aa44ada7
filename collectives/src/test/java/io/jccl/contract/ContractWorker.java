package io.jccl.contract;

import io.jccl.CommunicatorOptions;
import io.jccl.device.Cuda;
import io.jccl.host.HostWorld;
import io.jccl.nccl.NcclWorld;
import java.io.IOException;
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
     * @param args the file, the timeout of the communicator in seconds, and {@code host} or {@code
     *     nccl}
     * @throws IOException if the file is not to be read
     */
    public static void main(String[] args) throws IOException {
        List<Case> cases = Files.readAllLines(Path.of(args[0])).stream().map(Case::parse).toList();
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(
                        Duration.ofSeconds(Integer.parseInt(args[1])));
        Map<String, String> environment = System.getenv();
        int rank = Integer.parseInt(environment.get("RANK"));
        RankLoop.run(
                rank,
                cases,
                (algorithm, opened) -> {
                    // each communicator is a world of its own, as if another job had started it
                    Map<String, String> own = new HashMap<>(environment);
                    own.merge("JCCL_JOB_ID", "-" + opened, String::concat);
                    CommunicatorOptions mine = options.withAlgorithm(algorithm);
                    return args[2].equals("nccl")
                            ? NcclWorld.fromEnvironment(own, Cuda.device(rank), mine)
                            : HostWorld.fromEnvironment(own, mine);
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
    }
}
