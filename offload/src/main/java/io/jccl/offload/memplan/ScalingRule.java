package io.jccl.offload.memplan;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * How models grow in the search for the largest one. The hidden size grows in steps of 128; for
 * each, the depth starts at hidden / aspect and grows until the next hidden size would give its
 * layers at least as many parameters. Depth and width thus grow together, and neighbours differ
 * little: about 6% at 1e9 parameters, 2% at 15e9.
 *
 * @param aspect hidden size by layers
 * @param like the model whose other proportions are kept
 */
public record ScalingRule(double aspect, Model like) {
    /**
     * GPT-3's: 12288 hidden by 96 layers and by 96 heads are 128 each, and so are those of its 6.7B
     * and 13B members within 1% (arXiv 2005.14165, table 2.1).
     */
    public static final ScalingRule GPT =
            like(Model.gpt(96, 12_288, 96, Model.GPT_VOCABULARY, Model.GPT_SEQUENCE));

    /** Hidden sizes are multiples of this, which suits matrix units. */
    private static final int STEP = 128;

    /** Checks the ratios. */
    public ScalingRule {
        Checks.range("hidden size by layers", aspect, 1e-3, 1e7, "GPT-3 has 128");
    }

    /**
     * The rule with the proportions of a model.
     *
     * @param model the model
     * @return the rule
     */
    public static ScalingRule like(Model model) {
        return new ScalingRule((double) model.hidden() / model.layers(), model);
    }

    /**
     * All models of the rule, smallest first.
     *
     * @param most the largest number of parameters
     * @return the models, with strictly more parameters each
     * @throws IllegalArgumentException if there are none
     */
    public List<Model> ladder(long most) {
        List<Model> models = new ArrayList<>();
        for (int k = 1; ; k++) {
            // Without the embeddings, which would make the smallest ones deep and narrow.
            double next = inLayers(depth(k + 1), STEP * (k + 1));
            int first = depth(k);
            // Flat rules have few depths per width, deep ones many: some eight of them are enough.
            int step = Math.max(1, (depth(k + 1) - first) / 8);
            for (int layers = first; layers == first || inLayers(layers, STEP * k) < next; ) {
                boolean over = inLayers(layers, STEP * k) > most || layers > 1_000_000;
                Model model = over ? null : scaled(layers, STEP * k);
                // The first ones may be too narrow for one of their parts.
                if (over || model != null || !models.isEmpty()) {
                    if (model == null || model.parameters() > most) {
                        return some(models, most);
                    }
                    // Deep models of one width give way to the first of the next that has no more.
                    while (!models.isEmpty()
                            && models.getLast().parameters() >= model.parameters()) {
                        models.removeLast();
                    }
                    models.add(model);
                }
                layers += step;
            }
        }
    }

    /**
     * A model of a number of parameters: the nearest of the rule, with the difference spread over
     * its layers.
     *
     * @param parameters the number
     * @return the model, with exactly that number
     */
    public Model model(long parameters) {
        Checks.range(
                "the number of parameters",
                parameters,
                1,
                Model.MAX_PARAMETERS,
                "give a number such as 1300000000");
        List<Model> ladder = ladder(Model.MAX_PARAMETERS);
        Model nearest = ladder.getFirst();
        for (Model m : ladder) {
            if (Math.abs(Math.log((double) m.parameters() / parameters))
                    < Math.abs(Math.log((double) nearest.parameters() / parameters))) {
                nearest = m;
            }
        }
        return nearest.withParameters(parameters);
    }

    private List<Model> some(List<Model> models, long most) {
        if (models.isEmpty()) {
            throw new IllegalArgumentException(
                    ("no model with hidden / layers = %s has up to %s parameters; give more parameters,"
                                    + " or another shape")
                            .formatted(aspect, most));
        }
        return List.copyOf(models);
    }

    private int depth(int k) {
        return (int) Math.min(2_000_000, Math.max(1, Math.round(STEP * k / aspect)));
    }

    private static double inLayers(double layers, double hidden) {
        return layers * hidden * hidden;
    }

    /** Null if it is larger or narrower than any that can be planned. */
    private @Nullable Model scaled(int layers, int hidden) {
        try {
            return like.scaled(layers, hidden);
        } catch (IllegalArgumentException e) {
            return null;
        }
    }
}
