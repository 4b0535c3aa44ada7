package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** A client of a server in the same process; closing the client also closes the server. */
final class ServedStore implements Store {
    /** How long the server waits at close for its other clients to leave. */
    private static final Duration LINGER = Duration.ofSeconds(5);

    /**
     * The variable with the address to listen on, if that differs from the one that clients connect
     * to.
     */
    static final String BIND = "JCCL_STORE_BIND";

    /** A name may become resolvable only after its process has started, as in Kubernetes. */
    private static final Duration NAME_PAUSE = Duration.ofMillis(250);

    private final StoreServer server;
    private final Store client;
    private boolean closed;

    private ServedStore(StoreServer server, Store client) {
        this.server = server;
        this.client = client;
    }

    /**
     * Starts the server if this rank has to, then connects.
     *
     * @param serves whether this is rank 0
     * @param must whether rank 0 always serves; otherwise it serves if the address is its own and
     *     nothing listens there
     * @param bind value of {@link #BIND}; null if it is not set
     */
    static Store join(
            TcpAddress address,
            StoreSecret secret,
            Duration timeout,
            boolean serves,
            boolean must,
            @Nullable String bind) {
        if (address.port() == 0) {
            throw new IllegalArgumentException(
                    "port is 0 in " + address + ", expected one that all ranks can know");
        }
        StoreServer server = serves ? serve(address, secret, timeout, must, bind) : null;
        if (server == null) {
            return TcpStore.connect(address, secret, timeout);
        }
        boolean done = false;
        try {
            // Over the loopback interface: the name may be that of a service that is not up yet.
            String host =
                    server.address().getAddress().isAnyLocalAddress()
                            ? InetAddress.getLoopbackAddress().getHostAddress()
                            : server.address().getAddress().getHostAddress();
            Store client = TcpStore.connect(new TcpAddress(host, server.port()), secret, timeout);
            done = true;
            return new ServedStore(server, client);
        } finally {
            if (!done) {
                server.close();
            }
        }
    }

    private static @Nullable StoreServer serve(
            TcpAddress address,
            StoreSecret secret,
            Duration timeout,
            boolean must,
            @Nullable String bind) {
        InetAddress own =
                bind == null ? named(address, must ? timeout : Duration.ZERO, must) : bound(bind);
        if (own == null) {
            return null;
        }
        try {
            return StoreServer.open(own.getHostAddress(), address.port(), secret);
        } catch (JcclException e) {
            if (must) {
                throw e;
            }
            // Another process already serves there, such as jccl store.
            return null;
        }
    }

    /** The address of this machine that ranks connect to; null if another machine serves. */
    private static @Nullable InetAddress named(TcpAddress address, Duration wait, boolean must) {
        String host = address.host();
        long deadline = System.nanoTime() + Deadline.nanos(wait);
        while (true) {
            String fault = "is not an address of its machine";
            try {
                InetAddress own = TcpAddress.own(host);
                if (own != null || !must) {
                    return own;
                }
            } catch (UnknownHostException e) {
                if (!must) {
                    return null; // connecting reports it
                }
                fault = "is a name that its machine does not know";
                if (System.nanoTime() - deadline < 0) {
                    Waits.sleep(NAME_PAUSE);
                    continue;
                }
            }
            throw new JcclException(
                    ("rank 0 cannot serve the store at %s: '%s' %s. Set MASTER_ADDR to an address"
                                    + " of that machine; if other machines reach it by this one"
                                    + " anyway (NAT, a Service of Kubernetes), set %s on rank 0"
                                    + " to the address to listen on, such as 0.0.0.0 for all of"
                                    + " its addresses")
                            .formatted(address, host, fault, BIND));
        }
    }

    private static InetAddress bound(String bind) {
        InetAddress own = null;
        String fault = "is not an address of this machine";
        try {
            own = TcpAddress.own(bind.strip());
        } catch (UnknownHostException e) {
            fault = "is a name that this machine does not know";
        }
        if (own == null || bind.isBlank()) {
            throw new IllegalArgumentException(
                    ("%s is '%s', which %s; expected one of its addresses, or 0.0.0.0 for all of"
                                    + " them")
                            .formatted(BIND, bind, fault));
        }
        return own;
    }

    @Override
    public void set(String key, byte[] value) {
        client.set(key, value);
    }

    @Override
    public byte @Nullable [] get(String key) {
        return client.get(key);
    }

    @Override
    public byte[] await(String key, Duration timeout) {
        return client.await(key, timeout);
    }

    @Override
    public long add(String key, long delta) {
        return client.add(key, delta);
    }

    @Override
    public boolean compareAndSet(String key, byte @Nullable [] expected, byte[] value) {
        return client.compareAndSet(key, expected, value);
    }

    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            client.close();
            server.awaitClients(LINGER);
            server.close();
        }
    }

    @Override
    public String toString() {
        return client + ", served by this process";
    }
}
