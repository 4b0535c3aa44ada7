package io.jccl.offload.zero;

import io.jccl.device.Buffer;
import io.jccl.error.JcclException;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.GradientNorm;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.OptimizerState;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The step: state is updated part by part and takes effect once all ranks have succeeded, else all
 * ranks roll back.
 */
final class Update {
    private final ZeroConfig config;
    private final LossScale scale;
    private final Ranks ranks;
    private final Progress progress;
    private final Part[] parts;
    private final OptimizerStates states;
    private final Gradients gradients;
    private final ParameterPublisher publisher;

    /** Updates in the memory of a GPU; null if the CPU does it. */
    private final @Nullable DeviceUpdate device;

    private final StepResult result = new StepResult();

    /** The loss scale of before the last step. */
    private double previousScale;

    private int previousGood;

    /** What GPUs decided about the step that was voted on last. */
    private boolean skipped;

    /** Whether the CPU has begun to write this rank's state, and any rank's at the last vote. */
    private boolean writing;

    private boolean written;

    /** Parts that the CPU has updated in this step. */
    private int updated;

    /** Whether the ranks' sums failed while state was being written. */
    private boolean torn;

    /** Sums of the tensors of a part, if the optimizer needs them. */
    private final double[] totals;

    private final MemorySegment totalsSegment;

    Update(
            ZeroConfig config,
            Ranks ranks,
            Progress progress,
            List<Part> parts,
            OptimizerStates states,
            Gradients gradients,
            ParameterPublisher publisher,
            @Nullable DeviceUpdate device) {
        this.config = config;
        this.scale = config.scale();
        this.ranks = ranks;
        this.progress = progress;
        this.parts = parts.toArray(Part[]::new);
        this.states = states;
        this.gradients = gradients;
        this.publisher = publisher;
        this.device = device;
        this.totals = new double[config.mostSums()];
        this.totalsSegment = MemorySegment.ofArray(totals);
    }

    /** Updates with the gradients, which are complete, unless their norm is not finite. */
    StepResult step(double learningRate, double clip) {
        double count = (double) config.size() * config.options().accumulation();
        double divisor = scale.value() * count / clip;
        double norm;
        boolean finite;
        if (device != null) {
            finite = step(device, learningRate, divisor);
            norm = device.norm();
        } else {
            norm = gradients.norm(progress.steps + 1);
            double factor = GradientNorm.factor(norm, divisor, config.options().maxNorm());
            finite = !Double.isNaN(factor);
            if (finite) {
                update(learningRate, factor, null);
            }
        }
        gradients.forget();
        scale.update(finite);
        return result.set(finite, norm / (divisor * clip), scale.value());
    }

    /** A step whose norm and decision stay on the GPU; returns whether it was taken. */
    private boolean step(DeviceUpdate gpu, double learningRate, double divisor) {
        RuntimeException local =
                gpu.decide(gradients.failure(), divisor, config.options().maxNorm());
        if (config.keeps()) {
            // A step that is skipped must not replace the copy.
            ranks.drain();
            vote(local);
            gradients.agree(local, progress.steps + 1);
            if (skipped) {
                return false;
            }
        }
        update(learningRate, Double.NaN, local);
        return !skipped;
    }

    /**
     * Reports the outcome to all ranks, and whether the step was skipped if a GPU decides, else
     * whether state was written.
     */
    private void vote(@Nullable RuntimeException local) {
        boolean seen = device != null ? device.skipped() : writing;
        ranks.vote(seen ? 1 : 0, gradients.status(local));
        boolean any = ranks.sum() > 0;
        skipped = device != null && any;
        written = device == null && any;
    }

