package io.jccl.topology.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.PathCode;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** One fixture for each quirk of the outputs, and what is inferred from the codes. */
@SuppressWarnings("StringConcatToTextBlock") // tabs and blanks at line ends are what is tested
class TopologyReaderTest {
    private static final ReadOptions STRICT = ReadOptions.DEFAULT;
    private static final ReadOptions LENIENT = STRICT.withLenient(true);

    private static PathMatrix matrix(String text) {
        return assertInstanceOf(PathMatrix.class, TopologyReader.dump(text, STRICT));
    }

    private static Topology graph(String text) {
        return TopologyReader.topology(text, STRICT);
    }

    private static String error(String text) {
        return assertThrows(TopologyFormatException.class, () -> graph(text)).toString();
    }

    private static void contains(String text, String... parts) {
        for (String part : parts) {
            assertTrue(text.contains(part), text);
        }
    }

    private static long warned(Topology t, String part) {
        return t.warnings().stream().filter(w -> w.toString().contains(part)).count();
    }

    private static final String PAIR =
            "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                    + "GPU0\t X \tPHB\t0-5\t0\t\tN/A\n"
                    + "GPU1\tPHB\t X \t6-11\t1\t\tN/A\n";

    @ParameterizedTest
    @ValueSource(
            strings = {
                PAIR,
                // CRLF, blank lines
                "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\r\n\r\nGPU0\t X \tPHB\t0-5"
                        + "\t0\t\tN/A\r\n\r\nGPU1\tPHB\t X \t6-11\t1\t\tN/A\r\n",
                // spaces, indented, no blank before the header
                "GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n   GPU0 X PHB 0-5 0 N/A\n"
                        + "   GPU1 PHB X 6-11 1 N/A",
                // escapes of three kinds
                "\t\u001b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u001b[0m\n"
                        + "GPU0\t X \tPHB\t0-5\t0\t\tN/A\nGPU1\tPHB\t X \t6-11\t1\t\tN/A\n",
                "\t^[[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID^[[0m\n"
                        + "GPU0\t X \tPHB\t0-5\t0\t\tN/A\nGPU1\tPHB\t X \t6-11\t1\t\tN/A\n",
                "GPU topology:\n\t[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID[0m\n"
                        + "GPU0\t X \tPHB\t0-5\t0\t\tN/A\nGPU1\tPHB\t X \t6-11\t1\t\tN/A\n",
                // Markdown, with a corner cell and bold labels
                "Here it is:\n\n| Device | GPU0 | GPU1 | CPU Affinity | NUMA Affinity | GPU NUMA ID"
                        + " |\n|---|---|---|:--:|---|---|\n| **GPU0** | X | PHB | 0-5 | 0 | N/A |"
                        + "\n| **GPU1** | `PHB` | X | 6-11 | 1 | N/A |\n\nthanks",
                // a fence, a prompt, a second command
                "```\nroot@box:~# nvidia-smi topo -m\n"
                        + PAIR
                        + "root@box:~# uptime\n 1 day\n```\n",
                // comments, and two tabs before the header
                "# \t\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                        + "# GPU0\t X \tPHB\t0-5\t0\t\tN/A\n# GPU1\tPHB\t X \t6-11\t1\t\tN/A\n",
                // a wholly fused header
                "GPU0GPU1CPU AffinityNUMA AffinityGPU NUMA ID\nGPU0\t X \tPHB\t0-5\t0\t\tN/A\n"
                        + "GPU1\tPHB\t X \t6-11\t1\t\tN/A\n",
                // lines broken within a name, a code and a list
                "\tGPU0\tGP\nU1\tCPU Affi\nnity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPH\nB\t0-5"
                        + "\t0\t\tN/A\nGPU1\tPHB\t X \t6-1\n1\t1\t\tN/A\n",
                // no tab between a code and the list
                "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPHB0-5\t0\t\tN/A\n"
                        + "GPU1\tPHB\t X 6-11\t1\t\tN/A\n",
                // no-break spaces
                "\u00a0GPU0\u00a0GPU1\u00a0CPU Affinity\u00a0NUMA Affinity\u00a0GPU NUMA ID\n"
                        + "GPU0\u00a0X\u00a0PHB\u00a00-5\u00a00\u00a0N/A\nGPU1 PHB X 6-11 1 N/A",
                // the string literal of a program
                "\\tGPU0\\tGPU1\\tCPU Affinity\\tNUMA Affinity\\tGPU NUMA ID\n"
                        + "GPU0\\t X \\tPHB\\t0-5\\t0\\t\\tN/A\nGPU1\\tPHB\\t X \\t6-11\\t1\\t\\tN/A\n",
                // a line of something else between the rows is left out with a warning
                "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPHB\t0-5\t0\t\tN/A"
                        + "\nMessage from root: maintenance\nGPU1\tPHB\t X \t6-11\t1\t\tN/A\n",
            })
    void formsOfOneMatrix(String text) {
        PathMatrix m = matrix(text);
        assertEquals(
                List.of(
                        new PathMatrix.GpuRow("GPU0", 0, "0-5", "0", "N/A"),
                        new PathMatrix.GpuRow("GPU1", 1, "6-11", "1", "N/A")),
                m.gpus());
        assertEquals("PHB", m.code(0, 1).text());
        assertEquals("PHB", m.code(1, 0).text());
    }

