package io.jccl.parallel;

import java.util.List;

/**
 * What a rank of a pipeline does at once: one computation, or messages that are sent and received
 * as one group.
 *
 * @param actions one computation, or one or two messages with the same neighbour
 */
public record PipelineStep(List<Action> actions) {
    /** What is done with a micro-batch. */
    public enum Kind {
        /** Gets the input from the stage before. */
        RECV_INPUT,
        /** Computes the output. */
        FORWARD,
        /** Gives the output to the next stage. */
        SEND_OUTPUT,
        /** Gets the output's gradient from the next stage. */
        RECV_GRADIENT,
        /** Computes the gradients. */
        BACKWARD,
        /** Gives the input's gradient to the stage before. */
        SEND_GRADIENT;

        /**
         * Whether nothing is sent or received.
         *
         * @return true for {@link #FORWARD} and {@link #BACKWARD}
         */
        public boolean isCompute() {
            return this == FORWARD || this == BACKWARD;
        }
    }

    /**
     * One thing done with one micro-batch.
     *
     * @param kind what
     * @param microBatch with which, from 0 on
     */
    public record Action(Kind kind, int microBatch) {
        @Override
        public String toString() {
            return kind + " " + microBatch;
        }
    }

    /** Copies the list. */
    public PipelineStep {
        actions = List.copyOf(actions);
    }
}
