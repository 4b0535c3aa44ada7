package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.net.UnknownHostException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * Serves a {@link Store} to the processes of a run over TCP, until it is closed. A single thread
 * serves all clients and never blocks on one. A client that does not prove knowledge of the secret
 * within five seconds is disconnected; until then it occupies at most a kilobyte.
 *
 * <p>Values are only kept in memory: if the server ends, the run has to be restarted.
 *
 * {@snippet class="snippets.Collectives" region="server"}
 *
 * <p><b>Threads:</b> any.
 */
public final class StoreServer implements AutoCloseable {
    private static final long GREETING_NANOS = TimeUnit.SECONDS.toNanos(5);

    /** Clients send at least a ping every 15 seconds. */
    private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(60);

    /** How long a disconnected client may take to reconnect and resume its session. */
    private static final long SESSION_NANOS = TimeUnit.MINUTES.toNanos(10);

    /** The same, while the server only waits for its clients to leave. */
    private static final long GONE_NANOS = TimeUnit.SECONDS.toNanos(1);

    /**
     * Requests of a client with more unread bytes than this are not read until it has received
     * them.
     */
    private static final long MOST_PENDING = 8L << 20;

    /** Maximum number of unauthenticated clients; beyond it the oldest is disconnected. */
    private static final int MOST_STRANGERS = 4096;

    private static final int BACKLOG = 4096;
    private static final long TICK_MILLIS = 1000;

    private final ServerSocketChannel channel;
    private final Selector selector;
    private final InetSocketAddress address;
    private final StoreSecret secret;
    private final Thread thread;
    private final SecureRandom random = new SecureRandom();
    private volatile boolean closing;

    // The fields below belong to the server's thread; other threads read the number of sessions.
    private final MemoryStore values = new MemoryStore();
    private final Map<String, LinkedHashMap<Waiter, Boolean>> waiters = new HashMap<>();
    private final Map<ByteBuffer, Session> sessions = new HashMap<>();
    private final LinkedHashMap<Client, Boolean> strangers = new LinkedHashMap<>();
    private long ticked = System.nanoTime();

    /** A client and its request that wait for a value. */
    private record Waiter(Client client, long id) {}

    /** State of one client across its connections. */
    private static final class Session {
        /** Responses to requests that change values, until the client has received them. */
        final TreeMap<Long, byte[]> answers = new TreeMap<>();

        volatile @Nullable Client client;
        volatile long left = System.nanoTime();
    }

    /** One connection. */
    private final class Client {
        final Link link;
        final SelectionKey key;
        final byte[] nonce = new byte[Wire.NONCE_BYTES];
        final Map<Long, String> awaited = new HashMap<>();
        final long came = System.nanoTime();
        long heard = came;
        @Nullable Session session;

        Client(SocketChannel channel) throws IOException {
            this.link = new Link(channel);
            this.key = channel.register(selector, SelectionKey.OP_READ, this);
            random.nextBytes(nonce);
        }
    }

    private StoreServer(ServerSocketChannel channel, Selector selector, StoreSecret secret)
            throws IOException {
        this.channel = channel;
        this.selector = selector;
        this.secret = secret;
        this.address = (InetSocketAddress) channel.getLocalAddress();
        this.thread = Thread.ofPlatform().daemon().name("jccl-store").unstarted(this::run);
    }

    /**
     * Opens a server. If the secret is derived from the job's id ({@link
     * StoreSecret#fromEnvironment}), the first server of a process prints one warning line on
     * standard error.
     *
     * @param host the name or address of this machine to listen on, exclusively; {@code 0.0.0.0},
     *     {@code ::} or null for all
     * @param port port to listen on; 0 for any free one
     * @param secret secret that clients must know
     * @return the server, already accepting clients
     * @throws JcclException if it cannot listen there
     */
    public static StoreServer open(@Nullable String host, int port, StoreSecret secret) {
        ServerSocketChannel channel = null;
        Selector selector = null;
        try {
            InetSocketAddress at =
                    new InetSocketAddress(host == null ? null : own(host, port), port);
            channel = ServerSocketChannel.open();
            channel.configureBlocking(false);
            // Otherwise a restarted run has to wait for connections of the previous one.
            channel.setOption(StandardSocketOptions.SO_REUSEADDR, true);
            channel.bind(at, BACKLOG);
            selector = Selector.open();
            channel.register(selector, SelectionKey.OP_ACCEPT);
            StoreServer server = new StoreServer(channel, selector, secret);
            server.thread.start();
            secret.warnIfGuessable(server.address);
            return server;
        } catch (IOException e) {
            closeQuietly(channel);
            closeQuietly(selector);
            throw new JcclException(
                    ("no store can be served on %s: %s; choose a port that is free here, or let"
                                    + " the store be where it is already:"
                                    + " JCCL_STORE=tcp://host:port")
                            .formatted(TcpAddress.text(host == null ? "*" : host, port), e),
                    e);
        }
    }

