package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.Main;
import io.jccl.testkit.FakeRas;
import io.jccl.testkit.FakeRas.Comm;
import io.jccl.testkit.FakeRas.Manner;
import io.jccl.testkit.FakeRas.Missing;
import io.jccl.testkit.FakeRas.Rank;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** {@code jccl doctor --ras} against a RAS service. */
@Timeout(value = 60, unit = TimeUnit.SECONDS)
class DoctorRasTest {
    private static final Comm LATE =
            new Comm(
                    0xabcL,
                    3,
                    List.of(
                            new Rank(0, 100, 0, 0, false, 0, 0, 0, 0, 5),
                            new Rank(1, 101, 0, 0, false, 0, 0, 0, 0, 4)),
                    List.of(new Missing(2, 102, true, false)));

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    @TempDir private Path root;

    private int examine(FakeMachine machine, String... arguments) {
        return Main.execute(
                "doctor",
                new DoctorCommand(machine::build),
                arguments,
                new PrintWriter(out),
                new PrintWriter(err));
    }

    @ParameterizedTest
    @EnumSource(names = {"NORMAL", "OLD"})
    void namesWhoIsBehindAndMissing(Manner manner) throws IOException {
        try (FakeRas ras = new FakeRas(manner, 0, LATE)) {
            assertEquals(0, examine(new FakeMachine(root).healthy(), "--ras=" + ras.address()));
        }
        String text = out.toString();
        assertTrue(text.contains("NCCL's RAS\n  NCCL                2.30.7\n"), text);
        assertTrue(text.contains("INCOMPLETE,MISMATCH"), text);
        assertTrue(text.contains("behind: rank 1 has launched 4 of 5"), text);
        assertTrue(text.contains("[ras-behind]") && text.contains("[ras-missing]"), text);
    }

    @Test
    void jsonHasIt() throws IOException {
        try (FakeRas ras = new FakeRas(Manner.NORMAL, 0, LATE)) {
            FakeMachine machine =
                    new FakeMachine(root).healthy().variable("NCCL_RAS_ADDR", ras.address());
            assertEquals(0, examine(machine, "--json", "--ras"), err::toString);
        }
        JsonNode ras = new ObjectMapper().readTree(out.toString()).get("ras");
        assertEquals("0xabc", ras.at("/groups/0/id").asText());
        assertEquals(2, ras.get("findings").size());
        assertEquals("missing", ras.at("/findings/0/kind").asText());
        assertEquals(1, ras.at("/findings/1/rank").asInt());
        assertTrue(ras.get("whole").asBoolean());
    }

    @Test
    void noAnswerIsStatusFour() {
        FakeMachine machine = new FakeMachine(root).healthy().variable("NCCL_RAS_ENABLE", "0");
        assertEquals(4, examine(machine, "--ras"));
        assertTrue(out.toString().contains("NCCL_RAS_ENABLE=0"), out::toString);
        assertTrue(out.toString().contains("[ras-unreachable]"), out::toString);
    }

    @Test
    void aMalformedAddressIsAMistakeInTheArguments() {
        assertEquals(2, examine(new FakeMachine(root).healthy(), "--ras=nowhere"));
        assertTrue(err.toString().contains("'nowhere'"), err::toString);
    }
}
