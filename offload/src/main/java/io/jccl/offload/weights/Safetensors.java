package io.jccl.offload.weights;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.internal.FileReads;
import io.jccl.kernel.RowKernel;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * Reads tensors from safetensors files: a single file, or several with an index as Hugging Face
 * writes them ({@code model.safetensors.index.json}). Headers are checked when a file is opened;
 * elements are read when they are asked for.
 *
 * <p>Elements are little-endian, like the machines that run this library.
 *
 * {@snippet class="snippets.Offload" region="weights"}
 *
 * <p><b>Threads:</b> any number may read; close it when none does.
 */
public final class Safetensors implements AutoCloseable {
    /** Suffix of a file's name for its index. */
    public static final String INDEX = ".index.json";

    /** Elements read at a time, of up to 8 bytes. */
    private static final int PIECE = 1 << 14;

    private final Path source;
    private final List<SafetensorsFile> opened = new ArrayList<>();
    private final Map<String, SafetensorsFile> files = new LinkedHashMap<>();
    private final Map<String, String> metadata = new LinkedHashMap<>();

    private Safetensors(Path source) {
        this.source = source;
    }

    /**
     * Opens a file or an index.
     *
     * @param file a safetensors file, or an index, whose name ends in {@link #INDEX}; the files it
     *     names are in the same folder
     * @return the tensors of all files
     * @throws NoSuchFileException if a file is missing
     * @throws IOException if a file is truncated or is not in this format, or a tensor is not in
     *     the file that the index names; the message names file and tensor
     */
    public static Safetensors open(Path file) throws IOException {
        Safetensors all = new Safetensors(file);
        try {
            String name = String.valueOf(file.getFileName());
            if (name.endsWith(INDEX)) {
                all.openIndex();
            } else {
                SafetensorsFile f = all.add(file);
                f.entries.keySet().forEach(n -> all.files.put(n, f));
            }
            return all;
        } catch (IOException | RuntimeException | Error e) {
            all.close();
            throw e;
        }
    }

    /**
     * Opens the weights of a model in a folder: {@code name}, or else its index.
     *
     * @param folder the folder
     * @param name such as {@code model.safetensors}
     * @return the tensors
     * @throws NoSuchFileException if there is neither
     * @throws IOException as {@link #open(Path)}
     */
    public static Safetensors open(Path folder, String name) throws IOException {
        Path file = folder.resolve(name);
        Path index = folder.resolve(name + INDEX);
        return open(!Files.exists(file) && Files.exists(index) ? index : file);
    }

    private SafetensorsFile add(Path file) throws IOException {
        SafetensorsFile f = new SafetensorsFile(file);
        opened.add(f);
        metadata.putAll(f.metadata);
        return f;
    }

    private void openIndex() throws IOException {
        byte[] text;
        try {
            text = Files.readAllBytes(source);
        } catch (IOException e) {
            throw FileReads.named(source, e);
        }
        Map<String, String> places = new LinkedHashMap<>();
        try (JsonParser in = SafetensorsFile.JSON.createParser(text)) {
            JsonToken first = in.nextToken();
            while (first == JsonToken.START_OBJECT && in.nextToken() == JsonToken.FIELD_NAME) {
                String key = in.currentName();
                if (in.nextToken() == JsonToken.START_OBJECT && key.equals("weight_map")) {
                    while (in.nextToken() == JsonToken.FIELD_NAME) {
                        String tensor = in.currentName();
                        String place = in.nextTextValue();
                        if (place == null) {
                            throw new IOException(
                                    "%s places tensor %s in %s, expected the name of a file"
                                            .formatted(source, tensor, in.currentToken()));
                        }
                        places.put(tensor, place);
                    }
                } else {
                    in.skipChildren();
                }
            }
        } catch (JsonProcessingException e) {
            throw new IOException(
                    source + " is not the JSON of an index: " + e.getOriginalMessage(), e);
        }
        if (places.isEmpty()) {
            throw new IOException(
                    source + " has no weight_map with the file of each tensor; export it again");
        }
        Map<String, SafetensorsFile> byName = new LinkedHashMap<>();
        for (Map.Entry<String, String> e : places.entrySet()) {
            SafetensorsFile f = byName.get(e.getValue());
            if (f == null) {
                f = add(sibling(e.getKey(), e.getValue()));
                byName.put(e.getValue(), f);
            }
            if (!f.entries.containsKey(e.getKey())) {
                throw new IOException(
                        "%s places tensor %s in %s, but it is not; export both again"
                                .formatted(source, e.getKey(), f.file));
            }
            files.put(e.getKey(), f);
        }
    }

    /** A file that an index names: always in the index's own folder. */
    private Path sibling(String tensor, String name) throws IOException {
        Path plain;
        try {
            plain = Path.of(name).getFileName();
        } catch (InvalidPathException e) {
            plain = null;
        }
        if (plain == null || !plain.toString().equals(name) || name.equals("..")) {
            throw new IOException(
                    "%s places tensor %s in '%s', expected the name of a file in the same folder"
                            .formatted(source, tensor, name));
        }
        return source.resolveSibling(name);
    }

