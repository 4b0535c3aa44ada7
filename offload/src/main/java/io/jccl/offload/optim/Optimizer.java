package io.jccl.offload.optim;

import io.jccl.compute.ReusableUpdate;
import io.jccl.compute.Update;
import io.jccl.device.Buffer;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * An update rule with its hyper-parameters, applied on the CPU to float32 state in host memory.
 *
 * <p>{@link Adam}, {@link AdamW}, {@link Sgd} and {@link Lion} work element by element: the new
 * parameter and moments at an index depend on that index alone. A step can therefore be divided
 * into pieces in any way and run by any number of threads in any order, with bit-identical results.
 * Every operation is an IEEE 754 binary32 operation, rounded to nearest even and never fused, so
 * the loops on the Vector API and the plain ones are bit-identical too; only the sign and payload
 * of a NaN may differ. {@link Lamb} and {@link Adafactor} need sums over whole tensors, {@link
 * Adam8bit} pieces of whole blocks of 256.
 *
 * <p>Other rules implement {@link #label}, {@link #state} and {@link #apply}:
 *
 * {@snippet class="snippets.Offload" region="rule"}
 *
 * <p>One pass reads gradients, parameters and moments, and writes parameters and moments, and on
 * request also the new parameters rounded to a narrower type. Nothing is allocated. Off-heap memory
 * is fastest; buffers over Java arrays work too.
 *
 * <p><b>Threads:</b> immutable; any thread may call. Concurrent steps of one state are allowed on
 * pieces that do not overlap. Gradients are not checked for infinities or NaN: see {@link
 * GradientNorm} and {@link CheckedStep}.
 */
public interface Optimizer {
    /** State tensors of a rule, at most. */
    int MOST_STATE = 8;

    /** Sums of a rule, at most. */
    int MOST_SUMS = 8;

    /**
     * The name used in files and reports.
     *
     * @return such as {@code "adamw"}
     */
    String label();

    /**
     * State kept in addition to the parameters, all zero before the first step.
     *
     * @return the tensors, at most {@link #MOST_STATE}: always the same
     */
    List<StateTensor> state();

    /**
     * Number of state tensors.
     *
     * @return 0 to {@link #MOST_STATE}
     */
    default int moments() {
        return state().size();
    }

    /**
     * How many sums over a whole tensor a step needs. With any, there are two passes: the first
     * {@link Slice#add adds}, the second has the {@link Slice#sum sums} and sets parameters.
     *
     * @return 0 to {@link #MOST_SUMS}
     */
    default int sums() {
        return 0;
    }

    /**
     * How many passes over the elements a step takes. After each but the last, sums over the whole
     * tensor are complete, and {@link #combine} is called.
     *
     * @return 1 or more
     */
    default int passes() {
        return sums() == 0 ? 1 : 2;
    }

    /**
     * How many sums over a tensor a pass has.
     *
     * @param pass 0 to before the last
     * @param shape the tensor's shape
     * @return 0 or more; the last pass has none, and reads those of the pass before
     */
    default int sums(int pass, TensorShape shape) {
        return pass == 0 ? sums() : 0;
    }

    /**
     * Called after a pass over all elements of a tensor: here a rule updates state that belongs to
     * the tensor as a whole, which every rank keeps and updates identically.
     *
     * @param pass the pass that has ended, before the last
     * @param sums the sums of tensors, of all ranks
     * @param at index of this tensor's first sum
     * @param state parameters and moments
     * @param tensor index of the tensor in the state's {@link OptimizerState#shapes}
     * @param step the number of this step, 1 or more
     */
    default void combine(
            int pass, double[] sums, int at, OptimizerState state, int tensor, long step) {}

    /**
     * One step, or one pass of it, of some elements. Called for slices of up to 65536 elements that
     * begin at a multiple of that from the start of a piece, concurrently for different slices. It
     * allocates nothing. The rules that {@link #update} has formulas for run vector loops instead.
     *
     * @param slice the elements
     */
    default void apply(Slice slice) {
        throw new UnsupportedOperationException(
                label() + " has no kernel; implement Optimizer.apply");
    }

    /**
     * This rule with another weight decay, for a group of parameters.
     *
     * @param decay 0 or more
     * @return a rule with the same label and state
     * @throws UnsupportedOperationException if the rule has no weight decay
     */
    default Optimizer withWeightDecay(double decay) {
        throw new UnsupportedOperationException(
                label() + " has no weight decay to set; implement Optimizer.withWeightDecay");
    }

    /**
     * What a step does to each element, for {@link io.jccl.compute.Compute#update} on any device;
     * see {@link DeviceOptimizer}.
     *
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @return the formula with its coefficients
     * @throws IllegalArgumentException if a value is out of range
     * @throws UnsupportedOperationException if the rule is not {@link Adam}, {@link AdamW}, {@link
     *     Sgd} or {@link Lion}: the CPU alone computes it
     */
    default Update update(long step, double learningRate) {
        return StepWork.update(this, step, learningRate);
    }

    /**
     * As {@link #update(long, double)}, without an object for each step.
     *
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @param formula is set to the formula with its coefficients
     * @throws IllegalArgumentException if a value is out of range
     * @throws UnsupportedOperationException as {@link #update(long, double)}
     */
    default void update(long step, double learningRate, ReusableUpdate formula) {
        if (StepWork.hasFormula(this)) {
            StepWork.update(this, step, learningRate, formula);
        } else {
            formula.set(update(step, learningRate));
        }
    }

    /**
     * One step of some elements on the calling thread.
     *
     * @param state parameters and moments
     * @param from index in the state of the first element
     * @param gradients gradients of the elements to update: float32, bfloat16 or float16
     * @param target a second target for the new parameters, with the same count: bfloat16, float16
     *     (rounded to nearest even) or float32; or null
     * @param step the number of this step, 1 or more: the same for all pieces of a step
     * @param learningRate 0 or more
     * @param gradientFactor gradients are first multiplied by this, in float32: 1 divided by the
     *     loss scale, times the clipping factor
     * @throws IllegalArgumentException if a value is out of range, or types, counts or moments do
     *     not fit
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     * @throws IllegalStateException if a buffer is closed
     * @throws UnsupportedOperationException if the memory is not host memory
     */
    default void step(
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        StepWork work = StepWork.ofThread();
        try {
            work.prepare(this, state, from, gradients, target, step, learningRate, gradientFactor);
            work.run(null, gradients.count());
        } finally {
            work.clear();
        }
    }

    /**
     * One step of some elements on several threads; the result is bit-identical to that on one
     * thread.
     *
     * @param workers the threads; the calling thread works too
     * @param state parameters and moments
     * @param from index in the state of the first element
     * @param gradients as in {@link #step(OptimizerState, long, Buffer, Buffer, long, double,
     *     double)}
     * @param target a second target for the new parameters, or null
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @param gradientFactor gradients are first multiplied by this
     * @throws IllegalArgumentException if a value is out of range, or types, counts or moments do
     *     not fit
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     * @throws IllegalStateException if a buffer or the workers are closed
     * @throws UnsupportedOperationException if the memory is not host memory
     */
    default void step(
            Workers workers,
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        workers.step(this, state, from, gradients, target, step, learningRate, gradientFactor);
    }

    /**
     * One of the {@link #passes} of a step of a rule with sums, of some elements of a tensor that
     * several pieces or ranks share. All pieces take a pass before one takes the next.
     *
     * @param pass 0 or more; the last reads the sums of the one before, the others add to theirs
     * @param sums the sums of tensors
     * @param at index of this tensor's first sum
     * @param state parameters and moments
     * @param from index in the state of the first element
     * @param gradients as in {@link #step(OptimizerState, long, Buffer, Buffer, long, double,
     *     double)}
     * @param target a second target for the new parameters, or null
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @param gradientFactor gradients are first multiplied by this
     * @throws IllegalArgumentException as {@link #step(OptimizerState, long, Buffer, Buffer, long,
     *     double, double)}
     */
    default void pass(
            int pass,
            double[] sums,
            int at,
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        StepWork work = StepWork.ofThread();
        try {
            work.prepare(this, state, from, gradients, target, step, learningRate, gradientFactor);
            work.pass(pass, sums, at, gradients.count());
        } finally {
            work.clear();
        }
    }
}
