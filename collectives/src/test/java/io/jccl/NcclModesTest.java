package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.NcclConfig;
import io.jccl.bindings.NcclException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Communicators that block, which are the default, and those that do not: what NCCL answers late,
 * whose call may meet whose, and what has to end before what.
 */
@UsesFakes
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class NcclModesTest {
    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    @AfterEach
    void reset() {
        NcclRanks.reset();
    }

    private static CommunicatorOptions options(int blocking) {
        return NcclRanks.OPTIONS.withNccl(
                new NcclConfig().with(NcclConfig.Field.BLOCKING, blocking));
    }

    private static void loop(Communicator c, int operations) {
        Stream stream = c.device().defaultStream();
        try (Buffer b = c.device().allocate(DataType.INT32, 16)) {
            for (int i = 0; i < operations; i++) {
                c.allReduce(b, ReduceOp.MAX, stream);
            }
            stream.synchronize(NcclRanks.PATIENCE);
        }
    }

    /** The fake of NCCL starts a thread for each operation of one that does not block. */
    @Test
    void operationsOfADefaultCommunicatorNeverAskForTheState() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        long before = TestFake.calls("ncclCommGetAsyncError");
        long began = System.nanoTime();
        NcclRanks.each(ranks, c -> loop(c, 500));
        long looks = (System.nanoTime() - began) / 50_000_000 + 2;
        long asked = TestFake.calls("ncclCommGetAsyncError") - before;
        assertTrue(asked <= looks * ranks.size(), asked + " calls, by the watchdog " + looks);
        NcclRanks.close(ranks);
    }

    /** The fake ends the process when two threads are inside, as NCCL does sooner or later. */
    @ParameterizedTest
    @ValueSource(ints = {1})
    void watchdogAndOperationsDoNotMeet(int blocking) throws Exception {
        long before = NcclRanks.live();
        List<Communicator> ranks = NcclRanks.open(2, options(blocking));
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(600);
        int[] rounds = {0};
        while (System.nanoTime() < end || rounds[0] < 3) {
            NcclRanks.each(ranks, c -> loop(c, 50));
            rounds[0]++;
        }
        NcclRanks.checkUsable(ranks);
        NcclRanks.close(ranks);
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0})
    void watchdogAndOperationsThatDoNotBlockDoNotMeet(int blocking) throws Exception {
        watchdogAndOperationsDoNotMeet(blocking);
    }

    /** NCCL writes the slot of a split at its end, also where there is nothing to be written. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1})
    void splitAgainAndAgainAlsoWithoutAColour(int blocking) {
        NcclRanks.devices(3); // has their streams made
        long before = NcclRanks.live();
        List<Communicator> ranks = NcclRanks.open(3, options(blocking));
        for (int i = 0; i < 10; i++) {
            int out = i % 3;
            NcclRanks.each(
                    ranks,
                    c -> {
                        Communicator part = c.split(c.rank() == out ? -1 : 0, c.rank());
                        if (c.rank() == out) {
                            assertNull(part);
                        } else {
                            Communicator p = Objects.requireNonNull(part);
                            assertEquals(2, NcclRanks.sum(p, 1));
                            p.close();
                        }
                        assertEquals(3, NcclRanks.sum(c, 1));
                    });
        }
        NcclRanks.close(ranks);
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @Test
    void windowsOfACommunicatorThatDoesNotBlock() {
        List<Communicator> ranks = NcclRanks.open(2, options(0));
        NcclRanks.each(
                ranks,
                c -> {
                    Buffer b = Cuda.allocateForNccl(c.device(), DataType.INT32, 1024);
                    NcclCommunicator.Window w = NcclRanks.nccl(c).window(b, true);
                    w.close();
                    b.close();
                });
        NcclRanks.checkUsable(ranks);
        NcclRanks.close(ranks);
    }

    /** One that does not block never forgets what it has refused, so it is over, on all ranks. */
    @Test
    void refusalEndsACommunicatorThatDoesNotBlock() {
        List<Communicator> ranks = NcclRanks.open(2, options(0));
        NcclRanks.checkUsable(ranks);
        TestFake.inject("ncclAllReduce@0:1:error=4");
        List<@Nullable Throwable> errors = NcclRanks.errors(ranks, c -> loop(c, 1));
        assertInstanceOf(NcclException.class, errors.get(0));
        assertInstanceOf(JcclException.class, errors.get(1));
        for (Communicator c : ranks) {
            String text = Messages.of(JcclException.class, () -> loop(c, 1));
            assertTrue(text.contains("ncclInvalidArgument"), text);
        }
        NcclRanks.close(ranks);
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1})
    void splitThatARankNeverCallsEnds(int blocking) {
        List<Communicator> ranks = NcclRanks.open(2, options(blocking).withTimeout(NcclRanks.SOON));
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            if (c.rank() == 0) {
                                c.split(0, 0);
                            }
                        });
        String text = NcclRanks.text(errors.get(0));
        assertTrue(text.contains("ncclCommSplit on rank 0"), text);
        assertTrue(text.contains(NcclRanks.SOON.toString()), text);
        NcclRanks.close(ranks);
    }

    /** NCCL writes the slot when the abort ends the split: freed memory would no longer be zero. */
    @Test
    void slotOfASplitLivesUntilTheAbort() {
        NcclRanks.devices(2); // has their streams made
        long before = NcclRanks.live();
        List<Communicator> ranks = NcclRanks.open(2, options(0).withTimeout(NcclRanks.SOON));
        TestFake.inject("ncclCommAbort:*:delay=500");
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            if (c.rank() == 0) {
                                c.split(0, 0);
                            }
                        });
        assertInstanceOf(JcclException.class, errors.get(0));
        NcclRanks.close(ranks);
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    // ---- graphs

    private static Graph capture(Communicator c, Buffer b) {
        Stream stream = c.device().defaultStream();
        return Graph.capture(stream, () -> c.allReduce(b, ReduceOp.SUM, stream));
    }

    /** NCCL's finalize waits for the graph's end, and for that whoever closes would wait. */
    @Test
    void communicatorIsNotClosedBeforeItsGraph() {
        long before = NcclRanks.live();
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.each(
                ranks,
                c -> {
                    try (Buffer b = c.device().allocate(DataType.INT32, 4)) {
                        capture(c, b).close();
                        Graph graph = capture(c, b);
                        String text = Messages.of(IllegalStateException.class, c::close);
                        assertTrue(text.contains("graph ") && text.contains("'local-"), text);
                        assertTrue(text.contains("rank " + c.rank()), text);
                        assertEquals(1, text.split("captured on", -1).length - 1, text);
                        graph.launch(c.device().defaultStream());
                        c.device().defaultStream().synchronize(NcclRanks.PATIENCE);
                        assertEquals(2, NcclRanks.sum(c, 1));
                        graph.close();
                    }
                });
        NcclRanks.close(ranks);
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @Test
    void graphOfAFailedCommunicatorIsOverToo() {
        long before = NcclRanks.live();
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        Phaser captured = new Phaser(2);
        NcclRanks.each(
                ranks,
                c -> {
                    try (Buffer b = c.device().allocate(DataType.INT32, 4);
                            Graph graph = capture(c, b)) {
                        captured.arriveAndAwaitAdvance(); // an abort of one ends both
                        c.abort("on purpose");
                        c.close();
                        String text =
                                Messages.of(
                                        IllegalStateException.class,
                                        () -> graph.launch(c.device().defaultStream()));
                        assertTrue(text.contains("local-") && text.contains("failed"), text);
                    }
                });
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    // ---- what depends on the machine

    @Tag("exhaustive")
    @Test
    void devicesWithoutContextsAndWhatTheMachineLacks() {
        Map<String, String> env =
                Map.of(
                        "JCCL_FAKE_CAPABILITY", "80",
                        "NCCL_CUMEM_ENABLE", "0",
                        "NCCL_LOCAL_REGISTER", "0");
        try (Workers workers = new Workers(1, Workers.newJobId(), TestFake.flags(), env)) {
            Workers.Worker worker = workers.start(0, NcclMachineWorker.class);
            String line = worker.await("MACHINE ", Duration.ofSeconds(60));
            assertEquals("MACHINE ok", line, () -> String.join("\n", worker.lines()));
            assertEquals(0, worker.join(Duration.ofSeconds(20)));
        }
    }

    @Test
    void configurationIsKeptForCommunicatorsThatEndLater() {
        NcclConfig named = new NcclConfig().with(NcclConfig.Field.COMM_NAME, "kept");
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS.withNccl(named));
        NcclRanks.checkUsable(ranks);
        // The first one's memory is given back, but NCCL frees both when the second ends.
        ranks.get(0).close();
        assertNotEquals(0, TestFake.live("comms"));
        ranks.get(1).close();
    }
}
