package io.jccl.cli.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.Main;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
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

@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PlanTimeTest {
    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    @TempDir private Path folder;

    private int execute(String line) {
        return Main.execute(
                ("plan " + line).trim().split(" +"), new PrintWriter(out), new PrintWriter(err));
    }

    private JsonNode json(String line) throws IOException {
        out.getBuffer().setLength(0);
        assertEquals(0, execute(line + " --json"), err::toString);
        return new ObjectMapper().readTree(out.toString());
    }

    /** All parts of a step are on the page, and add up to it. */
    @ParameterizedTest
    @CsvSource({
        "--model llama3-8b --machine H100x8 --zero 2 --context 8192",
        "--model llama3-70b --machine H100x8 --nodes 4 --tp 4 --pp 2 --accumulate 8 --zero 1",
        "--model mixtral-8x7b --machine A100x8 --nodes 4 --ep 8 --zero 3 --context 4096",
        "--model llama3-8b --machine H200x8 --cp 8 --context 131072",
        "--model deepseek-v3 --machine B200x8 --nodes 32 --pp 8 --ep 32 --zero 1 --precision fp8"
                + " --attention flash3 --system megatron --accumulate 8",
        "--model gpt3-13b --machine V100x8 --precision fp16 --zero 3 --offload host --recompute full"
    })
    void partsAddUp(String line) throws IOException {
        JsonNode report = json(line);
        JsonNode time = report.get("time");
        double parts =
                time.get("compute_seconds").asDouble()
                        + time.get("bubble_seconds").asDouble()
                        + time.get("update_seconds").asDouble();
        double hidden = 0;
        for (JsonNode t : time.get("transfers")) {
            double exposed = t.get("exposed_seconds").asDouble();
            assertTrue(exposed <= t.get("seconds").asDouble() * (1 + 1e-9), t::toString);
            parts += exposed;
            hidden += t.get("seconds").asDouble() - exposed;
        }
        double step = time.get("step_seconds").asDouble();
        assertEquals(step, parts, 1e-9 * step);
        assertTrue(hidden > 0 || line.contains("tp 4"), line);
        double tokens =
                report.at("/compute/batch").asDouble() * report.at("/model/sequence").asDouble();
        assertEquals(tokens / step, time.get("tokens_per_second").asDouble(), 1e-6 * tokens / step);
        assertTrue(time.get("mfu").asDouble() > 0 && time.get("mfu").asDouble() < 0.75, line);
        assertEquals(0, execute(line));
        assertTrue(out.toString().contains("tokens/s"), out::toString);
    }

    /** The machine's memory and number of GPUs are the plan's, unless options say otherwise. */
    @Test
    void machineGivesMemory() throws IOException {
        JsonNode of = json("--model gpt2-1.5b --machine 3090x2").get("machine");
        assertEquals(2, of.get("gpus").asInt());
        assertEquals(24L << 30, of.get("device_bytes").asLong());
        JsonNode half =
                json("--model gpt2-1.5b --machine A100x8 -g 4 --device-memory 40G").get("machine");
        assertEquals(4, half.get("gpus").asInt());
        assertEquals(40L << 30, half.get("device_bytes").asLong());
    }

    /** nvidia-smi's matrix of a DGX-1 and the name V100x8 are the same links. */
    @Test
    void matrix() throws IOException {
        String common = "--model gpt2-1.5b --precision fp16 --machine ";
        double file =
                json(common + Path.of("..", "docs", "examples", "dgx-1.txt"))
                        .at("/time/step_seconds")
                        .asDouble();
        double name = json(common + "V100x8").at("/time/step_seconds").asDouble();
        assertEquals(name, file, 0.01 * name);
        assertEquals(0, execute(common + Path.of("..", "docs", "examples", "dgx-1.txt")));
        assertTrue(out.toString().contains("--gpu-type"), "the guess is noted");
    }

    private Path pair(String model) throws IOException {
        return Files.writeString(
                folder.resolve("pair.txt"),
                """
                GPU 0: NAME (UUID: GPU-0)
                GPU 1: NAME (UUID: GPU-1)
                \tGPU0\tGPU1
                GPU0\t X \tPHB
                GPU1\tPHB\t X
                """
                        .replace("NAME", model));
    }

    @Test
    void manyMicroBatches() throws IOException {
        // 64 layers times this number is 2^32.
        String offloaded =
                "--layers 64 --hidden 128 --heads 1 --offload-parameters host --machine H100x1"
                        + " --accumulate ";
        double fewer = json(offloaded + 67_108_863).at("/time/step_seconds").asDouble();
        double step = json(offloaded + 67_108_864).at("/time/step_seconds").asDouble();
        assertEquals(1, step / fewer, 1e-6);
        assertEquals(
                2,
                execute(
                        "--model megatron-1t --zero 3 -g 8 --machines 128 --machine H100x8"
                                + " --accumulate 100000000"));
        assertTrue(err.toString().contains("cannot be predicted; give fewer micro-batches"));
    }

    /** A named GPU is that one, or the user says which; one without a name is noted as a guess. */
    @Test
    void theFilesGpuIsNotTakenForAnother() throws IOException {
        String common = "--model gpt2-124m --precision fp16 -g 1 --machine ";
        JsonNode named = json(common + pair("Tesla V100-SXM2-16GB"));
        assertEquals(16L << 30, named.at("/machine/device_bytes").asLong());
        assertEquals(0, execute(common + folder.resolve("pair.txt")));
        assertFalse(out.toString().contains("Note:"), out::toString);
        assertEquals(2, execute(common + pair("NVIDIA A10G")));
        assertTrue(err.toString().contains("NVIDIA A10G, is not known; give --gpu-type"));
        assertEquals(0, execute(common + pair("NVIDIA A10G") + " --gpu-type A10"), err::toString);
        Path xml =
                Files.writeString(
                        folder.resolve("topology.xml"),
                        """
                        <system version="1">
                          <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="33">
                            <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
                              <gpu dev="0" sm="86" rank="0" gdr="0"/>
                            </pci>
                          </cpu>
                        </system>
                        """);
        assertEquals(0, execute(common + xml), err::toString);
        String note =
                "Note: the GPUs are taken to be 3090, the usual ones of compute capability 8.6;"
                        + " name them with --gpu-type";
        assertTrue(out.toString().contains(note), out::toString);
        out.getBuffer().setLength(0);
        assertEquals(0, execute(common + xml + " --gpu-type A10"), err::toString);
        assertFalse(out.toString().contains("Note:"), out::toString);
    }

    /** Windows PowerShell redirects in UTF-16, and a shell's {@code <(...)} is a pipe. */
    @Test
    void matrixInUtf16AndFromAPipe() throws IOException, InterruptedException {
        String text = Files.readString(Path.of("..", "docs", "examples", "dgx-1.txt"));
        String common = "--model gpt2-1.5b --precision fp16 -g 1 --machine ";
        Path wide = Files.writeString(folder.resolve("wide.txt"), text, StandardCharsets.UTF_16);
        JsonNode time = json(common + wide).get("time");
        Path pipe = folder.resolve("pipe");
        Process mkfifo = new ProcessBuilder("mkfifo", pipe.toString()).start();
        assumeFalse(mkfifo.waitFor() != 0, "there is no mkfifo");
        Thread writer =
                Thread.startVirtualThread(() -> {
                    try {
                        Files.writeString(pipe, text);
                    } catch (IOException e) {
                        throw new UncheckedIOException(e);
                    }
                });
        assertEquals(time, json(common + pipe).get("time"));
        writer.join();
    }

    /** The ranks of a probed CPU share its memory. */
    @Test
    void probedMemoryIsShared() throws IOException {
        String measured =
                "{'status':'measured','timing':{'median_seconds':0.01,'min_seconds':0.01,"
                        + "'max_seconds':0.01,'batches':1,'operations':1,'steady':true}}";
        String text =
                ("{'schema':1,'machine':{'available_cpus':4,'memory_bytes':24000000000},"
                                + "'device':{'kind':'host','index':0,'threads':1},'gpus':[],"
                                + "'elementwise':[{'operation':'adam','elements':4096,"
                                + "'gigabytes_per_second':4,'outcome':M}],"
                                + "'all_reduce':[{'engine':'host','ranks':2,'bytes':8,'outcome':M,"
                                + "'bus_gigabytes_per_second':1}],"
                                + "'layers':[{'hidden':128,'forward_flops':1e9,'forward':M,'backward':M}],"
                                + "'roofline':{}}")
                        .replace("M", measured)
                        .replace('\'', '"');
        Path file = Files.writeString(folder.resolve("probe.json"), text);
        String line = "--layers 2 --hidden 128 --precision fp32 --machine " + file;
        JsonNode two = json(line + " -g 2").get("machine");
        assertEquals(12_000_000_000L, two.get("device_bytes").asLong());
        JsonNode all = json(line).get("machine");
        assertEquals(4, all.get("gpus").asInt());
        assertEquals(6_000_000_000L, all.get("device_bytes").asLong());
        assertEquals(2, execute(line + " --gpu-type A10"));
        assertTrue(err.toString().contains("is of a CPU"), err::toString);
    }

    /** The first copy is of one layer; further copies beside it make no step faster. */
    @Test
    void moreCopiesAreNotFaster() throws IOException {
        String line =
                "--model llama3-8b --machine H100x1 --micro-batch 4 --accumulate 4 --zero 0"
                        + " --recompute full --offload-parameters host";
        JsonNode some = json(line).get("time");
        JsonNode more = json(line + " --offload-activations host").get("time");
        double before = some.get("step_seconds").asDouble();
        double after = more.get("step_seconds").asDouble();
        assertTrue(after >= before, after + " after " + before);
        for (JsonNode copy : more.get("transfers")) {
            double part = copy.get("exposed_seconds").asDouble() / copy.get("seconds").asDouble();
            assertTrue(part < 0.02, copy::toString);
        }
    }

    @Test
    void withoutOverlapItIsSlower() throws IOException {
        String line = "--model llama3-8b --machine A100x8 --zero 3";
        double with = json(line).at("/time/step_seconds").asDouble();
        JsonNode without = json(line + " --no-overlap").get("time");
        assertTrue(without.get("step_seconds").asDouble() > with);
        assertEquals(0, without.get("communication_hidden_seconds").asDouble(), 1e-12);
    }

    /** What no GPU holds alone, a long sample's tokens among them, is found split. */
    @Tag("exhaustive")
    @Test
    void searchSplitsLongContextsAndExperts() throws IOException {
        JsonNode all = json("--model llama3-8b --machine H100x8 --context 131072 --search");
        assertTrue(all.get("combinations").asInt() > 5000);
        assertEquals(all.at("/ranking/0/pareto").asBoolean(), true);
        int context = 0;
        for (JsonNode one : all.get("ranking")) {
            context += one.at("/techniques/context").asInt() > 1 ? 1 : 0;
        }
        assertTrue(context > 1000, () -> all.at("/ranking/0").toString());
        assertTrue(all.get("ranking").size() >= 5000);
        assertTrue(all.get("ranking").size() < all.get("combinations").asInt());
    }

    /** With adapters alone the same fits in less, and a step takes less. */
    @Test
    void adapters() throws IOException {
        String line = "--model llama3-8b --machine A100x8 --zero 3";
        JsonNode whole = json(line);
        JsonNode adapted = json(line + " --lora 64");
        assertEquals(
                whole.at("/model/parameters").asLong(), whole.get("trained_parameters").asLong());
        assertEquals(64, adapted.get("lora_rank").asInt());
        // 32 layers, the sums of rows and columns of their seven matrices.
        long sum = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336);
        assertEquals(64 * 32 * sum, adapted.get("trained_parameters").asLong());
        double before = whole.at("/time/step_seconds").asDouble();
        double after = adapted.at("/time/step_seconds").asDouble();
        assertTrue(after < 0.85 * before, () -> after + " after " + before);
        assertEquals(0, execute(line + " --lora 8 --lora-matrices qv"));
        assertTrue(out.toString().contains("queries and values, rank 8"), out::toString);
        assertEquals(2, execute(line + " --lora -1"));
        assertEquals(2, execute(line + " --lora 8 --lora-matrices some"));
        assertTrue(err.toString().contains("'some'"), err::toString);
    }

    /** The fastest first; none of the front is both slower and larger than another one. */
    @Tag("exhaustive")
    @Test
    void search() throws IOException {
        Path page = folder.resolve("speed.html");
        String line = "--model llama3-8b --machine A100x8 --search --html " + page;
        JsonNode ranking = json(line).get("ranking");
        int n = ranking.size();
        double[] seconds = new double[n];
        long[] bytes = new long[n];
        for (int i = 0; i < n; i++) {
            seconds[i] = ranking.get(i).at("/time/step_seconds").asDouble();
            bytes[i] = ranking.get(i).get("device_bytes").asLong();
            assertTrue(i == 0 || seconds[i] >= seconds[i - 1]);
        }
        int front = 0;
        for (int i = 0; i < n; i++) {
            boolean beaten = false;
            for (int j = 0; j < n; j++) {
                beaten |= seconds[j] < seconds[i] && bytes[j] < bytes[i];
            }
            boolean pareto = ranking.get(i).get("pareto").asBoolean();
            front += pareto ? 1 : 0;
            assertFalse(beaten && pareto, ranking.get(i)::toString);
        }
        assertTrue(front > 1 && front < ranking.size(), front + " of " + ranking.size());
        String html = Files.readString(page);
        // A point for each combination, and the front's again on its line.
        int circles = html.split("<circle ", -1).length - 1;
        assertEquals(ranking.size() + Math.min(front, 60), circles, 1 + front);
        assertTrue(circles >= ranking.size());
        assertTrue(html.contains("Pareto front"));
    }

    /** Ranks that split the model accumulate as many more micro-batches as they are. */
    @Test
    void searchWithManyMicroBatches() throws IOException {
        JsonNode ranking =
                json("--model gpt2-124m --machine H100x8 -g 2 --host-memory 0 --search"
                                + " --accumulate 1000000")
                        .get("ranking");
        int split = 0;
        for (JsonNode one : ranking) {
            split += one.at("/techniques/tensor").asInt() > 1 ? 1 : 0;
        }
        assertTrue(split > 0);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "--model llama3-8b --machine H100x8 -g 16|H100x8 has 8 GPUs, and 16",
                "--model llama3-8b --machine X100x8|GPU type 'X100' is unknown, expected one of",
                "--model llama3-8b --machine nowhere.txt|neither a file nor GPUs such as H100x8",
                "--model llama3-8b --machine V100x8|V100 has no bf16 in hardware; give --precision",
                "--model llama3-8b --machine A100x8 --precision fp8|A100 has no fp8 in hardware; give",
                "--model llama3-8b --machine 3090x2 --nodes 2 --zero 3|has no NIC",
                "--model llama3-8b --nic-gbit 100|add --machine",
                "--model llama3-8b --machine H100x0|has 0 GPUs, expected 1 to 400",
                "--model llama3-8b --machine H100x498|has 498 GPUs, expected 1 to 400",
                "--model llama3-8b --machine H100x8 --gpu-type A100|--gpu-type is for a file",
                "--model llama3-8b --machine H100x8 --nic-gbit -5|--nic-gbit is -5.0, expected 0.001",
                "--model llama3-8b --machine H100x8 --host-gbps NaN|--host-gbps is NaN, expected",
                "--model llama3-8b --machine H100x8 --host-gbps 1e-300|--host-gbps is 1.0E-300,",
                "--model llama3-8b --machine H100x8 --nvme-read-gbps -1|--nvme-read-gbps is -1.0,",
                "--model llama3-8b --machine H100x8 --nvme-write-gbps 1e7|expected 0.001 to 1000000;",
                "--model llama3-8b --machine H100x8 --html x.html|add --search and --machine",
                "--machine H100x8 --search|no model is given"
            })
    void wrongInput(String line, String message) {
        assertEquals(2, execute(line));
        assertTrue(err.toString().contains(message), err::toString);
    }

    @Test
    void probeWithoutFigures() throws IOException {
        Path file = Files.writeString(folder.resolve("probe.json"), "{\"schema\": 1}");
        assertEquals(2, execute("--model gpt2-124m --machine " + file));
        assertTrue(err.toString().contains("probe.json"), err::toString);
    }
}
