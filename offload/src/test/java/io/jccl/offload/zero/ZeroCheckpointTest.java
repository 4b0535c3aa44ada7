package io.jccl.offload.zero;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.AdamW;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(value = 120, unit = TimeUnit.SECONDS)
class ZeroCheckpointTest {
    private static final double RATE = 0.01;

    @TempDir Path folder;

    private interface Body {
        void run(ZeroOptimizer zero, int rank) throws Exception;
    }

    private static void world(int ranks, ZeroOptions o, Body body) {
        Communicator.runLocal(
                ranks,
                Demo.IN_RANK_ORDER,
                comm -> {
                    try (Demo.Memory memory = new Demo.Memory(Map.of());
                            ZeroOptimizer zero =
                                    ZeroOptimizer.create(
                                            comm,
                                            Demo.LAYERS,
                                            Adam.defaults(),
                                            o,
                                            new LossScale(8, 2, 0.5, 3),
                                            memory.tiers)) {
                        body.run(zero, comm.rank());
                    }
                });
    }

    private static ZeroOptions options(int stage, Tier tier) {
        return ZeroOptions.stage(stage)
                .withTypes(DataType.BFLOAT16, DataType.FLOAT32)
                .withTiers(tier, tier, tier);
    }

    /** An optimizer of other arguments is named, by all ranks, before a step mixes them up. */
    @Test
    void ranksHaveTheSameArguments() {
        List<ShardedLayer> two = List.of(ShardedLayer.of("a", 5), ShardedLayer.of("b", 3));
        List<ShardedLayer> longer = List.of(ShardedLayer.of("a", 6), ShardedLayer.of("b", 3));
        refused(two, longer, Adam.defaults(), ZeroOptions.stage(1));
        refused(two, two, AdamW.defaults(), ZeroOptions.stage(1));
        refused(two, two, Adam.defaults(), ZeroOptions.stage(2));
        refused(two, two, Adam.defaults(), ZeroOptions.stage(1).withAccumulation(2));
    }

    /** Rank 1 of 3 has these arguments, the others two layers, Adam and stage 1. */
    private void refused(
            List<ShardedLayer> layers,
            List<ShardedLayer> ofOne,
            Optimizer rule,
            ZeroOptions options) {
        Communicator.runLocal(
                3,
                comm -> {
                    boolean one = comm.rank() == 1;
                    try (ZeroOptimizer zero =
                            ZeroOptimizer.create(
                                    comm,
                                    one ? ofOne : layers,
                                    one ? rule : Adam.defaults(),
                                    one ? options : ZeroOptions.stage(1))) {
                        JcclException e =
                                assertThrows(
                                        JcclException.class,
                                        () -> zero.initialize((l, t, values) -> {}));
                        assertTrue(
                                String.valueOf(e.getMessage())
                                        .startsWith("the optimizer of rank 1 was created"),
                                e::toString);
                    }
                });
    }

    /** Through other numbers of ranks, stages and tiers, and back: not a bit is different. */
    @Test
    void loadsOnAnyNumberOfRanks() {
        AtomicReferenceArray<float[]> expected = new AtomicReferenceArray<>(1);
        world(
                3,
                options(2, Tier.DEVICE),
                (zero, rank) -> {
                    Demo.initialize(zero, 4);
                    for (int s = 0; s < 5; s++) {
                        if (s == 2) {
                            zero.save(folder.resolve("a"));
                        }
                        Demo.step(zero, 4, s, 1, rank, RATE);
                    }
                    if (rank == 0) {
                        expected.set(0, Demo.parameters(zero));
                        assertEquals(16, zero.lossScale());
                    } else {
                        Demo.parameters(zero);
                    }
                });
        String from = "a";
        int[] ranks = {1, 4, 2, 5};
        Tier[] tiers = {Tier.NVME, Tier.PINNED, Tier.DEVICE, Tier.NVME};
        int[] stages = {0, 3, 1, 2};
        for (int i = 0; i < ranks.length; i++) {
            Path source = folder.resolve(from);
            Path target = folder.resolve("to-" + i);
            world(
                    ranks[i],
                    options(stages[i], tiers[i]),
                    (zero, rank) -> {
                        assertEquals(2, zero.load(source));
                        assertEquals(2, zero.steps());
                        zero.save(target);
                    });
            from = "to-" + i;
        }
        Path last = folder.resolve(from);
        world(
                3,
                options(2, Tier.DEVICE),
                (zero, rank) -> {
                    zero.load(last);
                    for (int s = 2; s < 5; s++) {
                        Demo.step(zero, 4, s, 1, rank, RATE);
                    }
                    assertArrayEquals(expected.get(0), Demo.parameters(zero));
                    // Its counter of good steps was saved too.
                    assertEquals(16, zero.lossScale());
                });
    }