    @Test
    void emptyCellsKeepTheirPlace() {
        PathMatrix tabs =
                matrix(
                        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                                + "GPU0\t X \tSYS\tSYS\t\t0\t\tN/A\n"
                                + "GPU1\tSYS\t X \tSYS\t3\t1\t\tN/A\n"
                                + "GPU2\tSYS\tSYS\t X \t\t\t\tN/A\n");
        assertEquals(new PathMatrix.GpuRow("GPU0", 0, "", "0", "N/A"), tabs.gpus().get(0));
        assertEquals(new PathMatrix.GpuRow("GPU1", 1, "3", "1", "N/A"), tabs.gpus().get(1));
        assertEquals(new PathMatrix.GpuRow("GPU2", 2, "", "", "N/A"), tabs.gpus().get(2));
        PathMatrix spaces =
                matrix(
                        "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
                                + "GPU0     X      SYS                     0               N/A\n"
                                + "GPU1    SYS      X      3                               N/A\n");
        assertEquals(new PathMatrix.GpuRow("GPU0", 0, "", "0", "N/A"), spaces.gpus().get(0));
        assertEquals(new PathMatrix.GpuRow("GPU1", 1, "3", "", "N/A"), spaces.gpus().get(1));
        contains(
                error(
                        "GPU0 GPU1 GPU2 CPU Affinity NUMA Affinity\n"
                                + "GPU0 X NV4 SYS   0\nGPU1 NV4 X SYS 0-3 1\nGPU2 SYS SYS X 0-3 1\n"),
                "line 2, column 18",
                "[0]",
                "2 headings",
                "which are empty");
    }

    @Test
    void aLostTabAmongAffinitiesIsNoticed() {
        String text =
                "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                        + "GPU0\t X \tNV4\tSYS\t0-95,128-1900\t\tN/A\n"
                        + "GPU1\tNV4\t X \tSYS\t0-95,128-190\t0\t\tN/A\n"
                        + "GPU2\tSYS\tSYS\t X \t96-127\t1\t\tN/A\n";
        assertEquals("0-95,128-190", matrix(text).gpus().get(0).cpuAffinity());
        assertEquals("0", matrix(text).gpus().get(0).numaAffinity());
        contains(
                error(text.replace("128-190\t0", "128-191\t0")), "line 2, column", "a tab is lost");
    }

    /** Nothing depends on affinities between GPUs that NVLink joins, or whose codes are of PCIe. */
    @ParameterizedTest
    @ValueSource(strings = {"NV12", "PHB", "SYS"})
    void affinitiesThatNobodyNeedsRefuseNothing(String code) {
        String text =
                "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                        + "GPU0\t X \tNV12\tPIX\t0-95,128-1910\t\tN/A\n"
                        + "GPU1\tNV12\t X \tSYS\t96-127\t1\t\tN/A\n"
                        + "NIC0\tPIX\tSYS\t X\n";
        text = text.replace("NV12", code);
        PathMatrix m = matrix(text);
        assertEquals(code, m.code(0, 1).text());
        assertNull(m.gpus().get(0).cpuAffinity());
        assertEquals("96-127", m.gpus().get(1).cpuAffinity());
        assertTrue(m.warnings().toString().contains("its affinities are left out"), text);
    }

    @Test
    void listsAndRanges() {
        PathMatrix m =
                matrix(
                        "        GPU0   GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
                                + "GPU0     X      NV6     0-35            0,2-8           1\n"
                                + "GPU1    NV6      X      36,38,40-71     9-11            10\n");
        assertEquals("0,2-8", m.gpus().get(0).numaAffinity());
        assertEquals("10", m.gpus().get(1).gpuNumaId());
        assertEquals("36,38,40-71", m.gpus().get(1).cpuAffinity());
        assertEquals(
                "N/A",
                matrix("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t\tN/A\n")
                        .gpus()
                        .get(0)
                        .numaAffinity());
    }

    private static String expanded(String text) {
        StringBuilder out = new StringBuilder();
        for (String line : text.split("\n", -1)) {
            StringBuilder l = new StringBuilder();
            for (int i = 0; i < line.length(); i++) {
                char c = line.charAt(i);
                if (c == '\t') {
                    l.append(" ".repeat(8 - l.length() % 8));
                } else {
                    l.append(c);
                }
            }
            out.append(l).append('\n');
        }
        return out.toString();
    }

