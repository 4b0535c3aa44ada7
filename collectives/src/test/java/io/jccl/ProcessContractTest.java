package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.contract.Case;
import io.jccl.contract.ContractWorker;
import io.jccl.contract.EngineContractTest;
import io.jccl.contract.RankLoop.Failure;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.io.TempDir;

/** An engine with ranks as processes of this machine; subclasses say which engine. */
abstract class ProcessContractTest extends EngineContractTest {
    private static final Duration PATIENCE = Duration.ofMinutes(5);

    @TempDir Path folder = Path.of("");

    /** The engine's name for {@link ContractWorker}. */
    protected abstract String engine();

    /** More flags for the ranks' JVMs. */
    protected List<String> jvmFlags() {
        return List.of();
    }

    @Override
    protected List<Failure> run(int ranks, List<Case> cases) throws IOException {
        Path file = Files.createTempFile(folder, "cases", ".txt");
        Files.write(file, cases.stream().map(Case::toString).toList());
        List<Failure> failures = new ArrayList<>();
        String job = Workers.newJobId();
        try (Workers workers = new Workers(ranks, job, jvmFlags(), Map.of())) {
            workers.startAll(ContractWorker.class, file.toString(), "40", engine());
            for (Worker worker : workers.all()) {
                int exit = worker.join(PATIENCE);
                List<String> lines = worker.lines();
                failures.addAll(failures(worker.rank(), lines));
                if (exit != 0 || lines.isEmpty() || !lines.getLast().equals("DONE")) {
                    String message =
                            lines.stream()
                                    .filter(line -> !line.startsWith("AT "))
                                    .collect(
                                            Collectors.joining(
                                                    "\n      ",
                                                    "exit status " + exit + "\n      ",
                                                    ""));
                    failures.add(new Failure(lastCase(lines), worker.rank(), true, message));
                }
            }
        }
        if (failures.isEmpty()) {
            assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
        }
        return failures;
    }

    static List<Failure> failures(int rank, List<String> lines) {
        return lines.stream()
                .filter(line -> line.startsWith("FAIL "))
                .map(line -> failure(rank, line))
                .toList();
    }

    static int lastCase(List<String> lines) {
        return lines.stream()
                .filter(line -> line.startsWith("AT "))
                .mapToInt(line -> Integer.parseInt(line.substring("AT ".length())))
                .max()
                .orElse(0);
    }

    private static Failure failure(int rank, String line) {
        String[] words = line.split(" ", 4);
        String message = words[3].replace('\u0001', '\n');
        return new Failure(
                Integer.parseInt(words[1]), rank, Boolean.parseBoolean(words[2]), message);
    }
}
