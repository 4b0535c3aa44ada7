package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.internal.Closing;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/** Common part of the two parallel linear layers: shapes, scratch memory and a second stream. */
abstract class SplitLinear implements AutoCloseable {
    private static final Duration SIDE_PATIENCE = Duration.ofMinutes(1);

    final Communicator comm;
    final Matmul matmul;
    final long tokens;
    final long inputs;
    final long outputs;

    /** This rank's tokens with sequence parallelism. */
    final Part rows;

    /** Whether each rank has only its tokens: with sequence parallelism and more than one rank. */
    final boolean split;

    private final boolean equalRows;

    /** What is closed: the second stream before the memory that it uses. */
    private final List<AutoCloseable> owned = new ArrayList<>();

    /**
     * A vector of ones, by which sums over tokens and additions of a bias become matrix products.
     */
    private final Buffer ones;

    private final Matrix column;
    private final Matrix columnOfRows;
    private final @Nullable Buffer[] scratch = new Buffer[2];
    private @Nullable Buffer packed;
    private final @Nullable Stream side;
    private final @Nullable Event ready;
    private final @Nullable Event done;
    private final Runnable mark = this::mark;
    private final Runnable check = this::check;
    private final AtomicLong marked = new AtomicLong();
    private long checked;
    private boolean closed;

    SplitLinear(
            Communicator comm,
            Matmul matmul,
            long tokens,
            long inputs,
            long outputs,
            boolean sequenceParallel,
            boolean overlap) {
        if (tokens < 1 || inputs < 1 || outputs < 1) {
            throw new IllegalArgumentException(
                    "tokens, inputs and outputs are %s, %s and %s, expected 1 or more of each"
                            .formatted(tokens, inputs, outputs));
        }
        this.comm = comm;
        this.matmul = matmul;
        this.tokens = tokens;
        this.inputs = inputs;
        this.outputs = outputs;
        this.rows = Part.of(tokens, comm.rank(), comm.size());
        this.split = sequenceParallel && comm.size() > 1;
        this.equalRows = tokens % comm.size() == 0;
        Device device = comm.device();
        boolean aside = overlap && comm.size() > 1;
        try {
            this.side = aside ? own(device.newStream()) : null;
            this.ready = aside ? own(device.newEvent()) : null;
            this.done = aside ? own(device.newEvent()) : null;
            this.ones = own(device.allocate(DataType.FLOAT32, tokens));
            fillWithOnes(device);
        } catch (RuntimeException | Error e) {
            Closing.all(owned);
            throw e;
        }
        this.column = Matrix.of(ones, tokens, 1);
        this.columnOfRows = column.rows(0, rows.count());
    }

    private <T extends AutoCloseable> T own(T part) {
        owned.add(part);
        return part;
    }

    private void fillWithOnes(Device device) {
        if (device.kind() == Device.Kind.HOST) {
            fill(ones);
            return;
        }
        try (Buffer host = Device.host().allocate(DataType.FLOAT32, tokens)) {
            fill(host);
            ones.copyFrom(host.asSegment());
        }
    }

    private static void fill(Buffer buffer) {
        for (long i = 0; i < buffer.count(); i++) {
            buffer.set(i, 1);
        }
    }

    boolean isHost() {
        return comm.device().kind() == Device.Kind.HOST;
    }

    boolean isAlone() {
        return comm.size() == 1;
    }

    /** Scratch memory, allocated when a pass first needs it and shared by all passes. */
    Buffer scratch(int which, long count) {
        Buffer b = scratch[which];
        if (b == null) {
            b = own(comm.device().allocate(DataType.FLOAT32, count));
            scratch[which] = b;
        }
        return b;
    }

    /** Scratch memory in which whole columns are gathered. */
    Buffer packed(long count) {
        Buffer b = packed;
        if (b == null) {
            b = own(comm.device().allocate(DataType.FLOAT32, count));
            packed = b;
        }
        return b;
    }

    /** {@code y += 1 bias}: adds the bias to every token. */
    void addBias(Matrix bias, Matrix y, Stream stream) {
        matmul.multiply(y.rows() == tokens ? column : columnOfRows, bias, y, 1, stream);
    }

    /** A row vector of ones, for sums over that many tokens. */
    Matrix onesRow(long count) {
        return (count == tokens ? column : columnOfRows).transposed();
    }

    // ---- concurrent with the caller's stream

