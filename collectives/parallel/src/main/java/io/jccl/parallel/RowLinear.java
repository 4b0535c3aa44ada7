package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A row-parallel linear layer {@code Y = X W + b}: each rank holds some columns of X and the
 * matching rows of the weight, and the partial results are summed over ranks. The second of the two
 * layers of an MLP or an attention block under tensor parallelism (Shoeybi et al., "Megatron-LM",
 * arXiv 1909.08053, section 3); {@link ColumnLinear} is the first.
 *
 * <table>
 * <caption>T tokens, O outputs, n ranks; the operator g of the paper and, with sequence parallelism, its replacement
 * (Korthikanti et al., arXiv 2205.05198, section 4.2)</caption>
 * <tr><th></th><th>Y</th><th>forward</th><th>backward</th></tr>
 * <tr><td>plain</td><td>T x O on every rank</td><td>allReduce of T O</td><td>none</td></tr>
 * <tr><td>sequence-parallel</td><td>T/n x O</td><td>reduceScatter of T O</td><td>allGather of
 * the gradient of Y, allReduce of the bias gradient</td></tr>
 * </table>
 *
 * <p>Every rank holds the whole bias; it is added once, and its gradient is the same on all ranks.
 *
 * <p>Layers of the same shape may share an object and so its scratch memory. A {@link Pass} binds
 * the buffers of one use of a layer; it is created once, and running it allocates nothing.
 *
 * {@snippet class="snippets.Parallel" region="linear"}
 *
 * <p><b>Threads:</b> the thread of the communicator.
 */
public final class RowLinear extends SplitLinear {
    /**
     * Settings of the layer.
     *
     * @param inputIsParallel whether a rank passes only its own columns of X, as returned by {@link
     *     ColumnLinear}; default true. Otherwise it passes all columns and receives the gradient of
     *     all
     * @param sequenceParallel whether a rank receives only its share of the tokens of Y; default
     *     false: all tokens
     */
    public record Options(boolean inputIsParallel, boolean sequenceParallel) {
        /** The defaults: own columns of the input, all tokens of the output. */
        public static final Options DEFAULT = new Options(true, false);

        /**
         * These options with or without sequence parallelism.
         *
         * @param value whether a rank receives only its share of the tokens of Y
         * @return new options
         */
        public Options withSequenceParallel(boolean value) {
            return new Options(inputIsParallel, value);
        }

        /**
         * These options with the input split or not.
         *
         * @param value whether a rank passes only its own columns of X
         * @return new options
         */
        public Options withInputIsParallel(boolean value) {
            return new Options(value, sequenceParallel);
        }
    }

    private static final int WHOLE_OUTPUT = 0;
    private static final int BIAS_SUM = 1;

    private final Options options;
    private final Part columns;

    private RowLinear(
            Communicator comm,
            Matmul matmul,
            long tokens,
            long inputs,
            long outputs,
            Options options) {
        super(comm, matmul, tokens, inputs, outputs, options.sequenceParallel, false);
        this.options = options;
        this.columns = Part.of(inputs, comm.rank(), comm.size());
    }

    /**
     * Creates the helper of a layer, without waiting for other ranks.
     *
     * @param comm the ranks that share the layer; all must run the same passes in the same order
     * @param matmul matrix products on the communicator's device; not closed by the helper
     * @param tokens rows of Y in one pass, of all ranks together, 1 or more
     * @param inputs columns of X, of all ranks together
     * @param outputs columns of Y
     * @param options settings
     * @return the helper, which the caller closes
     * @throws IllegalArgumentException if a number is less than 1, or the device does not support
     *     the options
     */
    public static RowLinear create(
            Communicator comm,
            Matmul matmul,
            long tokens,
            long inputs,
            long outputs,
            Options options) {
        refuseOnDevice(
                comm,
                !options.inputIsParallel,
                "a gradient of all inputs",
                "pass in this rank's inputs alone (inputIsParallel)");
        return new RowLinear(comm, matmul, tokens, inputs, outputs, options);
    }

    /**
     * This rank's rows of the weight.
     *
     * @return the share
     */
    public Part inputsHere() {
        return columns;
    }

    /**
     * The rows of Y that this rank receives.
     *
     * @return all, or its share with sequence parallelism
     */
    public Part tokensHere() {
        return options.sequenceParallel ? rows : new Part(0, tokens);
    }

