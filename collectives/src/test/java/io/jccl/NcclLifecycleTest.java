package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.NcclConfig;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.engine.Descendants;
import io.jccl.error.JcclException;
import io.jccl.rendezvous.Store;
import io.jccl.testfake.FakeBuild;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Communicators from their making to their end, and that nothing of them is left. */
@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class NcclLifecycleTest {
    private static final int PAGE = 4096;

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @AfterEach
    void reset() {
        NcclRanks.reset();
    }

    private interface World {
        void use(List<Communicator> ranks) throws Exception;
    }

    /** Runs with new communicators, and checks that all of it is given back. */
    private static void in(int size, World world) throws Exception {
        long before = NcclRanks.live();
        List<Communicator> ranks = NcclRanks.open(size, NcclRanks.OPTIONS);
        world.use(ranks);
        NcclRanks.close(ranks);
        assertEquals(before, NcclRanks.live(), NcclLifecycleTest::whatLives);
    }

    private static String whatLives() {
        StringBuilder text = new StringBuilder("live objects:");
        for (String kind :
                List.of(
                        "streams",
                        "events",
                        "allocations",
                        "comms",
                        "registrations",
                        "windows",
                        "redops",
                        "pools",
                        "graphs",
                        "host")) {
            text.append(' ').append(kind).append(' ').append(TestFake.live(kind));
        }
        return text.toString();
    }

    @Test
    void openedAndClosedAgainAndAgain() throws Exception {
        for (int i = 0; i < 10; i++) {
            in(4, NcclRanks::checkUsable);
        }
    }

    @Test
    void closedWithoutUse() throws Exception {
        in(3, ranks -> {});
        in(1, ranks -> {});
    }

    @Test
    void closedTwiceAndFromAnotherThread() throws Exception {
        in(
                2,
                ranks -> {
                    NcclRanks.checkUsable(ranks);
                    List<Communicator> twice = new ArrayList<>(ranks);
                    twice.addAll(ranks);
                    NcclRanks.each(twice, Communicator::close);
                    String message =
                            Messages.of(
                                    IllegalStateException.class,
                                    () ->
                                            ranks.getFirst()
                                                    .barrier(
                                                            ranks.getFirst()
                                                                    .device()
                                                                    .defaultStream()));
                    assertTrue(message.contains("is closed on rank 0"), message);
                });
    }

    // ---- split

    @Test
    void closedOnAVirtualThread() throws Exception {
        in(
                2,
                ranks -> {
                    List<Throwable> errors = new ArrayList<>();
                    Thread.ofVirtual()
                            .start(() -> {
                                try {
                                    ranks.forEach(Communicator::close);
                                } catch (Throwable t) {
                                    errors.add(t);
                                }
                            })
                            .join();
                    assertEquals(List.of(), errors);
                    assertThrows(IllegalStateException.class, () -> ranks.getLast().split(0, 0));
                });
    }

    /** A launch keeps its graph while it waits for room in the stream, but not NCCL's abort. */
    @Test
    void anAbortDoesNotWaitForTheLaunchOfAGraph() throws Exception {
        in(
                1,
                ranks -> {
                    Communicator c = ranks.getFirst();
                    try (Stream stream = c.device().newStream();
                            Buffer b = c.device().allocate(DataType.INT32, 1)) {
                        Graph graph =
                                Graph.capture(stream, () -> c.allReduce(b, ReduceOp.SUM, stream));
                        TestFake.inject("cudaGraphLaunch:1:hang");
                        long launches = TestFake.calls("cudaGraphLaunch");
                        long aborts = TestFake.calls("ncclCommAbort");
                        Thread launching = Thread.ofPlatform().start(() -> graph.launch(stream));
                        awaitMore("cudaGraphLaunch", launches);
                        c.abort("on purpose");
                        awaitMore("ncclCommAbort", aborts);
                        TestFake.reset();
                        launching.join();
                        c.close();
                        assertThrows(IllegalStateException.class, () -> graph.launch(stream));
                    }
                });
    }

    private static void awaitMore(String function, long calls) throws InterruptedException {
        long deadline = System.nanoTime() + NcclRanks.PATIENCE.toNanos();
        while (TestFake.calls(function) == calls) {
            assertTrue(System.nanoTime() < deadline, function + " is not called");
            Thread.sleep(1);
        }
    }

    @Test
    void splitByColourAndKey() throws Exception {
        in(
                4,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    int colour = c.rank() == 3 ? -1 : c.rank() % 2;
                                    Communicator part = c.split(colour, -c.rank());
                                    if (colour < 0) {
                                        assertNull(part);
                                        return;
                                    }
                                    try (Communicator p = Objects.requireNonNull(part)) {
                                        assertEquals(colour == 0 ? 2 : 1, p.size());
                                        assertEquals(c.rank() == 0 ? 1 : 0, p.rank());
                                        assertEquals(
                                                colour == 0 ? 2 : 1, NcclRanks.sum(p, c.rank()));
                                    }
                                }));
    }

    @Test
    void partOutlivesItsWholeAndFailsAlone() throws Exception {
        in(
                2,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    try (Communicator part = Objects.requireNonNull(c.split(0, 0));
                                            Communicator other =
                                                    Objects.requireNonNull(c.split(0, 0))) {
                                        other.abort("on purpose");
                                        assertEquals(1, NcclRanks.sum(c, c.rank()));
                                        c.close();
                                        assertEquals(1, NcclRanks.sum(part, c.rank()));
                                    }
                                }));
    }

    // ---- shrink, grow, revoke

    @Test
    void shrinkLeavesRanksOut() throws Exception {
        in(
                4,
                ranks ->
                        NcclRanks.each(
                                ranks.subList(1, 4),
                                c -> {
                                    // Named twice it is left out once.
                                    try (NcclCommunicator less =
                                            NcclRanks.nccl(c).shrink(List.of(0, 0), false)) {
                                        assertEquals(3, less.size());
                                        assertEquals(c.rank() - 1, less.rank());
                                        assertEquals(6, NcclRanks.sum(less, c.rank()));
                                    }
                                }));
    }

    @Test
    void shrinkWithoutAnyRankKeepsAll() throws Exception {
        in(
                2,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    try (NcclCommunicator all =
                                            NcclRanks.nccl(c).shrink(List.of(), false)) {
                                        assertEquals(c.rank(), all.rank());
                                        assertEquals(1, NcclRanks.sum(all, c.rank()));
                                        assertEquals(List.of(all), Descendants.of(c));
                                    }
                                }));
    }

    /** Ranks that are left out do not count the call: what is made later has one name for all. */
    @Test
    void whatIsMadeAfterAShrinkReportsFailuresToAll() throws Exception {
        in(
                3,
                ranks -> {
                    NcclRanks.each(ranks.subList(0, 2), c -> c.shrink(List.of(2), false).close());
                    List<Communicator> pair = Collections.synchronizedList(new ArrayList<>());
                    NcclRanks.each(ranks.subList(1, 3), c -> pair.add(c.shrink(List.of(0), false)));
                    List<Communicator> all = Collections.synchronizedList(new ArrayList<>());
                    NcclRanks.each(ranks, c -> all.add(Objects.requireNonNull(c.split(0, 0))));
                    for (List<Communicator> made : List.of(pair, all)) {
                        made.getFirst().abort("on purpose");
                        NcclRanks.each(
                                made,
                                c -> {
                                    String message =
                                            Messages.of(
                                                    RankFailedException.class,
                                                    () -> {
                                                        c.barrier(c.device().defaultStream());
                                                        c.device()
                                                                .defaultStream()
                                                                .synchronize(NcclRanks.PATIENCE);
                                                    });
                                    assertTrue(message.contains("on purpose"), message);
                                });
                        NcclRanks.close(made);
                    }
                });
    }

    /** A rank hangs; the others give up the operation that waits for it, and go on without. */
    @Test
    void shrinkWithAbortEndsWhatWaitsForALostRank() throws Exception {
        in(
                3,
                ranks -> {
                    List<NcclCommunicator> rest = Collections.synchronizedList(new ArrayList<>());
                    List<Communicator> left = ranks.subList(0, 2);
                    // On both before either aborts, after which a barrier would throw.
                    NcclRanks.each(left, c -> c.barrier(c.device().defaultStream()));
                    NcclRanks.each(
                            left,
                            c -> {
                                NcclCommunicator less = NcclRanks.nccl(c).shrink(List.of(2), true);
                                rest.add(less);
                                assertEquals(2, less.size());
                                assertEquals(List.of(less), Descendants.of(c));
                            });
                    NcclRanks.each(rest, c -> assertEquals(1, NcclRanks.sum(c, c.rank())));
                    NcclRanks.each(rest, Communicator::close);
                    ranks.forEach(c -> c.abort("a rank was lost"));
                });
    }

    @Test
    void shrinkOfAFailedCommunicatorThrowsItsErrorUnlessItAborts() throws Exception {
        in(
                3,
                ranks -> {
                    ranks.getFirst().abort("on purpose");
                    NcclRanks.each(
                            ranks.subList(1, 3),
                            c -> {
                                NcclCommunicator n = NcclRanks.nccl(c);
                                // The watchdog may have seen the abort before the barrier.
                                Messages.of(
                                        RankFailedException.class,
                                        () -> {
                                            c.barrier(c.device().defaultStream());
                                            c.device().defaultStream().synchronize();
                                        });
                                String message =
                                        Messages.of(
                                                RankFailedException.class,
                                                () -> n.shrink(List.of(0), false));
                                assertTrue(message.contains("on purpose"), message);
                                try (NcclCommunicator less = n.shrink(List.of(0), true)) {
                                    c.close();
                                    assertEquals(2, less.size());
                                    assertEquals(c.rank() - 1, less.rank());
                                    assertEquals(3, NcclRanks.sum(less, c.rank()));
                                }
                                Messages.of(
                                        IllegalStateException.class,
                                        () -> n.shrink(List.of(0), true));
                            });
                });
    }

    @Test
    void ranksThatLeaveOutDifferentOnesAreTold() throws Exception {
        in(
                4,
                ranks -> {
                    NcclRanks.each(
                            List.of(0, 2),
                            r -> {
                                NcclCommunicator n = NcclRanks.nccl(ranks.get(r));
                                List<Integer> wrong = r == 0 ? List.of(1, 3) : List.of(3, 1);
                                List<Integer> other = r == 0 ? wrong : List.of(3, 0);
                                String message =
                                        Messages.of(
                                                JcclException.class, () -> n.shrink(other, true));
                                assertTrue(message.contains("ranks to leave out"), message);
                                assertTrue(message.contains("[1, 3]"), message);
                                assertTrue(message.contains("[0, 3]"), message);
                                // What was left of that is in nobody's way.
                                try (NcclCommunicator less = n.shrink(wrong, true)) {
                                    assertEquals(2, NcclRanks.sum(less, r));
                                }
                            });
                    ranks.forEach(c -> c.abort("ranks were left out"));
                });
    }

    @Test
    void growTakesNewRanksIn() {
        Store store = Store.inMemory();
        long before = NcclRanks.live();
        NcclRanks.each(
                List.of(0, 1, 2),
                r -> {
                    if (r == 2) {
                        try (NcclCommunicator c =
                                NcclCommunicator.joinGrown(
                                        store,
                                        "more",
                                        2,
                                        3,
                                        TestFake.device(2),
                                        NcclRanks.OPTIONS)) {
                            assertEquals(3, NcclRanks.sum(c, 2));
                        }
                        return;
                    }
                    try (Communicator c =
                                    Communicator.join(
                                            store,
                                            "few",
                                            r,
                                            2,
                                            TestFake.device(r),
                                            NcclRanks.OPTIONS);
                            NcclCommunicator more = NcclRanks.nccl(c).grow("more", 3)) {
                        assertEquals(r, more.rank());
                        assertEquals(3, more.size());
                        assertEquals(3, NcclRanks.sum(more, r));
                        for (String used : List.of("few", "more")) {
                            String message =
                                    Messages.of(
                                            IllegalArgumentException.class,
                                            () -> NcclRanks.nccl(c).grow(used, 3));
                            assertTrue(message.contains("name is '" + used + "'"), message);
                        }
                    }
                });
        assertEquals(before, NcclRanks.live(), NcclLifecycleTest::whatLives);
    }

    /** Processes of another run, for example, that was given the same store. */
    @Test
    void strangersInTheStoreFailAlone() {
        Store store = Store.inMemory();
        List<Communicator> ranks = Collections.synchronizedList(new ArrayList<>());
        NcclRanks.each(
                List.of(0, 1),
                r ->
                        ranks.add(
                                Communicator.join(
                                        store,
                                        "ours",
                                        r,
                                        2,
                                        TestFake.device(r),
                                        NcclRanks.OPTIONS)));
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        List.of(2, 1),
                        r ->
                                Communicator.join(
                                        store,
                                        "ours",
                                        r,
                                        r + 1,
                                        TestFake.device(r),
                                        NcclRanks.OPTIONS));
        String other = NcclRanks.text(errors.get(0));
        assertTrue(other.contains("complete without rank 2 of 3"), other);
        String twice = NcclRanks.text(errors.get(1));
        assertTrue(twice.contains("two processes claim rank 1"), twice);
        TestFake.inject("cudaMalloc@2:1:error=2");
        Messages.of(
                JcclException.class,
                () ->
                        Communicator.join(
                                store, "ours", 2, 3, TestFake.device(2), NcclRanks.OPTIONS));
        assertNull(store.get("ours/failed"), "what the watchdogs of all ranks look for");
        NcclRanks.checkUsable(ranks);
        NcclRanks.close(ranks);
    }

    /** All others learn of a mistaken size before anything is allocated for that many ranks. */
    @Test
    void anAbsurdNumberOfRanksIsToldToAll() {
        Store store = Store.inMemory();
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        List.of(0, 1),
                        r ->
                                Communicator.join(
                                        store,
                                        "world",
                                        r,
                                        r == 0 ? 2 : Integer.MAX_VALUE,
                                        TestFake.device(r),
                                        NcclRanks.OPTIONS));
        for (Throwable t : errors) {
            String message = NcclRanks.text(t);
            assertTrue(message.contains("rank 1 " + Integer.MAX_VALUE), message);
        }
    }

    /** There is no handshake: nobody knows whether the others have come. */
    @Test
    void growingThatTakesTooLongNamesItsCauses() {
        Store store = Store.inMemory();
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        List.of(0, 1),
                        r -> {
                            Device device = TestFake.device(r);
                            if (r == 1) {
                                store.await("more/id", NcclRanks.PATIENCE);
                                CommunicatorOptions soon =
                                        NcclRanks.OPTIONS.withTimeout(Duration.ofMillis(500));
                                NcclCommunicator.joinGrown(store, "more", 1, 3, device, soon);
                            }
                            try (Communicator c =
                                    Communicator.join(
                                            store, "few", 0, 1, device, NcclRanks.OPTIONS)) {
                                NcclRanks.nccl(c).grow("more", 3);
                            }
                        });
        String message = NcclRanks.text(errors.get(1));
        assertTrue(message.contains("ncclCommGrow on rank 1 of 3"), message);
        assertTrue(message.contains("another rank has not called grow or joinGrown"), message);
    }

    @Test
    void revokeEndsWorkAndAllowsToSplit() throws Exception {
        long aborts = TestFake.calls("ncclCommAbort");
        in(
                3,
                ranks -> {
                    NcclRanks.each(ranks.subList(0, 2), c -> c.barrier(c.device().defaultStream()));
                    NcclRanks.each(ranks, c -> NcclRanks.nccl(c).revoke());
                    NcclRanks.each(
                            ranks,
                            c -> {
                                Stream stream = c.device().defaultStream();
                                stream.synchronize(NcclRanks.PATIENCE);
                                for (Executable mistake :
                                        List.<Executable>of(
                                                () -> c.barrier(stream),
                                                () -> NcclRanks.nccl(c).revoke())) {
                                    String message =
                                            Messages.of(IllegalStateException.class, mistake);
                                    assertTrue(message.contains("was revoked"), message);
                                }
                                try (NcclCommunicator part =
                                        (NcclCommunicator) Objects.requireNonNull(c.split(0, 0))) {
                                    assertEquals(3, NcclRanks.sum(part, c.rank()));
                                }
                            });
                });
        assertEquals(aborts, TestFake.calls("ncclCommAbort"), "closing one is no failure");
    }

    // ---- suspend, memory, registration

    @Test
    void suspendedAndResumed() throws Exception {
        in(
                2,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    NcclCommunicator n = NcclRanks.nccl(c);
                                    NcclRanks.sum(c, 1);
                                    long total = n.memory(NcclCommunicator.MemoryStatistic.TOTAL);
                                    assertTrue(total > 0);
                                    assertEquals(
                                            0,
                                            n.memory(NcclCommunicator.MemoryStatistic.SUSPENDED));
                                    n.suspend();
                                    assertEquals(
                                            1,
                                            n.memory(NcclCommunicator.MemoryStatistic.SUSPENDED));
                                    // With NCCL, its kernel would end CUDA in this process.
                                    Stream stream = c.device().defaultStream();
                                    List<Runnable> calls =
                                            List.of(
                                                    () -> NcclRanks.sum(c, 1),
                                                    () -> Group.run(c, () -> c.barrier(stream)),
                                                    () -> n.signal(1 - c.rank(), stream),
                                                    () -> c.split(0, 0),
                                                    n::suspend);
                                    for (Runnable call : calls) {
                                        String text =
                                                Messages.of(IllegalStateException.class, call::run);
                                        assertTrue(text.contains("suspended"), text);
                                    }
                                    n.resume();
                                    String text =
                                            Messages.of(IllegalStateException.class, n::resume);
                                    assertTrue(text.contains("not suspended"), text);
                                    assertEquals(
                                            0,
                                            n.memory(NcclCommunicator.MemoryStatistic.SUSPENDED));
                                    assertEquals(2, NcclRanks.sum(c, 1));
                                }));
    }

    @Test
    void registrationsAndWindowsEndWithTheirOwnCloseOrTheCommunicators() throws Exception {
        in(
                2,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    NcclCommunicator n = NcclRanks.nccl(c);
                                    try (Buffer b =
                                            Cuda.allocateForNccl(
                                                    c.device(), DataType.UINT8, PAGE)) {
                                        NcclCommunicator.Registration one = n.register(b);
                                        NcclCommunicator.Window two = n.window(b, true);
                                        one.close();
                                        one.close();
                                        two.close();
                                        NcclCommunicator.Registration left = n.register(b);
                                        c.close();
                                        left.close();
                                    }
                                }));
    }

    @Test
    void putSignalReachesThePeersWindow() throws Exception {
        in(
                2,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    NcclCommunicator n = NcclRanks.nccl(c);
                                    Stream stream = c.device().defaultStream();
                                    int peer = 1 - c.rank();
                                    try (Buffer b =
                                                    Cuda.allocateForNccl(
                                                            c.device(), DataType.INT32, PAGE / 4);
                                            NcclCommunicator.Window w = n.window(b, true)) {
                                        Buffer mine = b.slice(8, 2);
                                        mine.setLong(0, 10 + c.rank());
                                        mine.setLong(1, 20 + c.rank());
                                        n.putSignal(mine, peer, w, 8, stream);
                                        n.waitSignal(peer, 1, stream);
                                        n.signal(peer, stream);
                                        n.waitSignal(peer, 1, stream);
                                        stream.synchronize(NcclRanks.PATIENCE);
                                        assertEquals(10 + peer, b.getLong(2));
                                        assertEquals(20 + peer, b.getLong(3));
                                    }
                                }));
    }

    /** The first call of each rank is one to itself, so a rank that nobody signals takes part. */
    @Test
    void signalsBetweenSomeRanksAfterEachHasSignalledItself() throws Exception {
        in(
                3,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    NcclCommunicator n = NcclRanks.nccl(c);
                                    Stream stream = c.device().defaultStream();
                                    n.signal(c.rank(), stream);
                                    n.waitSignal(c.rank(), 1, stream);
                                    if (c.rank() == 0) {
                                        n.signal(1, stream);
                                    } else if (c.rank() == 1) {
                                        n.waitSignal(0, 1, stream);
                                    }
                                    stream.synchronize(NcclRanks.PATIENCE);
                                }));
    }

    /** NCCL waits for all ranks in it, on the caller's thread; an abort ends the wait. */
    @Tag("exhaustive")
    @Test
    void firstSignalThatNotAllRanksMakeEndsWithAnAbort() {
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        long before = TestFake.calls("ncclSignal");
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            Stream stream = c.device().defaultStream();
                            if (c.rank() == 0) {
                                NcclRanks.nccl(c).signal(1, stream);
                            } else if (c.rank() == 1) {
                                while (TestFake.calls("ncclSignal") == before) {
                                    Thread.sleep(1);
                                }
                                c.abort("rank 2 never signals");
                            }
                        });
        assertInstanceOf(JcclException.class, errors.get(0));
        NcclRanks.close(ranks);
    }

    // ---- reductions made for a factor

    @Test
    void changingFactorsAndTypesLeaveNothing() throws Exception {
        in(
                2,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    Stream stream = c.device().defaultStream();
                                    for (int i = 0; i < 50; i++) {
                                        DataType type =
                                                i % 3 == 0 ? DataType.FLOAT32 : DataType.FLOAT64;
                                        try (Buffer b = c.device().allocate(type, 3)) {
                                            b.set(0, 2);
                                            c.allReduce(
                                                    b,
                                                    ReduceOp.preMulSum((double) (1 + i % 7)),
                                                    stream);
                                            stream.synchronize(NcclRanks.PATIENCE);
                                            assertEquals(4 * (1 + i % 7), b.get(0));
                                        }
                                        assertTrue(TestFake.live("redops") <= 2);
                                    }
                                }));
    }

    @Test
    void differentFactorsInOneGroup() throws Exception {
        in(
                2,
                ranks ->
                        NcclRanks.each(
                                ranks,
                                c -> {
                                    Stream stream = c.device().defaultStream();
                                    try (Buffer b = c.device().allocate(DataType.FLOAT32, 3)) {
                                        for (int i = 0; i < 3; i++) {
                                            b.set(i, 1);
                                        }
                                        Group.run(
                                                c,
                                                () -> {
                                                    for (int i = 0; i < 3; i++) {
                                                        c.allReduce(
                                                                b.slice(i, 1),
                                                                ReduceOp.preMulSum(
                                                                        (double) (i + 1)),
                                                                stream);
                                                    }
                                                });
                                        stream.synchronize(NcclRanks.PATIENCE);
                                        for (int i = 0; i < 3; i++) {
                                            assertEquals(2 * (i + 1), b.get(i));
                                        }
                                    }
                                }));
    }

    // ---- after failures

    @Test
    void nothingIsLeftAfterFailures() throws Exception {
        in(
                3,
                ranks -> {
                    TestFake.inject("ncclAllReduce@1:2:error=3;ncclCommSplit@2:1:error=2");
                    List<@Nullable Throwable> errors =
                            NcclRanks.errors(
                                    ranks,
                                    c -> {
                                        Stream stream = c.device().defaultStream();
                                        Buffer nccl =
                                                Cuda.allocateForNccl(
                                                        c.device(), DataType.FLOAT32, 1024);
                                        try (nccl;
                                                Buffer b =
                                                        c.device().allocate(DataType.FLOAT32, 3)) {
                                            NcclRanks.nccl(c).register(nccl);
                                            c.allReduce(b, ReduceOp.preMulSum(3.0), stream);
                                            c.allToAll(b, stream);
                                            c.allReduce(b, ReduceOp.preMulSum(2.0), stream);
                                            stream.synchronize(NcclRanks.PATIENCE);
                                        }
                                    });
                    assertInstanceOf(JcclException.class, errors.get(1));
                });
    }

    @Test
    void nothingIsLeftOfASplitThatFails() throws Exception {
        in(
                2,
                ranks -> {
                    TestFake.inject("ncclCommSplit@1:1:error=2");
                    List<@Nullable Throwable> errors = NcclRanks.errors(ranks, c -> c.split(0, 0));
                    for (Throwable t : errors) {
                        assertInstanceOf(JcclException.class, t);
                    }
                });
    }

    // ---- settings

    @Test
    void settingsReachNccl() {
        NcclConfig config =
                new NcclConfig()
                        .with(NcclConfig.Field.MAX_CTAS, 8)
                        .with(NcclConfig.Field.COMM_NAME, "train");
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS.withNccl(config));
        NcclRanks.checkUsable(ranks);
        assertTrue(NcclRanks.nccl(ranks.getFirst()).config().has(NcclConfig.Field.MAX_CTAS));
        NcclRanks.close(ranks);
        // NCCL refuses what it cannot do, which proves that it was told.
        NcclConfig bad =
                new NcclConfig()
                        .with(NcclConfig.Field.MIN_CTAS, 9)
                        .with(NcclConfig.Field.MAX_CTAS, 8);
        long before = NcclRanks.live();
        String message =
                Messages.of(
                        JcclException.class,
                        () -> NcclRanks.open(2, NcclRanks.OPTIONS.withNccl(bad)));
        assertTrue(message.contains("CTAs"), message);
        assertEquals(before, NcclRanks.live(), NcclLifecycleTest::whatLives);
    }

    @Test
    void timeoutOfZeroIsRefused() {
        assertThrows(
                IllegalArgumentException.class, () -> NcclRanks.OPTIONS.withTimeout(Duration.ZERO));
    }

    // ---- old NCCL

    @Tag("exhaustive")
    @Test
    @Timeout(value = 6, unit = TimeUnit.MINUTES) // others' fakes may be built before these
    void oldNcclFallsBackOrRefusesWithBothVersions() {
        String folder = FakeBuild.old().toString();
        List<String> flags =
                List.of(
                        "-Djccl.nccl=" + folder + "/libnccl.so.2",
                        "-Djccl.cudart=" + folder + "/libcudart.so.13");
        try (Workers workers = new Workers(1, Workers.newJobId(), flags, Map.of())) {
            Workers.Worker worker = workers.start(0, OldNcclWorker.class);
            String line = worker.await("OLD ", Duration.ofSeconds(50));
            assertEquals("OLD ok", line, () -> String.join("\n", worker.lines()));
            assertEquals(0, worker.join(Duration.ofSeconds(20)));
        }
    }
}
