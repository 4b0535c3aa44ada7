package io.jccl.device.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.CudaException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class CudaBufferTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private Device device = Device.host();
    private long live;

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @BeforeEach
    void start() {
        TestFake.device(0);
        device = TestFake.device(1);
        live = TestFake.live("all");
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        TestFake.reset();
        TestFake.awaitLive(live, "all");
        assertEquals(0, Gpus.current());
    }

    private List<BiFunction<DataType, Long, Buffer>> allKinds() {
        return List.of(
                (type, count) -> device.allocate(type, count),
                (type, count) -> Cuda.allocateAsync(device.defaultStream(), type, count),
                (type, count) -> Cuda.allocateForNccl(device, type, count),
                (type, count) -> Cuda.pinned(type, count));
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void elementsAreThoseOfAHostBuffer(DataType type) {
        double[] values = {0, 1, -1, 3.7, -3.7, 127, 200, 1e10, -1e10, 65504, 0.1, 448, 1e300};
        for (BiFunction<DataType, Long, Buffer> kind : allKinds()) {
            try (Buffer ours = kind.apply(type, (long) values.length);
                    Buffer hosts = Device.host().allocate(type, values.length)) {
                for (int i = 0; i < values.length; i++) {
                    ours.set(i, values[i]);
                    hosts.set(i, values[i]);
                }
                for (int i = 0; i < values.length; i++) {
                    assertEquals(hosts.get(i), ours.get(i), type + " " + values[i]);
                }
                if (type.isInteger()) {
                    ours.setLong(2, -5);
                    hosts.setLong(2, -5);
                    assertEquals(hosts.getLong(2), ours.getLong(2));
                } else {
                    assertThrows(UnsupportedOperationException.class, () -> ours.getLong(0));
                    assertThrows(UnsupportedOperationException.class, () -> ours.setLong(0, 1));
                }
                byte[] bytes = new byte[(int) ours.byteSize()];
                ours.copyTo(MemorySegment.ofArray(bytes));
                assertArrayEquals(hosts.asSegment().toArray(ValueLayout.JAVA_BYTE), bytes);
                assertEquals(0, ours.zero().get(3));
            }
        }
    }

    @Test
    void isClosedOnAVirtualThreadToo() throws InterruptedException {
        List<Buffer> open =
                List.of(
                        device.allocate(DataType.INT32, 1),
                        Cuda.allocateAsync(Cuda.wrapStream(device, 0), DataType.INT32, 1),
                        Cuda.allocateForNccl(device, DataType.INT32, 1));
        Thread.ofVirtual().start(() -> open.forEach(Buffer::close)).join();
        TestFake.awaitLive(live, "all");
    }

    @Test
    void newMemoryIsZero() {
        // Memory that was used before comes back first.
        try (Buffer dirty = device.allocate(DataType.INT64, 1000)) {
            for (int i = 0; i < 1000; i += 99) {
                dirty.setLong(i, -1);
            }
        }
        try (Buffer clean = device.allocate(DataType.INT64, 1000);
                Buffer pinned = Cuda.pinned(DataType.INT64, 1000)) {
            long[] all = new long[1000];
            clean.copyTo(MemorySegment.ofArray(all));
            assertArrayEquals(new long[1000], all);
            assertArrayEquals(new long[1000], pinned.asSegment().toArray(ValueLayout.JAVA_LONG));
            assertEquals(0, clean.address() % 64);
        }
    }

    @Test
    void countsAreChecked() {
        for (BiFunction<DataType, Long, Buffer> kind : allKinds()) {
            for (long count : new long[] {-1, Long.MIN_VALUE, Long.MAX_VALUE / 2}) {
                assertThrows(
                        IllegalArgumentException.class, () -> kind.apply(DataType.INT64, count));
            }
            try (Buffer none = kind.apply(DataType.FLOAT32, 0L)) {
                assertEquals(0, none.count());
                assertEquals(0, none.byteSize());
                none.zero().copyFrom(new float[0]).copyTo(new float[0]);
                none.copyFrom(MemorySegment.ofArray(new byte[0]));
                assertThrows(IndexOutOfBoundsException.class, () -> none.get(0));
                assertEquals(0, none.slice(0, 0).count());
            }
        }
        assertThrows(
                IllegalArgumentException.class,
                () -> Cuda.wrapAddress(device, 4096, DataType.INT8, -1));
    }

    @Test
    void indexesAreChecked() {
        try (Buffer b = device.allocate(DataType.INT32, 3)) {
            for (long i : new long[] {-1, 3, Long.MAX_VALUE}) {
                assertThrows(IndexOutOfBoundsException.class, () -> b.get(i));
                assertThrows(IndexOutOfBoundsException.class, () -> b.set(i, 1));
            }
            assertThrows(IndexOutOfBoundsException.class, () -> b.slice(1, 3));
            assertThrows(IndexOutOfBoundsException.class, () -> b.slice(-1, 1));
            assertThrows(IndexOutOfBoundsException.class, () -> b.slice(0, -1));
        }
    }

    @Test
    void slicesAreViewsAndEndWithTheirOwner() {
        Buffer b = device.allocate(DataType.INT32, 10);
        Buffer middle = b.slice(3, 4);
        Buffer inner = middle.slice(1, 2);
        inner.set(0, 44);
        assertEquals(44, b.get(4));
        assertEquals(b.address() + 16, inner.address());
        assertSame(b.slice(3, 4), b.slice(3, 4), "no garbage in a loop");
        assertEquals(5, b.slice(3, 5).count());
        assertEquals(b.address() + 16, b.slice(4, 5).address());
        inner.close();
        middle.close();
        assertEquals(44, b.get(4), "closing a slice frees nothing");
        assertEquals(44, inner.get(0), "nor ends it");
        b.close();
        b.close();
        for (Buffer closed : List.of(b, middle, inner)) {
            assertThrows(IllegalStateException.class, () -> closed.get(0));
            assertThrows(IllegalStateException.class, () -> closed.set(0, 1));
            assertThrows(IllegalStateException.class, () -> closed.slice(0, 1));
            assertThrows(IllegalStateException.class, closed::zero);
            byte[] bytes = new byte[(int) closed.byteSize()];
            assertThrows(
                    IllegalStateException.class, () -> closed.copyTo(MemorySegment.ofArray(bytes)));
            assertThrows(
                    IllegalStateException.class,
                    () -> closed.copyFrom(MemorySegment.ofArray(bytes)));
            assertTrue(closed.toString().contains("closed"), closed.toString());
        }
    }

    /** CUDA frees memory when the device is idle, and the work may wait for who closes it. */
    @Test
    void closingDoesNotWaitForWorkThatDoesNotEnd() {
        device = TestFake.device(0);
        CountDownLatch goOn = new CountDownLatch(1);
        try (Stream stream = device.newStream()) {
            List<Buffer> buffers =
                    allKinds().stream().map(k -> k.apply(DataType.INT32, 9L)).toList();
            stream.launchHostFunction(() -> Waits.await(goOn, PATIENCE.toNanos()));
            buffers.forEach(Buffer::close);
            assertFalse(stream.query());
            goOn.countDown();
            stream.synchronize(PATIENCE);
        }
    }

    /** While a rank waits for its device, those on others close theirs. */
    @Test
    void closingWaitsForItsOwnDeviceAlone() throws InterruptedException {
        Device other = TestFake.device(0);
        TestFake.needs(2);
        CountDownLatch goOn = new CountDownLatch(1);
        try (Stream stream = other.newStream()) {
            Buffer there = other.allocate(DataType.INT32, 9);
            Buffer here = device.allocate(DataType.INT32, 9);
            long freed = TestFake.live("allocations") - 1;
            stream.launchHostFunction(() -> Waits.await(goOn, PATIENCE.toNanos()));
            Thread waits = Thread.ofPlatform().start(there::close);
            long calls = TestFake.calls("cudaFree");
            while (TestFake.calls("cudaFree") == calls && waits.isAlive()) {
                Thread.onSpinWait();
            }
            here.close();
            assertEquals(freed, TestFake.live("allocations"));
            assertFalse(stream.query());
            goOn.countDown();
            waits.join();
        }
    }

    @Test
    void theHostCannotTouchIt() {
        try (Buffer b = device.allocate(DataType.FLOAT32, 4)) {
            String message = Messages.of(UnsupportedOperationException.class, b::asSegment);
            assertTrue(message.contains(device.toString()), message);
            assertTrue(message.contains("Stream.copy"), message);
        }
    }

    @Test
    void arraysAndSegmentsAreCopied() {
        float[] in = {1, 2, 3, 4.5f};
        float[] out = new float[4];
        try (Buffer b = device.allocate(DataType.FLOAT32, 4);
                Buffer d = device.allocate(DataType.FLOAT64, 4);
                Arena arena = Arena.ofConfined()) {
            assertSame(b, b.copyFrom(in));
            b.copyTo(out);
            assertArrayEquals(in, out);
            MemorySegment memory = arena.allocate(16, 4);
            b.copyTo(memory);
            assertEquals(4.5f, memory.get(ValueLayout.JAVA_FLOAT, 12));
            memory.set(ValueLayout.JAVA_FLOAT, 0, 9);
            b.copyFrom(memory.asReadOnly());
            assertEquals(9, b.get(0));
            assertThrows(IllegalArgumentException.class, () -> d.copyFrom(in));
            assertThrows(IllegalArgumentException.class, () -> d.copyTo(out));
            assertThrows(IllegalArgumentException.class, () -> b.copyFrom(new float[3]));
            assertThrows(IllegalArgumentException.class, () -> b.copyTo(new float[5]));
            String message =
                    Messages.of(IllegalArgumentException.class, () -> b.copyTo(arena.allocate(15)));
            assertTrue(message.contains("16 bytes") && message.contains("15"), message);
            assertThrows(
                    IllegalArgumentException.class,
                    () -> b.copyFrom(MemorySegment.ofArray(new byte[17])));
        }
    }

    @Test
    void memoryThatMayNotBeUsedIsRefusedBeforeCudaSeesIt() throws InterruptedException {
        try (Buffer b = device.allocate(DataType.INT8, 16);
                Arena arena = Arena.ofConfined()) {
            MemorySegment readOnly = arena.allocate(16).asReadOnly();
            assertThrows(IllegalArgumentException.class, () -> b.copyTo(readOnly));
            MemorySegment closed;
            try (Arena other = Arena.ofConfined()) {
                closed = other.allocate(16);
            }
            assertThrows(IllegalStateException.class, () -> b.copyTo(closed));
            assertThrows(IllegalStateException.class, () -> b.copyFrom(closed));
            MemorySegment[] foreign = new MemorySegment[1];
            Thread owner = new Thread(() -> foreign[0] = Arena.ofConfined().allocate(16));
            owner.start();
            owner.join();
            assertThrows(WrongThreadException.class, () -> b.copyFrom(foreign[0]));
        }
    }

    @Test
    void lackOfMemoryNamesWhatWasAskedForAndWhatIsFree() {
        for (BiFunction<DataType, Long, Buffer> kind : allKinds().subList(0, 3)) {
            String message =
                    Messages.of(JcclException.class, () -> kind.apply(DataType.INT64, 1L << 50));
            assertTrue(message.contains(Long.toString(8L << 50)), message);
            assertTrue(message.contains(device.toString()), message);
            assertTrue(message.contains("bytes are free"), message);
        }
        TestFake.inject("cudaHostAlloc:1:error=2");
        String message = Messages.of(JcclException.class, () -> Cuda.pinned(DataType.INT8, 12345));
        assertTrue(message.contains("12345 bytes") && message.contains("ulimit -l"), message);
        assertEquals(0, CudaRuntime.api().cudaGetLastError(), "nothing is left behind");
    }

    @Test
    void aStreamsMemoryComesAndGoesInItsOrder() {
        try (Stream stream = device.newStream();
                Gpus.Gate gate = new Gpus.Gate();
                Buffer result = Cuda.pinned(DataType.INT32, 5)) {
            gate.holdUp(stream);
            try (Buffer input = Cuda.pinned(DataType.INT32, 5)) {
                input.set(4, 77);
                Buffer b = Cuda.allocateAsync(stream, DataType.INT32, 5);
                stream.copy(input, b);
                stream.copy(b, result);
                b.close();
                assertThrows(IllegalStateException.class, () -> stream.copy(b, result));
                assertEquals(0, result.get(4));
                gate.open();
                stream.synchronize(PATIENCE);
            }
            assertEquals(77, result.get(4));
        }
    }

    @Test
    void aStreamsMemoryOutlivesItsStream() {
        Stream stream = device.newStream();
        Buffer b = Cuda.allocateAsync(stream, DataType.INT32, 5);
        stream.close();
        b.close();
        assertThrows(
                IllegalStateException.class, () -> Cuda.allocateAsync(stream, DataType.INT32, 5));
        assertThrows(
                IllegalArgumentException.class,
                () -> Cuda.allocateAsync(Device.host().defaultStream(), DataType.INT32, 5));
    }

    @Test
    void pinnedMemoryIsTheHosts() {
        Buffer pinned = Cuda.pinned(DataType.INT32, 100);
        assertEquals(Device.Kind.HOST, pinned.device().kind());
        assertEquals(400, pinned.asSegment().byteSize());
        assertTrue(Memory.at(pinned.address()).toString().contains("pinned"));
        Buffer slice = pinned.slice(10, 5);
        pinned.close();
        pinned.close();
        assertThrows(IllegalStateException.class, () -> pinned.get(0));
        assertThrows(IllegalStateException.class, () -> slice.get(0));
    }

    @Test
    void hostMemoryIsPinnedAndUnpinned() {
        try (Buffer host = Device.host().allocate(DataType.INT8, 10_000);
                Buffer none = Device.host().allocate(DataType.INT8, 0);
                Buffer array = Buffer.wrap(MemorySegment.ofArray(new byte[8]), DataType.INT8);
                Buffer gpu = device.allocate(DataType.INT8, 1)) {
            Cuda.Pin pin = Cuda.pin(host);
            assertTrue(Memory.at(host.address()).toString().contains("pinned"));
            String message = Messages.of(CudaException.class, () -> Cuda.pin(host));
            assertTrue(message.contains("10000 bytes") && message.contains("pinned"), message);
            pin.close();
            pin.close();
            assertFalse(Memory.at(host.address()).toString().contains("pinned"));
            Cuda.pin(host).close();
            Cuda.pin(none).close();
            assertThrows(IllegalArgumentException.class, () -> Cuda.pin(array));
            assertThrows(IllegalArgumentException.class, () -> Cuda.pin(gpu));
        }
    }

    @Test
    void foreignMemoryOfAnotherDeviceIsRefused() {
        TestFake.needs(2);
        try (Buffer owner = device.allocate(DataType.FLOAT32, 100)) {
            String message = refused(TestFake.device(0), owner.address());
            assertTrue(message.contains("memory of cuda:1, expected memory of cuda:0"), message);
        }
    }

    @Test
    void foreignMemoryIsViewed() {
        try (Buffer owner = device.allocate(DataType.FLOAT32, 100);
                Buffer host = Device.host().allocate(DataType.FLOAT32, 4);
                Buffer pinned = Cuda.pinned(DataType.FLOAT32, 4)) {
            Buffer view = Cuda.wrapAddress(device, owner.address() + 40, DataType.FLOAT32, 90);
            view.set(0, 5);
            assertEquals(5, owner.get(10));
            view.close();
            assertThrows(IllegalStateException.class, () -> view.get(0));
            assertEquals(5, owner.get(10), "the memory is its owner's");

            String message = refused(device, host.address());
            assertTrue(message.contains("CUDA does not know"), message);
            message = refused(device, pinned.address());
            assertTrue(message.contains("pinned host memory"), message);
            message = refused(device, 0);
            assertTrue(message.contains("address is 0"), message);
            Cuda.wrapAddress(device, 0, DataType.FLOAT32, 0).close();
        }
        Buffer gone = device.allocate(DataType.INT8, 1 << 20);
        long address = gone.address();
        gone.close();
        assertTrue(refused(device, address).contains("freed"));
    }

    private static String refused(Device device, long address) {
        return Messages.of(
                IllegalArgumentException.class,
                () -> Cuda.wrapAddress(device, address, DataType.FLOAT32, 4));
    }

    @ParameterizedTest
    @ValueSource(strings = {"cudaMemcpyAsync:*:error=999", "cudaStreamQuery:*:error=999"})
    void errorsOfCopiesSurface(String rule) {
        try (Buffer b = device.allocate(DataType.INT8, 16)) {
            TestFake.inject(rule);
            assertThrows(CudaException.class, () -> b.get(1));
            assertThrows(CudaException.class, () -> b.set(1, 1));
            assertThrows(CudaException.class, () -> b.copyTo(MemorySegment.ofArray(new byte[16])));
            TestFake.reset();
            b.set(1, 3);
            assertEquals(3, b.get(1));
        }
    }

    @Test
    void memoryForNcclBeginsAtAPage() {
        try (Buffer a = Cuda.allocateForNccl(device, DataType.FLOAT32, 1024);
                Buffer b = Cuda.allocateForNccl(device, DataType.FLOAT32, 1024)) {
            assertNotEquals(a.address(), b.address());
            assertEquals(0, a.address() % 4096, "windows need whole pages");
            assertSame(device, a.device());
        }
    }
}
