package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaStream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.rendezvous.Store;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks and native calls that hang, come late or never come: nobody waits for ever. */
@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class NcclTimeoutTest {
    private static final CommunicatorOptions SHORT = NcclRanks.SHORT;
    private static final String SOON = NcclRanks.SOON.toString();

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

    private static void allReduce(Communicator c, long count) {
        Stream stream = c.device().defaultStream();
        try (Buffer b = c.device().allocate(DataType.INT32, count)) {
            c.allReduce(b, ReduceOp.SUM, stream);
            stream.synchronize(NcclRanks.PATIENCE);
        }
    }

    private static void closeAndCheck(List<Communicator> ranks) {
        NcclRanks.close(ranks);
        // The streams are free of what was aborted.
        for (Communicator c : ranks) {
            c.device().defaultStream().synchronize(NcclRanks.PATIENCE);
        }
    }

    // ---- operations

    /** NCCL's end would not wait for it, nor an abort end it: nor would the JVM then. */
    @Test
    void noOperationBeginsOnceAnotherThreadCloses() throws InterruptedException {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        NcclRanks.each(ranks, c -> allReduce(c, 1));
        Communicator first = ranks.getFirst();
        Communicator second = ranks.getLast();
        Stream stream = first.device().defaultStream();
        first.barrier(stream);
        Thread closes = Thread.ofPlatform().start(first::close);
        String at;
        do {
            Thread.sleep(1);
            at = Arrays.toString(closes.getStackTrace());
        } while (closes.isAlive() && !at.contains("settle") && !at.contains("awaitEnd"));
        assertThrows(IllegalStateException.class, () -> first.barrier(stream));
        second.barrier(second.device().defaultStream());
        closeAndCheck(ranks);
        closes.join();
    }

    @Test
    void stalledOperationIsReportedWithWhatEachRankCompleted() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        NcclRanks.each(ranks, c -> allReduce(c, 1));
        TestFake.inject("ncclAllReduce@1:1:stall");
        List<@Nullable Throwable> errors = NcclRanks.errors(ranks, c -> allReduce(c, 7));
        int reports = 0;
        for (Throwable t : errors) {
            if (t instanceof CollectiveTimeoutException) {
                reports++;
                names(
                        t,
                        "of communicator 'local-",
                        "allReduce(int32, count 7, sum), number 2",
                        "longer than " + SOON);
                for (int r = 0; r < 3; r++) {
                    // It depends on when the watchdog looked.
                    String line = "rank " + r + " has completed (1|at least 0) operations of 2;";
                    assertTrue(NcclRanks.text(t).matches("(?s).*" + line + ".*"), t::toString);
                }
            } else {
                assertInstanceOf(RankFailedException.class, t);
                names(t, "allReduce(int32, count 7, sum), number 2");
            }
        }
        assertTrue(reports > 0, errors::toString);
        closeAndCheck(ranks);
    }

    @Test
    void rankThatEnqueuesNothingIsSeenInTheReport() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        NcclRanks.each(ranks, c -> allReduce(c, 1));
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            if (c.rank() != 2) {
                                allReduce(c, 5);
                            }
                        });
        Throwable report =
                errors.stream()
                        .filter(CollectiveTimeoutException.class::isInstance)
                        .findFirst()
                        .orElseThrow(() -> new AssertionError(errors));
        names(
                report,
                "number 2",
                "rank 2 has completed all 1 operations that it has enqueued",
                "look first at the ranks that are behind");
        closeAndCheck(ranks);
    }

    /** A thread's wait for a stream says nothing about what another has enqueued since. */
    @Test
    void operationThatIsEnqueuedAfterAnotherThreadsWaitIsWatched() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        Communicator alone = ranks.get(0);
        Stream stream = alone.device().defaultStream();
        try (Buffer b = alone.device().allocate(DataType.INT32, 7)) {
            alone.allReduce(b, ReduceOp.SUM, stream);
            ((CudaStream.Source) alone).synchronizedWith((CudaStream) stream);
            Throwable t =
                    assertThrows(
                            CollectiveTimeoutException.class,
                            () -> stream.synchronize(NcclRanks.PATIENCE));
            names(t, "number 1", "rank 1 has completed all 0 operations");
        }
        closeAndCheck(ranks);
    }

    /** The watchdog looks while NCCL has not enqueued yet: its mark must not come first. */
    @Test
    void operationThatIsSlowToEnqueueIsWatchedAllTheSame() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        TestFake.inject("ncclAllReduce@0:1:delay=300");
        Communicator alone = ranks.get(0);
        Throwable t = assertThrows(CollectiveTimeoutException.class, () -> allReduce(alone, 7));
        names(t, "number 1", "rank 1 has completed all 0 operations");
        closeAndCheck(ranks);
    }

    /** One mark covers what was enqueued between two looks: the report does not claim more. */
    @Test
    void reportNamesAllOperationsThatItMayBeAbout() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        TestFake.inject("ncclAllReduce@1:3+:stall");
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            Stream stream = c.device().defaultStream();
                            Buffer b = c.device().allocate(DataType.INT32, 5);
                            for (int i = 1; i <= 5; i++) {
                                c.allReduce(b.slice(0, i), ReduceOp.SUM, stream);
                            }
                            stream.synchronize(NcclRanks.PATIENCE);
                        });
        for (Throwable t : errors) {
            String text = NcclRanks.text(t);
            // The third hangs; a look may have come before the fourth or fifth was enqueued.
            assertTrue(
                    text.matches(
                                    "(?s).*one of \\d operations, from .*number \\d, to .*number [345].*")
                            || text.matches("(?s).*count ([345]), sum\\), number \\1.*"),
                    text);
        }
        closeAndCheck(ranks);
    }

    @Test
    void signalThatNeverComesIsReported() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            Stream stream = c.device().defaultStream();
                            NcclRanks.nccl(c).waitSignal(1 - c.rank(), 1, stream);
                            stream.synchronize(NcclRanks.PATIENCE);
                        });
        for (Throwable t : errors) {
            assertInstanceOf(JcclException.class, t);
            names(t, "waitSignal(peer ", "number 1");
        }
        closeAndCheck(ranks);
    }

    @Test
    void waitOfAStreamHasATimeoutOfItsOwn() {
        List<Communicator> ranks = NcclRanks.open(2, NcclRanks.OPTIONS);
        Communicator c = ranks.getFirst();
        Stream stream = c.device().defaultStream();
        c.barrier(stream);
        Throwable t =
                NcclRanks.errors(List.of(c), x -> stream.synchronize(Duration.ofMillis(50)))
                        .getFirst();
        assertInstanceOf(JcclTimeoutException.class, t);
        names(t, "cuda:0", "PT0.05S");
        ranks.get(1).barrier(ranks.get(1).device().defaultStream());
        stream.synchronize(NcclRanks.PATIENCE);
        NcclRanks.checkUsable(ranks);
        closeAndCheck(ranks);
    }

    @Test
    void abortFromAnotherThreadFreesThoseWhoWait() {
        List<Communicator> ranks = NcclRanks.open(3, NcclRanks.OPTIONS);
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        List.of(0, 1, 2),
                        i -> {
                            if (i == 2) {
                                Thread.sleep(100);
                                ranks.get(0).abort("the user pressed a key");
                            } else {
                                allReduce(ranks.get(i), 3);
                            }
                        });
        for (Throwable t : errors.subList(0, 2)) {
            assertInstanceOf(RankFailedException.class, t);
            names(t, "rank 0", "the user pressed a key");
        }
        closeAndCheck(ranks);
    }

    @Tag("exhaustive")
    @Test
    void rankThatClosesWhileOthersWaitIsNamed() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT.withTimeout(Duration.ofSeconds(25)));
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            if (c.rank() == 2) {
                                c.close();
                            } else {
                                allReduce(c, 3);
                            }
                        });
        for (Throwable t : errors.subList(0, 2)) {
            assertInstanceOf(JcclException.class, t);
            names(t, "rank");
        }
        assertTrue(
                errors.stream()
                        .filter(Objects::nonNull)
                        .anyMatch(t -> NcclRanks.text(t).contains("2")),
                errors::toString);
        closeAndCheck(ranks);
    }

    @Test
    void sendsThatWaitForEachOtherAreNamed() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        // Large enough that NCCL cannot have it travel ahead.
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        ranks,
                        c -> {
                            Stream stream = c.device().defaultStream();
                            try (Buffer b = c.device().allocate(DataType.INT32, 1 << 20);
                                    Buffer other = c.device().allocate(DataType.INT32, 1 << 20)) {
                                // Without connections NCCL takes two sends for the ends of one.
                                c.allToAll(b, other, stream);
                                stream.synchronize(NcclRanks.PATIENCE);
                                c.send(b, 1 - c.rank(), stream);
                                stream.synchronize(NcclRanks.PATIENCE);
                            }
                        });
        assertTrue(
                errors.stream()
                        .filter(CollectiveTimeoutException.class::isInstance)
                        .map(NcclRanks::text)
                        .anyMatch(t -> t.contains("send waits for send") && t.contains("Group")),
                errors::toString);
        closeAndCheck(ranks);
    }

    /** It used to be given three more seconds. */
    @Tag("exhaustive")
    @Test
    void rankThatNeverAnswersDoesNotProlongTheTimeout() {
        Duration timeout = Duration.ofSeconds(4);
        Store store = new Deaf(Store.inMemory(), "j/progress-1");
        List<@Nullable Communicator> ranks = Arrays.asList(null, null);
        NcclRanks.each(
                List.of(0, 1),
                r ->
                        ranks.set(
                                r,
                                Communicator.join(
                                        store,
                                        "j",
                                        r,
                                        2,
                                        TestFake.device(r),
                                        SHORT.withTimeout(timeout))));
        List<Communicator> all = ranks.stream().map(Objects::requireNonNull).toList();
        try {
            NcclRanks.each(all, c -> allReduce(c, 1));
            long began = System.nanoTime();
            Throwable t =
                    assertThrows(CollectiveTimeoutException.class, () -> allReduce(all.get(0), 7));
            Duration took = Duration.ofNanos(System.nanoTime() - began);
            names(t, "rank 1 gives no answer");
            assertTrue(took.compareTo(timeout) >= 0, took::toString);
            assertTrue(took.compareTo(timeout.plusSeconds(2)) < 0, took::toString);
        } finally {
            closeAndCheck(all);
        }
    }

    // ---- native calls that do not return

    @Test
    void finalizeThatHangsEndsInAnAbort() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        NcclRanks.checkUsable(ranks);
        long before = Math.max(0, TestFake.calls("ncclCommAbort"));
        TestFake.inject("ncclCommFinalize@1:1:hang");
        closeAndCheck(ranks);
        assertTrue(TestFake.calls("ncclCommAbort") > before, "no abort");
    }

    /** Ten seconds is what closing waits for a call that may never return. */
    @Tag("exhaustive")
    @Test
    void destroyAndAbortThatHangDoNotKeepCloseFromReturning() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        List<Communicator> others = NcclRanks.open(2, SHORT);
        NcclRanks.checkUsable(ranks);
        NcclRanks.checkUsable(others);
        TestFake.inject("ncclCommDestroy@0:1:hang;ncclCommAbort@1:1:hang");
        others.forEach(c -> c.abort("on purpose"));
        List<Communicator> all = new ArrayList<>(ranks);
        all.addAll(others);
        closeAndCheck(all);
    }

    @Test
    void threadThatDoesNotReturnFromAGroupsEndIsReported() {
        List<Communicator> ranks = NcclRanks.open(1, SHORT);
        Communicator c = ranks.getFirst();
        Stream stream = c.device().defaultStream();
        NcclRanks.checkUsable(ranks);
        TestFake.inject("ncclGroupEnd:1:hang");
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        List.of(0, 1),
                        i -> {
                            if (i == 0) {
                                Buffer b = c.device().allocate(DataType.INT32, 2);
                                Group.run(
                                        c,
                                        () -> {
                                            c.send(b.slice(0, 1), 0, stream);
                                            c.recv(b.slice(1, 1), 0, stream);
                                        });
                            } else {
                                try {
                                    while (true) {
                                        stream.synchronize(NcclRanks.PATIENCE);
                                        Thread.sleep(1);
                                    }
                                } finally {
                                    TestFake.reset();
                                }
                            }
                        });
        for (Throwable t : errors) {
            assertInstanceOf(CollectiveTimeoutException.class, t);
            names(t, "rank 0", "inside NCCL", SOON, "recv(int32, count 1, peer 0)");
        }
        closeAndCheck(ranks);
    }

    // ---- joining

    private static List<@Nullable Throwable> join(
            Store store, CommunicatorOptions options, Integer... ranks) {
        List<Communicator> made = new ArrayList<>();
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        List.of(ranks),
                        r -> {
                            Communicator c =
                                    Communicator.join(
                                            store, "j", r, 3, TestFake.device(r), options);
                            synchronized (made) {
                                made.add(c);
                            }
                        });
        made.forEach(c -> c.abort("the test is over"));
        NcclRanks.close(made);
        return errors;
    }

    private static void eachIs(
            List<@Nullable Throwable> errors,
            Class<? extends JcclException> type,
            String... words) {
        for (Throwable t : errors) {
            assertNotNull(t, errors::toString);
            assertInstanceOf(type, t);
            names(t, words);
        }
    }

    @Test
    void rankThatNeverJoinsIsNamed() {
        long before = NcclRanks.live();
        List<@Nullable Throwable> errors = join(Store.inMemory(), SHORT, 0, 2);
        eachIs(errors, CollectiveTimeoutException.class, "rank(s) 1 of 3", "'j'", SOON);
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @Test
    void outOfMemoryOnOneRankIsToldToAllBeforeNcclBegins() {
        long before = NcclRanks.live();
        long inits = Math.max(0, TestFake.calls("ncclCommInitRankConfig"));
        TestFake.inject("cudaMalloc@1:1:error=2");
        List<@Nullable Throwable> errors =
                join(
                        Store.inMemory(),
                        NcclRanks.OPTIONS.withTimeout(Duration.ofMinutes(5)),
                        0,
                        1,
                        2);
        eachIs(errors, JcclException.class, "no memory on cuda:1");
        names(errors.get(0), "rank 1");
        assertEquals(inits, Math.max(0, TestFake.calls("ncclCommInitRankConfig")));
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "ncclCommInitRankConfig@1:1:error=1",
                "ncclCommInitRankConfig@0:1:error=2",
                "ncclGetUniqueId:1:error=2"
            })
    void errorOfNcclOnOneRankIsToldToAll(String rule) {
        long before = NcclRanks.live();
        TestFake.inject(rule);
        List<@Nullable Throwable> errors =
                join(
                        Store.inMemory(),
                        NcclRanks.OPTIONS.withTimeout(Duration.ofMinutes(5)),
                        0,
                        1,
                        2);
        eachIs(errors, JcclException.class, "injected error");
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @Test
    void initThatHangsOnOneRankEndsOnAll() {
        long before = NcclRanks.live();
        TestFake.inject("ncclCommInitRankConfig@1:1:hang");
        List<@Nullable Throwable> errors = join(Store.inMemory(), SHORT, 0, 1, 2);
        eachIs(errors, JcclException.class, "'j'", "ncclCommInitRank on rank ");
        TestFake.reset();
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @Test
    void initThatHangsInOneProcessEnds() {
        long before = NcclRanks.live();
        TestFake.inject("ncclCommInitRankConfig@1:1:hang");
        Throwable t =
                NcclRanks.errors(List.of(2), n -> Communicator.local(NcclRanks.devices(n), SHORT))
                        .getFirst();
        assertInstanceOf(CollectiveTimeoutException.class, t);
        names(t, "ncclCommInitRank", SOON);
        TestFake.reset();
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    /** A store that loses what is said under one key. */
    private record Deaf(Store store, String key) implements Store {
        @Override
        public void set(String name, byte[] bytes) {
            if (!name.equals(key)) {
                store.set(name, bytes);
            }
        }

        @Override
        public byte @Nullable [] get(String name) {
            return store.get(name);
        }

        @Override
        public long add(String name, long delta) {
            return store.add(name, delta);
        }

        @Override
        public boolean compareAndSet(String name, byte @Nullable [] expected, byte[] bytes) {
            return store.compareAndSet(name, expected, bytes);
        }

        @Override
        public void close() {
            store.close();
        }
    }

    /** A store in which one rank says something else. */
    private record Tampered(Store store, String key, UnaryOperator<String> says) implements Store {
        private byte[] tampered(String name, byte[] bytes) {
            return name.equals(key)
                    ? says.apply(new String(bytes, StandardCharsets.UTF_8))
                            .getBytes(StandardCharsets.UTF_8)
                    : bytes;
        }

        @Override
        public void set(String name, byte[] bytes) {
            store.set(name, tampered(name, bytes));
        }

        @Override
        public byte @Nullable [] get(String name) {
            return store.get(name);
        }

        @Override
        public long add(String name, long delta) {
            return store.add(name, delta);
        }

        @Override
        public boolean compareAndSet(String name, byte @Nullable [] expected, byte[] bytes) {
            return store.compareAndSet(name, expected, tampered(name, bytes));
        }

        @Override
        public void close() {
            store.close();
        }
    }

    @Test
    void versionsThatDifferAreRefusedBeforeNcclBegins() {
        long before = NcclRanks.live();
        long inits = Math.max(0, TestFake.calls("ncclCommInitRankConfig"));
        List<@Nullable Throwable> errors =
                join(
                        new Tampered(
                                Store.inMemory(),
                                "j/card-2",
                                card -> card.replace("2.30.7", "2.27.3")),
                        NcclRanks.OPTIONS,
                        0,
                        1,
                        2);
        eachIs(
                errors,
                JcclException.class,
                "different versions of NCCL",
                "rank 0 2.30.7",
                "rank 2 2.27.3",
                "install one version");
        assertEquals(inits, Math.max(0, TestFake.calls("ncclCommInitRankConfig")));
        assertEquals(before, NcclRanks.live(), "live objects");
    }

    @Test
    void idThatIsNoneIsRefused() {
        List<@Nullable Throwable> errors =
                join(new Tampered(Store.inMemory(), "j/id", id -> "short"), SHORT, 0, 1, 2);
        for (int r = 1; r < 3; r++) {
            names(errors.get(r), "id of 5 bytes, expected 128");
        }
        assertInstanceOf(JcclException.class, errors.get(0));
    }

    @Test
    void sizesAndRanksThatCannotBeAreRefused() {
        List<@Nullable Throwable> errors =
                NcclRanks.errors(
                        List.of(-1, 3),
                        r ->
                                Communicator.join(
                                        Store.inMemory(), "j", r, 3, TestFake.device(0), SHORT));
        for (Throwable t : errors) {
            assertInstanceOf(IllegalArgumentException.class, t);
            names(t, "expected 0 to 2");
        }
    }
}
