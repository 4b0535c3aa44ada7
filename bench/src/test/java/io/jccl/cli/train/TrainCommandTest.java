package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.LocalJob;
import io.jccl.cli.Main;
import io.jccl.cli.launch.RunCommand;
import io.jccl.cli.launch.RunCommandTest;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.internal.FolderLock;
import io.jccl.offload.weights.Safetensors;
import io.jccl.train.Routing;
import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.w3c.dom.Document;
import org.w3c.dom.NodeList;

@Timeout(value = 240, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TrainCommandTest {
    private static final Map<String, String> SMALL =
            Map.of(
                    "--layers",
                    "2",
                    "--hidden",
                    "32",
                    "--heads",
                    "4",
                    "--context",
                    "16",
                    "--batch",
                    "8",
                    "--steps",
                    "10");

    @TempDir private Path folder;

    private record Result(int status, String out, String err) {}

    private static Result run(String line) {
        return run(Map.of(), small(line.strip().split(" +")));
    }

    /** With what the line does not say. */
    private static String[] small(String... line) {
        List<String> all = new ArrayList<>(List.of(line));
        all.removeIf(String::isEmpty);
        SMALL.forEach((name, value) -> {
            if (!all.contains(name)) {
                all.addAll(List.of(name, value));
            }
        });
        return all.toArray(String[]::new);
    }

    private static Result run(Map<String, String> environment, String... arguments) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int status =
                Main.execute(
                        "train",
                        new TrainCommand(environment),
                        arguments,
                        new PrintWriter(out),
                        new PrintWriter(err));
        return new Result(status, out.toString(), err.toString());
    }

    private static JsonNode json(Path file) throws IOException {
        return new ObjectMapper().readTree(file.toFile()).get("jccl_train");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "--heads 3 | --heads is 3, expected a divisor of --hidden 32",
                "--tp 3 | --tp is 3, expected a divisor of --heads 4",
                "--bf16 --fp16 | --bf16 and --fp16 are both given",
                "--fp16 --loss-scale 0 | --loss-scale is 0.0, expected 1 to",
                "--model bert | --model is 'bert', expected one of jccl, gpt2, llama",
                "--model gpt2 --pp 2 | --pp is 2, but the model's logits use its token embedding",
                "--model gpt2 --experts 4 | --experts is 4, but --model gpt2 has none",
                "--model gpt2 --key-heads 2 | --key-heads is 2, but --model is gpt2",
                "--model llama --key-heads 3 | --key-heads is 3, expected a divisor of --heads 4",
                "--model llama --key-heads 2 --tp 4 | --key-heads is 2, expected a divisor of",
                "--model llama --hidden 36 | is 9 for each head, but positions turn pairs",
                "--load src/test/resources/hub/gpt2 | --hidden is 32, but the model in",
                "--load src/test/resources/hub/llama --model gpt2 | --model is gpt2, but the model",
                "--load src/test/resources/hub/llama --hidden 16 --context 17 --text"
                        + " src/test/resources/train/text.txt | but the model has 16 positions",
                "--load src/test/resources/hub/llama --hidden 16 | has a vocabulary of",
                "--pp 3 | --pp is 3, expected at most --layers 2",
                "--dp 3 | --batch is 8, expected a multiple of 3 micro-batches",
                "--dp 2 --accumulate 8 | --batch is 8, expected a multiple of 16 micro-batches",
                "--ep 2 | --ep is 2, but the model has no experts",
                "--ep 2 --experts 4 | --ep is 2, expected a divisor of --dp 1",
                "--dp 2 --ep 2 --experts 3 | --ep is 2, expected a divisor of --experts 3",
                "--experts 4 --top-k 3 | --top-k is 3, expected 1 or 2",
                "--experts 4 --router top3 | --router is 'top3', expected one of switch, top2",
                "--experts 4 --router vmoe --top-k 2 | --top-k 2 is --router top2, but",
                "--experts 1 --router gshard | --router gshard needs 2 experts, but --experts is 1",
                "--router vmoe | --router is vmoe, but the model has no experts; give --experts",
                "--shared-expert | --shared-expert needs experts, but",
                "--residual-expert | --residual-expert is for experts, but the model has none",
                "--router-jitter 0.1 --init-scale 0.1 | --router-jitter=0.1 is for experts, but the",
                "--router-sample | --router-sample is for experts, but the model has none",
                "--router-noise 0.1 --router-sample | --router-noise=0.1 --router-sample is for",
                "--experts 4 --residual-expert --shared-expert | --residual-expert and",
                "--experts 4 --router-jitter 1 | --router-jitter is 1.0, expected 0 to less than 1",
                "--experts 4 --router-dropout -1 | --router-dropout is -1.0, expected 0 to less",
                "--experts 4 --expert-dropout 1.5 | --expert-dropout is 1.5, expected 0 to less",
                "--experts 4 --router-noise NaN | --router-noise is NaN, expected 0 or more",
                "--experts 4 --min-capacity 0 | --min-capacity is 0, expected 1 or more",
                "--min-capacity 4 | --min-capacity=4 is for experts, but the model has none",
                "--experts 4 --router gshard --router-sample | but with --router gshard the second",
                "--experts 4 --router expert-choice --router-sample | expert-choice experts choose",
                "--init-scale 0 | --init-scale is 0.0, expected more than 0, such as 0.1",
                "--init-scale 101 | --init-scale is 101.0, expected more than 0 and at most",
                "--experts 4 --capacity-factor NaN | --capacity-factor is NaN, expected a number",
                "--experts 4 --router expert-choice --capacity-factor 0 | cannot adapt; expected",
                "--sequence-parallel | --tp is 1",
                "--zero 4 | --zero is 4, expected 0 to 3",
                "--offload disk | --offload is 'disk', expected none, host or nvme",
                "--schedule zigzag | schedule is 'zigzag', expected gpipe or 1f1b",
                "--compress bf16 | --compress is bf16, but --dp is 1",
                "--dp 2 --zero 1 --compress fp16 | --compress is fp16, which the gradient reducer",
                "--dp 2 --bf16 --compress powersgd:4 | --compress is powersgd:4, which the",
                "--dp 2 --compress topk:2 | --compress is 'topk:2': the density is 2.0, expected",
                "--dp 2 --compress powersgd:0 | --compress is 'powersgd:0': the rank of the factors is 0",
                "--dp 2 --compress topk | --compress is 'topk', expected none, bf16, fp16",
                "--dp 2 --compress zip | --compress is 'zip', expected none, bf16, fp16",
                "-g 4 --dp 2 | there are 4 ranks, but --dp 2 x --tp 1 x --pp 1 is 2",
                "-g 3 --tp 2 | there are 3 ranks, but --dp 1 x --tp 2 x --pp 1 is 2",
                "-g 0 | -g is 0, expected 1 to 256",
                "-g 1000 | -g is 1000, expected 1 to 256",
                "--steps 0 | --steps is 0, expected 1 to 10000000",
                "--lr NaN | --lr is NaN, expected a number above 0",
                "--lr 1e300 | --lr is 1.0E300, expected a number above 0 and below 3.4028235E38",
                "--loss-scale 4 | --loss-scale is 4.0, but gradients are not float16; give",
                "--eval-every 5 --eval-share 0.0001 | 13 of them held out by --eval-share; give a"
                        + " larger share, a longer text",
                "--eval-every 5 --eval-share 0.9999 | give a smaller share, a longer text",
                "--resume | --resume needs --checkpoint",
                "--resume=x --checkpoint c | --resume is 'x', expected the number of a saved step",
                "--checkpoint /dev/null | --checkpoint '/dev/null' is a file, expected a folder",
                "--checkpoint /dev/null/a | --checkpoint '/dev/null/a' cannot be made",
                "--engine nccl | --engine is nccl, but the model computes on the CPU; add --device cuda",
                "--weight-decay -1 | --weight-decay is -1.0, expected a finite number, 0 or more",
                "--load /no/such/file | --load '/no/such/file' does not exist",
                "--load / --checkpoint c --resume | --load '/' and --resume both give",
                "--load src/test | has no model.safetensors: it is not a saved model, or its --save did",
                "--save . | --save '.' has files in it, expected a new or empty folder",
                "--save /dev/null | --save '/dev/null' is a file, expected a folder",
                "--save /dev/null/a | --save '/dev/null/a' cannot be made",
                "--tensorboard /dev/null/a | --tensorboard '/dev/null/a' cannot be made",
                "--save s --compare | --load and --save are for one run",
                "--lr 0 | --lr is 0.0, expected a number above 0",
                "--context 16384 --batch 4096 | is too much for one step",
                "--text /no/such/file | there is no file /no/such/file",
                "--text /dev/null | /dev/null has 0 different characters, expected 2 to 256",
                "--tokenizer gpt2 | --tokenizer is 'gpt2', but there is no text; give --text",
                "--tokenizer words | tokenizer 'words' is unknown, expected characters, gpt2, cl100k",
                "--compare dp=2;tq=2 | technique 'tq=2' is unknown",
                "--compare dp=2;zero=9 | --zero is 9, expected 0 to 3",
                "--compare zero=-1 | --zero is -1, expected 0 to 3",
                "--compare dp=x | technique 'dp=x' needs a number",
                "--nvme /no/such/folder | --nvme '/no/such/folder' is not a folder",
                "--csv=- | --csv is '-', but cannot go to standard output; give a name",
                "--html - | --html is '-', but cannot go to standard output; give a name",
                "--tensorboard - | --tensorboard is '-', but cannot go to standard output",
                "--svg /no/such/folder/a.svg | --svg '/no/such/folder/a.svg' cannot be written",
            })
    void namesWhatMakesNoSense(String arguments, String expected) {
        Result r = run(arguments);
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains(expected), r::toString);
        assertEquals(1, r.err.lines().count(), r::toString);
    }

    @Test
    void launchedProcessesAreNoThreads() {
        Map<String, String> launched = LocalJob.environment("train-command-test", 0, 2);
        Result r = run(launched, "-g", "2");
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains("-g 2 starts threads, but a launcher has started"), r.err);
        r = run(launched, "--compare");
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains("--compare starts ranks as threads"), r.err);
    }

    @Test
    void reportsAsTextJsonSvgAndPage() throws Exception {
        Path json = folder.resolve("a.json");
        Path svg = folder.resolve("a.svg");
        Path html = folder.resolve("a.html");
        Result r = run("-g 2 --json " + json + " --svg " + svg + " --html " + html);
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.contains("train dp=2: 2 ranks"), r.out);
        assertTrue(r.out.contains("unigram entropy"), r.out);
        JsonNode top = json(json);
        JsonNode run = top.get("runs").get(0);
        assertEquals(10, run.get("losses").size());
        assertEquals("host/threads", run.get("engine").asText());
        assertTrue(run.get("samples_per_second").asDouble() > 0);
        double share = run.get("communication_share").asDouble();
        assertTrue(share > 0 && share <= 1, () -> "share " + share);
        assertTrue(run.get("communication_seconds_per_step").get("data").asDouble() > 0);
        Document document =
                DocumentBuilderFactory.newDefaultInstance()
                        .newDocumentBuilder()
                        .parse(svg.toFile());
        assertEquals(1, document.getElementsByTagName("polyline").getLength());
        String page = Files.readString(html);
        assertTrue(page.contains("<svg") && page.contains("samples/s"), page);
    }

    @Tag("exhaustive")
    @Test
    void comparesSetsWithASingleRank() throws Exception {
        Path json = folder.resolve("a.json");
        Path svg = folder.resolve("a.svg");
        Result r =
                run(
                        Map.of(),
                        small(
                                "--compare",
                                "dp=2 zero=1;tp=2;bf16;dp=2 compress=topk:0.1",
                                "--json",
                                json.toString(),
                                "--svg",
                                svg.toString()));
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.lines().anyMatch(l -> l.startsWith("dp=2 zero=1 ")), r.out);
        JsonNode runs = json(json).get("runs");
        assertEquals(5, runs.size());
        for (int i = 1; i < 5; i++) {
            double difference = runs.get(i).get("largest_difference").asDouble();
            assertTrue(difference <= runs.get(i).get("tolerance").asDouble(), r.out);
        }
        assertTrue(runs.get(3).get("largest_difference").asDouble() > 0, "bf16 rounds");
        assertEquals("topk:0.1", runs.get(4).get("compress").asText());
        assertTrue(runs.get(4).get("largest_difference").asDouble() > 1e-3, "much comes late");
        NodeList curves =
                DocumentBuilderFactory.newDefaultInstance()
                        .newDocumentBuilder()
                        .parse(svg.toFile())
                        .getElementsByTagName("polyline");
        assertEquals(5 + 4, curves.getLength(), "losses, and differences from the first");
    }

    @Test
    void settingsOfExpertsAreInTheReport() throws Exception {
        Path json = folder.resolve("experts.json");
        Result r =
                run(
                        "--steps 2 --experts 4 --router gshard --capacity-factor -2 --router-jitter"
                                + " 0.01 --router-dropout 0.02 --router-noise 0.25 --expert-dropout"
                                + " 0.3 --init-scale 0.1 --residual-expert --min-capacity 3 --json "
                                + json);
        assertEquals(0, r.status, r::toString);
        JsonNode run = json(json).get("runs").get(0);
        assertEquals(-2, run.get("capacity_factor").asDouble());
        assertEquals(0.01, run.get("router_jitter").asDouble());
        assertEquals(0.02, run.get("router_dropout").asDouble());
        assertEquals(0.25, run.get("router_noise").asDouble());
        assertEquals(0.3, run.get("expert_dropout").asDouble());
        assertEquals(0.1, run.get("init_scale").asDouble());
        assertEquals(3, run.get("min_capacity").asInt());
        assertFalse(run.get("router_sample").asBoolean());
        assertTrue(run.get("residual_expert").asBoolean());
        double used = run.get("expert_loads").get(0).get("used_capacity_factor").asDouble();
        assertTrue(used > 0 && used <= 2, "used " + used);
    }

    @Tag("exhaustive")
    @Test
    void comparesRouters() throws Exception {
        Path json = folder.resolve("a.json");
        Result r =
                run("--compare routers --experts 4 --shared-expert --dp 2 --ep 2 --json " + json);
        assertEquals(0, r.status, r::toString);
        JsonNode runs = json(json).get("runs");
        assertEquals(Routing.values().length, runs.size());
        for (int i = 0; i < runs.size(); i++) {
            String router = Routing.values()[i].label();
            JsonNode run = runs.get(i);
            assertEquals(router, run.get("router").asText());
            assertTrue(run.get("shared_expert").asBoolean());
            assertEquals(2, run.get("expert_loads").size());
            for (JsonNode load : run.get("expert_loads")) {
                assertEquals(4, load.get("shares").size());
                boolean drops = load.get("dropped_tokens").asDouble() > 0;
                assertTrue(!drops || !router.equals("no-drop"), router);
            }
            String loss = String.format(Locale.ROOT, "%.4f", run.get("losses").get(9).asDouble());
            String row = "^" + router + " +" + loss.replace(".", "\\.") + " .*";
            assertEquals(1, r.out.lines().filter(l -> l.matches(row)).count(), r.out);
        }
        // With fewer experts than choices, or a capacity that cannot adapt, a router is left out.
        r = run("--compare routers --experts 4 --steps 2 --capacity-factor 0");
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.lines().noneMatch(l -> l.startsWith("expert-choice")), r.out);
        assertTrue(r.out.lines().anyMatch(l -> l.matches("top2 .* 0\\.0 % .*")), r.out);
        r = run("--compare routers --experts 4 --steps 2 --router-sample --json " + json);
        assertEquals(0, r.status, r::toString);
        List<String> sampled = new ArrayList<>();
        for (JsonNode run : json(json).get("runs")) {
            assertTrue(run.get("router_sample").asBoolean());
            sampled.add(run.get("router").asText());
        }
        assertEquals(List.of("switch", "top2", "vmoe", "next-best", "no-drop"), sampled);
        r = run("--compare routers --experts 1 --steps 2");
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.lines().noneMatch(l -> l.startsWith("top2")), r.out);
        assertTrue(r.out.lines().anyMatch(l -> l.startsWith("no-drop")), r.out);
    }

    @Test
    void trainsOnAFile() throws IOException {
        Path text = folder.resolve("text.txt");
        Files.writeString(text, "Ein Männlein steht im Walde ganz still und stumm.\n".repeat(40));
        Result r = run("--text " + text + " --steps 40");
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.contains("text.txt"), r.out);
        Path tiny = folder.resolve("tiny.txt");
        Files.writeString(tiny, "abcabc");
        r = run("--text " + tiny);
        assertEquals(2, r.status);
        assertTrue(r.err.contains("--context is 16, but the text has 6 tokens"), r.err);
        Path binary = folder.resolve("binary");
        Files.write(binary, new byte[] {(byte) 0xff, (byte) 0xfe, 0, 1});
        r = run("--text " + folder);
        assertEquals(2, r.status);
        assertTrue(r.err.contains(folder + " is a folder; give a file"), r.err);
        r = run("--text " + binary);
        assertEquals(2, r.status);
        assertTrue(r.err.contains("is not UTF-8"), r.err);
    }

    /**
     * A text of any language, by GPT-2's tokens: the first loss is that of a guess among 50,257.
     */
    @Tag("exhaustive")
    @Test
    void trainsOnBytePairs() throws IOException {
        Path text = folder.resolve("text.txt");
        Files.writeString(text, "Ein Männlein steht im Walde 日本語 ganz still.\n".repeat(40));
        Path json = folder.resolve("run.json");
        Path model = folder.resolve("pairs");
        String line = "--tokenizer gpt2 --steps 3 --eval-every 2 --sample 8 --text " + text;
        Result r = run(line + " --dp 2 --zero 1 --save " + model + " -J " + json);
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.contains("16 tokens of context"), r.out);
        JsonNode losses = json(json).at("/runs/0/losses");
        assertEquals(Math.log(50_257), losses.get(0).asDouble(), 0.5);
        // Loaded again by the same tokens alone.
        Result again = run(line + " --load " + model);
        assertEquals(0, again.status, again::toString);
        Result other = run("--tokenizer cl100k --load " + model + " --text " + text);
        assertTrue(other.status != 0, other::toString);
    }

    @Test
    void savesLoadsAndDecays() {
        Path model = folder.resolve("model");
        Result r = run("--dp 2 --zero 1 --steps 2 --save " + model);
        assertEquals(0, r.status, r::toString);
        String more = " --steps 40 --optimizer adamw --lr 0.01 --load ";
        Path file = model.resolve("model.safetensors");
        Result plain = run("--weight-decay 0" + more + file);
        assertEquals(0, plain.status, plain::toString);
        Result decayed = run("--weight-decay 20" + more + file);
        assertEquals(0, decayed.status, decayed::toString);
        // A decay of a fifth a step leaves weights near 0, which predict all characters alike.
        assertTrue(lastLoss(decayed) > lastLoss(plain) + 0.1, decayed + "\n" + plain);
        r = run("--steps 4 --load " + model);
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.lines().noneMatch(l -> l.strip().startsWith("2 ")), r.out);
    }

    /**
     * What transformers saved is trained as there, saved, and loaded again with the sizes of its
     * own config.json; a text may have fewer tokens than the model.
     */
    @ParameterizedTest
    @ValueSource(strings = {"gpt2", "llama"})
    void trainsModelsOfTransformers(String name) throws IOException {
        Path made = Path.of("src/test/resources/hub").resolve(name);
        Path saved = folder.resolve("saved");
        Path json = folder.resolve("run.json");
        String line =
                "--hidden 16 --context 8 --batch 4 --lr 0.003 --sample 5"
                        + " --text src/test/resources/train/text.txt -J "
                        + json;
        Result r = run(line + " --steps 6 --load " + made + " --save " + saved);
        assertEquals(0, r.status, r::toString);
        assertTrue(
                r.out.contains(name + ", 2 blocks of width 16, 4 heads, 8 tokens of context"),
                r.out);
        assertEquals(name, json(json).at("/runs/0/model").asText());
        List<Double> losses = new ArrayList<>();
        json(json).at("/runs/0/losses").forEach(l -> losses.add(l.asDouble()));
        r = run(line + " --tp 2 --steps 10 --load " + saved);
        assertEquals(0, r.status, r::toString);
        json(json).at("/runs/0/losses").forEach(l -> losses.add(l.asDouble()));
        double[] expected = new double[10];
        try (Safetensors in = Safetensors.open(made, "expected.safetensors")) {
            in.read("losses", 0, Buffer.wrap(MemorySegment.ofArray(expected), DataType.FLOAT64));
        }
        assertArrayEquals(expected, losses.stream().mapToDouble(l -> l).toArray(), 5e-6);
    }

    @ParameterizedTest
    @ValueSource(strings = {"llama --key-heads 2"})
    void otherModelsLearn(String model) throws IOException {
        Path json = folder.resolve("run.json");
        Path saved = folder.resolve("checkpoints");
        String line = "--lr 0.01 --checkpoint " + saved + " -J " + json + " --model ";
        Result r = run(line + model + " --steps 60 --dp 2 --zero 2");
        assertEquals(0, r.status, r::toString);
        JsonNode losses = json(json).at("/runs/0/losses");
        assertTrue(losses.get(59).asDouble() < 0.8 * losses.get(0).asDouble(), losses::toString);
        r = run(line + "jccl --resume --dp 2 --zero 2");
        assertEquals(1, r.status, r::toString);
        assertTrue(r.err.contains("is of a run with model " + model.split(" ", -1)[0]), r.err);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"gpt2", "llama"})
    void otherModelsLearnInMoreCases(String model) throws IOException {
        otherModelsLearn(model);
    }

    /**
     * A loss scale that is far too large: steps are left out until gradients fit, then the model
     * learns; a checkpoint has the scale, so a resumed run has the same losses.
     */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "--tp 2 --pp 2 --accumulate 2",
                "--dp 2 --zero 2",
                "--dp 2 --ep 2 --experts 4"
            })
    void stepsThatOverflowAreLeftOut(String techniques) throws IOException {
        Path json = folder.resolve("run.json");
        String line = "--fp16 --loss-scale 1099511627776 --lr 0.01 --clip 1 " + techniques;
        Result r = run(line + " --steps 60 -J " + json);
        assertEquals(0, r.status, r::toString);
        JsonNode whole = json(json).at("/runs/0");
        int skipped = whole.get("skipped_steps").asInt();
        assertTrue(skipped > 5 && skipped < 50, r::toString);
        assertEquals(0x1p40 / Math.pow(2, skipped), whole.get("loss_scale").asDouble());
        assertTrue(r.out.contains("(" + skipped + " steps left out"), r.out);
        JsonNode losses = whole.get("losses");
        assertTrue(losses.get(59).asDouble() < losses.get(0).asDouble() - 0.3, losses::toString);

        String saved = " --checkpoint " + folder.resolve("checkpoints") + " --checkpoint-every 4";
        // The schedule of the rate is that of all steps.
        r = run(line + saved + " --steps 40");
        assertEquals(0, r.status, r::toString);
        r = run(line + saved + " --steps 60 --resume -J " + json);
        assertEquals(0, r.status, r::toString);
        JsonNode rest = json(json).at("/runs/0/losses");
        assertEquals(20, rest.size());
        for (int i = 0; i < 20; i++) {
            assertEquals(losses.get(40 + i).asDouble(), rest.get(i).asDouble());
        }
    }

    private static double lastLoss(Result r) {
        String line = r.out.lines().filter(l -> l.startsWith("loss ")).findFirst().orElseThrow();
        return Double.parseDouble(line.replaceAll("^loss +([0-9.]+) .*", "$1"));
    }

    /** As jccl run --max-restarts says it: nobody writes --resume. */
    @Test
    void goesOnFromItsCheckpointWhereALauncherHasStartedItAgain() throws IOException {
        Path json = folder.resolve("a.json");
        String[] arguments =
                small("--checkpoint", "" + folder.resolve("saved"), "--json", "" + json);
        Map<String, String> again = Map.of("TORCHELASTIC_RESTART_COUNT", "2");
        Map<String, String> first = Map.of("TORCHELASTIC_RESTART_COUNT", "0");
        // The first time it had failed before it saved anything; a new run begins at the beginning.
        for (Map<String, String> environment : List.of(again, first, Map.<String, String>of())) {
            Result r = run(environment, arguments);
            assertEquals(0, r.status, r::toString);
            assertEquals(0, json(json).get("runs").get(0).get("first_step").asInt());
        }
        List<String> longer = new ArrayList<>(List.of(arguments));
        longer.set(longer.indexOf("--steps") + 1, "14");
        Result r = run(again, longer.toArray(String[]::new));
        assertEquals(0, r.status, r::toString);
        assertEquals(10, json(json).get("runs").get(0).get("first_step").asInt());
    }

    /** The scale is that of the checkpoint, if it was of float16, whatever the first one was. */
    @Test
    void resumesWithTheScaleOfItsType() throws IOException {
        Path json = folder.resolve("scale.json");
        String saved = "--zero 1 --checkpoint " + folder.resolve("scales") + " --json " + json;
        String[] lines = {
            " --steps 1", // begins without a scale
            " --steps 2 --resume --fp16 --loss-scale 1024 | 1024",
            " --steps 3 --resume --fp16 | 1024",
            " --steps 4 --resume --bf16",
            " --steps 5 --resume --fp16 --loss-scale 512 | 512"
        };
        for (String line : lines) {
            String[] parts = line.split("\\|", -1);
            Result r = run(saved + parts[0]);
            assertEquals(0, r.status, r::toString);
            if (parts.length > 1) {
                double scale = json(json).at("/runs/0/loss_scale").asDouble();
                assertEquals(Double.parseDouble(parts[1]), scale, line);
            }
        }
        Result r = run(saved + " --steps 6 --resume --clip 1");
        assertEquals(1, r.status, r::toString);
        assertTrue(r.err.contains("with recipe none, this one has constant warmup=0"), r.err);
    }

    @Test
    void resumesAndLeavesNoFilesOnTheDrive() throws IOException {
        Path checkpoint = folder.resolve("checkpoint");
        Path drive = Files.createDirectory(folder.resolve("drive"));
        String common =
                "--dp 2 --zero 1 --offload nvme --nvme "
                        + drive
                        + " --checkpoint-every 2 --checkpoint "
                        + checkpoint;
        assertEquals(0, run(common).status);
        try (Stream<Path> left = Files.list(drive)) {
            assertEquals(List.of(), left.toList());
        }
        try (Stream<Path> kept = Files.list(checkpoint)) {
            assertEquals(
                    List.of("latest.json", "lock", "step-10", "step-8"),
                    kept.map(p -> p.getFileName().toString()).sorted().toList());
        }
        Path json = folder.resolve("a.json");
        Result r = run(common + " --resume --steps 14 --json " + json);
        assertEquals(0, r.status, r::toString);
        assertEquals(10, json(json).get("runs").get(0).get("first_step").asInt());
        assertEquals(4, json(json).get("runs").get(0).get("losses").size());

        r = run(common + " --resume --steps 14");
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.contains("the checkpoint has 14 steps already"), r.out);

        r = run(common + " --resume --hidden 64");
        assertEquals(1, r.status);
        assertTrue(r.err.contains("of a run with hidden 32, this one has 64"), r.err);
        r = run("--dp 2 --checkpoint " + checkpoint + " --resume");
        assertEquals(1, r.status);
        String state = "of a run with sharded state (--zero, --bf16, --fp16 or --offload) true,";
        assertTrue(r.err.contains(state + " this one has false; resume with the same"), r.err);
        r = run("--checkpoint " + folder.resolve("none") + " --resume");
        assertEquals(2, r.status);
        assertTrue(r.err.contains("of an earlier run, or start without --resume"), r.err);
        Files.delete(checkpoint.resolve("latest.json"));
        r = run(common + " --resume");
        assertEquals(2, r.status);
        assertTrue(r.err.contains("there is no checkpoint in " + checkpoint + ": latest"), r.err);
        assertTrue(r.err.contains("a certain step (--resume=14 or --resume=12), or"), r.err);
        Files.writeString(checkpoint.resolve("latest.json"), "{");
        r = run(common + " --resume");
        assertEquals(1, r.status);
        assertTrue(r.err.contains("latest.json is damaged"), r.err);
    }

    private static List<Double> losses(Path json) throws IOException {
        List<Double> losses = new ArrayList<>();
        json(json).get("runs").get(0).get("losses").forEach(l -> losses.add(l.asDouble()));
        return losses;
    }

    /** The file of a step whose path ends so. */
    private static Path file(Path step, String end) throws IOException {
        try (Stream<Path> all = Files.walk(step)) {
            return all.filter(p -> p.toString().endsWith(end)).sorted().findFirst().orElseThrow();
        }
    }

    private static void flip(Path file) throws IOException {
        byte[] bytes = Files.readAllBytes(file);
        bytes[bytes.length / 2] ^= 1;
        Files.write(file, bytes);
    }

    private static void removeAll(Path folder) throws IOException {
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path p : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(p);
            }
        }
    }

    private enum Damage {
        FLIPPED,
        CUT,
        MISSING,
        FOLDER,
        MARK
    }

    /** All ranks go back to the same older step, whichever of them sees the damage. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {"CUT | --tp 2 | pp0-tp1/parameters.state", "MARK | --dp 2 | step.json"})
    void damagedNewestStepIsSkippedWithAWarning(Damage damage, String techniques, String end)
            throws IOException {
        Path checkpoint = folder.resolve("checkpoint");
        Path whole = folder.resolve("whole.json");
        Path resumed = folder.resolve("resumed.json");
        String common = techniques + " --checkpoint-every 4 --checkpoint " + checkpoint;
        assertEquals(0, run(common + " --steps 12 --json " + whole).status);
        Path hurt = file(checkpoint.resolve("step-12"), end);
        switch (damage) {
            case FLIPPED -> flip(hurt);
            case CUT -> Files.write(hurt, Arrays.copyOf(Files.readAllBytes(hurt), 100));
            case MISSING, MARK -> Files.delete(hurt);
            // The advice of several messages.
            case FOLDER -> {
                hurt = checkpoint.resolve("step-12");
                removeAll(hurt);
            }
        }
        Result r = run(common + " --resume --steps 12 --json " + resumed);
        assertEquals(0, r.status, r::toString);
        List<String> warnings =
                r.err.lines().filter(l -> l.startsWith("jccl train: warning: ")).toList();
        assertEquals(1, warnings.size(), r.err);
        // Which file is missing among a step's shards, it cannot know.
        String named = damage == Damage.MISSING && end.equals(".shard") ? "step-12" : "" + hurt;
        assertTrue(warnings.getFirst().contains(named), r.err);
        assertTrue(warnings.getFirst().endsWith("; going on from step 8"), r.err);
        assertEquals(losses(whole).subList(8, 12), losses(resumed), "losses differ");
        // The step was saved again over what was damaged.
        r = run(common + " --resume --steps 13");
        assertEquals(0, r.status, r::toString);
        assertFalse(r.err.contains("warning"), r.err);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "FLIPPED | --dp 2 --zero 2 | .shard",
                "MISSING | --pp 2 | pp1-tp0/parameters.state",
                "FOLDER | --dp 2 --zero 1 | .shard",
                "FLIPPED | --dp 2 | parameters.state",
                "FLIPPED | --pp 2 | pp1-tp0/parameters.state",
                "FLIPPED | --dp 2 --compress powersgd:2 | carried-1-of-2.state",
                "MISSING | --dp 2 --compress topk:0.1 | carried-1-of-2.state",
                "CUT | --dp 2 --compress topk:0.1 | carried-1-of-2.state",
                "FLIPPED | --dp 2 --ep 2 --experts 2 | pp0-ep1-tp0-experts/parameters.state",
                "CUT | --dp 2 --zero 3 | .shard",
                "MISSING | --dp 2 --zero 1 | .shard"
            })
    void damagedNewestStepIsSkippedWithAWarningInMoreCases(
            Damage damage, String techniques, String end) throws IOException {
        damagedNewestStepIsSkippedWithAWarning(damage, techniques, end);
    }

    @Tag("exhaustive")
    @Test
    void whatToResumeFromCanBeSaidAndMessagesGiveAdviceThatWorks() throws IOException {
        Path checkpoint = folder.resolve("checkpoint");
        Path whole = folder.resolve("whole.json");
        Path resumed = folder.resolve("resumed.json");
        String common = "--dp 2 --checkpoint-every 4 --checkpoint " + checkpoint + " --steps 12";
        assertEquals(0, run(common + " --json " + whole).status);

        Result r = run(common + " --resume=8 --json " + resumed);
        assertEquals(0, r.status, r::toString);
        assertFalse(r.err.contains("warning"), r.err);
        assertEquals(losses(whole).subList(8, 12), losses(resumed));

        // A step that is not there names those that are.
        r = run(common + " --resume=4");
        assertEquals(1, r.status);
        assertTrue(r.err.contains("step-4: no such file or folder"), r.err);
        assertTrue(r.err.contains("--resume=12 or --resume=8"), r.err);

        // A step that was asked for is not replaced by another; the advice is.
        flip(file(checkpoint.resolve("step-12"), "parameters.state"));
        r = run(common + " --resume=12");
        assertEquals(1, r.status);
        assertTrue(r.err.contains("step-12/pp0-tp0/parameters.state is damaged"), r.err);
        assertTrue(r.err.contains("(--resume=8)"), r.err);
        Files.writeString(checkpoint.resolve("latest.json"), "{");
        r = run(common + " --resume");
        assertEquals(1, r.status);
        assertTrue(r.err.contains("latest.json is damaged"), r.err);
        assertTrue(r.err.contains("--resume=8"), r.err);
        r = run(common + " --resume=8 --json " + resumed);
        assertEquals(0, r.status, r::toString);
        assertEquals(losses(whole).subList(8, 12), losses(resumed));

        // Nothing is whole any more: both are named, and what to do.
        flip(file(checkpoint.resolve("step-12"), "parameters.state"));
        Files.delete(file(checkpoint.resolve("step-8"), "parameters.state"));
        r = run(common + " --resume");
        assertEquals(1, r.status);
        for (String word :
                List.of(
                        "step-12/pp0-tp0/parameters.state is damaged",
                        "step-8/pp0-tp0/parameters.state: no such file or folder",
                        "without --resume")) {
            assertTrue(r.err.contains(word), "no '" + word + "' in " + r.err);
        }
        assertFalse(r.err.contains("Exception"), r.err);
        assertEquals(1, r.err.strip().lines().count(), r.err);
        r = run(common);
        assertEquals(0, r.status, r::toString);
    }

    @Tag("exhaustive")
    @Test
    void anotherCompressionBeginsWithNothingCarried() throws IOException {
        Path checkpoint = folder.resolve("checkpoint");
        String common = "--dp 2 --checkpoint " + checkpoint + " --compress ";
        assertEquals(0, run(common + "topk:0.1 --steps 4").status);
        Path step = checkpoint.resolve("step-4");
        Result r = run(common + "powersgd:2 --resume=4 --steps 6");
        assertEquals(0, r.status, r::toString);
        Files.delete(file(step, "carried-1-of-2.state"));
        r = run(common + "topk:0.1 --resume=4 --steps 6");
        assertEquals(1, r.status);
        assertTrue(r.err.contains("-of-2.state: no such file or folder"), r.err);
        // Without the entry nothing is expected.
        Path mark = step.resolve("step.json");
        Files.writeString(mark, Files.readString(mark).replaceFirst(",\\s*\"carried\".*", ""));
        r = run(common + "topk:0.1 --resume=4 --steps 6");
        assertEquals(0, r.status, r::toString);
    }

    /** /dev/full refuses every write as a full disk does. */
    @Test
    void aStepThatDoesNotFitOnTheDiskLeavesTheOneBefore() throws IOException {
        Path full = Path.of("/dev/full");
        assumeTrue(Files.exists(full), "there is no /dev/full here");
        Path checkpoint = folder.resolve("checkpoint");
        String line = "--dp 2 --checkpoint-every 1 --checkpoint " + checkpoint;
        assertEquals(0, run(line + " --steps 1").status);
        Path part = Files.createDirectories(checkpoint.resolve("step-2/pp0-tp0"));
        Files.createSymbolicLink(part.resolve("parameters.state.part"), full);
        Result r = run(line + " --resume --steps 2");
        assertEquals(1, r.status);
        for (String word : List.of("step 2 cannot be saved: ", "No space left", "--resume")) {
            assertTrue(r.err.contains(word), "no '" + word + "' in " + r.err);
        }
        r = run(line + " --resume --steps 2");
        assertEquals(0, r.status, r::toString);
        assertFalse(r.err.contains("warning"), r.err);
    }

    @Test
    void aFirstStepThatDoesNotFitOnTheDiskCannotBeResumed() throws IOException {
        Path full = Path.of("/dev/full");
        assumeTrue(Files.exists(full), "there is no /dev/full here");
        Path checkpoint = Files.createDirectories(folder.resolve("checkpoint"));
        Files.createSymbolicLink(checkpoint.resolve("latest.json.part"), full);
        Result r = run("--steps 1 --checkpoint " + checkpoint);
        assertEquals(1, r.status);
        String end = "; solve this, such as by freeing space, and start again: no step before it";
        assertTrue(r.err.contains("step 1 cannot be saved: "), r.err);
        assertTrue(r.err.contains("No space left on device" + end), r.err);
    }

    /** Reading /proc/self/mem from its beginning fails as reading a bad sector does. */
    @Test
    void filesThatCannotBeReadAreNamed() throws IOException {
        Path memory = Path.of("/proc/self/mem");
        assumeTrue(Files.isReadable(memory), "there is no /proc/self/mem here");
        Path checkpoint = folder.resolve("checkpoint");
        String line = "--dp 2 --checkpoint " + checkpoint;
        assertEquals(0, run(line + " --steps 2").status);
        for (String name : List.of("step-2/pp0-tp0/parameters.state", "step-2/step.json")) {
            Path file = file(checkpoint, name);
            Files.delete(file);
            Files.createSymbolicLink(file, memory);
            Result r = run(line + " --resume --steps 3");
            assertEquals(1, r.status);
            assertTrue(r.err.contains(name), "no '" + name + "' in " + r.err);
            Files.delete(file);
        }
        Path latest = checkpoint.resolve("latest.json");
        Files.delete(latest);
        Files.createSymbolicLink(latest, memory);
        for (String rest : List.of(line + " --resume", "--text " + latest)) {
            Result r = run(rest);
            assertEquals(1, r.status);
            assertTrue(r.err.startsWith("jccl train: " + latest + " cannot be read: "), r.err);
        }
        Files.delete(latest);
    }

    @Test
    void twoRunsDoNotSaveInOneFolder() throws IOException {
        String line = "--dp 2 --checkpoint " + folder;
        try (FolderLock lock = FolderLock.take(folder)) {
            Result r = run(line);
            assertEquals(1, r.status);
            assertEquals(
                    "jccl train: another run (process "
                            + ProcessHandle.current().pid()
                            + ") saves in "
                            + folder
                            + "; give another folder, or end it first\n",
                    r.err,
                    () -> lock + ": " + r);
        }
        // As one that was killed leaves it.
        Files.writeString(FolderLock.file(folder), "1\n");
        assertEquals(0, run(line).status);
        assertEquals(0, run(line + " --resume").status);
    }

    /** As in a container whose files are read-only. */
    @Test
    void withoutADriveNoFolderForTemporaryFilesIsNeeded() throws Exception {
        List<String> command = new ArrayList<>(RunCommandTest.jccl());
        command.add(1, "-Djava.io.tmpdir=" + folder.resolve("none"));
        command.add("train");
        command.addAll(List.of(small()));
        Path log = folder.resolve("log");
        Process process =
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(log.toFile())
                        .start();
        try {
            assertTrue(process.waitFor(120, TimeUnit.SECONDS), () -> read(log));
            assertEquals(0, process.exitValue(), () -> read(log));
        } finally {
            process.destroyForcibly();
        }
    }

    /** Older steps go, the user's own files in them do not. */
    @Test
    void onlyWhatWasSavedIsRemoved() throws IOException {
        Path checkpoint = folder.resolve("checkpoint");
        String common = "--dp 2 --zero 1 --checkpoint-every 2 --checkpoint " + checkpoint;
        assertEquals(0, run(common + " --steps 4").status);
        Path notes = Files.writeString(checkpoint.resolve("step-2/notes.txt"), "mine");
        Path best = Files.createDirectory(checkpoint.resolve("step-1"));
        Path link = Files.createSymbolicLink(checkpoint.resolve("step-0"), folder);
        assertEquals(0, run(common + " --resume --steps 8").status);
        assertEquals("mine", Files.readString(notes));
        assertTrue(Files.exists(link), "a link was removed");
        assertFalse(Files.exists(best), "an empty step is left");
        try (Stream<Path> left = Files.list(notes.getParent())) {
            assertEquals(List.of(notes), left.toList());
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"--tp 2", "", "--pp 3 --layers 3 --accumulate 4"})
    void processesOfJcclRun(String techniques) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int ranks = techniques.contains("3") ? 3 : 2;
        List<String> arguments = new ArrayList<>(List.of("-n", "" + ranks, "train"));
        arguments.addAll(List.of(small(techniques.split(" +"))));
        int status =
                Main.execute(
                        "run",
                        new RunCommand(jccl -> RunCommandTest.jccl(), Main.listed()),
                        arguments.toArray(String[]::new),
                        new PrintWriter(out),
                        new PrintWriter(err));
        assertEquals(0, status, err::toString);
        assertTrue(out.toString().contains(ranks + " ranks"), out.toString());
        assertEquals(1, out.toString().lines().filter(l -> l.startsWith("loss")).count(), "one");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "mpirun.openmpi")
    void processesOfMpi(String mpirun) throws Exception {
        assumeTrue(
                Stream.of(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator))
                        .anyMatch(p -> Files.isExecutable(Path.of(p, mpirun))),
                mpirun + " is not on the PATH");
        Path json = folder.resolve("a.json");
        List<String> command = new ArrayList<>(List.of(mpirun, "-n", "2"));
        command.addAll(RunCommandTest.jccl());
        command.addAll(List.of("train", "--engine", "mpi", "--zero", "2", "--json", "" + json));
        command.addAll(List.of(small()));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().put("OMPI_ALLOW_RUN_AS_ROOT", "1");
        builder.environment().put("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        Path log = folder.resolve("log");
        Process process = builder.redirectOutput(log.toFile()).start();
        try {
            assertTrue(process.waitFor(120, TimeUnit.SECONDS), () -> read(log));
            assertEquals(0, process.exitValue(), () -> read(log));
        } finally {
            process.destroyForcibly();
        }
        JsonNode run = json(json).get("runs").get(0);
        assertEquals("mpi", run.get("engine").asText());
        assertEquals(2, run.get("dp").asInt());
        Path threads = folder.resolve("threads.json");
        assertEquals(0, run("-g 2 --zero 2 --json " + threads).status);
        JsonNode other = json(threads).get("runs").get(0).get("losses");
        for (int i = 0; i < other.size(); i++) {
            assertEquals(other.get(i).asDouble(), run.get("losses").get(i).asDouble(), 2e-5);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "mpirun.mpich")
    void processesOfMpich(String mpirun) throws Exception {
        processesOfMpi(mpirun);
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            return e.toString();
        }
    }
}
