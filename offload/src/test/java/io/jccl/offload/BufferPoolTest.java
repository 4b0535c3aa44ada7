package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@Isolated("JVM-wide settings")
class BufferPoolTest {
    private static final long MIB = 1 << 20;

    private static Budgets pinned(long bytes) {
        return new Budgets(Map.of(Tier.PINNED, bytes));
    }

    /** Makes a pool under a property. */
    private static BufferPool with(String property, Supplier<BufferPool> maker) {
        System.setProperty(property, "true");
        try {
            return maker.get();
        } finally {
            System.clearProperty(property);
        }
    }

    private static BufferPool poisoned() {
        return with(
                BufferPool.POISON_PROPERTY,
                () -> BufferPool.pinned(Device.host(), pinned(MIB), PoolOptions.DEFAULT));
    }

    @ParameterizedTest
    @CsvSource({"64, false", "4096, true"})
    void blocksNeverOverlapAndBecomeOneAgain(int alignment, boolean poison) {
        blocksNeverOverlapAndBecomeOneAgain(alignment, poison, 1500);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"64, false", "256, false", "4096, false", "64, true", "4096, true"})
    void blocksNeverOverlapAndBecomeOneAgainForLonger(int alignment, boolean poison) {
        blocksNeverOverlapAndBecomeOneAgain(alignment, poison, 4000);
    }

    private static void blocksNeverOverlapAndBecomeOneAgain(
            int alignment, boolean poison, int times) {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        Budgets budgets = pinned(64 * MIB);
        PoolOptions options = PoolOptions.DEFAULT.withSlabBytes(16 * MIB).withAlignment(alignment);
        try (BufferPool pool =
                with(
                        poison ? BufferPool.POISON_PROPERTY : BufferPool.LEAK_PROPERTY,
                        () -> BufferPool.pinned(Device.host(), budgets, options))) {
            List<Buffer> out = new ArrayList<>();
            for (int i = 0; i < times; i++) {
                if (out.isEmpty() || random.nextInt(5) < 3) {
                    long count = (long) Math.exp(random.nextDouble() * Math.log(500_000));
                    Buffer b;
                    try {
                        b = pool.allocate(DataType.INT32, count);
                    } catch (OffloadMemoryException e) {
                        out.remove(random.nextInt(out.size())).close();
                        continue;
                    }
                    assertEquals(0, b.address() % alignment);
                    int mark = i;
                    b.setLong(0, mark);
                    b.setLong(count - 1, mark);
                    out.add(b);
                } else {
                    Buffer b = out.remove(random.nextInt(out.size()));
                    assertEquals(b.getLong(0), b.getLong(b.count() - 1));
                    b.close();
                }
                out.sort((x, y) -> Long.compare(x.address(), y.address()));
                for (int k = 1; k < out.size(); k++) {
                    Buffer left = out.get(k - 1);
                    assertTrue(
                            left.address() + left.byteSize() <= out.get(k).address(),
                            () -> left + " overlaps its neighbour");
                }
            }
            out.forEach(Buffer::close);
            assertEquals(0, pool.stats().blocks());
            assertEquals(0, pool.stats().blockBytes());
            // Only whole slabs go back, so every one is a single block again.
            assertEquals(budgets.used(Tier.PINNED), pool.trim());
            assertEquals(0, budgets.used(Tier.PINNED));
        }
    }

    @Tag("exhaustive")
    @Test
    void tensorsOfATransformerWasteLittle() {
        try (BufferPool pool =
                BufferPool.pinned(Device.host(), pinned(4096 * MIB), PoolOptions.DEFAULT)) {
            long h = 1600;
            for (int layer = 0; layer < 8; layer++) {
                for (long count :
                        new long[] {
                            h, h, 3 * h * h, 3 * h, h * h, h, h, h, 4 * h * h, 4 * h, 4 * h * h, h
                        }) {
                    pool.allocate(DataType.BFLOAT16, count);
                }
            }
            BufferPool.Stats stats = pool.stats();
            System.out.println(stats + ", waste " + stats.waste());
            assertTrue(stats.waste() < 0.05, stats::toString);
            assertTrue(stats.slabBytes() < 1.5 * stats.askedBytes() + 256 * MIB, stats::toString);
        }
    }

    @Test
    void aBlockIsGivenBackOnceOnly() {
        try (BufferPool pool = BufferPool.pinned(Device.host(), pinned(MIB), PoolOptions.DEFAULT)) {
            long handle = pool.take(100);
            assertEquals(0, pool.address(handle) % 64);
            pool.give(handle);
            assertThrows(IllegalStateException.class, () -> pool.give(handle));
            assertThrows(IllegalStateException.class, () -> pool.address(handle));
            long other = pool.take(100);
            assertThrows(IllegalStateException.class, () -> pool.give(handle));
            pool.give(other);
            assertThrows(IllegalArgumentException.class, () -> pool.give(12345L << 33));

            Buffer b = pool.allocate(DataType.FLOAT32, 10);
            Buffer slice = b.slice(2, 3);
            b.close();
            b.close();
            assertThrows(IllegalStateException.class, () -> b.get(0));
            assertThrows(IllegalStateException.class, () -> slice.get(0));
            Buffer again = pool.allocate(DataType.FLOAT32, 10);
            b.close(); // does not touch the new owner's memory
            again.set(0, 7);
            assertEquals(7, again.get(0));
            assertEquals(1, pool.stats().blocks());
        }
    }

    @Test
    void theBudgetIsTheLimitAndTheMessageSaysIt() {
        Budgets budgets = pinned(10 * MIB);
        try (BufferPool pool = BufferPool.pinned(Device.host(), budgets, PoolOptions.DEFAULT)) {
            Buffer most = pool.allocate(DataType.UINT8, 9 * MIB);
            OffloadMemoryException e =
                    assertThrows(
                            OffloadMemoryException.class,
                            () -> pool.allocate(DataType.UINT8, 2 * MIB));
            assertEquals(2 * MIB, e.asked());
            assertTrue(String.valueOf(e.getMessage()).contains("PINNED"), e::getMessage);
            most.close();
            pool.allocate(DataType.UINT8, 10 * MIB).close();
        }
        assertEquals(0, budgets.used(Tier.PINNED));
    }

    @Test
    void closingThePoolEndsItsBuffers() {
        Budgets budgets = pinned(MIB);
        BufferPool pool = BufferPool.pinned(Device.host(), budgets, PoolOptions.DEFAULT);
        Buffer b = pool.allocate(DataType.FLOAT32, 10);
        pool.close();
        pool.close();
        assertThrows(IllegalStateException.class, () -> b.get(0));
        b.close();
        assertThrows(IllegalStateException.class, () -> pool.take(1));
        assertEquals(0, budgets.used(Tier.PINNED));
    }

    @Test
    void badNumbersAreRefused() {
        assertThrows(IllegalArgumentException.class, () -> new PoolOptions(0, 64));
        assertThrows(IllegalArgumentException.class, () -> new PoolOptions(1, 96));
        try (BufferPool pool = BufferPool.pinned(Device.host(), pinned(MIB), PoolOptions.DEFAULT)) {
            assertThrows(IllegalArgumentException.class, () -> pool.take(-1));
            assertThrows(IllegalArgumentException.class, () -> pool.allocate(DataType.INT8, -1));
        }
    }

    @Test
    void aSmallerSlabIsTakenWhereTheSystemHasNoWholeOne() {
        Budgets budgets = pinned(1024 * MIB);
        long most = 3 * MIB;
        try (BufferPool pool =
                new BufferPool(
                        Tier.PINNED,
                        budgets,
                        PoolOptions.DEFAULT,
                        bytes -> {
                            if (bytes > most) {
                                throw new JcclException("no " + bytes + " bytes");
                            }
                            return Device.host().allocate(DataType.UINT8, bytes);
                        },
                        Path.of("/proc/self"))) {
            pool.allocate(DataType.UINT8, 2 * MIB).close();
            assertEquals(2 * MIB, budgets.used(Tier.PINNED));
            OffloadMemoryException e =
                    assertThrows(
                            OffloadMemoryException.class,
                            () -> pool.allocate(DataType.UINT8, 4 * MIB));
            assertTrue(String.valueOf(e.getMessage()).contains("the system does not"));
            assertTrue(String.valueOf(e.getMessage()).contains("ulimit -l"), e::getMessage);
        }
        assertEquals(0, budgets.used(Tier.PINNED));
    }

    @Test
    void theLimitOfLockedMemoryIsLookedAtFirst(@TempDir Path proc) throws IOException {
        Files.writeString(
                proc.resolve("limits"),
                """
                Limit                     Soft Limit           Hard Limit           Units
                Max processes             unlimited            unlimited            processes
                Max locked memory         8388608              unlimited            bytes
                """);
        Files.writeString(proc.resolve("status"), "VmPeak:\t  9 kB\nVmLck:\t    1024 kB\n");
        List<Long> asked = new ArrayList<>();
        PoolOptions options = PoolOptions.DEFAULT.withSlabBytes(4 * MIB).withLockLimitCheck(true);
        try (BufferPool pool =
                new BufferPool(
                        Tier.PINNED,
                        pinned(1024 * MIB),
                        options,
                        bytes -> {
                            asked.add(bytes);
                            return Device.host().allocate(DataType.UINT8, bytes);
                        },
                        proc)) {
            OffloadMemoryException e =
                    assertThrows(OffloadMemoryException.class, () -> pool.take(8 * MIB));
            assertEquals(7 * MIB, e.free());
            assertEquals(8 * MIB, e.asked());
            String message = String.valueOf(e.getMessage());
            assertTrue(message.contains("8388608 bytes, 1048576 of them in use"), message);
            assertTrue(message.contains("ulimit -l 9216"), message);
            assertEquals(List.of(), asked);
            pool.give(pool.take(MIB));
            assertEquals(List.of(4 * MIB), asked);
        }
        assertEquals(
                Long.MAX_VALUE, LockLimit.read(proc.resolve("none")).free(), "unknown is no limit");
    }

    @Test
    void leaksAreKnownWithTheirStacks() {
        BufferPool pool =
                with(
                        BufferPool.LEAK_PROPERTY,
                        () -> BufferPool.pinned(Device.host(), pinned(MIB), PoolOptions.DEFAULT));
        pool.allocate(DataType.FLOAT32, 10).close();
        Buffer leaked = pool.allocate(DataType.FLOAT32, 11);
        List<BufferPool.Leak> leaks = pool.leaks();
        assertEquals(1, leaks.size());
        assertEquals(44, leaks.getFirst().bytes());
        assertFrom("leaksAreKnownWithTheirStacks", leaks.getFirst().taken());
        leaked.close();
        assertEquals(List.of(), pool.leaks());
        pool.close();
    }

    private static void assertFrom(String method, @Nullable Throwable stack) {
        assertTrue(
                stack != null
                        && Arrays.stream(stack.getStackTrace())
                                .anyMatch(f -> f.getMethodName().equals(method)),
                () -> "not from " + method + ": " + stack);
    }

    private static MemorySegment stale(BufferPool pool) {
        try (Buffer b = pool.allocate(DataType.FLOAT32, 100)) {
            b.set(3, 7);
            return b.asSegment();
        }
    }

    @ParameterizedTest
    @EnumSource
    void staleReadsSeeNoNumber(DataType type) {
        try (BufferPool pool = poisoned()) {
            Buffer before = pool.allocate(type, 100);
            Buffer stale = Buffer.wrap(before.asSegment(), type);
            before.zero();
            assertEquals(0, stale.get(99));
            before.close();
            double read = stale.get(99);
            assertTrue(Double.isNaN(read) || read == -1 || read > 200, type + " " + read);
            assertEquals(!type.isInteger(), Double.isNaN(read));
        }
    }

    @Test
    void staleWritesAreFoundByTheNextOwner() {
        try (BufferPool pool = poisoned()) {
            Buffer neighbour = pool.allocate(DataType.UINT8, 64);
            MemorySegment stale = stale(pool);
            stale.set(ValueLayout.JAVA_BYTE, 399, (byte) 5);
            IllegalStateException e =
                    assertThrows(
                            IllegalStateException.class, () -> pool.allocate(DataType.INT8, 1000));
            String message = String.valueOf(e.getMessage());
            for (String word :
                    List.of(
                            "PINNED, 400 bytes at 0x" + Long.toHexString(stale.address()),
                            "byte 399 is 0x05, expected 0xff")) {
                assertTrue(message.contains(word), message);
            }
            assertFrom("stale", e.getCause());
            assertFrom("stale", e.getSuppressed()[0]);
            // Said once, and nothing is lost by it.
            assertEquals(1, pool.stats().blocks());
            pool.allocate(DataType.INT8, 1000).close();
            neighbour.close();
            assertEquals(0, pool.stats().blocks());
        }
    }

    @Test
    void staleWritesAreFoundWhenMemoryGoesBackToTheSystem() {
        BufferPool pool = poisoned();
        stale(pool).set(ValueLayout.JAVA_BYTE, 0, (byte) 5);
        assertThrows(IllegalStateException.class, pool::trim);
        assertEquals(MIB, pool.trim());
        stale(pool).set(ValueLayout.JAVA_BYTE, 1, (byte) 5);
        IllegalStateException e = assertThrows(IllegalStateException.class, pool::close);
        assertTrue(String.valueOf(e.getMessage()).contains("byte 1 is 0x05"), e::toString);
        assertThrows(IllegalStateException.class, () -> pool.take(1));
        assertEquals(0, pool.stats().slabs());
    }

    /** What the Javadoc warns of. */
    @Test
    void withoutThePropertyTheNextOwnerIsReached() {
        try (BufferPool pool = BufferPool.pinned(Device.host(), pinned(MIB), PoolOptions.DEFAULT)) {
            MemorySegment stale = stale(pool);
            Buffer next = pool.allocate(DataType.FLOAT32, 100);
            assertEquals(7, next.get(3));
            stale.set(ValueLayout.JAVA_FLOAT, 0, 8);
            assertEquals(8, next.get(0));
            next.close();
        }
    }

    @Test
    void manyThreadsTakeAndGive() throws Exception {
        Budgets budgets = pinned(256 * MIB);
        try (BufferPool pool =
                        BufferPool.pinned(
                                Device.host(), budgets, PoolOptions.DEFAULT.withSlabBytes(MIB));
                ExecutorService threads = Executors.newFixedThreadPool(4)) {
            long seed = System.nanoTime();
            System.out.println("seed " + seed);
            List<Future<?>> all = new ArrayList<>();
            for (int t = 0; t < 4; t++) {
                int mark = t;
                Random random = new Random(seed + t);
                all.add(
                        threads.submit(() -> {
                            List<Buffer> mine = new ArrayList<>();
                            for (int i = 0; i < 5000; i++) {
                                if (mine.size() < 20) {
                                    Buffer b =
                                            pool.allocate(DataType.INT32, 1 + random.nextInt(5000));
                                    b.setLong(0, mark);
                                    b.setLong(b.count() - 1, mark);
                                    mine.add(b);
                                } else {
                                    Buffer b = mine.remove(random.nextInt(mine.size()));
                                    assertEquals(mark, b.getLong(0));
                                    assertEquals(mark, b.getLong(b.count() - 1));
                                    b.close();
                                }
                            }
                            mine.forEach(Buffer::close);
                        }));
            }
            for (Future<?> f : all) {
                f.get();
            }
            assertEquals(0, pool.stats().blocks());
            assertEquals(budgets.used(Tier.PINNED), pool.trim());
        }
    }
}