    private static InetAddress own(String host, int port) {
        String fault = "is not an address of this machine";
        try {
            InetAddress own = TcpAddress.own(host);
            if (own != null) {
                return own;
            }
        } catch (UnknownHostException e) {
            fault = "is a name that this machine does not know";
        }
        throw new JcclException(
                ("no store can be served on %s: '%s' %s; give one of its addresses, or 0.0.0.0 for"
                                + " all of them")
                        .formatted(TcpAddress.text(host, port), host, fault));
    }

    /**
     * The address that it listens on.
     *
     * @return the address, with the actual port if 0 was requested
     */
    public InetSocketAddress address() {
        return address;
    }

    /**
     * The port that it listens on.
     *
     * @return the port
     */
    public int port() {
        return address.getPort();
    }

    /** Disconnects all clients immediately and discards all values. */
    @Override
    public void close() {
        closing = true;
        selector.wakeup();
        Waits.join(thread, Duration.ofSeconds(5));
    }

    /** Waits until all clients have disconnected properly or have been gone for a while. */
    void awaitClients(Duration timeout) {
        long deadline = System.nanoTime() + Deadline.nanos(timeout);
        while (thread.isAlive() && System.nanoTime() - deadline < 0 && hasClients()) {
            Waits.sleep(Duration.ofMillis(20));
        }
    }

    private boolean hasClients() {
        long now = System.nanoTime();
        synchronized (sessions) {
            return sessions.values().stream()
                    .anyMatch(s -> s.client != null || now - s.left < GONE_NANOS);
        }
    }

    private void run() {
        try {
            while (!closing) {
                selector.select(this::ready, TICK_MILLIS);
                long now = System.nanoTime();
                if (now - ticked > TimeUnit.MILLISECONDS.toNanos(TICK_MILLIS)) {
                    ticked = now;
                    tick(now);
                }
            }
        } catch (IOException e) {
            // The selector cannot be used any more: end, which disconnects the clients.
        } finally {
            selector.keys().forEach(k -> closeQuietly(k.channel()));
            closeQuietly(selector);
            closeQuietly(channel);
        }
    }

    private void tick(long now) {
        SelectionKey accepting = channel.keyFor(selector);
        if (accepting != null && accepting.isValid()) {
            accepting.interestOps(SelectionKey.OP_ACCEPT);
        }
        for (SelectionKey k : List.copyOf(selector.keys())) {
            if (k.attachment() instanceof Client c) {
                boolean late = c.session == null && now - c.came > GREETING_NANOS;
                if (late || now - c.heard > SILENCE_NANOS) {
                    drop(c);
                }
            }
        }
        synchronized (sessions) {
            sessions.values().removeIf(s -> s.client == null && now - s.left > SESSION_NANOS);
        }
    }

    private void ready(SelectionKey key) {
        if (!(key.attachment() instanceof Client client)) {
            accept(key);
            return;
        }
        if (!key.isValid()) {
            // Its client has reconnected, and the new connection was served first.
            return;
        }
        try {
            if (key.isReadable()) {
                client.link.fill();
                client.heard = System.nanoTime();
                for (byte[] m = client.link.next(); m != null; m = client.link.next()) {
                    if (client.session == null) {
                        greet(client, m);
                    } else {
                        serve(client, client.session, ByteBuffer.wrap(m));
                    }
                    if (!key.isValid()) {
                        return;
                    }
                }
            }
            flush(client);
        } catch (IOException | BufferUnderflowException | IllegalArgumentException e) {
            // An invalid message or the end of the connection: other clients are not affected.
            drop(client);
        }
    }

    private void accept(SelectionKey key) {
        SocketChannel accepted = null;
        try {
            accepted = channel.accept();
            if (accepted == null) {
                return;
            }
            accepted.configureBlocking(false);
            accepted.setOption(StandardSocketOptions.TCP_NODELAY, true);
            Client client = new Client(accepted);
            strangers.put(client, true);
            client.link.send(Wire.join(Wire.MAGIC, client.nonce));
            flush(client);
            if (strangers.size() > MOST_STRANGERS) {
                drop(strangers.firstEntry().getKey());
            }
        } catch (IOException e) {
            closeQuietly(accepted);
            if (accepted == null) {
                // For example too many open files, which would fail again at once: retry at the
                // next tick.
                key.interestOps(0);
            }
        }
    }

