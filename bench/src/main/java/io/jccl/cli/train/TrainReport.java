package io.jccl.cli.train;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.Verdict;
import io.jccl.cli.shell.Version;
import io.jccl.internal.Cpus;
import io.jccl.parallel.Compression;
import io.jccl.train.Architecture;
import io.jccl.train.ExpertLoad;
import io.jccl.train.GptShape;
import io.jccl.train.Recipe;
import io.jccl.train.Routing;
import io.jccl.train.RunSettings;
import io.jccl.train.Techniques;
import io.jccl.train.TrainResult;
import java.io.PrintWriter;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToDoubleFunction;
import org.jspecify.annotations.Nullable;

/** The result of {@code train} as text and JSON. */
final class TrainReport {
    /**
     * Tolerated differences of losses. Float32: sums are computed in another order, with relative
     * errors of about 2^-24, and training amplifies such differences. Bfloat16: parameters and
     * gradients have 8 significant bits, so each has a relative error of up to 2^-9.
     */
    static final double TOLERANCE = 1e-3;

    static final double NARROW_TOLERANCE = 2e-2;

    /** A rounded gate may route a token to another expert. */
    static final double NARROW_EXPERT_TOLERANCE = 0.1;

    /**
     * Gradients rounded for communication: the error of a mean is up to 2^-7 of the largest
     * contribution.
     */
    static final double CAST_TOLERANCE = 1e-2;

    /**
     * With top-k and PowerSGD most of a gradient is applied some steps late, so the loss falls
     * later: up to 0.8 higher with one element in a hundred. Without training the difference would
     * be 2 or more.
     */
    static final double LATE_TOLERANCE = 1;

    private static final String ROUTERS = "%-14s %9s %9s %9s %9s %9s %10s%n";
    private static final String LINE = "%-44s %5s %9s %10s %10s %7s %8s  %s";

    /**
     * A run and its reference.
     *
     * @param result the result
     * @param reference the single-rank run of the same model; null if there is none
     */
    record Run(TrainResult result, @Nullable TrainResult reference) {
        Techniques techniques() {
            return result.settings().techniques();
        }

        double tolerance() {
            if (techniques().narrow()) {
                boolean experts = result.settings().shape().experts() > 0;
                return experts ? NARROW_EXPERT_TOLERANCE : NARROW_TOLERANCE;
            }
            return switch (techniques().compress()) {
                case Compression.None none -> TOLERANCE;
                case Compression.Cast cast -> CAST_TOLERANCE;
                case Compression.TopK topK -> LATE_TOLERANCE;
                case Compression.PowerSgd powerSgd -> LATE_TOLERANCE;
            };
        }

        /** What a model's experts are, if it has any; nothing more for Switch's. */
        private static String experts(GptShape g) {
            String shared = beside(g);
            String router = g.routing() == Routing.SWITCH ? "" : " by " + g.routing().label();
            return g.experts() == 0 ? "" : ", experts" + router + shared;
        }

        /** The expert that all tokens pass. */
        private static String beside(GptShape g) {
            String residual = g.mixture().residual() ? " and a residual one" : "";
            return g.sharedExpert() ? " and a shared one" : residual;
        }

        double difference() {
            return reference == null ? 0 : result.difference(reference);
        }

        boolean agrees() {
            return difference() <= tolerance();
        }

        String name() {
            return techniques() + experts(result.settings().shape()) + (onGpu() ? ", cuda" : "");
        }

        boolean onGpu() {
            return result.engine().equals("nccl");
        }
    }

    private final List<Run> runs;
    private final String text;
    private final double entropy;

    TrainReport(List<Run> runs, String text, double entropy) {
        this.runs = runs;
        this.text = text;
        this.entropy = entropy;
    }

    /** The settings in one line. */
    String subtitle() {
        RunSettings s = runs.getFirst().result().settings();
        // The first one of a comparison is on the CPU.
        Engine engine = runs.getLast().onGpu() ? Engine.NCCL : Engine.HOST;
        return model(s, text, oneRouter())
                + mixture(s.shape())
                + format(
                        "; %s, %d processors, JDK %s",
                        engine.processor(), Cpus.processors(), Runtime.version());
    }

