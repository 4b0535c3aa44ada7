package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class BufferPoolTest {
    private static final long MIB = 1 << 20;

    private static Budgets pinned(long bytes) {
        return new Budgets(Map.of(Tier.PINNED, bytes));
    }

    @ParameterizedTest
    @ValueSource(ints = {64, 256, 4096})
    void blocksNeverOverlapAndBecomeOneAgain(int alignment) {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        Budgets budgets = pinned(64 * MIB);
        PoolOptions options = PoolOptions.DEFAULT.withSlabBytes(16 * MIB).withAlignment(alignment);
        try (BufferPool pool = BufferPool.pinned(Device.host(), budgets, options)) {
            List<Buffer> out = new ArrayList<>();
            for (int i = 0; i < 4000; i++) {
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
}
