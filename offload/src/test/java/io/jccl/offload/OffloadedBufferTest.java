package io.jccl.offload;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 60, unit = TimeUnit.SECONDS)
class OffloadedBufferTest {
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final long KIB = 1024;
    private static final int COUNT = 1000;

    /** Files that are arrays; can be told to fail, and counts. */
    private static final class MemoryStore implements TierStore {
        final Map<String, byte[]> files = new HashMap<>();
        int reads;
        int writes;
        @Nullable RuntimeException failure;

        @Override
        public Place place(String name, DataType type, long count) {
            byte[] file = files.computeIfAbsent(name, n -> new byte[(int) (count * type.size())]);
            return new Place() {
                @Override
                public Completion read(Buffer pinned) {
                    reads++;
                    pinned.copyFrom(java.lang.foreign.MemorySegment.ofArray(file));
                    return new Ended(failure);
                }

                @Override
                public Completion write(Buffer pinned) {
                    writes++;
                    pinned.copyTo(java.lang.foreign.MemorySegment.ofArray(file));
                    return new Ended(failure);
                }

                @Override
                public void close() {}
            };
        }
    }

    private record Ended(@Nullable RuntimeException failure) implements Completion {
        @Override
        public boolean isDone() {
            return true;
        }

        @Override
        public void await(Duration timeout) {
            if (failure != null) {
                throw failure;
            }
        }
    }

    private final Budgets budgets =
            new Budgets(Map.of(Tier.DEVICE, 64 * KIB, Tier.PINNED, 64 * KIB));
    private final MemoryStore store = new MemoryStore();
    private final TransferEngine engine =
            TransferEngine.create(Device.host(), TransferOptions.DEFAULT.withChunkBytes(512));
    private final BufferPool device =
            BufferPool.device(Device.host(), budgets, PoolOptions.DEFAULT);
    private final BufferPool pinned =
            BufferPool.pinned(Device.host(), budgets, PoolOptions.DEFAULT);
    private final Tiers tiers = new Tiers(engine, device, pinned, store);

    @AfterEach
    void nothingIsLeft() {
        assertEquals(0, device.stats().blocks());
        assertEquals(0, pinned.stats().blocks());
        engine.close();
        device.close();
        pinned.close();
    }

    private OffloadedBuffer buffer(Tier tier, boolean keepPinned) {
        return OffloadedBuffer.create(tiers, "w", DataType.INT32, COUNT, tier, keepPinned);
    }

    private static void fill(OffloadedBuffer b, Tier tier, int mark) {
        Buffer memory = b.pin(tier, WAIT);
        for (int i = 0; i < COUNT; i++) {
            memory.setLong(i, mark + i);
        }
        b.unpin(true);
    }

    private static void check(OffloadedBuffer b, Tier tier, int mark) {
        Buffer memory = b.pin(tier, WAIT);
        for (int i = 0; i < COUNT; i++) {
            assertEquals(mark + i, memory.getLong(i));
        }
        b.unpin(false);
    }

    @Test
    void contentFollowsAnyPathOfMovesAndChanges() {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        for (boolean keep : new boolean[] {false, true}) {
            try (OffloadedBuffer b = buffer(Tier.DEVICE, keep)) {
                fill(b, Tier.DEVICE, 1);
                int mark = 1;
                for (int i = 0; i < 300; i++) {
                    Tier tier = Tier.values()[random.nextInt(3)];
                    b.moveTo(tier, WAIT);
                    assertEquals(tier, b.tier());
                    if (tier != Tier.NVME) {
                        check(b, tier, mark);
                        if (random.nextInt(3) == 0) {
                            mark = random.nextInt();
                            fill(b, tier, mark);
                        }
                    }
                }
            }
        }
    }

