package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Ranks that do not agree on what to do. Also a main class: one rank of them as a process. */
final class Disagreements {
    static final Duration TIMEOUT = Duration.ofSeconds(60);

    private static final ReduceOp SUM = ReduceOp.SUM;

    private Disagreements() {}

    interface Call {
        void on(Communicator comm, Stream stream);
    }

    /**
     * A disagreement between two ranks.
     *
     * @param name what they disagree on; no blanks
     * @param right what all ranks but the last call
     * @param wrong what the last rank calls
     * @param rightWords what the message has to say of the right call
     * @param wrongWords what it has to say of the other
     */
    record Row(String name, Call right, Call wrong, String rightWords, String wrongWords) {
        @Override
        public String toString() {
            return name;
        }
    }

    static List<Row> rows() {
        List<Row> rows = new ArrayList<>();
        Call allReduce = (c, s) -> c.allReduce(floats(c, 8), SUM, s);
        rows.add(
                new Row("count", allReduce, (c, s) -> c.allReduce(floats(c, 9), SUM, s), "8", "9"));
        rows.add(
                new Row(
                        "count-of-zero",
                        allReduce,
                        (c, s) -> c.allReduce(floats(c, 0), SUM, s),
                        "8",
                        "0"));
        rows.add(
                new Row(
                        "large-count",
                        (c, s) -> c.allReduce(floats(c, 300_000), SUM, s),
                        (c, s) -> c.allReduce(floats(c, 300_001), SUM, s),
                        "300000",
                        "300001"));
        rows.add(
                new Row(
                        "type",
                        allReduce,
                        (c, s) -> c.allReduce(make(c, DataType.INT32, 8), SUM, s),
                        "float|float32",
                        "int32"));
        rows.add(
                new Row(
                        "reduction",
                        allReduce,
                        (c, s) -> c.allReduce(floats(c, 8), ReduceOp.MAX, s),
                        "sum",
                        "max"));
        rows.add(
                new Row(
                        "root",
                        (c, s) -> c.broadcast(floats(c, 8), 0, s),
                        (c, s) -> c.broadcast(floats(c, 8), 1, s),
                        "0",
                        "1"));
        rows.add(
                new Row(
                        "root-of-reduce",
                        (c, s) -> c.reduce(floats(c, 8), SUM, 1, s),
                        (c, s) -> c.reduce(floats(c, 8), SUM, 0, s),
                        "1",
                        "0"));
        rows.add(
                new Row(
                        "collective",
                        allReduce,
                        (c, s) -> c.broadcast(floats(c, 8), 0, s),
                        "allReduce",
                        "broadcast"));
        rows.add(new Row("barrier", allReduce, (c, s) -> c.barrier(s), "allReduce", "barrier"));
        rows.add(
                new Row(
                        "count-of-broadcast",
                        (c, s) -> c.broadcast(floats(c, 8), 0, s),
                        (c, s) -> c.broadcast(floats(c, 5), 0, s),
                        "8",
                        "5"));
        rows.add(
                new Row(
                        "type-of-broadcast",
                        (c, s) -> c.broadcast(floats(c, 8), 0, s),
                        (c, s) -> c.broadcast(make(c, DataType.FLOAT16, 8), 0, s),
                        "float|float32",
                        "half|float16"));
        rows.add(
                new Row(
                        "count-of-gather",
                        (c, s) -> c.gather(floats(c, 4L * c.size()), 0, s),
                        (c, s) -> c.gather(floats(c, 3L * c.size()), 0, s),
                        "4",
                        "3"));
        rows.add(
                new Row(
                        "count-of-scatter",
                        (c, s) -> c.scatter(floats(c, 4L * c.size()), 0, s),
                        (c, s) -> c.scatter(floats(c, 3L * c.size()), 0, s),
                        "4",
                        "3"));
        rows.add(
                new Row(
                        "count-of-allGather",
                        (c, s) -> c.allGather(floats(c, 4L * c.size()), s),
                        (c, s) -> c.allGather(floats(c, 3L * c.size()), s),
                        "4",
                        "3"));
        rows.add(
                new Row(
                        "reduction-of-reduceScatter",
                        (c, s) -> c.reduceScatter(floats(c, 4L * c.size()), ReduceOp.AVG, s),
                        (c, s) -> c.reduceScatter(floats(c, 4L * c.size()), ReduceOp.PROD, s),
                        "avg",
                        "prod"));
        rows.add(
                new Row(
                        "count-of-allToAll",
                        (c, s) -> c.allToAll(floats(c, 4L * c.size()), s),
                        (c, s) -> c.allToAll(floats(c, 3L * c.size()), s),
                        "4",
                        "3"));
        rows.add(
                new Row(
                        "counts-of-allGatherv",
                        (c, s) -> allGatherv(c, s, 6),
                        (c, s) -> allGatherv(c, s, 5),
                        "6",
                        "5"));
        rows.add(
                new Row(
                        "counts-of-reduceScatterv",
                        (c, s) -> reduceScatterv(c, s, 6),
                        (c, s) -> reduceScatterv(c, s, 5),
                        "6",
                        "5"));
        rows.add(
                new Row(
                        "counts-of-gatherv",
                        (c, s) -> gatherv(c, s, 6),
                        (c, s) -> gatherv(c, s, 5),
                        "6",
                        "5"));
        rows.add(
                new Row(
                        "counts-of-scatterv",
                        (c, s) -> scatterv(c, s, 6),
                        (c, s) -> scatterv(c, s, 5),
                        "6",
                        "5"));
        rows.add(
                new Row(
                        "counts-of-allToAllv",
                        (c, s) -> allToAllv(c, s, 6),
                        (c, s) -> allToAllv(c, s, 5),
                        "6",
                        "5"));
        return rows;
    }

