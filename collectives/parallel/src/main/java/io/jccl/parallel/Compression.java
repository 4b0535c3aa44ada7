package io.jccl.parallel;

import io.jccl.device.DataType;
import java.util.Objects;

/**
 * How float32 gradients are compressed for communication. Gradients of other types are never
 * compressed.
 *
 * <p>All of them work on the host and on GPUs. {@link Cast} and {@link TopK} give the same bits
 * there as far as NCCL's additions do; the products of {@link PowerSgd} are sums in another order.
 * {@link TopK} and {@link PowerSgd} are lossy, so each rank adds the error of a step to its
 * gradient of the next step (error feedback, Karimireddy et al., <a
 * href="https://arxiv.org/abs/1901.09847">arXiv 1901.09847</a>); this takes as much memory as the
 * gradients themselves. A parameter that no rank used can therefore still have a gradient.
 *
 * <p><b>Threads:</b> immutable.
 */
public sealed interface Compression {
    /** No compression. */
    Compression NONE = new None();

    /** No compression: the mean is computed by the engine's {@link io.jccl.ReduceOp#AVG}. */
    record None() implements Compression {}

    /**
     * Rounding to a 16-bit type, which halves the bytes. Each rank's gradient is rounded to nearest
     * even; the rounded values are summed and divided in float32 and the mean is rounded once more,
     * so all ranks get identical bits, and only contributions can overflow, not their sum. Relative
     * to the largest contribution, the error of the mean is at most 2<sup>-7</sup> with bfloat16
     * and 2<sup>-10</sup> with float16 in its normal range: two roundings of half a unit in the
     * last place. On GPUs NCCL multiplies by 1/<i>n</i>, for <i>n</i> ranks, before it adds, so
     * that sums do not overflow either, and may round each product and sum to the narrow type: up
     * to <i>n</i> more roundings.
     *
     * @param type {@link DataType#BFLOAT16} or {@link DataType#FLOAT16}
     */
    record Cast(DataType type) implements Compression {
        /** Checks the type. */
        public Cast {
            Objects.requireNonNull(type, "type");
            if (type != DataType.BFLOAT16 && type != DataType.FLOAT16) {
                throw new IllegalArgumentException(
                        String.format(
                                "gradients are sent as %s, expected %s or %s",
                                type.label(), DataType.BFLOAT16.label(), DataType.FLOAT16.label()));
            }
        }
    }

    /**
     * Sparsification: only the elements of largest magnitude of each bucket are sent, with their
     * indices, by allGather (Lin et al., <a href="https://arxiv.org/abs/1712.01887">arXiv
     * 1712.01887</a>; Stich et al., <a href="https://arxiv.org/abs/1809.07599">arXiv
     * 1809.07599</a>). The values sent for an element are added in rank order and divided by the
     * number of ranks. Each element takes 8 bytes, and every rank receives the elements of all
     * ranks: with <i>n</i> ranks it saves bytes if the density is below 1/<i>n</i>.
     *
     * <p>A rank sends exactly <i>k</i> = &lceil;density <i>m</i>&rceil; elements of a bucket whose
     * gradients have <i>m</i> elements, 1 or more; the padding between gradients does not count. If
     * fewer than <i>k</i> are not zero, zeros are sent too.
     *
     * @param density fraction of a bucket's elements to send, above 0 and at most 1
     */
    record TopK(double density) implements Compression {
        /** Checks the density. */
        public TopK {
            if (!(density > 0 && density <= 1)) {
                throw new IllegalArgumentException(
                        "the density is " + density + ", expected more than 0 and at most 1");
            }
        }
    }

    /**
     * Low-rank compression: each matrix is approximated by the product of two thin ones, by one
     * step of power iteration from the previous result (Vogels et al., <a
     * href="https://arxiv.org/abs/1905.13727">arXiv 1905.13727</a>, algorithm 1). A matrix of
     * <i>a</i> x <i>b</i> takes <i>r</i>(<i>a</i> + <i>b</i>) elements instead of <i>ab</i>;
     * vectors, and matrices that would not become smaller, are sent uncompressed.
     *
     * <p>On the host all ranks run with the Vector API ({@code --add-modules
     * jdk.incubator.vector}), or all without, since products differ in the last bit: otherwise
     * {@link GradientReducer#create} throws on all ranks.
     *
     * <p>A NaN or infinity in a gradient stays in the error feedback and the factors, and so in all
     * later results, until {@link GradientReducer#carried} is set to zero on all ranks.
     *
     * @param rank columns <i>r</i> of the thin matrices, 1 to 64
     * @param seed seed of the random initial factors, the same on all ranks
     */
    record PowerSgd(int rank, long seed) implements Compression {
        private static final int MOST = 64;

        /** Checks the rank. */
        public PowerSgd {
            if (rank < 1 || rank > MOST) {
                throw new IllegalArgumentException(
                        "the rank of the factors is " + rank + ", expected 1 to " + MOST);
            }
        }

        /**
         * Factors of the given rank, with a seed of 0.
         *
         * @param rank columns of the thin matrices, 1 to 64
         */
        public PowerSgd(int rank) {
            this(rank, 0);
        }
    }
}
