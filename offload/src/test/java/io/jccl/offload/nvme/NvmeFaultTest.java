package io.jccl.offload.nvme;

import static io.jccl.offload.nvme.NvmeStoreTest.SMALL;
import static io.jccl.offload.nvme.NvmeStoreTest.WAIT;
import static io.jccl.offload.nvme.NvmeStoreTest.assertSameBytes;
import static io.jccl.offload.nvme.NvmeStoreTest.fill;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.offload.Budgets;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

class NvmeFaultTest {
    private static final int COUNT = 50_000;

    private final Budgets budgets = new Budgets(Map.of());
    private final FaultyBackend faults = new FaultyBackend();
    private final Buffer a = Device.host().allocate(DataType.FLOAT32, COUNT);
    private final Buffer b = Device.host().allocate(DataType.FLOAT32, COUNT);
    private final Buffer c = Device.host().allocate(DataType.FLOAT32, COUNT);

    @TempDir private Path folder;

    NvmeFaultTest() {
        fill(a, 1);
        fill(b, 2);
    }

    @AfterEach
    void giveBack() {
        a.close();
        b.close();
        c.close();
        assertEquals(0, budgets.used(Tier.NVME));
    }

    private NvmeStore open() {
        return NvmeStore.open(folder, budgets, SMALL, faults);
    }

    private static Region region(NvmeStore store) {
        return store.region("r", DataType.FLOAT32, COUNT);
    }

    /** A store whose step 1 is {@link #a}. */
    private NvmeStore committed() {
        NvmeStore store = open();
        region(store).write(a).await(WAIT);
        store.commit(1);
        return store;
    }

    private void assertHolds(NvmeStore store, Buffer expected) {
        region(store).read(c).await(WAIT);
        assertSameBytes(expected, c);
    }

    /** After a fault in step 2: what step 1 had is back, and the step can be repeated. */
    private void assertCanBeRepeated(NvmeStore store) {
        assertEquals(OptionalLong.of(1), store.committedStep());
        store.rollback();
        assertHolds(store, a);
        region(store).write(b).await(WAIT);
        store.commit(2);
        store.close();
        try (NvmeStore again = open()) {
            assertEquals(OptionalLong.of(2), again.committedStep());
            assertHolds(again, b);
        }
    }

    /** The message of such an error is no more than the name of the file. */
    @Test
    void whyTheStoreCannotBeOpenedIsSaid() throws IOException {
        Files.createDirectories(folder.resolve("manifest.new/in the way"));
        JcclException e = assertThrows(JcclException.class, this::open);
        String said = String.valueOf(e.getMessage());
        assertTrue(said.contains("DirectoryNotEmptyException: " + folder), said);
    }

    /** What is committed to a file that nobody finds again would be lost. */
    @Test
    void aFileThatWasRemovedOrCutIsNotCommittedTo() throws IOException {
        Path data = folder.resolve("data");
        Path aside = folder.resolve("aside");
        try (NvmeStore store = committed()) {
            region(store).write(b).await(WAIT);
            Files.move(data, aside);
            assertNotCommitted(store, data + " was removed");
            Files.copy(aside, data);
            assertNotCommitted(store, data + " was replaced");
            Files.move(aside, data, StandardCopyOption.REPLACE_EXISTING);
            try (FileChannel f = FileChannel.open(data, StandardOpenOption.WRITE)) {
                f.truncate(8192);
            }
            assertNotCommitted(store, data + " was cut to 8192 bytes");
        }
    }

    private static void assertNotCommitted(NvmeStore store, String why) {
        JcclException e = assertThrows(JcclException.class, () -> store.commit(2));
        assertTrue(String.valueOf(e.getMessage()).contains(why), e::toString);
        assertEquals(OptionalLong.of(1), store.committedStep());
    }

    @Test
    void fullDrive() {
        NvmeStore store = committed();
        faults.quota = COUNT * 2L;
        IoTicket t = region(store).write(b);
        OffloadMemoryException e = assertThrows(OffloadMemoryException.class, () -> t.await(WAIT));
        assertEquals(e, t.error());
        assertEquals(Tier.NVME, e.tier());
        assertTrue(e.asked() > 0 && e.asked() <= 8192, e.getMessage());
        assertTrue(String.valueOf(e.getMessage()).contains("region 'r'"), e.getMessage());
        IllegalStateException refused =
                assertThrows(IllegalStateException.class, () -> store.commit(2));
        assertTrue(String.valueOf(refused.getMessage()).contains("rollback()"));
        faults.quota = Long.MAX_VALUE;
        assertCanBeRepeated(store);
    }

