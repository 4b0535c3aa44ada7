package io.jccl.topology.nccl;

import org.jspecify.annotations.Nullable;

/** The text of a topology XML as it grows. */
final class XmlText {
    /** NCCL_TOPO_XML_MAX_NODES: NCCL refuses a file with more (src/graph/topo.h, 211). */
    private static final int MOST = 256;

    private final StringBuilder out = new StringBuilder();
    private int elements;

    /** An element without content. */
    void element(int indent, String name, @Nullable String... attributes) {
        start(indent, name, attributes);
        out.append("/>\n");
    }

    void open(int indent, String name, @Nullable String... attributes) {
        start(indent, name, attributes);
        out.append(">\n");
    }

    private void start(int indent, String name, @Nullable String... attributes) {
        elements++;
        out.append(" ".repeat(indent)).append('<').append(name);
        for (int i = 0; i < attributes.length; i += 2) {
            String value = attributes[i + 1];
            if (value != null) {
                out.append(' ').append(attributes[i]).append("=\"");
                out.append(NcclXml.escape(value)).append('"');
            }
        }
    }

    void close(int indent, String name) {
        out.append(" ".repeat(indent)).append("</").append(name).append(">\n");
    }

    /** Refuses a machine that NCCL would not read, and starts to count for the next one. */
    void endOfMachine(String machine) {
        int all = elements + 1; // <system>
        if (all > MOST) {
            throw new IllegalArgumentException(
                    machine
                            + " takes "
                            + all
                            + " elements, and NCCL reads at most "
                            + MOST
                            + " of one machine: leave out devices that the job does not use");
        }
        elements = 0;
    }

    @Override
    public String toString() {
        return out.toString();
    }
}