    /** A terminal or an editor has put blanks for tabs: empty cells still take their columns. */
    @Test
    void emptyCellsAreToldByTabStops() {
        String header = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
        String codes =
                "GPU0\t X \tNV4\tSYS\t%s\nGPU1\tNV4\t X \tSYS\t%s\nGPU2\tSYS\tSYS\t X \t%s\n";
        // As the tool prints them: CPU affinity empty; both; NUMA affinity empty.
        for (String[] cells :
                new String[][] {
                    {"\t1\t\tN/A", "", "1", "N/A"},
                    {"0-7\t1\t\tN/A", "0-7", "1", "N/A"},
                    {"0-7,16-23\t\t\tN/A", "0-7,16-23", "", "N/A"},
                    {"\t\t\t2", "", "", "2"}
                }) {
            PathMatrix m = matrix(expanded(header + codes.replace("%s", cells[0])));
            for (PathMatrix.GpuRow row : m.gpus()) {
                assertEquals(
                        List.of(cells[1], cells[2], cells[3]),
                        List.of(
                                String.valueOf(row.cpuAffinity()),
                                String.valueOf(row.numaAffinity()),
                                String.valueOf(row.gpuNumaId())),
                        cells[0]);
            }
        }
        // A cell beside every column proves nothing.
        contains(
                error(expanded(header) + expanded(codes).replace("%s", "   1")),
                "it is unclear which are empty");
    }

    @Test
    void columnsWithoutHeadings() {
        PathMatrix m = matrix("\tGPU0\tGPU1\nGPU0\t X \tPIX\t0-3\t0\nGPU1\tPIX\t X \t0-3\t0\n");
        assertEquals(new PathMatrix.GpuRow("GPU0", 0, "0-3", "0", null), m.gpus().get(0));
        assertTrue(m.warnings().toString().contains("0 headings"));
        PathMatrix none = matrix("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n");
        assertNull(none.gpus().get(0).cpuAffinity());
    }

    @Test
    void aHeaderThatWasCutIsCompletedByTheRows() {
        String rows =
                "GPU0\t X \tNV2\tPIX\nGPU1\tNV2\t X \tSYS\nmlx5_4\tPIX\tSYS\t X \n\nLegend:\n";
        PathMatrix m = matrix("\tGPU0\tGPU1\n" + rows);
        assertEquals("mlx5_4", m.nics().get(0).name());
        assertEquals("SYS", m.code(1, 2).text());
        assertTrue(m.warnings().toString().contains("has 2 devices, the rows have 3"));
        // A row is missing as well: nothing proves how many columns there were.
        contains(error("\tGPU0\n" + rows.replace("mlx5_4", "#")), "line 2", "expected 1");
    }

    @Test
    void nicsOldAndNew() {
        PathMatrix old =
                matrix(
                        "\tGPU0\tmlx5_2\tmlx5_0\tCPU Affinity\n"
                                + "GPU0\t X \tPIX\tSOC\t0-3\n"
                                + "mlx5_2\tPIX\t X \tSOC\t\nmlx5_0\tSOC\tSOC\t X ");
        assertEquals(List.of("mlx5_2", "mlx5_0"), old.nics().stream().map(n -> n.name()).toList());
        assertEquals(PathCode.Kind.SYS, old.code(0, 2).kind());
        assertEquals("SOC", old.code(0, 2).text());
        PathMatrix now =
                matrix(
                        "\tGPU0\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tPIX\tSYS\t0-3\n"
                                + "NIC0\tPIX\t X \tSYS\t\nNIC1\tSYS\tSYS\t X\n\n"
                                + "NIC Legend:\n\n  NIC0: rocep7s0\n  NIC1: mlx5_bond_0\n");
        assertEquals("rocep7s0", now.nics().get(0).device());
        assertEquals("mlx5_bond_0", now.nics().get(1).device());
        PathMatrix fused =
                matrix(
                        "GPU0GPU1mlx5_0mlx5_1rocep3s0f1CPU Affinity\n"
                                + "GPU0\tX\tSYS\tPIX\tSYS\tSYS\t0\nGPU1\tSYS\tX\tSYS\tPIX\tSYS\t1\n"
                                + "mlx5_0\tPIX\tSYS\tX\tSYS\tSYS\nmlx5_1\tSYS\tPIX\tSYS\tX\tSYS\n"
                                + "rocep3s0f1\tSYS\tSYS\tSYS\tSYS\tX\n");
        assertEquals(
                List.of("mlx5_0", "mlx5_1", "rocep3s0f1"),
                fused.nics().stream().map(n -> n.name()).toList());
    }

    @Test
    void rowsOfNicsMayBeCutAway() {
        Topology t =
                graph("\tGPU0\tGPU1\tNIC0\nGPU0\t X \tSYS\tPIX\nGPU1\tSYS\t X \tSYS\n\nLegend:\n");
        assertEquals("PIX", t.code(2, 0).text());
        assertEquals(1, warned(t, "no rows for NIC0"));
    }

