package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.compute.Layers;
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
import org.jspecify.annotations.Nullable;

/** Creates {@link Product}s of a micro-batch's rows, local or tensor-parallel. */
final class Products {
    private final Matmul matmul;
    private final Layers layers;
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
     * @param layers adds biases
     * @param stream stream to compute on
     * @param tensor ranks that share matrices
     * @param rows of a micro-batch
     * @param shared whether those ranks split the rows between the matrices (sequence parallelism)
     * @param owned owner of scratch memory
     */
    Products(
            Matmul matmul,
            Layers layers,
            Stream stream,
            Communicator tensor,
            long rows,
            boolean shared,
            Owned owned) {
        this.matmul = matmul;
        this.layers = layers;
        this.stream = stream;
        this.tensor = tensor;
        this.rows = rows;
        this.shared = shared;
        this.owned = owned;
    }

    /** Products whose factors are not rounded. */
    Products exact() {
        return matmul instanceof RoundedMatmul rounded
                ? new Products(rounded.exact(), layers, stream, tensor, rows, shared, owned)
                : this;
    }

    /** A factor of two products that others are computed between. */
    private Matrix kept(Matrix factor) {
        return matmul instanceof RoundedMatmul rounded ? rounded.kept(factor, stream) : factor;
    }

    /** A factor of several products in a row. */
    private Matrix shared(Matrix factor) {
        return matmul instanceof RoundedMatmul rounded ? rounded.shared(factor, stream) : factor;
    }

    /**
     * A product with a weight matrix, split as the weight specifies; one that is not split is
     * computed locally.
     *
     * @param bias added to the rows of the product; null for none
     */
    Product of(
            Parameter w,
            @Nullable Parameter bias,
            Buffer x,
            Buffer y,
            Buffer yGradient,
            Buffer xGradient) {
        Weight weight = w.weight();
        int parts = tensor.size();
        if (parts == 1 || weight.split() == Split.NONE) {
            Product alone = local(w, x, y, yGradient, xGradient, rows);
            return bias == null ? alone : biased(alone, bias, y, yGradient);
        }
        boolean in = weight.split() == Split.ROWS;
        int inputs = inputs(weight);
        int outputs = outputs(weight);
        long xRows = shared && !in ? rows / parts : rows;
        long yRows = shared && in ? rows / parts : rows;
        LinearWeights weights =
                new LinearWeights(
                        Matrix.of(w.values(), inputs, outputs),
                        bias == null ? null : bias.values(),
                        Matrix.of(w.gradient(), inputs, outputs),
                        bias == null ? null : bias.gradient());
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

    private Product biased(Product product, Parameter bias, Buffer y, Buffer yGradient) {
        return product(
                () -> {
                    product.forward();
                    layers.addBias(y, bias.values(), stream);
                },
                () -> {
                    layers.columnSums(yGradient, bias.gradient(), stream);
                    product.backward();
                });
    }

    /**
     * A product with the rows of a table, {@code y = x t'}.
     *
     * @param product whose {@link Product#backward} computes the gradient of x alone
     * @param gradient adds to the gradient of the table, after that
     */
    record ByTable(Product product, Runnable gradient) {}

    /** A local product with the rows of a table, such as the logits of a tied model. */
    ByTable byTable(Parameter table, Buffer x, Buffer y, Buffer yGradient, Buffer xGradient) {
        int inputs = table.weight().columns();
        int outputs = table.weight().rows();
        Matrix a = Matrix.of(x, rows, inputs);
        Matrix b = Matrix.of(table.values(), outputs, inputs);
        Matrix across = b.transposed();
        Matrix c = pitched(y, rows, outputs);
        Matrix dc = pitched(yGradient, rows, outputs);
        Matrix da = Matrix.of(xGradient, rows, inputs);
        Matrix db = Matrix.of(table.gradient(), outputs, inputs);
        Matrix[] factor = {dc};
        return new ByTable(
                product(
                        () -> matmul.multiply(a, across, c, 0, stream),
                        () -> {
                            factor[0] = kept(dc);
                            matmul.multiply(factor[0], b, da, 0, stream);
                        }),
                () -> matmul.multiply(factor[0].transposed(), a, db, 1, stream));
    }

    /** A buffer as rows, whose number gives the distance from one to the next. */
    private static Matrix pitched(Buffer buffer, long rows, int columns) {
        return rows == 0
                ? Matrix.of(buffer, rows, columns)
                : Matrix.of(buffer, 0, rows, columns, buffer.count() / rows);
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
    Product local(Parameter w, Buffer x, Buffer y, Buffer yGradient, Buffer xGradient, long count) {
        int inputs = inputs(w.weight());
        int outputs = outputs(w.weight());
        Matrix a = Matrix.of(x, count, inputs);
        Matrix b = Matrix.of(w.values(), inputs, outputs);
        Matrix c = pitched(y, count, outputs);
        Matrix dc = pitched(yGradient, count, outputs);
        Matrix da = Matrix.of(xGradient, count, inputs);
        Matrix db = Matrix.of(w.gradient(), inputs, outputs);
        Matrix across = a.transposed();
        Matrix back = b.transposed();
        return product(
                () -> matmul.multiply(a, b, c, 0, stream),
                () -> {
                    Matrix factor = shared(dc);
                    matmul.multiply(across, factor, db, 1, stream);
                    matmul.multiply(factor, back, da, 0, stream);
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
