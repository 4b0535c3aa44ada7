package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Layers of a transformer on a device, forward and backward: {@link Compute#layers}. The rules of
 * {@link Compute} for streams, buffers, checks, threads and errors apply.
 *
 * <p>Elements are float32, bfloat16 or float16, the same type in one operation unless documented as
 * float32; each is widened to float32, computed with, and the result is rounded to nearest even.
 * Operations without sums over a row and without exponentials give the same bits on every device;
 * docs/compute.md states the bounds of the others. Each device gives the same bits each time.
 *
 * {@snippet class="snippets.Collectives" region="layers"}
 */
public interface Layers {
    /**
     * Divides rows by their root mean square, for LayerNorm after their mean is subtracted.
     *
     * @param norm which
     * @param x rows
     * @param weight factors of the columns; null for 1
     * @param bias added to the columns after that; null for 0
     * @param y the result, as many elements
     * @param statistics float32, {@link Norm#statistics} for each row: kept for the backward pass
     * @param stream where
     */
    void norm(
            Norm norm,
            Buffer x,
            @Nullable Buffer weight,
            @Nullable Buffer bias,
            Buffer y,
            Buffer statistics,
            Stream stream);

    /**
     * Adds the gradients of a norm.
     *
     * @param norm which
     * @param x its input
     * @param weight its factors, or null
     * @param statistics what the forward pass wrote
     * @param outputGradient gradient of its result
     * @param gradient that of the input is added here, as to a residual connection's
     * @param weightGradient float32, added to; null if it is not needed
     * @param biasGradient float32, added to; null if it is not needed
     * @param stream where
     */
    void normBackward(
            Norm norm,
            Buffer x,
            @Nullable Buffer weight,
            Buffer statistics,
            Buffer outputGradient,
            Buffer gradient,
            @Nullable Buffer weightGradient,
            @Nullable Buffer biasGradient,
            Stream stream);

    /**
     * Applies a function to each element.
     *
     * @param function which
     * @param x inputs
     * @param y as many results; may be x
     * @param stream where
     */
    void activate(Activation function, Buffer x, Buffer y, Stream stream);

    /**
     * Turns the gradient of the results of {@link #activate} into that of its inputs.
     *
     * @param function which
     * @param x inputs
     * @param gradient as many elements, changed in place
     * @param stream where
     */
    void activateBackward(Activation function, Buffer x, Buffer gradient, Stream stream);

    /**
     * SwiGLU (arXiv 2002.05202): {@code y = a b / (1 + exp(-a))}.
     *
     * @param x rows of a, then b
     * @param width elements of a, of b and of a result's row; 1 or more
     * @param y half as many elements
     * @param stream where
     */
    void swiglu(Buffer x, int width, Buffer y, Stream stream);

    /**
     * The gradient of {@link #swiglu}'s input.
     *
     * @param x its input
     * @param width its width
     * @param outputGradient gradient of its result
     * @param gradient gets that of the input
     * @param stream where
     */
    void swigluBackward(Buffer x, int width, Buffer outputGradient, Buffer gradient, Stream stream);

    /**
     * Rotary embedding, in place.
     *
     * @param rotary which heads of which rows
     * @param x rows
     * @param angles float32, {@link Rotary#angles}
     * @param backward whether to rotate back, as gradients require
     * @param stream where
     */
    void rotate(Rotary rotary, Buffer x, Buffer angles, boolean backward, Stream stream);

    /**
     * Adds a row to each row.
     *
     * @param x rows, changed in place
     * @param bias a row; 1 element or more
     * @param stream where
     */
    void addBias(Buffer x, Buffer bias, Stream stream);

    /**
     * Adds the sums of columns, the gradient of a bias. Rows whose numbers leave the same remainder
     * by 128 are added in their order, then the 128 sums as a tree, then what is in the target.
     *
     * @param x rows
     * @param target float32, one for each column, added to; 1 or more
     * @param stream where
     */
    void columnSums(Buffer x, Buffer target, Stream stream);

    /**
     * Adds rows in their order: {@code target[index[r]] += source[r]}, the gradient of an
     * embedding, whose lookup is {@link Compute#gatherRows}. Indices may repeat; rows whose index
     * is not a row of the target are left out.
     *
     * @param source rows
     * @param width elements of a row, 1 or more
     * @param index int32, one for each row of the source
     * @param target rows of float32, added to
     * @param stream where
     */
    void scatterAddRows(Buffer source, int width, Buffer index, Buffer target, Stream stream);

    /**
     * The largest elements of each row, as a router needs: the largest first, of equal ones the
     * first, NaN last.
     *
     * @param x rows
     * @param width elements of a row, 1 or more
     * @param k how many, 1 to the width
     * @param values k for each row
     * @param indices int32, their columns
     * @param stream where
     */
    void topK(Buffer x, int width, int k, Buffer values, Buffer indices, Stream stream);

    /**
     * Sums of weighted rows, as a mixture of experts needs: the product of a sparse matrix, in
     * compressed rows, with the rows of the source. {@code target[r]} is the sum, from 0 and in the
     * order of k, of {@code weight[k] source[index[k]]} over the entries {@code start[r] <= k <
     * start[r + 1]}; each product is rounded to float32, and so is each sum. An entry whose index
     * is not a row of the source adds nothing.
     *
     * @param source rows
     * @param width elements of a row, 1 or more
     * @param start int32, one more than the target has rows, not descending; entries that the index
     *     does not have are ignored. Null if row r has the entry r alone
     * @param index int32, one for each entry
     * @param weight float32, one for each entry; null for 1
     * @param target rows, overwritten
     * @param stream where
     */
    void combineRows(
            Buffer source,
            int width,
            @Nullable Buffer start,
            Buffer index,
            @Nullable Buffer weight,
            Buffer target,
            Stream stream);

    /**
     * The gradient of the weights of {@link #combineRows}: {@code dots[k] = x[r] source[index[k]]},
     * the sum of the products of two rows, for each entry k of each row r. An entry whose index is
     * not a row of the source gets 0; one that belongs to no row is not written.
     *
     * @param x rows, the gradient of the target
     * @param width elements of a row, 1 or more
     * @param start as in combineRows, for the rows of x
     * @param index as in combineRows
     * @param source as in combineRows
     * @param dots float32, one for each entry
     * @param stream where
     */
    void rowDots(
            Buffer x,
            int width,
            @Nullable Buffer start,
            Buffer index,
            Buffer source,
            Buffer dots,
            Stream stream);

    /**
     * Softmax cross entropy of each row and its gradient.
     *
     * @param logits rows
     * @param tokens elements of a row, 1 or more
     * @param labels int32, the correct token of each row; a row with an invalid one, such as -1,
     *     has a loss and a gradient of 0
     * @param losses float32, gets one for each row, in nats
     * @param gradient gets the gradient of the sum of the losses times the scale; may be the
     *     logits; null if it is not needed
     * @param scale factor of the gradient
     * @param stream where
     */
    default void crossEntropy(
            Buffer logits,
            int tokens,
            Buffer labels,
            Buffer losses,
            @Nullable Buffer gradient,
            float scale,
            Stream stream) {
        crossEntropy(logits, tokens, tokens, labels, losses, gradient, scale, stream);
    }

    /**
     * The same for rows that are further apart than they are long, so that each begins where
     * products are fast.
     *
     * @param logits rows of the pitch, whose elements from {@code tokens} on are neither read nor
     *     written
     * @param pitch elements from the start of a row to the next, at least {@code tokens}
     * @param tokens elements that count, 1 or more
     * @param labels as above
     * @param losses as above
     * @param gradient rows of the pitch too, or null
     * @param scale factor of the gradient
     * @param stream where
     */
    void crossEntropy(
            Buffer logits,
            int pitch,
            int tokens,
            Buffer labels,
            Buffer losses,
            @Nullable Buffer gradient,
            float scale,
            Stream stream);

    /**
     * Causal self-attention: the softmax of the scores {@code q k / sqrt(size)} of a row with the
     * rows up to it, times their values. The matrix of scores is never stored.
     *
     * @param shape sizes
     * @param qkv queries, keys and values of all rows
     * @param out outputs of all rows and heads
     * @param logSums float32, one for each row and head: the logarithm of the sum of the
     *     exponentials of its scores, kept for the backward pass
     * @param stream where
     */
    void attention(AttentionShape shape, Buffer qkv, Buffer out, Buffer logSums, Stream stream);

    /**
     * The gradient of {@link #attention}'s input.
     *
     * @param shape sizes
     * @param qkv its input
     * @param out its result
     * @param logSums what it wrote
     * @param outputGradient gradient of its result
     * @param scratch float32, one for each row and head
     * @param gradient gets that of the queries, keys and values
     * @param stream where
     */
    void attentionBackward(
            AttentionShape shape,
            Buffer qkv,
            Buffer out,
            Buffer logSums,
            Buffer outputGradient,
            Buffer scratch,
            Buffer gradient,
            Stream stream);
}
