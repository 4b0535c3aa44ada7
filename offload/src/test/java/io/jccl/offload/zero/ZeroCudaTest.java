package io.jccl.offload.zero;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import io.jccl.offload.optim.Adam;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Pairs;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Sharded state on GPUs, with ranks as threads on the fakes of libcudart and libnccl. Device memory
 * of the fake cannot be touched by the CPU, and it adds in rank order as {@link
 * io.jccl.Algorithm#DIRECT} does, so that parameters of two ranks are those of the host device bit
 * for bit.
 */
@UsesFakes
@Timeout(value = 300, unit = TimeUnit.SECONDS)
class ZeroCudaTest {
    private static final int STEPS = 3;
    private static final double RATE = 0.01;
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(30));

    @TempDir Path folder = Path.of("");

    /** What one rank does. */
    interface Body {
        void run(Communicator comm, Demo.Memory memory) throws Exception;
    }

    @BeforeEach
    void useTheDoubles() throws Exception {
        TestFake.use();
    }

    @AfterEach
    void reset() {
        TestFake.reset();
    }

    /** Runs ranks on GPUs, or on the host device; each with a real drive if there is a folder. */
    static void onRanks(int ranks, boolean gpus, @Nullable Path drives, Body body)
            throws InterruptedException {
        List<Device> devices =
                gpus ? TestFake.ranks(ranks) : Collections.nCopies(ranks, Device.host());
        CommunicatorOptions options = gpus ? OPTIONS : Demo.IN_RANK_ORDER;
        Map<Integer, Throwable> errors = new ConcurrentHashMap<>();
        List<Thread> threads = new ArrayList<>();
        for (Communicator c : Communicator.local(devices, options)) {
            threads.add(
                    Thread.ofPlatform()
                            .daemon()
                            .name("rank " + c.rank())
                            .start(() -> {
                                try (c) {
                                    rank(c, devices.get(c.rank()), drives, body);
                                } catch (Throwable e) {
                                    errors.put(c.rank(), e);
                                }
                            }));
        }
        for (Thread t : threads) {
            assertTrue(t.join(PATIENCE), () -> t.getName() + " hangs");
        }
        if (!errors.isEmpty()) {
            AssertionError first = new AssertionError("ranks failed: " + errors);
            errors.values().forEach(first::addSuppressed);
            throw first;
        }
    }

    private static void rank(Communicator c, Device device, @Nullable Path drives, Body body)
            throws Exception {
        try (NvmeStore store = drives == null ? null : drive(drives, c.rank());
                Demo.Memory memory = new Demo.Memory(device, Map.of(), store)) {
            body.run(c, memory);
        }
    }

    /** Objects of CUDA and NCCL that were not freed; nobody frees ids that were not used. */
    private static long live() {
        return TestFake.live("all") - TestFake.live("jobs");
    }

    /**
     * The same once it no longer changes: what is freed in the order of a stream is freed later.
     */
    static long settled() throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        long live = live();
        for (int same = 0; same < 30 && System.nanoTime() < deadline; same++) {
            Thread.sleep(10);
            long now = live();
            same = now == live ? same : 0;
            live = now;
        }
        return live;
    }

    private static NvmeStore drive(Path drives, int rank) throws Exception {
        Path mine = Files.createDirectories(drives.resolve("rank" + rank));
        NvmeOptions options = NvmeOptions.DEFAULT.withBlockBytes(4096).withScratch(true);
        return NvmeStore.open(mine, new Budgets(Map.of()), options);
    }

    static ZeroOptimizer create(Communicator c, ZeroOptions o, Demo.Memory memory) {
        return ZeroOptimizer.create(
                c, Demo.LAYERS, Adam.defaults(), o, Demo.noScale(), memory.tiers);
    }

    static float[] train(
            int ranks, boolean gpus, boolean streams, @Nullable Path drives, ZeroOptions o)
            throws InterruptedException {
        AtomicReferenceArray<float[]> results = new AtomicReferenceArray<>(ranks);
        onRanks(
                ranks,
                gpus,
                drives,
                (c, memory) -> {
                    try (ZeroOptimizer zero = create(c, o, memory);
                            Stream user = c.device().newStream()) {
                        Demo.initialize(zero, 17);
                        for (int s = 0; s < STEPS; s++) {
                            for (int m = 0; m < o.accumulation(); m++) {
                                java.util.Random data = Demo.data(17, s, m, c.rank());
                                if (streams) {
                                    boolean sums = m > 0 && addsInPlace(o);
                                    Demo.microStep(zero, data, user, memory.pinned, true, sums);
                                } else {
                                    Demo.microStep(zero, data);
                                }
                            }
                            assertTrue(zero.step(RATE).taken());
                        }
                        results.set(c.rank(), Demo.parameters(zero));
                    }
                });
        for (int r = 1; r < ranks; r++) {
            assertArrayEquals(results.get(0), results.get(r), "rank " + r);
        }
        return results.get(0);
    }

    private static boolean addsInPlace(ZeroOptions o) {
        return o.stage() <= 1 && o.gradients() == Tier.DEVICE && o.accumulator() == o.type();
    }

    /** What ranks have in common. */
    private record World(
            int ranks, int micros, DataType type, DataType accumulator, int prefetch) {}

    /** A stage on a tier each for parameters, gradients and optimizer state. */
    private record Place(int stage, Tier p, Tier g, Tier o) {}

    private static final List<World> WORLDS =
            List.of(
                    new World(1, 2, DataType.FLOAT32, DataType.FLOAT32, 1),
                    new World(2, 1, DataType.BFLOAT16, DataType.FLOAT32, 0),
                    new World(2, 3, DataType.FLOAT32, DataType.FLOAT32, 1),
                    new World(3, 2, DataType.BFLOAT16, DataType.BFLOAT16, 1),
                    new World(3, 2, DataType.BFLOAT16, DataType.FLOAT32, 2),
                    new World(4, 2, DataType.FLOAT16, DataType.FLOAT32, 1));

    private static List<Place> places() {
        List<Place> all = new ArrayList<>();
        for (int stage = 0; stage <= 3; stage++) {
            for (Tier p : Tier.values()) {
                for (Tier g : Tier.values()) {
                    for (Tier o : Tier.values()) {
                        if (o != Tier.DEVICE || (p == Tier.DEVICE && g == Tier.DEVICE)) {
                            all.add(new Place(stage, p, g, o));
                        }
                    }
                }
            }
        }
        return all;
    }

    static List<Arguments> allRuns() {
        return WORLDS.stream().map(world -> Arguments.of(world, places())).toList();
    }

    /**
     * Runs in which each two of stage and tiers meet, spread over worlds with every type, of two to
     * four ranks.
     */
    static List<Arguments> someRuns() {
        List<World> worlds = WORLDS.stream().filter(w -> w.ranks > 1 && w.prefetch < 2).toList();
        List<Place> some = Pairs.covering(places(), p -> List.of(p.stage, p.p, p.g, p.o));
        return IntStream.range(0, worlds.size())
                .mapToObj(w ->
                        Arguments.of(
                                worlds.get(w),
                                IntStream.range(0, some.size())
                                        .filter(i -> i % worlds.size() == w)
                                        .mapToObj(some::get)
                                        .toList()))
                .toList();
    }

    @ParameterizedTest
    @MethodSource("someRuns")
    void givesTheParametersOfTheHostDevice(World world, List<Place> places) throws Exception {
        equalsTheHostDevice(world, places);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("allRuns")
    void givesTheParametersOfTheHostDeviceOnAllTiers(World world, List<Place> places)
            throws Exception {
        equalsTheHostDevice(world, places);
    }

    /**
     * NCCL averages by a rounded factor, and rounds partial sums to the type. Adam takes a step of
     * the same length for the smallest gradient, so where one is nearly 0 its sign decides.
     */
    private static void assertClose(float[] expected, float[] actual, DataType type, Place place) {
        assertEquals(expected.length, actual.length, place::toString);
        float most = type == DataType.FLOAT32 ? 1e-5f : 1e-3f;
        long far =
                IntStream.range(0, expected.length)
                        .filter(i -> !(Math.abs(expected[i] - actual[i]) <= most))
                        .count();
        assertTrue(
                50 * far <= expected.length,
                () -> place + ": " + far + " of " + expected.length + " are off");
    }

    private static void equalsTheHostDevice(World world, List<Place> places) throws Exception {
        int ranks = world.ranks;
        DataType type = world.type;
        DataType accumulator = world.accumulator;
        // What devices keep for themselves is there afterwards.
        for (boolean streams : new boolean[] {false, true}) {
            ZeroOptions o =
                    ZeroOptions.stage(3)
                            .withTypes(type, accumulator)
                            .withTiers(Tier.PINNED, Tier.PINNED, Tier.PINNED);
            train(ranks, true, streams, null, o);
        }
        long before = settled();
        for (int stage : places.stream().mapToInt(Place::stage).distinct().toArray()) {
            ZeroOptions base =
                    ZeroOptions.stage(stage)
                            .withTypes(type, accumulator)
                            .withAccumulation(world.micros)
                            .withPrefetch(world.prefetch)
                            .withMaxNorm(0.5);
            float[] expected =
                    train(
                            ranks,
                            false,
                            false,
                            null,
                            base.withTiers(Tier.DEVICE, Tier.PINNED, Tier.PINNED));
            for (Place place : places) {
                if (place.stage == stage) {
                    Tier p = place.p;
                    Tier g = place.g;
                    Tier o = place.o;
                    boolean streams = (p.ordinal() + g.ordinal() + o.ordinal()) % 2 == 0;
                    float[] actual = train(ranks, true, streams, null, base.withTiers(p, g, o));
                    if (ranks == 2) {
                        assertArrayEquals(expected, actual, place::toString);
                    } else {
                        assertClose(expected, actual, type, place);
                    }
                }
            }
        }
        assertEquals(before, settled(), "all is freed");
    }

    /** Pinned memory of CUDA to and from a real drive. */
    @ParameterizedTest
    @CsvSource({"3"})
    void onARealDrive(int stage) throws Exception {
        ZeroOptions o =
                ZeroOptions.stage(stage)
                        .withTypes(DataType.BFLOAT16, DataType.FLOAT32)
                        .withAccumulation(2)
                        .withTiers(Tier.NVME, Tier.NVME, Tier.NVME);
        float[] expected = train(2, false, false, null, o);
        assertArrayEquals(expected, train(2, true, true, folder, o));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"0", "1", "2"})
    void onARealDriveInMoreStages(int stage) throws Exception {
        onARealDrive(stage);
    }

    /** What GPUs saved is read by the host device, and the other way round. */
    @Test
    void checkpointsMoveBetweenDevices() throws Exception {
        ZeroOptions o = ZeroOptions.stage(3).withTiers(Tier.DEVICE, Tier.PINNED, Tier.PINNED);
        ZeroOptions other = ZeroOptions.stage(1).withTiers(Tier.PINNED, Tier.NVME, Tier.NVME);
        AtomicReferenceArray<float[]> results = new AtomicReferenceArray<>(3);
        for (int part = 0; part < 4; part++) {
            boolean gpus = part % 2 == 0;
            int begin = part;
            onRanks(
                    3,
                    gpus,
                    null,
                    (c, memory) -> {
                        try (ZeroOptimizer zero = create(c, gpus ? o : other, memory)) {
                            if (begin == 0) {
                                Demo.initialize(zero, 5);
                            } else {
                                assertEquals(begin, zero.load(folder));
                            }
                            Demo.step(zero, 5, begin, 1, c.rank(), RATE);
                            zero.save(folder);
                            results.set(c.rank(), Demo.parameters(zero));
                        }
                    });
        }
        AtomicReferenceArray<float[]> whole = new AtomicReferenceArray<>(3);
        onRanks(
                3,
                false,
                null,
                (c, memory) -> {
                    try (ZeroOptimizer zero = create(c, o, memory)) {
                        Demo.initialize(zero, 5);
                        for (int s = 0; s < 4; s++) {
                            Demo.step(zero, 5, s, 1, c.rank(), RATE);
                        }
                        whole.set(c.rank(), Demo.parameters(zero));
                    }
                });
        assertArrayEquals(whole.get(0), results.get(0));
    }

    /** All ranks hear of it, all are back, and the step can be repeated. */
    @Test
    void aDriveThatFailsInTheUpdate() throws Exception {
        for (int stage = 0; stage <= 3; stage++) {
            ZeroOptions o = ZeroOptions.stage(stage).withTiers(Tier.DEVICE, Tier.PINNED, Tier.NVME);
            float[] expected = train(2, false, false, null, o);
            onRanks(
                    2,
                    true,
                    null,
                    (c, memory) -> {
                        try (ZeroOptimizer zero = create(c, o, memory)) {
                            Demo.initialize(zero, 17);
                            for (int s = 0; s < STEPS; s++) {
                                Demo.microStep(zero, Demo.data(17, s, 0, c.rank()));
                                if (s == 1) {
                                    if (c.rank() == 1) {
                                        memory.store.writesLeft.set(2);
                                    }
                                    assertThrows(JcclException.class, () -> zero.step(RATE));
                                    assertEquals(1, zero.steps());
                                    memory.store.writesLeft.set(Integer.MAX_VALUE);
                                }
                                assertTrue(zero.step(RATE).taken());
                            }
                            assertArrayEquals(expected, Demo.parameters(zero));
                        }
                    });
        }
    }

    /**
     * A copy that fails on one rank, wherever that is: steps are repeated by all, or a rank gives
     * up and the others hear of it. Whoever has all steps has the right parameters.
     */
    @ParameterizedTest
    @CsvSource({"3, PINNED"})
    void copiesThatFail(int stage, Tier parameters) throws Exception {
        copiesThatFail(stage, parameters, 12);
    }

    private void copiesThatFail(int stage, Tier parameters, int apart) throws Exception {
        ZeroOptions o =
                ZeroOptions.stage(stage)
                        .withTiers(parameters, Tier.PINNED, Tier.PINNED)
                        .withKeepPrevious(true);
        float[] expected = train(2, false, false, null, o);
        int repeated = 0;
        // Which copy has a number depends on the other rank: more are tried until one is survived.
        for (int which = 1; which <= 61 || (repeated == 0 && which <= 601); which += apart) {
            AtomicInteger repeats = new AtomicInteger();
            String what = "copy " + which;
            int from = which;
            onRanks(
                    2,
                    true,
                    null,
                    (c, memory) -> {
                        try (ZeroOptimizer zero = create(c, o, memory);
                                Stream user = c.device().newStream()) {
                            Demo.initialize(zero, 17);
                            if (c.rank() == 1) {
                                TestFake.inject("cudaMemcpyAsync:" + from + ":error=1");
                            }
                            repeats.addAndGet(trainInspiteOfErrors(zero, c, user, memory));
                            if (zero.steps() == STEPS) {
                                assertArrayEquals(expected, Demo.parameters(zero), what);
                            }
                        } catch (JcclException e) {
                            // The communicator is broken, or this rank gives up.
                            c.abort(what + ": " + e.getMessage());
                        }
                    });
            TestFake.reset();
            repeated += repeats.get();
        }
        System.out.println("copiesThatFail stage " + stage + ": " + repeated + " repeats");
        assertTrue(repeated > 0, "no error was survived");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"0, DEVICE", "1, PINNED", "2, PINNED", "3, DEVICE", "3, PINNED"})
    void copiesThatFailInMoreCases(int stage, Tier parameters) throws Exception {
        copiesThatFail(stage, parameters, 4);
    }

    static int trainInspiteOfErrors(
            ZeroOptimizer zero, Communicator c, Stream user, Demo.Memory memory) {
        int repeats = 0;
        while (zero.steps() < STEPS) {
            long step = zero.steps();
            Demo.microStep(
                    zero, Demo.data(17, step, 0, c.rank()), user, memory.pinned, false, false);
            while (zero.steps() == step) {
                try {
                    zero.step(RATE);
                } catch (JcclException e) {
                    if (repeats++ > 5 || String.valueOf(e.getMessage()).contains("mixture")) {
                        throw e;
                    }
                    if (String.valueOf(e.getMessage()).contains("gradients were lost")) {
                        break;
                    }
                }
            }
        }
        return repeats;
    }

    @Test
    void anInfinityOnOneGpuSkipsTheStepOnAll() throws Exception {
        ZeroOptions o = ZeroOptions.stage(2).withTiers(Tier.DEVICE, Tier.PINNED, Tier.PINNED);
        onRanks(
                2,
                true,
                null,
                (c, memory) -> {
                    try (ZeroOptimizer zero = create(c, o, memory)) {
                        Demo.initialize(zero, 1);
                        for (int i = Demo.LAYERS.size() - 1; i >= 0; i--) {
                            boolean bad = i == 1 && c.rank() == 1;
                            zero.gradients(i).set(0, bad ? Double.POSITIVE_INFINITY : 1);
                            zero.reduce(i);
                        }
                        assertFalse(zero.step(RATE).taken());
                        assertEquals(0, zero.steps());
                    }
                });
    }

    /** The budget of the device is respected, and all that was taken before is given back. */
    @Test
    void tooLittleDeviceMemory() throws Exception {
        long before = settled();
        onRanks(
                1,
                true,
                null,
                (c, unused) -> {
                    Map<Tier, Long> caps = Map.of(Tier.DEVICE, 300L);
                    try (Demo.Memory memory = new Demo.Memory(c.device(), caps, null)) {
                        ZeroOptions o =
                                ZeroOptions.stage(0)
                                        .withTiers(Tier.DEVICE, Tier.PINNED, Tier.PINNED);
                        OffloadMemoryException e =
                                assertThrows(
                                        OffloadMemoryException.class, () -> create(c, o, memory));
                        assertEquals(Tier.DEVICE, e.tier());
                    }
                });
        assertEquals(before, settled(), "all is freed");
    }

    @Test
    void stateOnTheDeviceNeedsGradientsAndParametersThere() throws Exception {
        onRanks(
                1,
                true,
                null,
                (c, memory) -> {
                    for (int k = 0; k < 2; k++) {
                        ZeroOptions o =
                                ZeroOptions.stage(1)
                                        .withTiers(
                                                k == 0 ? Tier.DEVICE : Tier.PINNED,
                                                k == 0 ? Tier.PINNED : Tier.DEVICE,
                                                Tier.DEVICE);
                        IllegalArgumentException e =
                                assertThrows(
                                        IllegalArgumentException.class, () -> create(c, o, memory));
                        String wrong = k == 0 ? "gradients are on tier PINNED" : "tier PINNED:";
                        assertTrue(String.valueOf(e.getMessage()).contains(wrong), e::toString);
                    }
                });
    }
}