    @Test
    void aFailedWriteCanBeRepeatedWithoutRollback() {
        try (NvmeStore store = committed()) {
            faults.quota = COUNT * 2L;
            IoTicket t = region(store).write(b);
            assertThrows(OffloadMemoryException.class, () -> t.await(WAIT));
            faults.quota = Long.MAX_VALUE;
            region(store).write(b).await(WAIT);
            store.commit(2);
            assertHolds(store, b);
        }
    }

    @Test
    void fullDriveAtCommit() {
        NvmeStore store = committed();
        region(store).write(b).await(WAIT);
        faults.replaceFails = true;
        assertThrows(OffloadMemoryException.class, () -> store.commit(2));
        assertEquals(OptionalLong.of(1), store.committedStep());
        faults.replaceFails = false;
        store.commit(2);
        store.close();
        try (NvmeStore again = open()) {
            assertEquals(OptionalLong.of(2), again.committedStep());
            assertHolds(again, b);
        }
    }

    /** A real file system of 4 MiB. */
    @Test
    void fullFileSystem() throws Exception {
        Path small = Files.createDirectory(folder.resolve("small"));
        Process mount =
                new ProcessBuilder("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", "" + small)
                        .redirectErrorStream(true)
                        .start();
        String said =
                new String(
                        mount.getInputStream().readAllBytes(),
                        java.nio.charset.StandardCharsets.UTF_8);
        assumeTrue(mount.waitFor() == 0, "no file system can be mounted here: " + said);
        try {
            try (NvmeStore store = NvmeStore.open(small, budgets, SMALL)) {
                OffloadMemoryException e =
                        assertThrows(
                                OffloadMemoryException.class,
                                () -> store.region("big", DataType.INT8, 3 << 20));
                assertEquals(6L << 20, e.asked());
                assertTrue(e.free() > 3 << 20 && e.free() < 4 << 20, e.getMessage());
                region(store).write(a).await(WAIT);
                store.commit(1);
                region(store).write(b).await(WAIT);
                Path filler = small.resolve("filler");
                assertThrows(IOException.class, () -> Files.write(filler, new byte[4 << 20]));
                e = assertThrows(OffloadMemoryException.class, () -> store.commit(2));
                assertTrue(
                        String.valueOf(e.getMessage()).contains("No space left"), e.getMessage());
                assertEquals(OptionalLong.of(1), store.committedStep());
                assertHolds(store, b);
                Files.delete(filler);
                store.commit(2);
            }
            try (NvmeStore store = NvmeStore.open(small, budgets, SMALL)) {
                assertEquals(OptionalLong.of(2), store.committedStep());
                assertHolds(store, b);
            }
        } finally {
            assertEquals(0, new ProcessBuilder("umount", "" + small).start().waitFor());
        }
    }

    @Test
    void readErrorAndShortRead() {
        try (NvmeStore store = committed()) {
            faults.readsFail = true;
            IoTicket t = region(store).read(c);
            JcclException e = assertThrows(JcclException.class, () -> t.await(WAIT));
            assertTrue(
                    String.valueOf(e.getMessage()).contains("Input/output error"), e.getMessage());
            assertTrue(String.valueOf(e.getMessage()).contains("region 'r'"), e.getMessage());
            faults.readsFail = false;
            faults.readsAreShort = true;
            IoTicket s = region(store).read(c);
            CorruptStoreException x =
                    assertThrows(CorruptStoreException.class, () -> s.await(WAIT));
            assertTrue(String.valueOf(x.getMessage()).contains("short read"), x.getMessage());
            faults.readsAreShort = false;
            assertHolds(store, a);
        }
    }

    @Test
    void flushFails() {
        NvmeStore store = committed();
        region(store).write(b).await(WAIT);
        faults.forceFails = true;
        JcclException e = assertThrows(JcclException.class, () -> store.commit(2));
        assertTrue(
                String.valueOf(e.getMessage()).contains("step 2 is not committed"), e.getMessage());
        faults.forceFails = false;
        // Once a flush has failed, a second one that succeeds says nothing of the first's blocks.
        assertThrows(IllegalStateException.class, () -> store.commit(2));
        assertCanBeRepeated(store);
    }

