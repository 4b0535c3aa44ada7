package io.jccl.ras;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.error.JcclException;
import io.jccl.ras.RasReport.Finding;
import io.jccl.ras.RasReport.Kind;
import io.jccl.testkit.FakeRas;
import io.jccl.testkit.FakeRas.Comm;
import io.jccl.testkit.FakeRas.Manner;
import io.jccl.testkit.FakeRas.Missing;
import io.jccl.testkit.FakeRas.Rank;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** NCCL's RAS service, asked over a socket: all it may say, and all that may go wrong. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class RasClientTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final Duration SHORT = Duration.ofSeconds(1);

    private static Rank rank(int rank, long allReduces) {
        return new Rank(rank, 100 + rank, 0, 0, false, 0, 0, 0, 0, allReduces);
    }

    private static final Comm HEALTHY =
            new Comm(0xabcL, 2, List.of(rank(0, 5), rank(1, 5)), List.of());

    private static final Comm BEHIND =
            new Comm(
                    0x0d0fL,
                    5,
                    List.of(rank(0, 7), rank(1, 7), rank(2, 7), rank(3, 0), rank(4, 6)),
                    List.of());

    private static final Comm TORN =
            new Comm(
                    0xfeedL,
                    4,
                    List.of(rank(0, 3), new Rank(1, 101, 0, 6, true, 0, 0, 0, 0, 3)),
                    List.of(new Missing(2, 102, true, false), new Missing(3, 103, true, true)));

    private static RasReport ask(Manner manner, int timeouts, Comm... comms) throws IOException {
        try (FakeRas ras = new FakeRas(manner, timeouts, comms)) {
            return RasClient.ask(ras.address(), 1, PATIENCE);
        }
    }

    private static Set<Integer> ranks(RasReport report, Kind kind) {
        return report.findings().stream()
                .filter(f -> f.kind() == kind && f.rank() >= 0)
                .map(Finding::rank)
                .collect(Collectors.toSet());
    }

    @ParameterizedTest
    @EnumSource(names = {"NORMAL", "OLD", "SILENT_ONCE"})
    void aHealthyJobHasNoFindings(Manner manner) throws IOException {
        RasReport r = ask(manner, 0, HEALTHY);
        assertEquals("2.30.7", r.version());
        assertEquals(List.of(), r.findings());
        assertTrue(r.whole());
        assertEquals(1, r.groups().size());
        assertEquals(2, r.groups().get(0).size());
        assertEquals("RUNNING", r.groups().get(0).status());
        assertEquals("OK", r.groups().get(0).errors());
        assertEquals(manner == Manner.OLD ? Set.of() : Set.of(100L, 101L), r.processes());
    }

    @ParameterizedTest
    @EnumSource(names = {"NORMAL", "OLD"})
    void noCommunicator(Manner manner) throws IOException {
        RasReport r = ask(manner, 0);
        assertEquals(List.of(), r.groups());
        assertEquals(List.of(), r.findings());
        assertTrue(r.whole());
    }

    @ParameterizedTest
    @EnumSource(names = {"NORMAL", "OLD"})
    void ranksThatAreBehindAreNamedWithTheirCounts(Manner manner) throws IOException {
        RasReport r = ask(manner, 0, BEHIND);
        assertEquals(Set.of(3, 4), ranks(r, Kind.BEHIND));
        assertEquals(Set.of(3, 4).size(), r.findings().size(), () -> r.findings().toString());
        String text = r.findings().toString();
        assertTrue(text.contains("launched 0 of 7 operations of the kind AllReduce"), text);
        assertTrue(text.contains("launched 6 of 7 operations of the kind AllReduce"), text);
        assertTrue(text.contains("GPU 4 of process 104 on node 192.0.2.7"), text);
        assertTrue(text.contains("[communicator 0xd0f]"), text);
        assertEquals("MISMATCH", r.groups().get(0).errors());
    }

    /** NCCL prints -1 for the process of a rank that it cannot find. */
    @Test
    void timeoutsAreNamedAndUnknownProcessesAreNot() throws IOException {
        RasReport r =
                ask(
                        Manner.NORMAL,
                        0,
                        new Comm(
                                0xfeedL,
                                2,
                                List.of(new Rank(0, 100, 0, 8, false, 0, 0, 0, 0, 3)),
                                List.of(new Missing(1, -1, true, false))));
        String text = r.findings().toString();
        assertTrue(text.contains("rank 0 reported timeout (GPU 0 of process 100"), text);
        assertTrue(text.contains("missing: rank 1 gave no data [communicator"), text);
    }

    @ParameterizedTest
    @EnumSource(names = {"NORMAL", "OLD"})
    void missingDeadFailedAndAborted(Manner manner) throws IOException {
        RasReport r = ask(manner, 2, TORN);
        assertTrue(ranks(r, Kind.MISSING).contains(2), () -> r.findings().toString());
        assertEquals(Set.of(1), ranks(r, Kind.ERROR));
        assertTrue(ranks(r, Kind.STATUS).contains(1), () -> r.findings().toString());
        String text = r.findings().toString();
        assertTrue(text.contains("103") && text.contains("dead"), text);
        assertTrue(text.toLowerCase(java.util.Locale.ROOT).contains("remote process error"), text);
        assertTrue(text.contains("2 communication timeout(s)"), text);
        assertEquals("INCOMPLETE,ERROR,MISMATCH", r.groups().get(0).errors());
        assertEquals("ABORT", r.groups().get(0).status());
        assertEquals(4, r.groups().get(0).size());
        assertEquals(2, r.groups().get(0).ranks());
    }

    /** NCCL 2.24 to 2.27 name missing ranks in one line, and all operations together. */
    @Test
    void theFirstVersionsText() {
        RasReport r =
                RasText.parse(
                        """
                        NCCL version 2.24.3 compiled with CUDA 12.6

                        #0-0 (00000000000000ab) INCOMPLETE
                          Missing communicator data from 2 ranks
                          The missing ranks: 1,4

                        Warnings
                        ========

                        #0-0 (00000000000000ab) MISMATCH
                          Communicator ranks have different collective operation counts
                          6 ranks have launched up to operation 9
                          Rank 3 has launched up to operation 8 -- [process information not found]

                        """);
        assertEquals("2.24.3", r.version());
        assertEquals(Set.of(1, 4), ranks(r, Kind.MISSING));
        assertEquals(Set.of(3), ranks(r, Kind.BEHIND));
        assertTrue(r.findings().toString().contains("8 of 9"), () -> r.findings().toString());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false})
    void aTextCutAnywhereIsReadAsFarAsItGoes(boolean json) throws IOException {
        String whole;
        try (FakeRas ras = new FakeRas(Manner.NORMAL, 1, BEHIND, TORN)) {
            whole = raw(ras, json);
        }
        int full = (json ? RasJson.parse(whole) : RasText.parse(whole)).findings().size();
        assertTrue(full > 5, whole);
        for (int end = 1; end <= whole.length(); end++) {
            String part = whole.substring(0, end);
            RasReport r = json ? RasJson.parse(part) : RasText.parse(part);
            assertTrue(r.findings().size() <= full + 1, part);
            if (json) {
                assertEquals(end >= whole.length() - 1, r.whole(), part);
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(booleans = {true})
    void jsonCutAnywhereIsReadAsFarAsItGoes(boolean json) throws IOException {
        aTextCutAnywhereIsReadAsFarAsItGoes(json);
    }

    private static String raw(FakeRas ras, boolean json) throws IOException {
        String address = ras.address();
        int colon = address.lastIndexOf(':');
        try (var s =
                new java.net.Socket(
                        address.substring(0, colon),
                        Integer.parseInt(address.substring(colon + 1)))) {
            s.getOutputStream()
                    .write(
                            ((json ? "SET FORMAT json\n" : "") + "VERBOSE STATUS\n")
                                    .getBytes(StandardCharsets.US_ASCII));
            String all = new String(s.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
            return json ? all.substring(3) : all;
        }
    }

    @Test
    void anAnswerThatIsCutIsMarked() throws IOException {
        assertFalse(ask(Manner.CUT, 0, BEHIND, TORN).whole());
    }

    @Test
    void linesAndFieldsOfNewerVersionsArePassedOver() {
        RasReport t = RasText.parse("NCCL version 3.1 compiled with X\nsomething new\n  Rank x\n");
        assertEquals("3.1", t.version());
        assertEquals(List.of(), t.findings());
        RasReport j =
                RasJson.parse(
                        "{\"nccl_version\": \"3.1\", \"new\": [1, {\"a\": null}], \"communicators\":"
                                + " [{\"hash\": \"0x1\", \"ranks\": [{\"rank\": 0}], \"x\": -1.5e3}]}");
        assertEquals("3.1", j.version());
        assertEquals(1, j.groups().size());
        assertTrue(j.whole());
    }

    @ParameterizedTest
    @CsvSource({
        "SILENT, has not answered within",
        "HANGING, has not answered within",
        "OTHER, HTTP/1.1 400",
        "REFUSING, Invalid timeout value",
        "EMPTY, without a report"
    })
    void whoDoesNotAnswerIsNamedInTime(Manner manner, String words) throws IOException {
        try (FakeRas ras = new FakeRas(manner, 0, HEALTHY)) {
            JcclException e =
                    assertThrows(JcclException.class, () -> RasClient.ask(ras.address(), 1, SHORT));
            assertTrue(String.valueOf(e.getMessage()).contains(words), e::getMessage);
            assertTrue(String.valueOf(e.getMessage()).contains(ras.address()), e::getMessage);
        }
    }

    @Test
    void aPortWhereNobodyListens() throws IOException {
        int port;
        try (var s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = s.getLocalPort();
        }
        JcclException e =
                assertThrows(
                        JcclException.class, () -> RasClient.ask("127.0.0.1:" + port, 1, PATIENCE));
        assertTrue(
                String.valueOf(e.getMessage()).contains("nothing listens at 127.0.0.1:" + port),
                e::getMessage);
        assertTrue(String.valueOf(e.getMessage()).contains("NCCL_RAS_ENABLE"), e::getMessage);
    }

    /** A name of two addresses, of which NCCL listens at one, and a process there is stopped. */
    @Test
    void anAddressWhereNobodyListensIsPassedOver() throws IOException {
        try (FakeRas ras = new FakeRas(Manner.SILENT_ONCE, 0, HEALTHY)) {
            InetAddress[] both = {
                InetAddress.getLoopbackAddress(), InetAddress.getByName("127.0.0.2")
            };
            RasReport r = RasClient.ask(ras.address(), host -> both, 1, PATIENCE);
            assertEquals("2.30.7", r.version());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "host", "host:", ":1", "host:0", "host:70000", "host:x"})
    void aMalformedAddress(String address) {
        var e =
                assertThrows(
                        IllegalArgumentException.class, () -> RasClient.ask(address, 1, PATIENCE));
        assertTrue(String.valueOf(e.getMessage()).contains("'" + address + "'"), e::getMessage);
    }

    @Test
    void theVariablesOfNccl() {
        assertEquals("localhost:28028", RasClient.address(Map.of()));
        assertEquals("[::1]:9", RasClient.address(Map.of("NCCL_RAS_ADDR", "[::1]:9")));
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () -> RasClient.address(Map.of("NCCL_RAS_ENABLE", "0")));
        assertTrue(String.valueOf(e.getMessage()).contains("NCCL_RAS_ENABLE=0"), e::getMessage);
    }

    @Test
    void commandsComeInNcclsOrder() throws IOException {
        try (FakeRas ras = new FakeRas(Manner.NORMAL, 0, HEALTHY)) {
            RasClient.ask(ras.address(), 3, PATIENCE);
            // It greets again on another connection if the answer is late.
            String greeting = "CLIENT PROTOCOL 2";
            assertEquals(greeting, ras.commands.peek());
            assertEquals(
                    List.of("TIMEOUT 3", "SET FORMAT json", "VERBOSE STATUS"),
                    ras.commands.stream().filter(c -> !c.equals(greeting)).toList());
        }
    }
}
