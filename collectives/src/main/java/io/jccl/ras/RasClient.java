package io.jccl.ras;

import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Asks NCCL's RAS service about a job: docs/nccl-engine.md has the protocol.
 *
 * <p>All processes of a machine listen at one port, and the kernel picks one for each connection.
 * One that is stopped accepts and stays silent, so a connection without a greeting is given up
 * early, and another one made.
 *
 * <p><b>Threads:</b> any. A call blocks up to its limit; an interrupt does not end it.
 */
public final class RasClient {
    /** Where NCCL listens unless {@code NCCL_RAS_ADDR} is set. */
    public static final String DEFAULT_ADDRESS = "localhost:28028";

    private static final Duration GREETING = Duration.ofMillis(400);

    /** More than the report of a job of ten thousand ranks. */
    private static final int MOST = 64 << 20;

    private RasClient() {}

    /**
     * Where the RAS service of this process's jobs listens, by NCCL's variables.
     *
     * @param environment the variables
     * @return {@code host:port}
     * @throws JcclException if {@code NCCL_RAS_ENABLE} switches RAS off
     */
    public static String address(Map<String, String> environment) {
        String enable = environment.getOrDefault("NCCL_RAS_ENABLE", "1");
        if (!enable.strip().equals("1")) {
            throw new JcclException(
                    ("NCCL_RAS_ENABLE=%s switches NCCL's RAS off: start the job with"
                                    + " NCCL_RAS_ENABLE=1, which is the default")
                            .formatted(enable));
        }
        return environment.getOrDefault("NCCL_RAS_ADDR", DEFAULT_ADDRESS);
    }

    /**
     * Asks.
     *
     * @param address {@code host:port} or {@code [IPv6]:port}
     * @param seconds how long NCCL waits for processes that do not respond, at least 1; it adds up
     *     to 5 s if it has not yet found their connections to be slow
     * @param limit how long to wait in all
     * @return NCCL's answer, as far as received by then
     * @throws JcclException if nothing listens there, if it is not NCCL, or if no answer comes in
     *     time; the message suggests a remedy
     * @throws IllegalArgumentException if the address is malformed
     */
    public static RasReport ask(String address, int seconds, Duration limit) {
        return ask(address, InetAddress::getAllByName, seconds, limit);
    }

    /** Finds the addresses of a host. */
    interface Resolver {
        InetAddress[] addresses(String host) throws UnknownHostException;
    }

    static RasReport ask(String address, Resolver resolver, int seconds, Duration limit) {
        long deadline = Deadline.after(limit);
        InetSocketAddress place = parse(address);
        boolean json = true;
        try {
            InetAddress[] hosts = resolver.addresses(place.getHostString());
            int refusals = 0;
            for (int i = 0; System.nanoTime() < deadline; i++) {
                InetAddress host = hosts[i % hosts.length];
                try (Socket socket = new Socket()) {
                    Talk talk = new Talk(socket, deadline);
                    try {
                        if (!talk.greet(new InetSocketAddress(host, place.getPort()))) {
                            refusals = 0;
                            continue;
                        }
                    } catch (ConnectException e) {
                        if (++refusals < hosts.length) {
                            continue;
                        }
                        throw e;
                    }
                    talk.expectOk("TIMEOUT " + Math.max(1, seconds));
                    json = talk.say("SET FORMAT json").equals("OK");
                    talk.send("VERBOSE STATUS");
                    String text = talk.rest();
                    return json ? RasJson.parse(text) : RasText.parse(text);
                }
            }
            throw new SocketTimeoutException("silent");
        } catch (SocketTimeoutException e) {
            throw new JcclException(
                    ("NCCL's RAS at %s has not answered within %s s: a process there is stopped,"
                                    + " or other processes do not respond to it. Ask again, or on"
                                    + " another node of the job")
                            .formatted(address, limit.toMillis() / 1000.0));
        } catch (UnknownHostException e) {
            throw new JcclException(
                    "no host of the name in '"
                            + address
                            + "': give host:port of a node of the job, as in NCCL_RAS_ADDR");
        } catch (ConnectException e) {
            throw new JcclException(
                    "nothing listens at "
                            + address
                            + ": RAS needs NCCL 2.24 or newer, a communicator, NCCL_RAS_ENABLE other"
                            + " than 0, and this to be a node of the job; another NCCL_RAS_ADDR of"
                            + " the job has to be given here as well");
        } catch (IOException | IllegalArgumentException e) {
            throw new JcclException(
                    ("asking NCCL's RAS at %s failed: %s. Is it another program's port? NCCL's is"
                                    + " NCCL_RAS_ADDR, by default %s")
                            .formatted(address, e.getMessage(), DEFAULT_ADDRESS),
                    e);
        }
    }

