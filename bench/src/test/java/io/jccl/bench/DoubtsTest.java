package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bench.Report.RankInfo;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What speaks against a table, on machines that files describe. */
class DoubtsTest {
    @TempDir private Path proc = Path.of("");

    /** Four CPUs; user, idle and stolen time of each, in seconds. */
    private void machine(double average, double[] user, double idle, double stolen)
            throws IOException {
        StringBuilder stat = new StringBuilder("cpu  1 2 3 4 5 6 7 8 0 0\n");
        for (int i = 0; i < user.length; i++) {
            stat.append(
                    "cpu%d %.0f 0 0 %.0f 0 0 0 %.0f 0 0%n"
                            .formatted(i, 100 * user[i], 100 * idle, 100 * stolen));
        }
        Files.writeString(proc.resolve("stat"), stat + "intr 12345\n");
        Files.writeString(proc.resolve("loadavg"), average + " 1.00 1.00 1/200 4711\n");
    }

    private void start() throws IOException {
        machine(0.5, new double[4], 0, 0);
    }

    /** Ten seconds later. */
    private void machine(double... user) throws IOException {
        machine(0.5, user, 10 - user[0], 0);
    }

    private static RankInfo rank(int rank, String host, String cpus, int processors) {
        return new RankInfo(rank, 0, 100 + rank, host, "host", 0, "CPU", cpus, processors);
    }

    private static List<RankInfo> ranks(int n, String cpus, int processors) {
        return IntStream.range(0, n).mapToObj(r -> rank(r, "a", cpus, processors)).toList();
    }

    private Doubts doubts(List<RankInfo> ranks) throws IOException {
        start();
        return new Doubts(new MachineLoad(proc), ranks, true);
    }

    private static void has(@Nullable String warning, String... parts) {
        assertNotNull(warning);
        for (String part : parts) {
            assertTrue(warning.contains(part), warning);
        }
        assertEquals(1, warning.lines().count(), warning);
    }

    @Test
    void nothingSpeaksAgainstAnIdleMachine() throws IOException {
        Doubts d = doubts(ranks(4, "0-3", 4));
        machine(5, 5, 5, 5);
        d.add(Report.Spread.of(new double[] {1, 1, 1.1, 1, 1}, new int[] {1, 1, 1, 1, 1}));
        assertNull(d.warning(20));
    }

    @Test
    void ranksThatShareCores() throws IOException {
        Doubts d = doubts(ranks(5, "0-3", 4));
        machine(10, 10, 10, 10);
        has(d.warning(40), "5 ranks share 4 cores", "start no more ranks than cores");
    }

    /** Ranks that a launcher has bound to a core each share none. */
    @Test
    void boundRanksShareNothing() throws IOException {
        List<RankInfo> bound =
                IntStream.range(0, 4).mapToObj(r -> rank(r, "a", "" + r, 1)).toList();
        Doubts d = doubts(bound);
        machine(10, 10, 10, 10);
        assertNull(d.warning(40));
        Doubts one = doubts(ranks(2, "3", 1));
        machine(0, 0, 0, 10);
        has(one.warning(10), "2 ranks share 1 core. ");
    }

    @Test
    void aQuotaCountsAsFewerCores() throws IOException {
        Doubts d = doubts(ranks(3, "0-3", 2));
        machine(10, 10, 10, 10);
        has(d.warning(40), "3 ranks share 2 cores");
    }

    @Test
    void ranksOfOtherMachinesShareNothingHere() throws IOException {
        List<RankInfo> ranks =
                Stream.of(rank(0, "a", "0-1", 2), rank(1, "b", "0-1", 2), rank(2, "b", "0-1", 2))
                        .toList();
        Doubts d = doubts(ranks);
        machine(10, 0, 0, 0);
        assertNull(d.warning(10));
    }

    /** Two of four cores are left: others may use them, and no more. */
    @ParameterizedTest
    @CsvSource({"20, false", "15, true"})
    void otherPrograms(double own, boolean warned) throws IOException {
        Doubts d = doubts(ranks(2, "0-3", 4));
        machine(10, 10, 10, 10);
        if (warned) {
            has(d.warning(own), "other programs kept 2.5 of 4 cores busy (load average 0.5)");
        } else {
            assertNull(d.warning(own));
        }
    }

    /** What runs on CPUs that the ranks may not use does not disturb them. */
    @Test
    void otherCpusDoNotCount() throws IOException {
        Doubts d = doubts(ranks(2, "0,2", 2));
        machine(10, 10, 10, 10);
        assertNull(d.warning(20));
    }

    @Test
    void aHypervisorThatTakesTime() throws IOException {
        Doubts d = doubts(ranks(2, "0-3", 4));
        machine(0.5, new double[] {1, 1, 1, 1}, 8, 1);
        has(d.warning(4), "the hypervisor took 10 % of the CPU time");
    }

    @Test
    void aShortRunIsJudgedByTheLoadBefore() throws IOException {
        machine(3.6, new double[] {1, 1, 1, 1}, 1, 0);
        Doubts d = new Doubts(new MachineLoad(proc), ranks(2, "0-3", 4), true);
        has(d.warning(0), "the load average was 3.6 before the start");
        assertNull(new Doubts(new MachineLoad(proc), ranks(1, "0-3", 4), true).warning(0));
    }

    @Test
    void batchesThatDiffer() throws IOException {
        Doubts d = doubts(ranks(1, "0-3", 4));
        int[] lengths = {1, 1, 1, 1, 1};
        d.add(Report.Spread.of(new double[] {1, 1, 1, 1, 9}, lengths));
        d.add(Report.Spread.of(new double[] {1, 1, 1, 1, 1}, lengths));
        assertNull(d.warning(0));
        d.add(Report.Spread.of(new double[] {1, 1, 1, 2, 2}, lengths));
        has(d.warning(0), "batches of 1 of 3 times differ by more than 20 %", "raise -n");
    }

    @Test
    void gpusShareNoCores() throws IOException {
        start();
        Doubts d = new Doubts(new MachineLoad(proc), ranks(8, "0-3", 4), false);
        machine(10, 10, 10, 10);
        assertNull(d.warning(0));
    }

    @Test
    void withoutTheKernelsFilesNothingIsClaimed() {
        Path none = proc.resolve("none");
        assertNull(new Doubts(new MachineLoad(none), ranks(2, "", 4), true).warning(1));
        has(
                new Doubts(new MachineLoad(none), ranks(5, "", 4), true).warning(1),
                "5 ranks share 4 cores");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {"0-3 | {0, 1, 2, 3}", "1,4-5 | {1, 4, 5}", "'' | {}", "x | {}", "3-1 | {}"})
    void listsOfCpus(String list, String cpus) {
        assertEquals(cpus, MachineLoad.cpus(list).toString());
    }
}
