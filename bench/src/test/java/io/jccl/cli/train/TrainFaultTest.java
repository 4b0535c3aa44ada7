package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.LocalJob;
import io.jccl.cli.launch.RunCommandTest;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A rank, a process of its own, is lost in the middle of training. */
@Timeout(value = 900, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TrainFaultTest {
    private static final String MODEL =
            "--layers 2 --hidden 32 --heads 2 --context 16 --batch 8 --accumulate 2";

    private final List<Process> processes = new ArrayList<>();

    @TempDir private Path folder;

    private final List<String> ids = new ArrayList<>();

    /** Starts the ranks of a job; each writes its standard error to {@code NAME-RANK.err}. */
    private List<Process> start(String name, int ranks, String arguments) throws IOException {
        List<Process> job = new ArrayList<>();
        String id = "train-fault-" + ProcessHandle.current().pid() + "-" + ids.size();
        ids.add(id);
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
        ids.forEach(LocalJob::cleanUp);
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

    private static int step(Path checkpoint) throws IOException {
        Path latest = checkpoint.resolve("latest.json");
        return new ObjectMapper().readTree(latest.toFile()).get("step").asInt();
    }

    /** The last saved step, once it is {@code least} or more. */
    private int saved(String name, Path checkpoint, int least, List<Process> job) throws Exception {
        Path latest = checkpoint.resolve("latest.json");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(240);
        while (System.nanoTime() < end) {
            if (Files.exists(latest)) {
                int step = step(checkpoint);
                if (step >= least) {
                    return step;
                }
            }
            assertTrue(
                    job.stream().allMatch(Process::isAlive),
                    () -> "a rank ended early: " + text(errors(name, 0)));
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

    /** Runs a job of two ranks to its end. */
    private void finish(String name, String arguments) throws Exception {
        List<Process> job = start(name, 2, arguments);
        for (int rank = 0; rank < 2; rank++) {
            int r = rank;
            assertEquals(0, status(name, job, r), () -> text(errors(name, r)));
        }
    }

    /** Whether the others are told, end with an error, and training goes on to the same losses. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"KILL, --pp 2"})
    void theOthersEndAndTrainingResumesToTheSameLosses(String signal, String techniques)
            throws Exception {
        Path checkpoint = folder.resolve("checkpoint");
        String saving = " --checkpoint " + checkpoint + " --checkpoint-every 3";
        List<Process> first =
                start("first", 2, techniques + " --steps 1000000 --timeout 10" + saving);
        saved("first", checkpoint, 6, first);
        signal(first.get(1), signal);
        assertEquals(1, status("first", first, 0));
        String error = text(errors("first", 0));
        assertTrue(
                error.lines().anyMatch(l -> l.startsWith("jccl train: ") && l.contains("rank 1")),
                error);
        assertFalse(error.contains("\tat "), error);
        first.get(1).destroyForcibly().waitFor();

        int step = step(checkpoint);
        int end = step + 8;
        Path resumed = folder.resolve("resumed.json");
        Path whole = folder.resolve("whole.json");
        String length = techniques + " --steps " + end;
        finish("second", length + saving + " --resume --json " + resumed);
        finish("third", length + " --json " + whole);
        List<Double> expected = losses(whole);
        assertEquals(end, expected.size());
        assertEquals(expected.subList(step, end), losses(resumed));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"KILL, --dp 2", "STOP, --dp 2 --zero 2 --bf16"})
    void theOthersEndAndTrainingResumesWithOtherTechniques(String signal, String techniques)
            throws Exception {
        theOthersEndAndTrainingResumesToTheSameLosses(signal, techniques);
    }

    /**
     * Ranks are killed while they save, one or all of them, again and again: each time training
     * goes on from a whole checkpoint, and in the end its losses are those of an undisturbed run.
     */
    @ParameterizedTest
    @ValueSource(strings = {"--dp 2", "--dp 2 --zero 2 --bf16"})
    @Tag("exhaustive")
    void killedWhileSaving(String techniques) throws Exception {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("TrainFaultTest.killedWhileSaving: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        Path checkpoint = folder.resolve("checkpoint");
        // Saving takes most of the time.
        String saving = " --timeout 60 --checkpoint-every 1 --checkpoint " + checkpoint;
        int last = 0;
        for (int i = 0; i < 8; i++) {
            String name = "killed-" + i;
            String resume = i == 0 ? "" : " --resume";
            List<Process> job = start(name, 2, techniques + " --steps 1000000" + saving + resume);
            saved(name, checkpoint, last + 1 + random.nextInt(3), job);
            Thread.sleep(random.nextInt(40), random.nextInt(999_999));
            int victim = random.nextInt(3);
            for (int rank = 0; rank < 2; rank++) {
                if (victim == 2 || victim == rank) {
                    job.get(rank).destroyForcibly();
                }
            }
            for (int rank = 0; rank < 2; rank++) {
                int status = status(name, job, rank);
                if (victim != 2 && victim != rank) {
                    String error = text(errors(name, rank));
                    assertEquals(1, status, error);
                    assertTrue(error.contains("rank " + victim), error);
                }
            }
            int found = step(checkpoint);
            assertTrue(found > last, "step " + found + " after " + last);
            last = found;
        }
        String length = techniques + " --steps " + (last + 4);
        Path resumed = folder.resolve("resumed.json");
        Path whole = folder.resolve("whole.json");
        finish("last", length + saving + " --resume --json " + resumed);
        finish("undisturbed", length + " --json " + whole);
        List<Double> expected = losses(whole);
        assertEquals(last + 4, expected.size());
        assertEquals(expected.subList(last, last + 4), losses(resumed));
    }
}
