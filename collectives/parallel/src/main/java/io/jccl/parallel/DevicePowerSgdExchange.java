package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Compute;
import io.jccl.compute.ThinMatrices;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.internal.Closing;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.parallel.PowerSgdLayout.Factored;
import io.jccl.parallel.PowerSgdLayout.Rest;
import java.util.ArrayList;
import java.util.List;

/**
 * {@link PowerSgdExchange} on a GPU: products by {@link Matmul}, columns by {@link
 * io.jccl.compute.GradientCompression}. Nothing waits for the host.
 */
final class DevicePowerSgdExchange extends Exchange {
    /**
     * Views of a matrix and its factors. Thin matrices are column-major, so their transposes are
     * row-major.
     *
     * @param gradient the gradient's elements, then the result's
     * @param error those of the error
     * @param d the error as a matrix
     * @param dTransposed its transpose
     * @param result the gradient as a matrix
     * @param p the left factor
     * @param q the right factor
     * @param qTransposed its transpose
     */
    private record Views(
            Buffer gradient,
            Buffer error,
            Matrix d,
            Matrix dTransposed,
            Matrix result,
            Matrix p,
            Matrix q,
            Matrix qTransposed) {}

    /** Uncompressed elements in the bucket, and where they are sent. */
    private record Uncompressed(Buffer gradient, Buffer sent) {}

    private final Communicator c;
    private final Compute compute;
    private final Matmul matmul;
    private final long seed;
    private final List<Views> matrices = new ArrayList<>();
    private final List<Uncompressed> rests = new ArrayList<>();

    /** All P, then the uncompressed elements. */
    private final Buffer first;

    /** All Q; kept for the next step. */
    private final Buffer second;

    private final Buffer error;

    /** Number of random columns drawn so far. */
    private final Buffer drawn;

    private final ThinMatrices allP;
    private final ThinMatrices allQ;

    private final List<AutoCloseable> owned = new ArrayList<>();

    DevicePowerSgdExchange(
            Communicator c,
            Compute compute,
            Matmul matmul,
            Buffer bucket,
            Bucket.Plan plan,
            List<Parameter> parameters,
            Compression.PowerSgd options) {
        this.c = c;
        this.compute = compute;
        this.matmul = matmul;
        this.seed = options.seed();
        PowerSgdLayout layout = new PowerSgdLayout(plan, parameters, options.rank());
        boolean done = false;
        try {
            first = zeros(DataType.FLOAT32, layout.first);
            second = zeros(DataType.FLOAT32, layout.second);
            error = zeros(DataType.FLOAT32, layout.matrices.isEmpty() ? 0 : bucket.count());
            drawn = zeros(DataType.INT64, 1);
            List<ThinMatrices.Shape> ps = new ArrayList<>();
            List<ThinMatrices.Shape> qs = new ArrayList<>();
            for (Factored m : layout.matrices) {
                matrices.add(views(m, bucket));
                ps.add(new ThinMatrices.Shape(m.p(), m.rows(), m.rank()));
                qs.add(new ThinMatrices.Shape(m.q(), m.columns(), m.rank()));
            }
            for (Rest r : layout.rests) {
                rests.add(
                        new Uncompressed(
                                bucket.slice(r.at(), r.count()), first.slice(r.to(), r.count())));
            }
            allP = ThinMatrices.of(first, ps);
            owned.add(allP);
            allQ = ThinMatrices.of(second, qs);
            owned.add(allQ);
            // Random factors at the start, the same on all ranks.
            Stream stream = c.device().defaultStream();
            compute.compression().redrawZeroColumns(allQ, drawn, seed, stream);
            stream.synchronize();
            done = true;
        } finally {
            if (!done) {
                close();
            }
        }
    }

    private Buffer zeros(DataType type, long count) {
        Buffer b = c.device().allocate(type, count);
        owned.add(b);
        return b.zero();
    }

    private Views views(Factored m, Buffer bucket) {
        long count = (long) m.rows() * m.columns();
        Matrix d = Matrix.of(error, m.at(), m.rows(), m.columns(), m.columns());
        Matrix q = Matrix.of(second, m.q(), m.rank(), m.columns(), m.columns());
        return new Views(
                bucket.slice(m.at(), count),
                error.slice(m.at(), count),
                d,
                d.transposed(),
                Matrix.of(bucket, m.at(), m.rows(), m.columns(), m.columns()),
                Matrix.of(first, m.p(), m.rank(), m.rows(), m.rows()).transposed(),
                q.transposed(),
                q);
    }

    @Override
    void enqueue(Stream stream) {
        compute.compression().normalize(allQ, stream);
        for (int i = 0; i < matrices.size(); i++) {
            Views m = matrices.get(i);
            compute.axpy(1, m.gradient, m.error, stream);
            matmul.multiply(m.d, m.q, m.p, stream);
        }
        for (int i = 0; i < rests.size(); i++) {
            stream.copy(rests.get(i).gradient, rests.get(i).sent);
        }
        c.allReduce(first, ReduceOp.AVG, stream);
        if (!matrices.isEmpty()) {
            makeQ(stream);
            c.allReduce(second, ReduceOp.AVG, stream);
        }
        for (int i = 0; i < matrices.size(); i++) {
            Views m = matrices.get(i);
            matmul.multiply(m.p, m.qTransposed, m.result, stream);
        }
        // A zero column would remain zero forever.
        compute.compression().redrawZeroColumns(allQ, drawn, seed, stream);
        for (int i = 0; i < rests.size(); i++) {
            stream.copy(rests.get(i).sent, rests.get(i).gradient);
        }
    }

    private void makeQ(Stream stream) {
        compute.compression().orthonormalize(allP, stream);
        for (int i = 0; i < matrices.size(); i++) {
            Views m = matrices.get(i);
            matmul.multiply(m.dTransposed, m.p, m.q, stream);
            // D = -(P Q^T - D): a product has no factor but that of the old elements.
            matmul.multiply(m.p, m.qTransposed, m.d, -1, stream);
            compute.scale(m.error, -1, m.error, stream);
        }
    }

    @Override
    long bytes() {
        return first.byteSize() + second.byteSize();
    }

    @Override
    List<Buffer> carried() {
        return List.of(error, second, drawn);
    }

    @Override
    public void close() {
        Closing.all(owned.reversed());
    }
}