    private static InetSocketAddress parse(String address) {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, Math.max(colon, 0)).strip();
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        try {
            int port = Integer.parseInt(address.substring(colon + 1).strip());
            if (!host.isEmpty() && port > 0 && port < 1 << 16) {
                return InetSocketAddress.createUnresolved(host, port);
            }
        } catch (NumberFormatException e) {
            // as below
        }
        throw new IllegalArgumentException(
                ("'%s' is not an address of NCCL's RAS, expected host:port or [IPv6]:port, as in"
                                + " NCCL_RAS_ADDR; the default is %s")
                        .formatted(address, DEFAULT_ADDRESS));
    }

    /** One connection: lines there and back. */
    private static final class Talk {
        private final Socket socket;
        private final long deadline;

        Talk(Socket socket, long deadline) {
            this.socket = socket;
            this.deadline = deadline;
        }

        /** Connects; false if there is no usable answer. */
        boolean greet(InetSocketAddress place) throws IOException {
            long early = Math.min(deadline, Deadline.after(GREETING));
            String hello;
            try {
                socket.connect(place, millis(early));
                send("CLIENT PROTOCOL 2");
                hello = line(early);
            } catch (SocketTimeoutException e) {
                return false;
            }
            // Every NCCL that has RAS, 2.24 to 2.30, returns 2. Another number is tried
            // nevertheless.
            if (hello == null || !hello.toUpperCase(Locale.ROOT).startsWith("SERVER PROTOCOL ")) {
                throw new IOException(
                        "it greets with '"
                                + (hello == null ? "" : hello)
                                + "', expected 'SERVER PROTOCOL 2'");
            }
            return true;
        }

        void expectOk(String command) throws IOException {
            String answer = say(command);
            if (!answer.equals("OK")) {
                throw new IOException("it answers '" + answer + "' to '" + command + "'");
            }
        }

        String say(String command) throws IOException {
            send(command);
            String answer = line(deadline);
            if (answer == null) {
                throw new IOException("it closed the connection after '" + command + "'");
            }
            return answer;
        }

        void send(String command) throws IOException {
            socket.getOutputStream().write((command + "\n").getBytes(StandardCharsets.US_ASCII));
        }

        /** A line without its end; null if the connection ended first. */
        private @Nullable String line(long until) throws IOException {
            ByteArrayOutputStream line = new ByteArrayOutputStream();
            while (line.size() < 1000) {
                int b = read(until);
                if (b < 0) {
                    return line.size() == 0 ? null : text(line);
                }
                if (b == '\n') {
                    break;
                }
                line.write(b);
            }
            return text(line).strip();
        }

        private int read(long until) throws IOException {
            socket.setSoTimeout(millis(until));
            return socket.getInputStream().read();
        }

        /** All until NCCL closes the connection, which is how it ends an answer. */
        String rest() throws IOException {
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            InputStream in = socket.getInputStream();
            byte[] part = new byte[1 << 16];
            try {
                while (all.size() < MOST) {
                    socket.setSoTimeout(millis(deadline));
                    int n = in.read(part);
                    if (n < 0) {
                        break;
                    }
                    all.write(part, 0, n);
                }
            } catch (SocketTimeoutException e) {
                // The text begins with a summary that is of no use alone.
                if (!text(all).contains("Group ")) {
                    throw e;
                }
            }
            if (all.size() == 0) {
                throw new IOException("it closed the connection without a report");
            }
            return text(all);
        }

        private static String text(ByteArrayOutputStream bytes) {
            return bytes.toString(StandardCharsets.UTF_8);
        }

        private static int millis(long until) throws SocketTimeoutException {
            long left = until - System.nanoTime();
            if (left <= 0) {
                throw new SocketTimeoutException("too late");
            }
            return (int) Math.min(left / 1_000_000 + 1, Integer.MAX_VALUE);
        }
    }
}
