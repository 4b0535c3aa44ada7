package io.jccl.cli.train;

import static io.jccl.cli.train.TrainOptions.require;

import io.jccl.offload.optim.Adafactor;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.Adam8bit;
import io.jccl.offload.optim.AdamW;
import io.jccl.offload.optim.Lamb;
import io.jccl.offload.optim.Lion;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.Sgd;
import io.jccl.train.RateSchedule;
import io.jccl.train.Recipe;
import io.jccl.train.Techniques;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.OptionalDouble;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Options of {@code train} for the update of parameters. */
final class RecipeOptions {
    /** Names on the command line. */
    enum Rule {
        adam,
        adamw,
        sgd,
        lion,
        lamb,
        adam8bit,
        adafactor
    }

    @Option(
            names = "--lr",
            defaultValue = "0.003",
            paramLabel = "<x>",
            description = "Learning rate, the highest of its schedule (default: ${DEFAULT-VALUE}).")
    double learningRate;

    @Option(
            names = "--lr-schedule",
            defaultValue = "constant",
            paramLabel = "<constant|linear|cosine|wsd>",
            description =
                    "Learning rate after the warm-up: constant, a line or half a cosine to --lr-min,"
                            + " or constant with a line in the last --lr-decay of the steps"
                            + " (default: ${DEFAULT-VALUE}).")
    String schedule = "constant";

    @Option(
            names = "--lr-warmup",
            defaultValue = "0",
            paramLabel = "<n>",
            description =
                    "Steps in which the learning rate rises to --lr (default: ${DEFAULT-VALUE}).")
    int warmup;

    @Option(
            names = "--lr-min",
            defaultValue = "0",
            paramLabel = "<x>",
            description =
                    "Learning rate at the end, as a share of --lr (default: ${DEFAULT-VALUE}).")
    double minimum;

    @Option(
            names = "--lr-decay",
            defaultValue = "0.1",
            paramLabel = "<x>",
            description =
                    "Share of the steps in which wsd lowers the rate (default: ${DEFAULT-VALUE}).")
    double decay;

    @Option(
            names = "--clip",
            paramLabel = "<norm>",
            description =
                    "Largest norm of the gradients of the whole model, to which they are scaled"
                            + " down (default: no clipping).")
    @Nullable Double clip;

    @Option(
            names = "--optimizer",
            defaultValue = "adam",
            paramLabel = "<adam|adamw|sgd|lion|lamb|adam8bit|adafactor>",
            description =
                    "Update rule; sgd has a momentum of 0.9, adam8bit moments of 8 bits, adafactor"
                            + " means of rows and columns (default: ${DEFAULT-VALUE}).")
    Rule rule = Rule.adam;

    @Option(
            names = "--weight-decay",
            paramLabel = "<x>",
            description =
                    "Weight decay; for adam and sgd in the gradient, else apart from it (default:"
                            + " 0.01 for adamw and lamb, otherwise 0).")
    @Nullable Double weightDecay;

    @Option(
            names = "--loss-scale",
            paramLabel = "<x>",
            description =
                    "First factor of the loss with --fp16, halved when gradients overflow and doubled"
                            + " after 2000 steps without (default: 65536).")
    @Nullable Double lossScale;

    @Option(
            names = "--no-decay",
            split = ",",
            paramLabel = "<name>",
            description = "Tensors or layers without weight decay, such as embedding,head.")
    List<String> undecayed = List.of();

    @Option(
            names = "--lr-scale",
            split = ",",
            paramLabel = "<name=x>",
            description =
                    "Factor of the learning rate for a tensor or layer, such as embedding=0.5.")
    List<String> scales = List.of();

    Optimizer optimizer() {
        if (weightDecay != null && !(weightDecay >= 0 && weightDecay < Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "--weight-decay is " + weightDecay + ", expected a finite number, 0 or more");
        }
        Optimizer base =
                switch (rule) {
                    case adam -> Adam.defaults();
                    case adamw -> AdamW.defaults();
                    case sgd -> Sgd.withMomentum(0.9);
                    case lion -> Lion.defaults();
                    case lamb -> Lamb.defaults();
                    case adam8bit -> Adam8bit.defaults();
                    case adafactor -> Adafactor.defaults();
                };
        return weightDecay == null ? base : base.withWeightDecay(weightDecay);
    }

    Recipe recipe() {
        require(
                learningRate > 0 && learningRate < Float.MAX_VALUE,
                "--lr is "
                        + learningRate
                        + ", expected a number above 0 and below "
                        + Float.MAX_VALUE
                        + ", the largest of float32");
        List<Recipe.Group> groups = new ArrayList<>();
        for (String s : scales) {
            int equals = s.indexOf('=');
            if (equals < 1) {
                throw scale(s, null);
            }
            String name = s.substring(0, equals);
            double rate;
            try {
                rate = Double.parseDouble(s.substring(equals + 1));
            } catch (NumberFormatException e) {
                throw scale(s, e);
            }
            groups.add(new Recipe.Group(List.of(name), rate, OptionalDouble.empty()));
        }
        if (!undecayed.isEmpty()) {
            groups.add(new Recipe.Group(undecayed, 1, OptionalDouble.of(0)));
        }
        return new Recipe(
                new RateSchedule(shape(), warmup, minimum, decay),
                clip == null ? Double.POSITIVE_INFINITY : clip,
                groups,
                lossScale == null ? Recipe.SCALE : lossScale);
    }

    private RateSchedule.Shape shape() {
        for (RateSchedule.Shape s : RateSchedule.Shape.values()) {
            if (s.label().equals(schedule.toLowerCase(Locale.ROOT))) {
                return s;
            }
        }
        throw new IllegalArgumentException(
                "--lr-schedule is '" + schedule + "', expected constant, linear, cosine or wsd");
    }

    private static IllegalArgumentException scale(String text, @Nullable Throwable cause) {
        return new IllegalArgumentException(
                "--lr-scale has '"
                        + text
                        + "', expected a name and a factor, such as"
                        + " embedding=0.5",
                cause);
    }

    /** What does not go together is refused. */
    void check(Techniques t, boolean cuda) {
        if ((rule == Rule.lamb || rule == Rule.adafactor) && t.tensor() > 1) {
            throw new IllegalArgumentException(
                    "--optimizer is "
                            + rule
                            + ", which needs sums over whole matrices, but --tp "
                            + t.tensor()
                            + " splits them; use --tp 1 or another optimizer");
        }
        boolean gpu = cuda && t.offload() == Techniques.Offload.NONE;
        if (gpu && (rule == Rule.lamb || rule == Rule.adam8bit || rule == Rule.adafactor)) {
            throw new IllegalArgumentException(
                    "--optimizer is "
                            + rule
                            + ", which has no kernel for a GPU; with --device cuda expected adam,"
                            + " adamw, sgd or lion, or --offload host");
        }
    }
}
