package io.jccl.cli.report;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.io.JsonEOFException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A document of a measuring command.
 *
 * @param name name in legends; empty if it is the only one
 * @param file file name for messages; empty if it was made by this process
 * @param kind kind of document
 * @param root the whole document
 */
record Run(String name, String file, Kind kind, JsonNode root) {
    private static final String GIVE =
            "; give files that -J/--json of a collective, bandwidth, offload, matmul, train,"
                    + " fit-demo, probe, topo or bench/peers/run wrote";

    /**
     * Reads a file.
     *
     * @param file file written by --json
     * @param name name in legends
     * @return the document, of a known kind
     * @throws IllegalArgumentException if it is something else; the message states what to pass
     */
    static Run read(Path file, String name) {
        if (!Files.exists(file)) {
            throw new IllegalArgumentException("'" + file + "' is not there" + GIVE);
        }
        if (Files.isDirectory(file)) {
            throw new IllegalArgumentException("'" + file + "' is a folder" + GIVE);
        }
        JsonNode root;
        try {
            root =
                    new ObjectMapper()
                            .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
                            .readTree(file.toFile());
        } catch (JsonProcessingException e) {
            String message = e.getOriginalMessage();
            // Not always reported by a specific exception.
            boolean cut = e instanceof JsonEOFException || message.contains("end-of-input");
            throw new IllegalArgumentException(
                    "'"
                            + file
                            + (cut
                                    ? "' ends in the middle, in line "
                                            + e.getLocation().getLineNr()
                                            + ": it is truncated; copy it completely, or measure"
                                            + " again"
                                    : "' is not JSON: " + message + GIVE),
                    e);
        } catch (AccessDeniedException e) {
            throw new IllegalArgumentException(
                    "'" + file + "' cannot be read: permission denied; run as its owner", e);
        } catch (IOException e) {
            throw new IllegalArgumentException(
                    "'" + file + "' cannot be read: " + e.getMessage() + GIVE, e);
        }
        Kind kind = Kind.of(root);
        if (kind == null) {
            throw new IllegalArgumentException(
                    "'"
                            + file
                            + "' is "
                            + (root.isMissingNode() ? "empty" : Kind.without(root))
                            + GIVE);
        }
        return new Run(name, file.toString(), kind, root);
    }

    /** A document made by this process. */
    static Run here(JsonNode root) {
        Kind kind = Kind.of(root);
        if (kind == null) {
            throw new IllegalStateException("a document without a page: " + root);
        }
        return new Run("", "", kind, root);
    }

    /** A name, prefixed by the run's name if it has one. */
    String named(String what) {
        return name.isEmpty() ? what : what.isEmpty() ? name : name + ", " + what;
    }

    /** A required number. */
    double number(JsonNode in, String key) {
        JsonNode n = in.path(key);
        if (!n.isNumber()) {
            throw unfit("\"" + key + "\" is " + shown(n) + ", expected a number");
        }
        return n.asDouble();
    }

    /** A required list. */
    JsonNode list(JsonNode in, String key) {
        JsonNode n = in.path(key);
        if (!n.isArray()) {
            throw unfit("\"" + key + "\" is " + shown(n) + ", expected a list");
        }
        return n;
    }

    /** A number, or NaN. */
    static double optional(JsonNode in, String key) {
        return in.path(key).isNumber() ? in.path(key).asDouble() : Double.NaN;
    }

    IllegalArgumentException unfit(String why) {
        return new IllegalArgumentException(
                "'" + file + "' is damaged, or of another version of jccl: " + why + GIVE);
    }

    private static String shown(JsonNode n) {
        if (n.isMissingNode()) {
            return "missing";
        }
        String text = n.toString();
        return text.length() > 40 ? text.substring(0, 40) + "..." : text;
    }
}
