package io.jccl.rendezvous;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** Connects a {@link TcpStore} to its server: addresses, handshake and mutual authentication. */
final class StoreConnector {
    private static final long CONNECT_NANOS = TimeUnit.SECONDS.toNanos(2);
    private static final long GREETING_NANOS = TimeUnit.SECONDS.toNanos(5);
    private static final SecureRandom RANDOM = new SecureRandom();

    private final TcpAddress address;
    private final StoreSecret secret;
    private final Selector selector;
    private final BooleanSupplier closed;
    private final byte[] session = new byte[Wire.SESSION_BYTES];

    /** Whether the host's name is looked up, which only the resolver ends. */
    private volatile boolean lookingUp;

    /** An error that another attempt cannot resolve. */
    static final class FatalException extends IOException {
        private static final long serialVersionUID = 1L;

        FatalException(String message) {
            super(message);
        }
    }

    /**
     * Begins a session.
     *
     * @param closed whether to give up
     */
    StoreConnector(
            TcpAddress address, StoreSecret secret, Selector selector, BooleanSupplier closed) {
        this.address = address;
        this.secret = secret;
        this.selector = selector;
        this.closed = closed;
        RANDOM.nextBytes(session);
    }

    /**
     * Connects to the first of the host's addresses at which a store responds.
     *
     * @param resume whether the client has been connected before
     * @return the connection, registered with the selector with its {@link Link} attached
     * @throws FatalException if another attempt would fail as well
     */
    SocketChannel connect(boolean resume) throws IOException {
        IOException last = null;
        for (InetAddress a : lookUp()) {
            SocketChannel channel = SocketChannel.open();
            boolean done = false;
            try {
                channel.configureBlocking(false);
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                greet(channel, new InetSocketAddress(a, address.port()), resume);
                done = true;
                return channel;
            } catch (FatalException e) {
                throw e;
            } catch (IOException e) {
                last = e;
            } finally {
                if (!done) {
                    closeQuietly(channel);
                }
            }
        }
        throw last == null ? new IOException(address.host() + " has no address") : last;
    }

    private InetAddress[] lookUp() throws UnknownHostException {
        lookingUp = true;
        try {
            return InetAddress.getAllByName(address.host());
        } finally {
            lookingUp = false;
        }
    }

    boolean isLookingUp() {
        return lookingUp;
    }

    private void greet(SocketChannel channel, InetSocketAddress to, boolean again)
            throws IOException {
        SelectionKey key = channel.register(selector, SelectionKey.OP_CONNECT);
        long deadline = System.nanoTime() + CONNECT_NANOS;
        if (!channel.connect(to)) {
            while (!channel.finishConnect()) {
                select(deadline, to + " does not answer");
            }
        }
        Link link = new Link(channel);
        key.attach(link);
        key.interestOps(SelectionKey.OP_READ);
        deadline = System.nanoTime() + GREETING_NANOS;
        ByteBuffer hello = ByteBuffer.wrap(receive(link, deadline, to));
        byte[] magic = Wire.bytes(hello, Math.min(hello.remaining(), Wire.MAGIC.length));
        if (!Wire.isMagic(magic)) {
            throw stranger(to);
        }
        byte[] theirs = Wire.bytes(hello, Wire.NONCE_BYTES);
        byte[] mine = new byte[Wire.NONCE_BYTES];
        RANDOM.nextBytes(mine);
        byte[] resume = {(byte) (again ? 1 : 0)};
        byte[] proof = secret.prove("client", theirs, mine, session, resume);
        link.send(Wire.join(Wire.MAGIC, mine, session, resume, proof));
        link.flush();
        ByteBuffer reply = ByteBuffer.wrap(receive(link, deadline, to));
        byte[] said = Wire.bytes(reply, 1);
        Wire.Verdict verdict = Wire.Verdict.of(said[0]);
        byte[] expected = secret.prove("server", mine, theirs, session, said);
        boolean proved = MessageDigest.isEqual(expected, Wire.rest(reply));
        if (verdict == null || (!proved && verdict != Wire.Verdict.WRONG_SECRET)) {
            throw stranger(to);
        }
        if (verdict == Wire.Verdict.WRONG_SECRET) {
            throw new FatalException(
                    ("the store at %s was started with another secret than this process's, which"
                                    + " is from %s; give all processes of the run the same %s or"
                                    + " %s")
                            .formatted(
                                    address,
                                    secret.origin(),
                                    StoreSecret.VARIABLE,
                                    StoreSecret.FILE_VARIABLE));
        }
        if (verdict == Wire.Verdict.UNKNOWN_SESSION) {
            throw new FatalException(
                    "the store at "
                            + address
                            + " was restarted and lost its values; start the run again");
        }
        link.secure(
                secret.prove("to client", theirs, mine), secret.prove("to server", theirs, mine));
    }

    private FatalException stranger(InetSocketAddress to) {
        return new FatalException(
                ("what listens at %s is not a store of this version of JCCL: is the port of %s"
                                + " another program's, or do the ranks have different jars?")
                        .formatted(to, address));
    }

    private byte[] receive(Link link, long deadline, InetSocketAddress to) throws IOException {
        while (true) {
            byte[] message;
            try {
                message = link.next();
            } catch (IOException e) {
                throw stranger(to);
            }
            if (message != null) {
                return message;
            }
            select(deadline, to + " accepts the connection but does not talk as a store does");
            link.fill();
        }
    }

    /** Waits until the connection is ready; wakeups by callers are ignored. */
    private void select(long deadline, String otherwise) throws IOException {
        while (true) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (left <= 0) {
                throw new SocketTimeoutException(otherwise);
            }
            if (closed.getAsBoolean()) {
                throw new IOException("closed");
            }
            int[] ready = new int[1];
            selector.select(k -> ready[0]++, left);
            if (ready[0] > 0) {
                return;
            }
        }
    }

    static void closeQuietly(AutoCloseable closeable) {
        try {
            closeable.close();
        } catch (Exception e) {
            // Nothing else to do.
        }
    }
}
