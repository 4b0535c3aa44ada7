package io.jccl.rendezvous;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 2, unit = TimeUnit.MINUTES)
class StoreTest {
    private enum Kind {
        MEMORY,
        FOLDER,
        TCP
    }

    private static final StoreSecret SECRET = StoreSecret.of("of this test");

    @TempDir Path folder = Path.of("");

    private @Nullable StoreServer server;

    @AfterEach
    void closeServer() {
        if (server != null) {
            server.close();
        }
    }

    private Store open(Kind kind) {
        return switch (kind) {
            case MEMORY -> Store.inMemory();
            case FOLDER -> Store.folder(folder.resolve("a store"));
            case TCP -> {
                StoreServer s = StoreServer.open("127.0.0.1", 0, SECRET);
                server = s;
                yield Store.connect("tcp://127.0.0.1:" + s.port(), SECRET, Duration.ofSeconds(30));
            }
        };
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @ParameterizedTest
    @EnumSource
    void keepsTheLastValue(Kind kind) {
        try (Store store = open(kind)) {
            assertNull(store.get("key"));
            byte[] value = bytes("one");
            store.set("key", value);
            value[0] = 'x';
            assertArrayEquals(bytes("one"), store.get("key"));
            store.set("key", bytes("another"));
            assertArrayEquals(bytes("another"), store.get("key"));
            store.set("key", new byte[0]);
            assertArrayEquals(new byte[0], store.get("key"));
        }
    }

    @ParameterizedTest
    @EnumSource
    void keysMayHoldAnything(Kind kind) {
        List<String> keys = List.of("a/b", "../a", "..", ".", "a b", "ü", "A", "a", "a%2Fb");
        try (Store store = open(kind)) {
            for (String key : keys) {
                store.set(key, bytes(key));
            }
            for (String key : keys) {
                assertArrayEquals(bytes(key), store.get(key), key);
            }
        }
    }

    @Test
    void keysStayInTheFolder() throws IOException {
        try (Store store = open(Kind.FOLDER)) {
            store.set("../../outside", bytes("value"));
            store.add("../counter", 1);
        }
        try (Stream<Path> files = Files.list(folder)) {
            assertEquals(List.of(folder.resolve("a store")), files.toList());
        }
    }

    /** A channel that an interrupted thread uses is closed. */
    @Test
    void interruptedThreadsUseAFolderToo() throws IOException {
        try (Store store = open(Kind.FOLDER)) {
            Thread.currentThread().interrupt();
            store.set("key", bytes("one"));
            assertTrue(store.compareAndSet("key", bytes("one"), bytes("two")));
            assertArrayEquals(bytes("two"), store.get("key"));
            assertEquals(3, store.add("counter", 3));
            assertEquals(5, store.add("counter", 2));
        } finally {
            assertTrue(Thread.interrupted(), "the flag is lost");
        }
        try (Stream<Path> files = Files.list(folder.resolve("a store"))) {
            assertEquals(
                    List.of("counter", "key"),
                    files.map(f -> f.getFileName().toString())
                            .filter(f -> !f.startsWith(".lock"))
                            .sorted()
                            .toList());
        }
    }

    @ParameterizedTest
    @EnumSource
    void unusableKeysAreRefused(Kind kind) {
        try (Store store = open(kind)) {
            for (String key : List.of("", "k".repeat(201))) {
                assertThrows(IllegalArgumentException.class, () -> store.set(key, bytes("value")));
                assertThrows(IllegalArgumentException.class, () -> store.get(key));
                assertThrows(IllegalArgumentException.class, () -> store.add(key, 1));
                assertThrows(
                        IllegalArgumentException.class,
                        () -> store.compareAndSet(key, null, bytes("value")));
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void valuesHaveALimit(Kind kind) {
        try (Store store = open(kind)) {
            byte[] largest = new byte[1 << 20];
            Arrays.fill(largest, (byte) 7);
            store.set("large", largest);
            assertArrayEquals(largest, store.get("large"));
            byte[] second = new byte[1 << 20];
            assertTrue(store.compareAndSet("large", largest, second));
            assertArrayEquals(second, store.await("large", Duration.ofSeconds(1)));
            byte[] tooLarge = new byte[(1 << 20) + 1];
            IllegalArgumentException e =
                    assertThrows(
                            IllegalArgumentException.class, () -> store.set("large", tooLarge));
            assertTrue(String.valueOf(e.getMessage()).contains("1048577"), e::toString);
            assertThrows(
                    IllegalArgumentException.class,
                    () -> store.compareAndSet("large", second, tooLarge));
            assertArrayEquals(second, store.get("large"));
        }
    }

    @ParameterizedTest
    @EnumSource
    void comparesBeforeItSets(Kind kind) {
        try (Store store = open(kind)) {
            assertFalse(store.compareAndSet("key", bytes("one"), bytes("two")));
            assertNull(store.get("key"));
            assertTrue(store.compareAndSet("key", null, bytes("one")));
            assertFalse(store.compareAndSet("key", null, bytes("two")));
            assertFalse(store.compareAndSet("key", bytes("on"), bytes("two")));
            assertFalse(store.compareAndSet("key", new byte[0], bytes("two")));
            assertArrayEquals(bytes("one"), store.get("key"));
            assertTrue(store.compareAndSet("key", bytes("one"), new byte[0]));
            assertFalse(store.compareAndSet("key", null, bytes("two")));
            assertTrue(store.compareAndSet("key", new byte[0], bytes("two")));
            assertArrayEquals(bytes("two"), store.get("key"));
        }
    }

    /** Each thread puts its own number behind what is there: none may be lost. */
    @ParameterizedTest
    @EnumSource
    void comparingAndSettingLosesNothing(Kind kind) throws InterruptedException {
        int threads = 4;
        int times = 50;
        AtomicReference<@Nullable Throwable> failure = new AtomicReference<>();
        try (Store store = open(kind)) {
            List<Thread> all = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                byte mine = (byte) t;
                all.add(
                        Thread.ofPlatform()
                                .start(() -> {
                                    try {
                                        for (int i = 0; i < times; ) {
                                            i += appended(store, mine) ? 1 : 0;
                                        }
                                    } catch (RuntimeException | Error e) {
                                        failure.set(e);
                                    }
                                }));
            }
            for (Thread t : all) {
                t.join();
            }
            assertNull(failure.get());
            int[] seen = new int[threads];
            for (byte b : assertNotNullValue(store.get("list"))) {
                seen[b]++;
            }
            assertArrayEquals(new int[] {times, times, times, times}, seen);
        }
    }

    private static boolean appended(Store store, byte mine) {
        byte[] old = store.get("list");
        int length = old == null ? 0 : old.length;
        byte[] longer = old == null ? new byte[1] : Arrays.copyOf(old, length + 1);
        longer[length] = mine;
        return store.compareAndSet("list", old, longer);
    }

    @ParameterizedTest
    @EnumSource
    void allWhoAwaitAValueGetIt(Kind kind) throws InterruptedException {
        int threads = 20;
        AtomicInteger got = new AtomicInteger();
        try (Store store = open(kind)) {
            List<Thread> all = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                Runnable wait =
                        () -> {
                            byte[] value = store.await("go", Duration.ofSeconds(30));
                            got.addAndGet(value[0]);
                        };
                all.add(Thread.ofVirtual().start(wait));
            }
            Thread.sleep(20);
            store.set("go", new byte[] {3});
            for (Thread t : all) {
                t.join();
            }
        }
        assertEquals(3 * threads, got.get());
    }

    @ParameterizedTest
    @EnumSource
    void awaitTakesWhatComesLater(Kind kind) throws InterruptedException {
        try (Store store = open(kind)) {
            Thread later =
                    Thread.ofPlatform()
                            .start(() -> {
                                try {
                                    Thread.sleep(100);
                                } catch (InterruptedException e) {
                                    throw new IllegalStateException(e);
                                }
                                store.set("late", bytes("value"));
                            });
            assertArrayEquals(bytes("value"), store.await("late", Duration.ofSeconds(30)));
            later.join();
        }
    }

    @ParameterizedTest
    @EnumSource
    void awaitGivesUp(Kind kind) {
        try (Store store = open(kind)) {
            JcclTimeoutException e =
                    assertThrows(
                            JcclTimeoutException.class,
                            () -> store.await("nothing", Duration.ofMillis(50)));
            assertTrue(String.valueOf(e.getMessage()).contains("'nothing'"), e::toString);
        }
    }

    @ParameterizedTest
    @EnumSource
    void interruptionIsKept(Kind kind) {
        try (Store store = open(kind)) {
            Thread.currentThread().interrupt();
            assertThrows(
                    JcclTimeoutException.class,
                    () -> store.await("nothing", Duration.ofMillis(20)));
            assertTrue(Thread.interrupted());
        }
    }

    @ParameterizedTest
    @EnumSource
    void everyAdditionCounts(Kind kind) throws InterruptedException {
        long times = 200;
        AtomicReference<@Nullable Throwable> failure = new AtomicReference<>();
        try (Store store = open(kind)) {
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 4; t++) {
                Runnable count =
                        () -> {
                            try {
                                for (int i = 0; i < times; i++) {
                                    store.add("counter", 2);
                                }
                            } catch (RuntimeException | Error e) {
                                failure.set(e);
                            }
                        };
                threads.add(Thread.ofPlatform().start(count));
            }
            for (Thread t : threads) {
                t.join();
            }
            assertNull(failure.get());
            assertEquals(4 * 2 * times, store.add("counter", 0));
            assertEquals(4 * 2 * times - 5, store.add("counter", -5));
            assertEquals(0, store.add("another", 0));
        }
    }

    @Tag("exhaustive")
    @Test
    void processesCountTogetherAndSeeWholeValues() {
        Path shared = folder.resolve("shared");
        try (Workers workers = new Workers(2, Workers.newJobId(), List.of(), Map.of());
                Store store = Store.folder(shared)) {
            workers.startAll(StoreWorker.class, shared.toString());
            for (Workers.Worker worker : workers.all()) {
                assertEquals(0, worker.join(Duration.ofSeconds(90)), worker.lines()::toString);
            }
            assertEquals(2L * StoreWorker.TIMES, store.add("counter", 0));
            byte[] last = assertNotNullValue(store.get("value"));
            byte[] expected = new byte[last.length];
            Arrays.fill(expected, last[0]);
            assertArrayEquals(expected, last);
        }
    }

    private static byte[] assertNotNullValue(byte @Nullable [] value) {
        assertNotNull(value);
        return value;
    }

    /** A file in the place of a folder: also what a folder that may not be written comes to. */
    @ParameterizedTest
    @ValueSource(strings = {"file", "file/below"})
    void folderThatCannotBeMadeIsNamed(String name) throws IOException {
        Files.createFile(folder.resolve("file"));
        JcclException e =
                assertThrows(JcclException.class, () -> Store.folder(folder.resolve(name)));
        assertTrue(String.valueOf(e.getMessage()).contains(name), e::toString);
    }

    @Test
    void folderThatWentAwayIsNamed() throws IOException {
        try (Store store = open(Kind.FOLDER)) {
            Files.delete(folder.resolve("a store"));
            for (Runnable r :
                    List.<Runnable>of(
                            () -> store.set("key", bytes("value")), () -> store.add("key", 1))) {
                JcclException e = assertThrows(JcclException.class, r::run);
                assertTrue(String.valueOf(e.getMessage()).contains("a store"), e::toString);
            }
        }
    }
}
