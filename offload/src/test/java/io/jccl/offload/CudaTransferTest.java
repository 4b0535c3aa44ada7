package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Pools and the engine on a GPU, played by the fake of libcudart. */
@UsesFakes
@Timeout(value = 120, unit = TimeUnit.SECONDS)
class CudaTransferTest {
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final TransferOptions SMALL =
            TransferOptions.DEFAULT.withChunkBytes(256).withDepth(3);

    private final List<AutoCloseable> open = new ArrayList<>();

    @BeforeAll
    static void useTheDouble() throws Exception {
        TestFake.use();
    }

    @AfterEach
    void closeAll() throws Exception {
        TestFake.reset();
        for (AutoCloseable c : open.reversed()) {
            c.close();
        }
    }

    private <T extends AutoCloseable> T closing(T t) {
        open.add(t);
        return t;
    }

    private static Device gpu() {
        return TestFake.device(0);
    }

    private Buffer pinned(int count) {
        return closing(Cuda.pinned(DataType.INT32, count));
    }

    private Buffer onGpu(int count) {
        return closing(gpu().allocate(DataType.INT32, count));
    }

    private Buffer counting(Buffer b, int from) {
        for (int i = 0; i < b.count(); i++) {
            b.setLong(i, from + i);
        }
        return b;
    }

    private static int[] ints(Buffer b) {
        int[] all = new int[(int) b.count()];
        b.copyTo(MemorySegment.ofArray(all));
        return all;
    }

    private static void same(Buffer expected, Buffer actual) {
        org.junit.jupiter.api.Assertions.assertArrayEquals(ints(expected), ints(actual));
    }

    private TransferEngine engine() {
        return closing(TransferEngine.create(gpu(), SMALL));
    }

    @Test
    void pinnedMemoryIsCopiedDirectlyAndOtherMemoryBySlots() {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        TransferEngine engine = engine();
        for (int i = 0; i < 60; i++) {
            int count = random.nextInt(1000);
            boolean pinned = i % 2 == 0;
            Buffer host =
                    pinned
                            ? pinned(count)
                            : i % 4 == 1
                                    ? closing(Device.host().allocate(DataType.INT32, count))
                                    : Buffer.wrap(
                                            MemorySegment.ofArray(new int[count]), DataType.INT32);
            counting(host, i);
            Buffer back = pinned ? pinned(count) : Device.host().allocate(DataType.INT32, count);
            Buffer device = onGpu(count);
            long staged =
                    engine.toDeviceStats().stagedChunks() + engine.toHostStats().stagedChunks();
            Transfer in = engine.toDevice(host, device, 0);
            in.before(engine.compute());
            try (Event computed = gpu().newEvent()) {
                computed.record(engine.compute());
                engine.toHost(device, back, 0, computed).await(WAIT);
            }
            in.await(WAIT);
            same(host, back);
            long now = engine.toDeviceStats().stagedChunks() + engine.toHostStats().stagedChunks();
            int chunks = (count * 4 + 255) / 256;
            assertEquals(pinned ? 0 : 2 * chunks, now - staged);
            if (!pinned) {
                back.close();
            }
        }
        assertTrue(engine.toDeviceStats().peakInFlight() <= 3);
    }

