package io.jccl.parallel;

import io.jccl.parallel.PipelineStep.Action;
import io.jccl.parallel.PipelineStep.Kind;
import java.util.ArrayList;
import java.util.List;

/**
 * The order in which a rank of a pipeline computes the forward and backward passes of
 * micro-batches. In both schedules the backward passes run in the order of the forward passes, so
 * gradients are accumulated in the same order as on a single rank.
 */
public enum PipelineSchedule {
    /**
     * All forward, then all backward (Huang et al., "GPipe", arXiv 1811.06965, section 2.3). All
     * micro-batches are in flight at once.
     */
    GPIPE("gpipe") {
        @Override
        public int inFlight(int stages, int rank, int microBatches) {
            check(stages, rank, microBatches);
            return microBatches;
        }

        @Override
        void append(Plan plan, int microBatches) {
            for (int i = 0; i < microBatches; i++) {
                plan.recvInput(i);
                plan.compute(Kind.FORWARD, i);
                plan.sendOutput(i);
            }
            for (int i = 0; i < microBatches; i++) {
                plan.recvGradient(i);
                plan.compute(Kind.BACKWARD, i);
                plan.sendGradient(i);
            }
        }
    },

    /**
     * One forward, one backward (1F1B): a rank starts the first backward pass as soon as it can and
     * then alternates (Narayanan et al., "PipeDream", arXiv 1806.03377, section 3.2; with a flush
     * at the end of each batch as in arXiv 2104.04473, section 2.2). A rank has at most as many
     * micro-batches in flight as there are stages from it to the last.
     */
    ONE_F_ONE_B("1f1b") {
        @Override
        public int inFlight(int stages, int rank, int microBatches) {
            check(stages, rank, microBatches);
            return Math.min(stages - rank, microBatches);
        }

        @Override
        void append(Plan plan, int microBatches) {
            int ahead = Math.min(plan.stages - plan.rank - 1, microBatches);
            for (int i = 0; i < ahead; i++) {
                plan.recvInput(i);
                plan.compute(Kind.FORWARD, i);
                plan.sendOutput(i);
            }
            int turns = microBatches - ahead;
            if (turns > 0) {
                plan.recvInput(ahead);
            }
            for (int i = 0; i < turns; i++) {
                // Neighbours send to each other here, so each pair of messages forms a group.
                plan.compute(Kind.FORWARD, ahead + i);
                plan.exchangeWithNext(ahead + i, i);
                plan.compute(Kind.BACKWARD, i);
                if (i < turns - 1) {
                    plan.exchangeWithPrevious(i, ahead + i + 1);
                } else {
                    plan.sendGradient(i);
                }
            }
            for (int i = turns; i < microBatches; i++) {
                plan.recvGradient(i);
                plan.compute(Kind.BACKWARD, i);
                plan.sendGradient(i);
            }
        }
    };

    private final String label;

    PipelineSchedule(String label) {
        this.label = label;
    }

    /**
     * Its usual name.
     *
     * @return {@code gpipe} or {@code 1f1b}
     */
    public String label() {
        return label;
    }

    /**
     * Returns the schedule with the given name.
     *
     * @param label {@code gpipe} or {@code 1f1b}
     * @return the schedule
     * @throws IllegalArgumentException if the name is unknown; the message contains it
     */
    public static PipelineSchedule of(String label) {
        for (PipelineSchedule s : values()) {
            if (s.label.equals(label)) {
                return s;
            }
        }
        throw new IllegalArgumentException("schedule is '" + label + "', expected gpipe or 1f1b");
    }

    /**
     * Maximum number of micro-batches in flight on a rank: forward pass done, backward pass not.
     *
     * @param stages ranks of the pipeline
     * @param rank the rank
     * @param microBatches micro-batches per batch
     * @return 1 or more
     */
    public abstract int inFlight(int stages, int rank, int microBatches);

    abstract void append(Plan plan, int microBatches);

    /**
     * The steps of a rank, in order. They cannot deadlock, even if every send waits for its recv.
     *
     * @param stages ranks of the pipeline, 1 or more
     * @param rank the rank
     * @param microBatches micro-batches per batch, 1 or more
     * @return its steps
     * @throws IllegalArgumentException if a number is out of range
     */
    public List<PipelineStep> steps(int stages, int rank, int microBatches) {
        check(stages, rank, microBatches);
        Plan plan = new Plan(stages, rank);
        append(plan, microBatches);
        return List.copyOf(plan.steps);
    }

    /**
     * The bubble: the fraction of time in which a rank is idle if all stages take equally long and
     * messages take no time: {@code (p - 1) / (m + p - 1)} (GPipe, section 2.3), the same for both
     * schedules.
     *
     * @param stages ranks of the pipeline, p
     * @param microBatches micro-batches per batch, m
     * @return 0 to 1
     */
    public static double bubble(int stages, int microBatches) {
        check(stages, 0, microBatches);
        return (stages - 1.0) / (microBatches + stages - 1.0);
    }

    static void check(int stages, int rank, int microBatches) {
        if (stages < 1 || rank < 0 || rank >= stages || microBatches < 1) {
            throw new IllegalArgumentException(
                    ("stages is %s, rank %s, microBatches %s; expected a rank of 1 or more stages,"
                                    + " and 1 or more micro-batches")
                            .formatted(stages, rank, microBatches));
        }
    }

    /** Steps of one rank; messages without a peer are omitted. */
    static final class Plan {
        final int stages;
        final int rank;
        final List<PipelineStep> steps = new ArrayList<>();

        Plan(int stages, int rank) {
            this.stages = stages;
            this.rank = rank;
        }

        private void add(boolean exists, Action... actions) {
            if (exists) {
                steps.add(new PipelineStep(List.of(actions)));
            }
        }

        private boolean hasPrevious() {
            return rank > 0;
        }

        private boolean hasNext() {
            return rank < stages - 1;
        }

        void compute(Kind kind, int i) {
            add(true, new Action(kind, i));
        }

        void recvInput(int i) {
            add(hasPrevious(), new Action(Kind.RECV_INPUT, i));
        }

        void sendGradient(int i) {
            add(hasPrevious(), new Action(Kind.SEND_GRADIENT, i));
        }

        void sendOutput(int i) {
            add(hasNext(), new Action(Kind.SEND_OUTPUT, i));
        }

        void recvGradient(int i) {
            add(hasNext(), new Action(Kind.RECV_GRADIENT, i));
        }

        void exchangeWithNext(int sent, int received) {
            add(
                    hasNext(),
                    new Action(Kind.SEND_OUTPUT, sent),
                    new Action(Kind.RECV_GRADIENT, received));
        }

        void exchangeWithPrevious(int sent, int received) {
            add(
                    hasPrevious(),
                    new Action(Kind.SEND_GRADIENT, sent),
                    new Action(Kind.RECV_INPUT, received));
        }
    }
}