    private static List<Path> files(Path step) throws IOException {
        try (Stream<Path> list = Files.list(step)) {
            return list.sorted().toList();
        }
    }

    private static String fails(Path folder, Optimizer optimizer, List<ShardedLayer> layers) {
        try (Communicator comm = Communicator.local(1).getFirst();
                Demo.Memory memory = new Demo.Memory(Map.of());
                ZeroOptimizer zero =
                        ZeroOptimizer.create(
                                comm,
                                layers,
                                optimizer,
                                ZeroOptions.stage(0),
                                Demo.noScale(),
                                memory.tiers)) {
            zero.initialize((layer, tensor, values) -> values.set(0, 7));
            IOException e = assertThrows(IOException.class, () -> zero.load(folder));
            // Nothing has changed.
            zero.forEachParameter((layer, tensor, values) -> assertEquals(7, values.get(0)));
            assertEquals(7, zero.gather(0).get(0));
            return String.valueOf(e.getMessage());
        }
    }

    private void twoSteps(int ranks) {
        world(
                ranks,
                options(3, Tier.PINNED),
                (zero, rank) -> {
                    Demo.initialize(zero, 4);
                    for (int s = 0; s < 2; s++) {
                        Demo.step(zero, 4, s, 1, rank, RATE);
                        zero.save(folder);
                    }
                });
    }

    /** Any byte of any file: found, and the file is named. */
    @Test
    void aDamagedFileIsNamed() throws IOException {
        twoSteps(2);
        Path file = files(folder.resolve("step-000000000002")).getFirst();
        byte[] good = Files.readAllBytes(file);
        long seed = System.nanoTime();
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        for (int i = 0; i < 60; i++) {
            byte[] bad = good.clone();
            int at = i < 20 ? i : random.nextInt(bad.length);
            bad[at] ^= (byte) (1 + random.nextInt(255));
            Files.write(file, bad);
            String message = fails(folder, Adam.defaults(), Demo.LAYERS);
            assertTrue(message.contains(file.toString()), "byte " + at + ": " + message);
        }
        for (int length : new int[] {0, 5, 100, good.length - 1}) {
            Files.write(file, java.util.Arrays.copyOf(good, length));
            String message = fails(folder, Adam.defaults(), Demo.LAYERS);
            assertTrue(message.contains(file.toString()), "length " + length + ": " + message);
        }
        Files.write(file, good);
        world(1, options(0, Tier.DEVICE), (zero, rank) -> assertEquals(2, zero.load(folder)));
    }

    /** A save that was cut off: the step before it is loaded. */
    @Test
    void aStepThatIsNotWholeIsPassedOver() throws IOException {
        twoSteps(3);
        Path step = folder.resolve("step-000000000002");
        List<Path> files = files(step);
        Files.move(files.get(1), step.resolve(files.get(1).getFileName() + ".part"));
        world(2, options(1, Tier.DEVICE), (zero, rank) -> assertEquals(1, zero.load(folder)));
        // With none that is whole, what is missing is said.
        try (Stream<Path> old = Files.list(folder.resolve("step-000000000001"))) {
            for (Path p : old.toList()) {
                Files.delete(p);
            }
        }
        String message = fails(folder, Adam.defaults(), Demo.LAYERS);
        assertTrue(message.contains("ranks [0, 2] of 3"), message);
        assertTrue(message.contains("layer first"), message);
        message = fails(folder.resolve("nothing"), Adam.defaults(), Demo.LAYERS);
        assertTrue(message.contains("nothing has no whole step"), message);
    }

    @Test
    void filesOfAnotherModelOrOptimizer() {
        twoSteps(1);
        String message = fails(folder, new AdamW(0.9, 0.99, 1e-8, 0.1), Demo.LAYERS);
        assertTrue(message.contains("optimizer adam with 2"), message);
        assertTrue(message.contains("expected adamw"), message);
        message = fails(folder, Adam.defaults(), List.of(ShardedLayer.of("first", 42)));
        assertTrue(message.contains("3 layers, the model 1"), message);
        message =
                fails(
                        folder,
                        Adam.defaults(),
                        List.of(
                                Demo.LAYERS.get(0),
                                ShardedLayer.of("second", 24),
                                Demo.LAYERS.get(2)));
        assertTrue(message.contains("its layer 1"), message);
    }

