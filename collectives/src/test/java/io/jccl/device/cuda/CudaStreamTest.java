package io.jccl.device.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.bindings.CudaException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class CudaStreamTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration SHORT = Duration.ofMillis(60);

    /** Of two copies and two host functions each. */
    private static final int ROUNDS = 20;

    private Device device = Device.host();
    private Device other = Device.host();
    private long live;

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @BeforeEach
    void start() {
        device = TestFake.device(1);
        other = TestFake.device(2);
        // Default and null streams stay once they were used.
        Cuda.wrapStream(TestFake.device(0), 0).synchronize();
        Cuda.wrapStream(device, 0).synchronize();
        Cuda.wrapStream(other, 0).synchronize();
        live = TestFake.live("all");
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        TestFake.reset();
        TestFake.awaitLive(live, "all");
        assertEquals(0, Gpus.current());
    }

    private static Buffer filled(Buffer buffer, int seed) {
        for (int i = 0; i < buffer.count(); i++) {
            buffer.set(i, seed + i);
        }
        return buffer;
    }

    @Test
    void copiesBetweenAllKindsOfMemory() {
        int n = 9;
        try (Stream stream = device.newStream();
                Buffer a = device.allocate(DataType.INT32, n);
                Buffer b = device.allocate(DataType.INT32, n);
                Buffer far = other.allocate(DataType.INT32, n);
                Buffer nccl = Cuda.allocateForNccl(device, DataType.INT32, n);
                Buffer pooled = Cuda.allocateAsync(stream, DataType.INT32, n);
                Buffer pinned = Cuda.pinned(DataType.INT32, n);
                Buffer pageable = Device.host().allocate(DataType.INT32, n)) {
            List<Buffer> all = List.of(a, b, far, nccl, pooled, pinned, pageable);
            stream.synchronize(PATIENCE);
            int seed = 1;
            for (Buffer from : all) {
                for (Buffer to : all) {
                    if (from != to) {
                        filled(from, seed += 100);
                        stream.copy(from, to);
                        stream.synchronize(PATIENCE);
                        assertEquals(seed + n - 1, to.get(n - 1), from + " to " + to);
                        assertEquals(seed, to.get(0), from + " to " + to);
                    }
                }
            }
            stream.copy(filled(a, 5).slice(1, 3), pinned.slice(4, 3));
            stream.synchronize(PATIENCE);
            assertEquals(8, pinned.get(6));
        }
    }

    @Test
    void copiesThatCannotBeAreRefused() {
        try (Stream stream = device.newStream();
                Buffer gpu = device.allocate(DataType.INT32, 8);
                Buffer host = Device.host().allocate(DataType.INT32, 8);
                Buffer array = Buffer.wrap(MemorySegment.ofArray(new int[8]), DataType.INT32);
                Buffer floats = device.allocate(DataType.FLOAT32, 8)) {
            String message =
                    Messages.of(IllegalArgumentException.class, () -> stream.copy(array, gpu));
            assertTrue(message.contains("source is an array on the Java heap"), message);
            assertThrows(IllegalArgumentException.class, () -> stream.copy(gpu, array));
            message = Messages.of(IllegalArgumentException.class, () -> stream.copy(floats, gpu));
            assertTrue(message.contains("8 elements of float"), message);
            assertThrows(IllegalArgumentException.class, () -> stream.copy(gpu.slice(0, 7), host));
            message =
                    Messages.of(
                            IllegalArgumentException.class,
                            () -> stream.copy(gpu.slice(0, 5), gpu.slice(3, 5)));
            assertTrue(message.contains("overlap"), message);
            Buffer closed = device.allocate(DataType.INT32, 8);
            closed.close();
            message = Messages.of(IllegalStateException.class, () -> stream.copy(closed, gpu));
            assertTrue(message.contains("source is closed"), message);
            assertThrows(IllegalStateException.class, () -> stream.copy(gpu, closed));
            Buffer closedHost = Device.host().allocate(DataType.INT32, 8);
            closedHost.close();
            assertThrows(IllegalStateException.class, () -> stream.copy(gpu, closedHost));
            assertThrows(NullPointerException.class, () -> stream.launchHostFunction(nothing()));
        }
    }

    @SuppressWarnings("NullAway")
    private static Runnable nothing() {
        return null;
    }

    @Test
    void workRunsInOrderBesideTheCaller() {
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        try (Stream stream = device.newStream();
                Gpus.Gate gate = new Gpus.Gate();
                Buffer in = Cuda.pinned(DataType.INT32, 1);
                Buffer gpu = device.allocate(DataType.INT32, 1);
                Buffer out = Cuda.pinned(DataType.INT32, 1)) {
            gate.holdUp(stream);
            AtomicReference<Thread> ran = new AtomicReference<>();
            // A held-up stream of an H200 took a thousand copies, but not 400 of these.
            for (int i = 0; i < ROUNDS; i++) {
                int number = i;
                stream.launchHostFunction(() -> in.set(0, number));
                stream.copy(in, gpu);
                stream.copy(gpu, out);
                stream.launchHostFunction(() -> order.add((int) out.get(0)));
            }
            stream.launchHostFunction(() -> ran.set(Thread.currentThread()));
            assertFalse(stream.query());
            assertEquals(List.of(), order);
            gate.open();
            stream.synchronize(PATIENCE);
            assertTrue(stream.query());
            assertEquals(IntStream.range(0, ROUNDS).boxed().toList(), order);
            assertNotEquals(Thread.currentThread(), ran.get());
        }
    }

    /** But host functions do: see {@link Stream#launchHostFunction}. */
    @Test
    void streamsDoNotWaitForEachOther() {
        try (Stream held = device.newStream();
                Stream free = device.newStream();
                Buffer in = Cuda.pinned(DataType.INT32, 1);
                Buffer out = Cuda.pinned(DataType.INT32, 1);
                Buffer buffer = device.allocate(DataType.INT32, 1);
                Gpus.Gate gate = new Gpus.Gate()) {
            gate.holdUp(held);
            in.set(0, 2);
            free.copy(in, buffer);
            free.copy(buffer, out);
            free.synchronize(PATIENCE);
            assertEquals(2, out.get(0));
            buffer.set(0, 3);
            assertEquals(3, buffer.get(0), "nor does what goes by the default stream");
            assertFalse(held.query());
        }
    }

    @Test
    void errorsOfHostFunctionsSurfaceWhereSomebodyWaits() {
        try (Stream stream = device.newStream()) {
            IllegalStateException thrown = new IllegalStateException("mine");
            AtomicBoolean next = new AtomicBoolean();
            stream.launchHostFunction(() -> {
                throw thrown;
            });
            stream.launchHostFunction(() -> {
                throw new IllegalStateException("the second");
            });
            stream.launchHostFunction(() -> next.set(true));
            // A wait ends with the first error, even before the second function has run.
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (!next.get() && System.nanoTime() < deadline) {
                Thread.onSpinWait();
            }
            JcclException e = assertThrows(JcclException.class, () -> stream.synchronize(PATIENCE));
            assertSame(thrown, e.getCause());
            stream.synchronize(PATIENCE);
            assertTrue(next.get(), "CUDA goes on behind it");
            stream.launchHostFunction(() -> {
                throw new AssertionError("an error");
            });
            assertThrows(AssertionError.class, () -> stream.synchronize(PATIENCE));
        }
    }

    @Test
    void aWaitEndsWithItsTime() {
        try (Stream stream = device.newStream();
                Gpus.Gate gate = new Gpus.Gate()) {
            gate.holdUp(stream);
            String message =
                    Messages.of(JcclTimeoutException.class, () -> stream.synchronize(SHORT));
            assertTrue(message.contains(device.toString()), message);
            assertTrue(message.contains("PT0.06S"), message);
            gate.open();
            stream.synchronize(PATIENCE);
        }
    }

    @Test
    void anInterruptDoesNotEndAWaitAndIsKept() {
        try (Stream stream = device.newStream();
                Gpus.Gate gate = new Gpus.Gate()) {
            gate.holdUp(stream);
            Thread.currentThread().interrupt();
            assertThrows(JcclTimeoutException.class, () -> stream.synchronize(SHORT));
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void eventsOrderStreamsOfAllDevices() {
        try (Stream first = device.newStream();
                Stream second = device.newStream();
                Stream far = other.newStream();
                Event event = device.newEvent();
                Gpus.Gate gate = new Gpus.Gate()) {
            second.waitFor(event);
            second.synchronize(PATIENCE);
            List<String> order = Collections.synchronizedList(new ArrayList<>());
            gate.holdUp(first);
            first.launchHostFunction(() -> order.add("first"));
            event.record(first);
            second.waitFor(event);
            far.waitFor(event);
            second.launchHostFunction(() -> order.add("after"));
            far.launchHostFunction(() -> order.add("after"));
            assertFalse(second.query());
            assertFalse(far.query());
            gate.open();
            second.synchronize(PATIENCE);
            far.synchronize(PATIENCE);
            assertEquals(List.of("first", "after", "after"), order);
            try (Event hosts = Device.host().newEvent()) {
                String message =
                        Messages.of(IllegalArgumentException.class, () -> first.waitFor(hosts));
                assertTrue(message.contains("not an event of a CUDA device"), message);
            }
        }
    }

    @Test
    void eventsCompleteWithWhatIsBeforeThem() {
        try (Stream stream = device.newStream();
                Stream idle = device.newStream();
                Stream far = other.newStream();
                Event start = device.newEvent();
                Event end = device.newEvent();
                Gpus.Gate gate = new Gpus.Gate()) {
            assertTrue(end.query(), "never recorded");
            end.synchronize(SHORT);
            assertThrows(IllegalStateException.class, () -> end.elapsedSince(start));
            start.record(stream);
            gate.holdUp(stream);
            end.record(stream);
            start.synchronize(PATIENCE);
            assertFalse(end.query());
            String message = Messages.of(JcclTimeoutException.class, () -> end.synchronize(SHORT));
            assertTrue(message.contains("PT0.06S"), message);
            message = Messages.of(IllegalStateException.class, () -> end.elapsedSince(start));
            assertTrue(message.contains("has not completed"), message);
            end.record(idle);
            end.synchronize(PATIENCE);
            assertTrue(end.query(), "the last recording counts");
            end.record(stream);
            gate.open();
            end.synchronize(PATIENCE);
            assertFalse(end.elapsedSince(start).isNegative());
            assertTrue(end.elapsedSince(start).compareTo(PATIENCE) < 0);
            assertThrows(IllegalArgumentException.class, () -> end.record(far));
            try (Event hosts = Device.host().newEvent()) {
                assertThrows(IllegalArgumentException.class, () -> end.elapsedSince(hosts));
            }
        }
    }

    @Test
    void closedEventsAndStreamsAreRefused() {
        Stream stream = device.newStream();
        Event event = device.newEvent();
        try (Stream open = device.newStream();
                Event fresh = device.newEvent();
                Buffer a = device.allocate(DataType.INT32, 1);
                Buffer b = device.allocate(DataType.INT32, 1)) {
            event.close();
            event.close();
            assertThrows(IllegalStateException.class, () -> event.record(open));
            assertThrows(IllegalStateException.class, event::query);
            assertThrows(IllegalStateException.class, () -> event.synchronize(SHORT));
            assertThrows(IllegalStateException.class, () -> open.waitFor(event));
            stream.close();
            stream.close();
            assertThrows(IllegalStateException.class, stream::query);
            assertThrows(IllegalStateException.class, stream::synchronize);
            assertThrows(IllegalStateException.class, () -> stream.copy(a, b));
            assertThrows(IllegalStateException.class, () -> stream.launchHostFunction(() -> {}));
            assertThrows(IllegalStateException.class, () -> stream.waitFor(fresh));
            assertThrows(IllegalStateException.class, () -> fresh.record(stream));
            assertThrows(IllegalStateException.class, () -> Cuda.streamHandle(stream));
        }
    }

    @Test
    void theDefaultStreamIsNeverClosed() {
        Stream stream = device.defaultStream();
        stream.close();
        stream.synchronize(PATIENCE);
        assertTrue(stream.query());
        assertNotEquals(0, Cuda.streamHandle(stream));
    }

    @Test
    void closingWaitsForTheWork() {
        AtomicBoolean ran = new AtomicBoolean();
        try (Stream stream = device.newStream()) {
            stream.launchHostFunction(() -> {
                try {
                    Thread.sleep(200);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                ran.set(true);
            });
        }
        assertTrue(ran.get());
    }

    @Tag("exhaustive")
    @Test
    void closingIsBounded() {
        Gpus.Gate gate = new Gpus.Gate();
        Stream stream = device.newStream();
        gate.holdUp(stream);
        long began = System.nanoTime();
        stream.close();
        Duration took = Duration.ofNanos(System.nanoTime() - began);
        gate.open();
        assertTrue(took.compareTo(Duration.ofSeconds(15)) < 0, took.toString());
        assertTrue(took.compareTo(Duration.ofSeconds(9)) > 0, took.toString());
    }

    /** The watchdog is what ends the wait of {@code close}, so it must not wait for it. */
    @Test
    void closingDoesNotHoldUpTheWatchdog() {
        TestFake.needs(2);
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofMillis(500));
        List<Communicator> ranks = Communicator.local(List.of(device, other), options);
        try (Buffer buffer = device.allocate(DataType.INT32, 4)) {
            Stream stream = device.newStream();
            Communicator alone = ranks.get(0);
            alone.allReduce(buffer, ReduceOp.SUM, stream);
            long began = System.nanoTime();
            stream.close();
            Duration took = Duration.ofNanos(System.nanoTime() - began);
            assertTrue(took.compareTo(Duration.ofSeconds(8)) < 0, took.toString());
            assertThrows(
                    CollectiveTimeoutException.class, () -> alone.barrier(device.defaultStream()));
        } finally {
            ranks.forEach(Communicator::close);
        }
    }

    @Test
    void foreignStreamsAreUsedAndLeftOpen() {
        try (Stream owner = device.newStream();
                Gpus.Gate gate = new Gpus.Gate()) {
            Stream view = Cuda.wrapStream(device, Cuda.streamHandle(owner));
            gate.holdUp(view);
            assertFalse(owner.query(), "they are one stream");
            gate.open();
            view.synchronize(PATIENCE);
            view.close();
            assertTrue(view.query(), "closing does nothing");
            assertTrue(owner.query());
        }
        String message =
                Messages.of(IllegalArgumentException.class, () -> Cuda.wrapStream(device, 2));
        assertTrue(message.contains("per-thread"), message);
        assertThrows(IllegalArgumentException.class, () -> Cuda.wrapStream(Device.host(), 0));
    }

    /** The null stream of a device that is not current, as PyTorch's is by default. */
    @Test
    void theNullStreamIsThatOfItsDevice() {
        TestFake.needs(3);
        List<Communicator> ranks =
                Communicator.local(List.of(device, other), CommunicatorOptions.DEFAULT);
        Stream[] nulls = {Cuda.wrapStream(device, 0), Cuda.wrapStream(other, 1)};
        List<Buffer> buffers = new ArrayList<>();
        try (Gpus.Gate gate = new Gpus.Gate()) {
            gate.holdUp(nulls[0]);
            assertFalse(nulls[0].query());
            assertTrue(nulls[1].query(), "another device's");
            assertTrue(Cuda.wrapStream(TestFake.device(0), 0).query(), "the current device's");
            gate.open();
            for (int r = 0; r < 2; r++) {
                buffers.add(filled(ranks.get(r).device().allocate(DataType.INT32, 4), 10 * r));
            }
            Group.run(
                    ranks,
                    () -> {
                        for (int r = 0; r < 2; r++) {
                            ranks.get(r).allReduce(buffers.get(r), ReduceOp.SUM, nulls[r]);
                        }
                    });
            // In place, which copies in between.
            Group.run(
                    ranks,
                    () -> {
                        for (int r = 0; r < 2; r++) {
                            ranks.get(r).allToAll(buffers.get(r), buffers.get(r), nulls[r]);
                        }
                    });
            for (int r = 0; r < 2; r++) {
                try (Event event = ranks.get(r).device().newEvent()) {
                    event.record(nulls[r]);
                    event.synchronize(PATIENCE);
                    nulls[r].synchronize(PATIENCE);
                }
            }
            assertEquals(12, buffers.get(0).get(1));
            assertEquals(10, buffers.get(0).get(2));
            assertEquals(14, buffers.get(1).get(0));
            assertEquals(16, buffers.get(1).get(3));
        } finally {
            ranks.forEach(Communicator::close);
            buffers.forEach(Buffer::close);
        }
    }

    @Test
    void streamsOfOtherDevicesAreRefused() {
        List<Communicator> ranks = Communicator.local(List.of(device), CommunicatorOptions.DEFAULT);
        try (Communicator comm = ranks.get(0);
                Stream far = other.newStream();
                Buffer buffer = device.allocate(DataType.INT32, 1)) {
            String message =
                    Messages.of(
                            IllegalArgumentException.class,
                            () -> comm.allReduce(buffer, ReduceOp.SUM, far));
            assertTrue(message.contains(other.toString()), message);
            assertTrue(message.contains(device.toString()), message);
            assertThrows(
                    IllegalArgumentException.class,
                    () -> comm.allReduce(buffer, ReduceOp.SUM, Device.host().defaultStream()));
        }
    }

    @Test
    void errorsOfWorkSurfaceWhereSomebodyWaits() {
        try (Stream stream = device.newStream();
                Event event = device.newEvent()) {
            TestFake.inject("cudaStreamQuery:1:error=719;cudaEventQuery:1:error=999");
            String message = Messages.of(CudaException.class, () -> stream.synchronize(PATIENCE));
            assertTrue(message.contains("cudaStreamQuery"), message);
            assertThrows(CudaException.class, event::query);
            stream.synchronize(PATIENCE);
        }
    }
}
