package io.jccl.train;

import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.ParameterGroup;
import java.util.List;
import java.util.OptionalDouble;

/**
 * How parameters are updated, apart from rule and learning rate.
 *
 * @param schedule of the learning rate
 * @param clip largest norm of the gradients of the whole model, to which they are scaled down;
 *     infinity for no clipping
 * @param groups tensors with another rate or decay; the first that contains a tensor sets its rate,
 *     the first of these with a decay its decay
 * @param lossScale initial factor of the loss if gradients are float16
 */
public record Recipe(RateSchedule schedule, double clip, List<Group> groups, double lossScale) {
    /** The initial loss scale of {@code torch.amp.GradScaler}. */
    public static final double SCALE = 65536;

    /** A constant rate, no clipping and no groups. */
    public static final Recipe NONE =
            new Recipe(RateSchedule.CONSTANT, Double.POSITIVE_INFINITY, List.of(), SCALE);

    private static final double LARGEST_SCALE = 0x1p60;

    /** Added to the norm, as in {@code torch.nn.utils.clip_grad_norm_}. */
    private static final double EPSILON = 1e-6;

    /**
     * Checks the arguments.
     *
     * @throws IllegalArgumentException if the norm is not positive, or the scale out of range
     */
    public Recipe {
        groups = List.copyOf(groups);
        if (!(clip > 0)) {
            throw new IllegalArgumentException(
                    "--clip is " + clip + ", expected a norm of more than 0");
        }
        if (!(lossScale >= 1 && lossScale <= LARGEST_SCALE)) {
            throw new IllegalArgumentException(
                    "--loss-scale is " + lossScale + ", expected 1 to " + LARGEST_SCALE);
        }
    }

    /**
     * A recipe with the usual loss scale.
     *
     * @param schedule of the learning rate
     * @param clip largest norm of the gradients; infinity for no clipping
     * @param groups tensors with another rate or decay
     */
    public Recipe(RateSchedule schedule, double clip, List<Group> groups) {
        this(schedule, clip, groups, SCALE);
    }

    /**
     * Tensors with another rate or decay.
     *
     * @param names of tensors or layers, such as {@code embedding} or {@code block0.w1}, or of a
     *     tensor in all layers, such as {@code w1}, or of all biases: {@code bias}
     * @param rate factor of the learning rate, 0 or more
     * @param decay weight decay; empty for that of the rule
     */
    public record Group(List<String> names, double rate, OptionalDouble decay) {
        /**
         * Checks the arguments.
         *
         * @throws IllegalArgumentException if there are no names, or a number is out of range
         */
        public Group {
            names = List.copyOf(names);
            if (names.isEmpty() || names.stream().anyMatch(String::isBlank)) {
                throw new IllegalArgumentException(
                        "a group of parameters has a blank name, expected names such as"
                                + " embedding,block0.w1");
            }
            if (!(rate >= 0 && rate <= Float.MAX_VALUE)) {
                throw new IllegalArgumentException(
                        "the rate of group " + names + " is " + rate + ", expected 0 or more");
            }
            if (!(decay.orElse(0) >= 0 && decay.orElse(0) <= Float.MAX_VALUE)) {
                throw new IllegalArgumentException(
                        "the decay of group %s is %s, expected 0 or more"
                                .formatted(names, decay.orElse(0)));
            }
        }

        private boolean has(String layer, String tensor) {
            String name = layer + "." + tensor;
            return names.stream()
                    .anyMatch(n ->
                            n.equals(tensor)
                                    || tensor.endsWith("." + n)
                                    || (name + ".").startsWith(n + "."));
        }
    }

    /**
     * Checks that each name in a group matches a tensor.
     *
     * @param shape the model
     * @throws IllegalArgumentException if one does not; the message lists the layers
     */
    public void check(GptShape shape) {
        Part whole = new Part(shape, 0, 1, 0, shape.layers(), 0, shape.experts());
        List<Part.Layer> layers = new java.util.ArrayList<>(whole.layers());
        layers.addAll(whole.expertLayers());
        for (Group g : groups) {
            for (String name : g.names) {
                Group one = new Group(List.of(name), 1, OptionalDouble.empty());
                boolean found =
                        layers.stream()
                                .anyMatch(l ->
                                        l.weights().stream()
                                                .anyMatch(w -> one.has(l.name(), w.name())));
                if (!found) {
                    throw new IllegalArgumentException(
                            ("no tensor is named '%s', expected a layer such as %s or %s, or a"
                                            + " tensor of one, such as w1 or embedding.token")
                                    .formatted(
                                            name,
                                            layers.getFirst().name(),
                                            layers.getLast().name()));
                }
            }
        }
    }

    /** Rate and decay of a tensor. */
    ParameterGroup group(Optimizer optimizer, String layer, String tensor, boolean counted) {
        List<Group> of = groups.stream().filter(g -> g.has(layer, tensor)).toList();
        double rate = of.isEmpty() ? 1 : of.getFirst().rate;
        Optimizer rule =
                of.stream()
                        .filter(g -> g.decay.isPresent())
                        .findFirst()
                        .map(g -> optimizer.withWeightDecay(g.decay.orElse(0)))
                        .orElse(optimizer);
        return new ParameterGroup(rule, rate, counted);
    }

    boolean clips() {
        return clip < Double.POSITIVE_INFINITY;
    }

    /** The factor of gradients with a given norm; a norm that is not finite is left to the step. */
    double factor(double norm) {
        return Double.isFinite(norm) ? Math.min(1, clip / (norm + EPSILON)) : 1;
    }

    /**
     * The settings that determine the result, for checkpoints; empty for none. Checkpoints have the
     * loss scale itself.
     */
    String text(int steps) {
        boolean none = schedule.equals(RateSchedule.CONSTANT) && !clips() && groups.isEmpty();
        return none ? "" : schedule.text(steps) + " clip=" + clip + " " + groups;
    }
}
