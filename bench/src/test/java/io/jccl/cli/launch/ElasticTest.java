package io.jccl.cli.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.cli.Main;
import io.jccl.testfake.FakeBuild;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The trainer of docs/examples, whose ranks are killed. */
@Timeout(value = 240, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ElasticTest {
    private static final Path TRAINER = Path.of("../docs/examples/ElasticTrainer.java");
    private static final int STEPS = 200;

    @TempDir private Path folder;

    @TempDir private static Path classes;

    private static List<String> usual = List.of();

    /** Java's arguments for the trainer, if it is not the usual one. */
    private List<String> program = List.of();

    /** Hears each line as it is printed. */
    private static final class Lines extends StringWriter {
        private final ConcurrentLinkedQueue<String> lines = new ConcurrentLinkedQueue<>();

        @Override
        public void write(String text, int from, int length) {
            lines.addAll(text.substring(from, from + length).lines().toList());
        }

        List<String> with(String part) {
            return lines.stream().filter(l -> l.contains(part)).toList();
        }
    }

    private final Lines out = new Lines();
    private final Lines err = new Lines();

    /** Flags of the ranks' JVMs, and what the trainer computes on. */
    private List<String> flags = Workers.SHORT_LIVED;

    private String device = "host";

    private int train(Path where, int pause, String... options) {
        List<String> arguments = new ArrayList<>(List.of("--prefix"));
        arguments.addAll(List.of(options));
        arguments.add("--");
        arguments.addAll(flags);
        if (usual.isEmpty()) {
            usual = RunCommandTest.compiled(classes, TRAINER);
        }
        arguments.addAll(program.isEmpty() ? usual : program);
        arguments.addAll(List.of("" + where, "" + STEPS, Integer.toString(pause), device));
        return Main.execute(
                "run",
                new RunCommand(jccl -> List.of(RunCommandTest.modulePath()), Main.listed()),
                arguments.toArray(String[]::new),
                new PrintWriter(out, true),
                new PrintWriter(err, true));
    }

    /** Kills a rank with SIGKILL once a line has come. */
    private Thread killer(int rank, Predicate<Lines> when) {
        return Thread.ofPlatform()
                .start(() -> {
                    String own = "[" + rank + "] process ";
                    while (out.with(own).isEmpty() || !when.test(out)) {
                        try {
                            Thread.sleep(5);
                        } catch (InterruptedException e) {
                            return;
                        }
                    }
                    long pid = Long.parseLong(out.with(own).getLast().substring(own.length()));
                    ProcessHandle.of(pid).orElseThrow().destroyForcibly();
                });
    }

    private static int number(String line) {
        return Integer.parseInt(line.replaceAll(".* ", ""));
    }

    /** Any rank may be the one, the first as well, which serves nothing that others need. */
    @Test
    void theOthersGoOnAndEndAsTheyWouldFromThere() throws Exception {
        theOthersGoOn(3, 0, "--grace", "5");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0, 2})
    void threeOfFourGoOn(int victim) throws Exception {
        theOthersGoOn(4, victim, "--grace", "5");
    }

    private void theOthersGoOn(int ranks, int victim, String option, String value)
            throws Exception {
        int left = ranks - 1;
        Thread killer = killer(victim, o -> !o.with("step 50").isEmpty());
        int status = train(folder, 4, "-n", "" + ranks, "--min-ranks", "" + left, option, value);
        killer.interrupt();
        killer.join();
        assertEquals(0, status, () -> err.lines + "" + out.lines);
        assertEquals(
                1,
                err.with("rank " + victim + " failed first, with status 137").size(),
                err.lines::toString);
        List<String> regrouped = out.with(left + " ranks go on after step ");
        assertEquals(1, regrouped.size(), out.lines::toString);
        int from = number(regrouped.getFirst());
        assertTrue(from >= 50 && from < STEPS, regrouped::toString);
        List<String> loss = out.with("loss ");
        assertEquals(1, loss.size(), out.lines::toString);

        // The reference: a run of so many ranks from the weights of that step.
        Path fewer = Files.createDirectory(folder.resolve("fewer"));
        Files.copy(folder.resolve("checkpoint-regrouped"), fewer.resolve("checkpoint"));
        out.lines.clear();
        assertEquals(0, train(fewer, 0, "-n", "" + left, "--min-ranks", "1"), err.lines::toString);
        assertEquals(left, out.with("from step " + from).size(), out.lines::toString);
        // Bit for bit: the same sums over the same ranks in the same order.
        assertEquals(
                loss.getFirst().replaceFirst(".*loss ", ""),
                out.with("loss ").getFirst().replaceFirst(".*loss ", ""));
    }

    /** In a folder that the trainer makes. */
    @Tag("exhaustive")
    @Test
    void twoOfFourGoOnWhenOneFailsWhileTheyRegroup() throws Exception {
        String regroups = "Communicator less = comm.shrink(";
        String source = Files.readString(TRAINER);
        assertTrue(source.contains(regroups));
        String fails =
                "if (round == 1 && trainer.identity == 1) { Runtime.getRuntime().halt(9); }\n";
        program =
                RunCommandTest.compiled(
                        folder,
                        Files.writeString(
                                folder.resolve("" + TRAINER.getFileName()),
                                source.replace(regroups, fails + regroups)));
        Thread killer = killer(0, o -> !o.with("step 50").isEmpty());
        int status = train(folder.resolve("new"), 4, "-n", "4", "--min-ranks", "2", "--grace", "5");
        killer.interrupt();
        killer.join();
        assertEquals(0, status, () -> err.lines + "" + out.lines);
        assertEquals(1, err.with("rank 1 failed too, with status 9").size(), err.lines::toString);
        assertEquals(1, out.with("2 ranks go on after step ").size(), out.lines::toString);
        assertEquals(1, out.with("loss ").size(), out.lines::toString);
    }

    /**
     * The same on the fakes of NCCL and CUDA: a connection to the lost rank breaks, as between
     * machines, or its GPU is waited for without an error of NCCL, as within one. The ranks that
     * remain meet again in the launcher's store.
     */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("error, 0")
    void threeOfFourGoOnOverNccl(String death, int victim) throws Exception {
        device = "cuda";
        flags = new ArrayList<>(flags);
        flags.addAll(FakeBuild.jvmFlags());
        flags.add("--enable-native-access=io.jccl.bindings");
        theOthersGoOn(4, victim, "-x", "JCCL_FAKE_DEATH=" + death);
    }

    @Tag("exhaustive")
    @Test
    void threeOfFourGoOnAfterAWaitWithoutAnError() throws Exception {
        threeOfFourGoOnOverNccl("spin", 2);
    }

    @Tag("exhaustive")
    @Test
    void tooFewStartAgainFromTheCheckpoint() throws IOException, InterruptedException {
        Thread first = killer(1, o -> !o.with("step 50").isEmpty());
        Thread second = killer(0, o -> !o.with("step 50").isEmpty());
        int status = train(folder, 4, "-n", "2", "--min-ranks", "1", "--max-restarts", "1");
        first.interrupt();
        second.interrupt();
        first.join();
        second.join();
        assertEquals(0, status, () -> err.lines + "" + out.lines);
        assertFalse(err.with("restarting all ranks, restart 1 of 1").isEmpty());
        List<String> from = out.with("from step ");
        assertEquals(2, from.size(), out.lines::toString);
        assertTrue(number(from.getFirst()) >= 50, from::toString);
        assertEquals(1, out.with("loss ").size(), out.lines::toString);
        assertNotNull(Files.readAllBytes(folder.resolve("checkpoint")));
    }
}
