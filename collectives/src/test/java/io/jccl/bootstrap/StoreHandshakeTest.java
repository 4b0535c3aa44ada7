package io.jccl.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.error.JcclException;
import io.jccl.rendezvous.Store;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** All ranks tell one story, whatever one of them has done. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class StoreHandshakeTest {
    /** Never waited for: a bad rank ends all at once. */
    private static final Duration LONG = Duration.ofMinutes(10);

    private static final String HERE = RankInfo.here();

    private static RankInfo.Fact versionOfNccl(String version) {
        return new RankInfo.Fact("versions of NCCL", version, "install one version everywhere");
    }

    private record Rank(int rank, int size, String version, long afterMillis) {
        static Rank of(int rank, int size) {
            return new Rank(rank, size, "2.30.7", 0);
        }
    }

    /** What each was told, in order; null for those who may go on. */
    private static List<@Nullable Throwable> call(Store store, Duration timeout, List<Rank> ranks)
            throws InterruptedException {
        List<@Nullable Throwable> told = new ArrayList<>();
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<?>> all = new ArrayList<>();
            for (Rank r : ranks) {
                all.add(
                        threads.submit(() -> {
                            Thread.sleep(r.afterMillis);
                            new StoreHandshake(store, "world", r.rank, r.size)
                                    .answer(List.of(versionOfNccl(r.version)), timeout);
                            return null;
                        }));
            }
            for (Future<?> f : all) {
                try {
                    f.get();
                    told.add(null);
                } catch (ExecutionException e) {
                    told.add(e.getCause());
                }
            }
        }
        return told;
    }

    /** The same, if the last of them comes when all others are there, and only it is impatient. */
    private static List<@Nullable Throwable> callImpatient(
            Store store, Duration timeout, List<Rank> ranks) throws InterruptedException {
        List<Rank> others = ranks.subList(0, ranks.size() - 1);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<List<@Nullable Throwable>> waiting =
                    threads.submit(() -> call(store, LONG, others));
            while (store.add("world/here", 0) < others.size()) {
                Thread.sleep(1);
            }
            List<@Nullable Throwable> told =
                    new ArrayList<>(call(store, timeout, List.of(ranks.getLast())));
            told.addAll(waiting.get());
            return told;
        } catch (ExecutionException e) {
            throw new AssertionError(e);
        }
    }

    /** The one message that all were told. */
    private static String story(List<@Nullable Throwable> told, Class<?> type) {
        List<String> messages = new ArrayList<>();
        for (Throwable t : told) {
            Throwable e = Objects.requireNonNull(t, told::toString);
            assertEquals(type, e.getClass(), e::toString);
            messages.add(String.valueOf(e.getMessage()));
        }
        assertEquals(1, new HashSet<>(messages).size(), messages::toString);
        return messages.getFirst();
    }

    private static void names(String story, String... words) {
        for (String word : words) {
            assertTrue(story.contains(word), () -> "no '" + word + "' in: " + story);
        }
    }

    private static List<Rank> world(int size, Rank... others) {
        List<Rank> all = new ArrayList<>();
        for (int r = 0; r < size; r++) {
            int number = r;
            all.add(
                    Arrays.stream(others)
                            .filter(o -> o.rank == number)
                            .findFirst()
                            .orElse(Rank.of(r, size)));
        }
        return all;
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 300})
    void ranksThatFitGoOn(int size) throws InterruptedException {
        try (Store store = Store.inMemory()) {
            List<@Nullable Throwable> told = call(store, LONG, world(size));
            assertTrue(told.stream().allMatch(Objects::isNull), told::toString);
        }
    }

    @Test
    void ranksMayComeLate() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            List<@Nullable Throwable> told =
                    call(store, LONG, world(3, new Rank(1, 3, "2.30.7", 700)));
            assertTrue(told.stream().allMatch(Objects::isNull), told::toString);
        }
    }

    /** One that has come and was killed; another has not come, so that all would wait for long. */
    @ParameterizedTest
    @CsvSource("4, 1, 2")
    void rankThatEndsWhileOthersWaitIsNamedByAll(int size, int killed, int missing)
            throws InterruptedException {
        try (Store store = Store.inMemory()) {
            store.set(
                    "world/card-" + killed,
                    RankInfo.own(killed, size, List.of(versionOfNccl("2.30.7")))
                            .write()
                            .getBytes(StandardCharsets.UTF_8));
            long here = store.add("world/here", 1);
            assertEquals(1, here);
            List<Rank> ranks = world(size);
            ranks.removeIf(r -> r.rank == killed || r.rank == missing);
            names(
                    story(call(store, LONG, ranks), RankFailedException.class),
                    "rank " + killed + " (" + HERE + ") came",
                    "no sign of life for 15 s",
                    "'world'");
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"4, 2, 1", "4, 0, 3"})
    void rankThatEndsWhileOthersWaitIsNamedByAllElsewhere(int size, int killed, int missing)
            throws InterruptedException {
        rankThatEndsWhileOthersWaitIsNamedByAll(size, killed, missing);
    }

    @ParameterizedTest
    @CsvSource({"3, 0", "3, 2", "100, 57"})
    void missingRankIsNamedByAll(int size, int missing) throws InterruptedException {
        try (Store store = Store.inMemory()) {
            List<Rank> ranks = world(size);
            ranks.remove(missing);
            String story =
                    story(
                            callImpatient(store, Duration.ofMillis(400), ranks),
                            CollectiveTimeoutException.class);
            names(story, "rank(s) " + missing + " of " + size, "'world'", "PT0.4S", HERE);
            // Who comes after the verdict learns that it was this one that all waited for.
            String late =
                    story(
                            call(store, LONG, List.of(Rank.of(missing, size))),
                            CollectiveTimeoutException.class);
            assertEquals(
                    story
                            + "; rank "
                            + missing
                            + " has come only after that: raise the timeout, or, if that was an"
                            + " earlier run, give this run its own store",
                    late);
        }
    }

    @Test
    void manyMissingRanksAreNamedInShort() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            String story =
                    story(
                            callImpatient(
                                    store,
                                    Duration.ofMillis(200),
                                    List.of(Rank.of(0, 1000), Rank.of(7, 1000), Rank.of(9, 1000))),
                            CollectiveTimeoutException.class);
            names(story, "rank(s) 1-6, 8, 10-999 of 1000");
        }
    }

    @ParameterizedTest
    @CsvSource({"3, 1", "3, 0", "3, 2"})
    void differentVersionsAreNamedByAll(int size, int bad) throws InterruptedException {
        try (Store store = Store.inMemory()) {
            String story =
                    story(
                            call(store, LONG, world(size, new Rank(bad, size, "2.27.3", 0))),
                            JcclException.class);
            names(
                    story,
                    "different versions of NCCL",
                    "rank " + bad + " 2.27.3 (" + HERE + ")",
                    "rank " + (bad + 1) % size + " 2.30.7 (" + HERE + ")",
                    "install one version everywhere");
        }
    }

    /** All that differ are named, not only the first that is found; of the rest one. */
    @Test
    void allOffendersAreNamed() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            String story =
                    story(
                            call(
                                    store,
                                    LONG,
                                    world(
                                            50,
                                            new Rank(3, 50, "2.27.3", 0),
                                            new Rank(33, 50, "2.18.1", 200),
                                            new Rank(40, 50, "2.27.3", 300))),
                            JcclException.class);
            names(
                    story,
                    "rank 3 2.27.3",
                    "rank 33 2.18.1",
                    "rank 40 2.27.3",
                    "46 more ranks 2.30.7");
        }
    }

    /** A rank that expects fewer than there are is the last for itself before others have come. */
    @Test
    void theLastOfFewerRanksWaitsForTheOthers() throws Exception {
        try (Store store = Store.inMemory()) {
            // Rank 0 is here, but has not got as far as to be the first.
            String card = RankInfo.own(0, 3, List.of(versionOfNccl("2.30.7"))).write();
            store.set("world/card-0", card.getBytes(StandardCharsets.UTF_8));
            store.add("world/here", 1);
            List<Rank> others = List.of(Rank.of(1, 2), new Rank(2, 3, "2.30.7", 300));
            names(
                    story(call(store, LONG, others), JcclException.class),
                    "rank 0 3",
                    "rank 1 2",
                    "rank 2 3");
        }
    }

    @ParameterizedTest
    @CsvSource({"0, 2", "1, 2", "2, 4", "0, 4", "2, 2147483647"})
    void wrongWorldSizeIsNamedByAll(int bad, int said) throws InterruptedException {
        for (long after : new long[] {0, 200}) {
            try (Store store = Store.inMemory()) {
                String story =
                        story(
                                call(store, LONG, world(3, new Rank(bad, said, "2.30.7", after))),
                                JcclException.class);
                names(
                        story,
                        "different world sizes",
                        "rank " + bad + " " + said,
                        "rank " + (bad + 1) % 3 + " 3",
                        "WORLD_SIZE");
            }
        }
    }

    @Test
    void twoProcessesWithOneNumberAreNamedByAll() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            List<Rank> ranks = List.of(Rank.of(0, 3), Rank.of(1, 3), Rank.of(1, 3));
            String story = story(call(store, LONG, ranks), JcclException.class);
            names(story, "two processes claim rank 1", HERE + " and " + HERE);
        }
    }

    @Test
    void whoClaimsANumberLateFailsAlone() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            List<@Nullable Throwable> told = call(store, LONG, world(2));
            assertNull(told.get(0));
            names(
                    story(call(store, LONG, List.of(Rank.of(1, 2))), JcclException.class),
                    "two processes claim rank 1",
                    "earlier run");
        }
    }

    /** Such as a process of another run, given the same store while the first one works. */
    @Test
    void whoComesToACompleteCommunicatorOfAnotherSizeFailsAlone() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            assertEquals(Arrays.asList(null, null), call(store, LONG, world(2)));
            names(
                    story(call(store, LONG, List.of(Rank.of(2, 3))), JcclException.class),
                    "'world' are complete without rank 2 of 3",
                    "rank 0 2 (" + HERE,
                    "rank 2 3 (" + HERE);
        }
    }

    /** What an earlier run was told is not the whole story of this one. */
    @Test
    void whoClaimsANumberOfAFailedRunIsToldBoth() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            List<Rank> zero = List.of(Rank.of(0, 2));
            story(call(store, Duration.ofMillis(1), zero), CollectiveTimeoutException.class);
            names(
                    story(call(store, LONG, zero), JcclException.class),
                    "two processes claim rank 0",
                    "earlier run",
                    "ranks were told: rank(s) 1 of 2 did not come");
        }
    }

    @Test
    void onlyAMembersFailureConcernsTheOthers() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            assertEquals(Arrays.asList(null, null), call(store, LONG, world(2)));
            for (Rank r : List.of(Rank.of(1, 2), Rank.of(2, 3))) {
                StoreHandshake intruder = new StoreHandshake(store, "world", r.rank, r.size);
                assertThrows(
                        JcclException.class,
                        () -> intruder.answer(List.of(versionOfNccl(r.version)), LONG));
                assertFalse(intruder.isMember());
            }
            StoreHandshake missed = new StoreHandshake(store, "other", 0, 2);
            assertThrows(
                    CollectiveTimeoutException.class,
                    () -> missed.answer(List.of(), Duration.ofMillis(1)));
            assertTrue(missed.isMember());
        }
    }

    @Test
    void failureOfOneIsToldToAll() throws InterruptedException {
        try (Store store = Store.inMemory()) {
            new StoreHandshake(store, "world", 2, 3).fail("rank 2: out of memory");
            String story =
                    story(
                            call(store, LONG, List.of(Rank.of(0, 3), Rank.of(1, 3))),
                            RankFailedException.class);
            names(story, "rank 2: out of memory", "'world' cannot be made");
        }
    }

    @Test
    void deathSeenByOneIsToldToAll() throws Exception {
        try (Store store = Store.inMemory();
                ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Future<?> watching =
                    threads.submit(() ->
                            new StoreHandshake(store, "world", 0, 3)
                                    .answer(List.of(), LONG, () -> "rank 2 is lost"));
            List<@Nullable Throwable> told = new ArrayList<>();
            try {
                new StoreHandshake(store, "world", 1, 3).answer(List.of(), LONG);
            } catch (RankFailedException e) {
                told.add(e);
            }
            try {
                watching.get();
            } catch (ExecutionException e) {
                told.add(assertInstanceOf(RankFailedException.class, e.getCause()));
            }
            assertEquals(2, told.size());
            names(story(told, RankFailedException.class), "rank 2 is lost");
        }
    }
}