    @Test
    void fusedCodesAreToldApart() {
        PathMatrix m =
                matrix(
                        "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\t X \tNV12\tPXBNODE\n"
                                + "GPU1\tNV12 X \tSYSSYS\nNIC0\tPXB\tSYS\t X NODE\n"
                                + "NIC1NODE\tSYS\tNODE X \n");
        assertEquals("PXB", m.code(0, 2).text());
        assertEquals("NODE", m.code(2, 3).text());
        assertEquals("SYS", m.code(1, 3).text());
        PathMatrix nv =
                matrix("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV128-9\nGPU1\tNV12\tX\t0-7\n");
        assertEquals("NV12", nv.code(0, 1).text());
        assertEquals("8-9", nv.gpus().get(0).cpuAffinity());
        contains(
                error("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV128-9\nGPU1\tNV128-9\tX\t0-7\n"),
                "line 3",
                "row GPU1");
        // Both halves are fused, so two readings agree with each other.
        contains(
                error("\tGPU0\tGPU1\tCPU Affinity\n" + "GPU0\tX\tNV128-9\n\nGPU1\tNV3\tX\t0-7\n"),
                "no way to read it agrees");
    }

    @Test
    void unknownCodesAreKept() {
        Topology t = graph("\tGPU0\tGPU1\nGPU0\t X \tC2C\nGPU1\tC2C\t X \n");
        assertEquals("C2C", t.code(0, 1).text());
        assertEquals(PathCode.Kind.UNKNOWN, t.code(0, 1).kind());
        assertEquals(1, warned(t, "line 2, column 10: unknown code C2C"));
    }

    @Test
    void abbreviations() {
        PathMatrix end = matrix("\tGPU0\tGPU1\t...\nGPU0\tX\tPIX\t...\nGPU1\tPIX\tX\t...\n");
        assertEquals(2, end.gpus().size());
        assertTrue(end.warnings().toString().contains("left out"));
        PathMatrix middle =
                matrix(
                        "\tGPU0\tGPU1\t...\tGPU7\tCPU Affinity\nGPU0\tX\tNV12\t...\tNV12\t0-3\n"
                                + "GPU1\tNV12\tX\t...\tNV12\t0-3\n...\n"
                                + "GPU7\tNV12\tNV12\t...\tX\t4-7\n");
        assertEquals(7, middle.gpus().get(2).index());
        assertEquals("NV12", middle.code(0, 2).text());
        assertEquals("4-7", middle.gpus().get(2).cpuAffinity());
    }

    @Test
    void damageIsLocated() {
        contains(
                error("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPHB\t X \n"),
                "line 2, column 10",
                "row GPU0, column GPU1 is PIX",
                "row GPU1, column GPU0 (line 3, column 6) is PHB");
        contains(
                error("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\nGPU1\tPIX\tX\tPIX\nGPU2\tPIX\tPIX\tX\n"),
                "line 2, column 6",
                "row GPU0 has 2 cells",
                "expected 3");
        contains(
                error("\tGPU0\tGPU1\nGPU0\tX\tPIX\tPIX\nGPU1\tPIX\tX\n"),
                "line 2",
                "row GPU0 has 3 cells",
                "expected 2");
        contains(
                error("\tGPU0\tGPU1\nGPU0\tPIX\tX\nGPU1\tPIX\tX\n"),
                "line 2, column 6",
                "column GPU0: found 'PIX', expected X");
        contains(
                error("\tGPU0\tGPU1\nGPU0\tX\tpix\nGPU1\tPIX\tX\n"),
                "line 2, column 8",
                "found 'pix'");
        contains(error("\tGPU0\tGPU1\nGPU0\tX\tPIX\n"), "line 2", "without rows for GPU1");
        contains(
                error("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU2\tPIX\tX\nGPU1\tPIX\tX\n"),
                "line 3, column 1",
                "'GPU2', which the header does not have");
        contains(
                error("\tGPU0\tGPU1\tGPU1\nGPU0\tX\tPIX\tPIX\n"),
                "line 1",
                "GPU1 appears",
                "twice");
        contains(error("\tGPU0\tGPU1\n\nbye\n"), "line 1, column 2", "no row for GPU0 follows");
        contains(
                error("\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n".replace("\tOK\tX", "\tPIX\tX")),
                "line 2",
                "OK");
        contains(
                error(
                        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\tX\tNV4\tSYS\t0-3;5\n"
                                + "GPU1\tNV4\tX\tSYS\t0-3\nGPU2\tSYS\tSYS\tX\t0-3\n"),
                "line 2, column 16",
                "'0-3;5'",
                "expected a list");
    }

    @Test
    void lenientKeepsWhatCanBeRead() {
        Topology t =
                TopologyReader.topology(
                        "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\nGPU1\tPIX\tX\tSYS\nGPU2\tSYS\tNODE\tX\n",
                        LENIENT);
        assertEquals("PIX", t.code(0, 1).text());
        assertEquals("SYS", t.code(0, 2).text());
        assertEquals("SYS", t.code(1, 2).text());
        assertEquals(1, warned(t, "row GPU0 has 2 cells"));
        assertEquals(1, warned(t, "SYS is taken"));
        Topology cut = TopologyReader.topology("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tSYS\n", LENIENT);
        assertEquals("PIX", cut.code(0, 1).text());
        assertEquals(1, warned(cut, "without rows for GPU1, GPU2"));
        assertEquals(1, warned(cut, "no code for 1 pair"));
    }

