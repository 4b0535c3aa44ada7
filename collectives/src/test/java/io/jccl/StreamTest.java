package io.jccl;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.testkit.Messages;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 1, unit = TimeUnit.MINUTES)
class StreamTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration SHORT = Duration.ofMillis(60);
    private static final ReduceOp SUM = ReduceOp.SUM;

    private final Device host = Device.host();

    /** Holds a stream up until it is opened. */
    private static final class Gate implements AutoCloseable {
        private final CountDownLatch latch = new CountDownLatch(1);

        void holdUp(Stream stream) {
            stream.launchHostFunction(() -> {
                try {
                    if (!latch.await(30, TimeUnit.SECONDS)) {
                        throw new IllegalStateException("nobody opened the gate");
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
        }

        void open() {
            latch.countDown();
        }

        @Override
        public void close() {
            open();
        }
    }

    @Test
    void defaultStreamRunsOnTheCaller() {
        Stream stream = host.defaultStream();
        AtomicReference<Thread> ran = new AtomicReference<>();
        stream.launchHostFunction(() -> ran.set(Thread.currentThread()));
        assertSame(Thread.currentThread(), ran.get());
        assertTrue(stream.query());
        assertSame(stream, host.defaultStream());
        assertSame(host, stream.device());
        stream.close();
        AtomicBoolean again = new AtomicBoolean();
        stream.launchHostFunction(() -> again.set(true));
        assertTrue(again.get(), "the default stream ignores close");
        stream.synchronize(SHORT);
        stream.synchronize();
    }

    @Test
    void ownStreamRunsBesideTheCallerAndInOrder() {
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        try (Stream stream = host.newStream();
                Gate gate = new Gate()) {
            gate.holdUp(stream);
            AtomicReference<Thread> ran = new AtomicReference<>();
            for (int i = 0; i < 1000; i++) {
                int number = i;
                stream.launchHostFunction(() -> order.add(number));
            }
            stream.launchHostFunction(() -> ran.set(Thread.currentThread()));
            assertFalse(stream.query());
            assertEquals(List.of(), order);
            gate.open();
            stream.synchronize(PATIENCE);
            assertTrue(stream.query());
            assertEquals(IntStream.range(0, 1000).boxed().toList(), order);
            assertNotEquals(Thread.currentThread(), ran.get());
        }
    }

    @Test
    void streamsDoNotWaitForEachOther() {
        try (Stream held = host.newStream();
                Stream free = host.newStream();
                Gate gate = new Gate()) {
            gate.holdUp(held);
            AtomicBoolean ran = new AtomicBoolean();
            free.launchHostFunction(() -> ran.set(true));
            free.synchronize(PATIENCE);
            assertTrue(ran.get());
            assertFalse(held.query());
        }
    }

    @Test
    void synchronizeTimesOutAndTheWorkGoesOn() {
        AtomicBoolean ran = new AtomicBoolean();
        try (Stream stream = host.newStream();
                Gate gate = new Gate()) {
            gate.holdUp(stream);
            stream.launchHostFunction(() -> ran.set(true));
            assertThrows(JcclTimeoutException.class, () -> stream.synchronize(SHORT));
            assertFalse(ran.get());
            gate.open();
            stream.synchronize(PATIENCE);
            assertTrue(ran.get());
        }
    }

    @Test
    void copiesAreDoneInOrder() {
        try (Stream stream = host.newStream();
                Gate gate = new Gate();
                Buffer a = host.allocate(DataType.FLOAT32, 1000);
                Buffer b = host.allocate(DataType.FLOAT32, 1000);
                Buffer c = host.allocate(DataType.FLOAT32, 500)) {
            gate.holdUp(stream);
            stream.copy(a, b);
            stream.copy(b.slice(500, 500), c);
            stream.launchHostFunction(() -> a.set(999, 5));
            a.set(999, 4);
            assertEquals(0, b.get(999));
            gate.open();
            stream.synchronize(PATIENCE);
            assertEquals(4, b.get(999));
            assertEquals(4, c.get(499));
            assertEquals(5, a.get(999));
        }
    }

    @Test
    void faultyCopiesAreRefused() {
        try (Stream own = host.newStream();
                Buffer f7 = host.allocate(DataType.FLOAT32, 7);
                Buffer f8 = host.allocate(DataType.FLOAT32, 8);
                Buffer i7 = host.allocate(DataType.INT32, 7)) {
            Buffer closed = host.allocate(DataType.FLOAT32, 7);
            closed.close();
            for (Stream stream : List.of(host.defaultStream(), own)) {
                String counts =
                        Messages.of(IllegalArgumentException.class, () -> stream.copy(f7, f8));
                assertTrue(counts.contains("7") && counts.contains("8"), counts);
                String types =
                        Messages.of(IllegalArgumentException.class, () -> stream.copy(f7, i7));
                assertTrue(types.contains("float") && types.contains("int32"), types);
                assertThrows(
                        IllegalArgumentException.class,
                        () -> stream.copy(f8.slice(0, 7), f8.slice(1, 7)));
                assertThrows(IllegalStateException.class, () -> stream.copy(closed, f7));
                assertThrows(IllegalStateException.class, () -> stream.copy(f7, closed));
                assertDoesNotThrow(() -> stream.synchronize(PATIENCE));
            }
        }
    }

    @Test
    void eventsMarkWhatWasEnqueuedBefore() {
        try (Stream stream = host.newStream();
                Gate first = new Gate();
                Gate second = new Gate();
                Event event = host.newEvent()) {
            assertTrue(event.query(), "never recorded");
            event.synchronize(SHORT);
            first.holdUp(stream);
            event.record(stream);
            second.holdUp(stream);
            assertFalse(event.query());
            assertThrows(JcclTimeoutException.class, () -> event.synchronize(SHORT));
            first.open();
            event.synchronize(PATIENCE);
            assertTrue(event.query());
            assertFalse(stream.query());
            event.record(stream);
            assertFalse(event.query(), "a new recording replaces the one before");
            second.open();
            event.synchronize(PATIENCE);
        }
    }

    @Test
    void eventsMeasureTime() throws InterruptedException {
        try (Stream stream = host.newStream();
                Event start = host.newEvent();
                Event end = host.newEvent()) {
            assertThrows(IllegalStateException.class, () -> end.elapsedSince(start));
            start.record(stream);
            stream.launchHostFunction(() -> {
                try {
                    Thread.sleep(30);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            end.record(stream);
            end.synchronize(PATIENCE);
            Duration elapsed = end.elapsedSince(start);
            assertTrue(elapsed.toMillis() >= 29, elapsed::toString);
            assertTrue(elapsed.compareTo(PATIENCE) < 0, elapsed::toString);
            try (Gate gate = new Gate()) {
                gate.holdUp(stream);
                end.record(stream);
                assertThrows(IllegalStateException.class, () -> end.elapsedSince(start));
            }
            end.synchronize(PATIENCE);
        }
    }

    @Test
    void refusedRecordingLeavesTheLastOne() {
        Stream closed = host.newStream();
        closed.close();
        try (Stream stream = host.newStream();
                Event start = host.newEvent();
                Event event = host.newEvent();
                Gate gate = new Gate()) {
            start.record(stream);
            event.record(stream);
            event.synchronize(PATIENCE);
            Duration elapsed = event.elapsedSince(start);
            assertThrows(IllegalStateException.class, () -> event.record(closed));
            assertTrue(event.query());
            assertEquals(elapsed, event.elapsedSince(start));
            gate.holdUp(stream);
            event.record(stream);
            assertThrows(IllegalStateException.class, () -> event.record(closed));
            assertFalse(event.query(), "the last one has not completed");
            gate.open();
            event.synchronize(PATIENCE);
        }
    }

    @Test
    void twoEventsAreComparedBothWaysAtOnce() throws InterruptedException {
        try (Event first = host.newEvent();
                Event second = host.newEvent()) {
            first.record(host.defaultStream());
            second.record(host.defaultStream());
            AtomicReference<@Nullable Throwable> error = new AtomicReference<>();
            Thread other = comparing(first, second, error);
            Thread one = comparing(second, first, error);
            assertTrue(one.join(PATIENCE) && other.join(PATIENCE), "they wait for each other");
            assertNull(error.get());
        }
    }

    private static Thread comparing(
            Event end, Event start, AtomicReference<@Nullable Throwable> error) {
        return Thread.ofPlatform()
                .daemon()
                .start(() -> {
                    try {
                        for (int i = 0; i < 100_000; i++) {
                            end.elapsedSince(start);
                        }
                    } catch (Throwable t) {
                        error.set(t);
                    }
                });
    }

    @Test
    void waitForOrdersTwoStreams() {
        List<String> order = Collections.synchronizedList(new ArrayList<>());
        try (Stream producer = host.newStream();
                Stream consumer = host.newStream();
                Event ready = host.newEvent();
                Gate gate = new Gate()) {
            gate.holdUp(producer);
            producer.launchHostFunction(() -> order.add("made"));
            ready.record(producer);
            consumer.waitFor(ready);
            consumer.launchHostFunction(() -> order.add("used"));
            assertThrows(JcclTimeoutException.class, () -> consumer.synchronize(SHORT));
            assertEquals(List.of(), order);
            gate.open();
            consumer.synchronize(PATIENCE);
            assertEquals(List.of("made", "used"), order);
        }
    }

    @Test
    void waitForTakesTheRecordingOfItsTime() {
        try (Stream producer = host.newStream();
                Stream consumer = host.newStream();
                Event event = host.newEvent();
                Gate gate = new Gate()) {
            consumer.waitFor(event);
            consumer.synchronize(PATIENCE);
            event.record(producer);
            event.synchronize(PATIENCE);
            consumer.waitFor(event);
            gate.holdUp(producer);
            event.record(producer);
            consumer.synchronize(PATIENCE);
            assertFalse(event.query());
        }
    }

    @Test
    void defaultStreamWaitsForEventsToo() {
        try (Stream producer = host.newStream();
                Event event = host.newEvent()) {
            AtomicInteger value = new AtomicInteger();
            producer.launchHostFunction(() -> {
                try {
                    Thread.sleep(30);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                value.set(1);
            });
            event.record(producer);
            host.defaultStream().waitFor(event);
            assertEquals(1, value.get());
        }
    }

    @Test
    void errorsSurfaceAtSynchronizeAndDropWhatFollows() {
        try (Stream stream = host.newStream();
                Event event = host.newEvent()) {
            AtomicInteger ran = new AtomicInteger();
            RuntimeException cause = new IllegalStateException("the function is broken");
            try (Gate gate = new Gate()) {
                gate.holdUp(stream);
                stream.launchHostFunction(() -> {
                    throw cause;
                });
                assertDoesNotThrow(() -> stream.launchHostFunction(ran::incrementAndGet));
                event.record(stream);
            }
            RuntimeException error =
                    assertThrows(JcclException.class, () -> stream.synchronize(PATIENCE));
            assertSame(cause, rootOf(error));
            assertEquals(0, ran.get(), "what was enqueued behind it is dropped");
            event.synchronize(PATIENCE);
            stream.launchHostFunction(ran::incrementAndGet);
            stream.synchronize(PATIENCE);
            assertEquals(1, ran.get(), "after synchronize the stream goes on");
        }
    }

    private static Throwable rootOf(Throwable error) {
        Throwable root = error;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return root;
    }

    @Test
    void closeWaitsForTheWork() {
        AtomicInteger ran = new AtomicInteger();
        Stream stream = host.newStream();
        for (int i = 0; i < 100; i++) {
            stream.launchHostFunction(ran::incrementAndGet);
        }
        stream.close();
        assertEquals(100, ran.get());
        stream.close();
        try (Event event = host.newEvent();
                Buffer buffer = host.allocate(DataType.INT8, 1);
                Buffer other = host.allocate(DataType.INT8, 1)) {
            assertThrows(
                    IllegalStateException.class,
                    () -> stream.launchHostFunction(ran::incrementAndGet));
            assertThrows(IllegalStateException.class, () -> stream.copy(buffer, other));
            assertThrows(IllegalStateException.class, () -> event.record(stream));
            assertThrows(IllegalStateException.class, () -> stream.waitFor(event));
        }
        assertEquals(100, ran.get());
    }

    @Test
    void streamThreadsEndWithTheirStream() throws InterruptedException {
        AtomicReference<Thread> thread = new AtomicReference<>();
        try (Stream stream = host.newStream()) {
            stream.launchHostFunction(() -> thread.set(Thread.currentThread()));
        }
        Thread worker = Objects.requireNonNull(thread.get());
        worker.join(PATIENCE);
        assertFalse(worker.isAlive());
        assertTrue(worker.isDaemon(), "a forgotten stream must not keep the JVM alive");
    }

    @Test
    void manyThreadsMayEnqueue() throws InterruptedException {
        int threads = 4;
        int each = 2000;
        List<List<Integer>> seen = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            seen.add(new ArrayList<>());
        }
        try (Stream stream = host.newStream()) {
            List<Thread> all = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                List<Integer> mine = seen.get(t);
                Runnable body =
                        () -> {
                            for (int i = 0; i < each; i++) {
                                int number = i;
                                stream.launchHostFunction(() -> mine.add(number));
                            }
                        };
                all.add(Thread.ofPlatform().start(body));
            }
            for (Thread thread : all) {
                thread.join();
            }
            stream.synchronize(PATIENCE);
        }
        for (List<Integer> mine : seen) {
            assertEquals(IntStream.range(0, each).boxed().toList(), mine);
        }
    }

    // ---- collectives on streams

    @Test
    void collectivesRunBehindWhatIsEnqueuedBefore() {
        Communicator.runLocal(
                3,
                comm -> {
                    Device device = comm.device();
                    try (Stream stream = device.newStream();
                            Event done = device.newEvent();
                            Buffer buffer = device.allocate(DataType.INT32, 1000)) {
                        for (int round = 1; round <= 20; round++) {
                            int value = round;
                            stream.launchHostFunction(() -> fill(buffer, value));
                            comm.allReduce(buffer, SUM, stream);
                            done.record(stream);
                            stream.launchHostFunction(() -> buffer.setLong(0, -1));
                            comm.broadcast(buffer.slice(1, 999), 0, stream);
                        }
                        done.synchronize(PATIENCE);
                        stream.synchronize(PATIENCE);
                        assertEquals(-1, buffer.getLong(0));
                        assertEquals(60, buffer.getLong(1));
                        assertEquals(60, buffer.getLong(999));
                    }
                });
    }

    private static void fill(Buffer buffer, long value) {
        for (long i = 0; i < buffer.count(); i++) {
            buffer.setLong(i, value);
        }
    }

    /** More operations under way than any internal table of slots is likely to hold. */
    @Test
    void manyCollectivesMayBeEnqueued() {
        Communicator.runLocal(
                2,
                comm -> {
                    try (Stream stream = comm.device().newStream();
                            Buffer buffer = comm.device().allocate(DataType.UINT64, 3)) {
                        fill(buffer, 1);
                        for (int i = 0; i < 5000; i++) {
                            comm.allReduce(buffer, SUM, stream);
                        }
                        stream.synchronize(PATIENCE);
                        assertEquals(0, buffer.getLong(2), "2 to the 5000th, wrapped");
                        fill(buffer, 1);
                        for (int i = 0; i < 63; i++) {
                            comm.allReduce(buffer, SUM, stream);
                        }
                        stream.synchronize(PATIENCE);
                        assertEquals(Long.MIN_VALUE, buffer.getLong(2));
                    }
                });
    }

    /** Both kinds of stream in turn: operations of one communicator keep their order. */
    @Test
    void operationsOnSeveralStreamsStayInStep() {
        Communicator.runLocal(
                3,
                comm -> {
                    Device device = comm.device();
                    try (Stream one = device.newStream();
                            Stream two = device.newStream();
                            Event event = device.newEvent();
                            Buffer buffer = device.allocate(DataType.INT64, 100)) {
                        fill(buffer, 1);
                        for (int i = 0; i < 10; i++) {
                            comm.allReduce(buffer, SUM, one);
                            event.record(one);
                            two.waitFor(event);
                            comm.allReduce(buffer, SUM, two);
                            event.record(two);
                            device.defaultStream().waitFor(event);
                            comm.allReduce(buffer, SUM, device.defaultStream());
                        }
                        assertEquals((long) Math.pow(3, 30), buffer.getLong(99));
                    }
                });
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 5})
    void oneThreadDrivesAllRanksOnTheirStreams(int size) {
        List<Communicator> world = Communicator.local(size);
        List<Stream> streams = world.stream().map(c -> c.device().newStream()).toList();
        List<Buffer> buffers =
                world.stream().map(c -> c.device().allocate(DataType.INT32, 10_000)).toList();
        for (int round = 0; round < 5; round++) {
            for (Communicator c : world) {
                fill(buffers.get(c.rank()), c.rank() + 1);
            }
            Group.run(
                    world,
                    () -> {
                        for (Communicator c : world) {
                            c.allReduce(buffers.get(c.rank()), SUM, streams.get(c.rank()));
                        }
                    });
            for (Communicator c : world) {
                streams.get(c.rank()).synchronize(PATIENCE);
                assertEquals(size * (size + 1) / 2, buffers.get(c.rank()).getLong(9999));
            }
        }
        // no group is needed where enqueueing does not wait
        for (Communicator c : world) {
            c.allGather(buffers.get(c.rank()).slice(0, 5L * size), streams.get(c.rank()));
        }
        streams.forEach(s -> s.synchronize(PATIENCE));
        streams.forEach(Stream::close);
        buffers.forEach(Buffer::close);
        world.forEach(Communicator::close);
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 5})
    void oneThreadDrivesAllRanksOnDefaultStreams(int size) {
        List<Communicator> world = Communicator.local(size);
        List<Buffer> buffers =
                world.stream().map(c -> c.device().allocate(DataType.INT32, 70_000)).toList();
        for (int round = 0; round < 5; round++) {
            for (Communicator c : world) {
                fill(buffers.get(c.rank()), c.rank() + 1);
            }
            Group.run(
                    world,
                    () -> {
                        for (Communicator c : world) {
                            Buffer buffer = buffers.get(c.rank());
                            Stream stream = c.device().defaultStream();
                            int next = (c.rank() + 1) % size;
                            int previous = (c.rank() + size - 1) % size;
                            c.allReduce(buffer.slice(0, 60_000), SUM, stream);
                            c.send(buffer.slice(60_000, 5000), next, stream);
                            c.recv(buffer.slice(65_000, 5000), previous, stream);
                        }
                    });
            for (Communicator c : world) {
                Buffer buffer = buffers.get(c.rank());
                assertEquals(size * (size + 1) / 2, buffer.getLong(0));
                assertEquals(size * (size + 1) / 2, buffer.getLong(59_999));
                assertEquals((c.rank() + size - 1) % size + 1, buffer.getLong(65_000));
            }
        }
        buffers.forEach(Buffer::close);
        world.forEach(Communicator::close);
    }

    /** A stream that was closed before, and one that the body of a group closes. */
    @Test
    void operationOnAClosedStreamIsNone() {
        List<Communicator> world = Communicator.local(2);
        try (Communicator first = world.getFirst();
                Communicator second = world.get(1);
                Stream open = host.newStream();
                Buffer a = host.allocate(DataType.INT32, 10);
                Buffer b = host.allocate(DataType.INT32, 10)) {
            Stream closed = host.newStream();
            closed.close();
            assertThrows(IllegalStateException.class, () -> first.allReduce(a, SUM, closed));
            Stream closing = host.newStream();
            assertThrows(
                    IllegalStateException.class,
                    () ->
                            Group.run(
                                    world,
                                    () -> {
                                        first.allReduce(a, SUM, open);
                                        second.allReduce(b, SUM, closing);
                                        closing.close();
                                    }));
            assertTrue(open.query(), "nothing of the group is enqueued");
            for (Communicator c : world) {
                assertEquals(0, c.history().last());
            }
            Group.run(
                    world,
                    () -> {
                        first.allReduce(a, SUM, host.defaultStream());
                        second.allReduce(b, SUM, host.defaultStream());
                    });
            assertEquals(1, first.history().last());
        }
    }

    @Test
    void collectiveErrorsSurfaceAtSynchronize() {
        List<Communicator> world =
                Communicator.local(
                        2, CommunicatorOptions.DEFAULT.withTimeout(Duration.ofMillis(300)));
        try (Communicator comm = world.getFirst();
                Communicator other = world.get(1);
                Stream stream = comm.device().newStream();
                Buffer buffer = comm.device().allocate(DataType.INT32, 10)) {
            AtomicBoolean ran = new AtomicBoolean();
            assertDoesNotThrow(() -> comm.allReduce(buffer, SUM, stream));
            stream.launchHostFunction(() -> ran.set(true));
            JcclException error =
                    assertThrows(JcclException.class, () -> stream.synchronize(PATIENCE));
            assertInstanceOf(CollectiveTimeoutException.class, error);
            String message = String.valueOf(error.getMessage());
            assertTrue(message.contains("rank 1") && message.contains("allReduce"), message);
            assertFalse(ran.get());
            assertThrows(
                    JcclException.class,
                    () -> {
                        comm.allReduce(buffer, SUM, stream);
                        stream.synchronize(PATIENCE);
                    });
            assertThrows(JcclException.class, () -> other.barrier(other.device().defaultStream()));
        }
    }

    @Test
    void groupsInsideGroupsAreSubmittedByTheOutermost() {
        Communicator.runLocal(
                2,
                comm -> {
                    Stream stream = comm.device().defaultStream();
                    int other = 1 - comm.rank();
                    try (Buffer out = comm.device().allocate(DataType.INT32, 4);
                            Buffer in = comm.device().allocate(DataType.INT32, 4)) {
                        fill(out, comm.rank() + 7);
                        Group.run(
                                comm,
                                () -> {
                                    Group.run(comm, () -> comm.recv(in, other, stream));
                                    assertEquals(0, in.getLong(3), "nothing runs yet");
                                    Group.run(comm, () -> comm.send(out, other, stream));
                                    assertEquals(0, in.getLong(3), "nothing runs yet");
                                });
                        assertEquals(other + 7, in.getLong(3));
                        Group.run(comm, () -> {});
                    }
                });
    }

    @Test
    void closingTheCommunicatorAwaitsItsWork() {
        List<Communicator> world = Communicator.local(2);
        List<Stream> streams = world.stream().map(c -> c.device().newStream()).toList();
        List<Buffer> buffers =
                world.stream().map(c -> c.device().allocate(DataType.INT32, 100_000)).toList();
        for (Communicator c : world) {
            fill(buffers.get(c.rank()), 1);
            for (int i = 0; i < 20; i++) {
                c.allReduce(buffers.get(c.rank()), SUM, streams.get(c.rank()));
            }
        }
        world.forEach(Communicator::close);
        for (int rank = 0; rank < 2; rank++) {
            streams.get(rank).synchronize(PATIENCE);
            assertEquals(1 << 20, buffers.get(rank).getLong(99_999));
        }
        streams.forEach(Stream::close);
        buffers.forEach(Buffer::close);
    }
}
