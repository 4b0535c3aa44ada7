package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The engine on the host device, where every order can be enforced. */
@Timeout(value = 60, unit = TimeUnit.SECONDS)
class TransferEngineTest {
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final TransferOptions SMALL =
            TransferOptions.DEFAULT.withChunkBytes(256).withDepth(2);

    private final List<AutoCloseable> open = new ArrayList<>();

    @AfterEach
    void closeAll() throws Exception {
        for (AutoCloseable c : open.reversed()) {
            c.close();
        }
    }

    private <T extends AutoCloseable> T closing(T t) {
        open.add(t);
        return t;
    }

    private TransferEngine engine(TransferOptions options) {
        return closing(TransferEngine.create(Device.host(), options));
    }

    private Buffer ints(long count) {
        return closing(Device.host().allocate(DataType.INT32, count));
    }

    private Buffer counting(long count, long from) {
        Buffer b = ints(count);
        for (long i = 0; i < count; i++) {
            b.setLong(i, from + i);
        }
        return b;
    }

    private static void same(Buffer expected, Buffer actual) {
        for (long i = 0; i < expected.count(); i++) {
            long at = i;
            assertEquals(expected.getLong(i), actual.getLong(i), () -> "element " + at);
        }
    }

    /** A stream that does nothing until released, and an event behind that. */
    private final class Gate implements AutoCloseable {
        final CountDownLatch latch = new CountDownLatch(1);
        final Stream stream = Device.host().newStream();
        final Event event = Device.host().newEvent();

        Gate() {
            closing(this);
            stream.launchHostFunction(() -> {
                try {
                    latch.await();
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            });
            event.record(stream);
        }

        void open() {
            latch.countDown();
        }

        @Override
        public void close() {
            open();
            stream.close();
            event.close();
        }
    }

    @Test
    void copiesOfManySizesArriveInBothDirections() {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        TransferEngine engine = engine(SMALL);
        List<Transfer> all = new ArrayList<>();
        List<Buffer[]> pairs = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            Buffer from = counting(random.nextInt(2000), i);
            Buffer to = ints(from.count());
            int priority = random.nextInt(3);
            all.add(
                    random.nextBoolean()
                            ? engine.toDevice(from, to, priority)
                            : engine.toHost(from, to, priority));
            pairs.add(new Buffer[] {from, to});
        }
        all.forEach(t -> t.await(WAIT));
        pairs.forEach(p -> same(p[0], p[1]));
        assertEquals(200, engine.toDeviceStats().transfers() + engine.toHostStats().transfers());
        assertEquals(
                pairs.stream().mapToLong(p -> p[0].byteSize()).sum(),
                engine.toDeviceStats().bytes() + engine.toHostStats().bytes());
        assertTrue(engine.toDeviceStats().peakInFlight() <= 2);
        assertTrue(all.stream().allMatch(Transfer::isDone));
    }

    @Test
    void anUrgentTransferOvertakesWhatIsLeftOfAnother() {
        TransferEngine engine = engine(SMALL);
        Gate gate = new Gate();
        // Two chunks of the first go into the stream, which the gate holds up.
        Buffer a = counting(64 * 50, 0);
        Buffer b = counting(64, 1000);
        Transfer low = engine.toDevice(a, ints(a.count()), 0, gate.event);
        awaitInFlight(engine, 2);
        Transfer high = engine.toDevice(b, ints(b.count()), 1);
        Transfer lowest = engine.toDevice(b, ints(b.count()), -1);
        assertFalse(high.isDone());
        gate.open();
        lowest.await(WAIT);
        assertTrue(high.finishedNanos() < low.finishedNanos());
        assertTrue(low.finishedNanos() < lowest.startedNanos());
        assertTrue(engine.toDeviceStats().overtakings() > 0);
    }

    /** The peak says so, and the gate keeps them there. */
    private static void awaitInFlight(TransferEngine engine, int chunks) {
        while (engine.toDeviceStats().peakInFlight() < chunks) {
            Thread.onSpinWait();
        }
    }

    @Test
    void readyTransfersOvertakeThoseThatWaitForAnEvent() {
        TransferEngine engine = engine(SMALL.withDepth(1));
        Gate first = new Gate();
        Gate second = new Gate();
        Buffer a = counting(64, 0);
        // The stream waits for the first gate, as there is nothing else to do.
        Transfer occupant = engine.toDevice(a, ints(64), 0, first.event);
        awaitInFlight(engine, 1);
        Transfer blocked = engine.toDevice(a, ints(64), 5, second.event);
        Transfer ready = engine.toDevice(a, ints(64), 0);
        first.open();
        ready.await(WAIT);
        assertTrue(occupant.isDone());
        assertFalse(blocked.isDone());
        second.open();
        blocked.await(WAIT);
    }

