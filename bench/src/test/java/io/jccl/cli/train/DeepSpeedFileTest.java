package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.Main;
import io.jccl.cli.shell.Parsed;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import picocli.CommandLine;

class DeepSpeedFileTest {
    /** As in DeepSpeed's own examples, with what the trainer need not know. */
    private static final String USUAL =
            """
            {
              "train_batch_size": 8,
              "train_micro_batch_size_per_gpu": 2,
              "gradient_accumulation_steps": 2,
              "steps_per_print": 10,
              "optimizer": {
                "type": "AdamW",
                "params": {"lr": 0.002, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.05}
              },
              "gradient_clipping": 0.25,
              "fp16": {"enabled": false, "loss_scale": 0},
              "bf16": {"enabled": true},
              "zero_optimization": {
                "stage": 2,
                "overlap_comm": true,
                "reduce_bucket_size": "auto",
                "offload_optimizer": {"device": "cpu", "pin_memory": true}
              }
            }
            """;

    @TempDir private Path folder;
    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int train(String config, String... more) throws IOException {
        Path file = Files.writeString(folder.resolve("config.json"), config);
        List<String> line = new ArrayList<>(List.of("--deepspeed", file.toString()));
        line.addAll(List.of("--layers", "1", "--hidden", "16", "--context", "8", "--steps", "2"));
        line.addAll(List.of(more));
        return Main.execute(
                "train",
                new TrainCommand(Map.of()),
                line.toArray(String[]::new),
                new PrintWriter(out),
                new PrintWriter(err));
    }

    private static JsonNode run(Path json) throws IOException {
        return new ObjectMapper().readTree(json.toFile()).get("jccl_train").get("runs").get(0);
    }

    @Test
    void theRunIsThatOfTheFlags() throws IOException {
        Path a = folder.resolve("a.json");
        Path b = folder.resolve("b.json");
        assertEquals(0, train(USUAL, "--json", a.toString()), err::toString);
        String said = out.toString().lines().findFirst().orElse("");
        assertTrue(said.startsWith("# --deepspeed "), said);
        for (String flag :
                List.of(
                        "--accumulate 2",
                        "--batch 8",
                        "--bf16",
                        "--clip 0.25",
                        "--dp 2",
                        "--lr 0.002",
                        "--offload host",
                        "--optimizer adamw",
                        "--weight-decay 0.05",
                        "--zero 2")) {
            assertTrue(said.contains(" " + flag), said);
        }
        String flags =
                "--dp 2 --batch 8 --accumulate 2 --bf16 --lr 0.002 --offload host"
                        + " --optimizer adamw --weight-decay 0.05 --clip 0.25 --zero 2 --json "
                        + b;
        assertEquals(0, train("{}", flags.split(" ")), err::toString);
        assertEquals(2, run(a).get("losses").size());
        assertEquals(run(b).get("losses"), run(a).get("losses"));
        assertEquals(2, run(a).get("dp").asInt());
    }

    /** Names, defaults and formulas of deepspeed/runtime/lr_schedules.py. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '\0',
            value = {
                "WarmupLR | \"warmup_max_lr\": 0.02, \"warmup_num_steps\": 3 | --lr 0.02 --lr-schedule constant --lr-warmup 3",
                "WarmupDecayLR | \"total_num_steps\": 9, \"warmup_min_lr\": 0 | --lr 0.001 --lr-schedule linear --lr-warmup 1000 --steps 9",
                "WarmupDecayLR | \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": 1 | --lr-schedule linear --lr-warmup 2",
                "WarmupCosineLR | \"warmup_num_steps\": 4, \"total_num_steps\": 8 | --lr-min 1.0E-4 --lr-schedule cosine --lr-warmup 4 --steps 8",
                "WarmupCosineLR | \"warmup_num_steps\": 4, \"cos_min_ratio\": 0.1 | --lr-min 0.1 --lr-schedule cosine --lr-warmup 4",
                "WarmupCosineLR | \"warmup_num_steps\": \"auto\", \"cos_min_ratio\": \"auto\" | --lr-schedule cosine"
            })
    void schedulesAreFlags(String type, String more, String flags) throws IOException {
        String config =
                "{\"gradient_clipping\": 0, \"scheduler\": {\"type\": \""
                        + type
                        + "\", \"params\": {\"warmup_type\": \"linear\", "
                        + more
                        + "}}}";
        CommandLine parsed = Parsed.byType(new CommandLine(new TrainCommand(Map.of())));
        assertEquals(": " + flags, applied(config, parsed));
        // What the flags say is what the command then has.
        String[] words = flags.split(" ", -1);
        for (int i = 0; i < words.length; i += 2) {
            Object value = parsed.getCommandSpec().findOption(words[i]).getValue();
            assertEquals(words[i + 1], String.valueOf(value));
        }
    }

    /** What is printed on a configuration, after the file's name. */
    private String applied(String config, CommandLine line, String... flags) throws IOException {
        Path file = Files.writeString(folder.resolve("config.json"), config);
        line.parseArgs(flags);
        StringWriter said = new StringWriter();
        DeepSpeedFile.read(file, line).apply(new PrintWriter(said, true));
        assertTrue(said.toString().startsWith("# --deepspeed " + file), said::toString);
        return said.toString().strip().substring(("# --deepspeed " + file).length());
    }

