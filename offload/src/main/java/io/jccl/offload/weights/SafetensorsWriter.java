package io.jccl.offload.weights;

import com.fasterxml.jackson.core.JsonGenerator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.internal.AtomicFile;
import io.jccl.kernel.RowKernel;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * Writes safetensors files and their index. A file is written under another name, forced to the
 * drive and then renamed, so that no reader sees an incomplete file.
 *
 * {@snippet class="snippets.Offload" region="save"}
 *
 * <p><b>Threads:</b> any; each call is independent.
 */
public final class SafetensorsWriter {
    private static final int PIECE = 1 << 14;

    private SafetensorsWriter() {}

    /** Provides elements. */
    @FunctionalInterface
    public interface Source {
        /**
         * The elements of one tensor. Called once for each, in the order of the file.
         *
         * @param tensor the tensor
         * @return its elements in host memory, valid until the next call: of its own type, or
         *     float32 for types BF16, F16 and F32, rounded to nearest even
         * @throws IOException if they cannot be obtained
         */
        Buffer elements(WeightTensor tensor) throws IOException;
    }

    /**
     * Writes a file.
     *
     * @param file the target; an existing file is replaced
     * @param metadata texts by name, such as {@code format}
     * @param tensors in the order in which they are written
     * @param source their elements
     * @throws IOException if writing fails; an existing file is then unchanged
     * @throws IllegalArgumentException if two tensors have the same name, one has that of the
     *     header's metadata, {@code __metadata__}, or elements are of the wrong number or type; the
     *     message names the tensor
     */
    public static void write(
            Path file, Map<String, String> metadata, List<WeightTensor> tensors, Source source)
            throws IOException {
        ByteBuffer header = header(metadata, tensors);
        AtomicFile.write(
                file,
                c -> {
                    AtomicFile.writeAll(c, header);
                    for (WeightTensor t : tensors) {
                        write(c, t, source.elements(t));
                    }
                });
        AtomicFile.force(folder(file));
    }

    private static Path folder(Path file) {
        return Objects.requireNonNull(file.toAbsolutePath().getParent());
    }

    private static ByteBuffer header(Map<String, String> metadata, List<WeightTensor> tensors)
            throws IOException {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        Set<String> names = new HashSet<>();
        try (JsonGenerator out = SafetensorsFile.JSON.createGenerator(text)) {
            out.writeStartObject();
            if (!metadata.isEmpty()) {
                out.writeObjectFieldStart(SafetensorsFile.METADATA);
                for (Map.Entry<String, String> e : metadata.entrySet()) {
                    out.writeStringField(e.getKey(), e.getValue());
                }
                out.writeEndObject();
            }
            long at = 0;
            for (WeightTensor t : tensors) {
                if (t.name().equals(SafetensorsFile.METADATA)) {
                    throw new IllegalArgumentException(
                            "a tensor is named "
                                    + t.name()
                                    + ", which the format has for metadata; choose another name");
                }
                if (!names.add(t.name())) {
                    throw new IllegalArgumentException(
                            "two tensors are named " + t.name() + ", expected names that differ");
                }
                out.writeObjectFieldStart(t.name());
                out.writeStringField("dtype", t.type().name());
                array(out, "shape", t.shape());
                array(out, "data_offsets", List.of(at, at + t.bytes()));
                out.writeEndObject();
                at += t.bytes();
            }
            out.writeEndObject();
        }
        // Data begins at a multiple of 8; the header is padded with spaces.
        while (text.size() % Long.BYTES != 0) {
            text.write(' ');
        }
        return ByteBuffer.allocate(Long.BYTES + text.size())
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(text.size())
                .put(text.toByteArray())
                .flip();
    }

    private static void array(JsonGenerator out, String name, List<Long> values)
            throws IOException {
        out.writeArrayFieldStart(name);
        for (long v : values) {
            out.writeNumber(v);
        }
        out.writeEndArray();
    }

    private static void write(FileChannel c, WeightTensor t, Buffer elements) throws IOException {
        DataType type = t.type().dataType();
        DataType given = elements.dataType();
        boolean converts = t.type().converts() && given == DataType.FLOAT32;
        if (elements.count() != t.count() || (given != type && !converts)) {
            throw new IllegalArgumentException(
                    String.format(
                            "tensor %s has %s elements of %s, but the source gave %s of %s",
                            t.name(), t.count(), t.type(), elements.count(), given.label()));
        }
        MemorySegment from = elements.asSegment();
        long size = t.type().size();
        // Buffers over Java arrays have no memory that a channel can write.
        try (Arena arena = Arena.ofConfined()) {
            float[] piece = new float[given == type ? 0 : PIECE];
            MemorySegment out = arena.allocate(PIECE * size);
            for (long i = 0; i < t.count(); i += PIECE) {
                int n = (int) Math.min(PIECE, t.count() - i);
                if (given == type) {
                    MemorySegment.copy(from, i * size, out, 0, n * size);
                } else {
                    RowKernel.BEST.load(from, given, i, piece, 0, n);
                    RowKernel.BEST.store(piece, 0, out, Objects.requireNonNull(type), 0, n);
                }
                AtomicFile.writeAll(c, out.asSlice(0, n * size).asByteBuffer());
            }
        }
    }

    /**
     * Writes the index of a model in several files.
     *
     * @param file the target, whose name ends in {@link Safetensors#INDEX}
     * @param places for each tensor the name of its file
     * @param bytes size of all tensors
     * @throws IOException if writing fails; an existing file is then unchanged
     */
    public static void writeIndex(Path file, Map<String, String> places, long bytes)
            throws IOException {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        try (JsonGenerator out =
                SafetensorsFile.JSON.createGenerator(text).useDefaultPrettyPrinter()) {
            out.writeStartObject();
            out.writeObjectFieldStart("metadata");
            out.writeNumberField("total_size", bytes);
            out.writeEndObject();
            out.writeObjectFieldStart("weight_map");
            for (Map.Entry<String, String> e : places.entrySet()) {
                out.writeStringField(e.getKey(), e.getValue());
            }
            out.writeEndObject();
            out.writeEndObject();
        }
        text.writeBytes("\n".getBytes(StandardCharsets.US_ASCII));
        AtomicFile.write(file, c -> AtomicFile.writeAll(c, ByteBuffer.wrap(text.toByteArray())));
        AtomicFile.force(folder(file));
    }
}
