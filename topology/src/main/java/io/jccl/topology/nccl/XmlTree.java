package io.jccl.topology.nccl;

import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import javax.xml.stream.Location;
import javax.xml.stream.XMLInputFactory;
import javax.xml.stream.XMLStreamConstants;
import javax.xml.stream.XMLStreamException;
import javax.xml.stream.XMLStreamReader;
import org.jspecify.annotations.Nullable;

/**
 * Reads XML into elements, with limits on size, depth, number and length, and without document
 * types and entities other than XML's own.
 */
final class XmlTree {
    static final int MAX_CHARS = 16 << 20;
    static final int MAX_DEPTH = 64;
    static final int MAX_ELEMENTS = 100_000;
    static final int MAX_VALUE = 4096;
    private static final int MAX_ATTRIBUTES = 64;
    private static final int MAX_WARNINGS = 200;

    /**
     * Creating a factory takes longer than reading a small file, and a factory is not thread-safe.
     */
    private static final ThreadLocal<XMLInputFactory> FACTORY =
            ThreadLocal.withInitial(() -> {
                XMLInputFactory factory = XMLInputFactory.newDefaultFactory();
                factory.setProperty(XMLInputFactory.SUPPORT_DTD, false);
                factory.setProperty(XMLInputFactory.IS_SUPPORTING_EXTERNAL_ENTITIES, false);
                factory.setProperty(XMLInputFactory.IS_REPLACING_ENTITY_REFERENCES, false);
                factory.setProperty(XMLInputFactory.IS_NAMESPACE_AWARE, false);
                return factory;
            });

    /** An element and where it starts. */
    record Element(
            String name,
            int line,
            int column,
            Map<String, String> attributes,
            List<Element> children) {
        @Nullable String get(String attribute) {
            return attributes.get(attribute);
        }

        /** The children of one name. */
        List<Element> children(String of) {
            return children.stream().filter(child -> child.name.equals(of)).toList();
        }
    }

    private final boolean lenient;
    private final List<Warning> warnings = new ArrayList<>();
    private final Set<String> seen = new HashSet<>();
    private int unseen;

    XmlTree(boolean lenient) {
        this.lenient = lenient;
    }

    /** The warnings so far; if there are too many, the last one has the number left out. */
    List<Warning> warnings() {
        List<Warning> all = new ArrayList<>(warnings);
        if (unseen > 0) {
            all.add(Warning.of("and " + unseen + " more warnings"));
        }
        return all;
    }

    /** Adds a warning. */
    void warn(int line, int column, String message) {
        if (warnings.size() < MAX_WARNINGS) {
            warnings.add(new Warning(line, column, message));
        } else {
            unseen++;
        }
    }

    /** Adds a warning at its first place only. */
    void warnOnce(Element at, String message) {
        if (seen.add(message)) {
            warn(at.line, at.column, message);
        }
    }

    /** A problem that makes the graph incomplete: an error, or a warning if lenient. */
    void bad(int line, int column, String message) {
        if (!lenient) {
            throw new TopologyFormatException(line, column, message);
        }
        warn(line, column, message);
    }

    void bad(Element at, String message) {
        bad(at.line, at.column, message);
    }

