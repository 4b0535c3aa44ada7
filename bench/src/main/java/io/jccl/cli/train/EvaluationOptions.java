package io.jccl.cli.train;

import static io.jccl.cli.train.TrainOptions.require;

import io.jccl.train.Evaluation;
import picocli.CommandLine.Option;

/** Options of {@code train} for text that the model is not trained on, and text that it writes. */
final class EvaluationOptions {
    @Option(
            names = "--eval-every",
            defaultValue = "0",
            paramLabel = "<steps>",
            description =
                    "Steps between two measurements of the loss on held-out text; the last step is"
                            + " measured too. 0: never, and no text is held out (default:"
                            + " ${DEFAULT-VALUE}).")
    private int every;

    @Option(
            names = "--eval-share",
            defaultValue = "0.1",
            paramLabel = "<x>",
            description =
                    "Part of the text, its end, that --eval-every holds out (default:"
                            + " ${DEFAULT-VALUE}).")
    private double share;

    @Option(
            names = "--eval-batches",
            defaultValue = "16",
            paramLabel = "<n>",
            description =
                    "Batches of held-out text in a measurement, each of --batch sequences (default:"
                            + " ${DEFAULT-VALUE}).")
    private int batches;

    @Option(
            names = "--sample",
            defaultValue = "0",
            paramLabel = "<n>",
            description =
                    "Tokens that the model generates after the last step (default:"
                            + " ${DEFAULT-VALUE}).")
    private int sample;

    Evaluation evaluation() {
        TrainOptions.range("--eval-every", every, 0, Integer.MAX_VALUE);
        TrainOptions.range("--eval-batches", batches, 1, 1 << 20);
        TrainOptions.range("--sample", sample, 0, 1 << 20);
        require(
                share > 0 && share < 1,
                "--eval-share is " + share + ", expected more than 0 and less than 1");
        return new Evaluation(every, every == 0 ? 0 : share, batches, sample);
    }
}
