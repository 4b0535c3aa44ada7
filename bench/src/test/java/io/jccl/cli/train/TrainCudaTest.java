package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.OnFakes;
import io.jccl.cli.OnFakes.Result;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * {@code train --device cuda} on the fakes of CUDA, NCCL and cuBLAS, whose kernels are the sources
 * of the real ones. Losses are those of a single rank on the CPU.
 */
@Order(1)
@Timeout(value = 240, unit = TimeUnit.SECONDS)
class TrainCudaTest {
    private static final int STEPS = 3;

    /** Small: the fakes run each thread of a kernel after the other. */
    private static final String MODEL =
            "train --layers 2 --hidden 8 --heads 2 --context 4 --batch 4 --steps ";

    private static final String OF_ANY_SIZE = "train --layers 1 --context 4 --steps 1 ";

    /** Other orders of sums: parts of 2^-24; docs/train.md allows 1e-3 for a whole training. */
    private static final double TOLERANCE = 1e-6;

    /** As in docs/train.md, for bfloat16 gradients or parameters. */
    private static final double NARROW = 1e-2;

    @RegisterExtension static final OnFakes FAKES = new OnFakes();

    private static @Nullable List<Double> onCpu;

    @TempDir Path output = Path.of("");

    private static Result jccl(Map<String, String> environment, String line) throws Exception {
        return FAKES.jccl(environment, line.split(" +"));
    }

    private List<Double> losses(String more) throws Exception {
        Path json = output.resolve("run.json");
        Result r = jccl(Map.of(), MODEL + STEPS + " " + more + " -J " + json);
        assertEquals(0, r.status(), r::toString);
        return read(json);
    }

    private static List<Double> read(Path json) throws Exception {
        List<Double> losses = new ArrayList<>();
        JsonNode run = new ObjectMapper().readTree(json.toFile()).at("/jccl_train/runs").get(0);
        run.get("losses").forEach(l -> losses.add(l.asDouble()));
        return losses;
    }

    private List<Double> onCpu() throws Exception {
        List<Double> known = onCpu;
        if (known == null) {
            known = losses("");
            assertEquals(STEPS, known.size());
            assertTrue(known.getLast() < known.getFirst(), known::toString);
            onCpu = known;
        }
        return known;
    }

    private static double difference(List<Double> a, List<Double> b) {
        assertEquals(a.size(), b.size());
        double most = 0;
        for (int i = 0; i < a.size(); i++) {
            most = Math.max(most, Math.abs(a.get(i) - b.get(i)));
        }
        return most;
    }

