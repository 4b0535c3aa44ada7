package io.jccl.offload.nvme;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.Tier;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class NvmeStoreTest {
    static final Duration WAIT = Duration.ofSeconds(60);
    static final NvmeOptions SMALL =
            NvmeOptions.DEFAULT.withBlockBytes(8192).withQueueDepth(3).withPendingOperations(16);

    private final Budgets budgets = new Budgets(Map.of());
    private final BufferPool pool =
            BufferPool.pinned(
                    Device.host(),
                    budgets,
                    PoolOptions.DEFAULT.withSlabBytes(16 << 20).withAlignment(4096));

    @TempDir private Path folder;

    @AfterEach
    void giveBack() {
        pool.close();
        assertEquals(0, budgets.used(Tier.NVME));
    }

    private NvmeStore open() {
        return NvmeStore.open(folder, budgets, SMALL);
    }

    private Buffer filled(long count, long seed) {
        Buffer b = pool.allocate(DataType.FLOAT32, count);
        fill(b, seed);
        return b;
    }

    static void fill(Buffer b, long seed) {
        Random random = new Random(seed);
        byte[] bytes = new byte[(int) b.byteSize()];
        random.nextBytes(bytes);
        b.copyFrom(MemorySegment.ofArray(bytes));
    }

    static void write(NvmeStore store, Region region, long first, Buffer b) {
        try (IoTicket t = store.write(region, first, b)) {
            t.await(WAIT);
        }
    }

    static void read(NvmeStore store, Region region, long first, Buffer b) {
        try (IoTicket t = store.read(region, first, b)) {
            t.await(WAIT);
        }
    }

    static void assertSameBytes(Buffer expected, Buffer found) {
        assertEquals(-1, expected.asSegment().mismatch(found.asSegment()));
    }

    @ParameterizedTest
    @EnumSource(NvmeOptions.DirectIo.class)
    void whatWasCommittedIsThereAfterwards(NvmeOptions.DirectIo directIo) throws IOException {
        NvmeOptions options = SMALL.withDirectIo(directIo);
        try (Buffer a = filled(10_000, 1);
                Buffer b = filled(10_000, 2)) {
            try (NvmeStore store = NvmeStore.open(folder, budgets, options)) {
                assertEquals(OptionalLong.empty(), store.committedStep());
                Region region = store.region("weights", DataType.FLOAT32, 10_000);
                Region other = store.region("biases", DataType.FLOAT32, 3);
                read(store, region, 0, b);
                assertEquals(0, b.get(9_999));
                write(store, region, 0, a);
                store.commit(7);
                assertEquals(OptionalLong.of(7), store.committedStep());
                fill(b, 3);
                write(store, region, 0, b);
                assertEquals(directIo == NvmeOptions.DirectIo.OFF, store.bufferedBecause() != null);
                assertEquals(other, store.regions().get(1));
            }
            try (NvmeStore store = NvmeStore.open(folder, budgets, options)) {
                assertEquals(OptionalLong.of(7), store.committedStep());
                Region region = store.region("weights", DataType.FLOAT32, 10_000);
                read(store, region, 0, b);
                assertSameBytes(a, b);
            }
        }
        try (Stream<Path> files = Files.list(folder)) {
            assertEquals(3, files.count());
        }
    }

    /** Ranges of any place and size, whole or not, aligned or not, against a copy in memory. */
    @ParameterizedTest
    @CsvSource({"false, 64", "false, 4096", "true, 4096"})
    void anyRangeOfAnyType(boolean scratch, int alignment) {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        try (BufferPool mine =
                        BufferPool.pinned(
                                Device.host(),
                                budgets,
                                PoolOptions.DEFAULT
                                        .withSlabBytes(16 << 20)
                                        .withAlignment(alignment));
                NvmeStore store = NvmeStore.open(folder, budgets, SMALL.withScratch(scratch))) {
            for (DataType type :
                    new DataType[] {DataType.INT8, DataType.BFLOAT16, DataType.FLOAT64}) {
                long count = 1L + random.nextInt(60_000);
                Region region = store.region(type.label(), type, count);
                byte[] model = new byte[(int) region.byteSize()];
                byte[] committed = model.clone();
                long step = store.committedStep().orElse(0);
                for (int i = 0; i < 150; i++) {
                    int first = random.nextInt((int) count);
                    int n = random.nextInt((int) Math.min(count - first, 20_000) + 1);
                    if (random.nextInt(4) == 0) {
                        first = first * type.size() / 8192 * 8192 / type.size();
                        n = (int) count - first;
                    }
                    int at = first * type.size();
                    try (Buffer b = mine.allocate(type, n)) {
                        if (random.nextBoolean()) {
                            fill(b, random.nextLong());
                            write(store, region, first, b);
                            MemorySegment.ofArray(model)
                                    .asSlice(at, b.byteSize())
                                    .copyFrom(b.asSegment());
                        } else {
                            read(store, region, first, b);
                            assertEquals(
                                    -1,
                                    MemorySegment.ofArray(model)
                                            .asSlice(at, b.byteSize())
                                            .mismatch(b.asSegment()));
                        }
                    }
                    if (!scratch && random.nextInt(10) == 0) {
                        if (random.nextBoolean()) {
                            store.commit(++step);
                            committed = model.clone();
                        } else {
                            store.rollback();
                            model = committed.clone();
                        }
                    }
                }
            }
        }
    }

    @Test
    void manyAtOnce() {
        try (NvmeStore store = open()) {
            int n = 40;
            Region region = store.region("r", DataType.FLOAT32, n * 3000L);
            Buffer[] buffers = new Buffer[n];
            IoTicket[] tickets = new IoTicket[n];
            // 12,000 bytes each: neighbours share blocks, which several threads change.
            for (int i = 0; i < n; i++) {
                buffers[i] = filled(3000, i);
                tickets[i] = store.write(region, i * 3000L, buffers[i]);
            }
            store.commit(1);
            for (IoTicket t : tickets) {
                assertTrue(t.isDone());
                assertNull(t.error());
            }
            try (Buffer b = pool.allocate(DataType.FLOAT32, 3000)) {
                for (int i = 0; i < n; i++) {
                    read(store, region, i * 3000L, b);
                    assertSameBytes(buffers[i], b);
                    buffers[i].close();
                }
            }
            assertEquals(n * 12_000L, store.stats().bytesWritten());
        }
    }

    @Test
    void memoryOnTheHeapWorksToo() {
        try (NvmeStore store = open()) {
            Region region = store.region("r", DataType.FLOAT32, 5000);
            Buffer a = Buffer.wrap(MemorySegment.ofArray(new float[5000]), DataType.FLOAT32);
            fill(a, 5);
            region.write(a).await(WAIT);
            Buffer b = Buffer.wrap(MemorySegment.ofArray(new float[5000]), DataType.FLOAT32);
            region.read(b).await(WAIT);
            assertSameBytes(a, b);
            assertTrue(store.stats().copiedBlocks() > 0);
        }
    }

    @Test
    void alignedBlocksAreNotCopied() {
        try (NvmeStore store = open();
                Buffer a = filled(8192, 1)) {
            Region region = store.region("r", DataType.FLOAT32, 8192);
            region.write(a).await(WAIT);
            region.read(a).await(WAIT);
            assertEquals(0, store.stats().copiedBlocks());
        }
    }

    @Test
    void badArgumentsAreNamed() {
        try (NvmeStore store = open();
                Buffer b = filled(10, 1);
                Buffer ints = pool.allocate(DataType.INT32, 10)) {
            Region region = store.region("r", DataType.FLOAT32, 20);
            assertSame(region, store.region("r", DataType.FLOAT32, 20));
            for (String text :
                    new String[] {
                        message(() -> store.region("r", DataType.FLOAT32, 21)),
                        message(() -> store.read(region, 11, b)),
                        message(() -> store.read(region, -1, b)),
                        message(() -> store.write(region, 0, ints)),
                        message(() -> region.write(b)),
                    }) {
                assertTrue(text.contains("region 'r'"), text);
                assertTrue(text.contains("20"), text);
            }
            assertTrue(message(() -> store.region("", DataType.INT8, 1)).contains("0 characters"));
            assertTrue(message(() -> store.region("x", DataType.INT8, -1)).contains("-1"));
            assertTrue(message(() -> store.commit(-1)).contains("-1"));
            store.commit(5);
            assertTrue(message(() -> store.commit(5)).contains("5"));
        }
        for (int bytes : new int[] {0, 2048, 5000, 128 << 20}) {
            assertTrue(
                    message(() -> NvmeOptions.DEFAULT.withBlockBytes(bytes)).contains(" " + bytes));
        }
        assertTrue(
                message(() -> NvmeOptions.DEFAULT.withQueueDepth(0)).contains("queueDepth is 0"));
        assertTrue(message(() -> NvmeOptions.DEFAULT.withPendingOperations(0)).contains("is 0"));
        assertTrue(message(() -> NvmeOptions.DEFAULT.withTimeout(Duration.ZERO)).contains("PT0S"));
    }

    private static String message(Runnable r) {
        return String.valueOf(assertThrows(IllegalArgumentException.class, r::run).getMessage());
    }

    @Test
    void aFolderThatCannotBeUsedIsNamed() throws IOException {
        Path missing = folder.resolve("missing");
        JcclException e =
                assertThrows(JcclException.class, () -> NvmeStore.open(missing, budgets, SMALL));
        assertTrue(
                String.valueOf(e.getMessage()).contains(missing + " does not exist"),
                e.getMessage());
        Path file = Files.createFile(folder.resolve("file"));
        e = assertThrows(JcclException.class, () -> NvmeStore.open(file, budgets, SMALL));
        assertTrue(
                String.valueOf(e.getMessage()).contains(file + " is not a folder"), e.getMessage());
        // /proc refuses new files whoever asks.
        e =
                assertThrows(
                        JcclException.class,
                        () -> NvmeStore.open(Path.of("/proc/self"), budgets, SMALL));
        assertTrue(String.valueOf(e.getMessage()).contains("cannot be written"), e.getMessage());
        e =
                assertThrows(
                        JcclException.class,
                        () ->
                                NvmeStore.open(
                                        Path.of("/proc/self"), budgets, SMALL.withScratch(true)));
        assertTrue(String.valueOf(e.getMessage()).contains("/proc/"), e.getMessage());
    }

    @Test
    void theBudgetIsKept() {
        Budgets few = new Budgets(Map.of(Tier.NVME, 4096L + 2 * 8192));
        try (NvmeStore store = NvmeStore.open(folder, few, SMALL)) {
            store.region("a", DataType.INT8, 5000);
            OffloadMemoryException e =
                    assertThrows(
                            OffloadMemoryException.class,
                            () -> store.region("b", DataType.INT8, 1));
            assertEquals(Tier.NVME, e.tier());
            assertEquals(2L * 4096, e.asked());
            assertEquals(0, e.free());
            assertTrue(String.valueOf(e.getMessage()).contains("region 'b'"), e.getMessage());
            store.commit(1);
        }
        assertEquals(0, few.used(Tier.NVME));
        Budgets fewer = new Budgets(Map.of(Tier.NVME, 10_000L));
        OffloadMemoryException e =
                assertThrows(
                        OffloadMemoryException.class, () -> NvmeStore.open(folder, fewer, SMALL));
        assertEquals(4096 + 2L * 8192, e.asked());
        assertEquals(0, fewer.used(Tier.NVME));
        open().close();
    }

    @Test
    void moreThanTheDriveHasIsRefusedAtOnce() {
        try (NvmeStore store = open()) {
            long used = budgets.used(Tier.NVME);
            OffloadMemoryException e =
                    assertThrows(
                            OffloadMemoryException.class,
                            () -> store.region("huge", DataType.FLOAT32, 1L << 40));
            assertEquals(1L << 43, e.asked());
            assertTrue(e.free() > 0);
            assertEquals(used, budgets.used(Tier.NVME));
            store.region("small", DataType.FLOAT32, 10);
        }
    }

    @Test
    void oneProcessOpensAStoreOnce() {
        try (NvmeStore store = open()) {
            JcclException e = assertThrows(JcclException.class, this::open);
            assertTrue(
                    String.valueOf(e.getMessage()).contains("open in this process already"),
                    e.getMessage());
            store.region("r", DataType.INT8, 1);
        }
        open().close();
    }

    @Test
    void aScratchStoreLeavesNothing() throws IOException {
        try (NvmeStore store = NvmeStore.open(folder, budgets, SMALL.withScratch(true));
                NvmeStore second = NvmeStore.open(folder, budgets, SMALL.withScratch(true));
                Buffer a = filled(5000, 1);
                Buffer b = filled(5000, 2)) {
            Region region = store.region("r", DataType.FLOAT32, 5000);
            Region other = second.region("r", DataType.FLOAT32, 5000);
            region.write(a).await(WAIT);
            other.write(b).await(WAIT);
            try (Stream<Path> files = Files.list(folder)) {
                assertEquals(0, files.count());
            }
            try (Buffer c = pool.allocate(DataType.FLOAT32, 5000)) {
                region.read(c).await(WAIT);
                assertSameBytes(a, c);
            }
            assertThrows(IllegalStateException.class, () -> store.commit(1));
            assertThrows(IllegalStateException.class, store::rollback);
            long bytes = store.stats().fileBytes();
            region.close();
            region.close();
            assertThrows(IllegalStateException.class, () -> region.read(a));
            Region again = store.region("again", DataType.FLOAT32, 5000);
            again.read(a).await(WAIT);
            assertEquals(0, a.get(0));
            assertEquals(bytes, store.stats().fileBytes());
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void closedTwiceAndUsedAfterwards(boolean scratch) {
        NvmeStore store = NvmeStore.open(folder, budgets, SMALL.withScratch(scratch));
        Region region = store.region("r", DataType.FLOAT32, 10);
        store.close();
        store.close();
        try (Buffer b = filled(10, 1)) {
            assertThrows(IllegalStateException.class, () -> region.write(b));
        }
        assertThrows(IllegalStateException.class, () -> store.commit(1));
        assertThrows(IllegalStateException.class, () -> store.region("x", DataType.INT8, 1));
    }

    @Test
    void aClosedTicketIsRefused() {
        try (NvmeStore store = open();
                Buffer b = filled(10, 1)) {
            Region region = store.region("r", DataType.FLOAT32, 10);
            IoTicket t = region.write(b);
            t.await(WAIT);
            assertFalse(t.cancel());
            t.close();
            t.close();
            assertThrows(IllegalStateException.class, t::isDone);
            assertThrows(IllegalStateException.class, () -> t.await(WAIT));
            assertSame(t, region.write(b));
        }
    }
}
