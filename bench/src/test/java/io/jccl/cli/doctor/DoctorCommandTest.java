package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.LocalJob;
import io.jccl.cli.Main;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DoctorCommandTest {
    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    @TempDir private Path root;

    /** Examines a fake machine. */
    private int examine(FakeMachine machine, String... arguments) {
        return Main.execute(
                "doctor",
                new DoctorCommand(machine::build),
                arguments,
                new PrintWriter(out),
                new PrintWriter(err));
    }

    /** Examines this machine. */
    private int execute(String... arguments) {
        return Main.execute(arguments, new PrintWriter(out), new PrintWriter(err));
    }

    @Test
    void thisMachineIsFitForTheHostEngine() throws IOException {
        assertEquals(0, execute("doctor"), () -> out + "\n" + err);
        String text = out.toString();
        assertTrue(text.startsWith("jccl doctor "), text);
        assertTrue(text.contains("works: allReduce"), text);
        assertTrue(text.contains("\nProblems\n"), text);
        assertFalse(text.contains("FAILS"), text);
        assertFalse(text.matches("(?s).*\\bat (java|io\\.jccl)\\..*"), text);
        assertEquals("", err.toString());
        try (var left = Files.list(LocalJob.sharedFolder())) {
            assertTrue(left.noneMatch(p -> p.toString().contains("jccl-doctor")));
        }
    }

    @Test
    void jsonOfThisMachine() throws IOException {
        assertEquals(0, execute("doctor", "--json"), () -> out + "\n" + err);
        JsonNode report = new ObjectMapper().readTree(out.toString());
        assertEquals(1, report.get("schema").asInt());
        assertEquals(0, report.get("exit_status").asInt());
        assertTrue(report.at("/host_engine/works").asBoolean());
        assertEquals(4, report.get("libraries").size());
    }

    @Test
    void aBrokenHostEngineIsStatusOne() {
        FakeMachine machine = new FakeMachine(root).brokenHostEngine();
        assertEquals(1, examine(machine));
        assertEquals(1, examine(machine, "--require", "nccl"));
        assertTrue(out.toString().contains("processes           FAILS: "), out::toString);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "--require nccl",
                "--require=NCCL,mpi",
                "--require cuda --require cublas,mpi",
                "--require mpi --json",
            })
    void whatIsRequiredAndThere(String line) {
        assertEquals(0, examine(new FakeMachine(root).eightGpus(), line.split(" ")), err::toString);
    }

    @ParameterizedTest
    @CsvSource({
        "--require nccl, NCCL is not usable",
        "'--require mpi,cuda', MPI is not usable",
        "'--require mpi,cuda', the CUDA driver reports no GPU",
        "--require cublas --json, required-cublas",
    })
    void whatIsRequiredAndMissingIsStatusFour(String line, String text) {
        assertEquals(4, examine(new FakeMachine(root).healthy(), line.split(" ")));
        assertTrue(out.toString().contains(text), out::toString);
        assertEquals("", err.toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"--require rccl", "--require=", "--requires nccl", "x"})
    void mistakesAreStatusTwo(String line) {
        assertEquals(2, examine(new FakeMachine(root), line.split(" ")));
        assertTrue(err.toString().startsWith("jccl doctor: "), err::toString);
        assertEquals("", out.toString());
    }

    @Test
    void anUnknownRequirementNamesTheKnownOnes() {
        assertEquals(2, examine(new FakeMachine(root), "--require", "rccl"));
        assertTrue(
                err.toString().contains("'rccl'")
                        && err.toString().contains("nccl, cuda, cublas, mpi"),
                err::toString);
    }
}
