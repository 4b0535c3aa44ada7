package io.jccl.engine.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.PeerCopies;
import io.jccl.bindings.CudaException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.device.cuda.Gpus;
import io.jccl.error.JcclTimeoutException;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import io.jccl.testkit.Messages;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Operation;
import io.jccl.topology.Route;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@UsesFakes
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class CopyCollectivesTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration SHORT = Duration.ofMillis(60);

    private static final List<Operation> OPERATIONS =
            List.of(
                    Operation.BROADCAST,
                    Operation.SCATTER,
                    Operation.GATHER,
                    Operation.ALL_GATHER,
                    Operation.ALL_TO_ALL);

    private long live;

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @BeforeEach
    void start() {
        for (int d = 0; d < 8; d++) {
            Cuda.wrapStream(TestFake.device(d), 0).synchronize();
        }
        live = TestFake.live("all");
    }

    @AfterEach
    void nothingIsLeft() throws InterruptedException {
        TestFake.reset();
        TestFake.awaitLive(live, "all");
        assertEquals(0, Gpus.current());
    }

    // ---- machines and plans

    /** Links between all pairs, of widths that differ. */
    private static Topology mesh(int n) {
        Topology.Builder b = new Topology.Builder("mesh of " + n);
        for (int i = 0; i < n; i++) {
            b.addGpu(i, 70);
        }
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                int links = 1 + (i + j) % 2;
                b.link(i, j, LinkKind.NVLINK, links, 20.0 * links, Source.DEFAULT);
            }
        }
        return b.build();
    }

    private static Topology switched(int n) {
        Topology.Builder b = new Topology.Builder(n + " on a switch");
        for (int i = 0; i < n; i++) {
            b.addGpu(i, 90);
        }
        int sw = b.addSwitch("switch", Switch.Kind.NVSWITCH);
        for (int i = 0; i < n; i++) {
            b.link(i, sw, LinkKind.NVLINK, 18, 360, Source.DEFAULT);
        }
        return b.build();
    }

    private static Hop hop(Topology t, int from, int to) {
        Route route = Objects.requireNonNull(t.route(from, to));
        return new Hop(from, to, route);
    }

    private static Channel ring(Topology t, double gbps, List<Integer> order) {
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < order.size(); i++) {
            hops.add(hop(t, order.get(i), order.get((i + 1) % order.size())));
        }
        return new Channel.Ring(hops, gbps);
    }

    /** A tree from pairs of parent and child. */
    private static Channel tree(Topology t, double gbps, int root, int... edges) {
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < edges.length; i += 2) {
            hops.add(hop(t, edges[i], edges[i + 1]));
        }
        return new Channel.Tree(root, hops, gbps);
    }

    private static List<Channel> exchange(Topology t, int n, double gbps) {
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                if (i != j) {
                    hops.add(hop(t, i, j));
                }
            }
        }
        return List.of(new Channel.Exchange(hops, gbps));
    }

    private static List<Integer> upTo(int n) {
        return IntStream.range(0, n).boxed().toList();
    }

    private static Plan plan(
            Topology t, Operation op, List<Integer> gpus, int root, List<Channel> channels) {
        return new Plan(t, op, gpus, root, channels, 1, 1, "made by hand", List.of());
    }

    /** The same channels for all operations that they can serve from any root. */
    private static List<Plan> plans(Topology t, List<Integer> gpus, List<Channel> channels) {
        return OPERATIONS.stream().map(op -> plan(t, op, gpus, 0, channels)).toList();
    }

    private static List<Integer> shuffled(int n, long seed) {
        List<Integer> all = new ArrayList<>(upTo(n));
        java.util.Collections.shuffle(all, new Random(seed));
        return all;
    }

    /** Two rings of different bandwidth, opposite to each other. */
    private static List<Plan> rings(int n) {
        Topology t = mesh(n);
        List<Integer> order = shuffled(n, 7 + n);
        return plans(t, upTo(n), List.of(ring(t, 20, order), ring(t, 13.7, order.reversed())));
    }

    private static List<Device> devices(int n) {
        TestFake.needs(n);
        return IntStream.range(0, n).<Device>mapToObj(TestFake::device).toList();
    }

    // ---- running an operation

    /** Buffers and streams of all ranks, filled with what tells source and place. */
    private static final class Run implements AutoCloseable {
        final int n;
        final Operation op;
        final int root;
        final long block;
        final DataType type;
        final boolean inPlace;
        final List<Buffer> owned = new ArrayList<>();
        final List<Stream> streams = new ArrayList<>();
        final List<Buffer> send = new ArrayList<>();
        final List<Buffer> recv = new ArrayList<>();
        final Random random = new Random(5);
        final List<byte[]> given = new ArrayList<>();

        Run(
                List<? extends Device> devices,
                Operation op,
                int root,
                long block,
                DataType type,
                boolean inPlace) {
            this.n = devices.size();
            this.op = op;
            this.root = root;
            this.block = block;
            this.type = type;
            this.inPlace = inPlace;
            for (int r = 0; r < n; r++) {
                Device d = devices.get(r);
                streams.add(d.newStream());
                boolean many = op == Operation.SCATTER || op == Operation.ALL_TO_ALL;
                boolean all = op == Operation.GATHER || op == Operation.ALL_GATHER;
                boolean rooted = op != Operation.ALL_GATHER && op != Operation.ALL_TO_ALL;
                long sends = many ? n * block : block;
                long gets = op == Operation.ALL_TO_ALL || all ? n * block : block;
                boolean here = inPlace && (!rooted || r == root);
                Buffer s;
                Buffer g;
                if (!here) {
                    s = allocate(d, sends);
                    g = allocate(d, gets);
                } else if (sends >= gets) {
                    s = allocate(d, sends);
                    g = sends == gets ? s : s.slice(r * block, block);
                } else {
                    g = allocate(d, gets);
                    s = g.slice(r * block, block);
                }
                byte[] bytes = new byte[(int) s.byteSize()];
                random.nextBytes(bytes);
                s.copyFrom(MemorySegment.ofArray(bytes));
                given.add(bytes);
                send.add(s);
                recv.add(g);
            }
        }

        private Buffer allocate(Device d, long count) {
            Buffer made = d.allocate(type, count);
            owned.add(made);
            return made;
        }

        void call(PeerCopies copies) {
            switch (op) {
                case BROADCAST -> copies.broadcast(send.get(root), recv, root, streams);
                case SCATTER -> copies.scatter(send.get(root), recv, root, streams);
                case GATHER -> copies.gather(send, recv.get(root), root, streams);
                case ALL_GATHER -> copies.allGather(send, recv, streams);
                default -> copies.allToAll(send, recv, streams);
            }
        }

        void call(CopyEngine copies) {
            switch (op) {
                case BROADCAST -> copies.broadcast(send.get(root), recv, root, streams);
                case SCATTER -> copies.scatter(send.get(root), recv, root, streams);
                case GATHER -> copies.gather(send, recv.get(root), root, streams);
                case ALL_GATHER -> copies.allGather(send, recv, streams);
                default -> copies.allToAll(send, recv, streams);
            }
        }

        void synchronize() {
            for (Stream s : streams) {
                s.synchronize(PATIENCE);
            }
        }

        byte[] expected(int rank) {
            int b = (int) (block * type.size());
            byte[] all = new byte[(int) recv.get(rank).byteSize()];
            switch (op) {
                case BROADCAST -> System.arraycopy(given.get(root), 0, all, 0, b);
                case SCATTER -> System.arraycopy(given.get(root), rank * b, all, 0, b);
                case GATHER, ALL_GATHER -> {
                    for (int o = 0; o < n; o++) {
                        System.arraycopy(given.get(o), 0, all, o * b, b);
                    }
                }
                default -> {
                    for (int o = 0; o < n; o++) {
                        System.arraycopy(given.get(o), rank * b, all, o * b, b);
                    }
                }
            }
            return all;
        }

        byte[] got(int rank) {
            byte[] bytes = new byte[(int) recv.get(rank).byteSize()];
            recv.get(rank).copyTo(MemorySegment.ofArray(bytes));
            return bytes;
        }

        void check() {
            synchronize();
            for (int r = 0; r < n; r++) {
                if (op == Operation.GATHER && r != root) {
                    continue;
                }
                int at = Arrays.mismatch(expected(r), got(r));
                assertEquals(
                        -1,
                        at,
                        op
                                + " from "
                                + root
                                + ", "
                                + block
                                + " of "
                                + type
                                + " on rank "
                                + r
                                + (inPlace ? " in place" : ""));
            }
        }

        @Override
        public void close() {
            streams.forEach(Stream::close);
            owned.forEach(Buffer::close);
        }
    }

    private static void runAll(PeerCopies copies, long block, DataType type) {
        int n = copies.size();
        for (Operation op : OPERATIONS) {
            boolean rooted = op != Operation.ALL_GATHER && op != Operation.ALL_TO_ALL;
            for (int root = 0; root < (rooted ? n : 1); root += Math.max(1, n - 1)) {
                for (boolean inPlace : new boolean[] {false, true}) {
                    try (Run run = new Run(copies.devices(), op, root, block, type, inPlace)) {
                        run.call(copies);
                        run.check();
                    }
                }
            }
        }
    }

    // ---- correct

    @ParameterizedTest
    @ValueSource(ints = {1, 3, 4})
    void allOperationsOverRings(int n) {
        try (PeerCopies copies = PeerCopies.of(devices(n), rings(n), PeerCopies.Settings.DEFAULT)) {
            assertEquals(n * (n - 1), copies.peers());
            for (long block : new long[] {0, 1, 3, 257, 100_003}) {
                runAll(copies, block, DataType.INT8);
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2, 5, 8})
    void allOperationsOverMoreRings(int n) {
        allOperationsOverRings(n);
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void allTypes(DataType type) {
        try (PeerCopies copies = PeerCopies.of(devices(3), rings(3), PeerCopies.Settings.DEFAULT)) {
            runAll(copies, 513, type);
        }
    }

    @ParameterizedTest
    @ValueSource(ints = 3)
    void allOperationsOverAnExchange(int n) {
        Topology t = switched(n);
        try (PeerCopies copies =
                PeerCopies.of(
                        devices(n),
                        plans(t, upTo(n), exchange(t, n, 360.0 / (n - 1))),
                        PeerCopies.Settings.DEFAULT)) {
            runAll(copies, 1, DataType.INT8);
            runAll(copies, 70_001, DataType.FLOAT32);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2, 8})
    void allOperationsOverLessAndMore(int n) {
        allOperationsOverAnExchange(n);
    }

    /** A megabyte, which a few chunks and a part of one make. */
    @ParameterizedTest
    @ValueSource(longs = 100_000)
    void megabytesInChunks(long chunk) {
        inChunks(chunk, 750_001);
    }

    private static void inChunks(long chunk, long block) {
        try (PeerCopies copies =
                PeerCopies.of(devices(4), rings(4), new PeerCopies.Settings(chunk))) {
            runAll(copies, block, DataType.INT8);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(longs = {0, 100_000, 1 << 20, 1 << 30})
    void megabytesInChunksOfOtherSizes(long chunk) {
        inChunks(chunk, 3_000_001);
    }

    /** What the planner gives for a small machine. */
    @Test
    void allOperationsOverThePlannersPlans() {
        overThePlannersPlans(mesh(3), 20_003);
    }

    @Tag("exhaustive")
    @Test
    void allOperationsOverPlansForMachinesOfThreeKinds() {
        for (Topology t : List.of(mesh(4), switched(4), mesh(3))) {
            overThePlannersPlans(t, 200_003);
        }
    }

    private static void overThePlannersPlans(Topology t, long count) {
        int n = t.gpus().size();
        // Devices in another order than GPUs.
        List<Integer> gpus = shuffled(n, 3);
        List<Device> devices = gpus.stream().map(TestFake::device).toList();
        try (PeerCopies copies = PeerCopies.of(t, gpus, devices, PeerCopies.Settings.DEFAULT)) {
            runAll(copies, 5, DataType.INT32);
            runAll(copies, count, DataType.INT32);
        }
    }

    /** Rooted trees: each with a share of its bandwidth, and inner nodes that pass blocks on. */
    @Test
    void treesPackedFromOneRoot() {
        Topology t = mesh(4);
        List<Integer> gpus = upTo(4);
        List<Channel> trees =
                List.of(
                        tree(t, 20, 0, 0, 1, 1, 2, 1, 3),
                        tree(t, 10, 0, 0, 2, 2, 3, 3, 1),
                        tree(t, 5, 0, 0, 3, 0, 1, 3, 2));
        List<Plan> plans =
                List.of(
                        plan(t, Operation.BROADCAST, gpus, 0, trees),
                        plan(t, Operation.SCATTER, gpus, 0, trees),
                        plan(t, Operation.GATHER, gpus, 0, trees));
        try (PeerCopies copies = PeerCopies.of(devices(4), plans, PeerCopies.Settings.DEFAULT)) {
            for (Operation op : List.of(Operation.BROADCAST, Operation.SCATTER, Operation.GATHER)) {
                for (long block : new long[] {1, 1000, 1_000_003}) {
                    try (Run run = new Run(devices(4), op, 0, block, DataType.INT8, false)) {
                        run.call(copies);
                        run.check();
                    }
                }
            }
            String message;
            try (Run run = new Run(devices(4), Operation.BROADCAST, 2, 9, DataType.INT8, false)) {
                message = Messages.of(IllegalArgumentException.class, () -> run.call(copies));
                assertTrue(message.contains("no channel that brings data of rank 2"), message);
            }
            try (Run run = new Run(devices(4), Operation.ALL_GATHER, 0, 9, DataType.INT8, false)) {
                message = Messages.of(IllegalArgumentException.class, () -> run.call(copies));
                assertTrue(message.contains("no plan for all_gather"), message);
            }
        }
    }

    /** Random trees, sizes and chunks; calls follow each other without waits in between. */
    @Tag("exhaustive")
    @Test
    void randomPlansWithoutWaits() {
        long seed = System.nanoTime();
        System.out.println("CopyCollectivesTest.randomPlansWithoutWaits: seed " + seed);
        Random random = new Random(seed);
        for (int i = 0; i < 12; i++) {
            int n = 2 + random.nextInt(5);
            Topology t = mesh(n);
            List<Channel> channels = new ArrayList<>();
            for (int root = 0; root < n; root++) {
                for (int c = 0; c <= random.nextInt(3); c++) {
                    channels.add(randomTree(t, n, root, random));
                }
            }
            List<Plan> plans = plans(t, upTo(n), channels);
            List<Run> runs = new ArrayList<>();
            try (PeerCopies copies =
                    PeerCopies.of(
                            devices(n),
                            plans,
                            new PeerCopies.Settings(random.nextInt(2) * 30_000L))) {
                for (int k = 0; k < 8; k++) {
                    Operation op = OPERATIONS.get(random.nextInt(OPERATIONS.size()));
                    boolean rooted = op != Operation.ALL_GATHER && op != Operation.ALL_TO_ALL;
                    Run run =
                            new Run(
                                    devices(n),
                                    op,
                                    rooted ? random.nextInt(n) : 0,
                                    random.nextInt(300_000),
                                    DataType.UINT8,
                                    random.nextBoolean());
                    runs.add(run);
                    run.call(copies);
                }
                runs.forEach(Run::check);
            } finally {
                runs.forEach(Run::close);
            }
        }
    }

    private static Channel randomTree(Topology t, int n, int root, Random random) {
        List<Integer> in = new ArrayList<>(List.of(root));
        List<Integer> out = new ArrayList<>(upTo(n));
        out.remove(Integer.valueOf(root));
        int[] edges = new int[2 * (n - 1)];
        for (int e = 0; !out.isEmpty(); e += 2) {
            edges[e] = in.get(random.nextInt(in.size()));
            edges[e + 1] = out.remove(random.nextInt(out.size()));
            in.add(edges[e + 1]);
        }
        return tree(t, 1 + random.nextInt(30), root, edges);
    }

    @Test
    void withoutPeerAccess() {
        TestFake.inject("cudaDeviceEnablePeerAccess:*:error=711");
        try (PeerCopies copies = PeerCopies.of(devices(3), rings(3), PeerCopies.Settings.DEFAULT)) {
            assertEquals(0, copies.peers());
            runAll(copies, 1000, DataType.INT32);
        }
    }

    // ---- order and overlap

    @Test
    void startsBehindTheStreamsAndTheyGoOnBehindIt() {
        try (PeerCopies copies = PeerCopies.of(devices(3), rings(3), PeerCopies.Settings.DEFAULT);
                Run run =
                        new Run(
                                devices(3),
                                Operation.ALL_GATHER,
                                0,
                                100_000,
                                DataType.INT8,
                                false);
                Buffer late = TestFake.device(1).allocate(DataType.INT8, 100_000);
                Buffer out = Cuda.pinned(DataType.INT8, 300_000);
                Gpus.Gate gate = new Gpus.Gate()) {
            byte[] bytes = new byte[100_000];
            Arrays.fill(bytes, (byte) 77);
            late.copyFrom(MemorySegment.ofArray(bytes));
            gate.holdUp(run.streams.get(1));
            run.streams.get(1).copy(late, run.send.get(1));
            run.given.set(1, bytes);
            run.call(copies);
            run.streams.get(0).copy(run.recv.get(0), out);
            assertFalse(run.streams.get(0).query(), "rank 0 needs what rank 1 has not got yet");
            assertThrows(JcclTimeoutException.class, () -> run.streams.get(0).synchronize(SHORT));
            gate.open();
            run.check();
            assertEquals(-1, Arrays.mismatch(run.expected(0), bytes(out)), "the stream's next");
        }
    }

    private static byte[] bytes(Buffer buffer) {
        byte[] bytes = new byte[(int) buffer.byteSize()];
        buffer.copyTo(MemorySegment.ofArray(bytes));
        return bytes;
    }

    /** A held-up hop stops those behind it only: the hop before it brings all its chunks. */
    @Test
    void hopsRunSideBySide() {
        Topology t = mesh(4);
        List<Plan> plans =
                List.of(
                        plan(
                                t,
                                Operation.BROADCAST,
                                upTo(4),
                                0,
                                List.of(tree(t, 20, 0, 0, 1, 1, 2, 2, 3))));
        try (CopyEngine copies = new CopyEngine(devices(4), plans, null, 10_000);
                Run run =
                        new Run(devices(4), Operation.BROADCAST, 0, 100_000, DataType.INT8, false);
                Gpus.Gate gate = new Gpus.Gate()) {
            run.call(copies);
            run.check();
            for (Buffer b : run.recv) {
                b.zero();
            }
            Stream second = Cuda.wrapStream(TestFake.device(1), copies.laneStream(0, 1, 2));
            Stream first = Cuda.wrapStream(TestFake.device(0), copies.laneStream(0, 0, 1));
            gate.holdUp(second);
            run.call(copies);
            first.synchronize(PATIENCE);
            assertEquals(-1, Arrays.mismatch(run.expected(1), run.got(1)), "all chunks are there");
            assertEquals(-1, Arrays.mismatch(new byte[100_000], run.got(2)), "none went on");
            gate.open();
            run.check();
        }
    }

    /** The order in which copies are enqueued is that of a pipeline. */
    @Test
    void chunksFollowEachOther() {
        Topology t = mesh(4);
        Map<Integer, Integer> ranks = new HashMap<>();
        upTo(4).forEach(i -> ranks.put(i, i));
        CopyProgram p =
                CopyProgram.of(
                        Operation.BROADCAST,
                        0,
                        List.of(tree(t, 20, 0, 0, 1, 1, 2, 2, 3)),
                        ranks,
                        4,
                        10_000_000,
                        true,
                        1_000_000);
        assertEquals(30, p.steps.length);
        // Chunk c goes over hop h in slot c + h: that of hop 0 goes with the last hop's of c - 2.
        int[] done = new int[3];
        for (CopyProgram.Step s : p.steps) {
            int hop = s.from();
            assertEquals(done[hop] * 1_000_000L, s.sourceAt(), "in order within a hop");
            if (hop > 0) {
                assertTrue(done[hop - 1] > done[hop], "a chunk goes on when it has come");
                assertEquals(1, s.waits().length);
                assertEquals(hop - 1, s.waitsOn()[0]);
            }
            done[hop]++;
            assertTrue(done[0] - done[2] <= 3, "the first hop is not enqueued far ahead");
        }
        assertTrue(IntStream.of(p.events).max().orElse(0) <= 3, "events are used again");
    }

    /** On a ring each rank sends its own block first, then what came last. */
    @Test
    void blocksOnARingDoNotWaitForLaterOnes() {
        int n = 8;
        Topology t = mesh(n);
        Map<Integer, Integer> ranks = new HashMap<>();
        upTo(n).forEach(i -> ranks.put(i, i));
        CopyProgram p =
                CopyProgram.of(
                        Operation.ALL_GATHER,
                        0,
                        List.of(ring(t, 20, upTo(n))),
                        ranks,
                        n,
                        1000,
                        true,
                        1 << 20);
        int[] sent = new int[n];
        for (CopyProgram.Step s : p.steps) {
            if (s.from() == s.to()) {
                continue;
            }
            int origin = Math.floorMod(s.from() - sent[s.from()], n);
            assertEquals(origin * 1000L, s.targetAt(), "rank " + s.from());
            sent[s.from()]++;
        }
        assertTrue(IntStream.of(sent).allMatch(k -> k == n - 1));
    }

    @Test
    void channelsShareByBandwidth() {
        Topology t = mesh(3);
        Map<Integer, Integer> ranks = Map.of(0, 0, 1, 1, 2, 2);
        List<Channel> trees = List.of(tree(t, 10, 0, 0, 1, 1, 2), tree(t, 30, 0, 0, 2, 2, 1));
        CopyProgram p = CopyProgram.of(Operation.BROADCAST, 0, trees, ranks, 3, 40 << 20, true, 0);
        long[] bytes = new long[2];
        for (CopyProgram.Step s : p.steps) {
            if (s.from() == 0) {
                bytes[p.lanes[s.lane()].channel()] += s.bytes();
            }
        }
        assertEquals(40 << 20, bytes[0] + bytes[1]);
        assertEquals(0.25, bytes[0] / (double) (40 << 20), 1e-4);
        CopyProgram small = CopyProgram.of(Operation.BROADCAST, 0, trees, ranks, 3, 1000, true, 0);
        assertEquals(2, small.steps.length, "little goes by the widest channel alone");
        assertEquals(1, small.lanes[0].channel());
    }

    @Test
    void numberOfChunks() {
        assertEquals(1, CopyProgramBuilder.chunks(1, 1L << 40, 20, 64), "one hop needs none");
        assertEquals(1, CopyProgramBuilder.chunks(8, 1000, 20, 64));
        // 20 MB at 20 GB/s take 1000 us: sqrt(4 * 1000 / 10).
        assertEquals(20, CopyProgramBuilder.chunks(5, 20_000_000, 20, 64));
        assertEquals(64, CopyProgramBuilder.chunks(8, 1L << 40, 20, 64));
    }

    /** What a call costs, after the first of its size. */
    @Test
    void nothingIsAllocatedInSteadyState() {
        try (PeerCopies copies = PeerCopies.of(devices(4), rings(4), PeerCopies.Settings.DEFAULT)) {
            for (Operation op : OPERATIONS) {
                try (Run run = new Run(devices(4), op, 1, 500, DataType.INT8, false)) {
                    run.call(copies);
                    run.synchronize();
                    long streams = TestFake.live("all");
                    AllocationRounds rounds = new AllocationRounds(1, 0.01);
                    rounds.repeat(0, 100, () -> run.call(copies), run::synchronize);
                    assertEquals(streams, TestFake.live("all"), "nor of CUDA's objects");
                    rounds.assertNone(op.toString());
                    run.check();
                }
            }
        }
    }

    // ---- errors

    @Test
    void aRefusedCopyIsNamedAndNothingHangs() {
        try (PeerCopies copies =
                        PeerCopies.of(devices(4), rings(4), new PeerCopies.Settings(10_000));
                Run run =
                        new Run(
                                devices(4),
                                Operation.BROADCAST,
                                2,
                                200_000,
                                DataType.INT8,
                                false)) {
            TestFake.inject("cudaMemcpyPeerAsync:5:error=1");
            CudaException e = assertThrows(CudaException.class, () -> run.call(copies));
            String message = String.valueOf(e.getMessage());
            assertTrue(message.contains("broadcast of 200000 bytes a block"), message);
            assertTrue(message.contains("copy of 10000 bytes from rank"), message);
            assertTrue(message.contains("(cuda:") && message.contains("on channel"), message);
            run.synchronize();
            TestFake.reset();
            run.call(copies);
            run.check();
            for (String function : List.of("cudaStreamWaitEvent", "cudaEventRecord")) {
                TestFake.inject(function + ":9:error=1");
                assertThrows(CudaException.class, () -> run.call(copies));
                run.synchronize();
                TestFake.reset();
            }
            run.call(copies);
            run.check();
        }
    }

    @Test
    void whatFailsOnTheWayIsGivenBack() {
        for (String rule :
                List.of(
                        "cudaStreamCreateWithFlags:7:error=2",
                        "cudaEventCreateWithFlags:6:error=2",
                        "cudaMalloc:6:error=2")) {
            try (PeerCopies copies =
                            PeerCopies.of(devices(3), rings(3), PeerCopies.Settings.DEFAULT);
                    Run run =
                            new Run(
                                    devices(3),
                                    Operation.ALL_TO_ALL,
                                    0,
                                    100,
                                    DataType.INT8,
                                    true)) {
                TestFake.reset();
                TestFake.inject(rule.replaceFirst(":\\d", ":2"));
                assertThrows(io.jccl.error.JcclException.class, () -> run.call(copies));
                TestFake.reset();
                run.call(copies);
                run.check();
            }
        }
    }

    @Test
    void whatDoesNotFitIsRefused() throws Exception {
        List<Device> devices = devices(3);
        String message =
                Messages.of(
                        IllegalArgumentException.class,
                        () ->
                                PeerCopies.of(
                                        List.of(devices.get(0), devices.get(0)),
                                        List.of(),
                                        PeerCopies.Settings.DEFAULT));
        assertTrue(message.contains("both on cuda:0"), message);
        message =
                Messages.of(
                        IllegalArgumentException.class,
                        () -> PeerCopies.of(devices, rings(2), PeerCopies.Settings.DEFAULT));
        assertTrue(message.contains("for 2 GPUs") && message.contains("3 devices"), message);
        assertThrows(
                IllegalArgumentException.class,
                () ->
                        PeerCopies.of(
                                List.of(Device.host()), List.of(), PeerCopies.Settings.DEFAULT));
        assertThrows(IllegalArgumentException.class, () -> new PeerCopies.Settings(-1));
        message =
                Messages.of(
                        IllegalArgumentException.class,
                        () ->
                                PeerCopies.of(
                                        mesh(3),
                                        List.of(0, 1),
                                        devices,
                                        PeerCopies.Settings.DEFAULT));
        assertTrue(message.contains("2 gpus and 3 devices"), message);
        try (PeerCopies copies = PeerCopies.of(devices, rings(3), PeerCopies.Settings.DEFAULT);
                Run run = new Run(devices, Operation.ALL_GATHER, 0, 10, DataType.INT32, false);
                Buffer odd = devices.get(1).allocate(DataType.INT32, 11);
                Buffer floats = devices.get(1).allocate(DataType.FLOAT32, 10);
                Buffer host = Device.host().allocate(DataType.INT32, 10)) {
            refused(copies, run, 1, odd, "rank 1 holds 11 elements, expected 10");
            refused(copies, run, 1, floats, "rank 1 holds elements of float, the others of int32");
            refused(copies, run, 1, host, "rank 1 is on device");
            refused(copies, run, 1, run.send.get(2), "is on device cuda:2, expected cuda:1");
            refused(copies, run, 1, run.recv.get(1).slice(0, 10), "overlap");
            Buffer closed = devices.get(1).allocate(DataType.INT32, 10);
            closed.close();
            Buffer was = run.send.set(1, closed);
            assertThrows(IllegalStateException.class, () -> run.call(copies));
            run.send.set(1, was);
            assertThrows(
                    IllegalArgumentException.class,
                    () -> copies.allGather(run.send.subList(0, 2), run.recv, run.streams));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> copies.allGather(run.send, run.recv, run.streams.subList(0, 2)));
            assertThrows(
                    IllegalArgumentException.class,
                    () ->
                            copies.allGather(
                                    run.send,
                                    run.recv,
                                    List.of(
                                            run.streams.get(1),
                                            run.streams.get(0),
                                            run.streams.get(2))));
            assertThrows(
                    IllegalArgumentException.class,
                    () -> copies.broadcast(run.send.get(0), run.send, 3, run.streams));
            message =
                    Messages.of(
                            IllegalArgumentException.class,
                            () -> copies.scatter(run.send.get(0), run.send, 0, run.streams));
            assertTrue(message.contains("10 elements, expected a multiple of the 3"), message);
            run.call(copies);
            run.check();
            message =
                    Messages.of(
                            IllegalStateException.class,
                            () -> Graph.capture(run.streams.get(0), () -> run.call(copies)));
            assertTrue(message.contains("being captured"), message);
            run.call(copies);
            run.check();
            close(copies);
            message = Messages.of(IllegalStateException.class, () -> run.call(copies));
            assertTrue(message.contains("closed"), message);
            close(copies);
        }
    }

    private static void close(AutoCloseable object) throws Exception {
        object.close();
    }

    private static void refused(
            PeerCopies copies, Run run, int rank, Buffer buffer, String expected) {
        Buffer was = run.send.set(rank, buffer);
        String message = Messages.of(IllegalArgumentException.class, () -> run.call(copies));
        assertTrue(message.contains(expected), message);
        run.send.set(rank, was);
    }

    @Test
    void inPlaceOnSomeRanksOnlyIsRefused() {
        try (PeerCopies copies = PeerCopies.of(devices(2), rings(2), PeerCopies.Settings.DEFAULT);
                Run run = new Run(devices(2), Operation.ALL_TO_ALL, 0, 4, DataType.INT8, false)) {
            run.recv.set(0, run.send.get(0));
            String message = Messages.of(IllegalArgumentException.class, () -> run.call(copies));
            assertTrue(message.contains("in place on 1 of 2"), message);
            assertNotEquals(run.recv.get(1), run.send.get(1));
        }
    }
}
