package io.jccl.cli.train;

import io.jccl.cli.launch.RunCommandTest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.LocalJob;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A rank, a process of its own, is lost in the middle of training. */
@Timeout(value = 900, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TrainFaultTest {
    private static final String MODEL =
            "--layers 2 --hidden 32 --heads 2 --context 16 --batch 8 --accumulate 2";

    private final List<Process> processes = new ArrayList<>();

    @TempDir private Path folder;

    private int jobs;

    /** Starts the ranks of a job; each writes its standard error to {@code NAME-RANK.err}. */
    private List<Process> start(String name, int ranks, String arguments) throws IOException {
        List<Process> job = new ArrayList<>();
        String id = "train-fault-" + ProcessHandle.current().pid() + "-" + jobs++;
        for (int r = 0; r < ranks; r++) {
            List<String> command = new ArrayList<>(RunCommandTest.jccl());
            command.add("train");
            command.addAll(List.of((MODEL + " " + arguments).split(" +")));
            ProcessBuilder builder = new ProcessBuilder(command);
            Map<String, String> env = builder.environment();
            env.putAll(LocalJob.environment(id, r, ranks));
            builder.redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")));
            builder.redirectError(errors(name, r).toFile());
            builder.redirectOutput(folder.resolve(name + "-" + r + ".out").toFile());
            job.add(builder.start());
        }
        processes.addAll(job);
        return job;
    }

    private Path errors(String name, int rank) {
        return folder.resolve(name + "-" + rank + ".err");
    }

    @AfterEach
    void endAll() throws InterruptedException {
        for (Process p : processes) {
            p.destroyForcibly();
            p.waitFor();
        }
    }

    private int status(String name, List<Process> job, int rank) throws Exception {
        assertTrue(
                job.get(rank).waitFor(240, TimeUnit.SECONDS),
                () ->
                        "rank "
                                + rank
                                + " of "
                                + name
                                + " does not end: "
                                + text(errors(name, rank)));
        return job.get(rank).exitValue();
    }

    private static String text(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            return e.toString();
        }
    }

    /** The last saved step, once it is {@code least} or more. */
    private int saved(Path checkpoint, int least, List<Process> job) throws Exception {
        Path latest = checkpoint.resolve("latest.json");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(240);
        while (System.nanoTime() < end) {
            if (Files.exists(latest)) {
                int step = new ObjectMapper().readTree(latest.toFile()).get("step").asInt();
                if (step >= least) {
                    return step;
                }
            }
            assertTrue(
                    job.stream().allMatch(Process::isAlive),
                    () -> "a rank ended early: " + text(errors("first", 0)));
            Thread.sleep(20);
        }
        throw new AssertionError("no checkpoint of step " + least + " in time");
    }

    private static void signal(Process process, String signal) throws Exception {
        String pid = Long.toString(process.pid());
        assertEquals(0, new ProcessBuilder("kill", "-" + signal, pid).start().waitFor());
    }

    private static List<Double> losses(Path json) throws IOException {
        List<Double> losses = new ArrayList<>();
        JsonNode run = new ObjectMapper().readTree(json.toFile()).get("jccl_train").get("runs");
        run.get(0).get("losses").forEach(l -> losses.add(l.asDouble()));
        return losses;
    }

    /** Whether the others are told, end with an error, and training goes on to the same losses. */
    @ParameterizedTest
    @CsvSource({
        "KILL, --dp 2",
        "STOP, --dp 2 --zero 2 --bf16",
        "KILL, --pp 2",
    })
    void theOthersEndAndTrainingResumesToTheSameLosses(String signal, String techniques)
            throws Exception {
        Path checkpoint = folder.resolve("checkpoint");
        String saving = " --checkpoint " + checkpoint + " --checkpoint-every 3";
        List<Process> first =
                start("first", 2, techniques + " --steps 1000000 --timeout 10" + saving);
        saved(checkpoint, 6, first);
        signal(first.get(1), signal);
        assertEquals(1, status("first", first, 0));
        String error = text(errors("first", 0));
        assertTrue(
                error.lines().anyMatch(l -> l.startsWith("jccl train: ") && l.contains("rank 1")),
                error);
        assertFalse(error.contains("\tat "), error);
        first.get(1).destroyForcibly().waitFor();

        int step =
                new ObjectMapper()
                        .readTree(checkpoint.resolve("latest.json").toFile())
                        .get("step")
                        .asInt();
        int end = step + 8;
        Path resumed = folder.resolve("resumed.json");
        Path whole = folder.resolve("whole.json");
        String length = " --steps " + end;
        List<Process> second =
                start("second", 2, techniques + length + saving + " --resume --json " + resumed);
        assertEquals(0, status("second", second, 0), () -> text(errors("second", 0)));
        assertEquals(0, status("second", second, 1), () -> text(errors("second", 1)));
        List<Process> third = start("third", 2, techniques + length + " --json " + whole);
        assertEquals(0, status("third", third, 0), () -> text(errors("third", 0)));
        List<Double> expected = losses(whole);
        assertEquals(end, expected.size());
        assertEquals(expected.subList(step, end), losses(resumed));
    }
}