    /** Settings of experts that have no word of their own in a line, and the capacity. */
    private static String mixture(GptShape g) {
        String more = g.mixture().text();
        String room = g.experts() == 0 ? "" : "; capacity factor " + g.capacityFactor();
        return more.isEmpty() ? room : room + "; " + more;
    }

    /** The family of a model, except for JCCL's own. */
    private static String kind(GptShape g) {
        Architecture a = g.architecture();
        return a.kind() == Architecture.Kind.JCCL ? "" : a.kind().label() + ", ";
    }

    /** The model in one line, without its router on request. */
    static String model(RunSettings s, String text, boolean router) {
        GptShape g = s.shape();
        return format(
                "%,d parameters: %s%d blocks of width %d, %d heads, %s%d tokens of context; %s;"
                        + " %d sequences a step, %s at %s, seed %d",
                g.parameters(),
                kind(g),
                g.layers(),
                g.hidden(),
                g.heads(),
                g.experts() == 0
                        ? ""
                        : g.experts()
                                + " experts"
                                + Run.beside(g)
                                + (router ? " (" + g.routing().label() + "), " : ", "),
                g.context(),
                text,
                s.batch(),
                s.optimizer().label(),
                s.learningRate(),
                s.seed());
    }

    void print(PrintWriter out) {
        Run last = runs.getLast();
        TrainResult r = last.result();
        if (r.losses().isEmpty()) {
            out.println("# the checkpoint has " + r.first() + " steps already");
            out.flush();
            return;
        }
        line(out, "loss", "%.4f nats a token", r.losses().getLast());
        if (!r.validation().isEmpty()) {
            double held = new TreeMap<>(r.validation()).lastEntry().getValue();
            line(out, "held-out text", "%.4f nats a token", held);
        }
        line(out, "without context", "%.4f (unigram entropy of the text)", entropy);
        line(
                out,
                "speed",
                "%.1f samples/s, %.0f tokens/s (median step %.2f ms)",
                r.samplesPerSecond(),
                r.tokensPerSecond(),
                r.stepSeconds() * 1e3);
        if (r.settings().techniques().scaled()) {
            String text = "%.0f (%d steps left out, since gradients overflowed)";
            line(out, "loss scale", text, r.lossScale(), r.skipped());
        }
        if (r.measured() > 0) {
            line(
                    out,
                    "communication",
                    last.onGpu()
                            ? "%.1f %% of a step operations run on the GPU (over %d steps)"
                            : "%.1f %% of a step is waited for (over %d steps)",
                    100 * r.share(),
                    r.measured());
            if (!Double.isNaN(r.overlap())) {
                line(
                        out,
                        "overlap",
                        "%.1f %% of the gradients' and parameters' is hidden behind computation",
                        100 * r.overlap());
            }
            for (Map.Entry<String, Double> e : r.axes().entrySet()) {
                line(out, "  " + e.getKey(), "%.3f ms a step", e.getValue() * 1e3);
            }
        }
        if (!r.bubble().isEmpty()) {
            line(
                    out,
                    "pipeline bubble",
                    "%.1f %% by formula, %.1f %% measured",
                    100 * r.bubble().get(0),
                    100 * r.bubble().get(1));
        }
        for (ExpertLoad e : r.experts()) {
            line(
                    out,
                    "experts, block" + e.block(),
                    "fullest %.2f times the mean, %.1f %% of choices and %.1f %% of tokens"
                            + " dropped",
                    e.fullest(),
                    100 * e.droppedChoices(),
                    100 * e.droppedTokens());
        }
        if (!r.sample().isEmpty()) {
            out.println("# generated text:");
            out.println(r.sample());
        }
        out.flush();
    }

    private static void line(PrintWriter out, String name, String pattern, Object... values) {
        out.println(format("%-16s ", name) + format(pattern, values));
    }

