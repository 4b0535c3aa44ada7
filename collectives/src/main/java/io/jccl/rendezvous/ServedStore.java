package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.UnknownHostException;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** A client of a server in its own process, which ends with it. */
final class ServedStore implements Store {
    /** How long the others may take to leave after the one that serves them. */
    private static final Duration LINGER = Duration.ofSeconds(5);

    private final StoreServer server;
    private final Store client;
    private boolean closed;

    private ServedStore(StoreServer server, Store client) {
        this.server = server;
        this.client = client;
    }

    /**
     * Connects, after having begun to serve where this rank is the one to do so.
     *
     * @param serves whether this is rank 0
     * @param must whether rank 0 serves in any case; otherwise it does if the address is its own
     *     and nobody listens there
     */
    static Store join(
            TcpAddress address,
            StoreSecret secret,
            Duration timeout,
            boolean serves,
            boolean must) {
        if (address.port() == 0) {
            throw new IllegalArgumentException(
                    "port is 0 in " + address + ", expected one that all ranks can know");
        }
        StoreServer server = serves ? serve(address, secret, must) : null;
        if (server == null) {
            return TcpStore.connect(address, secret, timeout);
        }
        boolean done = false;
        try {
            // By the loopback interface: the name may be that of a service not up yet.
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
            TcpAddress address, StoreSecret secret, boolean must) {
        InetAddress own = ownAddress(address.host());
        if (own == null && !must) {
            return null;
        }
        try {
            // What is to be reached by the loopback interface needs no other.
            String at = own != null && own.isLoopbackAddress() ? own.getHostAddress() : null;
            return StoreServer.open(at, address.port(), secret);
        } catch (JcclException e) {
            if (must) {
                throw e;
            }
            // Somebody serves there already, such as jccl store.
            return null;
        }
    }

    private static @Nullable InetAddress ownAddress(String host) {
        try {
            for (InetAddress a : InetAddress.getAllByName(host)) {
                if (a.isLoopbackAddress() || NetworkInterface.getByInetAddress(a) != null) {
                    return a;
                }
            }
        } catch (UnknownHostException e) {
            // Not ours, then; connecting says so if it goes on.
        } catch (IOException e) {
            throw new JcclException("this machine's addresses cannot be read: " + e, e);
        }
        return null;
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
