package io.jccl.parallel;

import java.util.List;

/**
 * One step of a rank of a pipeline: a computation, or messages that are sent and received as one
 * group.
 *
 * @param actions one computation, or one or two messages with the same neighbour
 */
public record PipelineStep(List<Action> actions) {
    /** Kinds of action. */
    public enum Kind {
        /** Receives the input from the previous stage. */
        RECV_INPUT,
        /** Forward pass. */
        FORWARD,
        /** Sends the output to the next stage. */
        SEND_OUTPUT,
        /** Receives the gradient of the output from the next stage. */
        RECV_GRADIENT,
        /** Backward pass. */
        BACKWARD,
        /** Sends the gradient of the input to the previous stage. */
        SEND_GRADIENT;

        /**
         * Whether the action is a computation.
         *
         * @return true for {@link #FORWARD} and {@link #BACKWARD}
         */
        public boolean isCompute() {
            return this == FORWARD || this == BACKWARD;
        }
    }

    /**
     * One action on one micro-batch.
     *
     * @param kind kind of action
     * @param microBatch index of the micro-batch, from 0
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
