package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import org.jspecify.annotations.Nullable;

/**
 * One rank's part of a measurement, in place or out of place: fills the buffers, runs the
 * operation, checks the result.
 */
final class Trial {
    /**
     * The case to measure.
     *
     * @param kind the reduction, or null
     * @param op the reduction with this rank's factor; ignored if nothing is reduced
     * @param root root, or -1
     * @param shape counts
     */
    record Case(ReduceOp.@Nullable Kind kind, ReduceOp op, int root, Shape shape) {}

    private final PerfConfig config;
    private final Communicator comm;
    private final Stream stream;
    private final Patterns patterns;
    private final Buffers buffers;
    private final Case c;
    private final boolean inPlace;
    private final Runnable one;

    Trial(
            PerfConfig config,
            Communicator comm,
            Patterns patterns,
            Buffers buffers,
            Case c,
            boolean inPlace) {
        this.config = config;
        this.comm = comm;
        this.stream = comm.device().defaultStream();
        this.patterns = patterns;
        this.buffers = buffers;
        this.c = c;
        this.inPlace = inPlace;
        Shape s = c.shape;
        Operands operands =
                new Operands(
                        comm,
                        stream,
                        s,
                        buffers.send().slice(0, inPlace ? 0 : s.send()),
                        buffers.recv().slice(0, inPlace ? s.larger() : s.recv()),
                        c.op,
                        c.root);
        this.one = config.collective().bind(operands, inPlace);
    }

    /**
     * The reduction of a rank.
     *
     * @param kind its kind, or null if nothing is reduced
     * @param rank the rank with the factor of a pre-multiplied sum
     * @return the reduction; any if nothing is reduced
     */
    static ReduceOp op(ReduceOp.@Nullable Kind kind, int rank) {
        return switch (kind) {
            case PROD -> ReduceOp.PROD;
            case MIN -> ReduceOp.MIN;
            case MAX -> ReduceOp.MAX;
            case AVG -> ReduceOp.AVG;
            case PRE_MUL_SUM -> ReduceOp.preMulSum((long) Patterns.factor(rank));
            case SUM -> ReduceOp.SUM;
            case null -> ReduceOp.SUM;
        };
    }

    /** Fills the send buffer and poisons the receive buffer. */
    void prepare(long seed) {
        Shape s = c.shape;
        int rank = comm.rank();
        Checker.poison(
                buffers.recv().slice(0, inPlace ? s.larger() : s.recv()),
                Patterns.poison(buffers.type()));
        if (config.collective().sends(rank, c.root)) {
            Checker.fill(
                    inPlace ? buffers.recv() : buffers.send(),
                    inPlace ? rank * s.sendShift() : 0,
                    s.send(),
                    patterns.table(buffers.type(), c.kind, seed, rank),
                    0);
        }
    }

    /** The timed iteration: one operation, or {@code -m} of them as a group if possible. */
    Runnable iteration() {
        int m = config.timing().aggregated();
        Runnable many =
                () -> {
                    for (int i = 0; i < m; i++) {
                        one.run();
                    }
                };
        return m == 1 ? one : config.collective().isGrouped() ? () -> Group.run(comm, many) : many;
    }

    /** One operation, as it is timed. */
    void runOnce() {
        if (config.timing().graphLaunches() == 0) {
            one.run();
            stream.synchronize();
            return;
        }
        try (Graph graph = Graph.capture(stream, one)) {
            graph.launch(stream);
            stream.synchronize();
        }
    }

    /**
     * Checks the result of one operation.
     *
     * @param seed the seed passed to {@link #prepare}
     * @param seam may modify the result first
     * @return wrong elements on this rank
     */
    long verify(long seed, PerfRun.Seam seam) {
        Shape s = c.shape;
        int rank = comm.rank();
        long at = inPlace ? rank * s.recvShift() : 0;
        seam.received(
                rank,
                buffers.send().slice(0, inPlace ? 0 : s.send()),
                buffers.recv().slice(at, s.recv()));
        long[] wrong = {0};
        double most =
                comm.engine().startsWith("nccl")
                        ? Patterns.tolerance(buffers.type(), c.kind, comm.size())
                        : 0;
        config.collective()
                .expected(
                        rank,
                        c.root,
                        s,
                        (start, count, source, from) ->
                                wrong[0] +=
                                        Checker.wrong(
                                                buffers.recv(),
                                                at + start,
                                                count,
                                                patterns.table(
                                                        buffers.type(), c.kind, seed, source),
                                                from,
                                                most));
        if (!inPlace && config.collective().sends(rank, c.root)) {
            // The send buffer must not have changed.
            wrong[0] +=
                    Checker.wrong(
                            buffers.send(),
                            0,
                            s.send(),
                            patterns.table(buffers.type(), c.kind, seed, rank),
                            0,
                            0);
        }
        return wrong[0];
    }
}