    /**
     * Updates all parts.
     *
     * @param factor what the CPU multiplies gradients by
     * @param earlier this rank's error so far, not yet reported to the others
     */
    private void update(double learningRate, double factor, @Nullable RuntimeException earlier) {
        boolean voted = false;
        writing = false;
        updated = 0;
        torn = false;
        // From here on the copy is that of this step.
        progress.canUndo = false;
        previousScale = scale.value();
        previousGood = scale.goodSteps();
        try {
            states.keep();
            RuntimeException local = updateParts(learningRate, factor, earlier);
            ranks.drain();
            vote(local);
            voted = true;
            if (ranks.worst() == Ranks.GRADIENTS_LOST) {
                gradients.agree(local, progress.steps + 1);
            }
            if (ranks.worst() != Ranks.FINE) {
                boolean back = config.canRestore() || !written;
                throw ranks.failed(
                        local,
                        back || device != null
                                ? "all are back at step "
                                        + progress.steps
                                        + "; once the cause is gone, call step again"
                                : "no rank has a copy of the state before");
            }
        } catch (RuntimeException e) {
            RuntimeException second = states.settle(null);
            if (second != null && second != e) {
                e.addSuppressed(second);
            }
            if (device != null && !config.keeps()) {
                throw unlessUntouched(device, e, voted);
            }
            boolean some = !voted && writing && updated < parts.length;
            if (((voted && written) || torn || some) && !config.canRestore()) {
                throw mixture("the CPU", e);
            }
            if (voted || config.canRestore()) {
                restore(e, voted);
            } else if (writing) {
                // All of this rank's state is updated.
                commit();
                progress.stale = config.spreads();
            }
            throw e;
        }
        if (!skipped) {
            commit();
        }
    }

    /** After an error: without a copy, a GPU's state can be used only if it was not written. */
    private RuntimeException unlessUntouched(
            DeviceUpdate gpu, RuntimeException cause, boolean voted) {
        try {
            if (voted ? skipped : gpu.skipped()) {
                return cause;
            }
        } catch (RuntimeException e) {
            cause.addSuppressed(e);
        }
        return mixture("a GPU", cause);
    }

    /** The state can be used no more, and the gradients must not be applied again. */
    private JcclException mixture(String by, RuntimeException cause) {
        progress.clear();
        return new JcclException(
                ("step %s failed when %s was updating the state of rank %s, which"
                                + " may be a mixture now: load a checkpoint or initialize;"
                                + " keepPrevious would have kept the state of before the step: %s")
                        .formatted(progress.steps + 1, by, config.rank(), cause.getMessage()),
                cause);
    }

    /**
     * Updates and publishes all parts; behind an error it takes part in collectives alone.
     *
     * @return this rank's error
     */
    private @Nullable RuntimeException updateParts(
            double learningRate, double factor, @Nullable RuntimeException earlier) {
        RuntimeException local = earlier;
        try {
            if (device == null) {
                states.begin();
                gradients.begin();
            }
        } catch (RuntimeException e) {
            local = e;
        }
        for (Part p : parts) {
            if (device == null && totals.length > 0) {
                local = updateWithSums(p, learningRate, factor, local);
            } else if (local == null) {
                try {
                    if (device != null) {
                        device.update(p, progress.steps + 1, learningRate);
                    } else {
                        updatePart(p, learningRate, factor);
                    }
                } catch (RuntimeException e) {
                    local = e;
                }
            }
            local = publisher.publish(p, local);
        }
        gradients.settle();
        return publisher.settle(states.settle(local));
    }

    private void updatePart(Part p, double learningRate, double factor) {
        OptimizerState state = states.take(p);
        Buffer sums = gradients.take(p);
        publisher.prepare(p);
        writing = true;
        for (int i = 0; i < p.segments.size(); i++) {
            p.segments
                    .get(i)
                    .step(state, sums, p.target(), progress.steps + 1, learningRate, factor);
        }
        states.putBack(p);
        publisher.store(p);
        updated++;
    }

