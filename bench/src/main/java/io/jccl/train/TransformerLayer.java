package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.gemm.Matmul;
import java.util.SplittableRandom;

/**
 * A single layer of {@link GptShape} for timing: attention and feed-forward part on the host or a
 * GPU, with float32 weights, inputs and gradients by a seeded formula.
 *
 * <p><b>Threads:</b> one at a time, with the help of its own threads.
 */
public final class TransformerLayer implements AutoCloseable {
    private static final int SEED = 17;

    private final GptShape shape;
    private final int sequences;
    private final Owned owned = new Owned();
    private final Block block;
    private final Workspace work;
    private final Buffer input;
    private final Buffer output;

    /**
     * Allocates memory.
     *
     * @param device the host or a GPU
     * @param hidden width, a multiple of heads
     * @param heads attention heads
     * @param context tokens of a sequence
     * @param sequences of a batch
     * @param threads that compute on the host, including the calling one
     */
    public TransformerLayer(
            Device device, int hidden, int heads, int context, int sequences, int threads) {
        this.shape = new GptShape(1, hidden, heads, context, 1, 0, Routing.SWITCH, 1, false);
        this.sequences = sequences;
        try {
            // Splits nothing, so the products never call it.
            Communicator alone = owned.add(Communicator.local(1).getFirst());
            Matmul matmul = owned.add(Matmul.of(device, threads));
            Operations operations = owned.add(new Operations(device, threads, null, 0));
            work = new Workspace(shape, sequences, 1, false, operations, device, owned);
            Products products =
                    new Products(
                            matmul,
                            operations.layers(),
                            device.defaultStream(),
                            alone,
                            work.rows,
                            false,
                            owned);
            Workspace.Kept kept = new Workspace.Kept(work, heads, device, owned);
            long count = (long) work.rows * hidden;
            input = random(owned.floats(device, count), hidden, 1);
            output = owned.floats(device, count);
            Buffer branch = work.branch;
            Product qkv =
                    product(
                            products,
                            device,
                            0,
                            kept.normed,
                            kept.qkv,
                            work.qkvGradient,
                            work.normedGradient);
            Product out =
                    product(
                            products,
                            device,
                            1,
                            kept.attended,
                            branch,
                            work.gradient,
                            work.attendedGradient);
            Product up =
                    product(
                            products,
                            device,
                            2,
                            kept.middleNormed,
                            kept.raised,
                            work.wideGradient,
                            work.normedGradient);
            Product down =
                    product(
                            products,
                            device,
                            3,
                            work.activated,
                            branch,
                            work.gradient,
                            work.wideGradient);
            Dense dense =
                    new Dense(
                            work,
                            new Product[] {up},
                            new Product[] {down},
                            new Buffer[] {kept.raised});
            block =
                    new Block(
                            work,
                            new Buffer[] {input},
                            new Buffer[] {output},
                            new Workspace.Kept[] {kept},
                            new RowNorm(work, null, null, null),
                            new RowNorm(work, null, null, null),
                            new Product[] {qkv},
                            new Product[] {out},
                            dense);
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
    }

    private Product product(
            Products products,
            Device device,
            int weight,
            Buffer from,
            Buffer to,
            Buffer toGradient,
            Buffer fromGradient) {
        GptShape.Weight w = shape.block().get(weight);
        Buffer values = random(owned.floats(device, w.count(1)), w.columns(), w.bound());
        Buffer gradient = owned.floats(device, w.count(1));
        Parameter p = new Parameter(w, values, gradient);
        return products.of(p, null, from, to, toGradient, fromGradient);
    }

    private static Buffer random(Buffer to, int width, double bound) {
        SplittableRandom random = new SplittableRandom(SEED);
        float[] row = new float[width];
        for (long at = 0; at < to.count(); at += width) {
            for (int i = 0; i < width; i++) {
                row[i] = (float) (bound * (2 * random.nextDouble() - 1));
            }
            to.slice(at, width).copyFrom(row);
        }
        return to;
    }

    /**
     * Operations of a forward pass: those of products, and those of attention below the diagonal.
     *
     * @return additions and multiplications; the backward pass has twice as many
     */
    public double flops() {
        double rows = (double) sequences * shape.context();
        double weights = 0;
        for (GptShape.Weight w : shape.block()) {
            weights += w.count(1);
        }
        return 2 * rows * weights + 2 * rows * shape.context() * shape.hidden();
    }

    /**
     * Estimates the memory of a layer.
     *
     * @param hidden width
     * @param rows tokens of a batch
     * @return bytes of weights, gradients and activations, approximately
     */
    public static long bytes(int hidden, long rows) {
        return Float.BYTES * (2L * 12 * hidden * hidden + 30 * rows * hidden);
    }

    /** Computes the output, in the order of the device's default stream. */
    public void forward() {
        block.forward(0);
    }

    /** Computes the gradients of the input and the weights, after {@link #forward}; likewise. */
    public void backward() {
        work.operations.convert(output, work.gradient);
        block.backward(0);
    }

    /**
     * Compares the gradient of the input with a finite difference of half the sum of squared
     * outputs, whose gradient is the output itself.
     *
     * @return the relative difference; float32 explains some thousandths
     */
    public double gradientError() {
        forward();
        backward();
        float[] gradient = read(work.gradient);
        float[] before = read(input);
        double norm = 0;
        for (float g : gradient) {
            norm += (double) g * g;
        }
        norm = Math.sqrt(norm);
        // Inputs are at most 1; the step is large enough to stand out from rounding.
        double reach = 1e-2 * Math.sqrt(before.length);
        double up = moved(before, gradient, reach / norm);
        double down = moved(before, gradient, -reach / norm);
        input.copyFrom(before);
        return Math.abs((up - down) / (2 * reach) - norm) / norm;
    }

    private double moved(float[] before, float[] gradient, double by) {
        float[] there = new float[before.length];
        for (int i = 0; i < there.length; i++) {
            there[i] = (float) (before[i] + by * gradient[i]);
        }
        input.copyFrom(there);
        forward();
        double sum = 0;
        for (float y : read(output)) {
            sum += 0.5 * y * y;
        }
        return sum;
    }

    private float[] read(Buffer from) {
        work.stream.synchronize();
        float[] values = new float[Math.toIntExact(from.count())];
        from.copyTo(values);
        return values;
    }

    /** Frees the memory. */
    @Override
    public void close() {
        owned.close();
    }
}
