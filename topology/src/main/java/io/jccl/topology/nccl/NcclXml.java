package io.jccl.topology.nccl;

import io.jccl.topology.internal.Xml;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** What writers of NCCL's two XML files share. */
final class NcclXml {
    /** NCCL refuses a file with a longer value. */
    static final int MAX_VALUE = 250;

    private static final Pattern HASH = Pattern.compile("(?:0x)?0*([0-9a-f]{1,16})");

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
                    "'%s' is longer than the %s characters that NCCL reads: shorten the name"
                            .formatted(XmlTree.shorten(value), MAX_VALUE));
        }
        return s;
    }

    /**
     * A {@code host_hash} such that equal ones are equal texts: NCCL reads a hexadecimal number
     * (topo.cc, 716), and 0 if there is none.
     *
     * @param text value of the attribute; null if it is missing
     * @return {@code 0x1f}; empty if it is missing; other texts as they are
     */
    static String hostHash(@Nullable String text) {
        if (text == null) {
            return "";
        }
        Matcher m = HASH.matcher(text.strip().toLowerCase(Locale.ROOT));
        return m.matches() ? "0x" + m.group(1) : text;
    }

    /** Whether NCCL reads a text of {@link #hostHash} as a number of its own. */
    static boolean isHostHash(String text) {
        return HASH.matcher(text).matches() && !text.equals("0x0");
    }

    private static boolean isLegal(int c) {
        return c >= ' ' && (c < 0xD800 || c > 0xDFFF) && c != 0xFFFE && c != 0xFFFF;
    }
}
