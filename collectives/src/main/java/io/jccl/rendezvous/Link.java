package io.jccl.rendezvous;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.ArrayDeque;
import java.util.Arrays;
import javax.crypto.Mac;
import org.jspecify.annotations.Nullable;

/**
 * One end of a non-blocking connection. Messages have a length prefix and, once both ends have
 * proved that they know the secret, an authentication tag. The tag covers the message and its
 * number, so messages cannot be changed, replayed or dropped on the way.
 *
 * <p><b>Threads:</b> one at a time.
 */
final class Link {
    /** The two values of a compare-and-set, a key with 3 bytes per character, and numbers. */
    static final int MAX_BODY = 2 * Limits.VALUE_BYTES + 3 * Limits.KEY_CHARACTERS + 64;

    /** Limit of the memory used for a peer that has not authenticated yet. */
    static final int MAX_GREETING = 160;

    private static final int TAG_BYTES = 16;
    private static final int SMALL_BUFFER = 1024;
    private static final int LARGE_BUFFER = 1 << 16;

    private final SocketChannel channel;
    private final ArrayDeque<ByteBuffer> out = new ArrayDeque<>();
    private ByteBuffer in = ByteBuffer.allocate(SMALL_BUFFER);
    private @Nullable Mac inTags;
    private @Nullable Mac outTags;
    private long inNumber;
    private long outNumber;
    private long pending;

    Link(SocketChannel channel) {
        this.channel = channel;
    }

    SocketChannel channel() {
        return channel;
    }

    /** Adds tags to messages from now on; the keys of the two directions differ. */
    void secure(byte[] inKey, byte[] outKey) {
        inTags = StoreSecret.mac(inKey);
        outTags = StoreSecret.mac(outKey);
    }

    /** Bytes still to be written. */
    long pending() {
        return pending;
    }

    /** Queues a message; {@link #flush} sends it. */
    void send(byte[] body) {
        Mac tags = outTags;
        ByteBuffer frame =
                ByteBuffer.allocate(Integer.BYTES + body.length + (tags == null ? 0 : TAG_BYTES));
        frame.putInt(body.length).put(body);
        if (tags != null) {
            frame.put(tag(tags, outNumber++, body), 0, TAG_BYTES);
        }
        frame.flip();
        out.add(frame);
        pending += frame.remaining();
    }

    private static byte[] tag(Mac tags, long number, byte[] body) {
        tags.update(ByteBuffer.allocate(Long.BYTES).putLong(0, number));
        return tags.doFinal(body);
    }

    /** Writes as much as the connection accepts now; true if nothing is left. */
    boolean flush() throws IOException {
        for (ByteBuffer first = out.peek(); first != null; first = out.peek()) {
            pending -= channel.write(first);
            if (first.hasRemaining()) {
                return false;
            }
            out.remove();
        }
        return true;
    }

    /**
     * Reads the bytes available.
     *
     * @throws EOFException at the end of the connection
     */
    void fill() throws IOException {
        if (!in.hasRemaining()) {
            throw new IOException("a message longer than its length");
        }
        if (channel.read(in) < 0) {
            throw new EOFException("the other end closed the connection");
        }
    }

    /**
     * The next complete message, or null; call until null after each {@link #fill}.
     *
     * @throws IOException if the bytes are not a valid message
     */
    byte @Nullable [] next() throws IOException {
        if (in.position() < Integer.BYTES) {
            return null;
        }
        Mac tags = inTags;
        int length = in.getInt(0);
        if (length < 0 || length > (tags == null ? MAX_GREETING : MAX_BODY)) {
            throw new IOException("a message of " + Integer.toUnsignedString(length) + " bytes");
        }
        int whole = Integer.BYTES + length + (tags == null ? 0 : TAG_BYTES);
        if (in.position() < whole) {
            if (in.capacity() < whole) {
                resize(whole);
            }
            return null;
        }
        in.flip().position(Integer.BYTES);
        byte[] body = new byte[length];
        in.get(body);
        if (tags != null) {
            byte[] said = new byte[TAG_BYTES];
            in.get(said);
            byte[] expected = Arrays.copyOf(tag(tags, inNumber++, body), TAG_BYTES);
            if (!MessageDigest.isEqual(said, expected)) {
                throw new IOException("a message that was changed on its way");
            }
        }
        in.compact();
        if (in.capacity() > LARGE_BUFFER && in.position() < SMALL_BUFFER) {
            resize(SMALL_BUFFER);
        }
        return body;
    }

    private void resize(int capacity) {
        in = ByteBuffer.allocate(capacity).put(in.flip());
    }
}