    /** As {@link #updatePart}, in passes with sums over the ranks after each but the last. */
    private @Nullable RuntimeException updateWithSums(
            Part p, double learningRate, double factor, @Nullable RuntimeException earlier) {
        RuntimeException local = earlier;
        OptimizerState state = null;
        Buffer sums = null;
        long step = progress.steps + 1;
        if (local == null) {
            try {
                state = states.take(p);
                sums = gradients.take(p);
                publisher.prepare(p);
                writing = true;
            } catch (RuntimeException e) {
                local = e;
            }
        }
        int last = p.sums.length;
        for (int pass = 0; pass <= last; pass++) {
            if (pass < last) {
                Arrays.fill(totals, 0);
            }
            if (local == null && state != null && sums != null) {
                try {
                    pass(p, pass, state, sums, step, learningRate, factor);
                } catch (RuntimeException e) {
                    local = e;
                }
            }
            // At stage 0 all ranks have all gradients.
            if (pass < last && config.stage() > 0) {
                torn = true;
                ranks.sum(totalsSegment);
                torn = false;
            }
            for (int t = 0; pass < last && local == null && t < p.rules.size(); t++) {
                p.rules
                        .get(t)
                        .combine(
                                pass,
                                totals,
                                p.sums[pass][t],
                                Objects.requireNonNull(state),
                                t,
                                step);
            }
        }
        if (local == null) {
            try {
                states.putBack(p);
                publisher.store(p);
                updated++;
            } catch (RuntimeException e) {
                local = e;
            }
        }
        return local;
    }

    private void pass(
            Part p,
            int pass,
            OptimizerState state,
            Buffer sums,
            long step,
            double learningRate,
            double factor) {
        int[] at = p.sums[Math.min(pass, p.sums.length - 1)];
        for (int i = 0; i < p.segments.size(); i++) {
            Segment s = p.segments.get(i);
            s.pass(pass, totals, at[s.tensor], state, sums, p.target(), step, learningRate, factor);
        }
    }

    private void commit() {
        progress.stale = false;
        commitParameters();
        states.commit();
        progress.steps++;
        progress.canUndo = config.canRestore();
    }

    private void commitParameters() {
        for (Part p : parts) {
            p.parameters.commit();
        }
    }

    /** Back to the state of before the step; the error goes to the caller afterwards. */
    private void restore(RuntimeException cause, boolean alive) {
        for (Part p : parts) {
            p.parameters.forget();
        }
        states.restore();
        if (config.options().parameters() == Tier.NVME) {
            return; // the version of before the step is there
        }
        try {
            refresh(alive);
        } catch (RuntimeException e) {
            cause.addSuppressed(e);
        }
    }

    /**
     * Recreates the parameters from the master parameters.
     *
     * @param alive whether the communicator works; else only this rank's own are made
     */
    void refresh(boolean alive) {
        progress.stale = true;
        RuntimeException local = null;
        for (Part p : parts) {
            try {
                if (!config.shared() && device != null) {
                    device.renew(p);
                } else if (!config.shared()) {
                    publisher.prepare(p);
                    Numbers.copy(states.get(p, 0), Objects.requireNonNull(p.target()));
                    publisher.store(p);
                }
            } catch (RuntimeException e) {
                local = local == null ? e : local;
            }
            if (alive) {
                local = publisher.publish(p, local);
            }
        }
        local = publisher.settle(local);
        if (alive) {
            ranks.drain();
            ranks.vote(local == null);
            if (ranks.worst() != Ranks.FINE) {
                throw ranks.failed(local, "the parameters could not be written");
            }
        } else if (local != null) {
            throw local;
        }
        commitParameters();
        progress.stale = !alive && config.spreads();
    }

    /** As {@link ZeroOptimizer#undoStep}. */
    void undo() {
        if (!progress.canUndo) {
            throw new IllegalStateException(
                    "the state of before step "
                            + progress.steps
                            + (config.canRestore()
                                    ? " is not there: there was no step, or it was undone"
                                    : " is not kept: set keepPrevious"));
        }
        progress.canUndo = false;
        states.undo();
        progress.steps--;
        scale.restore(previousScale, previousGood);
        gradients.forget();
        progress.stale = true;
    }
}
