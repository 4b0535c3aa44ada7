package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.io.IOException;
import java.net.ConnectException;
import java.net.SocketTimeoutException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * A client of a {@link StoreServer}. Its own thread does all I/O, so no caller waits longer than
 * its timeout. If the connection is lost, it reconnects and repeats the requests without a
 * response; the server recognizes by their numbers those that it has already executed.
 */
final class TcpStore implements Store {
    /** How long a client tries to reconnect to a server that does not respond. */
    private static final long AWAY_NANOS = TimeUnit.SECONDS.toNanos(30);

    /** The same, while its machine refuses connections: the process has ended. */
    private static final long REFUSED_NANOS = TimeUnit.SECONDS.toNanos(3);

    /** A connection on which a ping has had no response for this long is closed. */
    private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(4);

    private static final long BUSY_PING_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long IDLE_PING_NANOS = TimeUnit.SECONDS.toNanos(15);
    private static final long FIRST_PAUSE_MILLIS = 20;
    private static final long LONGEST_PAUSE_MILLIS = 500;

    private final TcpAddress address;
    private final StoreConnector connector;
    private final Selector selector;
    private final Thread thread;

    /** Requests without a response, by number. Guarded by itself, as are the fields below. */
    private final TreeMap<Long, Call> open = new TreeMap<>();

    private long lastId;
    private long lastSent;
    private boolean connected;
    private boolean closed;
    private @Nullable RuntimeException broken;

    /** Why there is currently no connection, for messages. */
    private volatile @Nullable String trouble = "no connection has been made";

    /** A request and its result. */
    private static final class Call {
        final byte[] request;
        byte @Nullable [] answer;

        Call(byte[] request) {
            this.request = request;
        }
    }

    private TcpStore(TcpAddress address, StoreSecret secret) {
        this.address = address;
        try {
            selector = Selector.open();
        } catch (IOException e) {
            throw new JcclException("no connection to " + address + " can be made: " + e, e);
        }
        connector = new StoreConnector(address, secret, selector, this::isClosed);
        this.thread =
                Thread.ofPlatform()
                        .daemon()
                        .stackSize(256 << 10)
                        .name("jccl-store-client")
                        .unstarted(() -> {
                            try {
                                run();
                            } finally {
                                StoreConnector.closeQuietly(selector);
                            }
                        });
    }

    /** Connects; the server may be started later. */
    static TcpStore connect(TcpAddress address, StoreSecret secret, Duration timeout) {
        if (address.port() == 0) {
            throw new IllegalArgumentException(
                    "port is 0 in " + address + ", expected the port that the store listens on");
        }
        TcpStore store = new TcpStore(address, secret);
        boolean done = false;
        try {
            store.thread.start();
            store.awaitConnected(timeout);
            done = true;
            return store;
        } finally {
            if (!done) {
                store.close();
            }
        }
    }

