package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.CudaException;
import io.jccl.bindings.CudaFatalException;
import io.jccl.bindings.NcclException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Errors of NCCL and CUDA: what they say, who learns of them, and what works afterwards. */
@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class NcclErrorTest {
    private static final ReduceOp SUM = ReduceOp.SUM;

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @AfterEach
    void reset() {
        NcclRanks.reset();
    }

    private static void names(@Nullable Throwable error, String... words) {
        String message = NcclRanks.text(error);
        for (String word : words) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
    }

    private static void allReduce(Communicator c, Stream stream) {
        try (Buffer b = c.device().allocate(DataType.INT32, 4)) {
            c.allReduce(b, SUM, stream);
            stream.synchronize(NcclRanks.PATIENCE);
        }
    }

    /** Rank 1 has failed with an error of NCCL; everyone is told, and nothing hangs. */
    private static void checkBroken(List<Communicator> ranks, NcclException first) {
        for (Communicator c : ranks) {
            Stream stream = c.device().defaultStream();
            JcclException wait =
                    assertThrows(
                            JcclException.class,
                            () -> {
                                // The others learn of it from the store, a moment later.
                                while (true) {
                                    stream.synchronize(NcclRanks.PATIENCE);
                                    Thread.onSpinWait();
                                }
                            });
            JcclException next = assertThrows(JcclException.class, () -> c.barrier(stream));
            assertSame(wait, next, "what an operation after the error throws");
            if (c.rank() == 1) {
                assertSame(first, next);
            } else {
                assertInstanceOf(RankFailedException.class, next);
                names(next, "rank 1", NcclException.name(first.result()));
            }
            JcclException split = assertThrows(JcclException.class, () -> c.split(0, 0));
            assertSame(next, split);
        }
        NcclRanks.close(ranks);
        NcclRanks.close(ranks);
        for (Communicator c : ranks) {
            // Its errors are over with the communicator.
            c.device().defaultStream().synchronize(NcclRanks.PATIENCE);
        }
    }

    private static Throwable ofRank1(List<@Nullable Throwable> errors) {
        return Objects.requireNonNull(errors.get(1), () -> "rank 1 had no error: " + errors);
    }

    @ParameterizedTest
    @CsvSource({
        "1, ncclUnhandledCudaError, jccl doctor",
        "2, ncclSystemError, shared memory",
        "3, ncclInternalError, NCCL_DEBUG=INFO",
        "5, ncclInvalidUsage, NCCL_DEBUG=INFO",
        "6, ncclRemoteError, another rank",
        "8, ncclTimeout, another rank",
        "77, UNKNOWN(77), NCCL 2."
    })
    void errorOfAnOperationIsExplainedAndReachesEveryRank(int code, String name, String advice) {
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        TestFake.inject("ncclAllReduce@1:1:error=" + code);
        Throwable t =
                ofRank1(NcclRanks.errors(ranks, c -> allReduce(c, c.device().defaultStream())));
        NcclException e = assertInstanceOf(NcclException.class, t);
        assertEquals(code, e.result());
        assertEquals("allReduce", e.operation());
        names(
                e,
                "allReduce on rank 1 of 3 of communicator 'local-",
                "cuda:1",
                name,
                "ncclAllReduce: injected error " + code,
                advice,
                "NCCL 2.30");
        checkBroken(ranks, e);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 5, 6, 8})
    void errorOfAGroupsEnd(int code) {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        Communicator c = ranks.get(1);
        Stream stream = c.device().defaultStream();
        try (Buffer b = c.device().allocate(DataType.INT32, 4)) {
            TestFake.inject("ncclGroupEnd:1:error=" + code);
            NcclException e =
                    assertThrows(
                            NcclException.class,
                            () ->
                                    Group.run(
                                            c,
                                            () -> {
                                                c.send(b.slice(0, 2), 0, stream);
                                                c.recv(b.slice(2, 2), 0, stream);
                                            }));
            assertEquals(code, e.result());
            names(e, "ncclGroupEnd on rank 1 of 2", "injected error " + code);
            checkBroken(ranks, e);
        }
        // No group is left open on this thread.
        List<Communicator> next = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(next);
        NcclRanks.close(next);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 5, 6, 8})
    void asynchronousErrorIsFoundByWhoeverWaits(int code) {
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        TestFake.inject("ncclAllReduce@1:1:async=" + code);
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            Stream stream = c.device().defaultStream();
                            allReduce(c, stream);
                            while (true) {
                                stream.synchronize(NcclRanks.PATIENCE);
                                Thread.onSpinWait();
                            }
                        });
        NcclException e = assertInstanceOf(NcclException.class, ofRank1(errors));
        assertEquals(code, e.result());
        names(e, "rank 1 of 3", "injected asynchronous error " + code);
        checkBroken(ranks, e);
    }

    @Test
    void errorWithinAGroupOfSeveralRanksNamesTheOneThatHadIt() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        TestFake.inject("ncclAllReduce@1:1:error=3");
        List<Buffer> memory =
                ranks.stream().map(c -> c.device().allocate(DataType.INT32, 4)).toList();
        NcclException e =
                assertThrows(
                        NcclException.class,
                        () ->
                                Group.run(
                                        ranks,
                                        () ->
                                                ranks.forEach(c ->
                                                        c.allReduce(
                                                                memory.get(c.rank()),
                                                                SUM,
                                                                c.device().defaultStream()))));
        names(e, "allReduce on rank 1 of 2", "ncclInternalError");
        checkBroken(ranks, e);
        memory.forEach(Buffer::close);
    }

    /** NCCL enqueues the part of the group that it was given, and the others wait for the rest. */
    @Test
    void withoutMemoryAmidAGroupAllAreTold() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        Communicator c = ranks.get(1);
        Stream stream = c.device().defaultStream();
        Stream others = ranks.get(0).device().defaultStream();
        try (Buffer b = c.device().allocate(DataType.INT32, 2)) {
            TestFake.inject("cudaMallocAsync:1:error=2");
            CudaException e =
                    assertThrows(
                            CudaException.class,
                            () ->
                                    Group.run(
                                            c,
                                            () -> {
                                                c.allReduce(b, SUM, stream);
                                                c.allToAll(b, b, stream);
                                            }));
            assertSame(e, assertThrows(JcclException.class, () -> c.barrier(stream)));
            RankFailedException told =
                    assertThrows(
                            RankFailedException.class,
                            () -> {
                                ranks.get(0).barrier(others);
                                others.synchronize(NcclRanks.PATIENCE);
                            });
            names(told, "rank 1: cudaMallocAsync failed");
        }
        NcclRanks.close(ranks);
    }

    /** Not only on the stream last used. */
    @Test
    void errorSurfacesOnEveryStreamUsed() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.each(
                ranks,
                c -> {
                    try (Stream one = c.device().newStream();
                            Stream two = c.device().newStream();
                            Stream unused = c.device().newStream()) {
                        allReduce(c, one);
                        allReduce(c, two);
                        if (c.rank() == 1) {
                            c.abort("on purpose");
                        }
                        for (Stream s : List.of(one, two)) {
                            assertThrows(
                                    RankFailedException.class,
                                    () -> {
                                        while (true) {
                                            s.synchronize(NcclRanks.PATIENCE);
                                            Thread.onSpinWait();
                                        }
                                    });
                        }
                        unused.synchronize(NcclRanks.PATIENCE);
                    }
                });
        NcclRanks.close(ranks);
    }

    @Test
    void failureOfOneCommunicatorLeavesAnotherAlone() {
        List<Communicator> bad = NcclRanks.open(2, NcclRanks.OPTIONS);
        List<Communicator> good = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.each(
                bad,
                c -> {
                    try (Stream own = c.device().newStream()) {
                        allReduce(c, own);
                    }
                });
        bad.getFirst().abort("on purpose");
        NcclRanks.checkUsable(good);
        NcclRanks.close(bad);
        NcclRanks.checkUsable(good);
        NcclRanks.close(good);
    }

    @Test
    void workInProgressIsAwaited() {
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        TestFake.inject("ncclAllReduce:*:late=60;ncclSend:*:late=40;ncclCommSplit:*:late=150");
        NcclRanks.checkUsable(ranks);
        NcclRanks.each(
                ranks,
                c -> {
                    int to = (c.rank() + 1) % 3;
                    int from = (c.rank() + 2) % 3;
                    Stream stream = c.device().defaultStream();
                    try (Buffer b = c.device().allocate(DataType.INT32, 2)) {
                        b.setLong(0, c.rank());
                        Group.run(
                                c,
                                () -> {
                                    c.send(b.slice(0, 1), to, stream);
                                    c.recv(b.slice(1, 1), from, stream);
                                });
                        stream.synchronize(NcclRanks.PATIENCE);
                        assertEquals(from, b.getLong(1));
                    }
                    try (Communicator half = c.split(0, -c.rank())) {
                        assertEquals(2 - c.rank(), Objects.requireNonNull(half).rank());
                        assertEquals(6, NcclRanks.sum(half, c.rank() + 1));
                    }
                });
        NcclRanks.close(ranks);
    }

    @Test
    void lateHandlesOfNewCommunicatorsAreAwaited() {
        TestFake.inject("ncclCommInitRankConfig:*:late=200");
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        NcclRanks.close(ranks);
    }

    @Test
    void errorThatIsNotStickyIsSaidToBeSo() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        Communicator c = ranks.get(1);
        Stream stream = c.device().defaultStream();
        try (Buffer b = c.device().allocate(DataType.INT32, 4)) {
            TestFake.inject("cudaStreamQuery:1+:error=1;ncclAllReduce@1:1:error=1");
            NcclException e = assertThrows(NcclException.class, () -> c.allReduce(b, SUM, stream));
            TestFake.reset();
            names(e, "ncclUnhandledCudaError");
            checkBroken(ranks, e);
        }
    }

    /** A lost context: CUDA says so from then on, whoever asks. */
    @Test
    void stickyErrorOfCudaIsFatalAndSaysThatTheProcessMustStartAnew() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(ranks);
        Communicator c = ranks.get(1);
        Stream stream = c.device().defaultStream();
        Buffer b = c.device().allocate(DataType.INT32, 4);
        TestFake.sticky(700);
        CudaFatalException e = assertThrows(CudaFatalException.class, () -> stream.synchronize());
        assertEquals(700, e.error());
        names(e, "cudaErrorIllegalAddress", "restart it");
        assertThrows(CudaFatalException.class, () -> c.device().allocate(DataType.INT8, 1));
        JcclException next =
                assertThrows(
                        JcclException.class,
                        () -> {
                            // NCCL is told at the latest when the work runs.
                            while (true) {
                                c.allReduce(b, SUM, stream);
                                Thread.sleep(1);
                            }
                        });
        names(next, "cudaErrorIllegalAddress");
        assertTrue(
                NcclRanks.text(next).contains("restart it")
                        || NcclRanks.text(next).contains("cannot use CUDA any more"),
                next::toString);
        NcclRanks.close(ranks);
        TestFake.reset();
        b.close();
    }

    @Test
    void errorOfCudaInAnInPlaceAllToAllNamesTheCall() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        Communicator c = ranks.getFirst();
        long before = TestFake.live("allocations");
        try (Buffer b = c.device().allocate(DataType.INT32, 4)) {
            TestFake.inject("cudaMallocAsync:1:error=2");
            names(
                    assertThrows(
                            CudaException.class, () -> c.allToAll(b, c.device().defaultStream())),
                    "cudaMallocAsync",
                    "cudaErrorMemoryAllocation");
            TestFake.inject("cudaMallocAsync:1:error=2");
            assertThrows(
                    CudaException.class,
                    () -> Group.run(c, () -> c.allToAll(b, c.device().defaultStream())));
            TestFake.inject("ncclAlltoAll:1:error=4");
            assertThrows(NcclException.class, () -> c.allToAll(b, c.device().defaultStream()));
        }
        c.device().defaultStream().synchronize();
        assertEquals(before, TestFake.live("allocations"), "allocations");
        NcclRanks.checkUsable(ranks);
        NcclRanks.close(ranks);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "ncclGetUniqueId:1",
                "ncclGroupStart:1",
                "ncclCommInitRankConfig:2",
                "ncclGroupEnd:1",
                "cudaMalloc:2",
                "cudaEventCreateWithFlags:2",
                "cudaGetDevice:8",
                "cudaSetDevice:7"
            })
    void errorWhileCommunicatorsAreMadeLeavesNothing(String where) {
        NcclRanks.close(NcclRanks.open(3, NcclRanks.OPTIONS));
        long before = NcclRanks.live();
        TestFake.inject(where + ":error=3");
        JcclException e =
                assertThrows(JcclException.class, () -> NcclRanks.open(3, NcclRanks.OPTIONS));
        String function = where.substring(0, where.indexOf(':'));
        // What NCCL itself asks of CUDA fails in NCCL's name; whose call it is, is a matter of
        // count.
        if (!NcclRanks.text(e).contains("ncclCommInitRank")) {
            names(e, function.replace("Config", ""));
        }
        TestFake.reset();
        assertEquals(before, NcclRanks.live(), "live objects");
        // And no group on this thread.
        List<Communicator> next = NcclRanks.open(3, NcclRanks.OPTIONS);
        NcclRanks.checkUsable(next);
        NcclRanks.close(next);
    }

    @Test
    void abortSaysWhoAndWhy() {
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            if (c.rank() == 2) {
                                c.abort("the disk is full");
                                c.barrier(c.device().defaultStream());
                            } else {
                                allReduce(c, c.device().defaultStream());
                            }
                        });
        for (Throwable t : errors) {
            assertInstanceOf(RankFailedException.class, t);
            names(t, "rank 2", "the disk is full");
        }
        NcclRanks.close(ranks);
        ranks.getFirst().abort("after the end, which does nothing");
    }

    @Test
    void anErrorIsThatOfTheFirstRankEvenIfAnotherFailsLater() {
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        ranks.get(2).abort("first");
        String message =
                Messages.of(
                        RankFailedException.class,
                        () -> {
                            while (true) {
                                allReduce(
                                        ranks.getFirst(),
                                        ranks.getFirst().device().defaultStream());
                            }
                        });
        assertTrue(message.contains("rank 2"), message);
        ranks.get(1).abort("second");
        assertNull(NcclRanks.errors(List.of(1), i -> NcclRanks.close(ranks)).getFirst());
    }
}
