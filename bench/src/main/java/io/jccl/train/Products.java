package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.parallel.ColumnLinear;
import io.jccl.parallel.LinearWeights;
import io.jccl.parallel.RowLinear;
import io.jccl.train.GptShape.Split;
import io.jccl.train.GptShape.Weight;
import java.util.HashMap;
import java.util.Map;

/** Creates {@link Product}s of a micro-batch's rows, local or tensor-parallel. */
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
     * Creates a factory.
     *
     * @param matmul computes the products
     * @param stream stream to compute on
     * @param tensor ranks that share matrices
     * @param rows of a micro-batch
     * @param shared whether those ranks split the rows between the matrices (sequence parallelism)
     * @param owned owner of scratch memory
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

    /**
     * A product with a weight matrix, split as the weight specifies; one that is not split is
     * computed locally.
     */
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
        int inputs = inputs(weight);
        int outputs = outputs(weight);
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

    /** Rows of this rank's share of a weight matrix. */
    private int inputs(Weight w) {
        return w.split() == Split.ROWS ? w.rows() / tensor.size() : w.rows();
    }

    /** Columns of this rank's share of a weight matrix. */
    private int outputs(Weight w) {
        boolean whole = w.split() == Split.NONE || w.split() == Split.ROWS;
        return whole ? w.columns() : w.columns() / tensor.size();
    }

    /** A local product with this rank's share of a weight matrix, for any number of rows. */
    Product local(
            Weight weight,
            Buffer w,
            Buffer wGradient,
            Buffer x,
            Buffer y,
            Buffer yGradient,
            Buffer xGradient,
            long count) {
        int inputs = inputs(weight);
        int outputs = outputs(weight);
        Matrix a = Matrix.of(x, count, inputs);
        Matrix b = Matrix.of(w, inputs, outputs);
        Matrix c = Matrix.of(y, count, outputs);
        Matrix dc = Matrix.of(yGradient, count, outputs);
        Matrix da = Matrix.of(xGradient, count, inputs);
        Matrix db = Matrix.of(wGradient, inputs, outputs);
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