    private void awaitConnected(Duration timeout) {
        long deadline = System.nanoTime() + Deadline.nanos(timeout);
        synchronized (open) {
            while (!connected) {
                throwIfBroken();
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new JcclTimeoutException(
                            ("no store was found at %s within %s (%s): is the process that serves"
                                            + " it running (rank 0, or jccl store), is the"
                                            + " address right, and does a firewall let it"
                                            + " through?")
                                    .formatted(address, timeout, why()));
                }
                Waits.on(open, left);
            }
        }
    }

    private @Nullable String why() {
        return connector.isLookingUp()
                ? "the name '"
                        + address.host()
                        + "' is still being looked up; does this machine's DNS answer?"
                : trouble;
    }

    private void throwIfBroken() {
        RuntimeException b = broken;
        if (b != null) {
            // A new exception, since each has its own stack trace and suppressed errors.
            throw new JcclException(String.valueOf(b.getMessage()), b);
        }
        if (closed) {
            throw new IllegalStateException(this + " is closed here");
        }
    }

    /** Sends a request and waits for the response; null if there is none in time. */
    private byte @Nullable [] ask(byte[] request, long nanos) {
        long deadline = System.nanoTime() + nanos;
        Call call = new Call(request);
        synchronized (open) {
            throwIfBroken();
            long id = ++lastId;
            open.put(id, call);
            selector.wakeup();
            try {
                while (call.answer == null) {
                    throwIfBroken();
                    long left = deadline - System.nanoTime();
                    if (left <= 0) {
                        open.put(
                                ++lastId,
                                new Call(Wire.request(Wire.Op.CANCEL, "", Wire.number(id))));
                        selector.wakeup();
                        break;
                    }
                    Waits.on(open, left);
                }
            } finally {
                open.remove(id);
            }
        }
        return call.answer;
    }

    private byte[] answer(byte[] request, String what) {
        // The I/O thread gives up earlier.
        byte[] answer = ask(request, 2 * AWAY_NANOS);
        if (answer == null) {
            throw new JcclException(this + " did not " + what + " in time" + because());
        }
        return answer;
    }

    private String because() {
        String t = trouble;
        return t == null ? "" : "; the store itself does not answer now: " + t;
    }

    @Override
    public void set(String key, byte[] value) {
        byte[] v = Limits.value(key, value);
        answer(Wire.request(Wire.Op.SET, Limits.key(key), v), "take '" + key + "'");
    }

    @Override
    public byte @Nullable [] get(String key) {
        byte[] request = Wire.request(Wire.Op.GET, Limits.key(key));
        return Wire.optional(ByteBuffer.wrap(answer(request, "give '" + key + "'")));
    }

    @Override
    public byte[] await(String key, Duration timeout) {
        byte[] request = Wire.request(Wire.Op.AWAIT, Limits.key(key));
        byte[] value = ask(request, Deadline.nanos(timeout));
        if (value == null) {
            throw new JcclTimeoutException(Waiting.absent(key, this, timeout) + because());
        }
        return value;
    }

    @Override
    public long add(String key, long delta) {
        byte[] request = Wire.request(Wire.Op.ADD, Limits.key(key), Wire.number(delta));
        return ByteBuffer.wrap(answer(request, "count '" + key + "'")).getLong();
    }

    @Override
    public boolean compareAndSet(String key, byte @Nullable [] expected, byte[] value) {
        byte[] before = Wire.optional(expected == null ? null : Limits.value(key, expected));
        byte[] after = Limits.value(key, value);
        byte[] request = Wire.request(Wire.Op.COMPARE_AND_SET, Limits.key(key), before, after);
        return answer(request, "compare '" + key + "'")[0] == 1;
    }

    @Override
    public void close() {
        synchronized (open) {
            if (!closed && connected && broken == null && trouble == null) {
                // Notifies the server that this client will not reconnect.
                Call bye = new Call(Wire.request(Wire.Op.BYE, ""));
                open.put(++lastId, bye);
                selector.wakeup();
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(1);
                while (bye.answer == null && broken == null && deadline > System.nanoTime()) {
                    Waits.on(open, deadline - System.nanoTime());
                }
            }
            closed = true;
            open.notifyAll();
        }
        selector.wakeup();
        if (!connector.isLookingUp()) {
            Waits.join(thread, Duration.ofSeconds(5));
        }
        if (thread.getState() == Thread.State.NEW) {
            StoreConnector.closeQuietly(selector);
        }
    }

    private void run() {
        long away = System.nanoTime();
        long refused = away;
        long pause = FIRST_PAUSE_MILLIS;
        while (!isClosed()) {
            try (SocketChannel channel = connector.connect(isConnected())) {
                Link link = (Link) channel.keyFor(selector).attachment();
                synchronized (open) {
                    connected = true;
                    trouble = null;
                    lastSent = 0;
                    open.notifyAll();
                }
                pause = FIRST_PAUSE_MILLIS;
                try {
                    talk(link);
                } finally {
                    away = System.nanoTime();
                    refused = away;
                }
            } catch (StoreConnector.FatalException e) {
                fail(String.valueOf(e.getMessage()), e);
                return;
            } catch (IOException | BufferUnderflowException e) {
                trouble = e.toString();
                long now = System.nanoTime();
                refused = e instanceof ConnectException ? refused : now;
                boolean gone = now - refused > REFUSED_NANOS;
                if (isConnected() && (gone || now - away > AWAY_NANOS)) {
                    fail(lost(gone), e);
                    return;
                }
                sleep(pause);
                pause = Math.min(2 * pause, LONGEST_PAUSE_MILLIS);
            } catch (RuntimeException | Error e) {
                fail("the client of the store at " + address + " failed: " + e, e);
                return;
            }
        }
    }

    /** The same text on all ranks. */
    private String lost(boolean gone) {
        return "the store at "
                + address
                + " is lost: "
                + (gone
                        ? "for "
                                + TimeUnit.NANOSECONDS.toSeconds(REFUSED_NANOS)
                                + " s nothing has listened there, so the process that served it"
                                + " (rank 0, or jccl store) has ended; look at its output, and"
                                + " restart the run"
                        : "no connection could be made for "
                                + TimeUnit.NANOSECONDS.toSeconds(AWAY_NANOS)
                                + " s; look at the network between the machines and at the process"
                                + " that serves it (rank 0, or jccl store), and start the run"
                                + " again");
    }

    private boolean isClosed() {
        synchronized (open) {
            return closed;
        }
    }

    private boolean isConnected() {
        synchronized (open) {
            return connected;
        }
    }

    private void fail(String message, Throwable cause) {
        synchronized (open) {
            broken = new JcclException(message, cause);
            open.notifyAll();
        }
    }

    private void sleep(long millis) {
        synchronized (open) {
            if (!closed) {
                Waits.on(open, TimeUnit.MILLISECONDS.toNanos(millis));
            }
        }
    }

    /** Sends requests and receives responses until the connection fails or the store is closed. */
    private void talk(Link link) throws IOException {
        SelectionKey key = link.channel().keyFor(selector);
        long heard = System.nanoTime();
        long pinged = heard;
        while (true) {
            boolean busy;
            synchronized (open) {
                if (closed) {
                    return;
                }
                for (var e : open.tailMap(lastSent, false).entrySet()) {
                    link.send(Wire.stamp(e.getValue().request, e.getKey(), open.firstKey()));
                    lastSent = e.getKey();
                }
                // These have no response.
                open.values().removeIf(c -> c.request[0] == Wire.Op.CANCEL.ordinal());
                busy = !open.isEmpty();
            }
            long now = System.nanoTime();
            long every = busy ? BUSY_PING_NANOS : IDLE_PING_NANOS;
            if (pinged - heard > 0) {
                if (now - pinged > SILENCE_NANOS) {
                    throw new SocketTimeoutException(
                            "no answer for " + TimeUnit.NANOSECONDS.toSeconds(now - heard) + " s");
                }
            } else if (now - heard > every) {
                // Its number is 0: no caller waits for it.
                link.send(Wire.stamp(Wire.request(Wire.Op.PING, ""), 0, lowestOpen()));
                pinged = now;
            }
            boolean done = link.flush();
            key.interestOps(SelectionKey.OP_READ | (done ? 0 : SelectionKey.OP_WRITE));
            boolean[] readable = new boolean[1];
            selector.select(
                    k -> readable[0] = k.isReadable(), TimeUnit.NANOSECONDS.toMillis(every / 2));
            if (readable[0]) {
                link.fill();
                heard = System.nanoTime();
                for (byte[] m = link.next(); m != null; m = link.next()) {
                    take(ByteBuffer.wrap(m));
                }
            }
        }
    }

    private long lowestOpen() {
        synchronized (open) {
            return open.isEmpty() ? lastId + 1 : open.firstKey();
        }
    }

    private void take(ByteBuffer answer) {
        long id = answer.getLong();
        byte[] result = Wire.rest(answer);
        synchronized (open) {
            Call call = open.get(id);
            if (call != null) {
                call.answer = result;
                open.remove(id);
                open.notifyAll();
            }
        }
    }

    @Override
    public String toString() {
        return "the store at " + address;
    }
}
