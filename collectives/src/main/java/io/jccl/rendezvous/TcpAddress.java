package io.jccl.rendezvous;

/**
 * Where a store is.
 *
 * @param host a name or an address; IPv6 without brackets
 * @param port 1 to 65535, or 0 for any to serve on
 */
record TcpAddress(String host, int port) {
    private static final String SCHEME = "tcp://";

    /** Reads {@code tcp://host:port}, or without {@code tcp://}; IPv6 addresses in brackets. */
    static TcpAddress parse(String name, String text) {
        String t = text.strip();
        t = t.startsWith(SCHEME) ? t.substring(SCHEME.length()) : t;
        int colon = t.lastIndexOf(':');
        String host = colon < 0 ? "" : t.substring(0, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        } else if (host.indexOf(':') >= 0) {
            host = "";
        }
        int port = colon < 0 ? -1 : port(t.substring(colon + 1));
        if (host.isEmpty() || port < 0 || !host.matches("[A-Za-z0-9._:%-]+")) {
            throw new IllegalArgumentException(
                    name
                            + " is '"
                            + text
                            + "', expected tcp://host:port with a port of 0 to 65535, and an IPv6"
                            + " address in brackets: tcp://[::1]:29500");
        }
        return new TcpAddress(host, port);
    }

    private static int port(String text) {
        return text.matches("[0-9]{1,5}") && Integer.parseInt(text) <= 65_535
                ? Integer.parseInt(text)
                : -1;
    }

    static String text(String host, int port) {
        return SCHEME + (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
    }

    @Override
    public String toString() {
        return text(host, port);
    }
}
