package io.jccl.engine.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.ras.RasReport;
import io.jccl.ras.RasReport.Finding;
import io.jccl.ras.RasReport.Kind;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** What a timeout's report takes from NCCL's RAS. */
class NcclRasTest {
    private static RasReport report(Set<Long> processes, int findings) {
        List<Finding> all = new ArrayList<>();
        for (int i = 0; i < findings; i++) {
            all.add(new Finding(Kind.BEHIND, "0x1", i, "has launched 2 of 3"));
        }
        return new RasReport("2.30.7", List.of(), all, processes, true);
    }

    @Test
    void findingsOfThisJobAreLines() {
        String text = NcclRas.text(report(Set.of(5L, 6L), 2), 6);
        assertEquals(
                "\nNCCL's RAS reports:"
                        + "\n  behind: rank 0 has launched 2 of 3 [communicator 0x1]"
                        + "\n  behind: rank 1 has launched 2 of 3 [communicator 0x1]",
                text);
    }

    @Test
    void anotherJobsFindingsAreNotThisOnes() {
        assertEquals("", NcclRas.text(report(Set.of(5L, 6L), 2), 7));
    }

    @Test
    void aHealthyJobIsNoLine() {
        assertEquals("", NcclRas.text(report(Set.of(7L), 0), 7));
    }

    @Test
    void anOldNcclDoesNotSayWhoseTheyAre() {
        assertTrue(NcclRas.text(report(Set.of(), 1), 7).contains("perhaps of another job"));
    }

    @Test
    void thereAreNotMoreThanEightLines() {
        String text = NcclRas.text(report(Set.of(7L), 12), 7);
        assertTrue(text.contains("rank 7 ") && text.contains("and 4 more"), text);
        assertFalse(text.contains("rank 8 "), text);
    }
}
