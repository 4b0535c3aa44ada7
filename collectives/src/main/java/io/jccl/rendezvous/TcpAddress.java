package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.net.UnknownHostException;
import org.jspecify.annotations.Nullable;

/**
 * Address of a store.
 *
 * @param host a name or an address; IPv6 without brackets
 * @param port 1 to 65535, or 0 to serve on any free port
 */
record TcpAddress(String host, int port) {
    private static final String SCHEME = "tcp://";

    /** Parses {@code host:port}, with or without {@code tcp://}; IPv6 addresses in brackets. */
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
                    ("%s is '%s', expected tcp://host:port with a port of 0 to 65535, and an IPv6"
                                    + " address in brackets: tcp://[::1]:29500")
                            .formatted(name, text));
        }
        return new TcpAddress(host, port);
    }

    private static int port(String text) {
        return text.matches("[0-9]{1,5}") && Integer.parseInt(text) <= 65_535
                ? Integer.parseInt(text)
                : -1;
    }

    /**
     * The address of this machine to listen on for a name: preferably one that other machines can
     * reach, otherwise a loopback address.
     *
     * @return null if the name does not resolve to this machine
     * @throws UnknownHostException if the name does not resolve
     */
    static @Nullable InetAddress own(String host) throws UnknownHostException {
        InetAddress loopback = null;
        for (InetAddress a : InetAddress.getAllByName(host)) {
            if (a.isLoopbackAddress()) {
                loopback = loopback == null ? a : loopback;
            } else if (a.isAnyLocalAddress() || isOfAnInterface(a)) {
                return a;
            }
        }
        return loopback;
    }

    private static boolean isOfAnInterface(InetAddress a) {
        try {
            return NetworkInterface.getByInetAddress(a) != null;
        } catch (SocketException e) {
            throw new JcclException("this machine's addresses cannot be read: " + e, e);
        }
    }

    static String text(String host, int port) {
        return SCHEME + (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
    }

    @Override
    public String toString() {
        return text(host, port);
    }
}