    @Test
    void flushOfTheFolderFails() {
        try (NvmeStore store = committed()) {
            region(store).write(b).await(WAIT);
            faults.folderFlushFails = true;
            JcclException e = assertThrows(JcclException.class, () -> store.commit(2));
            assertTrue(String.valueOf(e.getMessage()).contains("opened again"), e.getMessage());
            assertThrows(JcclException.class, () -> region(store).write(b));
            assertHolds(store, b);
        }
        faults.folderFlushFails = false;
        try (NvmeStore store = open()) {
            assertEquals(OptionalLong.of(2), store.committedStep());
            assertHolds(store, b);
        }
    }

    private void flip(String file, long at) throws IOException {
        try (FileChannel channel =
                FileChannel.open(
                        folder.resolve(file), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            ByteBuffer one = ByteBuffer.allocate(1);
            channel.read(one, at);
            one.put(0, (byte) (one.get(0) ^ 1 << at % 8));
            channel.write(one.flip(), at);
        }
    }

    private CorruptStoreException refused(String file) {
        CorruptStoreException e = assertThrows(CorruptStoreException.class, this::open);
        assertEquals(folder.resolve(file).toString(), e.file());
        assertTrue(String.valueOf(e.getMessage()).contains("expected"), e.getMessage());
        assertTrue(String.valueOf(e.getMessage()).contains("found"), e.getMessage());
        return e;
    }

    /** Every bit of a manifest counts, wherever it is cut or changed; restored, it opens again. */
    @Test
    void damagedManifest() throws IOException {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        committed().close();
        Path manifest = folder.resolve("manifest");
        byte[] good = Files.readAllBytes(manifest);
        for (int i = 0; i < 40; i++) {
            flip("manifest", random.nextInt(good.length));
            refused("manifest");
            Files.write(manifest, good);
        }
        for (int length : new int[] {0, 1, 59, 60, good.length - 1}) {
            Files.write(manifest, java.util.Arrays.copyOf(good, length));
            refused("manifest");
        }
        Files.delete(manifest);
        refused("manifest");
        Files.write(manifest, good);
        try (NvmeStore store = open()) {
            assertHolds(store, a);
        }
    }

    @Test
    void damagedBlocks() throws IOException {
        committed().close();
        Path data = folder.resolve("data");
        byte[] good = Files.readAllBytes(data);
        // Where step 1 is: block 3 of slot 1, since nothing points to slot 0 at first.
        long slot = (COUNT * 4L + 4095) / 4096 * 4096;
        long position = 4096 + slot + 3L * 8192;
        flip("data", position + 100);
        try (NvmeStore store = open()) {
            IoTicket t = region(store).read(c);
            CorruptStoreException e =
                    assertThrows(CorruptStoreException.class, () -> t.await(WAIT));
            assertEquals(position, e.offset());
            assertEquals(data.toString(), e.file());
            assertTrue(
                    String.valueOf(e.getMessage()).contains("block 3 of region 'r'"),
                    e.getMessage());
            assertTrue(String.valueOf(e.getMessage()).contains("CRC32C 0x"), e.getMessage());
        }
        Files.write(data, java.util.Arrays.copyOf(good, good.length - 1));
        assertTrue(String.valueOf(refused("data").getMessage()).contains("" + good.length));
        Files.delete(data);
        assertTrue(String.valueOf(refused("data").getMessage()).contains("missing"));
        Files.write(data, good);
        flip("data", 3);
        assertEquals(0, refused("data").offset());
        Files.write(data, good);
        flip("data", 25);
        refused("data");
        Files.write(data, good);
        try (NvmeStore store = open()) {
            assertHolds(store, a);
            // Cut under the open store.
            try (FileChannel channel = FileChannel.open(data, StandardOpenOption.WRITE)) {
                channel.truncate(position);
            }
            IoTicket t = region(store).read(c);
            CorruptStoreException e =
                    assertThrows(CorruptStoreException.class, () -> t.await(WAIT));
            assertTrue(String.valueOf(e.getMessage()).contains("short read"), e.getMessage());
        }
    }

    @Test
    void foreignFiles() throws IOException {
        Files.writeString(folder.resolve("data"), "my thesis");
        Files.writeString(folder.resolve("manifest.new"), "my next manifest");
        refused("data");
        assertEquals("my next manifest", Files.readString(folder.resolve("manifest.new")));
        assertEquals("my thesis", Files.readString(folder.resolve("data")));
        Files.write(folder.resolve("data"), new byte[1 << 20]);
        refused("manifest");
        Files.delete(folder.resolve("data"));
        Files.writeString(folder.resolve("manifest"), "x".repeat(100));
        refused("manifest");
        Files.delete(folder.resolve("manifest"));
        Files.writeString(folder.resolve("lock"), "my door");
        refused("lock");
        assertEquals("my door", Files.readString(folder.resolve("lock")));
        Files.delete(folder.resolve("lock"));
        committed().close();
        Path other = Files.createDirectory(folder.resolve("other"));
        try (NvmeStore store = NvmeStore.open(other, budgets, SMALL)) {
            region(store).write(a).await(WAIT);
            store.commit(1);
        }
        Files.move(
                other.resolve("data"), folder.resolve("data"), StandardCopyOption.REPLACE_EXISTING);
        assertTrue(String.valueOf(refused("data").getMessage()).contains("another store"));
    }

    /** A store that was moved to a file system with larger blocks is shorter than one of them. */
    @Test
    void theProbeForDirectIoLeavesAShortFileAsItIs() throws Exception {
        Path file = Files.writeString(folder.resolve("short"), "a header");
        new FileBackend().open(file, NvmeOptions.DirectIo.AUTO, false).close();
        assertEquals("a header", Files.readString(file));
    }

    @Test
    void aFullQueueMakesTheCallerWait() throws Exception {
        NvmeOptions options = SMALL.withPendingOperations(2);
        try (NvmeStore store = NvmeStore.open(folder, budgets, options, faults)) {
            Region region = region(store);
            CountDownLatch gate = new CountDownLatch(1);
            faults.gate = gate;
            IoTicket first = region.write(a);
            IoTicket second = region.write(a);
            List<IoTicket> late = new ArrayList<>();
            Thread third = Thread.ofPlatform().start(() -> late.add(region.write(a)));
            while (third.getState() != Thread.State.TIMED_WAITING) {
                Thread.onSpinWait();
            }
            assertFalse(first.isDone());
            JcclTimeoutException e =
                    assertThrows(
                            JcclTimeoutException.class, () -> first.await(Duration.ofMillis(1)));
            assertTrue(String.valueOf(e.getMessage()).contains("region 'r'"), e.getMessage());
            faults.gate = null;
            gate.countDown();
            third.join();
            first.await(WAIT);
            second.await(WAIT);
            late.getFirst().await(WAIT);
        }
    }

    /** Otherwise the manifest would have the checksums of blocks that change after the flush. */
    @Test
    void writesWaitForTheEndOfACommit() throws Exception {
        CountDownLatch flushing = new CountDownLatch(1);
        CompletableFuture<Boolean> gate = new CompletableFuture<>();
        try (NvmeStore store = committed()) {
            Region region = region(store);
            region.write(b).await(WAIT);
            faults.beforeFlush =
                    () -> {
                        flushing.countDown();
                        gate.join();
                    };
            List<IoTicket> late = new ArrayList<>();
            Thread commit = Thread.ofPlatform().start(() -> store.commit(2));
            Thread write = Thread.ofPlatform().unstarted(() -> late.add(region.write(a)));
            try {
                flushing.await();
                write.start();
                while (write.isAlive() && write.getState() != Thread.State.TIMED_WAITING) {
                    Thread.onSpinWait();
                }
                assertTrue(write.isAlive(), "written while a commit was in progress");
            } finally {
                gate.complete(true);
            }
            commit.join();
            write.join();
            late.getFirst().await(WAIT);
        }
        try (NvmeStore store = open()) {
            assertEquals(OptionalLong.of(2), store.committedStep());
            assertHolds(store, b);
        }
    }

    /** A channel closes itself if a thread in it is interrupted. */
    @Test
    void anInterruptedThreadCommitsAndMakesRegions() {
        try (NvmeStore store = committed()) {
            region(store).write(b).await(WAIT);
            Thread.currentThread().interrupt();
            store.commit(2);
            store.region("another", DataType.FLOAT32, COUNT);
            assertTrue(Thread.interrupted());
            assertHolds(store, b);
            region(store).write(a).await(WAIT);
            store.commit(3);
        }
    }

    @Timeout(value = 60, unit = TimeUnit.SECONDS)
    @Test
    void aQueueThatDoesNotMoveIsReported() throws InterruptedException {
        NvmeOptions options = SMALL.withPendingOperations(1).withTimeout(Duration.ofMillis(50));
        CountDownLatch gate = new CountDownLatch(1);
        NvmeStore store = NvmeStore.open(folder, budgets, options, faults);
        try {
            Region region = region(store);
            faults.gate = gate;
            region.write(a);
            JcclTimeoutException e =
                    assertThrows(JcclTimeoutException.class, () -> region.write(a));
            assertTrue(
                    String.valueOf(e.getMessage()).contains("1 operations are pending"),
                    e.getMessage());
            e = assertThrows(JcclTimeoutException.class, () -> store.commit(1));
            assertTrue(String.valueOf(e.getMessage()).contains("1 of them writes"), e.getMessage());
            e = assertThrows(JcclTimeoutException.class, store::close);
            assertTrue(String.valueOf(e.getMessage()).contains("hang"), e.getMessage());
            // What hangs may yet write.
            JcclException locked =
                    assertThrows(
                            JcclException.class,
                            () -> NvmeStore.open(folder, budgets, options, faults));
            assertTrue(String.valueOf(locked.getMessage()).contains("is open"), locked::toString);
        } finally {
            gate.countDown();
        }
        faults.gate = null;
        for (boolean open = false; !open; Thread.sleep(1)) {
            try (NvmeStore again = NvmeStore.open(folder, budgets, SMALL, faults)) {
                open = again != store;
            } catch (JcclException e) {
                assertTrue(String.valueOf(e.getMessage()).contains("is open"), e::toString);
            }
        }
    }

    @Test
    void cancelledReadsAndWrites() {
        NvmeStore store = committed();
        CountDownLatch gate = new CountDownLatch(1);
        faults.gate = gate;
        IoTicket write = region(store).write(b);
        IoTicket read = region(store).read(c);
        assertTrue(write.cancel());
        assertTrue(read.cancel());
        assertTrue(write.cancel());
        faults.gate = null;
        gate.countDown();
        assertThrows(CancellationException.class, () -> write.await(WAIT));
        assertThrows(CancellationException.class, () -> read.await(WAIT));
        assertTrue(write.isDone());
        assertThrows(IllegalStateException.class, () -> store.commit(2));
        assertCanBeRepeated(store);
    }

    @Test
    void closeEndsWhatIsWaiting() throws InterruptedException {
        NvmeStore store = open();
        CountDownLatch gate = new CountDownLatch(1);
        faults.gate = gate;
        IoTicket first = region(store).write(a);
        IoTicket second = region(store).write(b);
        Thread opener =
                Thread.ofPlatform()
                        .start(() -> {
                            while (!second.isDone()) {
                                Thread.onSpinWait();
                            }
                            gate.countDown();
                        });
        store.close();
        assertThrows(CancellationException.class, () -> second.await(WAIT));
        assertThrows(CancellationException.class, () -> first.await(WAIT));
        opener.join();
        open().close();
    }

    /**
     * The power goes after every possible number of changes of the drive, and takes any of what was
     * not flushed with it. What is found afterwards is step 1 or step 2, whole.
     */
    @Test
    void noPowerAtAnyPoint() throws IOException {
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        committed().close();
        byte[] data = Files.readAllBytes(folder.resolve("data"));
        byte[] manifest = Files.readAllBytes(folder.resolve("manifest"));
        boolean[] found = new boolean[3];
        boolean survived = false;
        for (int power = 0; !survived; power++) {
            Files.write(folder.resolve("data"), data);
            Files.write(folder.resolve("manifest"), manifest);
            FaultyBackend failing = new FaultyBackend();
            try (NvmeStore store = NvmeStore.open(folder, budgets, SMALL, failing)) {
                failing.power = power;
                region(store).write(b).await(WAIT);
                store.commit(2);
                survived = true;
            } catch (JcclException e) {
                assertInstanceOf(IOException.class, e.getCause());
            }
            failing.losePower(random);
            try (NvmeStore store = open()) {
                int step = (int) store.committedStep().orElseThrow();
                found[step] = true;
                assertHolds(store, step == 1 ? a : b);
            }
        }
        assertTrue(found[1] && found[2]);
    }
}
