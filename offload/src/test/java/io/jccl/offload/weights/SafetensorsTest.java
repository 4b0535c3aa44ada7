package io.jccl.offload.weights;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Files of the format's own library, and what is wrong with files. */
class SafetensorsTest {
    /** Made by src/test/python/make_safetensors.py. */
    private static final Path MADE = Path.of("src/test/resources/safetensors");

    @TempDir private Path folder;

    private static Buffer buffer(float... values) {
        return Buffer.wrap(MemorySegment.ofArray(values), DataType.FLOAT32);
    }

    private static float[] read(Safetensors in, String name) throws IOException {
        float[] values = new float[(int) in.tensor(name).count()];
        in.read(name, 0, buffer(values));
        return values;
    }

    private static float[] ramp() {
        float[] values = new float[24];
        for (int i = 0; i < values.length; i++) {
            values[i] = i / 8f - 1;
        }
        return values;
    }

    @Test
    void readsWhatPythonWrote() throws IOException {
        try (Safetensors in = Safetensors.open(MADE, "types.safetensors")) {
            assertEquals("made by make_safetensors.py", in.metadata().get("note"));
            for (String name : List.of("f32", "f16", "bf16")) {
                assertArrayEquals(ramp(), read(in, name), name);
            }
            assertEquals(
                    new WeightTensor("f16", WeightType.F16, List.of(2L, 3L, 4L)), in.tensor("f16"));
            assertEquals(2.5f, read(in, "scalar")[0]);
            assertEquals(0, in.tensor("empty").count());
            assertEquals(1, read(in, "gr\u00f6\u00dfe \"1\"")[0]);
            long[] whole = new long[2];
            in.read("i64", 0, Buffer.wrap(MemorySegment.ofArray(whole), DataType.INT64));
            assertArrayEquals(new long[] {-3, 1L << 40}, whole);
            assertEquals(WeightType.BOOL, in.tensor("truth").type());
            float[] some = new float[5];
            in.read("bf16", 7, buffer(some));
            assertArrayEquals(java.util.Arrays.copyOfRange(ramp(), 7, 12), some);
            Buffer five = buffer(some);
            assertThrows(IndexOutOfBoundsException.class, () -> in.read("bf16", 20, five));
        }
    }

    @Test
    void readsSeveralFilesByTheirIndex() throws IOException {
        try (Safetensors in = Safetensors.open(MADE, "model.safetensors")) {
            assertEquals(Set.of("first", "second"), in.names());
            assertArrayEquals(new float[] {1.5f, 1.5f, 1.5f, 1.5f}, read(in, "first"));
            assertArrayEquals(new float[] {-2, -2, -2}, read(in, "second"));
        }
    }