    @Test
    void aCleanCopyIsNotWrittenBack() {
        try (OffloadedBuffer b = buffer(Tier.PINNED, true)) {
            fill(b, Tier.PINNED, 7);
            b.moveTo(Tier.DEVICE, WAIT);
            assertTrue(b.isClean(Tier.PINNED));
            long before = engine.toHostStats().transfers();
            b.moveTo(Tier.PINNED, WAIT);
            assertEquals(before, engine.toHostStats().transfers());
            check(b, Tier.PINNED, 7);

            b.moveTo(Tier.NVME, WAIT);
            assertEquals(1, store.writes);
            b.moveTo(Tier.DEVICE, WAIT);
            b.moveTo(Tier.NVME, WAIT);
            assertEquals(1, store.writes);
            assertEquals(1, store.reads);
            fill(b, Tier.DEVICE, 8);
            assertFalse(b.isClean(Tier.NVME));
            b.moveTo(Tier.NVME, WAIT);
            assertEquals(2, store.writes);
            check(b, Tier.PINNED, 8);
        }
    }

    @Test
    void inUseItStaysWhereItIs() {
        try (OffloadedBuffer b = buffer(Tier.DEVICE, false)) {
            Buffer first = b.pin(Tier.DEVICE, WAIT);
            assertSame(first, b.pin(Tier.DEVICE, WAIT));
            assertThrows(IllegalStateException.class, () -> b.startMove(Tier.PINNED, 0));
            assertThrows(IllegalStateException.class, () -> b.pin(Tier.PINNED, WAIT));
            assertThrows(IllegalStateException.class, b::close);
            b.unpin(false);
            assertTrue(b.isPinned());
            b.unpin(false);
            assertThrows(IllegalStateException.class, () -> b.unpin(false));
            b.moveTo(Tier.PINNED, WAIT);
            assertThrows(IllegalStateException.class, () -> first.get(0));
            assertThrows(IllegalArgumentException.class, () -> b.pin(Tier.NVME, WAIT));
        }
    }

    @Test
    void aMoveWithoutRoomChangesNothingAndCanBeRepeated() {
        try (OffloadedBuffer b = buffer(Tier.PINNED, false)) {
            fill(b, Tier.PINNED, 3);
            Buffer occupant = device.allocate(DataType.UINT8, 62 * KIB);
            OffloadMemoryException e =
                    assertThrows(OffloadMemoryException.class, () -> b.moveTo(Tier.DEVICE, WAIT));
            assertEquals(Tier.DEVICE, e.tier());
            assertEquals(Tier.PINNED, b.tier());
            check(b, Tier.PINNED, 3);
            b.moveTo(Tier.NVME, WAIT);
            assertThrows(OffloadMemoryException.class, () -> b.moveTo(Tier.DEVICE, WAIT));
            assertEquals(Tier.NVME, b.tier());
            assertEquals(0, pinned.stats().blocks());
            occupant.close();
            check(b, Tier.DEVICE, 3);
        }
    }

    @Test
    void aFailedWriteOrReadLeavesTheElementsWhereTheyWere() {
        try (OffloadedBuffer b = buffer(Tier.DEVICE, false)) {
            fill(b, Tier.DEVICE, 4);
            store.failure = new JcclException("the drive is gone");
            JcclException e = assertThrows(JcclException.class, () -> b.moveTo(Tier.NVME, WAIT));
            assertTrue(String.valueOf(e.getMessage()).contains("drive is gone"), e::getMessage);
            assertEquals(0, pinned.stats().blocks());
            check(b, Tier.DEVICE, 4);
            store.failure = null;
            b.moveTo(Tier.NVME, WAIT);
            store.failure = new JcclException("the drive is gone");
            assertThrows(JcclException.class, () -> b.pin(Tier.DEVICE, WAIT));
            assertEquals(Tier.NVME, b.tier());
            store.failure = null;
            check(b, Tier.DEVICE, 4);
        }
    }

