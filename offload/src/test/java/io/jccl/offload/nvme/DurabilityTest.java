package io.jccl.offload.nvme;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.offload.Budgets;
import io.jccl.offload.weights.SafetensorsWriter;
import io.jccl.offload.weights.WeightTensor;
import io.jccl.offload.weights.WeightType;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What is flushed, in which order: nothing else notices a missing flush while the power is on. */
@Tag("exhaustive")
@Timeout(value = 60, unit = TimeUnit.SECONDS)
class DurabilityTest {
    @TempDir private Path folder;

    /** Flushes in the test's folder, by names; the folder itself has an empty one. */
    private List<String> flushed(Runnable work) throws IOException {
        Path real = folder.toRealPath();
        Path file = Files.createTempFile("jccl-flushed", ".jfr");
        try (Recording recording = new Recording()) {
            recording
                    .enable("jdk.FileForce")
                    .withThreshold(Duration.ZERO)
                    .with("throttle", "off")
                    .withoutStackTrace();
            recording.start();
            work.run();
            recording.stop();
            recording.dump(file);
            return RecordingFile.readAllEvents(file).stream()
                    .sorted(Comparator.comparing(RecordedEvent::getStartTime))
                    .map(e -> Path.of(e.getString("path")).toAbsolutePath())
                    .filter(p -> p.startsWith(real))
                    .map(p -> real.relativize(p).toString())
                    .toList();
        } finally {
            Files.delete(file);
        }
    }

    @Test
    void aCommitFlushesTheDataThenTheManifestThenItsName() throws IOException {
        try (NvmeStore store = NvmeStore.open(folder, new Budgets(Map.of()), NvmeStoreTest.SMALL);
                Buffer values = Device.host().allocate(DataType.FLOAT32, 5000)) {
            Region region = store.region("r", DataType.FLOAT32, values.count());
            region.write(values).await(NvmeStoreTest.WAIT);
            assertEquals(List.of("data", "manifest.new", ""), flushed(() -> store.commit(1)));
        }
    }

    @Test
    void weightsAreFlushedBeforeTheirName() throws IOException {
        Path file = folder.toRealPath().resolve("model.safetensors");
        WeightTensor tensor = new WeightTensor("w", WeightType.F32, List.of(8L));
        try (Buffer values = Device.host().allocate(DataType.FLOAT32, 8)) {
            assertEquals(
                    List.of("model.safetensors.part", ""),
                    flushed(() -> {
                        try {
                            SafetensorsWriter.write(file, Map.of(), List.of(tensor), t -> values);
                        } catch (IOException e) {
                            throw new IllegalStateException(e);
                        }
                    }));
        }
    }
}
