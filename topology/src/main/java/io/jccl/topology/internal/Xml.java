package io.jccl.topology.internal;

/** Writing XML. */
public final class Xml {
    private Xml() {}

    /**
     * Escapes a value for element content or for an attribute in double quotes.
     *
     * @param text without characters that XML cannot hold
     * @return the text with entities for {@code & < > "}
     */
    public static String escape(String text) {
        return text.replace("&", "&amp;")
                .replace("<", "&lt;")
                .replace(">", "&gt;")
                .replace("\"", "&quot;");
    }
}