    @Test
    void aStagedSourceIsReadAfterTheEventItWaitsFor() throws InterruptedException {
        TransferEngine engine = engine();
        Buffer host = closing(Device.host().allocate(DataType.INT32, 500));
        Buffer device = onGpu(500);
        CountDownLatch gate = new CountDownLatch(1);
        Event written = closing(gpu().newEvent());
        Stream writer = closing(gpu().newStream());
        writer.launchHostFunction(() -> {
            try {
                gate.await();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
            counting(host, 77);
        });
        written.record(writer);
        Transfer t = engine.toDevice(host, device, 0, written);
        while (engine.toDeviceStats().peakInFlight() == 0) {
            Thread.onSpinWait();
        }
        assertFalse(t.isDone());
        gate.countDown();
        t.await(WAIT);
        same(host, device);
    }

    /** The second chunk of five: its copy, or the event behind it, is refused. */
    @ParameterizedTest
    @ValueSource(strings = {"cudaMemcpyAsync", "cudaEventRecord"})
    void aFailedCopyTellsItsWaiterAndTheEngineGoesOn(String function) {
        TransferEngine engine = engine();
        Buffer host = counting(pinned(300), 1);
        Buffer device = onGpu(300);
        long calls = TestFake.calls(function);
        TestFake.inject(function + ":2:error=1");
        Transfer bad = engine.toDevice(host, device, 0);
        JcclException e = assertThrows(JcclException.class, () -> bad.await(WAIT));
        assertTrue(String.valueOf(e.getMessage()).contains(function), e::getMessage);
        assertTrue(TestFake.calls(function) > Math.max(calls, 0));
        TestFake.reset();
        assertEquals(1, engine.toDeviceStats().failures());
        bad.restart().await(WAIT);
        same(host, device);
        Buffer back = pinned(300);
        engine.toHost(device, back, 0).await(WAIT);
        same(host, back);
    }

    @Test
    void chunksAreDroppedWhileOthersAreDelayed() {
        TransferEngine engine = engine();
        TestFake.inject("cudaMemcpyAsync:*:delay=20");
        Buffer host = counting(pinned(64 * 100), 1);
        Buffer device = onGpu(64 * 100);
        Transfer slow = engine.toDevice(host, device, 0);
        while (engine.toDeviceStats().chunks() == 0) {
            Thread.onSpinWait();
        }
        assertTrue(slow.cancel());
        assertThrows(CancellationException.class, () -> slow.await(WAIT));
        assertTrue(engine.toDeviceStats().chunks() < 100);
        TestFake.reset();
        slow.restart().await(WAIT);
        same(host, device);
    }

    @Test
    void nothingIsLeftBehind() {
        TestFake.device(0); // has streams of its own
        long streams = TestFake.live("streams");
        long events = TestFake.live("events");
        long host = TestFake.live("host");
        Budgets budgets = new Budgets(Map.of());
        Buffer device = gpu().allocate(DataType.INT32, 1000);
        try (TransferEngine engine = TransferEngine.create(gpu(), SMALL, budgets);
                Buffer from = Device.host().allocate(DataType.INT32, 1000)) {
            counting(from, 0);
            engine.toDevice(from, device, 0).await(WAIT);
            assertEquals(3 * 256, budgets.used(Tier.PINNED));
            for (int i = 0; i < 20; i++) {
                engine.toHost(device, from, i).before(engine.compute());
            }
            engine.compute().synchronize(WAIT);
        }
        device.close();
        assertEquals(0, budgets.used(Tier.PINNED));
        assertEquals(streams, TestFake.live("streams"));
        assertEquals(events, TestFake.live("events"));
        assertEquals(host, TestFake.live("host"));
    }

    /**
     * As on a machine with more to do than processors: the thread that fills the stream ends late.
     */
    @Test
    void nothingIsLeftBehindByAThreadThatEndsLate() throws Exception {
        TestFake.device(0);
        long before = TestFake.live("all");
        CountDownLatch telling = new CountDownLatch(1);
        Runnable slowly =
                () -> {
                    telling.countDown();
                    try {
                        Thread.sleep(2_000);
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                };
        try (Buffer device = gpu().allocate(DataType.INT32, 100);
                Buffer from = Device.host().allocate(DataType.INT32, 100);
                TransferEngine engine = TransferEngine.create(gpu(), SMALL)) {
            TestFake.inject("cudaMemcpyAsync:1:error=1");
            Transfer fails = engine.start(true, from, device, 0, null, slowly);
            assertTrue(telling.await(30, TimeUnit.SECONDS));
            assertThrows(JcclException.class, () -> fails.await(WAIT));
        }
        assertEquals(before, TestFake.live("all"), "all is freed");
    }

    @Test
    void poolsLeaseAndRefuseWhatWasGivenBack() {
        Budgets budgets = new Budgets(Map.of());
        PoolOptions options = PoolOptions.DEFAULT.withSlabBytes(1 << 20).withAlignment(256);
        long slabs = TestFake.live("host");
        try (BufferPool pinned = BufferPool.pinned(gpu(), budgets, options);
                BufferPool device = BufferPool.device(gpu(), budgets, options);
                Stream stream = gpu().newStream()) {
            Buffer a = pinned.allocate(DataType.INT32, 100);
            Buffer other = pinned.allocate(DataType.INT32, 100);
            Buffer b = device.allocate(DataType.INT32, 100);
            assertTrue(Cuda.isPinned(a));
            TestFake.assertLive(slabs + 1, "host");
            assertEquals(0, a.address() % 256);
            assertEquals(0, b.address() % 256);
            counting(a, 3);
            stream.copy(a, b);
            stream.copy(b, other);
            stream.synchronize(WAIT);
            same(a, other);
            Buffer slice = b.slice(1, 10);
            b.close();
            assertThrows(IllegalStateException.class, () -> stream.copy(a, b));
            assertThrows(IllegalStateException.class, () -> b.get(0));
            assertThrows(IllegalStateException.class, () -> slice.get(0));
            a.close();
            assertThrows(IllegalStateException.class, () -> stream.copy(a, other));
            other.close();
        }
        assertEquals(slabs, TestFake.live("host"));
        assertFalse(Cuda.isPinned(Buffer.wrap(MemorySegment.ofArray(new int[4]), DataType.INT32)));
    }

    @Test
    void withoutPinnedMemoryTheErrorNamesTierAndBytes() {
        try (BufferPool pool =
                BufferPool.pinned(gpu(), new Budgets(Map.of()), PoolOptions.DEFAULT)) {
            TestFake.inject("cudaHostAlloc:*:error=2");
            OffloadMemoryException e =
                    assertThrows(OffloadMemoryException.class, () -> pool.take(1000));
            assertEquals(Tier.PINNED, e.tier());
            TestFake.reset();
            pool.give(pool.take(1000));
        }
    }

    @Test
    void buffersMoveBetweenTheTiersOfAGpu() {
        TransferEngine engine = engine();
        Budgets budgets = new Budgets(Map.of(Tier.DEVICE, 1L << 20, Tier.PINNED, 1L << 20));
        BufferPool device = closing(BufferPool.device(gpu(), budgets, PoolOptions.DEFAULT));
        BufferPool pinned = closing(BufferPool.pinned(gpu(), budgets, PoolOptions.DEFAULT));
        Tiers tiers = new Tiers(engine, device, pinned, null);
        try (OffloadedBuffer b =
                OffloadedBuffer.create(tiers, "w", DataType.INT32, 5000, Tier.PINNED, false)) {
            counting(b.pin(Tier.PINNED, WAIT), 9);
            b.unpin(true);
            for (int i = 0; i < 3; i++) {
                b.moveTo(Tier.DEVICE, WAIT);
                TestFake.inject("cudaMemcpyAsync:1:error=1");
                assertThrows(JcclException.class, () -> b.moveTo(Tier.PINNED, WAIT));
                assertEquals(Tier.DEVICE, b.tier());
                assertEquals(0, pinned.stats().blocks());
                TestFake.reset();
                b.moveTo(Tier.PINNED, WAIT);
                assertEquals(0, device.stats().blocks());
            }
            Buffer memory = b.pin(Tier.PINNED, WAIT);
            for (int i = 0; i < 5000; i++) {
                assertEquals(9 + i, memory.getLong(i));
            }
            b.unpin(false);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void manyThreadsUseTheEngine(boolean pinned) throws Exception {
        TransferEngineTest.stress(
                closing(TransferEngine.create(gpu(), SMALL.withQueue(8))),
                60,
                count ->
                        pinned
                                ? Cuda.pinned(DataType.INT32, count)
                                : Device.host().allocate(DataType.INT32, count));
    }

    @Test
    void closingGivesUpOnAStreamThatHangs() {
        TransferEngine engine =
                TransferEngine.create(gpu(), SMALL.withCloseTimeout(Duration.ofMillis(100)));
        Buffer host = counting(pinned(300), 1);
        Buffer device = onGpu(300);
        TestFake.inject("cudaEventQuery:*:error=600"); // not ready, for ever
        Transfer stuck = engine.toDevice(host, device, 0);
        while (engine.toDeviceStats().peakInFlight() == 0) {
            Thread.onSpinWait();
        }
        engine.close();
        JcclException e =
                assertThrows(JcclException.class, () -> stuck.await(Duration.ofMillis(1)));
        assertTrue(String.valueOf(e.getMessage()).contains("closed"), e::getMessage);
    }

    @Test
    void allIsClosedThoughAStreamCannotBe() {
        TransferEngine engine = TransferEngine.create(gpu(), SMALL);
        long calls = TestFake.calls("cudaStreamDestroy");
        TestFake.inject("cudaStreamDestroy:1:error=1");
        assertThrows(JcclException.class, engine::close);
        assertEquals(3, TestFake.calls("cudaStreamDestroy") - calls);
    }
}