    /**
     * Prepares one use of the layer.
     *
     * @param weights this rank's share: its inputs x outputs, and the whole bias
     * @param input X: all tokens x this rank's inputs, or all inputs; float32 or bfloat16. Read
     *     again in the backward pass
     * @param output Y: this rank's tokens x outputs
     * @param outputGradient shape of the output; null if there is no backward pass
     * @param inputGradient shape of the input; null if not needed
     * @return the pass; valid as long as this helper is open
     * @throws IllegalArgumentException if a shape or type does not match
     */
    public Pass pass(
            LinearWeights weights,
            Matrix input,
            Matrix output,
            @Nullable Matrix outputGradient,
            @Nullable Matrix inputGradient) {
        return new Pass(weights, input, output, outputGradient, inputGradient);
    }

    /** One use of a layer on fixed buffers. */
    public final class Pass {
        private final LinearWeights weights;
        private final Matrix weightTransposed;
        private final @Nullable Matrix bias;
        private final @Nullable Matrix biasGradient;
        private final @Nullable Matrix biasSum;
        private final Matrix own;
        private final Matrix ownTransposed;
        private final Matrix output;
        private final Tokens outputSum;
        private final @Nullable Matrix outputGradient;
        private final @Nullable Tokens wholeGradient;
        private final @Nullable Matrix ownGradient;
        private final @Nullable Columns gatherInput;
        private final Matrix ones;
        private final Matrix one;

        Pass(
                LinearWeights w,
                Matrix input,
                Matrix output,
                @Nullable Matrix outputGradient,
                @Nullable Matrix inputGradient) {
            weights = w;
            long wide = options.inputIsParallel ? columns.count() : inputs;
            shape(w.weight(), columns.count(), outputs, "the weight");
            shape(input, tokens, wide, "the input");
            shape(output, tokensHere().count(), outputs, "the output");
            bias = row(w.bias());
            own = ownColumns(input);
            ownTransposed = own.transposed();
            weightTransposed = w.weight().transposed();
            this.output = output;
            this.outputGradient = outputGradient;
            ones = onesRow(output.rows());
            one = onesRow(tokens).columns(0, 1);
            outputSum = new Tokens(output, !isAlone(), WHOLE_OUTPUT, "the output");
            if (outputGradient == null) {
                biasGradient = null;
                biasSum = null;
                wholeGradient = null;
                ownGradient = null;
                gatherInput = null;
                return;
            }
            String name = "the output's gradient";
            shape(outputGradient, tokensHere().count(), outputs, name);
            Objects.requireNonNull(w.weightGradient(), "the weight's gradient");
            biasGradient = row(w.biasGradient());
            biasSum =
                    split && biasGradient != null
                            ? Matrix.of(scratch(BIAS_SUM, outputs), 1, outputs)
                            : null;
            wholeGradient = new Tokens(outputGradient, split, WHOLE_OUTPUT, name);
            Matrix dx = null;
            Columns gather = null;
            if (inputGradient != null) {
                shape(inputGradient, tokens, wide, "the input's gradient");
                dx = ownColumns(inputGradient);
                if (!options.inputIsParallel && !isAlone()) {
                    gather = new Columns(comm, inputGradient, packed(tokens * inputs));
                }
            }
            ownGradient = dx;
            gatherInput = gather;
        }

        private Matrix ownColumns(Matrix m) {
            return options.inputIsParallel ? m : m.columns(columns.from(), columns.count());
        }

        /**
         * Computes Y.
         *
         * @param stream where to enqueue
         */
        public void forward(Stream stream) {
            matmul.multiply(own, weights.weight(), outputSum.whole, 0, stream);
            outputSum.sum(stream);
            if (bias != null) {
                addBias(bias, output, stream);
            }
        }

        /**
         * Computes the gradients of weight, bias and input from the gradient of Y.
         *
         * @param accumulate whether the gradients of weight and bias are added to the existing
         *     values
         * @param stream where to enqueue
         * @throws IllegalStateException if the pass was created without gradients
         */
        public void backward(boolean accumulate, Stream stream) {
            Tokens dy = wholeGradient;
            Matrix dw = weights.weightGradient();
            Matrix mine = outputGradient;
            if (dy == null || dw == null || mine == null) {
                throw noGradient();
            }
            float beta = accumulate ? 1 : 0;
            dy.gather(stream);
            if (ownGradient != null) {
                matmul.multiply(dy.whole, weightTransposed, ownGradient, 0, stream);
            }
            matmul.multiply(ownTransposed, dy.whole, dw, beta, stream);
            if (biasGradient != null && biasSum == null) {
                matmul.multiply(ones, mine, biasGradient, beta, stream);
            } else if (biasGradient != null && biasSum != null) {
                // Each rank has only the sum over its own tokens.
                matmul.multiply(ones, mine, biasSum, 0, stream);
                comm.allReduce(biasSum.buffer(), ReduceOp.SUM, stream);
                matmul.multiply(one, biasSum, biasGradient, beta, stream);
            }
            if (gatherInput != null) {
                gatherInput.gather(stream);
            }
        }
    }
}
