package io.jccl.parallel;

import io.jccl.device.DataType;
import java.util.Objects;

/**
 * In which form gradients of float32 travel between ranks. Those of other types always travel as
 * they are.
 *
 * <p>All but {@link None} compute on the host and need gradients in its memory. {@link TopK} and
 * {@link PowerSgd} lose much in each step, so each rank keeps what it did not send and adds it to
 * its gradient of the next step (error feedback, Karimireddy et al., <a
 * href="https://arxiv.org/abs/1901.09847">arXiv 1901.09847</a>); that takes as much memory as the
 * gradients themselves. A parameter that no rank used may so still have a gradient.
 */
public sealed interface Compression {
    /** As they are. */
    Compression NONE = new None();

    /** As they are: the mean is that of the engine's {@link io.jccl.ReduceOp#AVG}. */
    record None() implements Compression {}

    /**
     * Rounded to a type of 16 bits, half the bytes. Each rank's gradient is rounded to nearest
     * even; the rounded values are added and divided in float32 and the mean is rounded once more,
     * so all ranks get the same bits and only contributions can overflow, not their sum. The mean
     * is off by at most 2<sup>-7</sup> of the largest contribution with bfloat16, and
     * 2<sup>-10</sup> with float16 in its normal range: two roundings, each by half a unit in the
     * last place.
     *
     * @param type {@link DataType#BFLOAT16} or {@link DataType#FLOAT16}
     */
    record Cast(DataType type) implements Compression {
        /** Checks the type. */
        public Cast {
            Objects.requireNonNull(type, "type");
            if (type != DataType.BFLOAT16 && type != DataType.FLOAT16) {
                throw new IllegalArgumentException(
                        "gradients are sent as "
                                + type.label()
                                + ", expected "
                                + DataType.BFLOAT16.label()
                                + " or "
                                + DataType.FLOAT16.label());
            }
        }
    }

    /**
     * Only the elements of largest magnitude of each bucket, with their places, by allGather (Lin
     * et al., <a href="https://arxiv.org/abs/1712.01887">arXiv 1712.01887</a>; Stich et al., <a
     * href="https://arxiv.org/abs/1809.07599">arXiv 1809.07599</a>). What all ranks sent for an
     * element is added in rank order and divided by the number of ranks. Each element sent takes 8
     * bytes, and every rank receives those of all ranks: with <i>n</i> ranks it saves bytes while
     * the density is below 1/<i>n</i>.
     *
     * @param density which part of a bucket's elements is sent, above 0 and up to 1; at least one
     *     element is
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
     * Each matrix as a product of two thin ones, by one step of power iteration that starts from
     * the last result (Vogels et al., <a href="https://arxiv.org/abs/1905.13727">arXiv
     * 1905.13727</a>, algorithm 1). A matrix of <i>a</i> x <i>b</i> takes <i>r</i>(<i>a</i> +
     * <i>b</i>) elements instead of <i>ab</i>; vectors, and matrices that it would not make
     * smaller, travel as they are.
     *
     * @param rank columns <i>r</i> of the thin matrices, 1 to 64
     * @param seed of the first factors, which are random; the same on all ranks
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
         * Factors of a rank, with a seed of 0.
         *
         * @param rank columns of the thin matrices, 1 to 64
         */
        public PowerSgd(int rank) {
            this(rank, 0);
        }
    }
}
