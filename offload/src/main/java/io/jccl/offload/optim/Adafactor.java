package io.jccl.offload.optim;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Adafactor (algorithms 4 and 5 of arXiv 1804.04235) without a first moment: of a matrix of R rows
 * and C columns it keeps R + C values instead of R times C, of a vector one for each element.
 *
 * <p>With gradient g after unscaling, parameters p, step t and learning rate a; mean and RMS are
 * those of the whole tensor, on all ranks that share it:
 *
 * <pre>
 * b = 1 - t^-decay
 * row = b row + (1 - b) mean of (g g + epsilon1) over the columns
 * column = b column + (1 - b) mean of (g g + epsilon1) over the rows
 * v = row column / mean(row);         of a vector v = b v + (1 - b) (g g + epsilon1)
 * u = g / sqrt(v)
 * u = u / max(1, RMS(u) / clip)
 * s = relativeStep ? min(a, 1 / sqrt(t)) : a
 * s = scaleParameter ? s max(epsilon2, RMS(p)) : s
 * p = (1 - a weightDecay) p - s u
 * </pre>
 *
 * <p>Weight decay is decoupled and depends on the learning rate alone, as in PyTorch's Adafactor.
 *
 * <p>The state knows the {@link TensorShape shapes}: {@link OptimizerState#allocate(Optimizer,
 * io.jccl.device.Device, List)}. Each {@link Optimizer#step} takes a whole tensor, on the calling
 * thread, also if it is given several.
 *
 * <p><b>Threads:</b> immutable.
 *
 * @param decay how fast the second moment's memory grows, above 0 and at most 1
 * @param epsilon1 what is added to squares, 0 or more
 * @param epsilon2 minimum RMS of the parameters that a step is scaled to, 0 or more
 * @param clip largest RMS of an update, above 0; infinity for no clipping
 * @param scaleParameter whether a step is in proportion to the tensor's RMS
 * @param relativeStep whether the learning rate is at most one over the root of the step's number
 * @param weightDecay 0 or more
 */
public record Adafactor(
        double decay,
        double epsilon1,
        double epsilon2,
        double clip,
        boolean scaleParameter,
        boolean relativeStep,
        double weightDecay)
        implements Optimizer {
    private static final List<StateTensor> STATE =
            List.of(new StateTensor("exp_avg_sq", StateTensor.Layout.FACTORED));
    private static final int PASSES = 3;

    /** The sums of the second pass. */
    private static final int UPDATE = 0;

    private static final int PARAMETERS = 1;
    private static final int SUMS = 2;

    /**
     * Checks the hyper-parameters.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public Adafactor {
        if (!(decay > 0 && decay <= 1)) {
            throw new IllegalArgumentException(
                    "decay is " + decay + ", expected more than 0 and at most 1");
        }
        Checks.notNegative("epsilon1", epsilon1);
        Checks.notNegative("epsilon2", epsilon2);
        if (!(clip > 0)) {
            throw new IllegalArgumentException("clip is " + clip + ", expected more than 0");
        }
        Checks.notNegative("weightDecay", weightDecay);
    }

    /**
     * The defaults of the paper: decay 0.8, epsilons 1e-30 and 1e-3, clip 1, steps relative to the
     * parameters and at most one over the root of their number; without weight decay. The paper's
     * learning rate is 0.01.
     *
     * @return an optimizer
     */
    public static Adafactor defaults() {
        return new Adafactor(0.8, 1e-30, 1e-3, 1, true, true, 0);
    }

    @Override
    public String label() {
        return "adafactor";
    }

    @Override
    public List<StateTensor> state() {
        return STATE;
    }

    @Override
    public Adafactor withWeightDecay(double newDecay) {
        return new Adafactor(
                decay, epsilon1, epsilon2, clip, scaleParameter, relativeStep, newDecay);
    }

    @Override
    public int passes() {
        return PASSES;
    }

    @Override
    public int sums(int pass, TensorShape shape) {
        return switch (pass) {
            case 0 -> Math.toIntExact(shape.factors());
            case 1 -> SUMS;
            default -> 0;
        };
    }

    @Override
    public void step(
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        int tensor = state.tensorAt(from);
        TensorShape shape = state.shapes().get(tensor);
        if (state.indexIn(tensor, from) != 0 || gradients.count() != shape.count()) {
            throw new IllegalArgumentException(
                    ("a step of adafactor has %s elements from %s on, expected a whole tensor, here"
                                    + " of %s: its means are those of whole rows and columns")
                            .formatted(gradients.count(), from, shape.count()));
        }
        double[] sums = StepWork.ofThread().sums(Math.max(SUMS, sums(0, shape)));
        for (int pass = 0; pass < PASSES; pass++) {
            if (pass < PASSES - 1) {
                Arrays.fill(sums, 0, sums(pass, shape), 0);
            }
            pass(pass, sums, 0, state, from, gradients, target, step, learningRate, gradientFactor);
            combine(pass, sums, 0, state, tensor, step);
        }
    }

    @Override
    public void step(
            Workers workers,
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        step(state, from, gradients, target, step, learningRate, gradientFactor);
    }

    @Override
    public void pass(
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
            int tensor = state.tensorAt(from);
            long index = state.indexIn(tensor, from);
            TensorShape shape = state.shapes().get(tensor);
            // What comes after the last tensor is padding.
            long count = Math.min(gradients.count(), shape.count() - index);
            MemorySegment factors = state.moment(0).asSegment();
            long first = state.factorsAt(tensor);
            double mean = pass == 0 ? 0 : mean(shape, factors, first);
            for (long i = 0; i < count; i += Slice.MOST) {
                Slice s = work.slice(from, i, count);
                switch (pass) {
                    case 0 -> addSquares(s, shape, index + i, sums, at);
                    case 1 -> addUpdates(s, shape, index + i, factors, first, mean, sums, at);
                    default -> {
                        double n = shape.count();
                        double root = Math.sqrt(sums[at + UPDATE] / n);
                        double scale = s.learningRate();
                        if (relativeStep) {
                            scale = Math.min(scale, 1 / Math.sqrt((double) step));
                        }
                        if (scaleParameter) {
                            scale *= Math.max(epsilon2, Math.sqrt(sums[at + PARAMETERS] / n));
                        }
                        scale /= Math.max(1, root / clip);
                        apply(s, shape, index + i, factors, first, mean, scale);
                        work.writeTarget(s, i);
                    }
                }
            }
        } finally {
            work.clear();
        }
    }

    /** Squares of a tensor's elements, as parts of the means of their rows and columns. */
    private void addSquares(Slice s, TensorShape shape, long index, double[] sums, int at) {
        if (!shape.isMatrix()) {
            for (int i = 0; i < s.count(); i++) {
                double g = s.gradient(i);
                sums[at + (int) (index + i)] += g * g + epsilon1;
            }
            return;
        }
        int columns = (int) shape.columns();
        int rows = (int) shape.rows();
        int row = (int) (index / columns);
        int column = (int) (index % columns);
        for (int i = 0; i < s.count(); i++) {
            double g = s.gradient(i);
            double square = g * g + epsilon1;
            sums[at + row] += square / columns;
            sums[at + rows + column] += square / rows;
            if (++column == columns) {
                column = 0;
                row++;
            }
        }
    }

    @Override
    public void combine(
            int pass, double[] sums, int at, OptimizerState state, int tensor, long step) {
        if (pass > 0) {
            return;
        }
        // The same bits on every rank's machine, and no objects, unlike StrictMath.pow.
        double add = StrictMath.exp(-decay * StrictMath.log((double) step));
        MemorySegment factors = state.moment(0).asSegment();
        long first = state.factorsAt(tensor);
        int n = sums(0, state.shapes().get(tensor));
        for (int k = 0; k < n; k++) {
            double old = get(factors, first + k);
            factors.set(
                    JAVA_FLOAT_UNALIGNED,
                    (first + k) * Float.BYTES,
                    (float) (old * (1 - add) + sums[at + k] * add));
        }
    }

    private static double get(MemorySegment factors, long k) {
        return factors.get(JAVA_FLOAT_UNALIGNED, k * Float.BYTES);
    }

    /** The mean of a matrix's rows. */
    static double mean(TensorShape shape, MemorySegment factors, long first) {
        if (!shape.isMatrix()) {
            return 1;
        }
        double sum = 0;
        for (long r = 0; r < shape.rows(); r++) {
            sum += get(factors, first + r);
        }
        return sum / shape.rows();
    }

    /** The second moment of an element. */
    static double square(
            TensorShape shape, MemorySegment factors, long first, double mean, long index) {
        if (!shape.isMatrix()) {
            return get(factors, first + index);
        }
        double row = get(factors, first + index / shape.columns());
        // In this order, since the product of two small means may be 0.
        return mean == 0
                ? 0
                : row / mean * get(factors, first + shape.rows() + index % shape.columns());
    }

    /** An element of the update before it is clipped; 0 where all gradients were. */
    private static double update(float gradient, double square) {
        return square > 0 ? gradient / Math.sqrt(square) : 0;
    }

    private static void addUpdates(
            Slice s,
            TensorShape shape,
            long index,
            MemorySegment factors,
            long first,
            double mean,
            double[] sums,
            int at) {
        double updates = 0;
        double parameters = 0;
        for (int i = 0; i < s.count(); i++) {
            double u = update(s.gradient(i), square(shape, factors, first, mean, index + i));
            double p = s.parameter(i);
            updates += u * u;
            parameters += p * p;
        }
        sums[at + UPDATE] += updates;
        sums[at + PARAMETERS] += parameters;
    }

    private void apply(
            Slice s,
            TensorShape shape,
            long index,
            MemorySegment factors,
            long first,
            double mean,
            double scale) {
        double keep = 1 - s.learningRate() * weightDecay;
        for (int i = 0; i < s.count(); i++) {
            double u = update(s.gradient(i), square(shape, factors, first, mean, index + i));
            s.setParameter(i, (float) (s.parameter(i) * keep - scale * u));
        }
    }
}
