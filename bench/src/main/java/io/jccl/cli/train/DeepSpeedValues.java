package io.jccl.cli.train;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.shell.Text;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/** What a DeepSpeed configuration has, by its keys, such as {@code zero_optimization.stage}. */
final class DeepSpeedValues {
    private final Path file;
    private final Map<String, JsonNode> leaves = new TreeMap<>();

    /** Keys that are "auto". */
    private final Set<String> open = new HashSet<>();

    private DeepSpeedValues(Path file, JsonNode root) {
        this.file = file;
        collect("", root);
    }

    /**
     * Reads a file.
     *
     * @throws IllegalArgumentException if it cannot be read
     */
    static DeepSpeedValues read(Path file) {
        JsonNode root;
        try {
            root = new ObjectMapper().readTree(Files.readString(file));
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(
                    DeepSpeedFile.NAME + " '" + file + "' is not JSON: " + e.getOriginalMessage());
        } catch (NoSuchFileException e) {
            throw new IllegalArgumentException(
                    DeepSpeedFile.NAME + " '" + file + "' does not exist");
        } catch (IOException e) {
            throw new IllegalArgumentException(
                    DeepSpeedFile.NAME + " '" + file + "' cannot be read: " + Text.reason(e));
        }
        if (!root.isObject()) {
            throw new IllegalArgumentException(
                    DeepSpeedFile.NAME
                            + " '"
                            + file
                            + "' is not a JSON object; give a DeepSpeed configuration");
        }
        return new DeepSpeedValues(file, root);
    }

    private void collect(String prefix, JsonNode node) {
        node.properties()
                .forEach(e -> {
                    String key = prefix + e.getKey();
                    if (e.getValue().isObject() && DeepSpeedKeys.fixed(key, false) == null) {
                        collect(key + ".", e.getValue());
                    } else if (e.getValue().asText("").equals("auto")) {
                        open.add(key);
                    } else {
                        leaves.put(key, e.getValue());
                    }
                });
    }

    Path file() {
        return file;
    }

    /** All values that are given. */
    Map<String, JsonNode> leaves() {
        return leaves;
    }

    boolean has(String key) {
        return leaves.containsKey(key);
    }

    @Nullable JsonNode get(String key) {
        return leaves.get(key);
    }

    JsonNode getOr(String key, JsonNode otherwise) {
        return leaves.getOrDefault(key, otherwise);
    }

    /** Whether a key is "auto", which leaves it to the command line. */
    boolean isOpen(String key) {
        return open.contains(key);
    }

    /** Whether DeepSpeed's default applies: a key that is "auto" has none. */
    boolean isMissing(String key) {
        return !leaves.containsKey(key) && !open.contains(key);
    }

    /** The number of a key, 0 without it. */
    double number(String key) {
        JsonNode value = leaves.get(key);
        if (value == null) {
            return 0;
        }
        if (!value.isNumber() || value.doubleValue() < 0) {
            throw refused(key, value, "expected a number, 0 or above");
        }
        return value.doubleValue();
    }

    /** The whole number of a key, or another without it. */
    int count(String key, int otherwise) {
        JsonNode node = leaves.get(key);
        if (node == null) {
            return otherwise;
        }
        if (!node.canConvertToInt() || node.intValue() < 1) {
            throw refused(key, node, "expected a whole number above 0");
        }
        return node.intValue();
    }

    /** Refuses a key whose value is not the only one that the trainer has. */
    void requireFixed(String key, JsonNode value, String fixed) {
        String is = value.isNumber() ? Double.toString(value.doubleValue()) : value.toString();
        if (!is.equals(fixed)) {
            throw refused(
                    key,
                    value,
                    fixed.isEmpty()
                            ? "which jccl train lacks; leave it out"
                            : "but jccl train has "
                                    + fixed
                                    + " there, and no flag for another; leave it out");
        }
    }

    /** The same for what DeepSpeed has another default. */
    void requireGiven(String key, String value, String has, String rule) {
        if (!open.contains(key) && !value.equals(has)) {
            throw refused(key, value, "but jccl train has " + has + " for " + rule + "; give that");
        }
    }

    IllegalArgumentException refused(String key, Object value, String why) {
        return new IllegalArgumentException(
                DeepSpeedFile.NAME + " '" + file + "': " + key + " is " + value + ", " + why);
    }
}