    @Test
    void workAfterATransferSeesItAndWorkBeforeItIsWaitedFor() {
        TransferEngine engine = engine(SMALL);
        Buffer host = counting(1000, 0);
        Buffer device = ints(1000);
        Buffer back = ints(1000);
        Event computed = closing(Device.host().newEvent());
        Transfer in = engine.toDevice(host, device, 0);
        in.await(WAIT);
        Transfer out = null;
        for (int step = 0; step < 50; step++) {
            host.setLong(999, step);
            in.restart().before(engine.compute());
            engine.compute()
                    .launchHostFunction(() -> {
                        for (long i = 0; i < 1000; i++) {
                            device.setLong(i, device.getLong(i) * 2);
                        }
                    });
            computed.record(engine.compute());
            out = out == null ? engine.toHost(device, back, 0, computed) : out.restart();
            out.await(WAIT);
            assertEquals(2L * step, back.getLong(999));
            assertEquals(2L * 998, back.getLong(998));
        }
        // A transfer that is done holds nobody up.
        in.before(engine.compute());
        engine.compute().synchronize(WAIT);
    }

    @Test
    void aCancelledTransferDropsWhatIsQueued() {
        TransferEngine engine = engine(SMALL);
        Gate gate = new Gate();
        Buffer a = counting(64 * 50, 0);
        Transfer begun = engine.toDevice(a, ints(a.count()), 0, gate.event);
        awaitInFlight(engine, 2);
        Transfer waiting = engine.toDevice(a, ints(a.count()), 0);
        assertTrue(waiting.cancel());
        assertTrue(waiting.isDone());
        assertThrows(CancellationException.class, () -> waiting.await(WAIT));
        assertTrue(begun.cancel());
        assertFalse(begun.isDone(), "two chunks are in the stream");
        assertThrows(JcclTimeoutException.class, () -> begun.await(Duration.ofMillis(1)));
        gate.open();
        assertThrows(CancellationException.class, () -> begun.await(WAIT));
        assertEquals(2, engine.toDeviceStats().chunks());
        assertEquals(2, engine.toDeviceStats().cancellations());
        begun.before(engine.compute()); // no event to wait for
        Buffer to = ints(a.count());
        engine.toDevice(a, to, 0).await(WAIT);
        same(a, to);
        Transfer again = begun.restart();
        again.await(WAIT);
        assertFalse(again.cancel());
    }

    @Test
    void aFailedTransferTellsItsWaiterAndTheEngineGoesOn() {
        TransferEngine engine = engine(SMALL);
        Gate gate = new Gate();
        Buffer from = Device.host().allocate(DataType.INT32, 1000);
        Transfer failing = engine.toDevice(from, ints(1000), 0, gate.event);
        from.close();
        gate.open();
        IllegalStateException e =
                assertThrows(IllegalStateException.class, () -> failing.await(WAIT));
        assertTrue(String.valueOf(e.getMessage()).contains("closed"), e::getMessage);
        assertEquals(1, engine.toDeviceStats().failures());
        Buffer good = counting(1000, 5);
        Buffer to = ints(1000);
        engine.toDevice(good, to, 0).await(WAIT);
        same(good, to);
    }