    /** All wait for one move; which of them starts it is a race. */
    @Test
    void severalThreadsPinAtOnce() throws Exception {
        int users = 8;
        CyclicBarrier start = new CyclicBarrier(users);
        try (ExecutorService threads = Executors.newFixedThreadPool(users);
                OffloadedBuffer b = buffer(Tier.PINNED, false)) {
            Callable<Buffer> user =
                    () -> {
                        start.await();
                        return b.pin(Tier.DEVICE, WAIT);
                    };
            for (int round = 0; round < 100; round++) {
                for (Future<Buffer> f : threads.invokeAll(Collections.nCopies(users, user))) {
                    assertSame(b.memory(Tier.DEVICE), f.get());
                    b.unpin(false);
                }
                b.moveTo(Tier.PINNED, WAIT);
            }
        }
    }

    /** An event whose work failed. */
    private static final class Failed implements Event {
        @Override
        public void record(Stream stream) {}

        @Override
        public boolean query() {
            throw new IllegalStateException("the device is lost");
        }

        @Override
        public void synchronize(Duration timeout) {
            query();
        }

        @Override
        public Duration elapsedSince(Event begin) {
            return Duration.ZERO;
        }

        @Override
        public void close() {}
    }

    @Test
    void aMoveThatCannotStartHasEnded() {
        try (OffloadedBuffer b = buffer(Tier.PINNED, true);
                Event failed = new Failed()) {
            b.moveTo(Tier.DEVICE, WAIT);
            // The copy in pinned memory is as new: there is nothing to copy.
            assertThrows(IllegalStateException.class, () -> b.startMove(Tier.PINNED, 0, failed));
            assertEquals(Tier.DEVICE, b.tier());
            b.moveTo(Tier.PINNED, WAIT);
        }
    }

    @Test
    void workIsOrderedBehindAMove() {
        try (OffloadedBuffer b = buffer(Tier.PINNED, false)) {
            fill(b, Tier.PINNED, 11);
            b.startMove(Tier.DEVICE, 0);
            b.before(engine.compute());
            Buffer memory = b.memory(Tier.DEVICE);
            engine.compute().launchHostFunction(() -> memory.setLong(0, 2 * memory.getLong(0)));
            try (var done = Device.host().newEvent()) {
                done.record(engine.compute());
                b.pin(Tier.DEVICE, WAIT);
                b.unpin(true);
                b.startMove(Tier.PINNED, 0, done).await(WAIT);
            }
            assertEquals(22, b.pin(Tier.PINNED, WAIT).getLong(0));
            b.unpin(false);
        }
    }

    /** They would share one place, and one would get the other's values. */
    @Test
    void twoOpenBuffersOfOneNameAreNotBothInTheStore() {
        OffloadedBuffer one = buffer(Tier.PINNED, false);
        try (OffloadedBuffer two = buffer(Tier.PINNED, false)) {
            fill(one, Tier.PINNED, 1);
            fill(two, Tier.PINNED, 2);
            one.moveTo(Tier.NVME, WAIT);
            IllegalStateException e =
                    assertThrows(IllegalStateException.class, () -> two.moveTo(Tier.NVME, WAIT));
            assertTrue(String.valueOf(e.getMessage()).contains("buffer 'w'"), e::toString);
            assertThrows(IllegalStateException.class, () -> buffer(Tier.NVME, false));
            check(two, Tier.PINNED, 2);
            check(one, Tier.PINNED, 1);
            one.close();
            store.failure = new JcclException("broken");
            assertThrows(JcclException.class, () -> two.moveTo(Tier.NVME, WAIT));
            store.failure = null;
            two.moveTo(Tier.NVME, WAIT);
            check(two, Tier.PINNED, 2);
        } finally {
            one.close();
        }
    }

    @Test
    void withoutAStoreThereIsNoNvmeTier() {
        Tiers two = new Tiers(engine, device, pinned, null);
        try (OffloadedBuffer b =
                OffloadedBuffer.create(two, "w", DataType.INT32, COUNT, Tier.DEVICE, false)) {
            assertThrows(IllegalStateException.class, () -> b.moveTo(Tier.NVME, WAIT));
            assertEquals(Tier.DEVICE, b.tier());
        }
        assertThrows(IllegalArgumentException.class, () -> new Tiers(engine, pinned, device, null));
    }
}