    void printTable(PrintWriter out) {
        out.println("# jccl " + Version.TEXT + " train --compare");
        out.println("# " + subtitle());
        out.println(
                "# difference: the largest from the single-rank run at any step; communication: part"
                        + " of a step that is waited for");
        out.println(
                format(
                                LINE,
                                "techniques",
                                "ranks",
                                "loss",
                                "difference",
                                "samples/s",
                                "comm.",
                                "overlap",
                                "")
                        .stripTrailing());
        for (Run run : runs) {
            TrainResult r = run.result();
            String difference = run.reference() == null ? "-" : format("%.1e", run.difference());
            out.println(
                    format(
                                    LINE,
                                    run.name(),
                                    run.techniques().ranks(),
                                    format("%.4f", r.losses().getLast()),
                                    difference,
                                    format("%.1f", r.samplesPerSecond()),
                                    percent(r.share()),
                                    percent(r.overlap()),
                                    run.agrees()
                                            ? ""
                                            : Verdict.bad(
                                                    "DIFFERS BY MORE THAN " + run.tolerance()))
                            .stripTrailing());
        }
        out.flush();
    }

    /** Prints a table of routers, each figure of experts the mean over steps and blocks. */
    void printRouters(PrintWriter out) {
        out.println("# jccl " + Version.TEXT + " train --compare routers");
        out.println("# " + subtitle());
        out.println(
                "# dropped: tokens that no expert took; fullest: tokens of the fullest expert,"
                        + " times the mean; entropy: 1 if the load is even; capacity: the factor"
                        + " that has just enough room for what is not dropped");
        out.printf(ROUTERS, "router", "loss", "dropped", "fullest", "entropy", "capacity", "step");
        for (Run run : runs) {
            TrainResult r = run.result();
            out.printf(
                    ROUTERS,
                    r.settings().shape().routing().label(),
                    format("%.4f", r.losses().getLast()),
                    format("%.1f %%", 100 * mean(r, ExpertLoad::droppedTokens)),
                    format("%.2f", mean(r, ExpertLoad::fullest)),
                    format("%.3f", mean(r, ExpertLoad::entropy)),
                    format("%.2f", mean(r, ExpertLoad::capacity)),
                    format("%.2f ms", r.stepSeconds() * 1e3));
        }
        out.flush();
    }

    private boolean oneRouter() {
        return runs.stream().map(r -> r.result().settings().shape().routing()).distinct().count()
                == 1;
    }

    private static double mean(TrainResult r, ToDoubleFunction<ExpertLoad> of) {
        return r.experts().stream().mapToDouble(of).average().orElse(Double.NaN);
    }

    private static String percent(double part) {
        return Double.isNaN(part) ? "-" : format("%.0f %%", 100 * part);
    }

    /** Whether there is anything to draw. */
    boolean hasLosses() {
        return runs.stream().anyMatch(r -> !r.result().losses().isEmpty());
    }

    ObjectNode json() {
        ObjectNode root = new ObjectMapper().createObjectNode();
        ObjectNode top = root.putObject("jccl_train");
        top.put("schema", 1);
        top.put("version", Version.TEXT);
        top.put("processors", Cpus.processors());
        top.put("java", Runtime.version().toString());
        top.put("setting", subtitle());
        top.put("text", text);
        top.put("unigram_entropy", entropy);
        ArrayNode all = top.putArray("runs");
        for (Run run : runs) {
            add(all.addObject(), run);
        }
        return root;
    }

