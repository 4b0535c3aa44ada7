package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Compute;
import io.jccl.compute.ReusableUpdate;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.offload.Tier;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The update of state in the memory of a GPU. Kernels decide whether a step is taken and by what
 * gradients are multiplied, from the norm that all ranks have in common; the CPU enqueues all of it
 * and learns of the decision afterwards.
 */
final class DeviceUpdate {
    /** The sum of squares, the factor, and whether the step is skipped: see {@link Compute}. */
    private static final int ANSWER = 3;

    private final Compute compute;
    private final Communicator comm;
    private final Stream stream;
    private final DeviceSums sums;
    private final Buffer norm;
    private final Buffer total;
    private final Buffer decision;
    private final Buffer answer;
    private final Event answered;
    private final ReusableUpdate rule = new ReusableUpdate();
    private boolean decided;

    DeviceUpdate(ZeroConfig config, Compute compute, Ranks ranks, DeviceSums sums, Memory memory) {
        this.compute = compute;
        this.comm = config.comm();
        this.stream = ranks.stream;
        this.sums = sums;
        this.norm = memory.buffer(Tier.DEVICE, DataType.FLOAT64, Compute.NORM_COUNT);
        this.total = norm.slice(0, 1);
        this.decision = norm.slice(0, ANSWER);
        this.answer = memory.buffer(Tier.PINNED, DataType.FLOAT64, ANSWER);
        this.answered = memory.own(config.device().newEvent());
    }

    /**
     * Enqueues the decision about a step; all ranks take part. If this rank has an error, no rank
     * takes the step.
     *
     * @param earlier this rank's error before; null if there is none
     * @param divisor what the sum of gradients has to be divided by
     * @param maxNorm largest norm of the gradients after that
     * @return this rank's error
     */
    @Nullable RuntimeException decide(
            @Nullable RuntimeException earlier, double divisor, double maxNorm) {
        RuntimeException local = earlier;
        decided = false;
        Buffer mine = sums.sum();
        try {
            // What a collective that fails leaves here must not pass for a norm.
            compute.fill(total, Double.NaN, stream);
            if (local == null) {
                sums.enqueueSquares(false);
            }
        } catch (RuntimeException e) {
            local = local == null ? e : local;
        }
        if (local != null) {
            compute.fill(mine, Double.NaN, stream);
        }
        comm.allReduce(mine, total, ReduceOp.SUM, stream);
        try {
            compute.stepControl(norm, divisor, maxNorm, stream);
            stream.copy(decision, answer);
            answered.record(stream);
            decided = true;
        } catch (RuntimeException e) {
            local = local == null ? e : local;
        }
        return local;
    }

    /** Enqueues the update of a part; it writes nothing if the step is skipped. */
    void update(Part p, long step, double learningRate) {
        Buffer target = p.target();
        for (int i = 0; i < p.segments.size(); i++) {
            Segment s = p.segments.get(i);
            s.group.optimizer().update(step, learningRate * s.group.rate(), rule);
            int moments = rule.rule().moments();
            compute.update(
                    rule,
                    s.of(p.stateBuffer(0)),
                    moments > 0 ? s.of(p.stateBuffer(1)) : null,
                    moments > 1 ? s.of(p.stateBuffer(2)) : null,
                    s.of(p.updateGradients),
                    target == null ? null : s.of(target),
                    1,
                    norm,
                    stream);
        }
    }

    /** Enqueues a copy of the master parameters to where the model reads them. */
    void renew(Part p) {
        compute.cast(p.stateBuffer(0), Objects.requireNonNull(p.target()), stream);
    }

    /**
     * Whether no rank takes the step that was decided last; waits for the decision alone. False if
     * this rank does not know.
     */
    boolean skipped() {
        if (!decided) {
            return false;
        }
        answered.synchronize(FOREVER);
        return answer.get(2) != 0;
    }

    /** The norm of the sum of all gradients, once it is known whether the step was taken. */
    double norm() {
        return Math.sqrt(answer.get(0));
    }
}
