package io.jccl.cli.train;

import static io.jccl.cli.shell.Text.format;
import static java.util.Map.entry;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.IntNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Model.OptionSpec;

/**
 * A DeepSpeed configuration (<a
 * href="https://www.deepspeed.ai/docs/config-json/">www.deepspeed.ai/docs/config-json</a>) as flags
 * of {@code jccl train}; the command line takes precedence. A key that would change the result and
 * has no flag is refused, an unknown key is reported, and "auto" counts as not given. A value of
 * the optimizer that is missing is DeepSpeed's default; if no flag sets that, it is refused. If the
 * command line has another optimizer, only the rate and the weight decay of the file's count. Other
 * defaults that differ are reported. A separate class, so that nothing else loads Jackson.
 */
final class DeepSpeedFile {
    /** The flag that names the file. */
    static final String NAME = "--deepspeed";

    private static final String TOTAL = "train_batch_size";
    private static final String MICRO = "train_micro_batch_size_per_gpu";
    private static final String ACCUMULATE = "gradient_accumulation_steps";
    private static final String ZERO = DeepSpeedKeys.ZERO;
    private static final String STATE = ZERO + "offload_optimizer.device";
    private static final String PARAMETERS = ZERO + "offload_param.device";
    private static final String RATE = DeepSpeedKeys.UPDATE + "lr";
    private static final String DECAY = DeepSpeedKeys.UPDATE + "weight_decay";
    private static final String MOMENTUM = DeepSpeedKeys.UPDATE + "momentum";

    /** Whether torch's Adam and AdamW are used, which have another weight decay by default. */
    private static final String TORCH = DeepSpeedKeys.UPDATE + "torch_adam";

    /** Whether its Adam is AdamW nevertheless. */
    private static final String ADAM_W = DeepSpeedKeys.UPDATE + "adam_w_mode";

    private static final String CLIP = "gradient_clipping";
    private static final String SCALE_POWER = "fp16.initial_scale_power";

    /** What a value is made of, and what was expected instead. */
    private record Kind(String expected, Function<JsonNode, @Nullable Object> value) {}

    private static final Kind COUNT =
            new Kind("a whole number", n -> n.canConvertToInt() ? n.intValue() : null);
    private static final Kind NUMBER =
            new Kind("a number", n -> n.isNumber() ? n.doubleValue() : null);
    private static final Kind SWITCH =
            new Kind("true or false", n -> n.isBoolean() ? n.booleanValue() : null);
    private static final Kind FOLDER =
            new Kind("a folder", n -> n.isTextual() ? Path.of(n.textValue()) : null);
    private static final Kind RULE = new Kind("Adam, AdamW, SGD or Lion", DeepSpeedFile::rule);

    private static final List<RecipeOptions.Rule> RULES =
            List.of(
                    RecipeOptions.Rule.adam,
                    RecipeOptions.Rule.adamw,
                    RecipeOptions.Rule.sgd,
                    RecipeOptions.Rule.lion);

    /** Rules of which DeepSpeed has the same decay as the flag; that of Adam is another. */
    private static final Set<RecipeOptions.Rule> DECAYED =
            Set.of(RecipeOptions.Rule.adamw, RecipeOptions.Rule.lion);

    private static final String BETAS = DeepSpeedKeys.UPDATE + "betas";
    private static final String USUAL_BETAS = "[0.9,0.999]";

    /** Lion's of the trainer; DeepSpeed has {@link #USUAL_BETAS} for all its rules. */
    private static final String LION_BETAS = "[0.9,0.99]";

    private static final String SCHEDULE = "scheduler.type";
    private static final String WARMUP_TYPE = "scheduler.params.warmup_type";
    private static final String WARMUP = "scheduler.params.warmup_num_steps";
    private static final String HIGHEST = "scheduler.params.warmup_max_lr";
    private static final String TOTAL_STEPS = "scheduler.params.total_num_steps";
    private static final String LOWEST = "scheduler.params.cos_min_ratio";
    private static final String DECAY_LR = "WarmupDecayLR";
    private static final String COSINE_LR = "WarmupCosineLR";

    /** Where the warm-up begins: the trainer's at 0. */
    private static final List<String> FIRST =
            List.of("scheduler.params.warmup_min_lr", "scheduler.params.warmup_min_ratio");