    /** Defaults of deepspeed/ops/adam and of torch.optim. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '\0',
            value = {
                "\"AdamW\" | --lr 0.001 --optimizer adamw --weight-decay 0.0",
                "\"AdamW\", \"params\": {\"lr\": \"auto\", \"weight_decay\": \"auto\"} | --optimizer adamw",
                "\"Adam\", \"params\": {\"bias_correction\": true, \"amsgrad\": false, \"adam_w_mode\": true} | --lr 0.001 --optimizer adam",
                "\"Adam\", \"params\": {\"torch_adam\": true, \"weight_decay\": 0} | --lr 0.001 --optimizer adam",
                "\"Adam\", \"params\": {\"torch_adam\": true, \"adam_w_mode\": false} | --lr 0.001 --optimizer adam",
                "\"Adam\", \"params\": {\"fused\": true, \"foreach\": false, \"capturable\": true, \"differentiable\": false} | --lr 0.001 --optimizer adam",
                "\"Adam\", \"params\": {} | --lr 0.001 --optimizer adam",
                "\"SGD\", \"params\": {\"momentum\": \"auto\"} | --lr 0.001 --optimizer sgd",
                "\"Lion\", \"params\": {\"betas\": \"auto\"} | --lr 0.001 --optimizer lion --weight-decay 0.0",
                "\"SGD\", \"params\": {\"momentum\": 0.9, \"nesterov\": false, \"dampening\": 0} | --lr 0.001 --optimizer sgd"
            })
    void anOptimizerHasTheDefaultsOfDeepSpeed(String optimizer, String flags) throws IOException {
        String config = "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": " + optimizer + "}}";
        CommandLine line = Parsed.byType(new CommandLine(new TrainCommand(Map.of())));
        assertEquals(": " + flags, applied(config, line));
    }

    /** Of the file's optimizer there is left what any has. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '\0',
            value = {
                "\"AdamW\" | lamb | sets no flag",
                "\"SGD\" | adam | sets no flag",
                "\"AdamW\" | adamw | --lr 0.001 --weight-decay 0.0",
                "\"Adam\", \"params\": {\"lr\": 0.1, \"weight_decay\": 0.2} | lamb | --lr 0.1 --weight-decay 0.2"
            })
    void anotherOptimizerHasItsOwnDefaults(String optimizer, String given, String flags)
            throws IOException {
        String config = "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": " + optimizer + "}}";
        CommandLine line = Parsed.byType(new CommandLine(new TrainCommand(Map.of())));
        assertEquals(": " + flags, applied(config, line, "--optimizer", given));
    }

    @Test
    void argumentsOfAReplacedOptimizerAreReported() throws IOException {
        String config =
                "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"Lion\", \"params\":"
                        + " {\"lr\": 0.1, \"eps\": 1e-6, \"betas\": [0.8, 0.9]}}}";
        CommandLine line = Parsed.byType(new CommandLine(new TrainCommand(Map.of())));
        assertEquals(
                ": --lr 0.1\n# WARNING: of another optimizer than --optimizer, so without effect:"
                        + " optimizer.params.betas, optimizer.params.eps",
                applied(config, line, "--optimizer", "sgd"));
    }

    /** A schedule without a rate has the optimizer's. */
    @Test
    void aScheduleHasTheRateOfTheOptimizer() throws IOException {
        String config =
                "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"Adam\"}, \"scheduler\":"
                        + " {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"linear\"%s}}}";
        String rest = " --lr-schedule constant --lr-warmup 1000 --optimizer adam";
        CommandLine line = Parsed.byType(new CommandLine(new TrainCommand(Map.of())));
        assertEquals(": --lr 0.001" + rest, applied(config.formatted(""), line));
        String max = ", \"warmup_max_lr\": 0.02";
        assertEquals(": --lr 0.02" + rest, applied(config.formatted(max), line));
    }

