package io.jccl.offload.zero;

import io.jccl.offload.Tier;
import io.jccl.offload.optim.GradientNorm;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.OptimizerState;
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
    private final List<Part> parts;
    private final OptimizerStates states;
    private final Gradients gradients;
    private final ParameterPublisher publisher;

    /** The loss scale of before the last step. */
    private double previousScale;

    private int previousGood;

    Update(
            ZeroConfig config,
            Ranks ranks,
            Progress progress,
            List<Part> parts,
            OptimizerStates states,
            Gradients gradients,
            ParameterPublisher publisher) {
        this.config = config;
        this.scale = config.scale();
        this.ranks = ranks;
        this.progress = progress;
        this.parts = parts;
        this.states = states;
        this.gradients = gradients;
        this.publisher = publisher;
    }

    /** Updates with the gradients, which are complete, unless their norm is not finite. */
    StepResult step(double learningRate) {
        double norm = gradients.norm(progress.steps + 1);
        double count = (double) config.size() * config.options().accumulation();
        double lossScale = scale.value();
        double factor = GradientNorm.factor(norm, lossScale * count, config.options().maxNorm());
        double mean = norm / (lossScale * count);
        boolean finite = !Double.isNaN(factor);
        if (finite) {
            update(learningRate, factor);
        }
        gradients.forget();
        scale.update(finite);
        return new StepResult(finite, mean, scale.value());
    }

    private void update(double learningRate, double factor) {
        boolean voted = false;
        // From here on the copy is that of this step.
        progress.canUndo = false;
        previousScale = scale.value();
        previousGood = scale.goodSteps();
        try {
            states.keep();
            RuntimeException local = updateParts(learningRate, factor);
            ranks.drain();
            ranks.vote(local == null);
            voted = true;
            if (ranks.worst() != Ranks.FINE) {
                throw ranks.failed(
                        local,
                        "all are back at step "
                                + progress.steps
                                + "; once the cause is gone, call step again");
            }
        } catch (RuntimeException e) {
            RuntimeException second = states.settle(null);
            if (second != null && second != e) {
                e.addSuppressed(second);
            }
            if (voted || config.canRestore()) {
                restore(e, voted);
            } else {
                // All of this rank's state is updated, or none.
                commit();
                progress.stale = config.spreads();
            }
            throw e;
        }
        commit();
    }

    /**
     * Updates and publishes all parts; behind an error it takes part in collectives alone.
     *
     * @return this rank's error
     */
    private @Nullable RuntimeException updateParts(double learningRate, double factor) {
        RuntimeException local = null;
        try {
            states.begin();
        } catch (RuntimeException e) {
            local = e;
        }
        for (Part p : parts) {
            if (local == null) {
                try {
                    updatePart(p, learningRate, factor);
                } catch (RuntimeException e) {
                    local = e;
                }
            }
            local = publisher.publish(p, local);
        }
        return states.settle(local);
    }

    private void updatePart(Part p, double learningRate, double factor) {
        OptimizerState state = states.take(p);
        gradients.read(p);
        config.optimizer()
                .step(
                        state,
                        0,
                        p.updateGradients,
                        p.target(),
                        progress.steps + 1,
                        learningRate,
                        factor);
        states.putBack(p);
        publisher.store(p);
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
     * Makes the parameters anew from the master parameters.
     *
     * @param alive whether the communicator works; else only this rank's own are made
     */
    void refresh(boolean alive) {
        progress.stale = true;
        RuntimeException local = null;
        for (Part p : parts) {
            try {
                if (!config.shared()) {
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