    /** Schedules of deepspeed/runtime/lr_schedules.py, and their shapes. */
    private static final Map<String, String> SCHEDULES =
            Map.of("WarmupLR", "constant", DECAY_LR, "linear", COSINE_LR, "cosine");

    // Defaults of the same file; the rate is that of optimizers too.
    private static final int USUAL_WARMUP = 1000;
    private static final int LEAST_WARMUP = 2;
    private static final double USUAL_RATE = 0.001;
    private static final double USUAL_LOWEST = 0.0001;

    /** Keys that several flags, or conditions, depend on. */
    private static final Set<String> COMBINED =
            Set.of(
                    MICRO,
                    STATE,
                    PARAMETERS,
                    DECAY,
                    MOMENTUM,
                    TORCH,
                    CLIP,
                    SCALE_POWER,
                    BETAS,
                    SCHEDULE,
                    WARMUP_TYPE,
                    WARMUP,
                    HIGHEST,
                    TOTAL_STEPS,
                    LOWEST,
                    FIRST.getFirst(),
                    FIRST.getLast());

    private record Flag(String option, Kind kind) {}

    /** Keys with a flag of their own. */
    private static final Map<String, Flag> FLAGS =
            Map.ofEntries(
                    entry(TOTAL, new Flag("--batch", COUNT)),
                    entry(ACCUMULATE, new Flag("--accumulate", COUNT)),
                    entry(ZERO + "stage", new Flag("--zero", COUNT)),
                    entry(ZERO + "offload_optimizer.nvme_path", new Flag("--nvme", FOLDER)),
                    entry("bf16.enabled", new Flag("--bf16", SWITCH)),
                    entry("fp16.enabled", new Flag("--fp16", SWITCH)),
                    entry("optimizer.type", new Flag("--optimizer", RULE)),
                    entry(RATE, new Flag("--lr", NUMBER)),
                    entry("tensor_parallel.autotp_size", new Flag("--tp", COUNT)));

    private final DeepSpeedValues values;
    private final CommandLine line;
    private final List<String> unknown = new ArrayList<>();

    /** Arguments of the file's optimizer, if the command line has another. */
    private final List<String> replaced = new ArrayList<>();

    private final Map<String, Object> flags = new TreeMap<>();

    private DeepSpeedFile(DeepSpeedValues values, CommandLine line) {
        this.values = values;
        this.line = line;
    }

    /**
     * Reads a file.
     *
     * @param file a configuration
     * @param line the command, with what its arguments set
     * @return its flags
     * @throws IllegalArgumentException if it cannot be read, or requests something the trainer
     *     lacks; the message names the key
     */
    static DeepSpeedFile read(Path file, CommandLine line) {
        DeepSpeedFile f = new DeepSpeedFile(DeepSpeedValues.read(file), line);
        f.translate();
        return f;
    }

    private void translate() {
        values.leaves()
                .forEach((key, value) -> {
                    Flag flag = FLAGS.get(key);
                    if (flag != null) {
                        setFlag(key, value, flag);
                    }
                });
        schedule();
        boolean scaled = isScaled();
        boolean replaces = replacesOptimizer();
        // Parameters after types: those of another optimizer or schedule are its own.
        values.leaves()
                .forEach((key, value) -> {
                    String fixed = DeepSpeedKeys.fixed(key, scaled);
                    if (replaces
                            && key.startsWith(DeepSpeedKeys.UPDATE)
                            && !key.equals(RATE)
                            && !key.equals(DECAY)) {
                        replaced.add(key);
                    } else if (fixed != null) {
                        values.requireFixed(key, value, fixed);
                    } else if (!FLAGS.containsKey(key)
                            && !COMBINED.contains(key)
                            && !DeepSpeedKeys.isWithoutEffect(key)) {
                        if (DeepSpeedKeys.isParameter(key)) {
                            values.requireFixed(key, value, "");
                        }
                        unknown.add(key);
                    }
                });
        if (scaled && values.has(SCALE_POWER)) {
            flags.put("--loss-scale", Math.pow(2, values.number(SCALE_POWER)));
        }
        double clip = values.number(CLIP);
        // No clipping is written as 0.
        if (clip > 0) {
            flags.put("--clip", clip);
        }
        if (!replaces) {
            decay();
            momentum();
            rate();
        } else if (values.has(DECAY)) {
            flags.put("--weight-decay", values.number(DECAY));
        }
        tiers();
    }

