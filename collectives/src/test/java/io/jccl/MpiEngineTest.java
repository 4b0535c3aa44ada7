package io.jccl;

import io.jccl.contract.Case;
import io.jccl.contract.ContractWorker;
import io.jccl.contract.EngineContractTest;
import io.jccl.contract.RankLoop.Failure;
import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.ResourceLock;

/** The MPI engine with ranks as processes that a launcher starts; subclasses say which one. */
@ResourceLock("ranks that spin while they wait")
abstract class MpiEngineTest extends EngineContractTest {
    /** Non-blocking collectives, few elements a call, one thread at a time in MPI. */
    static final List<String> POLLING =
            List.of(
                    "-Djccl.mpi.wait=poll",
                    "-Djccl.mpi.threads=serialized",
                    "-Djccl.mpi.limit=1000",
                    "-Djccl.mpi.piece=4096");

    /** One thread at a time in MPI, and collectives that block. */
    static final List<String> SERIALIZED = List.of("-Djccl.mpi.threads=serialized");

    private static final Duration PATIENCE = Duration.ofMinutes(5);

    @TempDir Path folder = Path.of("");

    /** The launcher, if it is there. */
    protected abstract MpiLauncher launcher();

    /** More flags for the ranks' JVMs. */
    protected List<String> jvmFlags() {
        return List.of();
    }

    @Override
    protected int[] worldSizes() {
        return new int[] {2, 3, 4};
    }

    @Override
    protected int thinness(int ranks) {
        return 4;
    }

    @Override
    protected List<Case> adapt(List<Case> cases) {
        return cases.stream().map(Case::withOwnAlgorithm).distinct().toList();
    }

    @Override
    protected List<Failure> run(int ranks, List<Case> cases) throws IOException {
        launcher().assume();
        Path file = Files.createTempFile(folder, "cases", ".txt");
        Files.write(file, cases.stream().map(Case::toString).toList());
        String out = file + ".out";
        Worker job =
                launcher()
                        .start(
                                ranks,
                                jvmFlags(),
                                ContractWorker.class,
                                file.toString(),
                                "60",
                                "mpi",
                                out);
        int exit;
        try {
            exit = job.join(PATIENCE);
        } finally {
            job.kill();
        }
        List<Failure> failures = new ArrayList<>();
        for (int rank = 0; rank < ranks; rank++) {
            Path printed = Path.of(out + "." + rank);
            List<String> lines = Files.exists(printed) ? Files.readAllLines(printed) : List.of();
            failures.addAll(ProcessContractTest.failures(rank, lines));
            if (exit != 0 || lines.isEmpty() || !lines.getLast().equals("DONE")) {
                String message =
                        "exit status " + exit + "\n      " + String.join("\n      ", job.lines());
                failures.add(new Failure(ProcessContractTest.lastCase(lines), rank, true, message));
            }
        }
        return failures;
    }
}
