package io.jccl.topology.nccl;

/** What both files have in common. */
final class NcclXml {
    /** NCCL refuses a file with a longer value. */
    static final int MAX_VALUE = 250;

    private NcclXml() {}

    /** A value between double quotes. Characters that XML cannot have become question marks. */
    static String escape(String value) {
        StringBuilder s = new StringBuilder();
        value.codePoints()
                .forEach(c -> {
                    switch (c) {
                        case '&' -> s.append("&amp;");
                        case '<' -> s.append("&lt;");
                        case '>' -> s.append("&gt;");
                        case '"' -> s.append("&quot;");
                        case '\n', '\r', '\t' -> s.append(' ');
                        default -> {
                            boolean legal =
                                    c >= ' '
                                            && (c < 0xD800 || c > 0xDFFF)
                                            && c != 0xFFFE
                                            && c != 0xFFFF;
                            s.appendCodePoint(legal ? c : '?');
                        }
                    }
                });
        if (s.length() > MAX_VALUE) {
            throw new IllegalArgumentException(
                    "'"
                            + XmlTree.shorten(value)
                            + "' is longer than the "
                            + MAX_VALUE
                            + " characters that NCCL reads: shorten the name");
        }
        return s.toString();
    }
}