    /** Whether the run has a loss scale. */
    private boolean isScaled() {
        return flags.containsKey("--fp16") || (values.isOpen("fp16.enabled") && given("--fp16"));
    }

    /** Whether the command line has another optimizer than the file. */
    private boolean replacesOptimizer() {
        Object own = flags.get("--optimizer");
        return own != null
                && given("--optimizer")
                && line.getCommandSpec().findOption("--optimizer").getValue() != own;
    }

    private void setFlag(String key, JsonNode value, Flag flag) {
        Object converted = flag.kind.value.apply(value);
        if (converted == null) {
            throw values.refused(key, value, "expected " + flag.kind.expected);
        }
        if (!converted.equals(false)) {
            flags.put(flag.option, converted);
        }
    }

    /** Only some rules' decay is what the trainer's flag does. */
    private void decay() {
        JsonNode node = values.get(DECAY);
        double decay = values.number(DECAY);
        JsonNode torch = values.getOr(TORCH, NullNode.instance);
        boolean decays =
                flags.get("--optimizer") == RecipeOptions.Rule.adamw
                        || values.getOr(ADAM_W, BooleanNode.TRUE).asBoolean();
        if (torch.asBoolean() && decays && values.isMissing(DECAY)) {
            throw values.refused(
                    TORCH, torch, "which has another weight_decay by default; give it");
        }
        if (flags.get("--optimizer") instanceof RecipeOptions.Rule r && DECAYED.contains(r)) {
            if (!values.isOpen(DECAY)) {
                flags.put("--weight-decay", decay);
            }
        } else if (node != null && decay > 0) {
            throw values.refused(DECAY, node, "expected 0 unless optimizer.type is AdamW or Lion");
        }
    }

    /** What SGD and Lion have is fixed, and not DeepSpeed's default. */
    private void momentum() {
        Object rule = flags.get("--optimizer");
        JsonNode momentum = values.get(MOMENTUM);
        JsonNode betas = values.get(BETAS);
        if (rule == RecipeOptions.Rule.sgd) {
            values.requireGiven(
                    MOMENTUM, momentum == null ? "0" : momentum.toString(), "0.9", "SGD");
        } else if (momentum != null) {
            throw values.refused(MOMENTUM, momentum, "which is for SGD; leave it out");
        }
        if (rule == RecipeOptions.Rule.lion) {
            values.requireGiven(
                    BETAS, betas == null ? USUAL_BETAS : betas.toString(), LION_BETAS, "Lion");
        } else if (betas != null) {
            values.requireFixed(BETAS, betas, USUAL_BETAS);
        }
    }

    /** An optimizer of the file has DeepSpeed's default, unless a schedule has set the rate. */
    private void rate() {
        if (flags.containsKey("--optimizer") && values.isMissing(RATE) && !values.isOpen(HIGHEST)) {
            flags.putIfAbsent("--lr", USUAL_RATE);
        }
    }

    /**
     * The trainer's rate rises from the first step on; DeepSpeed's two steps later, since it is set
     * at the end of a step, and the first of those is that of step 0.
     */
    private void schedule() {
        JsonNode type = values.get(SCHEDULE);
        if (type == null) {
            return;
        }
        String name = type.asText();
        String shape = SCHEDULES.get(name);
        if (shape == null) {
            throw values.refused(
                    SCHEDULE, type, "expected WarmupLR, " + DECAY_LR + " or " + COSINE_LR);
        }
        JsonNode how = values.getOr(WARMUP_TYPE, new TextNode("log"));
        if (!how.asText().equals("linear")) {
            throw values.refused(
                    WARMUP_TYPE, how, "expected \"linear\"; \"log\" is DeepSpeed's default");
        }
        for (String key : FIRST) {
            JsonNode first = values.get(key);
            if (first != null && values.number(key) != 0) {
                throw values.refused(key, first, "but jccl train has 0 there; leave it out");
            }
        }
        flags.put("--lr-schedule", shape);
        if (!values.isOpen(WARMUP)) {
            flags.put("--lr-warmup", Math.max(LEAST_WARMUP, values.count(WARMUP, USUAL_WARMUP)));
        }
        if (shape.equals("cosine")) {
            if (!values.isOpen(LOWEST)) {
                flags.put("--lr-min", values.has(LOWEST) ? values.number(LOWEST) : USUAL_LOWEST);
            }
        } else if (values.has(HIGHEST)) {
            flags.put("--lr", values.number(HIGHEST));
        } else if (name.equals(DECAY_LR) && !values.isOpen(HIGHEST)) {
            flags.put("--lr", USUAL_RATE);
        }
        if (values.has(TOTAL_STEPS)) {
            flags.put("--steps", values.count(TOTAL_STEPS, 0));
        }
    }

