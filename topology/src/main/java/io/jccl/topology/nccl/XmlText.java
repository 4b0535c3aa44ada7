package io.jccl.topology.nccl;

import org.jspecify.annotations.Nullable;

/** The text of a topology XML as it grows. */
final class XmlText {
    /** NCCL_TOPO_XML_MAX_NODES: NCCL refuses a file with more (src/graph/topo.h, 211). */
    private static final int MOST = 256;

    private final StringBuilder out = new StringBuilder();
    private int elements;

    /** Starts an element; its attributes follow, and then {@link #open} or {@link #end}. */
    XmlText start(int indent, String name) {
        elements++;
        out.append(" ".repeat(indent)).append('<').append(name);
        return this;
    }

    /** An attribute, unless its value is null. */
    XmlText with(String name, @Nullable String value) {
        if (value != null) {
            out.append(' ').append(name).append("=\"");
            out.append(NcclXml.escape(value)).append('"');
        }
        return this;
    }

    /** The element has content. */
    void open() {
        out.append(">\n");
    }

    /** The element has none. */
    void end() {
        out.append("/>\n");
    }

    void close(int indent, String name) {
        out.append(" ".repeat(indent)).append("</").append(name).append(">\n");
    }

    /** Refuses a machine that NCCL would not read, and starts to count for the next one. */
    void endOfMachine(String machine) {
        int all = elements + 1; // <system>
        if (all > MOST) {
            throw new IllegalArgumentException(
                    ("%s takes %s elements, and NCCL reads at most %s of one machine: leave out"
                                    + " devices that the job does not use")
                            .formatted(machine, all, MOST));
        }
        elements = 0;
    }

    @Override
    public String toString() {
        return out.toString();
    }
}
