package io.jccl.topology.nccl;

import io.jccl.topology.internal.Xml;

/** What writers of NCCL's two XML files share. */
final class NcclXml {
    /** NCCL refuses a file with a longer value. */
    static final int MAX_VALUE = 250;

    private NcclXml() {}

    /** A value between double quotes. Characters that XML cannot have become question marks. */
    static String escape(String value) {
        StringBuilder legal = new StringBuilder();
        value.codePoints()
                .map(c -> c == '\n' || c == '\r' || c == '\t' ? ' ' : isLegal(c) ? c : '?')
                .forEach(legal::appendCodePoint);
        String s = Xml.escape(legal.toString());
        if (s.length() > MAX_VALUE) {
            throw new IllegalArgumentException(
                    "'"
                            + XmlTree.shorten(value)
                            + "' is longer than the "
                            + MAX_VALUE
                            + " characters that NCCL reads: shorten the name");
        }
        return s;
    }

    private static boolean isLegal(int c) {
        return c >= ' ' && (c < 0xD800 || c > 0xDFFF) && c != 0xFFFE && c != 0xFFFF;
    }
}