    /** The state may be on a drive; what else is offloaded goes to the host with it. */
    private void tiers() {
        String state = device(STATE, List.of("none", "cpu", "nvme"));
        String parameters = device(PARAMETERS, List.of("none", "cpu"));
        if (state.equals("nvme")) {
            flags.put("--offload", "nvme");
        } else if (!state.equals("none") || !parameters.equals("none")) {
            flags.put("--offload", "host");
        }
    }

    private String device(String key, List<String> possible) {
        JsonNode value = values.get(key);
        if (value == null) {
            return "none";
        }
        if (!possible.contains(value.asText())) {
            throw values.refused(key, value, "expected " + String.join(" or ", possible));
        }
        return value.asText();
    }

    private static @Nullable Object rule(JsonNode value) {
        String name = value.asText("").toLowerCase(Locale.ROOT);
        // Other rules of DeepSpeed have other defaults or details than those of the same name here.
        for (RecipeOptions.Rule r : RULES) {
            if (r.name().equals(name)) {
                return r;
            }
        }
        return null;
    }

    /**
     * The batch of a step is that of all ranks: micro-batch x accumulation x data-parallel ranks,
     * of which DeepSpeed takes any that determine the others.
     */
    private void batch() {
        if (!values.has(MICRO)) {
            return;
        }
        Integer accumulate = given("--accumulate", flags.get("--accumulate"));
        long each = (long) values.count(MICRO, 1) * (accumulate == null ? 1 : accumulate);
        Object total = flags.get("--batch");
        if (total instanceof Integer all) {
            if (all % each != 0) {
                throw values.refused(
                        TOTAL,
                        IntNode.valueOf(all),
                        format(
                                "expected a multiple of %s, which is %s x %s",
                                each, MICRO, ACCUMULATE));
            }
            flags.put("--dp", (int) (all / each));
        } else {
            Integer dp = given("--dp", null);
            if (dp == null) {
                throw new IllegalArgumentException(
                        format(
                                "%s '%s' has %s but not %s, so the ranks have to be known: give"
                                        + " --dp",
                                NAME, values.file(), MICRO, TOTAL));
            }
            flags.put("--batch", Math.toIntExact(each * dp));
        }
    }

    private boolean given(String option) {
        return line.getParseResult().hasMatchedOption(option);
    }

    /** The count that the command line gives, or else another. */
    private @Nullable Integer given(String option, @Nullable Object otherwise) {
        Object value =
                given(option) ? line.getCommandSpec().findOption(option).getValue() : otherwise;
        return (Integer) value;
    }

    /**
     * Sets the options that the command line leaves open.
     *
     * @param out for a line on the keys applied, and others on those without effect
     */
    void apply(PrintWriter out) {
        batch();
        List<String> taken = new ArrayList<>();
        flags.forEach((name, value) -> {
            if (!given(name)) {
                OptionSpec option = line.getCommandSpec().findOption(name);
                option.setValue(value);
                taken.add(value.equals(true) ? name : name + " " + value);
            }
        });
        String all = taken.isEmpty() ? "sets no flag" : String.join(" ", taken);
        out.println("# " + NAME + " " + values.file() + ": " + all);
        if (!unknown.isEmpty()) {
            out.println("# WARNING: unknown, so without effect: " + String.join(", ", unknown));
        }
        if (!replaced.isEmpty()) {
            out.println(
                    "# WARNING: of another optimizer than --optimizer, so without effect: "
                            + String.join(", ", replaced));
        }
        boolean clips = given("--clip");
        boolean scaled = isScaled();
        for (Map.Entry<String, String> e : DeepSpeedKeys.OTHER_DEFAULTS) {
            if (values.isMissing(e.getKey()) && (e.getKey().equals(CLIP) ? !clips : scaled)) {
                out.println("# WARNING: " + e.getKey() + " is not given: " + e.getValue());
            }
        }
    }
}
