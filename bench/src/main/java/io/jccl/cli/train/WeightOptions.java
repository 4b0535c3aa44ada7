package io.jccl.cli.train;

import static io.jccl.cli.train.TrainOptions.require;

import io.jccl.train.TrainRun;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Options of {@code train} for files of weights. */
final class WeightOptions {
    @Option(
            names = "--load",
            paramLabel = "<path>",
            description =
                    "Begin with weights in safetensors: a file or index for the parameters alone, or"
                            + " a folder written by --save on any layout of ranks, or by transformers"
                            + " for a GPT-2 or Llama, whose config.json gives the sizes.")
    @Nullable Path load;

    @Option(
            names = "--save",
            paramLabel = "<folder>",
            description =
                    "Write parameters and optimizer state as safetensors after the last step, to a"
                            + " new or empty folder.")
    @Nullable Path save;

    /**
     * Checks them before anything is trained.
     *
     * @throws IllegalArgumentException if they make no sense
     */
    void check(boolean compares, boolean resumes) throws IOException {
        require(
                !compares || (load == null && save == null),
                "--load and --save are for one run, --compare makes several; leave out one");
        require(
                load == null || !resumes,
                "--load '" + load + "' and --resume both give the first weights; leave out one");
        require(
                load == null || Files.exists(load),
                "--load '" + load + "' does not exist; give a safetensors file or folder");
        require(
                load == null || !Files.isDirectory(load) || TrainRun.hasWeights(load),
                "--load '"
                        + load
                        + "' has no model.safetensors: it is not a saved model, or its --save did"
                        + " not finish; give a folder written by --save, or by transformers");
        if (save == null) {
            return;
        }
        TrainOptions.makeFolder("--save", save);
        try (Stream<Path> files = Files.list(save)) {
            // What another model left would be taken for this one's.
            require(
                    files.findAny().isEmpty(),
                    "--save '" + save + "' has files in it, expected a new or empty folder");
        }
    }
}