    /** Nobody else would remove them, and each may be as large as a whole file. */
    @Test
    void whatAKilledSaveLeftIsRemovedByTheNextOfTheSameRank() throws IOException {
        Path step = Files.createDirectories(folder.resolve("step-000000000000"));
        Path left = Files.writeString(step.resolve("00123456789ab-00000-of-00001.shard.part"), "x");
        // Another save has made it, and locks it next.
        Path fresh = Files.createFile(step.resolve("00123456789ad-00000-of-00001.shard.part"));
        Path used = Files.createFile(step.resolve("00123456789ac-00000-of-00001.shard.part"));
        Path foreign = Files.createFile(step.resolve("00123456789ab-00001-of-00002.shard.part"));
        Path other = Files.createFile(step.resolve("notes.part"));
        try (FileChannel c = FileChannel.open(used, StandardOpenOption.WRITE)) {
            PartFiles.lock(c);
            c.write(ByteBuffer.wrap(new byte[] {1}));
            world(
                    1,
                    options(0, Tier.DEVICE),
                    (zero, rank) -> {
                        Demo.initialize(zero, 4);
                        zero.save(folder);
                        zero.load(folder);
                    });
        }
        assertFalse(Files.exists(left));
        for (Path p : List.of(used, fresh, foreign, other)) {
            assertTrue(Files.exists(p), p::toString);
        }
    }

    @Test
    void leftoversThatCannotBeListedAreNoError() {
        PartFiles.remove(folder.resolve("nothing"), "-00000-of-00001.shard");
    }

    /** Its files have the same names: those of a rank that did not ask the others. */
    @Test
    void anotherJobMaySaveAloneAtTheSameTime() throws IOException {
        Path step = Files.createDirectories(folder.resolve("step-000000000000"));
        Path used = step.resolve("0000000000000-00000-of-00001.shard.part");
        try (FileChannel c =
                FileChannel.open(used, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            PartFiles.lock(c);
            c.write(ByteBuffer.wrap(new byte[] {1}));
            world(
                    1,
                    options(0, Tier.DEVICE),
                    (zero, rank) -> {
                        Demo.initialize(zero, 4);
                        zero.saveAlone(folder);
                        zero.load(folder);
                    });
        }
        assertEquals(1, Files.size(used));
    }

    @Test
    void stepsThatNoFolderCanNumberAreRefused() {
        world(
                1,
                options(0, Tier.DEVICE),
                (zero, rank) -> {
                    ZeroOptimizer.StateInitializer none = (layer, tensor, moment, values) -> {};
                    for (long steps : new long[] {-1, 1_000_000_000_000L, Long.MAX_VALUE}) {
                        assertThrows(
                                IllegalArgumentException.class, () -> zero.restore(steps, none));
                    }
                    zero.restore(999_999_999_998L, none);
                    Demo.step(zero, 4, 0, 1, rank, RATE);
                    zero.save(folder);
                    assertThrows(
                            IllegalStateException.class,
                            () -> Demo.step(zero, 4, 1, 1, rank, RATE));
                    assertEquals(999_999_999_999L, zero.load(folder));
                });
    }

    @Test
    void ofSeveralSavesOfAStepTheLastIsLoaded() {
        world(
                1,
                options(0, Tier.DEVICE),
                (zero, rank) -> {
                    for (int i = 1; i <= 6; i++) {
                        int mark = i;
                        zero.initialize((layer, tensor, values) -> values.set(0, mark));
                        zero.save(folder);
                    }
                    zero.load(folder);
                    zero.forEachParameter(
                            (layer, tensor, values) -> assertEquals(6, values.get(0)));
                });
    }

    /** Whatever a rank's file system throws, the others do not wait for it. */
    @Test
    void aFolderThatOneRankCannotReadFailsOnAll() throws IOException {
        twoSteps(1);
        Path gone;
        try (FileSystem zip =
                FileSystems.newFileSystem(folder.resolve("a.zip"), Map.of("create", "true"))) {
            gone = zip.getPath("/");
        }
        world(
                2,
                options(1, Tier.DEVICE),
                (zero, rank) -> {
                    if (rank == 0) {
                        IOException e = assertThrows(IOException.class, () -> zero.load(gone));
                        assertTrue(String.valueOf(e.getMessage()).contains("cannot load"));
                    } else {
                        JcclException e =
                                assertThrows(JcclException.class, () -> zero.load(folder));
                        assertTrue(
                                String.valueOf(e.getMessage()).contains("rank 0 could not load"));
                    }
                });
    }

    /** Where nothing can be written, the error names the file, on the others the rank. */
    @Test
    void aFolderThatIsAFile() throws IOException {
        Path file = Files.writeString(folder.resolve("file"), "x");
        world(
                2,
                options(1, Tier.DEVICE),
                (zero, rank) -> {
                    Demo.initialize(zero, 4);
                    if (rank == 0) {
                        IOException e = assertThrows(IOException.class, () -> zero.save(file));
                        assertTrue(String.valueOf(e.getMessage()).contains(file.toString()));
                    } else {
                        JcclException e =
                                assertThrows(
                                        JcclException.class,
                                        () -> zero.save(folder.resolve("other")));
                        assertTrue(String.valueOf(e.getMessage()).contains("rank 0"));
                    }
                    // Both go on.
                    zero.save(folder.resolve("third"));
                });
    }
}