    /** The stream for products that overlap the collectives of the caller's stream. */
    Stream beside(Stream stream) {
        Stream s = side;
        if (s == null || ready == null) {
            return stream;
        }
        ready.record(stream);
        s.waitFor(ready);
        return s;
    }

    /** Makes the caller's stream wait for the stream of {@link #beside}. */
    void join(Stream stream) {
        Stream s = side;
        if (s == null || done == null) {
            return;
        }
        if (isHost()) {
            s.launchHostFunction(mark);
        }
        done.record(s);
        stream.waitFor(done);
        if (isHost()) {
            stream.launchHostFunction(check);
        }
    }

    private void mark() {
        marked.incrementAndGet();
    }

    /**
     * If a product on the second stream failed, its event was dropped too; its error is thrown
     * here.
     */
    private void check() {
        checked++;
        if (marked.get() < checked) {
            checked = marked.get();
            Stream s = side;
            if (s != null) {
                s.synchronize(SIDE_PATIENCE);
            }
            throw new JcclException("a product concurrent with the collective did not run");
        }
    }

    // ---- collectives over rows: tokens

    /**
     * A matrix of all tokens: that of the caller, or, if tokens are split, scratch memory of which
     * the caller's matrix has this rank's rows.
     */
    final class Tokens {
        final Matrix whole;
        private final @Nullable Buffer all;
        private final @Nullable Buffer mine;
        private final long[] counts = new long[comm.size()];
        private final long[] starts = new long[comm.size()];

        /**
         * Checks that collectives can work on the caller's matrix.
         *
         * @param communicates whether there are any
         * @param which scratch memory
         * @param name of the matrix, for messages
         */
        Tokens(Matrix own, boolean communicates, int which, String name) {
            long width = own.columns();
            mine = communicates ? run(own, name) : null;
            all = split ? scratch(which, tokens * width) : null;
            whole = all == null ? own : Matrix.of(all, tokens, width);
            for (int r = 0; r < comm.size(); r++) {
                Part p = Part.of(tokens, r, comm.size());
                counts[r] = p.count() * width;
                starts[r] = p.from() * width;
            }
        }

        /** Gathers all tokens if they are split. */
        void gather(Stream stream) {
            if (mine == null || all == null) {
                return;
            }
            if (equalRows) {
                comm.allGather(mine, all, stream);
            } else {
                comm.allGatherv(mine, all, counts, starts, stream);
            }
        }

        /** Sums over ranks; if tokens are split, each rank gets its own. */
        void sum(Stream stream) {
            if (mine == null) {
                return;
            }
            if (all == null) {
                comm.allReduce(mine, ReduceOp.SUM, stream);
            } else if (equalRows) {
                comm.reduceScatter(all, mine, ReduceOp.SUM, stream);
            } else {
                comm.reduceScatterv(all, mine, counts, ReduceOp.SUM, stream);
            }
        }
    }

    // ---- checks, when a pass is created

    static void shape(Matrix m, long rows, long columns, String name) {
        if (m.rows() != rows || m.columns() != columns) {
            throw new IllegalArgumentException(
                    name + " is " + m + ", expected " + rows + " x " + columns);
        }
    }

    /** The elements as a contiguous buffer, which collectives require. */
    private static Buffer run(Matrix m, String name) {
        boolean dense = m.columnStride() == 1 && (m.rows() <= 1 || m.rowStride() == m.columns());
        if (!dense || m.dataType() != DataType.FLOAT32) {
            throw new IllegalArgumentException(
                    ("%s is %s with row stride %s and column stride %s; it goes"
                                    + " through a collective, which needs float elements row after"
                                    + " row without gaps")
                            .formatted(name, m, m.rowStride(), m.columnStride()));
        }
        return m.buffer().slice(m.offset(), m.rows() * m.columns());
    }

    /** A bias or its gradient as a row. */
    static @Nullable Matrix row(@Nullable Buffer b) {
        return b == null ? null : Matrix.of(b, 1, b.count());
    }

    static IllegalStateException noGradient() {
        return new IllegalStateException(
                "this pass was made without the output's gradient; pass one to pass(...)");
    }

    /** Called before anything is allocated. */
    static void refuseOnDevice(Communicator comm, boolean wanted, String what, String instead) {
        if (wanted && comm.size() > 1 && comm.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    "%s moves single columns, which only the host device can do here, not %s; %s"
                            .formatted(what, comm.device(), instead));
        }
    }

    /** Frees the scratch memory; no pass may be in progress. Closing twice has no effect. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        Closing.all(owned);
    }
}
