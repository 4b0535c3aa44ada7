package io.jccl.parallel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.kernel.ThinColumns;
import io.jccl.parallel.GradientReducer.Parameter;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;

/** {@link PowerSgdExchange} on the host. Loops run over arrays, which the compiler vectorizes. */
final class HostPowerSgdExchange extends PowerSgdExchange {
    // One row, and one thin matrix of each kind.
    private final float[] row;
    private final float[] p;
    private final float[] q;

    private final Runnable makeP = this::makeP;
    private final Runnable makeQ = this::makeQ;
    private final Runnable expand = this::expand;

    HostPowerSgdExchange(
            Communicator comm,
            Buffer bucket,
            Bucket.Plan plan,
            List<Parameter> parameters,
            Compression.PowerSgd options,
            List<AutoCloseable> owned) {
        super(comm, bucket, plan, parameters, options, owned);
        int widest = 0;
        int mostP = 0;
        int mostQ = 0;
        for (Factored m : matrices) {
            widest = Math.max(widest, m.columns());
            mostP = Math.max(mostP, m.rank() * m.rows());
            mostQ = Math.max(mostQ, m.rank() * m.columns());
        }
        row = new float[widest];
        p = new float[mostP];
        q = new float[mostQ];
    }

    /** Draws a random column of Q, the same on all ranks. */
    private void draw(Factored m, int k) {
        long before = drawn.getLong(0);
        drawn.setLong(0, before + 1);
        ThinColumns.draw(q, k * m.columns(), m.columns(), seed, m.q() + k, before);
    }

    @Override
    void makeP(Stream stream) {
        stream.launchHostFunction(makeP);
    }

    @Override
    void makeQ(Stream stream) {
        stream.launchHostFunction(makeQ);
    }

    @Override
    void expand(Stream stream) {
        stream.launchHostFunction(expand);
    }

    private void makeP() {
        MemorySegment gradient = bucket.asSegment();
        MemorySegment thin = first.asSegment();
        for (int i = 0; i < matrices.size(); i++) {
            Factored m = matrices.get(i);
            load(second, m.q(), q, m.rank() * m.columns());
            for (int k = 0; k < m.rank(); k++) {
                if (ThinColumns.isZero(q, k * m.columns(), m.columns())) {
                    draw(m, k);
                }
            }
            // The norm of a column does not matter as long as no product underflows.
            ThinColumns.normalize(q, m.columns(), m.rank());
            for (int y = 0; y < m.rows(); y++) {
                long at = m.at() + (long) y * m.columns();
                load(error, at, row, m.columns());
                for (int x = 0; x < m.columns(); x++) {
                    row[x] += gradient.getAtIndex(JAVA_FLOAT, at + x);
                }
                store(row, m.columns(), error, at);
                for (int k = 0; k < m.rank(); k++) {
                    p[k * m.rows() + y] = ThinColumns.dot(row, 0, q, k * m.columns(), m.columns());
                }
            }
            store(p, m.rank() * m.rows(), first, m.p());
        }
        for (int i = 0; i < rests.size(); i++) {
            Rest r = rests.get(i);
            copy(gradient, r.at(), thin, r.to(), r.count());
        }
    }

    private void makeQ() {
        for (int i = 0; i < matrices.size(); i++) {
            Factored m = matrices.get(i);
            load(first, m.p(), p, m.rank() * m.rows());
            ThinColumns.orthonormalize(p, m.rows(), m.rank());
            store(p, m.rank() * m.rows(), first, m.p());
            Arrays.fill(q, 0, m.rank() * m.columns(), 0);
            for (int y = 0; y < m.rows(); y++) {
                load(error, m.at() + (long) y * m.columns(), row, m.columns());
                for (int k = 0; k < m.rank(); k++) {
                    ThinColumns.axpy(p[k * m.rows() + y], row, 0, q, k * m.columns(), m.columns());
                }
            }
            store(q, m.rank() * m.columns(), second, m.q());
            for (int y = 0; y < m.rows(); y++) {
                long at = m.at() + (long) y * m.columns();
                load(error, at, row, m.columns());
                for (int k = 0; k < m.rank(); k++) {
                    ThinColumns.axpy(-p[k * m.rows() + y], q, k * m.columns(), row, 0, m.columns());
                }
                store(row, m.columns(), error, at);
            }
        }
    }

    private void expand() {
        MemorySegment gradient = bucket.asSegment();
        for (int i = 0; i < matrices.size(); i++) {
            Factored m = matrices.get(i);
            load(first, m.p(), p, m.rank() * m.rows());
            load(second, m.q(), q, m.rank() * m.columns());
            for (int y = 0; y < m.rows(); y++) {
                Arrays.fill(row, 0, m.columns(), 0);
                for (int k = 0; k < m.rank(); k++) {
                    ThinColumns.axpy(p[k * m.rows() + y], q, k * m.columns(), row, 0, m.columns());
                }
                store(row, m.columns(), bucket, m.at() + (long) y * m.columns());
            }
        }
        for (int i = 0; i < rests.size(); i++) {
            Rest r = rests.get(i);
            copy(first.asSegment(), r.to(), gradient, r.at(), r.count());
        }
    }

    private static void load(Buffer from, long at, float[] to, int n) {
        MemorySegment.copy(from.asSegment(), JAVA_FLOAT, at * Float.BYTES, to, 0, n);
    }

    private static void store(float[] from, int n, Buffer to, long at) {
        MemorySegment.copy(from, 0, to.asSegment(), JAVA_FLOAT, at * Float.BYTES, n);
    }

    private static void copy(
            MemorySegment from, long at, MemorySegment to, long toAt, long elements) {
        MemorySegment.copy(from, at * Float.BYTES, to, toAt * Float.BYTES, elements * Float.BYTES);
    }
}