    @Test
    void otherDefaultsAreReported() throws IOException {
        CommandLine line = Parsed.byType(new CommandLine(new TrainCommand(Map.of())));
        assertEquals(
                ": sets no flag\n# WARNING: gradient_clipping is not given: 0 here, 1.0 in DeepSpeed"
                        + " from 0.19.3 on",
                applied("{\"activation_checkpointing\": {\"profile\": true}}", line));
        String scaled = "{\"fp16\": {\"enabled\": true, \"hysteresis\": 1}}";
        assertEquals(
                ": --fp16\n# WARNING: fp16.loss_scale_window is not given: 2000 here, 1000 in"
                        + " DeepSpeed",
                applied(scaled, line, "--clip", "1"));
        String open =
                "{\"fp16\": {\"enabled\": \"auto\", \"hysteresis\": 1,"
                        + " \"initial_scale_power\": 4}}";
        assertEquals(
                ": --loss-scale 16.0\n# WARNING: fp16.loss_scale_window is not given: 2000 here,"
                        + " 1000 in DeepSpeed",
                applied(open, line, "--clip", "1", "--fp16"));
        assertEquals(": sets no flag", applied(open, line, "--clip", "1"));
    }

    @Test
    void lionHasItsOwnBetas() throws IOException {
        Path json = folder.resolve("a.json");
        String config =
                "{\"optimizer\": {\"type\": \"Lion\", \"params\":"
                        + " {\"betas\": [0.9, 0.99], \"weight_decay\": 0.5}}}";
        assertEquals(0, train(config, "--json", json.toString()), err::toString);
        assertTrue(out.toString().contains("--optimizer lion --weight-decay 0.5"), out::toString);
        assertEquals(2, run(json).get("losses").size());
    }

    @Test
    void theCommandLineWins() throws IOException {
        Path json = folder.resolve("a.json");
        assertEquals(0, train(USUAL, "--zero", "1", "--json", json.toString()), err::toString);
        assertEquals(1, run(json).get("zero").asInt());
        assertTrue(out.toString().lines().noneMatch(l -> l.contains("--zero 2")), out::toString);
    }

    @Test
    void float16HasALossScale() throws IOException {
        String config =
                "{\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 10},"
                        + " \"train_batch_size\": 4}";
        assertEquals(0, train(config), err::toString);
        assertTrue(out.toString().contains(" --fp16 --loss-scale 1024.0\n"), out::toString);
        assertTrue(out.toString().contains("steps left out"), out::toString);
    }

