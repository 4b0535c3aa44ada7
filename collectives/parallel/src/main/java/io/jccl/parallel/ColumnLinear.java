package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A column-parallel linear layer {@code Y = X W + b}: each rank holds some columns of the weight
 * and computes those columns of Y. The first of the two layers of an MLP or an attention block
 * under tensor parallelism (Shoeybi et al., "Megatron-LM", arXiv 1909.08053, section 3); {@link
 * RowLinear} is the second.
 *
 * <table>
 * <caption>T tokens, I inputs, O outputs, n ranks; the operator f of the paper and, with sequence parallelism, its replacement
 * (Korthikanti et al., arXiv 2205.05198, section 4.2)</caption>
 * <tr><th></th><th>X</th><th>forward</th><th>backward</th></tr>
 * <tr><td>plain</td><td>T x I on every rank</td><td>none</td><td>allReduce of T I</td></tr>
 * <tr><td>sequence-parallel</td><td>T/n x I</td><td>allGather of X</td><td>allGather of X again,
 * reduceScatter of T I</td></tr>
 * </table>
 *
 * <p>With {@link Options#overlap} the weight gradient is computed on a separate stream,
 * concurrently with the collective of the input gradient, as in Megatron-LM.
 *
 * <p>Layers of the same shape may share an object and so its scratch memory. A {@link Pass} binds
 * the buffers of one use of a layer; it is created once, and running it allocates nothing.
 *
 * {@snippet class="snippets.Parallel" region="linear"}
 *
 * <p><b>Threads:</b> the thread of the communicator.
 */
public final class ColumnLinear extends SplitLinear {
    /**
     * Settings of the layer.
     *
     * @param gatherOutput whether every rank receives all columns of Y; default false: only its own
     * @param sequenceParallel whether X is only this rank's share of the tokens; default false: all
     *     tokens
     * @param overlap whether the weight gradient is computed concurrently with the collective;
     *     default true
     */
    public record Options(boolean gatherOutput, boolean sequenceParallel, boolean overlap) {
        /** The defaults: own columns, all tokens, overlap. */
        public static final Options DEFAULT = new Options(false, false, true);

        /**
         * These options with or without sequence parallelism.
         *
         * @param value whether X is only this rank's share of the tokens
         * @return new options
         */
        public Options withSequenceParallel(boolean value) {
            return new Options(gatherOutput, value, overlap);
        }

        /**
         * These options with or without gathering of the output.
         *
         * @param value whether every rank receives all columns of Y
         * @return new options
         */
        public Options withGatherOutput(boolean value) {
            return new Options(value, sequenceParallel, overlap);
        }

        /**
         * These options with or without overlap.
         *
         * @param value whether the weight gradient is computed concurrently with the collective
         * @return new options
         */
        public Options withOverlap(boolean value) {
            return new Options(gatherOutput, sequenceParallel, value);
        }
    }

    private static final int WHOLE_INPUT = 0;
    private static final int WHOLE_GRADIENT = 1;

    private final Options options;
    private final Part columns;

    private ColumnLinear(
            Communicator comm,
            Matmul matmul,
            long tokens,
            long inputs,
            long outputs,
            Options options) {
        super(comm, matmul, tokens, inputs, outputs, options.sequenceParallel, options.overlap);
        this.options = options;
        this.columns = Part.of(outputs, comm.rank(), comm.size());
    }

    /**
     * Creates the helper of a layer, without waiting for other ranks.
     *
     * @param comm the ranks that share the layer; all must run the same passes in the same order
     * @param matmul matrix products on the communicator's device; not closed by the helper
     * @param tokens rows of X in one pass, of all ranks together, 1 or more
     * @param inputs columns of X
     * @param outputs columns of Y, of all ranks together
     * @param options settings
     * @return the helper, which the caller closes
     * @throws IllegalArgumentException if a number is less than 1, or the device does not support
     *     the options
     */
    public static ColumnLinear create(
            Communicator comm,
            Matmul matmul,
            long tokens,
            long inputs,
            long outputs,
            Options options) {
        refuseOnDevice(
                comm,
                options.gatherOutput,
                "gatherOutput",
                "leave the output split, and let a RowLinear take it");
        return new ColumnLinear(comm, matmul, tokens, inputs, outputs, options);
    }

    /**
     * This rank's columns of the weight and elements of the bias.
     *
     * @return the share
     */
    public Part outputsHere() {
        return columns;
    }

    /**
     * The rows of X that this rank passes.
     *
     * @return all, or its share with sequence parallelism
     */
    public Part tokensHere() {
        return options.sequenceParallel ? rows : new Part(0, tokens);
    }

    /**
     * Prepares one use of the layer.
     *
     * @param weights this rank's share: inputs x its outputs
     * @param input X: this rank's tokens x inputs, float32; without sequence parallelism also
     *     bfloat16. Read again in the backward pass
     * @param output Y: all tokens x this rank's outputs, or all outputs if gathered
     * @param outputGradient shape of the output; null if there is no backward pass
     * @param inputGradient shape of the input; null if not needed
     * @return the pass; valid as long as this helper is open
     * @throws IllegalArgumentException if a shape or type does not fit
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
        private final Tokens input;
        private final Matrix wholeTransposed;
        private final Matrix own;
        private final @Nullable Matrix ownGradient;
        private final @Nullable Tokens inputGradient;
        private final @Nullable Columns gatherOutput;
        private final Matrix ones;

        Pass(
                LinearWeights w,
                Matrix input,
                Matrix output,
                @Nullable Matrix outputGradient,
                @Nullable Matrix inputGradient) {
            weights = w;
            boolean gather = options.gatherOutput && !isAlone();
            shape(w.weight(), inputs, columns.count(), "the weight");
            shape(input, tokensHere().count(), inputs, "the input");
            long wide = options.gatherOutput ? outputs : columns.count();
            shape(output, tokens, wide, "the output");
            bias = row(w.bias());
            biasGradient = row(w.biasGradient());
            weightTransposed = w.weight().transposed();
            ones = onesRow(tokens);
            this.input = new Tokens(input, split, WHOLE_INPUT, "the input");
            wholeTransposed = this.input.whole.transposed();
            own = gather ? output.columns(columns.from(), columns.count()) : output;
            gatherOutput = gather ? new Columns(comm, output, packed(tokens * outputs)) : null;
            Matrix dy = outputGradient;
            Tokens dx = null;
            if (dy != null) {
                shape(dy, tokens, wide, "the output's gradient");
                Objects.requireNonNull(w.weightGradient(), "the weight's gradient");
                dy = gather ? dy.columns(columns.from(), columns.count()) : dy;
                if (inputGradient != null) {
                    String name = "the input's gradient";
                    shape(inputGradient, tokensHere().count(), inputs, name);
                    dx = new Tokens(inputGradient, !isAlone(), WHOLE_GRADIENT, name);
                }
            }
            ownGradient = dy;
            this.inputGradient = dx;
        }

        /**
         * Computes Y.
         *
         * @param stream where to enqueue
         */
        public void forward(Stream stream) {
            input.gather(stream);
            matmul.multiply(input.whole, weights.weight(), own, 0, stream);
            if (bias != null) {
                addBias(bias, own, stream);
            }
            if (gatherOutput != null) {
                gatherOutput.gather(stream);
            }
        }

        /**
         * Computes the gradients of weight, bias and input from the gradient of Y. The input
         * gradient is summed over ranks, so it is that of the whole layer.
         *
         * @param accumulate whether the gradients of weight and bias are added to the existing
         *     values
         * @param stream where to enqueue
         * @throws IllegalStateException if the pass was created without gradients
         */
        public void backward(boolean accumulate, Stream stream) {
            Matrix dy = ownGradient;
            Matrix dw = weights.weightGradient();
            if (dy == null || dw == null) {
                throw noGradient();
            }
            float beta = accumulate ? 1 : 0;
            Tokens dx = inputGradient;
            if (dx != null) {
                // The input is gathered again instead of being kept, while its gradient is
                // computed.
                Stream beside = split ? beside(stream) : stream;
                matmul.multiply(dy, weightTransposed, dx.whole, 0, beside);
            }
            input.gather(stream);
            if (dx != null && split) {
                join(stream);
            }
            boolean communicates = dx != null && !isAlone();
            Stream beside = communicates ? beside(stream) : stream;
            matmul.multiply(wholeTransposed, dy, dw, beta, beside);
            if (biasGradient != null) {
                matmul.multiply(ones, dy, biasGradient, beta, beside);
            }
            if (dx != null) {
                dx.sum(stream);
            }
            if (communicates) {
                join(stream);
            }
        }
    }
}