    @Test
    void aSessionMayHaveSeveralMatrices() {
        String mp = "$ nvidia-smi topo -mp\n\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n";
        String m = "$ nvidia-smi topo -m\n\tGPU0\tGPU1\nGPU0\t X \tNV3\nGPU1\tNV3\t X \n";
        String p2p = "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n";
        for (String text : List.of(mp + m, m + mp, p2p + mp + m)) {
            Topology t = graph(text);
            assertEquals("NV3", t.code(0, 1).text(), text);
            assertEquals(1, warned(t, "matrices, at lines"), text);
        }
        assertInstanceOf(P2pMatrix.class, TopologyReader.dump(p2p, STRICT));
    }

    @Test
    void p2pStates() {
        P2pMatrix m =
                assertInstanceOf(
                        P2pMatrix.class,
                        TopologyReader.dump(
                                " \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tCNS\n GPU1\tOK\tX\tGNS\n"
                                        + " GPU2\tCNS\tGNS\tX\n\nLegend:\n\n  X    = Self\n"
                                        + "  OK   = Status Ok\n",
                                STRICT));
        assertTrue(m.ok(0, 1));
        assertFalse(m.ok(0, 2));
        assertEquals("GNS", m.codes().get(1).get(2).text());
        Topology t = TopologyReader.topology(m, STRICT);
        assertEquals("CNS", t.code(0, 2).text());
        assertEquals(1, warned(t, "-p2p shows"));
    }

    @Test
    void ofTwoStatesTheOneThatIsNotOkIsTaken() {
        for (String cells : List.of("OK CNS", "CNS OK")) {
            String[] halves = cells.split(" ", -1);
            String text =
                    "\tGPU0\tGPU1\nGPU0\tX\t%s\nGPU1\t%s\tX\n".formatted(halves[0], halves[1]);
            P2pMatrix m =
                    assertInstanceOf(
                            P2pMatrix.class, TopologyReader.dump(text, STRICT.withLenient(true)));
            assertFalse(m.ok(0, 1), cells);
        }
    }

    @Test
    void nvlinkStatus() {
        NvlinkStatus s =
                assertInstanceOf(
                        NvlinkStatus.class,
                        TopologyReader.dump(
                                "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-masked)\n"
                                        + "\t Link 0: 26.562 GB/s\n\n\t Link 1: <inactive>\n"
                                        + "  GPU 3: Tesla V100-SXM2-16GB\n\tLink 0: 25.781 GB/s\n"
                                        + "GPU 4: NVIDIA A100-PCIE-40GB\n"
                                        + "NVML: Unable to retrieve NVLink information as all links"
                                        + " are inActive\n",
                                STRICT));
        assertEquals(List.of(0, 3, 4), s.gpus().stream().map(g -> g.index()).toList());
        assertEquals("NVIDIA H100 80GB HBM3", s.gpus().get(0).model());
        assertEquals(1, s.gpus().get(0).active());
        assertEquals(26.562, s.gpus().get(0).rawGbps());
        assertEquals("Tesla V100-SXM2-16GB", s.gpu(3).orElseThrow().model());
        assertEquals(0, s.gpu(4).orElseThrow().active());
        contains(
                error("GPU 0: NVIDIA H100\n\t Link 0: 26.5x GB/s\n"),
                "line 2, column 11",
                "'26.5x GB/s'",
                "expected a rate");
        assertEquals(90, TopologyReader.topology(s, STRICT).gpus().get(0).sm());
    }

    /** Issues have listings with parts left out. */
    @Test
    void nvlinksThatAreLeftOutAreReported() {
        NvlinkStatus s =
                assertInstanceOf(
                        NvlinkStatus.class,
                        TopologyReader.dump(
                                "GPU 0: NVIDIA H100\n\t Link 0: 26.562 GB/s\n\t [...]\n"
                                        + "\t Link 17: 26.562 GB/s\n"
                                        + "GPU 1: NVIDIA H100\n\t Link 1: 26.562 GB/s\n"
                                        + "\t Link 0: <inactive>\n",
                                STRICT));
        assertEquals(1, s.warnings().size(), s::toString);
        contains(s.warnings().get(0).message(), "GPU 0", "link 17", "only 2");
    }

