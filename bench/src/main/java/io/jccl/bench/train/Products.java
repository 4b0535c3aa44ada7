package io.jccl.bench.train;

import io.jccl.Communicator;
import io.jccl.bench.train.GptShape.Split;
import io.jccl.bench.train.GptShape.Weight;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.parallel.ColumnLinear;
import io.jccl.parallel.LinearWeights;
import io.jccl.parallel.Matmul;
import io.jccl.parallel.Matrix;
import io.jccl.parallel.RowLinear;
import java.util.HashMap;
import java.util.Map;

/**
 * Makes {@link Product}s of a micro-batch's rows, alone or with the ranks that share the matrices.
 */
final class Products {
    private final Matmul matmul;
    private final Stream stream;
    private final Communicator tensor;
    private final long rows;
    private final boolean shared;
    private final Owned owned;

    /** Layers of one shape share their scratch memory. */
    private final Map<Weight, ColumnLinear> columns = new HashMap<>();

    private final Map<Weight, RowLinear> byRows = new HashMap<>();

    /**
     * Prepares.
     *
     * @param matmul what computes
     * @param stream where
     * @param tensor ranks that share matrices
     * @param rows of a micro-batch
     * @param shared whether those ranks share the rows between the matrices
     * @param owned takes scratch memory
     */
    Products(
            Matmul matmul,
            Stream stream,
            Communicator tensor,
            long rows,
            boolean shared,
            Owned owned) {
        this.matmul = matmul;
        this.stream = stream;
        this.tensor = tensor;
        this.rows = rows;
        this.shared = shared;
        this.owned = owned;
    }

    /** With a weight matrix as it is split; a product with all of it is computed on this rank. */
    Product of(
            Weight weight,
            Buffer w,
            Buffer wGradient,
            Buffer x,
            Buffer y,
            Buffer yGradient,
            Buffer xGradient) {
        int parts = tensor.size();
        if (parts == 1 || weight.split() == Split.NONE) {
            return local(weight, w, wGradient, x, y, yGradient, xGradient, rows);
        }
        boolean in = weight.split() == Split.ROWS;
        int inputs = in ? weight.rows() / parts : weight.rows();
        int outputs = in ? weight.columns() : weight.columns() / parts;
        long xRows = shared && !in ? rows / parts : rows;
        long yRows = shared && in ? rows / parts : rows;
        LinearWeights weights =
                new LinearWeights(
                        Matrix.of(w, inputs, outputs),
                        null,
                        Matrix.of(wGradient, inputs, outputs),
                        null);
        Matrix a = Matrix.of(x, xRows, inputs);
        Matrix da = Matrix.of(xGradient, xRows, inputs);
        Matrix c = Matrix.of(y, yRows, outputs);
        Matrix dc = Matrix.of(yGradient, yRows, outputs);
        if (in) {
            RowLinear.Pass pass = byRows(weight).pass(weights, a, c, dc, da);
            return product(() -> pass.forward(stream), () -> pass.backward(true, stream));
        }
        ColumnLinear.Pass pass = columns(weight).pass(weights, a, c, dc, da);
        return product(() -> pass.forward(stream), () -> pass.backward(true, stream));
    }

    private ColumnLinear columns(Weight w) {
        return columns.computeIfAbsent(
                w,
                key ->
                        owned.add(
                                ColumnLinear.create(
                                        tensor,
                                        matmul,
                                        rows,
                                        key.rows(),
                                        key.columns(),
                                        ColumnLinear.Options.DEFAULT.withSequenceParallel(
                                                shared))));
    }

    private RowLinear byRows(Weight w) {
        return byRows.computeIfAbsent(
                w,
                key ->
                        owned.add(
                                RowLinear.create(
                                        tensor,
                                        matmul,
                                        rows,
                                        key.rows(),
                                        key.columns(),
                                        RowLinear.Options.DEFAULT.withSequenceParallel(shared))));
    }

    /** With a weight matrix that this rank holds whole, of any number of rows. */
    Product local(
            Weight weight,
            Buffer w,
            Buffer wGradient,
            Buffer x,
            Buffer y,
            Buffer yGradient,
            Buffer xGradient,
            long count) {
        Matrix a = Matrix.of(x, count, weight.rows());
        Matrix b = Matrix.of(w, weight.rows(), weight.columns());
        Matrix c = Matrix.of(y, count, weight.columns());
        Matrix dc = Matrix.of(yGradient, count, weight.columns());
        Matrix da = Matrix.of(xGradient, count, weight.rows());
        Matrix db = Matrix.of(wGradient, weight.rows(), weight.columns());
        Matrix across = a.transposed();
        Matrix back = b.transposed();
        return product(
                () -> matmul.multiply(a, b, c, 0, stream),
                () -> {
                    matmul.multiply(across, dc, db, 1, stream);
                    matmul.multiply(dc, back, da, 0, stream);
                });
    }

    private static Product product(Runnable forward, Runnable backward) {
        return new Product() {
            @Override
            public void forward() {
                forward.run();
            }

            @Override
            public void backward() {
                backward.run();
            }
        };
    }
}
