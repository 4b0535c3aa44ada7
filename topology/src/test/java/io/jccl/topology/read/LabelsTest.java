package io.jccl.topology.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.TopologyFormatException;
import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LabelsTest {
    private static final String DUMP =
            """
            \tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
            GPU0\t X \tNV12\tPIX\t0-3\t0
            GPU1\tNV12\t X \tSYS\t4-7\t1
            NIC0\tPIX\tSYS\t X \t\t

            Legend:

              X    = Self
              SYS  = Connection traversing PCIe

            NIC Legend:

              NIC0: mlx5_0
            """;

    private static PathMatrix read(String text) {
        return (PathMatrix) TopologyReader.dump(text, ReadOptions.DEFAULT);
    }

    private static String labelled(String label) {
        return DUMP.replaceAll("(?m)^", label);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "0: ",
                "  3: ",
                "[1,0]<stdout>:",
                "[pod/nccl-0/main] ",
                "2026-03-01T12:00:00.123456789Z ",
                "2026-03-01T12:00:00Z 0: ",
                "worker-1  | ",
                "(pid=7) ",
                "(Worker pid=123, ip=10.0.0.1) "
            })
    void labelsAreTakenOff(String label) {
        assertEquals(read(DUMP), read(labelled(label)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"%6d\t", "%d:", "%d: ", "%4d  ", "%3d | "})
    void numbersOfLinesAreTakenOff(String format) {
        StringBuilder numbered = new StringBuilder();
        int number = 9;
        for (String line : DUMP.split("\n", -1)) {
            numbered.append(String.format(Locale.ROOT, format, number++)).append(line).append('\n');
        }
        assertEquals(read(DUMP), read(numbered.toString()));
    }

    /** A table may begin with the name of the row. */
    @Test
    void tablesHaveNoLabels() {
        String table = "-- | GPU0 | GPU1\nGPU0 | X | NV12\nGPU1 | NV12 | X\n";
        assertEquals("NV12", read(table).codes().get(0).get(1).text());
    }

    /** As srun -l mixes them. */
    @Test
    void ofSeveralProcessesTheFirstIsRead() {
        String[] one = labelled("0: ").split("\n", -1);
        String[] two = labelled("1: ").replace("NV12", "NV4").split("\n", -1);
        StringBuilder mixed = new StringBuilder();
        for (int i = 0; i < one.length; i++) {
            mixed.append(one[i]).append('\n').append(two[i]).append('\n');
        }
        assertEquals(read(DUMP), read(mixed.toString()));
    }

    /** Places are those of the text as it is. */
    @Test
    void errorsHaveTheirPlace() {
        TopologyFormatException plain =
                assertThrows(
                        TopologyFormatException.class, () -> read(DUMP.replace("SYS\t4-7", "4-7")));
        TopologyFormatException labelled =
                assertThrows(
                        TopologyFormatException.class,
                        () -> read(labelled("0: ").replace("SYS\t4-7", "4-7")));
        assertEquals(plain.line(), labelled.line());
        assertEquals(plain.column() + 3, labelled.column());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "node:7:7 [0] NCCL INFO === System : maxBw 240.0 totalBw 240.0 ===",
                "=== System : maxBw 240.0 totalBw 240.0 ==="
            })
    void ncclsLogIsRefusedByName(String log) {
        TopologyFormatException e = assertThrows(TopologyFormatException.class, () -> read(log));
        assertTrue(String.valueOf(e.getMessage()).contains("NCCL's log"), e.getMessage());
        assertTrue(String.valueOf(e.getMessage()).contains("NCCL_TOPO_DUMP_FILE"), e.getMessage());
    }
}
