package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.compute.ThinMatrices;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.ArrayList;
import java.util.List;

/**
 * {@link PowerSgdExchange} on a GPU: products by {@link Matmul}, columns by {@link
 * io.jccl.compute.GradientCompression}. Nothing waits for the host.
 */
final class DevicePowerSgdExchange extends PowerSgdExchange {
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

    private final Compute compute;
    private final Matmul matmul;
    private final List<Views> views = new ArrayList<>();
    private final List<Uncompressed> uncompressed = new ArrayList<>();

    private final ThinMatrices allP;
    private final ThinMatrices allQ;

    DevicePowerSgdExchange(
            Communicator comm,
            Compute compute,
            Matmul matmul,
            Buffer bucket,
            Bucket.Plan plan,
            List<Parameter> parameters,
            Compression.PowerSgd options,
            List<AutoCloseable> owned) {
        super(comm, bucket, plan, parameters, options, owned);
        this.compute = compute;
        this.matmul = matmul;
        List<ThinMatrices.Shape> ps = new ArrayList<>();
        List<ThinMatrices.Shape> qs = new ArrayList<>();
        for (Factored m : matrices) {
            views.add(views(m));
            ps.add(new ThinMatrices.Shape(m.p(), m.rows(), m.rank()));
            qs.add(new ThinMatrices.Shape(m.q(), m.columns(), m.rank()));
        }
        for (Rest r : rests) {
            uncompressed.add(
                    new Uncompressed(
                            bucket.slice(r.at(), r.count()), first.slice(r.to(), r.count())));
        }
        allP = own(ThinMatrices.of(first, ps));
        allQ = own(ThinMatrices.of(second, qs));
    }

    private Views views(Factored m) {
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
    void makeP(Stream stream) {
        compute.compression().redrawZeroColumns(allQ, drawn, seed, stream);
        compute.compression().normalize(allQ, stream);
        for (int i = 0; i < views.size(); i++) {
            Views m = views.get(i);
            compute.axpy(1, m.gradient, m.error, stream);
            matmul.multiply(m.d, m.q, m.p, stream);
        }
        for (int i = 0; i < uncompressed.size(); i++) {
            stream.copy(uncompressed.get(i).gradient, uncompressed.get(i).sent);
        }
    }

    @Override
    void makeQ(Stream stream) {
        compute.compression().orthonormalize(allP, stream);
        for (int i = 0; i < views.size(); i++) {
            Views m = views.get(i);
            matmul.multiply(m.dTransposed, m.p, m.q, stream);
            // D = -(P Q^T - D): a product has no factor but that of the old elements.
            matmul.multiply(m.p, m.qTransposed, m.d, -1, stream);
            compute.scale(m.error, -1, m.error, stream);
        }
    }

    @Override
    void expand(Stream stream) {
        for (int i = 0; i < views.size(); i++) {
            Views m = views.get(i);
            matmul.multiply(m.p, m.qTransposed, m.result, stream);
        }
        for (int i = 0; i < uncompressed.size(); i++) {
            stream.copy(uncompressed.get(i).sent, uncompressed.get(i).gradient);
        }
    }
}
