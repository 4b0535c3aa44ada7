package io.jccl.offload.optim;

import io.jccl.compute.ReusableUpdate;
import io.jccl.compute.Update;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.UpdateKernel;
import io.jccl.kernel.UpdateWork;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One step of one piece: what the kernels read. Reused, so that a step allocates nothing. Written
 * by one thread before others run it.
 */
final class StepWork {
    private static final ThreadLocal<StepWork> OWN = ThreadLocal.withInitial(() -> new StepWork(1));

    final UpdateWork work = new UpdateWork();
    private final SliceWork slices;

    /** Whether the rule brings its own kernel. */
    private boolean open;

    private int sums;

    private double[] room = {};

    /** For a number of threads. */
    StepWork(int threads) {
        slices = new SliceWork(threads);
    }

    /** Runs all passes, on the calling thread or on several. */
    void run(@Nullable Chunks chunks, long count) {
        if (sums == 0) {
            share(chunks, count);
            return;
        }
        Slice s = slices.settings;
        s.pass = 0;
        share(chunks, count);
        Arrays.fill(s.sums, 0);
        slices.addSums(count, s.sums, 0);
        s.pass = 1;
        share(chunks, count);
    }

    private void share(@Nullable Chunks chunks, long count) {
        Chunks.Work w = open ? slices : work;
        if (chunks == null) {
            w.run(0, 0, count);
        } else {
            chunks.run(w, count);
        }
    }

    /** Runs one pass on the calling thread. */
    void pass(int pass, double[] values, int at, long count) {
        if (sums == 0 || pass < 0 || pass > 1) {
            throw new IllegalArgumentException(
                    ("pass is %s of a rule with %s sums, expected 0 or 1 and a rule with sums; use"
                                    + " step for others")
                            .formatted(pass, sums));
        }
        Slice s = slices.settings;
        s.pass = pass;
        System.arraycopy(values, at, s.sums, 0, sums);
        share(null, count);
        if (pass == 0) {
            slices.addSums(count, values, at);
        }
    }

    /** Room for sums, with any content. */
    double[] sums(int count) {
        if (room.length < count) {
            room = new double[count];
        }
        return room;
    }

    /** Elements of what was prepared, from an index in it to at most its count. */
    Slice slice(long from, long index, long count) {
        Slice s = slices.settings;
        s.from = from + index;
        s.gradientFrom = index;
        s.count = (int) Math.min(Slice.MOST, count - index);
        return s;
    }

    /** Writes the parameters of a slice to the target, if there is one. */
    void writeTarget(Slice s, long index) {
        slices.write(s, index);
    }

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
        if (!state.fits(optimizer)) {
            throw new IllegalArgumentException(
                    "the state holds %s moments, but %s keeps %s; make the state for this optimizer"
                            .formatted(state.moments(), optimizer, optimizer.moments()));
        }
        for (int k = 0; k < state.moments(); k++) {
            state.checkBlocks(optimizer.label(), k, from, from + count);
        }
        Checks.notNegative("the gradient factor", gradientFactor);
        MemorySegment memory = Checks.gradients(gradients);
        DataType type = gradients.dataType();
        DataType out = target == null ? null : target.dataType();
        if (target != null) {
            checkTarget(target, count);
        }
        check(step, learningRate);
        sums = optimizer.sums();
        open = !hasFormula(optimizer);
        if (open) {
            Slice s = slices.settings;
            s.parameters = state.parameters().asSegment();
            for (int k = 0; k < state.moments(); k++) {
                s.tensors[k] = state.moment(k).asSegment();
            }
            s.gradients = memory;
            s.type = type;
            s.from = from;
            s.pass = 0;
            s.step = step;
            s.learningRate = learningRate;
            s.factor = (float) gradientFactor;
            slices.prepare(
                    optimizer, count, target == null ? UpdateWork.NONE : target.asSegment(), out);
            return;
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

    static void checkTarget(Buffer target, long count) {
        DataType type = target.dataType();
        if (type != DataType.FLOAT32 && type != DataType.BFLOAT16 && type != DataType.FLOAT16) {
            throw new IllegalArgumentException(
                    "the target is of " + type.label() + ", expected float, bfloat16 or half");
        }
        if (target.count() != count) {
            throw new IllegalArgumentException(
                    "the target has %s elements, but there are %s gradients; both need the same"
                            .formatted(target.count(), count));
        }
    }

    static void check(long step, double learningRate) {
        if (step < 1) {
            throw new IllegalArgumentException(
                    "step is " + step + ", expected 1 or more: the first step is number 1");
        }
        Checks.notNegative("the learning rate", learningRate);
    }

    /** Whether a rule is one of those that the kernels have. */
    static boolean hasFormula(Optimizer optimizer) {
        return optimizer instanceof Adam
                || optimizer instanceof AdamW
                || optimizer instanceof Sgd
                || optimizer instanceof Lion;
    }

    /** Sets all that depends on hyper-parameters, step and learning rate alone. */
    private UpdateKernel.Rule coefficients(Optimizer optimizer, long step, double learningRate) {
        check(step, learningRate);
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
            case Lion l -> {
                work.decay = (float) (1 - learningRate * l.weightDecay());
                work.keep1 = (float) l.beta1();
                work.add1 = (float) (1 - l.beta1());
                work.keep2 = (float) l.beta2();
                work.add2 = (float) (1 - l.beta2());
                work.rate = (float) learningRate;
                yield UpdateKernel.Rule.LION;
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
            default ->
                    throw new UnsupportedOperationException(
                            optimizer.label()
                                    + " has no kernel for a GPU, expected adam, adamw, sgd or lion;"
                                    + " keep its state on the host");
        };
    }

    /** What a step does to an element, for a device. */
    static Update update(Optimizer optimizer, long step, double learningRate) {
        ReusableUpdate formula = new ReusableUpdate();
        update(optimizer, step, learningRate, formula);
        return formula.copy();
    }

    /** The same, without an object. */
    static void update(
            Optimizer optimizer, long step, double learningRate, ReusableUpdate formula) {
        StepWork s = ofThread();
        UpdateKernel.Rule rule = s.coefficients(optimizer, step, learningRate);
        UpdateWork w = s.work;
        formula.set(
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
        // The same bits on every machine, and no objects, unlike StrictMath.pow.
        work.rate = (float) (learningRate / (1 - Checks.power(beta1, step)));
        work.root = (float) (1 / Math.sqrt(1 - Checks.power(beta2, step)));
        work.epsilon = (float) epsilon;
    }

    /** Lets go of the memory. */
    void clear() {
        slices.clear();
        work.clear();
    }
}