    /** In an issue, a log or behind a prompt; a matrix in the same text comes first. */
    @Test
    void xmlIsReadInAText() {
        String xml =
                """
                <system version="1">
                  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
                    <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
                      <gpu dev="0" sm="80"/>
                    </pci>
                    <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
                      <gpu dev="1" sm="80"/>
                    </pci>
                  </cpu>
                </system>
                """;
        String text = "GPU 0: NVIDIA A100\n$ cat topo.xml\n```\n%s```\nAny clue?\n";
        for (ReadOptions options : List.of(STRICT, STRICT.withFormat(Format.NCCL_XML))) {
            Topology t = TopologyReader.topology(text.formatted(xml), options);
            assertEquals(2, t.gpus().size());
            assertEquals(80, t.gpus().get(1).sm());
            TopologyFormatException e =
                    assertThrows(
                            TopologyFormatException.class,
                            () ->
                                    TopologyReader.topology(
                                            text.formatted(xml.replace("</cpu>", "")), options));
            assertEquals(13, e.line());
        }
        for (String first : List.of(xml, "<?xml version=\"1.0\"?>\n<!-- " + xml + "-->" + xml)) {
            Topology t = TopologyReader.topology(first + "```\nAny clue?\n", STRICT);
            assertEquals(2, t.gpus().size());
        }
        contains(
                error(text.formatted("<graphs version=\"1\">\n</graphs>\n")),
                "line 4",
                "NCCL's graph XML");
        Topology matrix =
                TopologyReader.topology(
                        "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n" + xml, STRICT);
        assertEquals("NV4", matrix.code(0, 1).text());
    }

    /** In an issue there may be more about the machine. */
    @Test
    void damageIsReportedWhateverElseIsInTheText() {
        String matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV4\n";
        String xml = "<system version=\"1\">\n<cpu>\n</system>\n";
        for (String other :
                List.of(
                        "available: 1 nodes (0)\nnode 0 cpus: 0 1\n",
                        "<topology version=\"2.0\">\n</topology>\n",
                        "host:1:1 [0] NCCL INFO Channel 00/02 : 0 1\n")) {
            contains(error(matrix + other), "GPU1");
            contains(error(xml + other), "line 3");
        }
    }

    @Test
    void lookAlikesAreNamed() {
        contains(error("\tGPU0\tGPU1\nGPU0\t X \tICN4\nGPU1\tICN4\t X \n"), "ICN4", "ppu-smi");
        contains(
                error("==== ROCm System Management Interface ====\n  GPU0  GPU1\nGPU0 0 15\n"),
                "rocm-smi");
        contains(error("available: 1 nodes (0)\nnode 0 cpus: 0 1\n"), "line 1", "numactl -H");
        String hwloc = "<topology version=\"2.0\">\n<object type=\"Machine\"/>\n</topology>\n";
        String named = "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n" + hwloc;
        for (String xml : List.of(hwloc, named, "<?xml version=\"1.0\"?>\n" + named)) {
            contains(error(xml), "XML of hwloc (lstopo)", "expected nvidia-smi topo -m");
        }
        contains(error("hello"), "no topology found", "nvidia-smi topo -m");
        contains(error(""), "no topology found");
    }

    // ---- What is inferred

