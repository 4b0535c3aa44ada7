package io.jccl.bench.probe;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/** Converts a probe's result to JSON and back. Fields are the components of {@link ProbeResult}. */
public final class ProbeJson {
    private static final ObjectMapper MAPPER =
            new ObjectMapper()
                    .enable(SerializationFeature.WRITE_ENUMS_USING_TO_STRING)
                    .enable(DeserializationFeature.READ_ENUMS_USING_TO_STRING)
                    // New fields may be added at any time.
                    .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
                    .setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE);

    private ProbeJson() {}

    /**
     * Converts a result.
     *
     * @param result the result
     * @return one JSON object
     */
    public static ObjectNode of(ProbeResult result) {
        return MAPPER.valueToTree(result);
    }

    /**
     * Converts it back.
     *
     * @param root what {@link #of} has returned
     * @return the result
     * @throws IllegalArgumentException if a field has a value of another kind
     */
    public static ProbeResult result(JsonNode root) {
        return MAPPER.convertValue(root, ProbeResult.class);
    }

    /**
     * Reads what {@code jccl probe --json=FILE} wrote.
     *
     * @param file the file
     * @return the result
     * @throws IOException if it cannot be read or contains something else; the message suggests a
     *     remedy
     */
    public static ProbeResult read(Path file) throws IOException {
        return read(file, Files.readString(file));
    }

    /**
     * The same of a text that was read.
     *
     * @param file for messages
     * @param text its text
     * @return the result
     * @throws IOException if it contains something else; the message suggests a remedy
     */
    public static ProbeResult read(Path file, String text) throws IOException {
        int schema;
        ProbeResult result;
        try {
            schema = MAPPER.readTree(text).path("schema").asInt();
            result = MAPPER.readValue(text, ProbeResult.class);
        } catch (IOException e) {
            throw mistake(
                    file,
                    "is not one: " + String.valueOf(e.getMessage()).replaceAll("(?s)\n.*", ""),
                    e);
        }
        if (schema != ProbeResult.SCHEMA) {
            throw mistake(file, "has schema " + schema + ", expected " + ProbeResult.SCHEMA, null);
        }
        return result;
    }

    private static IOException mistake(Path file, String what, @Nullable Exception cause) {
        return new IOException(
                "'"
                        + file
                        + "' is taken for a result of jccl probe, but "
                        + what
                        + "; write one with jccl probe --json="
                        + file,
                cause);
    }
}
