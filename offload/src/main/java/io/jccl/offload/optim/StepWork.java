package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One step of one piece: what the kernels read. Reused, so that a step allocates nothing. Written
 * by one thread before others run it.
 */
final class StepWork extends Workers.Work {
    private static final ThreadLocal<StepWork> OWN = ThreadLocal.withInitial(StepWork::new);
    private static final MemorySegment NONE = MemorySegment.ofArray(new byte[0]);

    MemorySegment parameters = NONE;
    MemorySegment first = NONE;
    MemorySegment second = NONE;
    MemorySegment gradients = NONE;
    MemorySegment target = NONE;

    /** What gradients are multiplied by. */
    float factor;

    /** Weight decay; for AdamW one minus its product with the learning rate. */
    float decay;

    /** beta1 or momentum, and what the gradient counts in the first moment. */
    float keep1;

    float add1;

    /** The same for the second moment. */
    float keep2;

    float add2;

    /** Learning rate, for Adam over its bias correction. */
    float rate;

    /** What the root of the second moment is multiplied by: its bias correction. */
    float root;

    float epsilon;

    private @Nullable UpdateKernel kernel;
    private long from;
    private int gradientSize;
    private int targetSize;

    /** The calling thread's own. */
    static StepWork ofThread() {
        return OWN.get();
    }

    void prepare(
            Optimizer optimizer,
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        long count = gradients.count();
        Objects.checkFromIndexSize(from, count, state.count());
        if (state.moments() != optimizer.moments()) {
            throw new IllegalArgumentException(
                    "the state holds "
                            + state.moments()
                            + " moments, but "
                            + optimizer
                            + " keeps "
                            + optimizer.moments()
                            + "; make the state for this optimizer");
        }
        if (step < 1) {
            throw new IllegalArgumentException(
                    "step is " + step + ", expected 1 or more: the first step is number 1");
        }
        Checks.notNegative("the learning rate", learningRate);
        Checks.notNegative("the gradient factor", gradientFactor);
        DataType type = gradients.dataType();
        if (type != DataType.FLOAT32 && type != DataType.BFLOAT16 && type != DataType.FLOAT16) {
            throw new IllegalArgumentException(
                    "gradients are of "
                            + type.label()
                            + ", expected float, bfloat16 or half; convert them first");
        }
        DataType out = target == null ? null : target.dataType();
        if (target != null) {
            if (out != DataType.FLOAT32 && out != DataType.BFLOAT16 && out != DataType.FLOAT16) {
                throw new IllegalArgumentException(
                        "the target is of "
                                + target.dataType().label()
                                + ", expected float, bfloat16 or half");
            }
            if (target.count() != count) {
                throw new IllegalArgumentException(
                        "the target has "
                                + target.count()
                                + " elements, but there are "
                                + count
                                + " gradients; both need the same");
            }
        }
        this.parameters = state.parameters().asSegment();
        this.first = state.moments() > 0 ? state.moment(0).asSegment() : NONE;
        this.second = state.moments() > 1 ? state.moment(1).asSegment() : NONE;
        this.gradients = gradients.asSegment();
        this.target = target == null ? NONE : target.asSegment();
        this.from = from;
        this.gradientSize = type.size();
        this.targetSize = target == null ? 0 : target.dataType().size();
        this.factor = (float) gradientFactor;
        UpdateKernel.Rule rule =
                switch (optimizer) {
                    case Adam a -> {
                        this.decay = (float) a.weightDecay();
                        moments(a.beta1(), a.beta2(), a.epsilon(), step, learningRate);
                        yield UpdateKernel.Rule.ADAM;
                    }
                    case AdamW a -> {
                        this.decay = (float) (1 - learningRate * a.weightDecay());
                        moments(a.beta1(), a.beta2(), a.epsilon(), step, learningRate);
                        yield UpdateKernel.Rule.ADAMW;
                    }
                    case Sgd s -> {
                        this.decay = (float) s.weightDecay();
                        // In the first step the momentum is the gradient itself.
                        this.keep1 = step == 1 ? 0 : (float) s.momentum();
                        this.add1 = step == 1 ? 1 : (float) (1 - s.dampening());
                        this.keep2 = (float) s.momentum();
                        this.rate = (float) learningRate;
                        yield s.momentum() == 0
                                ? UpdateKernel.Rule.SGD
                                : s.nesterov()
                                        ? UpdateKernel.Rule.NESTEROV
                                        : UpdateKernel.Rule.MOMENTUM;
                    }
                };
        this.kernel = UpdateKernel.of(rule, type, out);
    }

    private void moments(
            double beta1, double beta2, double epsilon, long step, double learningRate) {
        keep1 = (float) beta1;
        add1 = (float) (1 - beta1);
        keep2 = (float) beta2;
        add2 = (float) (1 - beta2);
        // StrictMath gives the same bits on every machine.
        rate = (float) (learningRate / (1 - StrictMath.pow(beta1, (double) step)));
        root = (float) (1 / Math.sqrt(1 - StrictMath.pow(beta2, (double) step)));
        this.epsilon = (float) epsilon;
    }

    @Override
    void run(int thread, long begin, long end) {
        run(begin, end);
    }

    /** Elements of the piece from begin to before end. */
    void run(long begin, long end) {
        UpdateKernel k = Objects.requireNonNull(kernel);
        for (long i = begin; i < end; i += Workers.CHUNK) {
            k.run(
                    this,
                    (from + i) * Float.BYTES,
                    i * gradientSize,
                    i * targetSize,
                    (int) Math.min(Workers.CHUNK, end - i));
        }
    }

    /** Lets go of the memory. */
    void clear() {
        parameters = NONE;
        first = NONE;
        second = NONE;
        gradients = NONE;
        target = NONE;
    }
}
