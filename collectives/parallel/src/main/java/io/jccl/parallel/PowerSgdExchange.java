package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.parallel.GradientReducer.Parameter;
import java.util.ArrayList;
import java.util.List;

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
abstract sealed class PowerSgdExchange extends Exchange
        permits HostPowerSgdExchange, DevicePowerSgdExchange {
    /**
     * A matrix that starts at an element of the bucket, and its factors.
     *
     * @param p start of P in the first buffer
     * @param q start of Q in the second
     */
    record Factored(long at, int rows, int columns, int rank, long p, long q) {}

    /** Elements that are sent uncompressed, at an element of the first buffer. */
    record Rest(long at, long count, long to) {}

    final List<Factored> matrices = new ArrayList<>();
    final List<Rest> rests = new ArrayList<>();

    final long seed;

    /** All P, then the uncompressed elements. */
    final Buffer first;

    /** All Q; kept for the next step. */
    final Buffer second;

    final Buffer error;

    /** Number of random columns drawn so far. */
    final Buffer drawn;

    PowerSgdExchange(
            Communicator comm,
            Buffer bucket,
            Bucket.Plan plan,
            List<Parameter> parameters,
            Compression.PowerSgd options,
            List<AutoCloseable> owned) {
        super(comm, bucket, owned);
        seed = options.seed();
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
    }

    @Override
    final void enqueue(Stream stream) {
        makeP(stream);
        comm.allReduce(first, ReduceOp.AVG, stream);
        if (!matrices.isEmpty()) {
            makeQ(stream);
            comm.allReduce(second, ReduceOp.AVG, stream);
        }
        expand(stream);
    }

    /**
     * Draws columns of Q that are zero: all of them at the start, or a column would remain zero
     * forever. Adds the gradient to the error D, computes D Q, and copies the uncompressed
     * elements.
     */
    abstract void makeP(Stream stream);

    /** Orthonormalizes P, computes D<sup>T</sup> P, and subtracts the rank's own result from D. */
    abstract void makeQ(Stream stream);

    /** Computes P Q<sup>T</sup>, and copies the uncompressed elements back. */
    abstract void expand(Stream stream);

    @Override
    final long bytes() {
        return first.byteSize() + second.byteSize();
    }

    @Override
    final List<Buffer> carried() {
        return List.of(error, second, drawn);
    }
}
