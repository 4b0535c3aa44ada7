package io.jccl.cli.train;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** The event of a step of {@code jccl train} in a flight recording, with the columns of --csv. */
@Name("io.jccl.train.Step")
@Label("Training Step")
@Category({"JCCL", "Training"})
@Description("Metrics of a step, when it has ended; rank 0")
@StackTrace(false)
final class StepEvent extends Event {
    @Label("Step")
    @Description("From 1 on")
    long step;

    @Label("Loss")
    @Description("Before the step, nats a token")
    double loss;

    @Label("Learning Rate")
    double learningRate;

    @Label("Samples a Second")
    @Description("Of this step")
    double samplesPerSecond;

    @Label("Validation Loss")
    @Description("Of the held-out text, nats a token; NaN if it was not measured after this step")
    double validationLoss;
}
