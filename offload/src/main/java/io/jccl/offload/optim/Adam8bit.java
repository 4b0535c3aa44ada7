package io.jccl.offload.optim;

import java.util.List;

/**
 * Adam with 8-bit moments (arXiv 2110.02861, as in bitsandbytes): each block of 256 elements has
 * its own scale, and codes of a dynamic data type. A step reads a block, computes in float32 as
 * {@link AdamW} does, and rounds the new moments; that rounding does not affect the parameters. A
 * parameter has 2 bytes of moments instead of 8, and blocks 8 bytes more.
 *
 * <p>Weight decay is decoupled, as AdamW's. Blocks count from the first element of the state;
 * pieces of it begin and end at a multiple of 256, or end with the state.
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param beta1 decay of the first moment, in [0, 1)
 * @param beta2 decay of the second moment, in [0, 1)
 * @param epsilon what is added to the denominator, more than 0 and a normal float32
 * @param weightDecay 0 or more
 */
public record Adam8bit(double beta1, double beta2, double epsilon, double weightDecay)
        implements Optimizer {
    private static final List<StateTensor> STATE =
            List.of(
                    new StateTensor("exp_avg", StateTensor.Layout.SIGNED_8BIT),
                    new StateTensor("exp_avg_sq", StateTensor.Layout.UNSIGNED_8BIT));

    /**
     * Checks the hyper-parameters.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public Adam8bit {
        Checks.moments(beta1, beta2, epsilon, weightDecay);
    }

    /**
     * The defaults of bitsandbytes: 0.9, 0.999 and 1e-8, without weight decay.
     *
     * @return an optimizer
     */
    public static Adam8bit defaults() {
        return new Adam8bit(0.9, 0.999, 1e-8, 0);
    }

    @Override
    public String label() {
        return "adam8bit";
    }

    @Override
    public List<StateTensor> state() {
        return STATE;
    }

    @Override
    public Adam8bit withWeightDecay(double decay) {
        return new Adam8bit(beta1, beta2, epsilon, decay);
    }

    @Override
    public void apply(Slice s) {
        long t = s.step();
        float rate = (float) (s.learningRate() / (1 - Checks.power(beta1, t)));
        float root = (float) (1 / Math.sqrt(1 - Checks.power(beta2, t)));
        float keep1 = (float) beta1;
        float add1 = (float) (1 - beta1);
        float keep2 = (float) beta2;
        float add2 = (float) (1 - beta2);
        float eps = (float) epsilon;
        float decay = (float) (1 - s.learningRate() * weightDecay);
        float[] x = s.scratch;
        for (int from = 0; from < s.count(); from += Quantized.BLOCK) {
            int n = Math.min(Quantized.BLOCK, s.count() - from);
            long block = (s.from + from) / Quantized.BLOCK;
            Quantized.SIGNED.decode(s.tensors[0], block, x, 0, n);
            Quantized.UNSIGNED.decode(s.tensors[1], block, x, Quantized.BLOCK, n);
            for (int i = 0; i < n; i++) {
                float g = s.gradient(from + i);
                float m = x[i] * keep1 + g * add1;
                float v = x[Quantized.BLOCK + i] * keep2 + g * add2 * g;
                x[i] = m;
                x[Quantized.BLOCK + i] = v;
                float p = s.parameter(from + i) * decay;
                s.setParameter(from + i, p - m * rate / ((float) Math.sqrt(v) * root + eps));
            }
            Quantized.SIGNED.encode(x, 0, n, s.tensors[0], block);
            Quantized.UNSIGNED.encode(x, Quantized.BLOCK, n, s.tensors[1], block);
        }
    }
}