    /**
     * Parses a text.
     *
     * @return the root; null if it has none and that is allowed
     */
    @Nullable Element parse(String xml) {
        if (xml.length() > MAX_CHARS) {
            throw new TopologyFormatException(
                    0,
                    0,
                    "the XML has %s characters: at most %s are read, and NCCL's are far smaller"
                            .formatted(xml.length(), MAX_CHARS));
        }
        // Blank lines before an XML declaration are accepted, since pasting adds them.
        String text = (xml.startsWith("\ufeff") ? xml.substring(1) : xml).stripLeading();
        int skipped = 0;
        for (int i = 0; i < xml.length() - text.length(); i++) {
            skipped += xml.charAt(i) == '\n' ? 1 : 0;
        }
        List<Element> open = new ArrayList<>();
        Element root = null;
        int count = 0;
        int line = 1 + skipped;
        int column = 1;
        XMLStreamReader reader = null;
        try {
            reader = reader(text);
            while (reader.hasNext()) {
                // What comes next starts where the last one ended; behind text the parser has
                // taken the next one's < as well.
                boolean behindText = reader.getEventType() == XMLStreamConstants.CHARACTERS;
                Location end = reader.getLocation();
                line = Math.max(1, end.getLineNumber()) + skipped;
                column = Math.max(1, end.getColumnNumber() - (behindText ? 1 : 0));
                switch (reader.next()) {
                    case XMLStreamConstants.START_ELEMENT -> {
                        Element element = element(reader, line, column);
                        if (++count > MAX_ELEMENTS) {
                            throw new TopologyFormatException(
                                    line,
                                    column,
                                    "more than "
                                            + MAX_ELEMENTS
                                            + " elements: no machine has that many");
                        }
                        if (open.size() == MAX_DEPTH) {
                            throw new TopologyFormatException(
                                    line,
                                    column,
                                    "<%s> is nested deeper than %s elements: no machine needs that"
                                            .formatted(element.name, MAX_DEPTH));
                        }
                        if (root == null) {
                            root = element;
                        } else {
                            open.getLast().children.add(element);
                        }
                        open.add(element);
                    }
                    case XMLStreamConstants.END_ELEMENT -> open.removeLast();
                    case XMLStreamConstants.DTD, XMLStreamConstants.ENTITY_REFERENCE ->
                            throw new TopologyFormatException(
                                    line,
                                    column,
                                    "a document type or an entity: NCCL's XML has none, and they"
                                            + " are not read, for safety; remove it");
                    case XMLStreamConstants.CHARACTERS -> {
                        if (!reader.isWhiteSpace()) {
                            warn(line, column, "text between elements, which is ignored");
                        }
                    }
                    default -> {
                        // Comments and processing instructions are ignored.
                    }
                }
            }
        } catch (XMLStreamException e) {
            Location at = e.getLocation();
            bad(
                    at == null ? line : Math.max(1, at.getLineNumber()) + skipped,
                    at == null ? column : Math.max(1, at.getColumnNumber()),
                    "not well-formed XML: " + plain(e.getMessage()));
        } catch (TopologyFormatException e) {
            throw e;
        } catch (RuntimeException e) {
            // The JDK's parser throws others on some inputs.
            bad(line, column, "cannot be read as XML: " + plain(e.toString()));
        } finally {
            close(reader);
        }
        return root;
    }

    private static XMLStreamReader reader(String text) throws XMLStreamException {
        return FACTORY.get().createXMLStreamReader(new StringReader(text));
    }

    private static void close(@Nullable XMLStreamReader reader) {
        try {
            if (reader != null) {
                reader.close();
            }
        } catch (XMLStreamException e) {
            // It reads from a string: there is nothing to release.
        }
    }

    private Element element(XMLStreamReader reader, int line, int column) {
        String name = shorten(reader.getLocalName());
        int n = reader.getAttributeCount();
        if (n > MAX_ATTRIBUTES) {
            throw new TopologyFormatException(
                    line,
                    column,
                    "<%s> has %s attributes: at most %s are read"
                            .formatted(name, n, MAX_ATTRIBUTES));
        }
        Map<String, String> attributes = new LinkedHashMap<>();
        for (int i = 0; i < n; i++) {
            String value = reader.getAttributeValue(i);
            if (value.length() > MAX_VALUE) {
                throw new TopologyFormatException(
                        line,
                        column,
                        "attribute %s of <%s> has %s characters: at most %s are read"
                                .formatted(
                                        shorten(reader.getAttributeLocalName(i)),
                                        name,
                                        value.length(),
                                        MAX_VALUE));
            }
            attributes.put(reader.getAttributeLocalName(i), value);
        }
        return new Element(name, line, column, attributes, new ArrayList<>());
    }

    /** The parser's message without its preamble. */
    private static String plain(@Nullable String message) {
        String text = message == null ? "no reason given" : message;
        int at = text.indexOf("Message: ");
        return shorten(at < 0 ? text : text.substring(at + 9)).replaceAll("\\s+", " ");
    }

    /** Shortened for a message: hostile input must not make it long. */
    static String shorten(String text) {
        return text.length() <= 80 ? text : text.substring(0, 77) + "...";
    }

    /** A value in quotes, for a message. */
    static String quoted(@Nullable String value) {
        return value == null ? "missing" : '"' + shorten(value) + '"';
    }

    /** A number, decimal or hexadecimal with 0x; null if it is missing or not a number. */
    @Nullable Integer number(Element e, String attribute, int min, int max, boolean required) {
        String text = e.get(attribute);
        if (text == null || text.isBlank()) {
            if (required) {
                bad(e, "<" + e.name() + "> has no " + attribute + ": expected a number");
            }
            return null;
        }
        try {
            String plain = text.strip().toLowerCase(Locale.ROOT);
            long value =
                    plain.startsWith("0x")
                            ? Long.parseLong(plain.substring(2), 16)
                            : Long.parseLong(plain);
            if (value >= min && value <= max) {
                return (int) value;
            }
        } catch (NumberFormatException x) {
            // Reported below.
        }
        bad(
                e,
                "%s of <%s> is %s, expected a number of %s to %s"
                        .formatted(attribute, e.name(), quoted(text), min, max));
        return null;
    }
}
