package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Compute;
import io.jccl.compute.ThinMatrices;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * Low-rank compression of matrices: algorithm 1 of arXiv 1905.13727 with the error feedback of its
 * algorithm 2.
 *
 * <p>Let D (a x b) be a rank's gradient plus error and Q (b x r) the last factor. Then P = mean
 * over ranks of D Q, with orthonormalized columns; Q = mean of D<sup>T</sup> P; the result is P
 * Q<sup>T</sup>. A rank keeps D - P (D<sup>T</sup> P)<sup>T</sup>, the error of its own
 * contribution, which is never larger than D; the mean of these errors is the error of the result.
 *
 * <p>Thin matrices are column-major.
 */
final class PowerSgdExchange extends Exchange {
    /**
     * A matrix that starts at an element of the bucket, and its factors.
     *
     * @param p start of P in the first buffer
     * @param q start of Q in the second
     */
    private record Factored(long at, int rows, int columns, int rank, long p, long q) {}

    /** Elements that are sent uncompressed, at an element of the first buffer. */
    private record Rest(long at, long count, long to) {}

    /**
     * Views of a matrix and its factors. Thin matrices are column-major, so their transposes are
     * row-major, as the results of products had better be.
     *
     * @param gradient the gradient's elements, then the result's
     * @param error those of the error
     * @param d the error as a matrix
     * @param dTransposed its transpose
     * @param result the gradient as a matrix
     * @param p the left factor
     * @param pTransposed its transpose
     * @param qTransposed the transpose of the right factor
     */
    private record Views(
            Buffer gradient,
            Buffer error,
            Matrix d,
            Matrix dTransposed,
            Matrix result,
            Matrix p,
            Matrix pTransposed,
            Matrix qTransposed) {}

    /** Uncompressed elements in the bucket, and where they are sent. */
    private record Uncompressed(Buffer gradient, Buffer sent) {}

    /**
     * What is computed between two collectives. On the host it is one task, however many matrices
     * there are: a stream's queue is bounded, and who enqueues has to wait if it is full.
     *
     * @param work enqueues it on a stream
     * @param atOnce the host's stream that runs work on the calling thread
     */
    private record Phase(Consumer<Stream> work, Stream atOnce) implements Runnable {
        void enqueue(Stream stream) {
            if (stream.device().kind() == Device.Kind.HOST) {
                stream.launchHostFunction(this);
            } else {
                work.accept(stream);
            }
        }

        @Override
        public void run() {
            work.accept(atOnce);
        }
    }

    private final Compute compute;
    private final Matmul matmul;
    private final List<Views> views = new ArrayList<>();
    private final List<Uncompressed> uncompressed = new ArrayList<>();
    private final ThinMatrices allP;
    private final ThinMatrices allQ;
    private final long seed;
    private final Phase left;
    private final Phase right;
    private final Phase product;

    /** All P, then the uncompressed elements. */
    private final Buffer first;

    /** All Q; kept for the next step. */
    private final Buffer second;

    private final Buffer error;

    /** Number of random columns drawn so far. */
    private final Buffer drawn;

    PowerSgdExchange(
            Communicator comm,
            Compute compute,
            Matmul matmul,
            Buffer bucket,
            Bucket.Plan plan,
            List<Parameter> parameters,
            Compression.PowerSgd options,
            List<AutoCloseable> owned) {
        super(comm, bucket, owned);
        this.compute = compute;
        this.matmul = matmul;
        seed = options.seed();
        Stream atOnce = comm.device().defaultStream();
        left = new Phase(this::makeP, atOnce);
        right = new Phase(this::makeQ, atOnce);
        product = new Phase(this::expand, atOnce);
        List<Factored> matrices = new ArrayList<>();
        List<Rest> rests = new ArrayList<>();
        long pEnd = 0;
        long qEnd = 0;
        for (int i = 0; i < plan.members().size(); i++) {
            Parameter parameter = parameters.get(plan.members().get(i));
            long at = plan.offsets().get(i);
            long rank = Math.min(options.rank(), Math.min(parameter.rows(), parameter.columns()));
            long thin = rank * (parameter.rows() + parameter.columns());
            if (thin >= parameter.count() || thin > Integer.MAX_VALUE) {
                // Stored after all P.
                rests.add(new Rest(at, parameter.count(), 0));
                continue;
            }
            int rows = (int) parameter.rows();
            int columns = (int) parameter.columns();
            matrices.add(new Factored(at, rows, columns, (int) rank, pEnd, qEnd));
            pEnd += rank * rows;
            qEnd += rank * columns;
        }
        for (int i = 0; i < rests.size(); i++) {
            Rest r = rests.get(i);
            rests.set(i, new Rest(r.at, r.count, pEnd));
            pEnd += r.count;
        }
        first = zeros(DataType.FLOAT32, pEnd);
        second = zeros(DataType.FLOAT32, qEnd);
        error = zeros(DataType.FLOAT32, matrices.isEmpty() ? 0 : bucket.count());
        drawn = zeros(DataType.INT64, 1);
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
        Matrix pTransposed = Matrix.of(first, m.p(), m.rank(), m.rows(), m.rows());
        return new Views(
                bucket.slice(m.at(), count),
                error.slice(m.at(), count),
                d,
                d.transposed(),
                Matrix.of(bucket, m.at(), m.rows(), m.columns(), m.columns()),
                pTransposed.transposed(),
                pTransposed,
                Matrix.of(second, m.q(), m.rank(), m.columns(), m.columns()));
    }

    @Override
    void enqueue(Stream stream) {
        left.enqueue(stream);
        comm.allReduce(first, ReduceOp.AVG, stream);
        if (!views.isEmpty()) {
            right.enqueue(stream);
            comm.allReduce(second, ReduceOp.AVG, stream);
        }
        product.enqueue(stream);
    }

    /**
     * Draws columns of Q that are zero: all of them at the start, or a column would remain zero
     * forever. Adds the gradient to the error D, computes D Q, and copies the uncompressed
     * elements.
     */
    private void makeP(Stream stream) {
        compute.compression().redrawZeroColumns(allQ, drawn, seed, stream);
        compute.compression().normalize(allQ, stream);
        for (int i = 0; i < views.size(); i++) {
            Views m = views.get(i);
            compute.axpy(1, m.gradient, m.error, stream);
            matmul.multiply(m.qTransposed, m.dTransposed, m.pTransposed, stream);
        }
        for (int i = 0; i < uncompressed.size(); i++) {
            stream.copy(uncompressed.get(i).gradient, uncompressed.get(i).sent);
        }
    }

    /** Orthonormalizes P, computes D<sup>T</sup> P, and subtracts the rank's own result from D. */
    private void makeQ(Stream stream) {
        compute.compression().orthonormalize(allP, stream);
        for (int i = 0; i < views.size(); i++) {
            Views m = views.get(i);
            matmul.multiply(m.pTransposed, m.d, m.qTransposed, stream);
            // D = -(P Q^T - D): a product has no factor but that of the old elements.
            matmul.multiply(m.p, m.qTransposed, m.d, -1, stream);
            compute.scale(m.error, -1, m.error, stream);
        }
    }

    /** Computes P Q<sup>T</sup>, and copies the uncompressed elements back. */
    private void expand(Stream stream) {
        for (int i = 0; i < views.size(); i++) {
            Views m = views.get(i);
            matmul.multiply(m.p, m.qTransposed, m.result, stream);
        }
        for (int i = 0; i < uncompressed.size(); i++) {
            stream.copy(uncompressed.get(i).sent, uncompressed.get(i).gradient);
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
}