    /** Disagreements of two ranks that send and receive; for worlds of two. */
    static List<Row> pairRows() {
        return List.of(
                new Row(
                        "send-and-recv-count",
                        (c, s) -> c.send(floats(c, 6), 1, s),
                        (c, s) -> c.recv(floats(c, 5), 0, s),
                        "6",
                        "5"),
                new Row(
                        "send-and-recv-count-large",
                        (c, s) -> c.send(floats(c, 5), 1, s),
                        (c, s) -> c.recv(floats(c, 500_000), 0, s),
                        "5",
                        "500000"),
                new Row(
                        "send-and-recv-type",
                        (c, s) -> c.send(floats(c, 6), 1, s),
                        (c, s) -> c.recv(make(c, DataType.INT32, 6), 0, s),
                        "float|float32",
                        "int32"),
                new Row(
                        "send-and-recv-in-group",
                        (c, s) -> Group.run(c, () -> c.send(floats(c, 6), 1, s)),
                        (c, s) -> Group.run(c, () -> c.recv(floats(c, 7), 0, s)),
                        "6",
                        "7"));
    }

    /** All rows, pairs too. */
    static Row ofName(String name) {
        List<Row> all = new ArrayList<>(rows());
        all.addAll(pairRows());
        return all.stream().filter(row -> row.name.equals(name)).findFirst().orElseThrow();
    }

    static void run(Row row, Communicator comm) {
        boolean last = comm.rank() == comm.size() - 1;
        (last ? row.wrong : row.right).on(comm, comm.device().defaultStream());
        // who sends may be done before the other has looked at it: the next operation tells
        comm.barrier(comm.device().defaultStream());
    }

    private static Buffer floats(Communicator comm, long count) {
        return make(comm, DataType.FLOAT32, count);
    }

    /** Freed with its communicator's device: an exception would leave it open anyway. */
    private static Buffer make(Communicator comm, DataType type, long count) {
        return comm.device().allocate(type, count);
    }

    /** 4 elements for each rank but the last. */
    private static long[] counts(int n, long last) {
        long[] counts = new long[n];
        java.util.Arrays.fill(counts, 4);
        counts[n - 1] = last;
        return counts;
    }

    private static long[] displs(int n) {
        long[] displs = new long[n];
        for (int i = 0; i < n; i++) {
            displs[i] = 10L * i;
        }
        return displs;
    }

    private static long sum(long[] counts) {
        return java.util.Arrays.stream(counts).sum();
    }

    private static void allGatherv(Communicator c, Stream s, long last) {
        long[] counts = counts(c.size(), last);
        Buffer room = floats(c, 10L * c.size());
        c.allGatherv(floats(c, counts[c.rank()]), room, counts, displs(c.size()), s);
    }

    private static void reduceScatterv(Communicator c, Stream s, long last) {
        long[] counts = counts(c.size(), last);
        c.reduceScatterv(floats(c, sum(counts)), floats(c, counts[c.rank()]), counts, SUM, s);
    }

    private static void gatherv(Communicator c, Stream s, long last) {
        long[] counts = counts(c.size(), last);
        Buffer room = floats(c, 10L * c.size());
        c.gatherv(floats(c, counts[c.rank()]), room, counts, displs(c.size()), 0, s);
    }

    private static void scatterv(Communicator c, Stream s, long last) {
        long[] counts = counts(c.size(), last);
        Buffer all = floats(c, 10L * c.size());
        c.scatterv(all, counts, displs(c.size()), floats(c, counts[c.rank()]), 0, s);
    }

    /** The others send 6 to the last rank, which wants another number from each. */
    private static void allToAllv(Communicator c, Stream s, long fromOthers) {
        int n = c.size();
        long[] sends = counts(n, 6);
        long[] recvs = new long[n];
        java.util.Arrays.fill(recvs, c.rank() == n - 1 ? fromOthers : 4);
        if (c.rank() == n - 1) {
            recvs[n - 1] = 6;
        }
        c.allToAllv(floats(c, 10L * n), sends, displs(n), floats(c, 10L * n), recvs, displs(n), s);
    }

    /**
     * One rank: prints what it got for each row, with a world of its own for each.
     *
     * @param args names of rows
     */
    public static void main(String[] args) {
        for (String name : args) {
            Row row = ofName(name);
            var own = new java.util.HashMap<>(System.getenv());
            own.merge("JCCL_JOB_ID", "-" + name, String::concat);
            CommunicatorOptions options = CommunicatorOptions.DEFAULT.withTimeout(TIMEOUT);
            try (Communicator comm = io.jccl.engine.host.HostEngine.fromEnvironment(own, options)) {
                run(row, comm);
                System.out.println("ROW " + name + " none nothing was thrown");
            } catch (RuntimeException e) {
                StringWriter text = new StringWriter();
                e.printStackTrace(new PrintWriter(text));
                System.out.println(
                        "ROW "
                                + name
                                + " "
                                + e.getClass().getSimpleName()
                                + " "
                                + String.valueOf(e.getMessage()).replace('\n', ' '));
                System.out.println(text);
            }
        }
        System.out.println("DONE");
    }
}
