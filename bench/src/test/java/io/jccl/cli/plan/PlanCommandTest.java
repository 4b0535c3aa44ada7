package io.jccl.cli.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.Main;
import io.jccl.cli.shell.Amounts;
import io.jccl.offload.memplan.Formula;
import io.jccl.offload.memplan.Presets;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.RandomAccessFile;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import picocli.CommandLine.TypeConversionException;

@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PlanCommandTest {
    /** The machine of the project's notes. */
    private static final String EIGHT =
            " -g 8 --device-memory 16G --host-memory 330GB --context 1024 --precision fp16"
                    + " --system deepspeed";

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int execute(String line) {
        return Main.execute(
                ("plan " + line).trim().split(" +"), new PrintWriter(out), new PrintWriter(err));
    }

    private JsonNode json(String line) throws IOException {
        out.getBuffer().setLength(0);
        assertEquals(0, execute(line + " --json"), err::toString);
        return new ObjectMapper().readTree(out.toString());
    }

    private static double largest(JsonNode report) {
        return report.at("/largest/with_these_techniques/parameters").asDouble() / 1e9;
    }

    @Test
    void gpt3() throws IOException {
        JsonNode report = json("--model gpt3-175b --recompute full --accumulate 192");
        assertEquals(1, report.get("schema").asInt());
        assertEquals(175e9, report.at("/model/parameters").asDouble(), 0.005 * 175e9);
        assertEquals(1536, report.at("/compute/batch").asInt());
        double flops = report.at("/compute/flops").asDouble();
        assertEquals(4.5e18, flops, 0.01 * 4.5e18);
        assertEquals(430e21, 95_000 * flops, 0.01 * 430e21);
        JsonNode device = report.at("/tiers/device");
        double state =
                device.get("parameters").asDouble()
                        + device.get("gradients").asDouble()
                        + device.get("optimizer").asDouble();
        assertEquals(2.8e12, state, 0.01 * 2.8e12);
        assertFalse(report.get("fits").asBoolean());
        assertEquals(
                device.get("total").asLong() - device.get("capacity").asLong(),
                device.get("missing").asLong());
    }

    @Test
    void theMachineOfTheNotes() throws IOException {
        assertEquals(0.75, largest(json("--params 1B" + EIGHT)), 0.05);
        assertEquals(0.9, largest(json("--params 1B --recompute full" + EIGHT)), 0.1);
        JsonNode all = json("--params 15B --zero 3 --offload host --recompute full" + EIGHT);
        assertTrue(all.get("fits").asBoolean());
        assertEquals(20, all.get("state_bytes_per_parameter").asDouble(), 1e-6);
        assertEquals(15, largest(all), 0.5);
        assertEquals(
                5,
                largest(
                        json(
                                "--params 5B --micro-batch 4 --zero 2 --offload-optimizer host"
                                        + " --offload-gradients host --recompute full"
                                        + EIGHT)),
                0.5);
    }

    @Test
    void theSearchAsJson() throws IOException {
        JsonNode report = json("--search" + EIGHT);
        JsonNode list = report.get("largest");
        assertTrue(list.size() > 5);
        double last = 0;
        for (JsonNode one : list) {
            assertTrue(one.get("fits").asBoolean());
            double count = one.at("/model/parameters").asDouble();
            assertTrue(count > last);
            last = count;
        }
        assertEquals(19e9, last, 0.5e9);
        assertEquals("plain data parallelism", list.get(0).at("/techniques/text").asText());
        int combinations = report.get("combinations").asInt();
        assertEquals(combinations, json("--search --all" + EIGHT).get("largest").size());
        assertTrue(
                json("--search --all --model-parallel" + EIGHT).get("largest").size()
                        > combinations);
    }

    @Test
    void theSearchAsATable() {
        assertEquals(0, execute("--search --explain" + EIGHT), err::toString);
        String text = out.toString();
        assertTrue(text.matches("(?s).*711M +16 +1792 +96% +- +- .*plain data.*"), text);
        assertTrue(text.contains("arXiv 2104.04473"), text);
    }

    @Test
    void theTable() {
        assertEquals(
                0,
                execute("--params 15B --zero 3 --offload host --recompute full" + EIGHT),
                err::toString);
        String text = out.toString();
        assertTrue(text.contains("15.0B parameters"), text);
        assertTrue(text.matches("(?s).*parameters +- +30.0 GB +-\n.*"), text);
        assertTrue(text.matches("(?s).*gradients +- +30.0 GB +-\n.*"), text);
        assertTrue(text.matches("(?s).*optimizer +- +240 GB +-\n.*"), text);
        assertTrue(text.matches("(?s).*host +\\[#{27}-{2,3}\\.?] 9\\d%\n.*"), text);
        assertTrue(text.contains("\nFits.\n"), text);
        assertFalse(text.contains("Formulas"), text);
    }

    @Test
    void whatToSwitchOnNext() throws IOException {
        JsonNode report = json("--params 13B --recompute full" + EIGHT);
        assertFalse(report.get("fits").asBoolean());
        assertTrue(report.get("next").size() > 0);
        for (JsonNode next : report.get("next")) {
            assertEquals("full", next.get("recomputation").asText());
        }
        String first = report.at("/next/0/text").asText();
        assertEquals(0, execute("--params 13B --recompute full" + EIGHT));
        assertTrue(out.toString().contains("Does not fit: "), out::toString);
        assertTrue(out.toString().contains("  " + first + "\n"), out::toString);
        // What it says works.
        assertEquals(
                0,
                execute(
                        "--params 13B --require --recompute full --zero 3 --offload-optimizer host"
                                + EIGHT),
                out::toString);
    }

    /** The split and the pieces that are given stay, and more techniques are found beside them. */
    @ParameterizedTest
    @CsvSource({
        "--model llama3-70b --tp 8, tensor, 8",
        "--model llama3-8b --pp 8 --device-memory 16G, pipeline, 8",
        "--model llama3-8b --pieces 64 --zero 3 --context 8192 --device-memory 16G, pieces, 64",
    })
    void whatToSwitchOnBesideWhatIsGiven(String line, String field, int value) throws IOException {
        JsonNode report = json(line);
        assertFalse(report.get("fits").asBoolean());
        assertEquals(5, report.get("next").size());
        for (JsonNode next : report.get("next")) {
            assertEquals(value, next.get(field).asInt());
        }
        assertTrue(
                report.at("/largest/with_any/model/parameters").asLong()
                        > report.at("/model/parameters").asLong());
    }

    /** There is a largest model on a machine where none fits without the split that is given. */
    @Test
    void theLargestModelWithWhatIsGiven() throws IOException {
        JsonNode largest =
                json("--model llama3-8b --context 131072 --tp 8 --recompute full --host-memory 0")
                        .get("largest");
        assertEquals(8, largest.at("/with_any/techniques/tensor").asInt());
        assertTrue(
                largest.at("/with_any/model/parameters").asLong()
                        >= largest.at("/with_these_techniques/parameters").asLong());
    }

    @Test
    void aModelTooThinToShrinkIsPlanned() {
        assertEquals(0, execute("--layers 2 --hidden 10000 --ffn 0.000001"), err::toString);
    }

    @Test
    void figuresBeyondTheLargestSaySo() {
        assertEquals(
                0, execute("--model megatron-1t --machines 128 --zero 3 --accumulate 100000000"));
        assertTrue(out.toString().matches("(?s).*allGather +> 9.22 EB .*"), out::toString);
        assertEquals(0, execute("--model megatron-1t --micro-batch 1000000 --context 1000000"));
        assertTrue(out.toString().matches("(?s).*activations +> 1.32 EB .*"), out::toString);
        assertTrue(out.toString().contains("Does not fit: > 1.68 EB on each GPU"), out::toString);
    }

    @Test
    void moreMachinesIfNothingHelps() throws IOException {
        JsonNode report = json("--model gpt3-175b");
        assertEquals(0, report.get("next").size());
        int machines = report.at("/on_more_machines/machines").asInt();
        assertTrue(machines > 1);
        assertEquals(0, execute("--model gpt3-175b --auto --require --machines " + machines));
        assertEquals(4, execute("--model gpt3-175b --auto --require --machines 1"));
        assertTrue(out.toString().contains("It fits on " + machines + " such machines"));
    }

    @Test
    void autoTakesTheCheapest() throws IOException {
        JsonNode report = json("--params 500M --auto" + EIGHT);
        assertEquals("plain data parallelism", report.at("/techniques/text").asText());
        JsonNode larger = json("--params 15B --auto" + EIGHT);
        assertTrue(larger.get("fits").asBoolean());
    }

    @Test
    void requireIsStatusFour() {
        assertEquals(4, execute("--params 15B --require" + EIGHT));
        assertEquals(0, execute("--params 500M --require" + EIGHT));
        assertEquals(4, execute("--search --require -g 1 --device-memory 1G"));
        assertEquals("", err.toString());
    }

    @Test
    void explainNamesEveryFormulaAndItsSource() {
        assertEquals(0, execute("--model gpt3-175b --explain"));
        for (Formula f : Formula.values()) {
            assertTrue(out.toString().contains("source: " + f.source()), f::name);
        }
        assertTrue(out.toString().contains("here: 174615846912 parameters"), out::toString);
    }

    @Tag("exhaustive")
    @Test
    void everyPresetIsPlanned() {
        for (String name : Presets.names()) {
            assertEquals(0, execute("--model " + name), name);
        }
    }

    @Test
    void shapesAndTheirDefaults() throws IOException {
        JsonNode shape =
                json("--layers 24 --hidden 2048 --vocab 50257 --context 1024 --ffn 3 --untied");
        assertEquals(16, shape.at("/model/heads").asInt());
        // Heads of 160, since 128 does not divide 1600.
        assertEquals(10, json("--layers 2 --hidden 1600").at("/model/heads").asInt());
        double h = 2048;
        assertEquals(
                24 * (10 * h * h + 12 * h) + (2 * 50_257 + 1024) * h + 2 * h,
                shape.at("/model/parameters").asDouble());
        assertFalse(shape.at("/model/tied").asBoolean());
        assertEquals(1024, json("--model llama-7b --context 1024").at("/model/sequence").asInt());
    }

    /** Beside a shape, the number of parameters is that of the shape. */
    @Test
    void aShapeOfAnExactSize() throws IOException {
        JsonNode shape =
                json(
                        "--layers 80 --hidden 8192 --heads 64 --kv-heads 8 --ffn 3.5 --gated --rotary"
                                + " --untied --vocab 32000 --context 4096 --params 68.976648192B");
        assertEquals(80, shape.at("/model/layers").asInt());
        assertEquals(8, shape.at("/model/kv_heads").asInt());
        assertEquals(68_976_648_192L, shape.at("/model/parameters").asLong());
        assertEquals(
                68_976_648_192L,
                json("--layers 80 --hidden 8192 --heads 64 --kv-heads 8 --ffn 3.5 --gated"
                                + " --rotary --untied --vocab 32000")
                        .at("/model/parameters")
                        .asLong());
    }

    /** Files with the fields of the checkpoints that the presets name. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "gpt2-124m | model_type:gpt2 n_layer:12 n_embd:768 n_head:12 vocab_size:50257"
                        + " n_positions:1024 n_inner:null",
                "gpt-neox-20b | model_type:gpt_neox num_hidden_layers:44 hidden_size:6144"
                        + " num_attention_heads:64 vocab_size:50432 intermediate_size:24576"
                        + " tie_word_embeddings:false",
                "bloom-176b | model_type:bloom n_layer:70 n_embed:14336 n_head:112"
                        + " vocab_size:250880",
                "llama3-8b | model_type:llama num_hidden_layers:32 hidden_size:4096"
                        + " num_attention_heads:32 num_key_value_heads:8 intermediate_size:14336"
                        + " vocab_size:128256 max_position_embeddings:8192",
                "mistral-7b | model_type:mistral num_hidden_layers:32 hidden_size:4096"
                        + " num_attention_heads:32 num_key_value_heads:8 intermediate_size:14336"
                        + " vocab_size:32000 max_position_embeddings:32768",
                "mixtral-8x7b | model_type:mixtral num_hidden_layers:32 hidden_size:4096"
                        + " num_attention_heads:32 num_key_value_heads:8 intermediate_size:14336"
                        + " vocab_size:32000 max_position_embeddings:32768 num_local_experts:8"
                        + " num_experts_per_tok:2",
                "qwen2.5-0.5b | model_type:qwen2 num_hidden_layers:24 hidden_size:896"
                        + " num_attention_heads:14 num_key_value_heads:2 intermediate_size:4864"
                        + " vocab_size:151936 max_position_embeddings:32768"
                        + " tie_word_embeddings:true",
                "qwen3-8b | model_type:qwen3 num_hidden_layers:36 hidden_size:4096"
                        + " num_attention_heads:32 num_key_value_heads:8 head_dim:128"
                        + " intermediate_size:12288 vocab_size:151936"
                        + " max_position_embeddings:40960",
                "qwen3-30b-a3b | model_type:qwen3_moe num_hidden_layers:48 hidden_size:2048"
                        + " num_attention_heads:32 num_key_value_heads:4 head_dim:128"
                        + " intermediate_size:6144 moe_intermediate_size:768 num_experts:128"
                        + " num_experts_per_tok:8 decoder_sparse_step:1 vocab_size:151936"
                        + " max_position_embeddings:40960",
                "deepseek-v2-lite | model_type:deepseek_v2 num_hidden_layers:27 hidden_size:2048"
                        + " num_attention_heads:16 q_lora_rank:null kv_lora_rank:512"
                        + " qk_nope_head_dim:128 qk_rope_head_dim:64 v_head_dim:128"
                        + " intermediate_size:10944 moe_intermediate_size:1408"
                        + " n_routed_experts:64 n_shared_experts:2 num_experts_per_tok:6"
                        + " first_k_dense_replace:1 vocab_size:102400"
                        + " max_position_embeddings:163840",
                "deepseek-v3 | model_type:deepseek_v3 num_hidden_layers:61 hidden_size:7168"
                        + " num_attention_heads:128 q_lora_rank:1536 kv_lora_rank:512"
                        + " qk_nope_head_dim:128 qk_rope_head_dim:64 v_head_dim:128"
                        + " intermediate_size:18432 moe_intermediate_size:2048"
                        + " n_routed_experts:256 n_shared_experts:1 num_experts_per_tok:8"
                        + " first_k_dense_replace:3 vocab_size:129280"
                        + " max_position_embeddings:163840",
                "gemma2-2b | model_type:gemma2 num_hidden_layers:26 hidden_size:2304"
                        + " num_attention_heads:8 num_key_value_heads:4 head_dim:256"
                        + " intermediate_size:9216 vocab_size:256000"
                        + " max_position_embeddings:8192",
                "gemma3-1b | model_type:gemma3_text num_hidden_layers:26 hidden_size:1152"
                        + " num_attention_heads:4 num_key_value_heads:1 head_dim:256"
                        + " intermediate_size:6912 vocab_size:262144"
                        + " max_position_embeddings:32768",
            })
    void aConfigFileIsThePreset(String preset, String fields, @TempDir Path folder)
            throws IOException {
        String text = fields.strip().replaceAll("(\\w+):(\\w+)", "\"$1\":$2").replace(" ", ",");
        text = text.replaceFirst(":([a-z]\\w+)", ":\"$1\"");
        Path file = Files.writeString(folder.resolve("config.json"), "{" + text + "}");
        long count = Presets.of(preset.strip()).parameters();
        assertEquals(count, json("--config " + file).at("/model/parameters").asLong());
        // As Windows PowerShell redirects.
        String part = "{\"model_type\":\"other\",\"text_config\":{" + text + "}}";
        Files.writeString(file, part, StandardCharsets.UTF_16);
        assertEquals(count, json("--config " + folder).at("/model/parameters").asLong());
    }

    /** A file given by mistake, such as the weights, is not read whole. */
    @Test
    void aHugeConfigFileIsRefused(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("config.json");
        try (RandomAccessFile sparse = new RandomAccessFile(file.toFile(), "rw")) {
            sparse.setLength(3L << 30);
        }
        assertEquals(2, execute("--config " + file));
        assertTrue(err.toString().contains("has more than 64 MiB"), err::toString);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "{ | is not JSON",
                "{} | no model_type",
                "{'model_type':'mamba'} | mamba",
                "{'model_type':'gpt2'} | no field 'n_embd'",
                "{'model_type':'gpt2','n_embd':7.5} | n_embd 7.5, expected a whole number",
                "{'model_type':'qwen3_moe','decoder_sparse_step':2} | decoder_sparse_step 2",
                "{'model_type':'qwen3_moe','mlp_only_layers':[3]} | mlp_only_layers [3]",
            })
    void aBadConfigFileIsRefusedByName(String text, String expected, @TempDir Path folder)
            throws IOException {
        Path file = folder.resolve("config.json");
        Files.writeString(file, text.replace('\'', '"'));
        assertEquals(2, execute("--config " + file));
        assertTrue(err.toString().contains(file.toString()), err::toString);
        assertTrue(err.toString().contains(expected), err::toString);
        assertEquals(1, err.toString().lines().count(), err::toString);
    }

    @Test
    void attentionAndSystemAreChosen() throws IOException {
        String line = "--model llama3-8b --context 32768 --zero 3 --recompute full";
        assertTrue(json(line).get("fits").asBoolean());
        assertEquals("flash", json(line).get("attention").asText());
        assertFalse(json(line + " --attention math").get("fits").asBoolean());
        JsonNode wide = json(line + " --fp32-gradients");
        assertEquals(18, wide.get("state_bytes_per_parameter").asDouble(), 1e-6);
        assertEquals("jccl", wide.get("system").asText());
        JsonNode experts = json("--model deepseek-v3 --machines 32 --ep 8 --pp 16 --chunks 2");
        assertEquals(256, experts.at("/model/experts").asInt());
        assertEquals(8, experts.at("/techniques/expert").asInt());
        assertEquals(2, experts.at("/techniques/chunks").asInt());
    }

    @ParameterizedTest
    @CsvSource({
        "'', '--model'",
        "--model gpt5, \"'gpt5' is unknown\"",
        "--model gpt5, gpt3-175b",
        "--model gpt3-175b --params 1B, both specify the model",
        "--config x.json --params 1B, both specify the model",
        "--model gpt3-175b --layers 3 --hidden 128, both specify the model",
        "--config nowhere/x.json, nowhere/x.json does not exist",
        "--model llama3-8b --gated, --gated",
        "--model llama3-8b --rotary, --rotary",
        "--layers 2 --hidden 128 --heads 8 --kv-heads 3, 3 key and value heads",
        "--model llama3-8b --ep 2, without experts",
        "--model mixtral-8x7b --ep 3, 8 experts",
        "--params 1B --cp 3, context parallel 3",
        "--params 1B --chunks 2, without a pipeline",
        "--params 1B --attention fast, flash or flash3",
        "--params 1B --system colossal, deepspeed",
        "--model gpt3-175b --ffn 3, --ffn",
        "--model gpt3-175b --untied, --untied",
        "--layers 24, --hidden",
        "--hidden 24, --layers",
        "--heads 24, --layers",
        "--layers 24 --hidden 128 --heads 129, 129",
        "--layers 2 --hidden 7 --heads 2, 'is 2, expected a divisor of --hidden 7'",
        "--layers 0 --hidden 128, layers is 0",
        "--layers x --hidden 128, x",
        "--params 12, embeddings",
        "--params 12X, \"'12X' is not a number of parameters\"",
        "--params -1, '-1'",
        "--params 1e99, 1e99",
        "--params 1B --zero 4, stage is 4",
        "--params 1B --gpus 0, is 0",
        "--params 1B --machines 0, is 0",
        "--params 1B --device-memory 0, is 0",
        "--params 1B --device-memory 16X, \"'16X' is not a number of bytes\"",
        "--params 1B --device-memory 99999999P, 99999999P",
        "--params 1B --micro-batch 0, micro-batch is 0",
        "--params 1B --accumulate 0, accumulation is 0",
        "--params 1B --precision int4, bf16-states",
        "--params 1B --optimizer lions, adamw",
        "--params 1B --recompute some, selective",
        "--params 1B --offload disk, host or nvme",
        "--params 1B --offload nvme, --nvme-memory",
        "--params 1B --offload host --host-memory 0, --host-memory",
        "--params 1B --offload-gradients host, offload the optimizer too",
        "--params 1B --pieces 4, stage 3",
        "--params 1B --tp 3, divide",
        "--model gpt2-1.5b -g 4 --tp 4, 25 heads",
        "--params 1B --cp 8 --context 1, tokens",
        "--params 1B --lora-matrices qv, add --lora",
        "--params 1B --whole-sequences, add --tp",
        "--model llama3-8b --machine H100x8 --search --explain, --explain",
        "--params 1B --micro-batch 1000000 --accumulate 1000000 --nodes 1000000, samples of a step",
        "--params 1B --auto --zero 2, --zero",
        "--search --offload host, --offload",
        "--search --recompute full, --recompute",
        "--params 1B --auto --search, --search",
        "--params 1B --all, --search",
        "--params 1B --fragmentation 1, waste is 1.0",
        "--params 1B --nvme-copies 3, is 3",
        "--params 1B --prefetch -1, is -1",
        "--params 1B --frobnicate, --frobnicate",
    })
    void mistakesAreStatusTwo(String line, String text) {
        assertEquals(2, execute(line), out::toString);
        String expected = text.startsWith("\"") ? text.substring(1, text.length() - 1) : text;
        assertTrue(err.toString().startsWith("jccl plan: "), err::toString);
        assertTrue(err.toString().contains(expected), err::toString);
        assertEquals(1, err.toString().lines().count(), err::toString);
        assertEquals("", out.toString());
    }

    @ParameterizedTest
    @CsvSource({
        "16G, 17179869184",
        "16GiB, 17179869184",
        "16gb, 16000000000",
        "1.5T, 1649267441664",
        "1.5TB, 1500000000000",
        "1343M, 1408237568",
        "8, 8",
        "8B, 8",
        "0, 0",
        "64K, 65536",
        "64k, 65536",
        "1T, 1099511627776",
        "8388607T, 9223370937343148032",
    })
    void bytes(String text, long bytes) {
        assertEquals(bytes, Amounts.bytes(text));
    }

    @ParameterizedTest
    @CsvSource({
        "1.3B, 1300000000",
        "350m, 350000000",
        "1T, 1000000000000",
        "175e9, 175000000000",
        "12, 12",
    })
    void parameters(String text, long count) {
        assertEquals(count, Amounts.count(text));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "K", "-1", "1.5", "12Q", "8388608T", "9223372036854775808"})
    void notBytes(String text) {
        Exception e = assertThrows(TypeConversionException.class, () -> Amounts.bytes(text));
        assertTrue(e.toString().contains("'" + text + "' is not a number of bytes"), e::toString);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "B",
                "1,3B",
                "-1",
                "1 B x",
                "16GG",
                "1e",
                "NaN",
                "9999999E",
                "1e9999999"
            })
    void neitherBytesNorParameters(String text) {
        assertNotNull(
                assertThrows(TypeConversionException.class, () -> Amounts.bytes(text + "?"))
                        .getMessage());
        assertNotNull(
                assertThrows(TypeConversionException.class, () -> Amounts.count(text))
                        .getMessage());
    }

    @ParameterizedTest
    @CsvSource({
        "0, 0 B",
        "999, 999 B",
        "999.6, 1.00 kB",
        "2793853157376, 2.79 TB",
        "99960, 100 kB",
        "15197000000, 15.2 GB",
    })
    void bytesForPeople(double bytes, String text) {
        assertEquals(text, Amounts.text(bytes));
    }
}
