package io.jccl.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.FlightHistory;
import io.jccl.FlightHistory.Operation;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What a rank remembers of its last operations. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class FlightRecorderTest {
    private static List<String> described(FlightHistory h) {
        return h.operations().stream().map(Operation::describe).toList();
    }

    @Test
    void everyKindOfOperationIsWrittenDown() {
        Communicator.runLocal(
                2,
                c -> {
                    Stream s = c.device().defaultStream();
                    try (Stream beside = c.device().newStream();
                            Buffer a = c.device().allocate(DataType.FLOAT32, 6);
                            Buffer b = c.device().allocate(DataType.FLOAT32, 6)) {
                        c.allReduce(a, b, ReduceOp.AVG, s);
                        c.broadcast(a, 1, s);
                        c.allGather(a, s);
                        c.barrier(s);
                        int peer = 1 - c.rank();
                        Group.run(
                                c,
                                () -> {
                                    c.send(a, peer, s);
                                    c.recv(b, peer, s);
                                });
                        c.allGatherv(a.slice(0, 2), b, new long[] {2, 2}, new long[] {0, 3}, s);
                        c.reduce(a, b, ReduceOp.preMulSum(2.0), 0, beside);
                        beside.synchronize();
                        FlightHistory h = c.history();
                        assertEquals(
                                List.of(
                                        "allReduce(float, count 6, avg)",
                                        "broadcast(float, count 6, root 1)",
                                        "allGather(float, count 3)",
                                        "barrier",
                                        "send(float, count 6, peer " + peer + ")",
                                        "recv(float, count 6, peer " + peer + ")",
                                        "allGatherv(float)",
                                        "reduce(float, count 6, mulsum, root 0)"),
                                described(h));
                        assertEquals(
                                List.of(1L, 2L, 3L, 4L, 0L, 0L, 5L, 6L),
                                h.operations().stream().map(Operation::sequence).toList());
                        assertEquals(8, h.last());
                        assertEquals(8, h.completed());
                        assertTrue(h.operations().stream().allMatch(Operation::completed));
                        assertEquals(
                                List.of(false, false, false, false, true, true, false, false),
                                h.operations().stream().map(Operation::grouped).toList());
                        assertTrue(h.operations().get(7).queued());
                        assertFalse(h.operations().get(0).queued());
                        assertTrue(h.operations().get(2).inPlace());
                        assertEquals(24, h.operations().get(0).bytes());
                        // 3 elements to each of 2 ranks
                        assertEquals(4, h.operations().get(6).count());
                        assertEquals("host/threads", h.engine());
                        assertEquals(c.rank(), h.rank());
                        long now = System.currentTimeMillis() * 1_000_000L;
                        for (Operation o : h.operations()) {
                            long age = now - o.enqueuedNanos();
                            assertTrue(Math.abs(age) < 120_000_000_000L, () -> "age " + age);
                        }
                        String text = h.toText();
                        assertTrue(text.contains("#5 allGatherv(float)"), text);
                        assertTrue(h.toJson().contains("\"name\":\"reduce\""), h::toJson);
                    }
                });
    }

    @Test
    void sameCommunicatorHasOneNameOnAllRanksAndNoOtherHasIt() {
        List<String> names = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Communicator.runLocal(
                    3,
                    c -> {
                        Communicator half = c.split(c.rank() == 0 ? 0 : 1, 0);
                        assertNotNull(half);
                        synchronized (names) {
                            names.add(c.history().communicator());
                            names.add(half.history().communicator() + " of " + half.size());
                        }
                        half.close();
                    });
        }
        // Three worlds with a child of one rank and another of two.
        assertEquals(18, names.size());
        assertEquals(9, names.stream().distinct().count(), names::toString);
    }

    /** The ring forgets the oldest, and nothing that it gives out is a mixture. */
    @Test
    void isReadWhileItIsWritten() throws InterruptedException {
        isReadWhileItIsWritten(60_000);
    }

    @Tag("exhaustive")
    @Test
    void isReadWhileItIsWrittenForLonger() throws InterruptedException {
        isReadWhileItIsWritten(300_000);
    }

    private static void isReadWhileItIsWritten(int calls) throws InterruptedException {
        Communicator c = Communicator.local(1).getFirst();
        Stream s = c.device().defaultStream();
        AtomicReference<@Nullable Throwable> failure = new AtomicReference<>();
        try (c;
                Buffer b = c.device().allocate(DataType.INT32, 64)) {
            Thread reader =
                    Thread.ofPlatform()
                            .start(() -> {
                                try {
                                    long before = 0;
                                    while (before < calls) {
                                        before = check(c.history(), before);
                                    }
                                } catch (Throwable t) {
                                    failure.set(t);
                                }
                            });
            Buffer[] parts = new Buffer[64];
            for (int i = 0; i < 64; i++) {
                parts[i] = b.slice(0, i + 1);
            }
            for (int i = 1; i <= calls; i++) {
                c.allReduce(parts[i % 64], ReduceOp.SUM, s);
            }
            reader.join();
        }
        if (failure.get() != null) {
            throw new AssertionError(failure.get());
        }
        FlightHistory h = c.history();
        assertEquals(1024, h.operations().size());
        assertEquals(calls, h.last());
    }

    private static long check(FlightHistory h, long before) {
        assertTrue(h.last() >= before, "goes back");
        assertTrue(h.operations().size() <= 1024);
        long previous = 0;
        for (Operation o : h.operations()) {
            assertEquals(o.number(), o.sequence(), "a mixture");
            assertEquals(o.number() % 64 + 1, o.count(), "a mixture");
            assertTrue(o.number() > previous, "out of order");
            previous = o.number();
        }
        return h.last();
    }

    /** What does not fit on the stack is not an operation, and moves no other to another entry. */
    @Test
    void anErrorWhileOneIsRecordedHurtsNoOther() throws InterruptedException {
        FlightRecorder r = new FlightRecorder(16);
        Runnable body =
                () -> {
                    for (int i = 0; i < 20; i++) {
                        recordNumber(r);
                        recordAtTheEndOfTheStack(r, Integer.MAX_VALUE);
                    }
                };
        Thread user = new Thread(null, body, "small", 256 << 10);
        user.start();
        user.join();
        long last = r.last();
        assertTrue(last >= 40, () -> "only " + last);
        for (long n = last - 15; n <= last; n++) {
            Operation o = r.at(n);
            assertNotNull(o);
            assertEquals(n, o.count());
        }
    }

    /** Tries as deep as possible, then ever less so, until one is recorded. */
    private static boolean recordAtTheEndOfTheStack(FlightRecorder r, int depth) {
        try {
            if (depth > 0 && recordAtTheEndOfTheStack(r, depth - 1)) {
                return true;
            }
        } catch (StackOverflowError e) {
            // The deepest.
        }
        try {
            recordNumber(r);
            return true;
        } catch (StackOverflowError e) {
            return false;
        }
    }

    /** Records an operation with its own number as its count. */
    private static void recordNumber(FlightRecorder r) {
        long number = r.last() + 1;
        r.note(FlightRecorder.NOTHING, number, number);
    }

    @Test
    void whatFailedStaysPending() {
        Communicator c = Communicator.local(1).getFirst();
        Stream s = c.device().defaultStream();
        try (Buffer b = c.device().allocate(DataType.INT32, 4)) {
            c.allReduce(b, ReduceOp.SUM, s);
            assertThrows(
                    IllegalArgumentException.class, () -> c.broadcast(b, 7, s), "a wrong root");
            c.abort("for this test");
            assertThrows(RuntimeException.class, () -> c.allReduce(b, ReduceOp.SUM, s));
            // Refused before it was anything.
            assertEquals(1, c.history().last());
            assertEquals(1, c.history().completed());
        }
        c.close();
        assertEquals(1, c.history().last(), "readable after closing");
    }

    @ParameterizedTest
    @ValueSource(strings = {"15", "-1", "x", "1048577", "1e3"})
    void capacityThatCannotBeIsRefused(String value) {
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> FlightSettings.capacity(FlightSettings.CAPACITY, value));
        assertTrue(
                String.valueOf(e.getMessage()).contains("'" + value + "', expected 0, or 16 to"),
                e::toString);
    }

    @Test
    void otherValuesAreRefused() {
        for (String value : Arrays.asList(null, "", "exact")) {
            FlightSettings.check(FlightSettings.CLOCK, value, "exact");
        }
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> FlightSettings.check(FlightSettings.CALL_SITES, "7", "0", "1"));
        assertEquals("JCCL_FLIGHT_CALLSITES is '7', expected 0 or 1, or unset it", e.getMessage());
    }

    @Test
    void capacityIsThatOfTheSetting() {
        assertEquals(1024, FlightSettings.capacity(FlightSettings.CAPACITY, null));
        assertEquals(0, FlightSettings.capacity(FlightSettings.CAPACITY, "0"));
        assertEquals(16, FlightSettings.capacity(FlightSettings.CAPACITY, "16"));
        assertEquals(17, FlightSettings.capacity(FlightSettings.CAPACITY, "17"));
        assertEquals(1 << 20, FlightSettings.capacity(FlightSettings.CAPACITY, "1048576"));
    }

    // ---- standings

    private static RankStatus standing(int rank, long called, String pending) {
        return new RankStatus(
                rank,
                "node" + rank + ":4" + rank,
                called,
                "",
                pending,
                12_345,
                "A.b(A.java:" + rank);
    }

    @Test
    void tableNamesWhoIsBehindFirst() {
        String table =
                RankStatus.table(
                        Arrays.asList(
                                standing(0, 7, "#7 barrier"),
                                null,
                                standing(2, 6, ""),
                                standing(3, 7, "#7 barrier")),
                        List.of("", "rank 1 (process 9)", "", ""),
                        List.of("", "called #5 barrier", "", ""));
        List<String> lines = table.lines().toList();
        assertEquals(
                "rank 1 gives no answer: the process or its machine is stopped or lost; behind:"
                        + " rank 2 (node2:42) has called #6, others #7, and is at A.b(A.java:2",
                lines.getFirst());
        assertEquals(6, lines.size(), table);
        assertTrue(
                lines.get(3).matches(" +1 +rank 1 \\(process 9\\) +called #5 barrier +no answer"));
        assertTrue(lines.get(2).contains("12 s"), table);
        assertEquals(0, RankStatus.lowest(Arrays.asList(standing(0, 1, ""), null)));
        assertEquals(1, RankStatus.lowest(Arrays.asList(null, standing(1, 1, ""))));
        assertEquals(-1, RankStatus.lowest(Arrays.asList(null, null)));
    }

    @Test
    void standingIsReadAsWritten() {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("FlightRingTest seed " + seed);
        Random random = new Random(seed);
        for (int i = 0; i < 10_000; i++) {
            RankStatus s =
                    new RankStatus(
                            random.nextInt(),
                            word(random),
                            random.nextLong(),
                            word(random),
                            word(random),
                            random.nextLong(),
                            word(random));
            assertEquals(s, RankStatus.read(s.write(10_000)), "seed " + seed);
        }
        assertNull(RankStatus.read("garbage"));
        assertNull(RankStatus.read("a\tb\tc\td\te\tf\tg"));
        assertNull(RankStatus.read(""));
    }

    private static String word(Random random) {
        StringBuilder s = new StringBuilder();
        for (int n = random.nextInt(20); n > 0; n--) {
            s.append((char) (' ' + random.nextInt(300)));
        }
        // What a line cannot hold is written as blanks.
        return s.toString().replaceAll("\\s", " ").replace('\u0085', 'x').replace('\u00a0', 'x');
    }

    /** A rank that collects garbage for a second or two is not one that gives no answer. */
    @ParameterizedTest
    @CsvSource({"600, 300", "1000, 500", "8000, 800", "30000, 3000", "600000, 5000"})
    void othersHaveTheLastPartOfATimeoutToAnswer(long timeout, long answer) {
        assertEquals(answer * 1_000_000, RankStatus.answerNanos(timeout * 1_000_000));
    }
}
