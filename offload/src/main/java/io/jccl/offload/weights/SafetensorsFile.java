package io.jccl.offload.weights;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import io.jccl.internal.FileReads;
import java.io.EOFException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * One file, fully checked before any element is read.
 *
 * <p>It is read, not mapped: access to a mapped file that another process cuts ends the JVM. A
 * {@link RandomAccessFile} stays open when a thread that reads is interrupted, unlike a channel.
 */
final class SafetensorsFile implements AutoCloseable {
    /** The limit of the format's own library. */
    static final long MOST_HEADER = 100_000_000;

    static final JsonFactory JSON =
            JsonFactory.builder().enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).build();

    /** The name in the header of what is not a tensor. */
    static final String METADATA = "__metadata__";

    /** A tensor and the position of its elements after the header. */
    record Entry(WeightTensor tensor, long from, long to) {}

    final Path file;
    final Map<String, Entry> entries = new LinkedHashMap<>();
    final Map<String, String> metadata = new LinkedHashMap<>();
    private final RandomAccessFile data;

    /** Where the elements begin, and their bytes. */
    private final long first;

    private final long bytes;

    SafetensorsFile(Path file) throws IOException {
        this.file = file;
        long size = Files.size(file); // if it is missing, that is the error
        if (Files.isDirectory(file)) {
            throw new IOException(file + " is a folder, expected a safetensors file: name one");
        }
        data = new RandomAccessFile(file.toFile(), "r");
        try {
            byte[] text = header(size);
            first = (long) Long.BYTES + text.length;
            bytes = size - first;
            parse(text);
            checkPlaces();
        } catch (IOException | RuntimeException | Error e) {
            close();
            throw e;
        }
    }

    private byte[] header(long size) throws IOException {
        if (size < Long.BYTES) {
            throw wrong("it has " + size + " bytes, so it was cut", null);
        }
        long header = start(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).getLong();
        if (header < 2 || header > MOST_HEADER) {
            throw wrong(
                    "its header has %s bytes, expected 2 to %s"
                            .formatted(Long.toUnsignedString(header), MOST_HEADER),
                    null);
        }
        if (header > size - Long.BYTES) {
            throw wrong(
                    "it has %s bytes and a header of %s, so it was cut".formatted(size, header),
                    null);
        }
        return start((int) header).array();
    }

    private ByteBuffer start(int n) throws IOException {
        byte[] next = new byte[n];
        try {
            data.readFully(next);
        } catch (EOFException e) {
            throw wrong("it was cut while it was read", e);
        } catch (IOException e) {
            throw FileReads.named(file, e);
        }
        return ByteBuffer.wrap(next);
    }

    private void parse(byte[] header) throws IOException {
        try (JsonParser json = JSON.createParser(header)) {
            parse(json);
        } catch (JsonProcessingException e) {
            throw wrong("its header is not the JSON of this format: " + e.getOriginalMessage(), e);
        } catch (IllegalArgumentException e) {
            throw wrong(String.valueOf(e.getMessage()), e);
        }
    }

    private void parse(JsonParser in) throws IOException {
        expect(in, in.nextToken(), JsonToken.START_OBJECT, "an object");
        while (in.nextToken() == JsonToken.FIELD_NAME) {
            String name = in.currentName();
            expect(in, in.nextToken(), JsonToken.START_OBJECT, "an object for " + name);
            if (name.equals(METADATA)) {
                while (in.nextToken() == JsonToken.FIELD_NAME) {
                    String key = in.currentName();
                    expect(in, in.nextToken(), JsonToken.VALUE_STRING, "a text for " + key);
                    metadata.put(key, in.getText());
                }
            } else {
                entries.put(name, tensor(in, name));
            }
        }
        if (in.nextToken() != null) {
            throw new IllegalArgumentException("its header continues after the object");
        }
    }

    private static Entry tensor(JsonParser in, String name) throws IOException {
        WeightType type = null;
        List<Long> shape = null;
        List<Long> places = List.of();
        while (in.nextToken() == JsonToken.FIELD_NAME) {
            String key = in.currentName();
            JsonToken value = in.nextToken();
            switch (key) {
                case "dtype" -> type = type(in.getText(), name);
                case "shape" -> shape = numbers(in, value, name);
                case "data_offsets" -> places = numbers(in, value, name);
                default -> in.skipChildren();
            }
        }
        if (type == null || shape == null || places.size() != 2) {
            throw new IllegalArgumentException(
                    "tensor "
                            + name
                            + " lacks one of dtype, shape and two data_offsets in the header");
        }
        return new Entry(new WeightTensor(name, type, shape), places.get(0), places.get(1));
    }

    private static WeightType type(String label, String name) {
        for (WeightType t : WeightType.values()) {
            if (t.name().equals(label)) {
                return t;
            }
        }
        throw new IllegalArgumentException(
                "tensor %s is of type %s, expected one of %s"
                        .formatted(name, label, List.of(WeightType.values())));
    }

    private static List<Long> numbers(JsonParser in, JsonToken start, String name)
            throws IOException {
        expect(in, start, JsonToken.START_ARRAY, "a list for tensor " + name);
        List<Long> all = new ArrayList<>();
        while (in.nextToken() != JsonToken.END_ARRAY) {
            expect(in, in.currentToken(), JsonToken.VALUE_NUMBER_INT, "an integer for " + name);
            all.add(in.getLongValue());
        }
        return all;
    }

    private static void expect(JsonParser in, JsonToken found, JsonToken expected, String what) {
        if (found != expected) {
            throw new IllegalArgumentException(
                    "its header has %s at byte %s, expected %s"
                            .formatted(found, in.currentLocation().getByteOffset(), what));
        }
    }

    /** Tensors must be contiguous, from the first byte of the data to the last. */
    private void checkPlaces() throws IOException {
        List<Entry> all = new ArrayList<>(entries.values());
        all.sort(Comparator.comparingLong(Entry::from).thenComparingLong(Entry::to));
        long at = 0;
        for (Entry e : all) {
            String name = "tensor " + e.tensor.name();
            if (e.from < 0 || e.to < e.from || e.to - e.from != e.tensor.bytes()) {
                throw wrong(
                        "%s lies at %s to %s, but its shape %s of %s takes %s bytes"
                                .formatted(
                                        name,
                                        e.from,
                                        e.to,
                                        e.tensor.shape(),
                                        e.tensor.type(),
                                        e.tensor.bytes()),
                        null);
            }
            if (e.from != at) {
                throw wrong(
                        name
                                + " begins at byte "
                                + e.from
                                + " of the data, "
                                + (e.from < at ? "within the tensor before it" : "after a gap")
                                + "; expected "
                                + at,
                        null);
            }
            if (e.to > bytes) {
                throw wrong(
                        "%s ends at byte %s of the data, but there are %s, so it was cut"
                                .formatted(name, e.to, bytes),
                        null);
            }
            at = e.to;
        }
        if (at != bytes) {
            throw wrong((bytes - at) + " bytes follow the last tensor", null);
        }
    }

    /**
     * Reads bytes of a tensor.
     *
     * @param at the first, counted from the tensor's
     */
    void read(Entry e, long at, byte[] to, int n) throws IOException {
        try {
            synchronized (data) {
                data.seek(first + e.from + at);
                data.readFully(to, 0, n);
            }
        } catch (EOFException x) {
            String why = "the file was cut while it was open; open it again once it is complete";
            throw cannotRead(e, why, x);
        } catch (IOException x) {
            if (!data.getFD().valid()) {
                throw new IllegalStateException(file + " is closed", x);
            }
            throw cannotRead(e, x.toString(), x);
        }
    }

    private IOException cannotRead(Entry e, String why, IOException cause) {
        return new IOException(
                "%s: tensor %s cannot be read: %s".formatted(file, e.tensor.name(), why), cause);
    }

    @Override
    public void close() {
        try {
            data.close();
        } catch (IOException e) {
            // Nothing was written.
        }
    }

    private IOException wrong(String what, @Nullable Throwable cause) {
        return new IOException(
                "%s cannot be read as safetensors: %s; bring the file back from a copy"
                        .formatted(file, what),
                cause);
    }
}
