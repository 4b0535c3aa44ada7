package io.jccl.rendezvous;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.bindings.JcclException;
import io.jccl.contract.Workers;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class StoreTest {
    private enum Kind {
        MEMORY,
        FOLDER
    }

    @TempDir Path folder = Path.of("");

    private Store open(Kind kind) {
        return kind == Kind.MEMORY ? Store.inMemory() : Store.folder(folder.resolve("a store"));
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

    @Test
    void unusableKeysAreRefused() {
        try (Store store = open(Kind.FOLDER)) {
            for (String key : List.of("", "k".repeat(201))) {
                assertThrows(IllegalArgumentException.class, () -> store.set(key, bytes("value")));
                assertThrows(IllegalArgumentException.class, () -> store.get(key));
                assertThrows(IllegalArgumentException.class, () -> store.add(key, 1));
            }
        }
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
            CollectiveTimeoutException e =
                    assertThrows(
                            CollectiveTimeoutException.class,
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
                    CollectiveTimeoutException.class,
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
