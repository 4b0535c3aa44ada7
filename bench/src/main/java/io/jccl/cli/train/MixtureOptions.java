package io.jccl.cli.train;

import io.jccl.train.MixtureSettings;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Options of {@code train} for capacity, noise, dropout and initial values of experts. */
final class MixtureOptions {
    @Option(
            names = "--min-capacity",
            defaultValue = "1",
            paramLabel = "<n>",
            description =
                    "Minimum slots of an expert, whatever the factor gives; 4 in DeepSpeed"
                            + " (default: ${DEFAULT-VALUE}).")
    private int minCapacity;

    @Option(
            names = "--residual-expert",
            description =
                    "Every token also passes through a shared expert, which all ranks have; the"
                            + " weights of its output and of the others' are learned.")
    private boolean residual;

    @Option(
            names = "--router-jitter",
            defaultValue = "0",
            paramLabel = "<eps>",
            description =
                    "In training, multiply a router's inputs by random numbers from 1 - eps to 1 +"
                            + " eps; 0.01 in Switch (default: ${DEFAULT-VALUE}).")
    private double jitter;

    @Option(
            names = "--router-dropout",
            defaultValue = "0",
            paramLabel = "<p>",
            description =
                    "In training, drop a router's inputs with this probability (default:"
                            + " ${DEFAULT-VALUE}).")
    private double routerDropout;

    @Option(
            names = "--router-noise",
            defaultValue = "0",
            paramLabel = "<deviation>",
            description =
                    "In training, add normal noise to a router's logits; 1 / experts in V-MoE"
                            + " (default: ${DEFAULT-VALUE}).")
    private double noise;

    @Option(
            names = "--router-sample",
            description =
                    "In training, sample a token's last expert in proportion to the gates, as"
                            + " with Gumbel noise on logits; RSample in DeepSpeed.")
    boolean sample;

    @Option(
            names = "--expert-dropout",
            defaultValue = "0",
            paramLabel = "<p>",
            description =
                    "In training, drop activations between the two matrices of an expert with this"
                            + " probability (default: ${DEFAULT-VALUE}).")
    private double expertDropout;

    @Option(
            names = "--init-scale",
            paramLabel = "<s>",
            description =
                    "Initial values of matrices from a normal distribution of deviation sqrt(s /"
                            + " inputs), truncated at two; 0.1 in Switch (default: uniform ones, by"
                            + " depth).")
    private @Nullable Double initScale;

    MixtureSettings settings() {
        // 0 means that the flag is not given.
        TrainOptions.require(
                initScale == null || initScale > 0,
                "--init-scale is " + initScale + ", expected more than 0, such as 0.1");
        return new MixtureSettings(
                jitter,
                routerDropout,
                noise,
                expertDropout,
                initScale == null ? 0 : initScale,
                residual,
                sample,
                minCapacity);
    }
}
