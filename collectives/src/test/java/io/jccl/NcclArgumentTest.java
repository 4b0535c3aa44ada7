package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.NcclException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Faulty arguments are named before NCCL hears of them, and leave the communicator as it was. */
@UsesFakes
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class NcclArgumentTest {
    private static final ReduceOp SUM = ReduceOp.SUM;

    private List<Communicator> ranks = List.of();
    private List<Fixture> fixtures = List.of();

    private interface Call {
        void on(Fixture f);
    }

    /**
     * A faulty call.
     *
     * @param name what is wrong
     * @param error what it throws
     * @param words what its message says
     */
    private record Row(
            String name, Class<? extends Throwable> error, List<String> words, Call call) {
        @Override
        public String toString() {
            return name;
        }
    }

    /** Rank 0's objects, right and wrong ones. */
    private static final class Fixture implements AutoCloseable {
        final Communicator comm;
        final NcclCommunicator nccl;
        final Stream stream;
        final Buffer f8;
        final Buffer f4;
        final Buffer i8;
        final Buffer others;
        final Buffer host;
        final Buffer pinned;
        final Buffer closed;
        final Buffer sliceOfClosed;
        final Stream othersStream;
        final Stream closedStream;

        Fixture(Communicator comm) {
            this.comm = comm;
            this.nccl = NcclRanks.nccl(comm);
            Device device = comm.device();
            TestFake.needs(6);
            Device other = Cuda.device(5);
            stream = device.defaultStream();
            f8 = device.allocate(DataType.FLOAT32, 8);
            f4 = device.allocate(DataType.FLOAT32, 4);
            i8 = device.allocate(DataType.INT32, 8);
            others = other.allocate(DataType.FLOAT32, 8);
            host = Device.host().allocate(DataType.FLOAT32, 8);
            pinned = Cuda.pinned(DataType.FLOAT32, 8);
            closed = device.allocate(DataType.FLOAT32, 16);
            sliceOfClosed = closed.slice(4, 8);
            closed.close();
            othersStream = other.newStream();
            closedStream = device.newStream();
            closedStream.close();
        }

        @Override
        public void close() {
            List.of(f8, f4, i8, others, host, pinned).forEach(Buffer::close);
            othersStream.close();
        }
    }

    @BeforeAll
    void open() {
        TestFake.use();
        TestFake.reset();
        ranks = Communicator.local(NcclRanks.devices(2), NcclRanks.OPTIONS);
        fixtures = ranks.stream().map(Fixture::new).toList();
    }

    @AfterEach
    void reset() {
        TestFake.reset();
    }

    @AfterAll
    void close() {
        fixtures.forEach(Fixture::close);
        NcclRanks.close(ranks);
    }

    @SuppressWarnings({"NullAway", "TypeParameterUnusedInFormals"})
    private static <T> T nothing() {
        return null;
    }

    private static Row row(
            String name, Class<? extends Throwable> error, Call call, String... words) {
        return new Row(name, error, List.of(words), call);
    }

    static List<Row> rows() {
        Class<NullPointerException> npe = NullPointerException.class;
        Class<IllegalArgumentException> iae = IllegalArgumentException.class;
        Class<IllegalStateException> ise = IllegalStateException.class;
        return List.of(
                row(
                        "buffer of another device",
                        iae,
                        f -> f.comm.allReduce(f.others, SUM, f.stream),
                        "memory of cuda:5",
                        "rank 0 is on cuda:0"),
                row(
                        "recv of another device",
                        iae,
                        f -> f.comm.allReduce(f.f8, f.others, SUM, f.stream),
                        "recv",
                        "cuda:5",
                        "cuda:0"),
                row(
                        "host memory",
                        iae,
                        f -> f.comm.allReduce(f.host, SUM, f.stream),
                        "memory of " + Device.host(),
                        "expected memory of cuda:0",
                        "allocate it from device()"),
                row(
                        "pinned memory",
                        iae,
                        f -> f.comm.broadcast(f.pinned, 0, f.stream),
                        "expected memory of cuda:0"),
                row(
                        "host memory wrapped as the device's",
                        iae,
                        NcclArgumentTest::wrapHostMemory,
                        "0x",
                        "expected memory of cuda:0"),
                row(
                        "another device's memory wrapped as this one's",
                        iae,
                        f ->
                                Cuda.wrapAddress(
                                        f.comm.device(), f.others.address(), DataType.FLOAT32, 8),
                        "0x",
                        "cuda:5",
                        "expected memory of cuda:0"),
                row(
                        "freed buffer",
                        ise,
                        f -> f.comm.allReduce(f.closed, SUM, f.stream),
                        "closed",
                        "cuda:0"),
                row(
                        "slice of a freed buffer",
                        ise,
                        f -> f.comm.allReduce(f.sliceOfClosed, SUM, f.stream),
                        "closed",
                        "cuda:0"),
                row(
                        "send of a freed buffer",
                        ise,
                        f -> f.comm.send(f.sliceOfClosed, 1, f.stream),
                        "closed"),
                row(
                        "stream of another device",
                        iae,
                        f -> f.comm.allReduce(f.f8, SUM, f.othersStream),
                        "cuda:5",
                        "cuda:0"),
                row(
                        "stream of the host",
                        iae,
                        f -> f.comm.allReduce(f.f8, SUM, Device.host().defaultStream()),
                        "device " + Device.host(),
                        "cuda:0"),
                row(
                        "closed stream",
                        ise,
                        f -> f.comm.allReduce(f.f8, SUM, f.closedStream),
                        "closed",
                        "cuda:0"),
                row(
                        "root too large",
                        iae,
                        f -> f.comm.broadcast(f.f8, 2, f.stream),
                        "root is 2",
                        "0 to 1"),
                row(
                        "root negative",
                        iae,
                        f -> f.comm.reduce(f.f8, SUM, -1, f.stream),
                        "root is -1",
                        "0 to 1"),
                row(
                        "peer too large",
                        iae,
                        f -> f.comm.send(f.f8, 2, f.stream),
                        "peer is 2",
                        "0 to 1"),
                row(
                        "this rank as its own peer",
                        iae,
                        f -> f.comm.recv(f.f8, 0, f.stream),
                        "peer 0",
                        "Group"),
                row(
                        "counts that differ",
                        iae,
                        f -> f.comm.allReduce(f.f8, f.f4, SUM, f.stream),
                        "8",
                        "4"),
                row(
                        "count that is not a multiple of the ranks",
                        iae,
                        f -> f.comm.allToAll(f.f8.slice(0, 7), f.stream),
                        "count 7",
                        "multiple of 2"),
                row(
                        "types that differ",
                        iae,
                        f -> f.comm.allReduce(f.f8, f.i8, SUM, f.stream),
                        "float",
                        "int32"),
                row(
                        "memory that overlaps",
                        iae,
                        f -> f.comm.allReduce(f.f8.slice(0, 4), f.f8.slice(2, 4), SUM, f.stream),
                        "overlap",
                        "4 elements",
                        "in-place"),
                row("send null", npe, f -> f.comm.allReduce(nothing(), SUM, f.stream)),
                row(
                        "recv null",
                        npe,
                        f -> f.comm.allReduce(f.f8, nothing(), SUM, f.stream),
                        "recv"),
                row("op null", npe, f -> f.comm.allReduce(f.f8, nothing(), f.stream), "op"),
                row("stream null", npe, f -> f.comm.allReduce(f.f8, SUM, nothing()), "stream"),
                row(
                        "v-variant whose block is not in its buffer",
                        iae,
                        f ->
                                f.comm.allGatherv(
                                        f.f4, f.f8, new long[] {4, 5}, new long[] {0, 4}, f.stream),
                        "block 1 is 5 elements from 4",
                        "8 elements"),
                row(
                        "register of another device's memory",
                        iae,
                        f -> f.nccl.register(f.others),
                        "cuda:5"),
                row("register of host memory", iae, f -> f.nccl.register(f.host), "cuda:0"),
                row("register of a freed buffer", ise, f -> f.nccl.register(f.closed)),
                row(
                        "window that is not aligned",
                        iae,
                        f -> f.nccl.window(f.f8, false),
                        "4096",
                        "32 bytes"),
                row(
                        "shrink without itself",
                        iae,
                        f -> f.nccl.shrink(List.of(0), false),
                        "rank 0",
                        "0 to 1"),
                row(
                        "shrink without one that is not there",
                        iae,
                        f -> f.nccl.shrink(List.of(2), false),
                        "rank 2",
                        "0 to 1"),
                row("grow to less", iae, f -> f.nccl.grow("less", 2), "size is 2", "more than 2"),
                row(
                        "grow to a size that is a mistake",
                        iae,
                        f -> f.nccl.grow("most", 1 << 30),
                        "size is 1073741824",
                        "at most 1048576"),
                row(
                        "signal to nobody",
                        iae,
                        f -> f.nccl.signal(2, f.stream),
                        "peer is 2",
                        "0 to 1"),
                row(
                        "wait for a signal of nobody",
                        iae,
                        f -> f.nccl.waitSignal(-1, 1, f.stream),
                        "peer is -1",
                        "0 to 1"),
                row(
                        "wait for no signal",
                        iae,
                        f -> f.nccl.waitSignal(1, 0, f.stream),
                        "count is 0"),
                row(
                        "signal on another device's stream",
                        iae,
                        f -> f.nccl.signal(1, f.othersStream),
                        "cuda:5",
                        "cuda:0"));
    }

    private static void wrapHostMemory(Fixture f) {
        try (Arena arena = Arena.ofConfined()) {
            Cuda.wrapAddress(f.comm.device(), arena.allocate(64).address(), DataType.FLOAT32, 8);
        }
    }

    @ParameterizedTest
    @MethodSource("rows")
    void isNamedAndChangesNothing(Row row) {
        Fixture f = fixtures.getFirst();
        long before = NcclRanks.enqueued();
        String message = Messages.of(row.error, () -> row.call.on(f));
        for (String word : row.words) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
        assertEquals(before, NcclRanks.enqueued(), "operations that reached NCCL");
        NcclRanks.checkUsable(ranks);
    }

    static List<Row> rowsInAGroup() {
        return rows().stream().filter(row -> !row.name.startsWith("this rank")).toList();
    }

    @ParameterizedTest
    @MethodSource("rowsInAGroup")
    void isNamedInAGroupOfWhichNothingRuns(Row row) {
        Fixture f = fixtures.getFirst();
        long before = NcclRanks.enqueued();
        // What waits for the other ranks at once is refused in a group, whatever its arguments.
        boolean refused = row.name.matches("(window|shrink|grow) .*");
        String message =
                Messages.of(
                        refused ? IllegalStateException.class : row.error,
                        () ->
                                Group.run(
                                        ranks,
                                        () -> {
                                            f.comm.send(f.f8, 1, f.stream);
                                            row.call.on(f);
                                        }));
        assertTrue(!refused || message.contains("inside Group.run"), message);
        assertEquals(before, NcclRanks.enqueued(), "operations that reached NCCL");
        NcclRanks.checkUsable(ranks);
    }

    // ---- groups

    @Test
    void groupWhoseBodyThrowsRunsNothingAndKeepsTheCause() {
        Fixture f = fixtures.getFirst();
        IllegalStateException cause = new IllegalStateException("of the body");
        long before = NcclRanks.enqueued();
        assertSame(
                cause,
                assertThrows(
                        IllegalStateException.class,
                        () ->
                                Group.run(
                                        f.comm,
                                        () -> {
                                            f.comm.send(f.f8, 1, f.stream);
                                            throw cause;
                                        })));
        assertEquals(before, NcclRanks.enqueued(), "operations that reached NCCL");
        NcclRanks.checkUsable(ranks);
    }

    @Test
    void nestedGroupWhoseBodyThrowsIsCaughtInVain() {
        Fixture f = fixtures.getFirst();
        long before = NcclRanks.enqueued();
        String message =
                Messages.of(
                        IllegalStateException.class,
                        () ->
                                Group.run(
                                        f.comm,
                                        () -> {
                                            f.comm.send(f.f8, 1, f.stream);
                                            try {
                                                Group.run(
                                                        f.comm,
                                                        () -> {
                                                            throw new ArithmeticException();
                                                        });
                                            } catch (ArithmeticException e) {
                                                f.comm.recv(f.f8, 1, f.stream);
                                            }
                                        }));
        assertTrue(message.contains("nested group"), message);
        assertEquals(before, NcclRanks.enqueued(), "operations that reached NCCL");
        NcclRanks.checkUsable(ranks);
    }

    @Test
    void nestedGroupsAreOne() {
        long before = Math.max(0, TestFake.calls("ncclGroupEnd"));
        NcclRanks.each(
                fixtures,
                f -> {
                    int peer = 1 - f.comm.rank();
                    f.f4.set(0, f.comm.rank() + 1);
                    Group.run(
                            f.comm,
                            () -> {
                                f.comm.send(f.f4, peer, f.stream);
                                Group.run(
                                        f.comm,
                                        () -> f.comm.recv(f.f8.slice(0, 4), peer, f.stream));
                            });
                    f.stream.synchronize(NcclRanks.PATIENCE);
                    assertEquals(peer + 1, f.f8.get(0));
                });
        assertEquals(before + 2, TestFake.calls("ncclGroupEnd"), "groups that NCCL saw");
    }

    @Test
    void oneThreadDrivesAllRanksInAGroup() {
        fixtures.forEach(f -> f.i8.setLong(0, f.comm.rank() + 1));
        Group.run(
                ranks,
                () -> fixtures.forEach(f -> f.comm.allReduce(f.i8.slice(0, 1), SUM, f.stream)));
        for (Fixture f : fixtures) {
            f.stream.synchronize(NcclRanks.PATIENCE);
            assertEquals(3, f.i8.getLong(0));
        }
    }

    @Test
    void groupOfTwoEnginesIsRefused() {
        Communicator gpu = ranks.getFirst();
        try (Communicator cpu = Communicator.local(1).getFirst()) {
            for (List<Communicator> both : List.of(List.of(gpu, cpu), List.of(cpu, gpu))) {
                String message =
                        Messages.of(
                                IllegalArgumentException.class,
                                () ->
                                        Group.run(
                                                both,
                                                () -> {
                                                    throw new AssertionError("it has begun");
                                                }));
                assertTrue(message.contains("nccl") && message.contains("host/threads"), message);
            }
        }
        NcclRanks.checkUsable(ranks);
    }

    @Test
    void groupOfSeveralWhoseBodyThrowsRunsNothing() {
        long before = NcclRanks.enqueued();
        assertThrows(
                ArithmeticException.class,
                () ->
                        Group.run(
                                ranks,
                                () -> {
                                    Fixture f = fixtures.getFirst();
                                    f.comm.allReduce(f.f8, SUM, f.stream);
                                    throw new ArithmeticException();
                                }));
        assertEquals(before, NcclRanks.enqueued(), "operations that reached NCCL");
        NcclRanks.checkUsable(ranks);
    }

    /** An error at the group's end on one communicator must not leave another's recording open. */
    @Test
    void groupThatFailsOnOneCommunicatorIsOverOnAll() {
        long before = NcclRanks.enqueued();
        assertThrows(
                IllegalStateException.class,
                () ->
                        Group.run(
                                ranks,
                                () -> {
                                    fixtures.forEach(f -> f.comm.allReduce(f.f8, SUM, f.stream));
                                    assertThrows(
                                            ArithmeticException.class,
                                            () ->
                                                    Group.run(
                                                            ranks.getFirst(),
                                                            () -> {
                                                                throw new ArithmeticException();
                                                            }));
                                }));
        assertEquals(before, NcclRanks.enqueued(), "operations that reached NCCL");
        NcclRanks.checkUsable(ranks);
    }

    @Test
    void otherStreamInAGroupIsRefused() {
        Fixture f = fixtures.getFirst();
        long before = NcclRanks.enqueued();
        try (Stream other = f.comm.device().newStream()) {
            String message =
                    Messages.of(
                            IllegalArgumentException.class,
                            () ->
                                    Group.run(
                                            f.comm,
                                            () -> {
                                                f.comm.send(f.f8, 1, f.stream);
                                                f.comm.recv(f.f4, 1, other);
                                            }));
            assertTrue(message.contains("one stream"), message);
            assertTrue(message.contains("two groups"), message);
        }
        assertEquals(before, NcclRanks.enqueued(), "operations that reached NCCL");
        NcclRanks.checkUsable(ranks);
    }

    /** The stream is closed between recording and the group's end, which leaves no group open. */
    @Test
    void streamClosedWithinAGroupLeavesNoGroupOpen() {
        Fixture f = fixtures.getFirst();
        Stream own = f.comm.device().newStream();
        String message =
                Messages.of(
                        IllegalStateException.class,
                        () ->
                                Group.run(
                                        f.comm,
                                        () -> {
                                            f.comm.send(f.f8, 1, own);
                                            own.close();
                                        }));
        assertTrue(message.contains("closed"), message);
        NcclRanks.checkUsable(ranks);
        // On this very thread, which a group left open would hold back.
        oneThreadDrivesAllRanksInAGroup();
    }

    @Test
    void ncclsOwnRefusalOfAnArgumentLeavesTheCommunicatorUsable() {
        Fixture f = fixtures.getFirst();
        TestFake.inject("ncclAllReduce@0:1:error=4");
        NcclException e =
                assertThrows(NcclException.class, () -> f.comm.allReduce(f.f8, SUM, f.stream));
        assertEquals(4, e.result());
        NcclRanks.checkUsable(ranks);
    }

    @Test
    void ncclsOwnRefusalWithinAGroupLeavesTheCommunicatorUsable() {
        Fixture f = fixtures.getFirst();
        TestFake.inject("ncclRecv@0:1:error=4");
        NcclException e =
                assertThrows(
                        NcclException.class,
                        () ->
                                Group.run(
                                        f.comm,
                                        () -> {
                                            f.comm.send(f.f8, 1, f.stream);
                                            f.comm.recv(f.f4, 1, f.stream);
                                        }));
        assertEquals("recv", e.operation());
        NcclRanks.checkUsable(ranks);
        oneThreadDrivesAllRanksInAGroup();
    }

    @Test
    void windowOfAnotherCommunicatorIsRefused() {
        List<Communicator> others = NcclRanks.open(2, NcclRanks.OPTIONS);
        List<Buffer> memory = new ArrayList<>();
        ranks.forEach(c -> memory.add(Cuda.allocateForNccl(c.device(), DataType.UINT8, 4096)));
        try {
            NcclRanks.each(
                    ranks,
                    c -> {
                        Buffer mine = memory.get(c.rank());
                        Fixture f = fixtures.get(c.rank());
                        NcclCommunicator wrong = NcclRanks.nccl(others.get(c.rank()));
                        NcclCommunicator.Window window = f.nccl.window(mine, true);
                        try (window) {
                            String message =
                                    Messages.of(
                                            IllegalArgumentException.class,
                                            () -> wrong.putSignal(f.f4, 1, window, 0, f.stream));
                            assertTrue(message.contains("of another communicator"), message);
                            for (long offset : new long[] {-4, 4096 - 8}) {
                                String range =
                                        Messages.of(
                                                IllegalArgumentException.class,
                                                () ->
                                                        f.nccl.putSignal(
                                                                f.f4, 1, window, offset, f.stream));
                                assertTrue(range.contains("16 bytes"), range);
                                assertTrue(range.contains("" + offset), range);
                            }
                        }
                        String message =
                                Messages.of(
                                        IllegalArgumentException.class,
                                        () -> f.nccl.putSignal(f.f4, 1, window, 0, f.stream));
                        assertTrue(message.contains("closed"), message);
                    });
        } finally {
            NcclRanks.close(others);
            memory.forEach(Buffer::close);
        }
        NcclRanks.checkUsable(ranks);
    }

    /** NCCL would refuse it on this rank alone, while the others wait for it. */
    @Test
    void windowOfOrdinaryMemoryIsRefused() {
        Fixture f = fixtures.getFirst();
        try (Buffer ordinary = f.comm.device().allocate(DataType.UINT8, 8192)) {
            Buffer page = ordinary.slice(-ordinary.address() & 4095, 4096);
            String message =
                    Messages.of(IllegalArgumentException.class, () -> f.nccl.window(page, true));
            assertTrue(message.contains("allocateForNccl"), message);
        }
        NcclRanks.checkUsable(ranks);
    }

    /** NCCL would refuse it on this rank alone, while the peer waits for the signal. */
    @Test
    void sourceOutsideASymmetricWindowIsRefused() {
        List<Buffer> memory = new ArrayList<>();
        ranks.forEach(c -> memory.add(Cuda.allocateForNccl(c.device(), DataType.UINT8, 8192)));
        try {
            NcclRanks.each(
                    ranks,
                    c -> {
                        Fixture f = fixtures.get(c.rank());
                        Buffer mine = memory.get(c.rank());
                        Buffer first = mine.slice(0, 4096);
                        Buffer second = mine.slice(4096, 4096);
                        try (NcclCommunicator.Window window = f.nccl.window(first, true);
                                NcclCommunicator.Window other = f.nccl.window(second, false)) {
                            for (Buffer source : List.of(f.f4, second, mine.slice(4000, 100))) {
                                String message =
                                        Messages.of(
                                                IllegalArgumentException.class,
                                                () ->
                                                        f.nccl.putSignal(
                                                                source, 1, window, 0, f.stream));
                                assertTrue(message.contains("symmetric window"), message);
                            }
                            String message =
                                    Messages.of(
                                            IllegalArgumentException.class,
                                            () -> f.nccl.putSignal(second, 1, other, 0, f.stream));
                            assertTrue(message.contains("symmetric window"), message);
                        }
                    });
        } finally {
            memory.forEach(Buffer::close);
        }
        NcclRanks.checkUsable(ranks);
    }

    // ---- joining

    /** NCCL has no kernel for it: src/device/onerank.cu:79. An average of one rank is a copy. */
    @Test
    void float8IsNotMultipliedWithOneRank() {
        List<Communicator> alone = Communicator.local(NcclRanks.devices(1), NcclRanks.OPTIONS);
        Communicator comm = alone.getFirst();
        Stream stream = comm.device().defaultStream();
        try (Buffer in = comm.device().allocate(DataType.FLOAT8E5M2, 3);
                Buffer out = comm.device().allocate(DataType.FLOAT8E5M2, 3)) {
            in.set(2, 1.5);
            comm.allReduce(in, out, ReduceOp.AVG, stream);
            stream.synchronize(NcclRanks.PATIENCE);
            assertEquals(1.5, out.get(2));
            String message =
                    Messages.of(
                            UnsupportedOperationException.class,
                            () -> comm.allReduce(in, out, ReduceOp.preMulSum(2), stream));
            assertTrue(message.contains("FLOAT8E5M2") && message.contains("two ranks"), message);
            comm.allReduce(in, out, ReduceOp.SUM, stream);
            stream.synchronize(NcclRanks.PATIENCE);
        }
        NcclRanks.close(alone);
    }

    @Test
    void deviceNamedTwiceIsRefused() {
        String message =
                Messages.of(
                        IllegalArgumentException.class,
                        () ->
                                Communicator.local(
                                        List.of(Cuda.device(0), Cuda.device(0)),
                                        NcclRanks.OPTIONS));
        assertTrue(message.contains("cuda:0"), message);
        assertTrue(message.contains("NCCL_MULTI_RANK_GPU_ENABLE"), message);
    }

    @Test
    void noDevicesAndDevicesOfDifferentKindsAreRefused() {
        assertThrows(
                IllegalArgumentException.class,
                () -> Communicator.local(List.of(), NcclRanks.OPTIONS));
        String message =
                Messages.of(
                        IllegalArgumentException.class,
                        () ->
                                Communicator.local(
                                        List.of(Cuda.device(0), Device.host()), NcclRanks.OPTIONS));
        assertTrue(message.contains(Objects.toString(Device.host())), message);
    }

    @Test
    void virtualThreadIsRefusedWhereNativeStateIsTheThreads() throws Exception {
        Fixture f = fixtures.getFirst();
        List<Throwable> errors = new ArrayList<>();
        Thread.ofVirtual()
                .start(() -> {
                    List<Call> calls =
                            List.of(
                                    x ->
                                            Communicator.local(
                                                    NcclRanks.devices(2), NcclRanks.OPTIONS),
                                    x -> x.comm.device().allocate(DataType.INT8, 1),
                                    x -> Group.run(x.comm, () -> x.comm.send(x.f8, 1, x.stream)),
                                    x -> x.comm.split(0, 0));
                    for (Call call : calls) {
                        errors.add(assertThrows(IllegalStateException.class, () -> call.on(f)));
                    }
                })
                .join();
        assertEquals(4, errors.size());
        errors.forEach(e -> assertTrue(NcclRanks.text(e).contains("platform thread"), e::toString));
        NcclRanks.checkUsable(ranks);
    }
}