    @Test
    void whatNobodyKnowsIsNamed() throws IOException {
        String config =
                "{\"zero_optimisation\": {\"stage\": 1}, \"train_batch_size\": 4, \"x\": 1}";
        assertEquals(0, train(config), err::toString);
        assertTrue(
                out.toString().contains("unknown, so without effect: x, zero_optimisation.stage"),
                out::toString);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '\0',
            value = {
                "{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}} | fp16.loss_scale is 128, but jccl train has",
                "{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}} | --bf16 and --fp16 are both given",
                "{\"gradient_clipping\": -1} | gradient_clipping is -1, expected a number, 0 or above",
                "{\"optimizer\": {\"type\": \"OneBitAdam\"}} | optimizer.type is \"OneBitAdam\", expected Adam,",
                "{\"optimizer\": {\"params\": {\"betas\": [0.8, 0.9]}}} | betas is [0.8,0.9], but jccl train has",
                "{\"optimizer\": {\"params\": {\"weight_decay\": 0.1}}} | weight_decay is 0.1, expected 0 unless optimizer.type is AdamW or Lion",
                "{\"optimizer\": {\"type\": \"Lion\"}} | betas is [0.9,0.999], but jccl train has [0.9,0.99] for Lion; give",
                "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1}}} | momentum is 0, but jccl train has 0.9 for SGD; give",
                "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 0.0}}} | momentum is 0.0, but jccl train has 0.9",
                "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"nesterov\": true}}} | nesterov is true, but jccl train has false",
                "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"momentum\": 0.9}}} | momentum is 0.9, which is for SGD",
                "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"amsgrad\": true}}} | amsgrad is true, but jccl train has false",
                "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"bias_correction\": false}}} | bias_correction is false, but",
                "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}} | torch_adam is true, which has another weight_decay",
                "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"max_grad_norm\": 1}}} | params.max_grad_norm is 1, which jccl train lacks",
                "{\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"freeze_step\": 9}}} | optimizer.type is \"OneBitAdam\"",
                "{\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}} | bf16_master_weights_and_grads is true, but",
                "{\"scheduler\": {\"type\": \"OneCycle\"}} | scheduler.type is \"OneCycle\", expected WarmupLR, WarmupDecayLR or",
                "{\"scheduler\": {\"type\": \"WarmupLR\"}} | warmup_type is \"log\", expected \"linear\"",
                "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"linear\", \"warmup_min_lr\": 1e-4}}} | warmup_min_lr is 1.0E-4, but jccl train has 0",
                "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"linear\", \"warmup_num_steps\": 0.5}}} | warmup_num_steps is 0.5, expected a whole number",
                "{\"zero_optimization\": {\"stage\": \"two\"}} | zero_optimization.stage is \"two\", expected a whole number",
                "{\"zero_optimization\": {\"stage\": 4}} | --zero is 4, expected 0 to 3",
                "{\"zero_optimization\": {\"offload_param\": {\"device\": \"nvme\"}}} | offload_param.device is \"nvme\", expected none or cpu",
                "{\"sparse_attention\": {\"mode\": \"fixed\"}} | sparse_attention is {\"mode\":\"fixed\"}, which jccl train lacks",
                "{\"train_micro_batch_size_per_gpu\": 3, \"train_batch_size\": 16} | train_batch_size is 16, expected a multiple of 3",
                "{\"train_micro_batch_size_per_gpu\": 3} | so the ranks have to be known: give --dp",
                "{\"train_micro_batch_size_per_gpu\": 0} | train_micro_batch_size_per_gpu is 0, expected a whole number above 0",
                "[1] | is not a JSON object",
                "{\"train_batch_size\": | is not JSON",
            })
    void whatTheTrainerHasNotIsRefused(String config, String message) throws IOException {
        assertEquals(2, train(config), out::toString);
        assertTrue(err.toString().contains(message), err::toString);
        assertEquals(1, err.toString().lines().count(), err::toString);
    }

    @Test
    void theRanksGiveTheBatch() throws IOException {
        Path json = folder.resolve("a.json");
        String config =
                "{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 2}";
        assertEquals(0, train(config, "--dp", "2", "--json", json.toString()), err::toString);
        assertTrue(out.toString().contains("--batch 12"), out::toString);
        assertEquals(2, run(json).get("dp").asInt());
    }

    /** Of the micro-batches too, which the file has not counted. */
    @Test
    void theCommandLinesAccumulationCountsForTheBatch() throws IOException {
        String config =
                "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 3}";
        assertEquals(0, train(config, "--dp", "2", "--accumulate", "2"), err::toString);
        assertTrue(out.toString().contains("--batch 16"), out::toString);
    }

    @Test
    void aMissingFileIsNamed() {
        String none = folder.resolve("none.json").toString();
        int status =
                Main.execute(
                        "train",
                        new TrainCommand(Map.of()),
                        new String[] {"--deepspeed", none},
                        new PrintWriter(out),
                        new PrintWriter(err));
        assertEquals(2, status);
        assertTrue(err.toString().contains("'" + none + "' does not exist"), err::toString);
    }
}
