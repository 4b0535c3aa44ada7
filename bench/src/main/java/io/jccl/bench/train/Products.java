package io.jccl.bench.train;

import io.jccl.Communicator;
import io.jccl.bench.train.GptShape.Weight;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.parallel.Matmul;
import io.jccl.parallel.Matrix;

/** Makes {@link Product}s. */
final class Products {
    private final Matmul matmul;
    private final Stream stream;
    private final Communicator tensor;
    private final boolean shared;
    private final Buffer all;
    private final Buffer allGradient;

    Products(Matmul matmul, Stream stream, Communicator tensor, boolean shared, Buffer all, Buffer allGradient) {
        this.matmul = matmul;
        this.stream = stream;
        this.tensor = tensor;
        this.shared = shared;
        this.all = all;
        this.allGradient = allGradient;
    }

    /** Of matrices that this rank holds whole. */
    Products(Matmul matmul, Stream stream) {
        this(matmul, stream, null, false, null, null);
    }

    /** With a weight matrix that this rank holds whole. */
    Product local(
            Weight weight,
            Buffer w,
            Buffer wGradient,
            Buffer x,
            Buffer y,
            Buffer yGradient,
            Buffer xGradient,
            long rows) {
        Matrix a = Matrix.of(x.slice(0, rows * weight.rows()), rows, weight.rows());
        Matrix b = Matrix.of(w, weight.rows(), weight.columns());
        Matrix c = Matrix.of(y.slice(0, rows * weight.columns()), rows, weight.columns());
        Matrix dc = Matrix.of(yGradient.slice(0, rows * weight.columns()), rows, weight.columns());
        Matrix da = Matrix.of(xGradient.slice(0, rows * weight.rows()), rows, weight.rows());
        Matrix db = Matrix.of(wGradient, weight.rows(), weight.columns());
        Matrix across = a.transposed();
        Matrix back = b.transposed();
        return new Product() {
            @Override
            public void forward() {
                matmul.multiply(a, b, c, 0, stream);
            }

            @Override
            public void backward() {
                matmul.multiply(across, dc, db, 1, stream);
                matmul.multiply(dc, back, da, 0, stream);
            }
        };
    }

    /** With a weight matrix of which this rank holds some columns or rows. */
    Product split(
            Weight weight,
            Buffer w,
            Buffer wGradient,
            Buffer x,
            Buffer y,
            Buffer yGradient,
            Buffer xGradient,
            long rows) {
        int parts = tensor.size();
        boolean byRows = weight.split() == GptShape.Split.ROWS;
        int in = byRows ? weight.rows() / parts : weight.rows();
        int out = byRows ? weight.columns() : weight.columns() / parts;
        Weight local = new Weight(weight.name(), in, out, 0, GptShape.Split.NONE);
        if (!shared) {
            Product p = local(local, w, wGradient, x, y, yGradient, xGradient, rows);
            return new Product() {
                @Override
                public void forward() {
                    p.forward();
                    if (byRows) {
                        tensor.allReduce(y, io.jccl.ReduceOp.SUM, stream);
                    }
                }

                @Override
                public void backward() {
                    p.backward();
                    if (!byRows) {
                        tensor.allReduce(xGradient, io.jccl.ReduceOp.SUM, stream);
                    }
                }
            };
        }
        Product p =
                byRows
                        ? local(local, w, wGradient, x, all, all, xGradient, rows)
                        : local(local, w, wGradient, all, y, yGradient, allGradient, rows);
        return new Product() {
            @Override
            public void forward() {
                if (byRows) {
                    p.forward();
                    tensor.reduceScatter(all, y, io.jccl.ReduceOp.SUM, stream);
                } else {
                    tensor.allGather(x, all, stream);
                    p.forward();
                }
            }

            @Override
            public void backward() {
                if (byRows) {
                    tensor.allGather(yGradient, all, stream);
                    p.backward();
                } else {
                    tensor.allGather(x, all, stream);
                    p.backward();
                    tensor.reduceScatter(allGradient, xGradient, io.jccl.ReduceOp.SUM, stream);
                }
            }
        };
    }
}
