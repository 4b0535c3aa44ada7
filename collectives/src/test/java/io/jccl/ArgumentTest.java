package io.jccl;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testkit.Messages;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Faulty arguments are named, change nothing, and leave the communicator as it was. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class ArgumentTest {
    private static final CommunicatorOptions OPTIONS =
            new CommunicatorOptions(Duration.ofSeconds(20), Algorithm.AUTO);
    private static final ReduceOp SUM = ReduceOp.SUM;
    private static final int RANKS = 2;

    private interface Call {
        void on(Fixture f);
    }

    /**
     * A faulty call, which both ranks make.
     *
     * @param name what is wrong
     * @param error what it throws
     * @param words patterns that its message has to have, as words of their own
     */
    private record Row(
            String name, Class<? extends Throwable> error, List<String> words, Call call) {
        @Override
        public String toString() {
            return name;
        }
    }

    /** One rank's objects, right and wrong ones. */
    private static final class Fixture implements AutoCloseable {
        final Communicator comm;
        final Stream stream;
        final int me;
        final Buffer f7;
        final Buffer f8;
        final Buffer f13;
        final Buffer f14;
        final Buffer i7;
        final Buffer i14;
        final Buffer closed;
        final Stream closedStream;
        final Buffer cuda = new CudaBuffer();
        final Stream cudaStream = new CudaStream();
        private final List<Buffer> open = new ArrayList<>();

        Fixture(Communicator comm) {
            this.comm = comm;
            this.me = comm.rank();
            this.stream = comm.device().defaultStream();
            f7 = make(DataType.FLOAT32, 7);
            f8 = make(DataType.FLOAT32, 8);
            f13 = make(DataType.FLOAT32, 13);
            f14 = make(DataType.FLOAT32, 14);
            i7 = make(DataType.INT32, 7);
            i14 = make(DataType.INT32, 14);
            closed = comm.device().allocate(DataType.FLOAT32, 7);
            closed.close();
            closedStream = comm.device().newStream();
            closedStream.close();
        }

        private Buffer make(DataType type, long count) {
            Buffer buffer = comm.device().allocate(type, count);
            for (long i = 0; i < count; i++) {
                buffer.set(i, 100.0 * (me + 1) + i);
            }
            open.add(buffer);
            return buffer;
        }

        void checkUnchanged() {
            for (Buffer buffer : open) {
                for (long i = 0; i < buffer.count(); i++) {
                    long at = i;
                    assertEquals(
                            100.0 * (me + 1) + i, buffer.get(i), () -> buffer + " element " + at);
                }
            }
        }

        void checkUsable() {
            try (Buffer in = comm.device().allocate(DataType.INT32, 3)) {
                for (int i = 0; i < 3; i++) {
                    in.setLong(i, me + i);
                }
                comm.allReduce(in, SUM, stream);
                for (int i = 0; i < 3; i++) {
                    assertEquals(1 + 2 * i, in.getLong(i), "the allReduce after the faulty call");
                }
            }
        }

        @Override
        public void close() {
            open.forEach(Buffer::close);
        }
    }

    private static final Class<NullPointerException> NPE = NullPointerException.class;
    private static final Class<IllegalArgumentException> IAE = IllegalArgumentException.class;
    private static final Class<IllegalStateException> ISE = IllegalStateException.class;

    private static Row row(
            String name, Class<? extends Throwable> error, Call call, String... words) {
        return new Row(name, error, List.of(words), call);
    }

    @SuppressWarnings({"NullAway", "TypeParameterUnusedInFormals"})
    private static <T> T nothing() {
        return null;
    }

    /** Root "me": every rank takes itself for the root, so that each has something to check. */
    static List<Row> rows() {
        List<Row> rows = new ArrayList<>();
        nulls(rows);
        counts(rows);
        types(rows);
        ranks(rows);
        states(rows);
        overlaps(rows);
        unequal(rows);
        others(rows);
        return rows;
    }

    private static void nulls(List<Row> rows) {
        rows.addAll(
                List.of(
                        row(
                                "allReduce, send null",
                                NPE,
                                f -> f.comm.allReduce(nothing(), f.f7, SUM, f.stream)),
                        row(
                                "allReduce, recv null",
                                NPE,
                                f -> f.comm.allReduce(f.f7, nothing(), SUM, f.stream)),
                        row(
                                "allReduce, op null",
                                NPE,
                                f -> f.comm.allReduce(f.f7, nothing(), f.stream)),
                        row(
                                "allReduce, stream null",
                                NPE,
                                f -> f.comm.allReduce(f.f7, SUM, nothing())),
                        row(
                                "broadcast, send null on root",
                                NPE,
                                f -> f.comm.broadcast(null, f.f7, f.me, f.stream)),
                        row(
                                "broadcast, recv null",
                                NPE,
                                f -> f.comm.broadcast(f.f7, nothing(), f.me, f.stream)),
                        row(
                                "scatter, send null on root",
                                NPE,
                                f -> f.comm.scatter(null, f.f7, f.me, f.stream)),
                        row(
                                "scatter, recv null",
                                NPE,
                                f -> f.comm.scatter(f.f14, nothing(), f.me, f.stream)),
                        row(
                                "gather, send null",
                                NPE,
                                f -> f.comm.gather(nothing(), f.f14, f.me, f.stream)),
                        row(
                                "gather, recv null on root",
                                NPE,
                                f -> f.comm.gather(f.f7, null, f.me, f.stream)),
                        row(
                                "reduce, send null",
                                NPE,
                                f -> f.comm.reduce(nothing(), f.f7, SUM, f.me, f.stream)),
                        row(
                                "reduce, recv null on root",
                                NPE,
                                f -> f.comm.reduce(f.f7, null, SUM, f.me, f.stream)),
                        row(
                                "allGather, send null",
                                NPE,
                                f -> f.comm.allGather(nothing(), f.f14, f.stream)),
                        row(
                                "allGather, recv null",
                                NPE,
                                f -> f.comm.allGather(f.f7, (Buffer) nothing(), f.stream)),
                        row(
                                "reduceScatter, send null",
                                NPE,
                                f -> f.comm.reduceScatter(nothing(), f.f7, SUM, f.stream)),
                        row(
                                "reduceScatter, recv null",
                                NPE,
                                f -> f.comm.reduceScatter(f.f14, nothing(), SUM, f.stream)),
                        row(
                                "allToAll, send null",
                                NPE,
                                f -> f.comm.allToAll(nothing(), f.f14, f.stream)),
                        row(
                                "allToAll, recv null",
                                NPE,
                                f -> f.comm.allToAll(f.f14, (Buffer) nothing(), f.stream)),
                        row(
                                "gatherv, counts null on root",
                                NPE,
                                f -> f.comm.gatherv(f.f7, f.f14, null, of(0, 7), f.me, f.stream)),
                        row(
                                "gatherv, displs null on root",
                                NPE,
                                f -> f.comm.gatherv(f.f7, f.f14, of(7, 7), null, f.me, f.stream)),
                        row(
                                "scatterv, counts null on root",
                                NPE,
                                f -> f.comm.scatterv(f.f14, null, of(0, 7), f.f7, f.me, f.stream)),
                        row(
                                "allGatherv, counts null",
                                NPE,
                                f -> f.comm.allGatherv(f.f7, f.f14, nothing(), of(0, 7), f.stream)),
                        row(
                                "allGatherv, displs null",
                                NPE,
                                f -> f.comm.allGatherv(f.f7, f.f14, of(7, 7), nothing(), f.stream)),
                        row(
                                "reduceScatterv, counts null",
                                NPE,
                                f -> f.comm.reduceScatterv(f.f14, f.f7, nothing(), SUM, f.stream)),
                        row(
                                "allToAllv, send displs null",
                                NPE,
                                f ->
                                        f.comm.allToAllv(
                                                f.f14, of(7, 7), nothing(), f.f14, of(7, 7),
                                                of(0, 7), f.stream)),
                        row(
                                "send, buffer null",
                                NPE,
                                f -> f.comm.send(nothing(), 1 - f.me, f.stream)),
                        row(
                                "recv, buffer null",
                                NPE,
                                f -> f.comm.recv(nothing(), 1 - f.me, f.stream)),
                        row("send, stream null", NPE, f -> f.comm.send(f.f7, 1 - f.me, nothing())),
                        row("barrier, stream null", NPE, f -> f.comm.barrier(nothing())),
                        row("group, body null", NPE, f -> Group.run(f.comm, nothing())),
                        row(
                                "algorithmFor, name null",
                                NPE,
                                f -> f.comm.algorithmFor(nothing(), 8))));
    }

    private static void counts(List<Row> rows) {
        rows.addAll(
                List.of(
                        row(
                                "allReduce, counts differ",
                                IAE,
                                f -> f.comm.allReduce(f.f7, f.f8, SUM, f.stream),
                                "7",
                                "8"),
                        row(
                                "broadcast, counts differ on root",
                                IAE,
                                f -> f.comm.broadcast(f.f7, f.f8, f.me, f.stream),
                                "7",
                                "8"),
                        row(
                                "reduce, counts differ on root",
                                IAE,
                                f -> f.comm.reduce(f.f7, f.f8, SUM, f.me, f.stream),
                                "7",
                                "8"),
                        row(
                                "gather, recv too small",
                                IAE,
                                f -> f.comm.gather(f.f7, f.f13, f.me, f.stream),
                                "2|7|14",
                                "13"),
                        row(
                                "gather, recv too large",
                                IAE,
                                f -> f.comm.gather(f.f7.slice(0, 6), f.f14, f.me, f.stream),
                                "6|12",
                                "14"),
                        row(
                                "scatter, send no n blocks",
                                IAE,
                                f -> f.comm.scatter(f.f13, f.f7, f.me, f.stream),
                                "2|7|14",
                                "13"),
                        row(
                                "allGather, recv too small",
                                IAE,
                                f -> f.comm.allGather(f.f7, f.f13, f.stream),
                                "2|7|14",
                                "13"),
                        row(
                                "allGather, recv too large",
                                IAE,
                                f -> f.comm.allGather(f.f7.slice(0, 6), f.f14, f.stream),
                                "6|12",
                                "14"),
                        row(
                                "reduceScatter, send too small",
                                IAE,
                                f -> f.comm.reduceScatter(f.f13, f.f7, SUM, f.stream),
                                "2|7|14",
                                "13"),
                        row(
                                "allToAll, counts differ",
                                IAE,
                                f -> f.comm.allToAll(f.f14, f.f8, f.stream),
                                "14",
                                "8"),
                        row(
                                "allToAll, no n blocks",
                                IAE,
                                f -> f.comm.allToAll(f.f13, f.f13, f.stream),
                                "13",
                                "2"),
                        row(
                                "allToAll in place, no n blocks",
                                IAE,
                                f -> f.comm.allToAll(f.f13, f.stream),
                                "13",
                                "2"),
                        row(
                                "allGather in place, no n blocks",
                                IAE,
                                f -> f.comm.allGather(f.f13, f.stream),
                                "13",
                                "2"),
                        row(
                                "reduceScatter in place, no n blocks",
                                IAE,
                                f -> f.comm.reduceScatter(f.f13, SUM, f.stream),
                                "13",
                                "2"),
                        row(
                                "scatter in place, no n blocks",
                                IAE,
                                f -> f.comm.scatter(f.f13, f.me, f.stream),
                                "13",
                                "2"),
                        row(
                                "gather in place, no n blocks",
                                IAE,
                                f -> f.comm.gather(f.f13, f.me, f.stream),
                                "13",
                                "2")));
    }

    private static void types(List<Row> rows) {
        String[] words = {"float|float32", "int32"};
        rows.addAll(
                List.of(
                        row(
                                "allReduce, types differ",
                                IAE,
                                f -> f.comm.allReduce(f.f7, f.i7, SUM, f.stream),
                                words),
                        row(
                                "broadcast, types differ on root",
                                IAE,
                                f -> f.comm.broadcast(f.f7, f.i7, f.me, f.stream),
                                words),
                        row(
                                "reduce, types differ on root",
                                IAE,
                                f -> f.comm.reduce(f.f7, f.i7, SUM, f.me, f.stream),
                                words),
                        row(
                                "gather, types differ on root",
                                IAE,
                                f -> f.comm.gather(f.f7, f.i14, f.me, f.stream),
                                words),
                        row(
                                "scatter, types differ on root",
                                IAE,
                                f -> f.comm.scatter(f.f14, f.i7, f.me, f.stream),
                                words),
                        row(
                                "allGather, types differ",
                                IAE,
                                f -> f.comm.allGather(f.i7, f.f14, f.stream),
                                words),
                        row(
                                "reduceScatter, types differ",
                                IAE,
                                f -> f.comm.reduceScatter(f.i14, f.f7, SUM, f.stream),
                                words),
                        row(
                                "allToAll, types differ",
                                IAE,
                                f -> f.comm.allToAll(f.i14, f.f14, f.stream),
                                words),
                        row(
                                "allGatherv, types differ",
                                IAE,
                                f -> f.comm.allGatherv(f.i7, f.f14, of(7, 7), of(0, 7), f.stream),
                                words),
                        row(
                                "allToAllv, types differ",
                                IAE,
                                f ->
                                        f.comm.allToAllv(
                                                f.i14, of(7, 7), of(0, 7), f.f14, of(7, 7),
                                                of(0, 7), f.stream),
                                words)));
    }

    private static void ranks(List<Row> rows) {
        for (int bad : new int[] {-1, 2, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
            String text = Integer.toString(bad);
            rows.addAll(
                    List.of(
                            row(
                                    "broadcast, root " + bad,
                                    IAE,
                                    f -> f.comm.broadcast(f.f7, bad, f.stream),
                                    text,
                                    "1|2"),
                            row(
                                    "reduce, root " + bad,
                                    IAE,
                                    f -> f.comm.reduce(f.f7, f.f7, SUM, bad, f.stream),
                                    text),
                            row(
                                    "scatter, root " + bad,
                                    IAE,
                                    f -> f.comm.scatter(f.f14, f.f7, bad, f.stream),
                                    text),
                            row(
                                    "gather, root " + bad,
                                    IAE,
                                    f -> f.comm.gather(f.f7, f.f14, bad, f.stream),
                                    text),
                            row(
                                    "gatherv, root " + bad,
                                    IAE,
                                    f ->
                                            f.comm.gatherv(
                                                    f.f7, f.f14, of(7, 7), of(0, 7), bad, f.stream),
                                    text),
                            row(
                                    "scatterv, root " + bad,
                                    IAE,
                                    f ->
                                            f.comm.scatterv(
                                                    f.f14, of(7, 7), of(0, 7), f.f7, bad, f.stream),
                                    text),
                            row("send to " + bad, IAE, f -> f.comm.send(f.f7, bad, f.stream), text),
                            row(
                                    "recv from " + bad,
                                    IAE,
                                    f -> f.comm.recv(f.f7, bad, f.stream),
                                    text)));
        }
        rows.add(row("send to itself", IAE, f -> f.comm.send(f.f7, f.me, f.stream), "0|1"));
        rows.add(row("recv from itself", IAE, f -> f.comm.recv(f.f7, f.me, f.stream), "0|1"));
    }

    private static void states(List<Row> rows) {
        rows.addAll(
                List.of(
                        row(
                                "send buffer closed",
                                ISE,
                                f -> f.comm.allReduce(f.closed, f.f7, SUM, f.stream)),
                        row(
                                "recv buffer closed",
                                ISE,
                                f -> f.comm.allReduce(f.f7, f.closed, SUM, f.stream)),
                        row(
                                "broadcast buffer closed",
                                ISE,
                                f -> f.comm.broadcast(f.closed, 0, f.stream)),
                        row(
                                "sent buffer closed",
                                ISE,
                                f -> f.comm.send(f.closed, 1 - f.me, f.stream)),
                        row(
                                "slice of a closed buffer",
                                ISE,
                                f -> {
                                    Buffer owner = f.comm.device().allocate(DataType.FLOAT32, 9);
                                    Buffer part = owner.slice(1, 7);
                                    owner.close();
                                    f.comm.allReduce(part, f.f7, SUM, f.stream);
                                }),
                        row("stream closed", ISE, f -> f.comm.allReduce(f.f7, SUM, f.closedStream)),
                        row("barrier, stream closed", ISE, f -> f.comm.barrier(f.closedStream)),
                        row(
                                "send buffer of a GPU",
                                IAE,
                                f -> f.comm.allReduce(f.cuda, f.f7, SUM, f.stream)),
                        row(
                                "recv buffer of a GPU",
                                IAE,
                                f -> f.comm.allReduce(f.f7, f.cuda, SUM, f.stream)),
                        row("stream of a GPU", IAE, f -> f.comm.allReduce(f.f7, SUM, f.cudaStream)),
                        row("barrier, stream of a GPU", IAE, f -> f.comm.barrier(f.cudaStream))));
    }

    private static void overlaps(List<Row> rows) {
        rows.addAll(
                List.of(
                        row(
                                "allReduce, shifted by one",
                                IAE,
                                f ->
                                        f.comm.allReduce(
                                                f.f14.slice(0, 7),
                                                f.f14.slice(1, 7),
                                                SUM,
                                                f.stream)),
                        row(
                                "allReduce, last and first element",
                                IAE,
                                f ->
                                        f.comm.allReduce(
                                                f.f14.slice(6, 7),
                                                f.f14.slice(0, 7),
                                                SUM,
                                                f.stream)),
                        row(
                                "reduce, shifted",
                                IAE,
                                f ->
                                        f.comm.reduce(
                                                f.f14.slice(0, 7),
                                                f.f14.slice(2, 7),
                                                SUM,
                                                f.me,
                                                f.stream)),
                        row(
                                "broadcast, shifted",
                                IAE,
                                f ->
                                        f.comm.broadcast(
                                                f.f14.slice(0, 7),
                                                f.f14.slice(2, 7),
                                                f.me,
                                                f.stream)),
                        row(
                                "allToAll, shifted",
                                IAE,
                                f ->
                                        f.comm.allToAll(
                                                f.f14.slice(0, 12), f.f14.slice(2, 12), f.stream)),
                        row(
                                "allGather, not in its block",
                                IAE,
                                f -> f.comm.allGather(f.f14.slice(3, 7), f.f14, f.stream)),
                        row(
                                "allGather, in another rank's block",
                                IAE,
                                f ->
                                        f.comm.allGather(
                                                f.f14.slice(7L * (1 - f.me), 7), f.f14, f.stream)),
                        row(
                                "gather, in another rank's block",
                                IAE,
                                f ->
                                        f.comm.gather(
                                                f.f14.slice(7L * (1 - f.me), 7),
                                                f.f14,
                                                f.me,
                                                f.stream)),
                        row(
                                "scatter, in another rank's block",
                                IAE,
                                f ->
                                        f.comm.scatter(
                                                f.f14,
                                                f.f14.slice(7L * (1 - f.me), 7),
                                                f.me,
                                                f.stream)),
                        row(
                                "reduceScatter, in another rank's block",
                                IAE,
                                f ->
                                        f.comm.reduceScatter(
                                                f.f14,
                                                f.f14.slice(7L * (1 - f.me), 7),
                                                SUM,
                                                f.stream)),
                        row(
                                "allGatherv, not in its block",
                                IAE,
                                f ->
                                        f.comm.allGatherv(
                                                f.f14.slice(2, 5),
                                                f.f14,
                                                of(5, 5),
                                                of(0, 8),
                                                f.stream)),
                        row(
                                "reduceScatterv, not in its block",
                                IAE,
                                f ->
                                        f.comm.reduceScatterv(
                                                f.f14, f.f14.slice(3, 7), of(7, 7), SUM, f.stream)),
                        row(
                                "allToAllv in place, counts differ",
                                IAE,
                                f ->
                                        f.comm.allToAllv(
                                                f.f14, of(7, 7), of(0, 7), f.f14, of(6, 7),
                                                of(0, 7), f.stream)),
                        row(
                                "allToAllv in place, displacements differ",
                                IAE,
                                f ->
                                        f.comm.allToAllv(
                                                f.f14, of(6, 6), of(0, 6), f.f14, of(6, 6),
                                                of(1, 7), f.stream)),
                        row(
                                "two views of one array",
                                IAE,
                                f -> {
                                    MemorySegment array = MemorySegment.ofArray(new float[9]);
                                    f.comm.allReduce(
                                            Buffer.wrap(array.asSlice(0, 28), DataType.FLOAT32),
                                            Buffer.wrap(array.asSlice(8, 28), DataType.FLOAT32),
                                            SUM,
                                            f.stream);
                                }),
                        row(
                                "library buffer and its address",
                                IAE,
                                f ->
                                        f.comm.allReduce(
                                                f.f14.slice(0, 7),
                                                Buffer.wrapAddress(
                                                        f.f14.address() + 4, DataType.FLOAT32, 7),
                                                SUM,
                                                f.stream))));
    }

    private static void unequal(List<Row> rows) {
        long max = Long.MAX_VALUE;
        rows.addAll(
                List.of(
                        row(
                                "allGatherv, too few counts",
                                IAE,
                                f -> f.comm.allGatherv(f.f7, f.f14, of(7), of(0, 7), f.stream),
                                "1",
                                "2"),
                        row(
                                "allGatherv, too many displs",
                                IAE,
                                f ->
                                        f.comm.allGatherv(
                                                f.f7, f.f14, of(7, 7), of(0, 7, 9), f.stream),
                                "3",
                                "2"),
                        row(
                                "allGatherv, negative count",
                                IAE,
                                f ->
                                        f.comm.allGatherv(
                                                f.f7,
                                                f.f14,
                                                f.me == 0 ? of(7, -3) : of(-3, 7),
                                                of(0, 7),
                                                f.stream),
                                "-3"),
                        row(
                                "allGatherv, negative displacement",
                                IAE,
                                f -> f.comm.allGatherv(f.f7, f.f14, of(7, 7), of(0, -4), f.stream),
                                "-4"),
                        row(
                                "allGatherv, block past the end",
                                IAE,
                                f -> f.comm.allGatherv(f.f7, f.f14, of(7, 7), of(0, 8), f.stream),
                                "8|15",
                                "14"),
                        row(
                                "allGatherv, end overflows",
                                IAE,
                                f ->
                                        f.comm.allGatherv(
                                                f.f7, f.f14, of(7, 7), of(0, max - 2), f.stream),
                                "14"),
                        row(
                                "allGatherv, own count is another",
                                IAE,
                                f -> f.comm.allGatherv(f.f7, f.f14, of(6, 6), of(0, 6), f.stream),
                                "7",
                                "6"),
                        row(
                                "gatherv, too few counts on root",
                                IAE,
                                f -> f.comm.gatherv(f.f7, f.f14, of(7), of(0, 7), f.me, f.stream),
                                "1",
                                "2"),
                        row(
                                "gatherv, block past the end",
                                IAE,
                                f ->
                                        f.comm.gatherv(
                                                f.f7, f.f14, of(7, 7), of(0, 9), f.me, f.stream),
                                "9|16",
                                "14"),
                        row(
                                "gatherv, own count is another",
                                IAE,
                                f ->
                                        f.comm.gatherv(
                                                f.f7, f.f14, of(5, 5), of(0, 7), f.me, f.stream),
                                "7",
                                "5"),
                        row(
                                "scatterv, negative count",
                                IAE,
                                f ->
                                        f.comm.scatterv(
                                                f.f14, of(-1, -1), of(0, 7), f.f7, f.me, f.stream),
                                "-1"),
                        row(
                                "scatterv, too many displs",
                                IAE,
                                f ->
                                        f.comm.scatterv(
                                                f.f14,
                                                of(7, 7),
                                                of(0, 7, 14),
                                                f.f7,
                                                f.me,
                                                f.stream),
                                "3",
                                "2"),
                        row(
                                "scatterv, own count is another",
                                IAE,
                                f ->
                                        f.comm.scatterv(
                                                f.f14, of(5, 5), of(0, 7), f.f7, f.me, f.stream),
                                "7",
                                "5"),
                        row(
                                "reduceScatterv, more than send holds",
                                IAE,
                                f -> f.comm.reduceScatterv(f.f14, f.f8, of(8, 8), SUM, f.stream),
                                "8|16",
                                "14"),
                        row(
                                "reduceScatterv, negative count",
                                IAE,
                                f ->
                                        f.comm.reduceScatterv(
                                                f.f14,
                                                f.f7,
                                                f.me == 0 ? of(7, -1) : of(-1, 7),
                                                SUM,
                                                f.stream),
                                "-1"),
                        row(
                                "reduceScatterv, own count is another",
                                IAE,
                                f ->
                                        f.comm.reduceScatterv(
                                                f.f14,
                                                f.f7,
                                                f.me == 0 ? of(6, 8) : of(8, 6),
                                                SUM,
                                                f.stream),
                                "7",
                                "6"),
                        row(
                                "reduceScatterv, too few counts",
                                IAE,
                                f -> f.comm.reduceScatterv(f.f14, f.f7, of(14), SUM, f.stream),
                                "1",
                                "2"),
                        row(
                                "allToAllv, negative count",
                                IAE,
                                f ->
                                        f.comm.allToAllv(
                                                f.f14, of(-5, 7), of(0, 7), f.f13, of(1, 1),
                                                of(0, 1), f.stream),
                                "-5"),
                        row(
                                "allToAllv, send block past the end",
                                IAE,
                                f ->
                                        f.comm.allToAllv(
                                                f.f14, of(1, 1), of(0, 14), f.f13, of(1, 1),
                                                of(0, 1), f.stream),
                                "14|15"),
                        row(
                                "allToAllv, recv block past the end",
                                IAE,
                                f ->
                                        f.comm.allToAllv(
                                                f.f14, of(1, 1), of(0, 1), f.f13, of(1, 1),
                                                of(13, 0), f.stream),
                                "13|14"),
                        row(
                                "allToAllv, too few recv counts",
                                IAE,
                                f ->
                                        f.comm.allToAllv(
                                                f.f14, of(1, 1), of(0, 1), f.f13, of(1), of(0, 1),
                                                f.stream),
                                "1",
                                "2")));
    }

    private static void others(List<Row> rows) {
        rows.addAll(
                List.of(
                        row(
                                "algorithmFor, unknown operation",
                                IAE,
                                f -> f.comm.algorithmFor("allReduces", 8),
                                "allReduces"),
                        row(
                                "group, faulty call after a right one",
                                IAE,
                                f ->
                                        Group.run(
                                                f.comm,
                                                () -> {
                                                    f.comm.allReduce(f.f7, SUM, f.stream);
                                                    f.comm.allReduce(f.f7, f.f8, SUM, f.stream);
                                                }),
                                "7",
                                "8"),
                        row(
                                "group, body throws after a right call",
                                UnsupportedOperationException.class,
                                f ->
                                        Group.run(
                                                f.comm,
                                                () -> {
                                                    f.comm.allReduce(f.f7, SUM, f.stream);
                                                    f.comm.send(f.f8, 1 - f.me, f.stream);
                                                    throw new UnsupportedOperationException();
                                                })),
                        row(
                                "nested group, inner body throws",
                                UnsupportedOperationException.class,
                                f ->
                                        Group.run(
                                                f.comm,
                                                () -> {
                                                    f.comm.allReduce(f.f7, SUM, f.stream);
                                                    Group.run(f.comm, ArgumentTest::refuse);
                                                })),
                        row(
                                "group, two streams",
                                IllegalArgumentException.class,
                                f -> {
                                    try (Stream other = f.comm.device().newStream()) {
                                        Group.run(
                                                f.comm,
                                                () -> {
                                                    f.comm.allReduce(f.f7, SUM, f.stream);
                                                    f.comm.allReduce(f.f8, SUM, other);
                                                });
                                    }
                                })));
    }

    private static void refuse() {
        throw new UnsupportedOperationException();
    }

    private static long[] of(long... values) {
        return values;
    }

    @ParameterizedTest
    @MethodSource("rows")
    void faultyCallIsRefused(Row row) {
        Communicator.runLocal(
                RANKS,
                OPTIONS,
                comm -> {
                    try (Fixture f = new Fixture(comm)) {
                        Throwable error = null;
                        try {
                            row.call.on(f);
                        } catch (RuntimeException e) {
                            error = e;
                        }
                        check(row, error);
                        f.checkUnchanged();
                        f.checkUsable();
                    }
                });
    }

    private static void check(Row row, @Nullable Throwable error) {
        if (error == null) {
            fail("nothing was thrown, expected " + row.error.getSimpleName());
        } else if (!row.error.isInstance(error)) {
            throw new AssertionError("expected " + row.error.getSimpleName() + ", got", error);
        } else {
            String message = String.valueOf(error.getMessage());
            for (String word : row.words) {
                // as a word of its own: the 7 of "7 elements", not that of "17"
                Pattern whole = Pattern.compile("(?i)(?<![\\w.-])(" + word + ")(?![\\w])");
                assertTrue(whole.matcher(message).find(), "no " + word + " in: " + message);
            }
        }
    }

    /** Adjacent memory does not overlap, however close. */
    @Test
    void neighboursAreNoOverlap() {
        Communicator.runLocal(
                RANKS,
                OPTIONS,
                comm -> {
                    try (Fixture f = new Fixture(comm)) {
                        comm.allReduce(f.f14.slice(0, 7), f.f14.slice(7, 7), SUM, f.stream);
                        assertEquals(300, f.f14.get(7));
                        comm.allReduce(f.f14.slice(3, 0), f.f14.slice(3, 0), SUM, f.stream);
                        comm.allReduce(f.f14.slice(2, 0), f.f14.slice(5, 0), SUM, f.stream);
                        f.checkUsable();
                    }
                });
    }

    @ParameterizedTest
    @ValueSource(ints = {0, -1, 257, Integer.MAX_VALUE})
    void impossibleSizesAreRefused(int size) {
        String message = Messages.of(IAE, () -> Communicator.local(size));
        assertTrue(message.contains(Integer.toString(size)) && message.contains("256"), message);
        assertThrows(IAE, () -> Communicator.runLocal(size, comm -> {}));
    }

    static List<Row> callsOfAll() {
        return List.of(
                row("broadcast", ISE, f -> f.comm.broadcast(f.f7, 0, f.stream)),
                row("scatter", ISE, f -> f.comm.scatter(f.f14, f.f7, 0, f.stream)),
                row("gather", ISE, f -> f.comm.gather(f.f7, f.f14, 0, f.stream)),
                row("reduce", ISE, f -> f.comm.reduce(f.f7, SUM, 0, f.stream)),
                row("allReduce", ISE, f -> f.comm.allReduce(f.f7, SUM, f.stream)),
                row("allGather", ISE, f -> f.comm.allGather(f.f14, f.stream)),
                row("reduceScatter", ISE, f -> f.comm.reduceScatter(f.f14, SUM, f.stream)),
                row("allToAll", ISE, f -> f.comm.allToAll(f.f14, f.stream)),
                row(
                        "gatherv",
                        ISE,
                        f -> f.comm.gatherv(f.f7, f.f14, of(7, 7), of(0, 7), 0, f.stream)),
                row(
                        "scatterv",
                        ISE,
                        f -> f.comm.scatterv(f.f14, of(7, 7), of(0, 7), f.f7, 0, f.stream)),
                row(
                        "allGatherv",
                        ISE,
                        f -> f.comm.allGatherv(f.f7, f.f14, of(7, 7), of(0, 7), f.stream)),
                row(
                        "reduceScatterv",
                        ISE,
                        f -> f.comm.reduceScatterv(f.f14, f.f7, of(7, 7), SUM, f.stream)),
                row(
                        "allToAllv",
                        ISE,
                        f ->
                                f.comm.allToAllv(
                                        f.f14, of(1, 1), of(0, 1), f.f13, of(1, 1), of(0, 1),
                                        f.stream)),
                row("send", ISE, f -> f.comm.send(f.f7, 1 - f.me, f.stream)),
                row("recv", ISE, f -> f.comm.recv(f.f7, 1 - f.me, f.stream)),
                row("barrier", ISE, f -> f.comm.barrier(f.stream)),
                row("split", ISE, f -> f.comm.split(0, 0)),
                row(
                        "group",
                        ISE,
                        f -> Group.run(f.comm, () -> f.comm.allReduce(f.f7, SUM, f.stream))));
    }

    @ParameterizedTest
    @MethodSource("callsOfAll")
    void closedCommunicatorRefuses(Row row) {
        Communicator.runLocal(
                RANKS,
                OPTIONS,
                comm -> {
                    try (Fixture f = new Fixture(comm)) {
                        comm.barrier(f.stream);
                        comm.close();
                        comm.close();
                        assertThrows(row.error, () -> row.call.on(f));
                        f.checkUnchanged();
                        assertDoesNotThrow(comm::close);
                    }
                });
    }

    @ParameterizedTest
    @MethodSource("callsOfAll")
    void abortedCommunicatorSaysWhy(Row row) {
        List<Communicator> world = Communicator.local(RANKS, OPTIONS);
        try (Communicator first = world.get(0);
                Communicator second = world.get(1);
                Fixture f = new Fixture(second)) {
            first.abort("out of coffee");
            RuntimeException error = assertThrows(JcclException.class, () -> row.call.on(f));
            assertTrue(
                    String.valueOf(error.getMessage()).contains("out of coffee"), error::toString);
            JcclException again = assertThrows(JcclException.class, () -> row.call.on(f));
            assertEquals(error.getMessage(), again.getMessage());
            f.checkUnchanged();
        }
    }

    /** A buffer of a device that the host engine cannot reach. */
    private static final class CudaBuffer implements Buffer {
        @Override
        public DataType dataType() {
            return DataType.FLOAT32;
        }

        @Override
        public long count() {
            return 7;
        }

        @Override
        public Device device() {
            return new CudaDevice();
        }

        @Override
        public long address() {
            return 0x7f0000000000L;
        }

        @Override
        public Buffer slice(long from, long count) {
            return this;
        }

        @Override
        public Buffer lease(long fromByte, DataType type, long count, Runnable release) {
            throw new UnsupportedOperationException();
        }

        @Override
        public MemorySegment asSegment() {
            throw new UnsupportedOperationException();
        }

        @Override
        public double get(long index) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void set(long index, double value) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long getLong(long index) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void setLong(long index, long value) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Buffer zero() {
            throw new UnsupportedOperationException();
        }

        @Override
        public void close() {}
    }

    private static final class CudaDevice implements Device {
        @Override
        public Kind kind() {
            return Kind.CUDA;
        }

        @Override
        public int index() {
            return 3;
        }

        @Override
        public Buffer allocate(DataType type, long count) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Stream defaultStream() {
            return new CudaStream();
        }

        @Override
        public Stream newStream() {
            return new CudaStream();
        }

        @Override
        public Event newEvent() {
            throw new UnsupportedOperationException();
        }
    }

    private static final class CudaStream implements Stream {
        @Override
        public Device device() {
            return new CudaDevice();
        }

        @Override
        public boolean query() {
            return true;
        }

        @Override
        public void synchronize(Duration timeout) {}

        @Override
        public void synchronize() {}

        @Override
        public void copy(Buffer source, Buffer target) {}

        @Override
        public void launchHostFunction(Runnable function) {}

        @Override
        public void waitFor(Event event) {}

        @Override
        public void close() {}
    }
}