    private static String uniform(int gpus, String code) {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < gpus; i++) {
            b.append("\tGPU").append(i);
        }
        for (int i = 0; i < gpus; i++) {
            b.append("\nGPU").append(i);
            for (int j = 0; j < gpus; j++) {
                b.append('\t').append(i == j ? " X " : code);
            }
        }
        return b.append('\n').toString();
    }

    @ParameterizedTest
    @CsvSource({
        "8,NV18,90,true,370.8", "8,NV12,80,true,240", "4,NV12,80,true,240", "2,NV12,80,false,240",
        "4,NV4,80,false,80", "2,NV4,86,false,48", "4,NV6,90,false,123.6", "16,NV6,70,true,120",
        "8,NV8,80,true,160", "3,NV8,80,true,160", "4,NV1,60,false,18", "2,NV2,70,false,40",
        "3,NV3,70,false,60", "4,NV36,100,true,1443.6"
    })
    void generationsAreGuessedByCounts(
            int gpus, String code, int sm, boolean switched, double gbps) {
        Topology t = graph(uniform(gpus, code));
        assertEquals(sm, t.gpus().get(0).sm());
        assertEquals(Source.DEFAULT, t.gpus().get(0).smSource());
        assertEquals(1, warned(t, "--gpu-model"));
        assertEquals(
                switched, t.switches().stream().anyMatch(h -> h.kind() == Switch.Kind.NVSWITCH));
        List<Link> links = t.links().stream().filter(l -> l.kind() == LinkKind.NVLINK).toList();
        assertEquals(switched ? gpus : gpus * (gpus - 1) / 2, links.size());
        for (Link link : links) {
            assertEquals(gbps, link.gbps(), 1e-9);
            assertEquals(Source.NCCL_MODEL, link.source());
        }
    }

    @ParameterizedTest
    @CsvSource({
        "NVIDIA B200,100",
        "NVIDIA B300 SXM6 AC,103",
        "NVIDIA GB200,100",
        "NVIDIA GH200 480GB,90",
        "NVIDIA H100 80GB HBM3,90",
        "h200,90",
        "NVIDIA H800,90",
        "NVIDIA H20,90",
        "NVIDIA A100-SXM4-80GB,80",
        "NVIDIA A800-SXM4-80GB,80",
        "NVIDIA A40,86",
        "NVIDIA A30,80",
        "NVIDIA RTX A6000,86",
        "NVIDIA GeForce RTX 3090 Ti,86",
        "A6000,86",
        "NVIDIA L40S,89",
        "NVIDIA L4,89",
        "NVIDIA RTX 6000 Ada Generation,89",
        "NVIDIA GeForce RTX 4090,89",
        "Tesla V100-SXM2-32GB,70",
        "NVIDIA GeForce RTX 2080 Ti,75",
        "Quadro RTX 8000,75",
        "Tesla T4,75",
        "Tesla P100-SXM2-16GB,60",
        "Tesla P40,61",
        "Tesla K80,37",
        "NVIDIA GB10,121",
        "sm_90,90",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition,120",
        "NVIDIA GeForce RTX 5090,120"
    })
    void modelsAreKnown(String model, int sm) {
        Topology t = TopologyReader.topology(PAIR, STRICT.withGpuModel(model));
        assertEquals(sm, t.gpus().get(1).sm());
        assertEquals(Source.USER, t.gpus().get(1).smSource());
        assertEquals(0, warned(t, "--gpu-model"));
    }

    @Test
    void theCallerSettlesWhatIsOpen() {
        String text = uniform(8, "NV18");
        Topology b200 = TopologyReader.topology(text, STRICT.withGpuModel("B200"));
        Link nvlink = nvlink(b200);
        assertEquals(18 * 40.1, nvlink.gbps(), 1e-9);
        assertEquals(Source.GPU_MODEL, nvlink.source());
        Link user = nvlink(TopologyReader.topology(text, STRICT.withNvlinkGbps(23.5)));
        assertEquals(18 * 23.5, user.gbps(), 1e-9);
        assertEquals(Source.USER, user.source());
        Topology nics =
                TopologyReader.topology(
                        "\tGPU0\tNIC0\nGPU0\tX\tPIX\nNIC0\tPIX\tX\n", STRICT.withNicGbps(50));
        assertEquals(50, nics.nics().get(0).gbps());
        contains(
                assertThrows(
                                IllegalArgumentException.class,
                                () -> TopologyReader.topology(text, STRICT.withGpuModel("H1000")))
                        .toString(),
                "H1000",
                "expected a name such as H100");
    }

    @Test
    void theCallersModelReplacesThatOfAnXml() {
        String xml =
                """
                <system version="1"><cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
                  <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
                    <gpu dev="0" sm="70"><nvlink target="0000:02:00.0" count="2" tclass="0x068000"/></gpu></pci>
                </cpu></system>
                """;
        Topology t = TopologyReader.topology(xml, STRICT.withGpuModel("H100"));
        assertEquals("H100", t.gpus().getFirst().model());
        assertEquals(90, t.gpus().getFirst().sm());
        assertEquals(Source.USER, t.gpus().getFirst().smSource());
        assertEquals(2 * 20.6, nvlink(t).gbps(), 1e-9);
        assertEquals(
                50,
                nvlink(TopologyReader.topology(xml, STRICT.withGpuModel("H100").withNvlinkGbps(25)))
                        .gbps());
        assertThrows(
                IllegalArgumentException.class,
                () -> TopologyReader.topology(xml, STRICT.withGpuModel("H1000")));
    }

    private static Link nvlink(Topology t) {
        return t.links().stream()
                .filter(l -> l.kind() == LinkKind.NVLINK)
                .findFirst()
                .orElseThrow();
    }

    @Test
    void statusInTheSameTextTellsTheGeneration() {
        StringBuilder status = new StringBuilder("$ nvidia-smi nvlink -s\n");
        for (int gpu = 0; gpu < 4; gpu++) {
            status.append("GPU ").append(gpu).append(": NVIDIA B200 (UUID: GPU-0)\n");
            for (int link = 0; link < 18; link++) {
                status.append("\t Link ").append(link).append(": 53.125 GB/s\n");
            }
        }
        Topology t = graph(uniform(4, "NV18") + status);
        assertEquals(100, t.gpus().get(0).sm());
        assertEquals("NVIDIA B200", t.gpus().get(0).model());
        assertEquals(Source.GPU_MODEL, t.gpus().get(0).smSource());
        assertEquals(18 * 40.1, nvlink(t).gbps(), 1e-9);
        assertEquals(Source.NVLINK_STATUS, nvlink(t).source());
        assertEquals(0, t.warnings().size(), t.warnings().toString());
        // Links at half speed plan with half.
        Topology slow = graph(uniform(4, "NV18") + status.toString().replace("53.125", "26.5625"));
        assertEquals(18 * 40.1 / 2, nvlink(slow).gbps(), 1e-9);
    }

    @Test
    void degradedSwitchPortsKeepTheSwitch() {
        String text =
                "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV18\tNV17\nGPU1\tNV18\tX\tNV17\n"
                        + "GPU2\tNV17\tNV17\tX\n";
        Topology t = graph(text);
        List<Integer> counts =
                t.links().stream()
                        .filter(l -> l.kind() == LinkKind.NVLINK)
                        .map(Link::count)
                        .toList();
        assertEquals(List.of(18, 18, 17), counts);
    }

    private static List<String> switches(Topology t) {
        return t.switches().stream().map(Switch::name).toList();
    }

    @Test
    void codesMakeATree() {
        Topology t =
                graph(
                        "\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
                                + "GPU0\t X \tPHB\tSYS\tPIX\tNODE\t0-3\t4\n"
                                + "GPU1\tPHB\t X \tSYS\tPHB\tNODE\t0-3\t4\n"
                                + "GPU2\tSYS\tSYS\t X \tSYS\tSYS\t4-7\t6\n"
                                + "NIC0\tPIX\tPHB\tSYS\t X \tNODE\t\t\n"
                                + "NIC1\tNODE\tNODE\tSYS\tNODE\t X \t\t\n");
        assertEquals(
                List.of(
                        "numa4",
                        "host-bridge0",
                        "pcie-switch0",
                        "host-bridge1",
                        "numa6",
                        "host-bridge2"),
                switches(t));
        // What the graph says by itself is what was printed.
        Topology.Builder b = new Topology.Builder("again");
        t.gpus().forEach(b::add);
        t.nics().forEach(b::add);
        t.switches().forEach(h -> b.addSwitch(h.name(), h.kind()));
        t.links().forEach(l -> b.link(l.a(), l.b(), l.kind(), l.count(), l.gbps(), l.source()));
        Topology again = b.build();
        for (int i = 0; i < 5; i++) {
            for (int j = 0; j < 5; j++) {
                assertEquals(t.code(i, j), again.code(i, j));
            }
        }
        assertEquals(1, t.warnings().size(), t.warnings().toString());
    }

    @Test
    void cascadedSwitches() {
        Topology t =
                graph(
                        "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tPIX\tPXB\tPXB\nGPU1\tPIX\tX\tPXB\tPXB\n"
                                + "GPU2\tPXB\tPXB\tX\tPIX\nGPU3\tPXB\tPXB\tPIX\tX\n");
        assertEquals(
                List.of("numa0", "host-bridge0", "pcie-switch0", "pcie-switch1", "pcie-switch2"),
                switches(t));
        assertEquals(8, t.links().size());
    }

    @Test
    void gpusOnNvlinkSitWhereTheirNicsSit() {
        Topology t =
                graph(
                        "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV12\tPIX\nGPU1\tNV12\tX\tPIX\n"
                                + "NIC0\tPIX\tPIX\tX\n");
        assertEquals(List.of("numa0", "host-bridge0", "pcie-switch0"), switches(t));
    }

    @Test
    void gpusOnNvlinkSitWhereTheirAffinitySays() {
        String text = "\tGPU0\tGPU1\tNUMA Affinity\nGPU0\tX\tNV4\t3\nGPU1\tNV4\tX\t1\n";
        assertEquals(
                List.of("numa3", "host-bridge0", "numa1", "host-bridge1"), switches(graph(text)));
        assertEquals(
                List.of("numa3", "host-bridge0", "host-bridge1"),
                switches(graph(text.replace("\t1\n", "\t3\n"))));
    }

    @Test
    void contradictionsAreTold() {
        Topology t =
                graph(
                        "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tSYS\nGPU1\tPIX\tX\tPIX\n"
                                + "GPU2\tSYS\tPIX\tX\n");
        assertEquals(1, warned(t, "GPU0 and GPU2 print SYS"));
        Topology vm = graph("\tGPU0\tGPU1\tNUMA Affinity\nGPU0\tX\tSYS\t0\nGPU1\tSYS\tX\t0\n");
        assertEquals(1, warned(vm, "same NUMA affinity"));
    }

    @Test
    void aLoneGpu() {
        Topology t =
                graph("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t\t\tN/A\n");
        assertEquals(1, t.gpus().size());
        assertEquals("", t.gpus().get(0).cpuAffinity());
        assertEquals("N/A", t.gpus().get(0).gpuNumaId());
        assertEquals(List.of("numa0", "host-bridge0"), switches(t));
        assertEquals(1, graph("\tGPU0\nGPU0\tX\n").gpus().size());
    }

    @Test
    void graceHasItsOwnWayToTheCpu() {
        Topology t = TopologyReader.topology(uniform(4, "NV6"), STRICT.withGpuModel("GH200"));
        assertEquals(4, t.links().stream().filter(l -> l.kind() == LinkKind.C2C).count());
    }

    @Test
    void limits() {
        contains(error("x".repeat(Text.MAX_CHARS + 1)), "characters", "cut it down");
        contains(
                error(uniform(1025, "").substring(0, 9000) + "\nGPU0\tX\n"),
                "more than 1024 devices");
    }
}