    @Test
    void aFullQueueMakesTheCallerWait() throws InterruptedException {
        TransferEngine engine = engine(SMALL.withDepth(1).withQueue(1));
        Gate gate = new Gate();
        Buffer a = counting(64, 0);
        engine.toDevice(a, ints(64), 0, gate.event);
        awaitInFlight(engine, 1);
        engine.toDevice(a, ints(64), 0);
        CountDownLatch started = new CountDownLatch(1);
        Buffer to = ints(64);
        Thread caller =
                Thread.ofPlatform()
                        .start(() -> {
                            engine.toDevice(a, to, 0).await(WAIT);
                            started.countDown();
                        });
        while (caller.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
        assertEquals(2, engine.toDeviceStats().transfers());
        gate.open();
        assertTrue(started.await(30, TimeUnit.SECONDS));
        same(a, to);
    }

    @Test
    void directionsAndComputeRunSideBySide() throws InterruptedException {
        // Each waits until the other two are under way, so this ends only if they overlap.
        TransferEngine engine = engine(SMALL);
        Gate in = new Gate();
        Gate out = new Gate();
        Buffer a = counting(64, 0);
        Transfer up = engine.toDevice(a, ints(64), 0, in.event);
        Transfer down = engine.toHost(a, ints(64), 0, out.event);
        CountDownLatch computing = new CountDownLatch(1);
        CountDownLatch copied = new CountDownLatch(1);
        engine.compute()
                .launchHostFunction(() -> {
                    computing.countDown();
                    try {
                        copied.await();
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                });
        assertTrue(computing.await(30, TimeUnit.SECONDS));
        out.open();
        down.await(WAIT);
        assertFalse(up.isDone());
        in.open();
        up.await(WAIT);
        assertFalse(engine.compute().query());
        copied.countDown();
        engine.compute().synchronize(WAIT);
    }

    @Test
    void closingCancelsWhatWaitsAndIsBounded() {
        TransferEngine engine =
                TransferEngine.create(Device.host(), SMALL.withCloseTimeout(Duration.ofMillis(50)));
        Gate gate = new Gate();
        Buffer a = counting(64 * 50, 0);
        Transfer stuck = engine.toDevice(a, ints(a.count()), 0, gate.event);
        awaitInFlight(engine, 2);
        Transfer waiting = engine.toDevice(a, ints(a.count()), 0);
        engine.close();
        engine.close();
        assertThrows(CancellationException.class, () -> waiting.await(Duration.ZERO));
        assertTrue(
                assertThrows(RuntimeException.class, () -> stuck.await(Duration.ZERO))
                        .toString()
                        .contains("closed"));
        assertThrows(IllegalStateException.class, () -> engine.toDevice(a, ints(a.count()), 0));
        assertThrows(IllegalStateException.class, waiting::restart);
        gate.open();
    }

    @Test
    void mistakesAreRefused() {
        TransferEngine engine = engine(SMALL);
        Buffer a = ints(10);
        assertThrows(IllegalArgumentException.class, () -> engine.toDevice(a, ints(11), 0));
        assertThrows(
                IllegalArgumentException.class,
                () -> engine.toDevice(a, closing(Device.host().allocate(DataType.FLOAT32, 10)), 0));
        assertThrows(
                IllegalArgumentException.class,
                () -> engine.toDevice(a.slice(0, 6), a.slice(4, 6), 0));
        Buffer closed = Device.host().allocate(DataType.INT32, 10);
        closed.close();
        assertThrows(IllegalStateException.class, () -> engine.toDevice(closed, a, 0));
        assertThrows(IllegalStateException.class, () -> engine.toHost(a, closed, 0));
        assertThrows(
                IllegalArgumentException.class, () -> TransferOptions.DEFAULT.withChunkBytes(100));
        assertThrows(IllegalArgumentException.class, () -> TransferOptions.DEFAULT.withDepth(0));
        assertThrows(IllegalArgumentException.class, () -> TransferOptions.DEFAULT.withQueue(0));
        Gate gate = new Gate();
        Transfer t = engine.toDevice(a, ints(10), 0, gate.event);
        assertThrows(IllegalStateException.class, t::restart);
        gate.open();
        t.await(WAIT);
    }

    @Tag("exhaustive")
    @Test
    void manyThreadsStartCancelAndFollowTransfers() throws Exception {
        TransferEngine engine = engine(SMALL.withQueue(8));
        stress(engine, 400, count -> Device.host().allocate(DataType.INT32, count));
        assertEquals(0, engine.toDeviceStats().queued());
        assertEquals(0, engine.toHostStats().queued());
    }

    /** Threads that copy to the device and back, cancel some, and check what arrived. */
    static void stress(TransferEngine engine, int rounds, IntFunction<Buffer> hostMemory)
            throws Exception {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        List<Future<?>> all = new ArrayList<>();
        try (ExecutorService threads = Executors.newFixedThreadPool(3)) {
            for (int t = 0; t < 3; t++) {
                Random random = new Random(seed + t);
                all.add(threads.submit(() -> rounds(engine, rounds, hostMemory, random)));
            }
            for (Future<?> f : all) {
                f.get();
            }
        }
        assertEquals(0, engine.toDeviceStats().failures() + engine.toHostStats().failures());
    }

    private static void rounds(
            TransferEngine engine, int rounds, IntFunction<Buffer> hostMemory, Random random) {
        int count = 1 + random.nextInt(700);
        try (Buffer host = hostMemory.apply(count);
                Buffer device = engine.device().allocate(DataType.INT32, count);
                Buffer back = hostMemory.apply(count);
                Stream own = engine.device().newStream();
                Event arrived = engine.device().newEvent()) {
            Transfer up = null;
            Transfer down = null;
            for (int i = 0; i < rounds; i++) {
                host.setLong(0, i);
                host.setLong(count - 1, -i);
                up = up == null ? engine.toDevice(host, device, random.nextInt(4)) : up.restart();
                boolean cancelled = random.nextInt(5) == 0 && up.cancel();
                up.before(own);
                arrived.record(own);
                down =
                        down == null
                                ? engine.toHost(device, back, random.nextInt(4), arrived)
                                : down.restart();
                boolean lost = random.nextInt(5) == 0 && down.cancel();
                Transfer first = up;
                Transfer second = down;
                if (cancelled) {
                    assertThrows(CancellationException.class, () -> first.await(WAIT));
                } else {
                    first.await(WAIT);
                }
                if (lost) {
                    assertThrows(CancellationException.class, () -> second.await(WAIT));
                } else {
                    second.await(WAIT);
                }
                if (!cancelled && !lost) {
                    assertEquals(count == 1 ? -i : i, back.getLong(0));
                    assertEquals(-i, back.getLong(count - 1));
                }
            }
        }
    }
}