    /** Handles the handshake of a client that has not authenticated yet. */
    private void greet(Client client, byte[] message) throws IOException {
        ByteBuffer m = ByteBuffer.wrap(message);
        if (!Wire.isMagic(Wire.bytes(m, Wire.MAGIC.length))) {
            throw new IOException("another protocol");
        }
        byte[] nonce = Wire.bytes(m, Wire.NONCE_BYTES);
        byte[] id = Wire.bytes(m, Wire.SESSION_BYTES);
        byte[] resume = Wire.bytes(m, 1);
        byte[] proof = Wire.bytes(m, Wire.PROOF_BYTES);
        byte[] expected = secret.prove("client", client.nonce, nonce, id, resume);
        if (!MessageDigest.isEqual(expected, proof)) {
            client.link.send(verdict(Wire.Verdict.WRONG_SECRET, new byte[Wire.PROOF_BYTES]));
            client.link.flush();
            drop(client);
            return;
        }
        strangers.remove(client);
        ByteBuffer name = ByteBuffer.wrap(id);
        Session session;
        synchronized (sessions) {
            session = sessions.get(name);
            if (session == null && resume[0] == 0) {
                session = new Session();
                sessions.put(name, session);
            }
        }
        Wire.Verdict verdict =
                session == null ? Wire.Verdict.UNKNOWN_SESSION : Wire.Verdict.WELCOME;
        byte[] said = {(byte) verdict.ordinal()};
        client.link.send(verdict(verdict, secret.prove("server", nonce, client.nonce, id, said)));
        if (session == null) {
            client.link.flush();
            drop(client);
            return;
        }
        client.link.secure(
                secret.prove("to server", client.nonce, nonce),
                secret.prove("to client", client.nonce, nonce));
        Client before = session.client;
        client.session = session;
        session.client = client;
        if (before != null) {
            // The client has reconnected, so its previous connection is dead.
            drop(before);
        }
    }

    private static byte[] verdict(Wire.Verdict verdict, byte[] proof) {
        return Wire.join(new byte[] {(byte) verdict.ordinal()}, proof);
    }

    private void serve(Client client, Session session, ByteBuffer request) throws IOException {
        Wire.Op op = Wire.Op.of(request.get());
        long id = request.getLong();
        session.answers.headMap(request.getLong()).clear();
        if (op == null) {
            throw new IOException("an unknown request");
        }
        byte[] known = session.answers.get(id);
        if (known != null) {
            client.link.send(Wire.answer(id, known));
            return;
        }
        byte[] answer = execute(client, session, op, id, request);
        if (answer != null) {
            if (op.changes()) {
                session.answers.put(id, answer);
            }
            client.link.send(Wire.answer(id, answer));
        }
    }

    /** The response, or null if there is none yet. */
    private byte @Nullable [] execute(
            Client client, Session session, Wire.Op op, long id, ByteBuffer request) {
        String key = Wire.key(request);
        return switch (op) {
            case SET -> {
                byte[] value = Wire.rest(request);
                values.set(key, value);
                arrived(key, value);
                yield new byte[0];
            }
            case GET -> Wire.optional(values.get(key));
            case AWAIT -> {
                byte[] value = values.get(key);
                if (value == null) {
                    client.awaited.put(id, key);
                    waiters.computeIfAbsent(key, k -> new LinkedHashMap<>())
                            .put(new Waiter(client, id), true);
                }
                yield value;
            }
            case ADD -> Wire.number(values.add(key, request.getLong()));
            case COMPARE_AND_SET -> {
                byte[] expected = Wire.optional(request);
                byte[] value = Wire.rest(request);
                boolean done = values.compareAndSet(key, expected, value);
                if (done) {
                    arrived(key, value);
                }
                yield new byte[] {(byte) (done ? 1 : 0)};
            }
            case CANCEL -> {
                cancel(client, request.getLong());
                yield null;
            }
            case PING -> new byte[0];
            case BYE -> {
                synchronized (sessions) {
                    sessions.values().remove(session);
                }
                yield new byte[0];
            }
        };
    }

    private void arrived(String key, byte[] value) {
        Map<Waiter, Boolean> all = waiters.remove(key);
        if (all != null) {
            for (Waiter w : all.keySet()) {
                w.client.awaited.remove(w.id);
                w.client.link.send(Wire.answer(w.id, value));
                try {
                    flush(w.client);
                } catch (IOException e) {
                    drop(w.client);
                }
            }
        }
    }

    private void cancel(Client client, long id) {
        String key = client.awaited.remove(id);
        Map<Waiter, Boolean> all = key == null ? null : waiters.get(key);
        if (all != null) {
            all.remove(new Waiter(client, id));
            if (all.isEmpty()) {
                waiters.remove(key);
            }
        }
    }

    private static void flush(Client client) throws IOException {
        boolean done = client.link.flush();
        boolean read = client.link.pending() < MOST_PENDING;
        if (client.key.isValid()) {
            client.key.interestOps(
                    (read ? SelectionKey.OP_READ : 0) | (done ? 0 : SelectionKey.OP_WRITE));
        }
    }

    private void drop(Client client) {
        strangers.remove(client);
        new ArrayList<>(client.awaited.keySet()).forEach(id -> cancel(client, id));
        client.key.cancel();
        closeQuietly(client.link.channel());
        Session session = client.session;
        if (session != null && session.client == client) {
            session.client = null;
            session.left = System.nanoTime();
        }
    }

    private static void closeQuietly(@Nullable AutoCloseable closeable) {
        if (closeable != null) {
            try {
                closeable.close();
            } catch (Exception e) {
                // Nothing else to do.
            }
        }
    }

    @Override
    public String toString() {
        return "the store served on port " + port();
    }
}