    @ParameterizedTest
    @CsvSource({"F32,0", "BF16,1e-2", "F16,1e-3"})
    void writesAndReads(WeightType type, double tolerance) throws IOException {
        float[] values = new float[40_000];
        for (int i = 0; i < values.length; i++) {
            values[i] = (float) Math.sin(i);
        }
        List<WeightTensor> tensors =
                List.of(
                        new WeightTensor("a", type, List.of(200L, 200L)),
                        new WeightTensor("b \\ \"", WeightType.F32, List.of(1L)));
        Path file = folder.resolve("w.safetensors");
        for (int again = 0; again < 2; again++) {
            SafetensorsWriter.write(
                    file,
                    Map.of("format", "pt"),
                    tensors,
                    t -> t.name().equals("a") ? buffer(values) : buffer(7));
        }
        try (Safetensors in = Safetensors.open(file)) {
            float[] found = read(in, "a");
            for (int i = 0; i < values.length; i++) {
                assertEquals(values[i], found[i], tolerance * Math.abs(values[i]), "element " + i);
            }
            assertArrayEquals(new float[] {7}, read(in, "b \\ \""));
        }
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(file), left.toList());
        }
    }

    @Test
    void aFailedWriteLeavesTheOldFile() throws IOException {
        Path file = folder.resolve("w.safetensors");
        List<WeightTensor> one = List.of(new WeightTensor("a", WeightType.F32, List.of(2L)));
        SafetensorsWriter.write(file, Map.of(), one, t -> buffer(1, 2));
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> SafetensorsWriter.write(file, Map.of(), one, t -> buffer(3)));
        assertTrue(String.valueOf(e.getMessage()).contains("tensor a has 2 elements of F32"));
        try (Safetensors in = Safetensors.open(file)) {
            assertArrayEquals(new float[] {1, 2}, read(in, "a"));
        }
        assertFalse(Files.exists(folder.resolve("w.safetensors.part")));
    }

    @Test
    void cutAnywhereItIsRefused() throws IOException {
        byte[] whole = Files.readAllBytes(MADE.resolve("types.safetensors"));
        Path file = folder.resolve("cut.safetensors");
        for (int n = 0; n < whole.length; n++) {
            Files.write(file, java.util.Arrays.copyOf(whole, n));
            IOException e = assertThrows(IOException.class, () -> Safetensors.open(file).close());
            assertTrue(String.valueOf(e.getMessage()).contains("cut"), e::toString);
        }
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '\'',
            value = {
                "{'x':{'dtype':'F32','shape':[2],'data_offsets':[0,4]}}|tensor x lies at 0 to 4",
                "{'x':{'dtype':'F32','shape':[1],'data_offsets':[4,8]}}|tensor x begins at byte 4",
                "{'x':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},"
                        + "'y':{'dtype':'F32','shape':[1],'data_offsets':[2,6]}}|tensor y begins at"
                        + " byte 2 of the data, within the tensor before it",
                "{'x':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}|4 bytes follow the last",
                "{'x':{'dtype':'F32','shape':[3],'data_offsets':[0,12]}}|tensor x ends at byte 12",
                "{'x':{'dtype':'F31','shape':[1],'data_offsets':[0,4]}}|tensor x is of type F31",
                "{'x':{'dtype':'F32','shape':[-1],'data_offsets':[0,4]}}|tensor x has the shape",
                "{'x':{'dtype':'F32','shape':[4611686018427387904,4],'data_offsets':[0,0]}}|tensor"
                        + " x has the shape",
                "{'x':{'dtype':'F32','shape':[2.5],'data_offsets':[0,8]}}|an integer for x",
                "{'x':{'dtype':'F32','shape':[2]}}|tensor x lacks",
                "{'x':{'dtype':'F32','shape':[2],'data_offsets':[0,8]},"
                        + "'x':{'dtype':'F32','shape':[2],'data_offsets':[0,8]}}|Duplicate field 'x'",
                "[1]|an object",
                "{'x':}|not the JSON",
            })
    void badHeaders(String header, String expected) throws IOException {
        byte[] text = header.replace('\'', '"').getBytes(StandardCharsets.UTF_8);
        Path file = write(text.length, text, 8);
        IOException e = assertThrows(IOException.class, () -> Safetensors.open(file).close());
        String message = String.valueOf(e.getMessage()).replace('"', '\'');
        assertTrue(message.contains(expected), message);
        assertTrue(message.contains(file.toString()), message);
    }

    private Path write(long length, byte[] text, int data) throws IOException {
        ByteBuffer all = ByteBuffer.allocate(8 + text.length + data).order(ByteOrder.LITTLE_ENDIAN);
        return Files.write(
                folder.resolve("bad.safetensors"), all.putLong(length).put(text).array());
    }

    /** Types that buffers do not have leave the other tensors of a file to be read. */
    @ParameterizedTest
    @CsvSource({"F8_E8M0,1", "F8_E4M3FNUZ,1", "F8_E5M2FNUZ,1", "C64,8", "U16,2"})
    void aTensorOfAnotherTypeBesideOthers(String type, int size) throws IOException {
        int end = 3 * size;
        byte[] text =
                ("{'x':{'dtype':'%s','shape':[3],'data_offsets':[0,%s]},"
                                + "'y':{'dtype':'F32','shape':[2],'data_offsets':[%s,%s]}}")
                        .formatted(type, end, end, end + 8)
                        .replace('\'', '"')
                        .getBytes(StandardCharsets.UTF_8);
        Path file = write(text.length, text, end + 8);
        try (Safetensors in = Safetensors.open(file)) {
            assertEquals(type, in.tensor("x").type().name());
            assertArrayEquals(new float[2], read(in, "y"));
            names("tensor x is of type " + type, () -> read(in, "x"));
        }
    }

    @Test
    void aHeaderThatIsTooLargeIsNotAllocated() throws IOException {
        for (long length : new long[] {100_000_001, Long.MAX_VALUE, -1, 0}) {
            Path file = write(length, new byte[0], 8);
            IOException e = assertThrows(IOException.class, () -> Safetensors.open(file).close());
            assertTrue(
                    String.valueOf(e.getMessage()).contains(Long.toUnsignedString(length)),
                    e.getMessage());
        }
    }

    @Test
    void wrongRequestsNameTheTensor() throws IOException {
        try (Safetensors in = Safetensors.open(MADE, "types.safetensors")) {
            names("no tensor f64", () -> in.tensor("f64"));
            names(
                    "tensor f32 has the shape [4, 6], expected [6, 4]",
                    () -> in.expect("f32", List.of(6L, 4L)));
            names("tensor i64 is of type I64", () -> in.expect("i64", List.of(2L)));
            names("tensor truth is of type BOOL", () -> in.read("truth", 0, buffer(1)));
            Buffer narrow = Buffer.wrap(MemorySegment.ofArray(new short[1]), DataType.BFLOAT16);
            names("F32, and the buffer holds bfloat16", () -> in.read("f32", 0, narrow));
        }
    }

    @Test
    void anIndexIsChecked() throws IOException {
        Files.copy(
                MADE.resolve("model-00001-of-00002.safetensors"), folder.resolve("a.safetensors"));
        Path index = folder.resolve("m.safetensors.index.json");
        String[][] cases = {
            {"{'weight_map':{'third':'a.safetensors'}}", "tensor third in"},
            {"{'weight_map':{'first':'../a.safetensors'}}", "tensor first in '../a.safetensors'"},
            {"{'weight_map':{'first':'b.safetensors'}}", "b.safetensors"},
            {"{'weight_map':{'first':'a\\u0000b'}}", "expected the name of a file"},
            {"{'weight_map':{'first':null}}", "tensor first in VALUE_NULL"},
            {"{'weight_map':{'first':7}}", "tensor first in VALUE_NUMBER_INT"},
            {"{'weight_map':{'first':{}}}", "tensor first in START_OBJECT"},
            {"{'metadata':{}}", "no weight_map"},
            {"{'weight_map'", "not the JSON"},
        };
        for (String[] c : cases) {
            Files.writeString(index, c[0].replace('\'', '"'));
            names(c[1], () -> Safetensors.open(folder, "m.safetensors").close());
        }
        SafetensorsWriter.writeIndex(index, Map.of("first", "a.safetensors"), 16);
        try (Safetensors in = Safetensors.open(folder, "m.safetensors")) {
            assertEquals(1.5f, read(in, "first")[0]);
        }
        // As transformers does: an index that was left there is not read.
        Files.copy(
                MADE.resolve("model-00002-of-00002.safetensors"), folder.resolve("m.safetensors"));
        try (Safetensors in = Safetensors.open(folder, "m.safetensors")) {
            assertEquals(Set.of("second"), in.names());
        }
    }

    /** As a download or a copy over the file does first. */
    @ParameterizedTest
    @CsvSource({"F16", "BF16", "F32"})
    void aFileThatIsCutWhileItIsOpen(WeightType type) throws IOException {
        Path file = folder.resolve("w.safetensors");
        float[] values = new float[40_000];
        List<WeightTensor> tensors =
                List.of(
                        new WeightTensor("a", type, List.of(100L)),
                        new WeightTensor("b", type, List.of(39_900L)));
        SafetensorsWriter.write(file, Map.of(), tensors, t -> buffer(values).slice(0, t.count()));
        try (Safetensors in = Safetensors.open(file)) {
            read(in, "b");
            try (FileChannel c = FileChannel.open(file, StandardOpenOption.WRITE)) {
                c.truncate(4096);
            }
            read(in, "a");
            names(file + ": tensor b cannot be read: the file was cut", () -> read(in, "b"));
        }
    }

    @Test
    void anInterruptedThreadReads() throws IOException {
        try (Safetensors in = Safetensors.open(MADE, "types.safetensors")) {
            Thread.currentThread().interrupt();
            assertArrayEquals(ramp(), read(in, "f16"));
            assertTrue(Thread.interrupted());
            assertArrayEquals(ramp(), read(in, "f16"));
        }
    }

    @Test
    void aClosedFileIsNotRead() throws IOException {
        Safetensors in = Safetensors.open(MADE, "types.safetensors");
        in.close();
        Exception e = assertThrows(IllegalStateException.class, () -> read(in, "f16"));
        assertTrue(String.valueOf(e.getMessage()).endsWith("types.safetensors is closed"));
    }

    @Test
    void aFolderIsNotAFile() {
        names(folder + " is a folder", () -> Safetensors.open(folder).close());
    }

    @Test
    void aTensorIsNotNamedAsTheMetadata() {
        List<WeightTensor> one =
                List.of(new WeightTensor("__metadata__", WeightType.F32, List.of(1L)));
        Path file = folder.resolve("w.safetensors");
        assertThrows(
                IllegalArgumentException.class,
                () -> SafetensorsWriter.write(file, Map.of(), one, t -> buffer(1)));
        assertFalse(Files.exists(file));
    }

    private static void names(String expected, org.junit.jupiter.api.function.Executable call) {
        IOException e = assertThrows(IOException.class, call);
        assertTrue(String.valueOf(e.getMessage()).contains(expected), e::toString);
    }
}
