package io.jccl.offload.weights;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.kernel.RowKernel;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * Reads tensors from safetensors files: a single file, or several with an index as Hugging Face
 * writes them ({@code model.safetensors.index.json}). Files are mapped, so that only what is read
 * comes from the drive. Headers are checked when a file is opened.
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

    /** Elements converted at a time. */
    private static final int PIECE = 1 << 12;

    private final Path source;
    private final Arena arena = Arena.ofShared();
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
                all.add(new SafetensorsFile(file, all.arena));
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
        Path index = folder.resolve(name + INDEX);
        return open(Files.exists(index) ? index : folder.resolve(name));
    }

    private void add(SafetensorsFile f) {
        f.entries.keySet().forEach(n -> files.put(n, f));
        metadata.putAll(f.metadata);
    }

    private void openIndex() throws IOException {
        Map<String, String> places = new LinkedHashMap<>();
        try (JsonParser in = SafetensorsFile.JSON.createParser(Files.readAllBytes(source))) {
            JsonToken first = in.nextToken();
            while (first == JsonToken.START_OBJECT && in.nextToken() == JsonToken.FIELD_NAME) {
                String key = in.currentName();
                if (in.nextToken() == JsonToken.START_OBJECT && key.equals("weight_map")) {
                    while (in.nextToken() == JsonToken.FIELD_NAME) {
                        places.put(in.currentName(), String.valueOf(in.nextTextValue()));
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
        Map<String, SafetensorsFile> opened = new LinkedHashMap<>();
        for (Map.Entry<String, String> e : places.entrySet()) {
            SafetensorsFile f = opened.get(e.getValue());
            if (f == null) {
                f = new SafetensorsFile(sibling(e.getKey(), e.getValue()), arena);
                opened.put(e.getValue(), f);
                metadata.putAll(f.metadata);
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
     * @throws IOException if there is no such tensor, or it is of another type; the message names
     *     it
     * @throws IndexOutOfBoundsException if the elements do not lie within the tensor
     */
    public void read(String name, long from, Buffer to) throws IOException {
        SafetensorsFile.Entry e = entry(name);
        WeightTensor t = e.tensor();
        Objects.checkFromIndexSize(from, to.count(), t.count());
        MemorySegment elements = file(name).elements(e);
        MemorySegment target = to.asSegment();
        if (to.dataType() == t.type().dataType()) {
            long size = t.type().size();
            MemorySegment.copy(elements, from * size, target, 0, to.count() * size);
            return;
        }
        if (to.dataType() != DataType.FLOAT32) {
            throw new IOException(
                    "%s: tensor %s is of type %s, and the buffer holds %s; give one of %s"
                            .formatted(
                                    file(name).file,
                                    name,
                                    t.type(),
                                    to.dataType().label(),
                                    t.type().converts() ? "float32" : "the tensor's type"));
        }
        if (!t.type().converts()) {
            throw wrongType(t);
        }
        DataType type = Objects.requireNonNull(t.type().dataType());
        float[] piece = new float[PIECE];
        for (long i = 0; i < to.count(); i += PIECE) {
            int n = (int) Math.min(PIECE, to.count() - i);
            RowKernel.BEST.load(elements, type, from + i, piece, 0, n);
            RowKernel.BEST.store(piece, 0, target, DataType.FLOAT32, i, n);
        }
    }

    /** Unmaps the files. Closing twice does nothing. */
    @Override
    public void close() {
        if (arena.scope().isAlive()) {
            arena.close();
        }
    }
}
