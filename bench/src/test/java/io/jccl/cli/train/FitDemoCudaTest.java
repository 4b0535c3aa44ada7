package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.OnFakes;
import io.jccl.cli.OnFakes.Result;
import io.jccl.train.fit.TechniqueSet;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

/** {@code fit-demo --device cuda} on the fakes, whose devices have memory of their own. */
@Timeout(value = 300, unit = TimeUnit.SECONDS)
class FitDemoCudaTest {
    /** Small: the fakes run each thread of a kernel after the other. */
    private static final String MODEL =
            "-g 2 --hidden 32 --context 2 --batch 4 --steps 2 --lr 0.01 ";

    @RegisterExtension static final OnFakes FAKES = new OnFakes();

    @TempDir Path folder = Path.of("");

    private JsonNode fit(Map<String, String> environment, String line) throws Exception {
        Path json = folder.resolve("fit.json");
        Result r =
                FAKES.jccl(
                        environment,
                        ("fit-demo --device cuda --accumulate 2 " + line + " -J " + json)
                                .split(" +"));
        assertEquals(0, r.status(), r::toString);
        return new ObjectMapper().readTree(json.toFile()).get("jccl_fit_demo");
    }

    private static long largest(JsonNode top, int set) {
        return top.at("/sets/" + set + "/largest_parameters").asLong();
    }

    /** State on the device stops at the cap; on the host and the drive it leaves room for more. */
    @Test
    void theCapOfDeviceMemoryStopsThePlainModelFirst() throws Exception {
        JsonNode top =
                fit(
                        Map.of(),
                        MODEL
                                + "--max-blocks 2 --device-memory 380K --only"
                                + " plain,no-nvme-offload");
        assertEquals("nccl", top.get("engine").asText());
        assertEquals("jccl fake 0", top.get("device").asText());
        JsonNode plain = top.at("/sets/0");
        assertEquals(1, plain.at("/runs/0/blocks").asInt(), plain::toString);
        assertEquals("DEVICE", plain.at("/stopped_by/tier").asText(), plain::toString);
        assertTrue(
                plain.at("/stopped_by/asked_bytes").asLong()
                        > plain.at("/stopped_by/free_bytes").asLong(),
                plain::toString);
        JsonNode offloaded = top.at("/sets/1");
        assertTrue(offloaded.get("stopped_by").isNull(), offloaded::toString);
        assertEquals(2, offloaded.at("/runs/1/blocks").asInt(), offloaded::toString);
        // A block: queries, keys and values, output, and two matrices of four times the width.
        assertEquals(12L * 32 * 32, largest(top, 1) - largest(top, 0));
        for (JsonNode set : top.get("sets")) {
            for (JsonNode run : set.get("runs")) {
                long device = run.get("device_peak_bytes").asLong();
                assertTrue(device > 0 && device <= top.get("device_bytes").asLong(), run::toString);
            }
        }
    }

    /** What {@code cudaMalloc} refuses does not fit either, whatever the cap. */
    @Tag("exhaustive")
    @Test
    void aDeviceThatHasLessThanItsCapStopsTheModelToo() throws Exception {
        // Of which NCCL and cuBLAS take more than half.
        String memory = Long.toString(40L << 20);
        JsonNode top =
                fit(
                        Map.of("JCCL_FAKE_MEMORY", memory),
                        "-g 1 --hidden 128 --context 4 --batch 8 --steps 3 --lr 0.002"
                                + " --device-memory 64M --only plain --max-blocks 8");
        JsonNode set = top.at("/sets/0");
        assertEquals("DEVICE", set.at("/stopped_by/tier").asText(), top::toString);
        // 16 bytes a parameter were there.
        assertTrue(16 * largest(top, 0) < 40L << 20, top::toString);
        assertTrue(largest(top, 0) > 12L * 128 * 128, top::toString);
    }

    @Tag("exhaustive")
    @Test
    void everySetTrains() throws Exception {
        JsonNode top = fit(Map.of(), MODEL + "--max-blocks 1 --device-memory 1M");
        assertEquals(TechniqueSet.SETS.size(), top.get("sets").size());
        for (JsonNode set : top.get("sets")) {
            JsonNode run = set.at("/runs/0");
            assertTrue(
                    run.get("last_loss").asDouble() < run.get("first_loss").asDouble(),
                    set::toString);
            assertEquals(
                    set.get("nvme_offload").asBoolean(),
                    run.get("nvme_peak_bytes").asLong() > 0,
                    set::toString);
        }
    }

    @Tag("exhaustive")
    @Test
    void noGpuIsAMistake() throws Exception {
        Result r = FAKES.jccl(Map.of("JCCL_FAKE_DEVICES", "0"), "fit-demo", "--device", "cuda");
        assertEquals(2, r.status(), r::toString);
        r.has("--device is cuda, but this process sees no GPU");
    }
}