    /**
     * Names of all tensors.
     *
     * @return in the order of the files' headers, or of the index
     */
    public Set<String> names() {
        return Collections.unmodifiableSet(files.keySet());
    }

    /**
     * The metadata in the files' headers.
     *
     * @return texts by name
     */
    public Map<String, String> metadata() {
        return Collections.unmodifiableMap(metadata);
    }

    /**
     * A tensor's type and shape.
     *
     * @param name its name
     * @return type and shape
     * @throws IOException if there is none of that name; the message names it
     */
    public WeightTensor tensor(String name) throws IOException {
        return entry(name).tensor();
    }

    private SafetensorsFile.Entry entry(String name) throws IOException {
        return Objects.requireNonNull(file(name).entries.get(name));
    }

    private SafetensorsFile file(String name) throws IOException {
        SafetensorsFile f = files.get(name);
        if (f == null) {
            throw new IOException(
                    source + " has no tensor " + name + ", but " + some(files.keySet()));
        }
        return f;
    }

    private static String some(Set<String> names) {
        int most = 8;
        String first = String.join(", ", names.stream().limit(most).toList());
        return names.size() <= most ? first : first + " and " + (names.size() - most) + " more";
    }

    /**
     * A tensor of an expected shape whose elements can be converted to float32.
     *
     * @param name its name
     * @param shape the expected shape
     * @return type and shape
     * @throws IOException if it is missing, or of another shape or type; the message names it
     */
    public WeightTensor expect(String name, List<Long> shape) throws IOException {
        WeightTensor t = tensor(name);
        if (!t.shape().equals(shape)) {
            throw new IOException(
                    ("%s: tensor %s has the shape %s, expected %s; give the weights of the same"
                                    + " model")
                            .formatted(file(name).file, name, t.shape(), shape));
        }
        if (!t.type().converts()) {
            throw wrongType(t);
        }
        return t;
    }

    private IOException wrongType(WeightTensor t) throws IOException {
        return new IOException(
                "%s: tensor %s is of type %s, expected F32, BF16 or F16; convert it first"
                        .formatted(file(t.name()).file, t.name(), t.type()));
    }

    /**
     * Reads consecutive elements.
     *
     * @param name the tensor
     * @param from the first element
     * @param to target for as many elements as it has, in host memory: of the tensor's own type, or
     *     float32 for those of types BF16, F16 and F32
     * @throws IOException if there is no such tensor, it is of another type, or the file has been
     *     cut since it was opened; the message names it
     * @throws IndexOutOfBoundsException if the elements do not lie within the tensor
     * @throws IllegalStateException if the file is closed
     */
    public void read(String name, long from, Buffer to) throws IOException {
        SafetensorsFile.Entry e = entry(name);
        WeightTensor t = e.tensor();
        Objects.checkFromIndexSize(from, to.count(), t.count());
        DataType type = t.type().dataType();
        boolean same = to.dataType() == type;
        if (!same) {
            checkConverts(t, to);
        }
        MemorySegment target = to.asSegment();
        int size = t.type().size();
        int most = (int) Math.min(PIECE, to.count());
        byte[] bytes = new byte[most * size];
        float[] floats = new float[same ? 0 : most];
        // The loops that widen are several times faster on memory outside the heap.
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment narrow = arena.allocate(same ? 0 : bytes.length);
            for (long i = 0; i < to.count(); i += PIECE) {
                int n = (int) Math.min(PIECE, to.count() - i);
                file(name).read(e, (from + i) * size, bytes, n * size);
                if (same) {
                    MemorySegment.copy(bytes, 0, target, JAVA_BYTE, i * size, n * size);
                } else {
                    MemorySegment.copy(bytes, 0, narrow, JAVA_BYTE, 0, n * size);
                    RowKernel.BEST.load(narrow, Objects.requireNonNull(type), 0, floats, 0, n);
                    RowKernel.BEST.store(floats, 0, target, DataType.FLOAT32, i, n);
                }
            }
        }
    }

    private void checkConverts(WeightTensor t, Buffer to) throws IOException {
        if (to.dataType() != DataType.FLOAT32) {
            throw new IOException(
                    "%s: tensor %s is of type %s, and the buffer holds %s; give one of %s"
                            .formatted(
                                    file(t.name()).file,
                                    t.name(),
                                    t.type(),
                                    to.dataType().label(),
                                    t.type().converts() ? "float32" : "the tensor's type"));
        }
        if (!t.type().converts()) {
            throw wrongType(t);
        }
    }

    /** Closes the files. Closing twice does nothing. */
    @Override
    public void close() {
        opened.forEach(SafetensorsFile::close);
    }
}