    private static void add(ObjectNode n, Run run) {
        TrainResult r = run.result();
        RunSettings s = r.settings();
        Techniques t = run.techniques();
        n.put("name", run.name());
        n.put("engine", r.engine());
        n.put("ranks", t.ranks());
        n.put("dp", t.data());
        n.put("tp", t.tensor());
        n.put("pp", t.pipeline());
        n.put("ep", t.expert());
        n.put("zero", t.zero());
        n.put("offload", t.offload().label());
        n.put("accumulate", t.accumulate());
        n.put("bf16", t.narrow() && !t.scaled());
        n.put("fp16", t.scaled());
        n.put("recompute", t.recompute());
        n.put("sequence_parallel", t.sequenceParallel());
        n.put("schedule", t.schedule().label());
        n.put("pipeline_overlap", t.overlap());
        n.put("compress", t.compressLabel());
        GptShape g = s.shape();
        n.put("model", g.architecture().kind().label());
        n.put("parameters", g.parameters());
        n.put("layers", g.layers());
        n.put("hidden", g.hidden());
        n.put("heads", g.heads());
        n.put("context", g.context());
        n.put("vocabulary", g.vocabulary());
        n.put("experts", g.experts());
        n.put("router", g.routing().label());
        n.put("shared_expert", g.sharedExpert());
        n.put("capacity_factor", g.capacityFactor());
        n.put("residual_expert", g.mixture().residual());
        n.put("router_jitter", g.mixture().jitter());
        n.put("router_dropout", g.mixture().routerDropout());
        n.put("router_noise", g.mixture().noise());
        n.put("router_sample", g.mixture().sample());
        n.put("min_capacity", g.mixture().minCapacity());
        n.put("expert_dropout", g.mixture().expertDropout());
        n.put("init_scale", g.mixture().initScale());
        n.put("batch", s.batch());
        n.put("optimizer", s.optimizer().label());
        n.put("learning_rate", s.learningRate());
        Recipe recipe = s.recipe();
        n.put("lr_schedule", recipe.schedule().shape().label());
        n.put("lr_warmup", recipe.schedule().warmup());
        n.put("lr_min", recipe.schedule().minimum());
        n.put("lr_decay", recipe.schedule().decay());
        if (Double.isFinite(recipe.clip())) {
            n.put("clip", recipe.clip());
        }
        n.put("seed", s.seed());
        n.put("first_step", r.first());
        n.put("seconds", r.seconds());
        put(n, "median_step_seconds", r.stepSeconds());
        put(n, "samples_per_second", r.samplesPerSecond());
        put(n, "tokens_per_second", r.tokensPerSecond());
        n.put("measured_steps", r.measured());
        put(n, "communication_share", r.share());
        put(n, "overlap", r.overlap());
        ObjectNode axes = n.putObject("communication_seconds_per_step");
        r.axes().forEach(axes::put);
        if (r.settings().techniques().scaled()) {
            n.put("loss_scale", r.lossScale());
            n.put("skipped_steps", r.skipped());
        }
        if (!r.bubble().isEmpty()) {
            n.put("bubble_formula", r.bubble().get(0));
            put(n, "bubble_measured", r.bubble().get(1));
        }
        ArrayNode loads = n.putArray("expert_loads");
        for (ExpertLoad e : r.experts()) {
            ObjectNode load = loads.addObject();
            load.put("block", e.block());
            load.put("dropped_choices", e.droppedChoices());
            load.put("dropped_tokens", e.droppedTokens());
            load.put("fullest", e.fullest());
            load.put("variation", e.variation());
            load.put("entropy", e.entropy());
            load.put("used_capacity_factor", e.capacity());
            ArrayNode shares = load.putArray("shares");
            e.shares().forEach(shares::add);
        }
        if (run.reference() != null) {
            n.put("reference", new Run(run.reference(), null).name());
            n.put("largest_difference", run.difference());
            n.put("tolerance", run.tolerance());
        }
        ArrayNode losses = n.putArray("losses");
        r.losses().forEach(losses::add);
        ArrayNode held = n.putArray("validation");
        r.validation()
                .forEach((step, loss) -> held.addObject().put("step", step).put("loss", loss));
        if (!r.sample().isEmpty()) {
            n.put("sample", r.sample());
        }
    }

    /** JSON has no NaN. */
    private static void put(ObjectNode n, String name, double value) {
        if (Double.isFinite(value)) {
            n.put(name, value);
        } else {
            n.putNull(name);
        }
    }
}
