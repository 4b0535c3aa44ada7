package io.jccl.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CarriedFileTest {
    /** More than a piece of the file, nothing, and a few bytes. */
    private final List<Buffer> saved =
            List.of(buffer(DataType.FLOAT32, 300_000), buffer(DataType.FLOAT32, 0), one());

    private final List<Buffer> loaded =
            List.of(buffer(DataType.FLOAT32, 300_000), buffer(DataType.FLOAT32, 0), one());

    @TempDir private Path folder;

    private Path file = Path.of("");

    private static Buffer buffer(DataType type, long count) {
        return Device.host().allocate(type, count);
    }

    private static Buffer one() {
        return buffer(DataType.INT64, 1);
    }

    @BeforeEach
    void save() throws IOException {
        file = CarriedFile.in(folder, 1, 4);
        for (long i = 0; i < saved.getFirst().count(); i++) {
            saved.getFirst().set(i, i * 0.5);
        }
        saved.getLast().setLong(0, 77);
        CarriedFile.save(file, saved);
    }

    @AfterEach
    void close() {
        saved.forEach(Buffer::close);
        loaded.forEach(Buffer::close);
    }

    @Test
    void loadsWhatWasSaved() throws IOException {
        CarriedFile.load(file, loaded);
        for (int i = 0; i < saved.size(); i++) {
            assertEquals(-1, saved.get(i).asSegment().mismatch(loaded.get(i).asSegment()));
        }
        assertEquals("carried-1-of-4.state", file.getFileName().toString());
    }

    @Test
    void otherBuffersAreRefused() {
        IOException e =
                assertThrows(IOException.class, () -> CarriedFile.load(file, loaded.subList(0, 2)));
        assertTrue(
                e.toString().contains("is damaged: it has 1200016 bytes, expected 1200008"),
                e::toString);
    }

    @Test
    void aChangedByteIsNoticed() throws IOException {
        for (int at : new int[] {0, 1_100_000, 1_200_007, 1_200_015}) {
            byte[] bytes = Files.readAllBytes(file);
            bytes[at] ^= 4;
            Files.write(file, bytes);
            IOException e = assertThrows(IOException.class, () -> CarriedFile.load(file, loaded));
            assertTrue(e.toString().contains("is damaged: its checksum is wrong"), e::toString);
            bytes[at] ^= 4;
            Files.write(file, bytes);
        }
        CarriedFile.load(file, loaded);
    }
}