    /** Files of one device are those of the other, whatever shards the state. */
    @ParameterizedTest
    @ValueSource(strings = {"--dp 2 --zero 3"})
    void weightsTravelBetweenDevices(String techniques) throws Exception {
        Path host = output.resolve("host");
        Path gpu = output.resolve("gpu");
        losses("--save " + host);
        String more = MODEL + (STEPS + 2) + " --load " + host;
        Path json = output.resolve("two.json");
        Result cpu = jccl(Map.of(), more + " -J " + json);
        assertEquals(0, cpu.status(), cpu::toString);
        List<Double> expected = read(json);
        assertEquals(2, expected.size());
        String onGpu = " --device cuda " + techniques;
        Result r = jccl(Map.of(), more + onGpu + " --save " + gpu + " -J " + json);
        assertEquals(0, r.status(), r::toString);
        assertTrue(difference(expected, read(json)) <= TOLERANCE, r::toString);
        String setting = new ObjectMapper().readTree(json.toFile()).findPath("setting").asText();
        assertTrue(setting.contains("; jccl fake 0, "), setting);

        // What the GPU wrote: two steps on, the CPU goes on alike from its own and from these.
        Path own = output.resolve("own");
        cpu = jccl(Map.of(), more + " --save " + own);
        assertEquals(0, cpu.status(), cpu::toString);
        List<List<Double>> both = new ArrayList<>();
        for (Path from : List.of(own, gpu)) {
            r = jccl(Map.of(), MODEL + (STEPS + 4) + " --load " + from + " -J " + json);
            assertEquals(0, r.status(), r::toString);
            both.add(read(json));
        }
        assertEquals(2, both.getFirst().size());
        assertTrue(difference(both.getFirst(), both.getLast()) <= TOLERANCE, both::toString);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"--tp 2"})
    void weightsTravelBetweenDevicesInMoreCases(String techniques) throws Exception {
        weightsTravelBetweenDevices(techniques);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"--model gpt2 --dp 2 --zero 3 --recompute", "--model llama --key-heads 1"})
    void otherModelsLoseAsOnTheCpu(String options) throws Exception {
        String model = options.replaceAll(" --(tp|dp|zero|seq|recompute).*", "");
        double difference = difference(losses(model), losses("--device cuda " + options));
        assertTrue(difference <= TOLERANCE, options + ": off by " + difference);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {"--model gpt2 --tp 2 --sequence-parallel", "--model llama --dp 2 --zero 1"})
    void moreOfOtherModelsLosesAsOnTheCpu(String options) throws Exception {
        otherModelsLoseAsOnTheCpu(options);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {"--dp 2 --zero 3 --offload host", "--tp 2 --pp 2 --accumulate 2 --bf16"})
    void lossesAreThoseOfTheCpu(String techniques) throws Exception {
        List<Double> expected = techniques.contains("--optimizer") ? losses(techniques) : onCpu();
        List<Double> losses = losses("--device cuda " + techniques);
        double difference = difference(expected, losses);
        boolean narrow = techniques.matches(".*(bf|fp)16.*");
        assertTrue(
                difference <= (narrow ? NARROW : TOLERANCE), techniques + ": off by " + difference);
        if (narrow) {
            // The same bits each time, so any difference is one of rounding.
            String wide =
                    techniques.replaceAll(" ?--(compress \\S+|bf16|fp16|loss-scale \\d+)", "");
            assertNotEquals(losses("--device cuda " + wide), losses, "nothing was rounded");
        }
        if (techniques.matches(".*--(bf|fp)16.*")) {
            // The CPU multiplies in float32, a GPU rounds the factors.
            double off = difference(losses(techniques), losses);
            assertTrue(off > 10 * TOLERANCE, techniques + ": products were not rounded: " + off);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "--dp 2 --zero 1 --fp16 --loss-scale 1024",
                "--dp 2 --accumulate 2 --compress bf16",
                "--bf16 --recompute",
                "--tp 2 --sequence-parallel",
                "--pp 2 --accumulate 2",
                "--optimizer adamw",
                "--dp 2 --zero 2 --accumulate 2"
            })
    void lossesAreThoseOfTheCpuInMoreCases(String techniques) throws Exception {
        lossesAreThoseOfTheCpu(techniques);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "--optimizer sgd",
                "--accumulate 4",
                "--dp 4",
                "--dp 2 --compress fp16",
                "--dp 2 --zero 0",
                "--dp 2 --zero 1 --recompute",
                "--dp 2 --zero 3 --offload nvme",
                "--pp 2 --accumulate 4 --schedule gpipe --no-overlap",
                "--tp 2 --dp 2 --zero 2"
            })
    void lossesOfOtherSets(String techniques) throws Exception {
        lossesAreThoseOfTheCpu(techniques);
    }

    /**
     * Experts on GPUs: the same layout on the CPU has the same losses, since capacity is that of a
     * rank's own tokens.
     */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "--experts 4 --dp 2 --ep 2 --router top2 --zero 1 --router-sample --min-capacity 4"
            })
    void expertsLoseAsOnTheCpu(String techniques) throws Exception {
        List<Double> expected = losses(techniques);
        assertTrue(difference(expected, onCpu()) > TOLERANCE, "a model without experts");
        double difference = difference(expected, losses("--device cuda " + techniques));
        assertTrue(difference <= TOLERANCE, techniques + ": off by " + difference);
    }

    private static final List<String> KINDS =
            List.of(
                    "--router-jitter 0.1",
                    "--router-dropout 0.1",
                    "--router-noise 0.3",
                    "--expert-dropout 0.2",
                    "--residual-expert");

    private static final String NOISE = " " + String.join(" ", KINDS);

    /** Noise is drawn by places on both, and evaluation has none. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "--experts 4 --dp 2 --ep 2 --router gshard",
                "--experts 4 --dp 2 --router expert-choice --zero 2",
                "--experts 4 --pp 2 --accumulate 2 --router vmoe",
                "--experts 4 --dp 2 --ep 2 --router switch --capacity-factor 0",
                "--experts 2 --tp 2 --sequence-parallel --router no-drop --recompute"
            })
    void noiseAndResidualExpertsLoseAsOnTheCpu(String techniques) throws Exception {
        String more = " --eval-every 2 --eval-batches 2";
        List<Double> expected = losses(techniques + NOISE + more);
        List<Double> heldOut = heldOut();
        for (String flag : KINDS) {
            String without = techniques + NOISE.replace(" " + flag, "");
            assertTrue(difference(expected, losses(without)) > TOLERANCE, flag + " does nothing");
        }
        List<Double> onGpu = losses("--device cuda " + techniques + NOISE + more);
        double difference = difference(expected, onGpu);
        assertTrue(difference <= TOLERANCE, techniques + ": off by " + difference);
        difference = difference(heldOut, heldOut());
        assertTrue(difference <= TOLERANCE, techniques + ": held-out text off by " + difference);
    }

    private List<Double> heldOut() throws Exception {
        List<Double> losses = new ArrayList<>();
        new ObjectMapper()
                .readTree(output.resolve("run.json").toFile())
                .at("/jccl_train/runs/0/validation")
                .forEach(v -> losses.add(v.get("loss").asDouble()));
        assertFalse(losses.isEmpty());
        return losses;
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "--experts 4 --dp 2 --ep 2 --router switch --zero 3 --offload host",
                "--experts 4 --dp 2 --ep 2 --router gshard --accumulate 2",
                "--experts 4 --dp 4 --ep 2 --router expert-choice --zero 2",
                "--experts 4 --pp 2 --accumulate 2 --router vmoe",
                "--experts 4 --dp 2 --router next-best --recompute",
                "--experts 4 --dp 2 --ep 2 --router no-drop --pp 2 --accumulate 2",
                "--experts 4 --tp 2 --sequence-parallel --dp 2 --ep 2 --shared-expert",
                "--experts 2 --tp 2 --router no-drop --shared-expert"
            })
    void everyRouterLosesAsOnTheCpu(String techniques) throws Exception {
        expertsLoseAsOnTheCpu(techniques);
    }

    /** Ranks as processes, each with the GPU of its number. */
    @Tag("exhaustive")
    @Test
    void ranksMayBeProcesses() throws Exception {
        Path json = output.resolve("processes.json");
        Result r =
                jccl(Map.of(), "run -n 2 -- " + MODEL + STEPS + " --device cuda --dp 2 -J " + json);
        assertEquals(0, r.status(), r::toString);
        assertTrue(difference(onCpu(), read(json)) <= TOLERANCE);
    }

    /** By events around them, on whichever stream they run. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"--pp 2 --accumulate 2, pipeline", "--dp 2, data", "--tp 2, tensor"})
    void communicationIsMeasuredOnTheGpu(String techniques, String kind) throws Exception {
        Path json = output.resolve("shares.json");
        String line = MODEL + "8 --device cuda " + techniques + " -J " + json;
        Result r = jccl(Map.of(), line);
        assertEquals(0, r.status(), r::toString);
        r.has("of a step operations run on the GPU (over 4 steps)");
        JsonNode run = new ObjectMapper().readTree(json.toFile()).at("/jccl_train/runs/0");
        double share = run.get("communication_share").asDouble();
        assertTrue(share > 0 && share <= 1, run::toString);
        assertEquals(4, run.get("measured_steps").asInt());
        JsonNode kinds = run.get("communication_seconds_per_step");
        assertTrue(kinds.get(kind).asDouble() > 0 && kinds.get("loss").asDouble() > 0, "" + kinds);
        // What is computed beside operations is not known.
        assertTrue(run.get("overlap").isNull(), run::toString);
        // Nothing is left of it for a run that ends in between.
        Result again = jccl(Map.of(), line);
        assertEquals(0, again.status(), again::toString);
    }

    /** A checkpoint of a GPU is one of the CPU, and the other way round. */
    @ParameterizedTest
    @CsvSource({"--device cuda, --device host", "--device host, --device cuda"})
    void resumesOnTheOtherDevice(String first, String second) throws Exception {
        Path at = output.resolve("checkpoint");
        Result r = jccl(Map.of(), MODEL + "2 " + first + " --checkpoint " + at);
        assertEquals(0, r.status(), r::toString);
        List<Double> rest = losses(second + " --resume --checkpoint " + at);
        assertTrue(difference(onCpu().subList(2, STEPS), rest) <= TOLERANCE, rest::toString);
    }

    /** What compression has not sent yet goes on in a checkpoint, on either device. */
    @ParameterizedTest
    @CsvSource("topk:0.1")
    void compressedLossesAreThoseOfTheCpuAndResume(String form) throws Exception {
        String techniques = "--dp 2 --compress " + form;
        List<Double> expected = losses(techniques);
        assertTrue(difference(onCpu(), expected) > 1e-4, "nothing was compressed");
        Path at = output.resolve("checkpoint");
        Result r = jccl(Map.of(), MODEL + "2 --device cuda " + techniques + " --checkpoint " + at);
        assertEquals(0, r.status(), r::toString);
        List<Double> whole = losses("--device cuda " + techniques);
        double off = difference(expected, whole);
        assertTrue(off <= TOLERANCE, form + ": off by " + off);
        Path copy = output.resolve("copy");
        copy(at, copy);
        List<Double> rest = losses("--device cuda " + techniques + " --resume --checkpoint " + at);
        assertEquals(whole.subList(2, STEPS), rest, "bit for bit");
        rest = losses(techniques + " --resume --checkpoint " + copy);
        off = difference(expected.subList(2, STEPS), rest);
        assertTrue(off <= TOLERANCE, form + " on the CPU: off by " + off);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("powersgd:2")
    void factorsLoseAsOnTheCpuAndResume(String form) throws Exception {
        compressedLossesAreThoseOfTheCpuAndResume(form);
    }

    private static void copy(Path from, Path to) throws Exception {
        try (Stream<Path> files = Files.walk(from)) {
            for (Path file : files.toList()) {
                Files.copy(file, to.resolve(from.relativize(file)));
            }
        }
    }

    /** The loss of held-out text, and characters, which a GPU's logits decide. */
    @Test
    void measuresAndWritesAsTheCpuDoes() throws Exception {
        // Many batches: the first stage must not write one while the one before is copied.
        String more = "--eval-every 2 --eval-batches 8 --sample 6";
        JsonNode host = evaluated(more);
        JsonNode gpus = evaluated(more + " --device cuda --pp 2 --accumulate 2");
        assertEquals((STEPS + 1) / 2, host.get("validation").size());
        for (int i = 0; i < host.get("validation").size(); i++) {
            JsonNode a = host.get("validation").get(i);
            JsonNode b = gpus.get("validation").get(i);
            assertEquals(a.get("step"), b.get("step"));
            assertEquals(a.get("loss").asDouble(), b.get("loss").asDouble(), TOLERANCE);
        }
        assertEquals(6, host.get("sample").asText().length());
        assertEquals(host.get("sample").asText(), gpus.get("sample").asText());
    }

    private JsonNode evaluated(String more) throws Exception {
        losses(more);
        return new ObjectMapper()
                .readTree(output.resolve("run.json").toFile())
                .at("/jccl_train/runs/0");
    }

    @Tag("exhaustive")
    @Test
    void comparesWithTheCpu() throws Exception {
        Path json = output.resolve("compare.json");
        Result r =
                FAKES.jccl(
                        Map.of(),
                        Stream.concat(
                                        Stream.of((MODEL + "2 --device cuda").split(" +")),
                                        Stream.of("--compare", "single", "-J", "" + json))
                                .toArray(String[]::new));
        assertEquals(0, r.status(), r::toString);
        JsonNode runs = new ObjectMapper().readTree(json.toFile()).at("/jccl_train/runs");
        assertEquals(2, runs.size(), r::toString);
        assertTrue(runs.get(0).get("engine").asText().startsWith("host"), r::toString);
        assertEquals("nccl", runs.get(1).get("engine").asText());
        r.has("single, cuda");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "--engine host | --engine is host, but --device cuda uses NCCL",
                "--hidden 512 --heads 2 | is 256 for each head, but with --device cuda it is at"
                        + " most 128; give more --heads",
                "--dp 64 --batch 64 | a rank of this machine needs GPU"
            })
    void whatIsNotThereIsRefused(String more, String message) throws Exception {
        Result r = jccl(Map.of(), OF_ANY_SIZE + "--device cuda " + more);
        assertEquals(2, r.status(), r::toString);
        r.has(message);
        assertFalse(r.text().contains("\tat "), r::toString);
    }

    @Test
    void withoutAGpuTheCpuIsNamed() throws Exception {
        Result r = jccl(Map.of("JCCL_FAKE_DEVICES", "0"), MODEL + "1 --device cuda");
        assertEquals(2, r.status(), r::toString);
        r.has("--device is cuda, but this process sees no GPU; use --device host");
    }

    private static final String FAULTY = "train --device cuda --layers 2 --heads 4 --steps 2";

    /** What goes wrong on a GPU ends the run with its name. */
    @Test
    void aFaultOfCublasIsNamed() throws Exception {
        String line = FAULTY + " --hidden 8";
        assertFails(
                FAKES.injected("cublasGemmEx@0:3:error=13", line.split(" +")),
                "CUBLAS_STATUS_EXECUTION_FAILED");
    }

    @Tag("exhaustive")
    @Test
    void aFullDeviceIsNamed() throws Exception {
        assertFails(
                jccl(
                        Map.of("JCCL_FAKE_MEMORY", "67108864"),
                        FAULTY + " --hidden 256 --batch 64 --context 32"),
                "no memory on cuda:0 for a buffer of");
    }

    private static void assertFails(Result r, String message) {
        assertEquals(1, r.status(), r::toString);
        r.has(message);
        assertFalse(r.text().contains("\tat "), r::toString);
    }

    /** Nothing is left of the files of a drive. */
    @Test
    void aDriveIsLeftClean() throws Exception {
        losses("--device cuda --offload nvme --nvme " + output);
        try (Stream<Path> left = Files.list(output)) {
            assertEquals(List.of("run.json"), left.map(p -> "" + p.getFileName()).toList());
        }
    }
}
