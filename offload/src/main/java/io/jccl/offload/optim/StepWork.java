package io.jccl.offload.optim;

import io.jccl.compute.Update;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.kernel.UpdateKernel;
import io.jccl.kernel.UpdateWork;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One step of one piece: what the kernels read. Reused, so that a step allocates nothing. Written
 * by one thread before others run it.
 */
final class StepWork {
    private static final ThreadLocal<StepWork> OWN = ThreadLocal.withInitial(StepWork::new);

    final UpdateWork work = new UpdateWork();

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
        Checks.notNegative("the gradient factor", gradientFactor);
        MemorySegment memory = Checks.gradients(gradients);
        DataType type = gradients.dataType();
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
        work.parameters = state.parameters().asSegment();
        work.first = state.moments() > 0 ? state.moment(0).asSegment() : UpdateWork.NONE;
        work.second = state.moments() > 1 ? state.moment(1).asSegment() : UpdateWork.NONE;
        work.gradients = memory;
        work.target = target == null ? UpdateWork.NONE : target.asSegment();
        work.factor = (float) gradientFactor;
        UpdateKernel.Rule rule = coefficients(optimizer, step, learningRate);
        work.kernel(rule, type, out, from);
    }

    /** Sets all that depends on hyper-parameters, step and learning rate alone. */
    private UpdateKernel.Rule coefficients(Optimizer optimizer, long step, double learningRate) {
        if (step < 1) {
            throw new IllegalArgumentException(
                    "step is " + step + ", expected 1 or more: the first step is number 1");
        }
        Checks.notNegative("the learning rate", learningRate);
        return switch (optimizer) {
            case Adam a -> {
                work.decay = (float) a.weightDecay();
                moments(a.beta1(), a.beta2(), a.epsilon(), step, learningRate);
                yield UpdateKernel.Rule.ADAM;
            }
            case AdamW a -> {
                work.decay = (float) (1 - learningRate * a.weightDecay());
                moments(a.beta1(), a.beta2(), a.epsilon(), step, learningRate);
                yield UpdateKernel.Rule.ADAMW;
            }
            case Sgd s -> {
                work.decay = (float) s.weightDecay();
                // In the first step the momentum is the gradient itself.
                work.keep1 = step == 1 ? 0 : (float) s.momentum();
                work.add1 = step == 1 ? 1 : (float) (1 - s.dampening());
                work.keep2 = (float) s.momentum();
                work.rate = (float) learningRate;
                yield s.momentum() == 0
                        ? UpdateKernel.Rule.SGD
                        : s.nesterov() ? UpdateKernel.Rule.NESTEROV : UpdateKernel.Rule.MOMENTUM;
            }
        };
    }

    /** What a step does to an element, for a device. */
    static Update update(Optimizer optimizer, long step, double learningRate) {
        StepWork s = ofThread();
        UpdateKernel.Rule rule = s.coefficients(optimizer, step, learningRate);
        UpdateWork w = s.work;
        return new Update(
                Update.Rule.valueOf(rule.name()),
                w.decay,
                w.keep1,
                w.add1,
                w.keep2,
                w.add2,
                w.rate,
                w.root,
                w.epsilon);
    }

    private void moments(
            double beta1, double beta2, double epsilon, long step, double learningRate) {
        work.keep1 = (float) beta1;
        work.add1 = (float) (1 - beta1);
        work.keep2 = (float) beta2;
        work.add2 = (float) (1 - beta2);
        // StrictMath gives the same bits on every machine.
        work.rate = (float) (learningRate / (1 - StrictMath.pow(beta1, (double) step)));
        work.root = (float) (1 / Math.sqrt(1 - StrictMath.pow(beta2, (double) step)));
        work.epsilon = (float) epsilon;
    }

    /** Lets go of the memory. */
    void clear() {
        work.clear();
    }
}
